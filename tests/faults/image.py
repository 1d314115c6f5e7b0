"""A log as the files it is made of, all that can be read of it, and what must hold for a damaged copy.

A copy with a fault says so, or reads as if nothing had happened. Whatever it hands out is what was written,
and what it does not hand out is named.
"""

import sqlite3
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.faults.sample import turn
from tests.support.transact import transact
from turnlog.errors import NotFound, SessionDamaged, StoreError
from turnlog.log import Damage, Log, Row, SessionRecord, SqliteStore, envelope_json
from turnlog.wire.sse import Decoder

Image = Mapping[str, bytes]  # by what follows the name of the database

SUFFIXES = ("", "-wal", ".mark")
SESSIONS = [f"sess_{number}" for number in range(4)]
ORIGINS = (None, -1, 30)
TRIES = 20  # a read that fails may be tried again: the damaged part is out of the way then
NOW_MS = 1_767_875_696_789


@dataclass
class Contents:
    """Everything a reader asked a log and was answered, and what it was told of damage."""

    answers: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    verified: list[Damage] = field(default_factory=list)

    @property
    def reported(self) -> bool:
        return bool(self.errors or self.damages or self.verified)

    def rows(self, session: str, origin: int | None = None) -> list[Row]:
        rows: list[Row] = self.answers.get(("rows", session, origin), [])
        return rows

    def head(self, session: str) -> SessionRecord | None:
        return self.answers.get(("info", session))


async def build(folder: Path, page_bytes: int) -> Image:
    """About 200 events in 4 sessions, one closed, one pruned, one with an open turn; half is in the WAL."""
    path = new_path(folder)
    connection = sqlite3.connect(path)
    connection.execute(f"pragma page_size = {page_bytes}")
    connection.execute("vacuum")
    connection.close()
    log = Log(SqliteStore(path), lambda: NOW_MS)
    for session in SESSIONS[:3]:
        await create(log, session)
        await fill(log, session, range(1, 3))
    await log.prune(SESSIONS[2], NOW_MS + 1)
    await log.close()
    log = Log(SqliteStore(path), lambda: NOW_MS)
    await create(log, SESSIONS[3])
    for number in range(3, 6):
        for session in SESSIONS:
            await fill(log, session, range(number, number + 1))
    await log.append(SESSIONS[1], turn(f"{SESSIONS[1]}_open")[:6])
    await log.close_session(SESSIONS[0])
    await fill(log, SESSIONS[3], range(7, 8))
    image = taken(path, SUFFIXES)
    await log.close()
    return image


async def closed(image: Image, folder: Path) -> Image:
    """The same log after its writer has closed it: the WAL is gone."""
    path = new_path(folder)
    place(image, path)
    await Log(SqliteStore(path)).close()
    return taken(path, ("", ".mark"))


async def create(log: Log, session: str) -> None:
    """A session with a given epoch: the same image every time."""
    head = SessionRecord(session, epoch=f"e{session}", app="faults", created_ms=NOW_MS)
    await transact(log, lambda store: store.put_record(head))


