"""kill -9 in mid-append: nothing acknowledged is lost, nothing doubled, no gap, no half batch (law 2, 3).

What a writer tried and never heard about is tried again by the next one. `tests/soak/test_faults.py` has 200
kills.
"""

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from tests.faults.writer import SESSIONS, Order, batch
from turnlog.events import decode_envelope
from turnlog.log import Log, Row, SqliteStore, envelope_json

LOGS, LIVES = 2, 6
ACKS = 24  # a writer lives until it has acknowledged up to this many appends ...
LINGER = 30_000  # ... and then for up to so many rounds of a loop: the kill falls anywhere in a commit

Try = tuple[str, str]


class Said(msgspec.Struct):
    """A line of the writer."""

    pid: int | None = None
    made: str | None = None
    attempt: Try | None = None
    ack: Try | None = None
    ids: list[str] = []
    seqs: list[int] = []
    dead: int | None = None


@dataclass
class Book:
    """What the writers said, and what the log held when it was last looked at."""

    made: set[str] = field(default_factory=set)
    open: set[Try] = field(default_factory=set)
    acked: dict[Try, list[int]] = field(default_factory=dict)
    kept: int = 0
    seen: dict[str, list[Row]] = field(default_factory=dict)
    places: dict[str, dict[str, int]] = field(default_factory=dict)
    epochs: dict[str, str] = field(default_factory=dict)
    found: int = 0
    absent: int = 0

    def hear(self, said: Said) -> None:
        if said.made:
            self.made.add(said.made)
        if said.attempt:
            self.open.add(said.attempt)
        if said.ack:
            assert said.ids == [event.id for event in batch(said.ack[1])]
            self.open.discard(said.ack)
            self.acked[said.ack] = said.seqs


class Nursery:
    """The process whose children are killed."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._orders, self._lines = process.stdin, process.stdout

    def hear(self) -> Said:
        return msgspec.json.decode(self._lines.readline(), type=Said)

    def life(self, order: Order, acks: int, linger: int, book: Book) -> None:
        """A writer from its birth to its violent death."""
        self._orders.write(msgspec.json.encode(order) + b"\n")
        self._orders.flush()
        pid = self.hear().pid
        assert pid is not None
        while acks:
            said = self.hear()
            assert said.dead is None, "the writer died by itself"
            book.hear(said)
            acks -= said.ack is not None
        for _ in range(linger):
            pass
        os.kill(pid, signal.SIGKILL)
        while (said := self.hear()).dead is None:
            book.hear(said)
        assert said.dead == signal.SIGKILL


@contextmanager
def nursery() -> Iterator[Nursery]:
    command = [sys.executable, "-m", "tests.faults.writer"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    root = Path(__file__).parent.parent.parent
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root, env=environment
    ) as process:
        try:
            yield Nursery(process)
        finally:
            process.kill()


async def everything(log: Log, session: str) -> list[Row]:
    rows: list[Row] = []
    while page := await log.read(session, rows[-1].seq if rows else -1):
        rows += page
    return rows


async def look(path: Path, book: Book, *, writable: bool) -> None:
    """Open the log as it is now and compare it with what was said."""
    log = Log(SqliteStore(path, writable=writable), writable=writable)
    try:
        assert await log.verify() == []
        assert await log.damages() == []
        heads = {head.session_id: head for head in await log.sessions()}
        assert book.made <= heads.keys() <= set(SESSIONS)
        for session, head in heads.items():
            assert book.epochs.setdefault(session, head.epoch) == head.epoch
            rows = await everything(log, session)
            assert [row.seq for row in rows] == list(range(head.last + 1))
            take(book, session, rows)
    finally:
        await log.close()
    for attempt, seqs in book.acked.items():  # older ones are in the part that must not change
        assert where(book, attempt) == seqs, "acknowledged, and not there"
    book.kept += len(book.acked)
    book.acked.clear()
    for attempt in book.open:
        settled(book, attempt)


def take(book: Book, session: str, rows: list[Row]) -> None:
    """What was there is unchanged; what is new is there once."""
    before, places = book.seen.get(session, []), book.places.setdefault(session, {})
    assert rows[: len(before)] == before
    for row in rows[len(before) :]:
        envelope = decode_envelope(envelope_json(row))
        assert envelope.seq == row.seq
        assert envelope.id not in places, "doubled"
        places[envelope.id] = row.seq
    book.seen[session] = rows


def where(book: Book, attempt: Try) -> list[int | None]:
    """The seqs at which the events of an append are, each with the body it was given."""
    session, name = attempt
    seqs = [book.places.get(session, {}).get(event.id) for event in batch(name)]
    for event, seq in zip(batch(name), seqs, strict=True):
        if seq is not None:
            envelope = decode_envelope(envelope_json(book.seen[session][seq]))
            assert (envelope.type, bytes(envelope.payload)) == (event.type, event.body)
    return seqs


def settled(book: Book, attempt: Try) -> None:
    """An append nobody heard about is whole or not there."""
    seqs = where(book, attempt)
    if seqs[0] is None:
        assert set(seqs) == {None}, "half a batch"
        book.absent += 1
    else:
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs))), "half a batch"
        book.found += 1


def killed(folder: Path, logs: int, lives: int) -> list[Book]:
    """Kill writers of some logs again and again, and check the whole log after each kill."""
    chance, books = random.Random(4), [Book() for _ in range(logs)]
    with nursery() as writers:
        for number, book in enumerate(books):
            path = folder / f"{number}.db"
            for life in range(lives):
                order = Order(str(path), life, sorted(book.open))
                writers.life(order, chance.randint(0, ACKS), chance.randint(0, LINGER), book)
                asyncio.run(look(path, book, writable=chance.random() < 0.5 or not path.exists()))
    return books


def test_writers_killed_in_mid_append_lose_double_and_tear_nothing(tmp_path: Path) -> None:
    books = killed(tmp_path, LOGS, LIVES)
    assert sum(book.kept for book in books) > LOGS * LIVES, "the writers hardly wrote"


def test_the_check_sees_a_log_that_lost_what_was_acknowledged(tmp_path: Path) -> None:
    path, older, book = tmp_path / "log.db", tmp_path / "older", Book()
    with nursery() as writers:
        writers.life(Order(str(path), 0, []), ACKS, 0, book)
        asyncio.run(look(path, book, writable=True))
        shutil.copytree(tmp_path, older)
        writers.life(Order(str(path), 1, sorted(book.open)), ACKS, 0, book)
    for file in older.iterdir():
        shutil.copy(file, tmp_path)
    for leftover in (path.with_name("log.db-wal"), path.with_name("log.db-shm")):
        leftover.unlink(missing_ok=True)
    with pytest.raises(AssertionError):
        asyncio.run(look(path, book, writable=True))
