"""Many sessions and a long one: opening reads no event, memory is flat, no session pays for the others.

All of it is counted, on 20,000 events. `tests/soak/test_large_log.py` has 1,000,000, and measures time too.
"""

import asyncio
import sqlite3
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.large_log import LONG, build, name_of
from turnlog.log import Row, SqliteStore, open_log

SESSIONS, EVENTS_EACH, LONG_EVENTS = 125, 80, 10_000
PAGE_BYTES = 1 << 15

Opened = Callable[[Path], SqliteStore]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "log.db"
    build(path, sessions=SESSIONS, events_each=EVENTS_EACH, long_events=LONG_EVENTS)
    return path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    build(tmp_path / "log.db", sessions=1, events_each=EVENTS_EACH, long_events=0)
    return tmp_path / "log.db"


@pytest.fixture
def opened() -> Iterator[Opened]:
    stores: list[SqliteStore] = []

    def open_store(path: Path) -> SqliteStore:
        stores.append(SqliteStore(path))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


class Instructions:
    """Counts what SQLite runs on every connection that is made while it is in use."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        connect = sqlite3.connect

        def counted(*args: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*args, **options)
            connection.set_progress_handler(self._step, 1)
            return connection

        monkeypatch.setattr(sqlite3, "connect", counted)

    def _step(self) -> int:
        self.count += 1
        return 0


def instructions_to_open(path: Path) -> int:
    with pytest.MonkeyPatch.context() as monkeypatch:
        instructions = Instructions(monkeypatch)
        SqliteStore(path).close()
    return instructions.count


def test_opening_takes_some_instructions_for_a_session_and_none_for_its_events(
    large: Path, small: Path
) -> None:
    few = instructions_to_open(small)
    assert few > 100, "nothing was counted"
    assert instructions_to_open(large) - few <= 100 * SESSIONS < SESSIONS * EVENTS_EACH + LONG_EVENTS


async def peak_while_following(path: Path, origin: int | None) -> tuple[int, int, int]:
    """The most memory that following the long session held at once; events and bytes that were read."""
    log = await open_log(f"sqlite:///{path}")
    last, events, size = (await log.info(LONG)).last, 0, 0
    tracemalloc.start()
    try:
        async for rows in log.follow(LONG, replay_from=origin, max_bytes=PAGE_BYTES):
            events, size = events + len(rows), size + sum(len(row.frame) for row in rows)
            if rows[-1].seq == last:
                break
        return tracemalloc.get_traced_memory()[1], events, size
    finally:
        tracemalloc.stop()
        await log.close()


@pytest.mark.parametrize("origin", [None, -1], ids=["every event", "without live events"])
def test_following_a_long_session_holds_some_pages_and_not_the_session(
    large: Path, origin: int | None
) -> None:
    peak_bytes, events, size = asyncio.run(peak_while_following(large, origin))
    assert events == (LONG_EVENTS if origin is None else LONG_EVENTS * 8 // 20)
    assert peak_bytes < size / 2


def reader_of(store: SqliteStore) -> sqlite3.Connection:
    """The connection on which this thread reads: only there can its work be counted."""
    return store._reader_connection()


def read_all(store: SqliteStore, session: str, origin: int | None) -> list[Row]:
    rows: list[Row] = []
    while page := store.read(session, rows[-1].seq if rows else -1, origin, 4096):
        rows += page
    return rows


def ask_everything(store: SqliteStore, session: str) -> int:
    """Everything that can be asked about one session; how many rows came."""
    store.info(session)
    rows = len(read_all(store, session, None)) + len(read_all(store, session, -1))
    for seq in (0, 33, 79):
        store.has_event(session, seq)
        store.oldest_open_turn_start(session, seq)
    store.span_end(session, "blk_000001")
    return rows


def steps(store: SqliteStore, session: str) -> int:
    """How many instructions SQLite runs to answer."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    ask_everything(store, session)  # what is done once per connection is done
    reader_of(store).set_progress_handler(count, 1)
    assert ask_everything(store, session) == EVENTS_EACH + EVENTS_EACH * 8 // 20
    reader_of(store).set_progress_handler(None, 0)
    return counted


def test_reading_a_session_takes_the_same_instructions_with_and_without_neighbours(
    large: Path, small: Path, opened: Opened
) -> None:
    lonely = steps(opened(small), name_of(0))
    store = opened(large)
    assert lonely > 1000, "nothing was counted"
    for number in (0, SESSIONS // 2, SESSIONS - 1):
        assert steps(store, name_of(number)) < lonely * 1.01  # a neighbour behind it costs a few


def test_every_question_about_a_session_is_answered_from_an_index(large: Path, opened: Opened) -> None:
    store, asked = opened(large), set[str]()
    reader = reader_of(store)
    reader.set_trace_callback(asked.add)
    ask_everything(store, name_of(7))
    reader.set_trace_callback(None)
    questions = [text for text in asked if text.lstrip().lower().startswith("select")]
    assert len(questions) >= 6
    for question in questions:
        plan = [row[3] for row in reader.execute(f"explain query plan {question}")]
        scans = [step for step in plan if step.startswith("SCAN") and "damage" not in step]
        assert not scans, f"{question}: {plan}"