async def fill(log: Log, session: str, turns: range) -> None:
    for number in turns:
        events = turn(f"{session}_{number}", deltas=number)
        for first, last in pairwise([0, 3, len(events) // 2, len(events)]):
            await log.append(session, events[first:last])


def new_path(folder: Path) -> Path:
    """Where a log in a new folder is."""
    folder.mkdir()
    return folder / "log.db"


def taken(path: Path, suffixes: Sequence[str]) -> Image:
    """The files as they are now."""
    return {suffix: Path(f"{path}{suffix}").read_bytes() for suffix in suffixes}


def place(image: Image, path: Path) -> None:
    """The image as files; nothing of an earlier one stays."""
    for old in path.parent.glob(f"{path.name}*"):
        old.unlink()
    for suffix, content in image.items():
        Path(f"{path}{suffix}").write_bytes(content)


async def contents(path: Path) -> Contents:
    """Open a log and read all there is."""
    found = Contents()
    try:
        log = Log(SqliteStore(path))
    except StoreError as error:
        found.errors.append(str(error))
        return found
    try:
        await ask_all(log, found)
    finally:
        await log.close()
    return found


async def ask_all(log: Log, found: Contents) -> None:
    await ask(found, ("sessions",), log.sessions())
    await ask(found, ("unfinished",), log.sessions_with_open_agents())
    for session in SESSIONS:
        for origin in ORIGINS:
            found.answers["rows", session, origin] = await read_on(log, session, origin, found)
        found.answers["frames", session] = await sent(log, session, found)
        for at in (0, 30):
            await ask(found, ("turn_start", session, at), log.oldest_open_turn_start(session, at))
        for key in (f"blk_{session}_1", f"call_{session}_5"):
            await ask(found, ("ended", session, key), log.closing_event(session, key))
        await ask(found, ("info", session), log.info(session))
    await ask(found, ("verify",), log.verify())
    await ask(found, ("damages",), log.damages())
    found.verified = found.answers.pop(("verify",), [])
    found.damages = found.answers.pop(("damages",), [])


async def ask(found: Contents, what: tuple[Any, ...], answer: Awaitable[Any]) -> None:
    try:
        found.answers[what] = await answer
    except NotFound:
        found.answers[what] = None  # an answer, and a wrong one: it tells nobody of damage
    except StoreError as error:
        found.errors.append(f"{what}: {error}")


async def read_on(log: Log, session: str, origin: int | None, found: Contents) -> list[Row]:
    """A whole session; where a part is damaged, what comes behind it too."""
    rows: list[Row] = []
    for _ in range(TRIES):
        try:
            after = rows[-1].seq if rows else -1
            while page := await log.read(session, after, replay_from=origin, max_bytes=8192):
                rows += page
                after = page[-1].seq
            break
        except SessionDamaged as damage:
            found.errors.append(str(damage))
        except NotFound:
            break
        except StoreError as error:
            found.errors.append(f"{session} cannot be read: {error}")
            break
    else:
        found.errors.append(f"{session} cannot be read: one damage after the other")
    return rows


async def sent(log: Log, session: str, found: Contents) -> list[tuple[int, str]]:
    """A whole session as it is sent: its seqs and data."""
    decoder, messages = Decoder(), list[tuple[int, str]]()
    for _ in range(TRIES):
        try:
            async for data in log.follow_frames(session, messages[-1][0] if messages else -1, idle_s=0.0):
                read = [(int(item.id.partition(":")[0]), item.data) for item in decoder.feed(data)]
                messages += read
                if not data:
                    return messages
            break
        except NotFound:
            return messages
        except StoreError as error:
            found.errors.append(f"{session} cannot be read: {error}")
    return messages


def judge(original: Contents, found: Contents) -> None:
    """What must hold for a copy with a fault."""
    if not found.reported:
        assert found.answers == original.answers, "something else was read and nobody was told"
        return
    for session in SESSIONS:
        written = {row.seq: row for row in original.rows(session)}
        lines = {seq: envelope_json(row).decode() for seq, row in written.items()}
        told = found.answers.get(("frames", session), [])
        assert all(lines.get(seq) == data for seq, data in told), "wrong data was sent"
        for origin in ORIGINS:
            rows = found.rows(session, origin)
            assert all(written.get(row.seq) == row for row in rows), "wrong data was served"
            assert all(one.seq < two.seq for one, two in pairwise(rows)), "out of order"
            expected = {row.seq for row in original.rows(session, origin) if origin is None or not row.live}
            missing = expected - {row.seq for row in rows}
            if not missing or refused(session, found) or unlisted(session, found):
                continue
            assert missing <= named(session, found), "missing, and nobody was told which"
            assert epoch(session, original) != epoch(session, found), (
                "events are lost and the epoch is the same"
            )


def epoch(session: str, found: Contents) -> str | None:
    head = found.head(session)
    return head.epoch if head else None


def refused(session: str, found: Contents) -> bool:
    """Whether the log, or this session, could not be read at all."""
    return not found.answers or any(error.startswith(f"{session} cannot be read") for error in found.errors)


def unlisted(session: str, found: Contents) -> bool:
    """Whether the session is gone as a whole, and somebody was told."""
    told = found.verified or any(damage.session_id == "" for damage in found.damages)
    return found.head(session) is None and bool(told)


def named(session: str, found: Contents) -> set[int]:
    """The seqs that are known to be lost."""
    return {
        seq
        for damage in found.damages
        if damage.session_id == session
        for seq in range(damage.first, damage.last + 1)
    }
