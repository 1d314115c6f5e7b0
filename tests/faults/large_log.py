"""A log of any size, made quickly: many sessions with the same events each, and a long one."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from tests.faults.sample import turn
from turnlog.events import Event
from turnlog.log import SessionRecord, SqliteStore
from turnlog.log.checksums import chain_hash, make_row
from turnlog.log.jobs import AppendRequest
from turnlog.log.local_jobs import LocalStore, append_events
from turnlog.log.records import NewRow, Row
from turnlog.log.spans import SpanEdge

LONG = "sess_long_one"
TURN_EVENTS = 20
NOW_MS = 1_767_875_696_789
GROUP = 20_000  # events per transaction


def turns(count: int) -> Iterator[list[Event]]:
    """Turns of 20 events, 12 of them live."""
    for number in range(count):
        yield turn(f"{number:06}", TURN_EVENTS - 9, "ok")


class Recorder:
    """A store that keeps what is put into it. Nothing in it is known before: the ids are fresh."""

    def __init__(self, head: SessionRecord) -> None:
        self._head = head
        self.rows: list[NewRow] = []
        self.marks: list[SpanEdge] = []

    def get_record(self, session_id: str) -> SessionRecord:
        return self._head

    def find(self, session_id: str, event_ids: Sequence[str]) -> dict[str, Row]:
        return {}

    def insert_rows(
        self, record: SessionRecord, rows: Sequence[NewRow], edges: Sequence[SpanEdge]
    ) -> SessionRecord:
        self._head = record
        self.rows += rows
        self.marks += edges
        return record

    def take(self) -> tuple[SessionRecord, list[NewRow], list[SpanEdge]]:
        """What came since the last time."""
        rows, marks, self.rows, self.marks = self.rows, self.marks, [], []
        return self._head, rows, marks


def new_head(session: str) -> SessionRecord:
    return SessionRecord(session, epoch="00000000", app="faults", created_ms=NOW_MS)


def renamed(
    template: tuple[SessionRecord, list[NewRow], list[SpanEdge]], session: str
) -> tuple[SessionRecord, list[NewRow], list[SpanEdge]]:
    """The same events in another session, whose name is as long."""
    head, rows, marks = template
    old, new, chain, moved = head.session_id.encode(), session.encode(), b"", []
    for row in rows:
        frame = row.row.frame.replace(old, new)
        chain = chain if row.chain is None else chain_hash(chain, frame)
        placed = make_row(session, row.row.seq, row.row.meta, frame)
        moved.append(row._replace(row=placed, chain=None if row.chain is None else chain))
    return head.replace(session_id=session, chain=chain), moved, marks


def name_of(number: int) -> str:
    return f"sess_{number:08}"


def build(path: Path, *, sessions: int, events_each: int, long_events: int) -> None:
    """Many sessions with the same events each, and a long one."""
    store = SqliteStore(path)
    recorder = Recorder(new_head(name_of(0)))
    for events in turns(events_each // TURN_EVENTS):
        append_events(cast(LocalStore, recorder), AppendRequest(name_of(0), events, NOW_MS))
    template = recorder.take()
    at_once = max(1, GROUP // events_each)
    for first in range(0, sessions, at_once):
        with store.transaction():
            for number in range(first, min(first + at_once, sessions)):
                store.put_record(new_head(name_of(number)))
                store.insert_rows(*renamed(template, name_of(number)))
    with store.transaction():
        store.put_record(new_head(LONG))
    recorder = Recorder(new_head(LONG))
    for number, events in enumerate(turns(long_events // TURN_EVENTS), 1):
        append_events(cast(LocalStore, recorder), AppendRequest(LONG, events, NOW_MS))
        if number % (GROUP // TURN_EVENTS) == 0 or number == long_events // TURN_EVENTS:
            with store.transaction():
                store.insert_rows(*recorder.take())
    store.close()
