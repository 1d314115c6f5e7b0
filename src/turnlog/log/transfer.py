"""Sessions as lines of JSON, out and in again: ids, seqs and bytes are kept.

A session is one line that describes it, `{"type":"session",...}`, its envelopes, one per line, as stored, and
its blobs, `{"type":"blob",...}` (see `blobs`). Import adds what is not there yet; doing it twice changes
nothing. A session that is made by an import has a new epoch: its history was restored.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from turnlog.errors import Closed, Conflict, InvalidEvent, NotFound
from turnlog.events import CATALOG, Envelope, decode
from turnlog.events.envelope import milliseconds
from turnlog.events.payload import SessionId
from turnlog.events.strict_json import short
from turnlog.ids import new_epoch, now_ms
from turnlog.log.append import activity_after, told
from turnlog.log.blobs import BlobLine, BlobReader, NamedBlob
from turnlog.log.filter import EVERYTHING, Choice
from turnlog.log.log import Log
from turnlog.log.sqlite.checksums import link, make_row
from turnlog.log.store import Head, NewRow, Row, SpanMark, Store, line_of, pack, span_mark, span_of
from turnlog.log.subscription import Spend

BATCH = 500
LAST_MS = 253_402_300_799_999  # the end of the year 9999: what is later has no time stamp


class SessionLine(msgspec.Struct, tag_field="type", tag="session", frozen=True):
    """The first line of a session."""

    session_id: SessionId
    app: str = ""
    closed: bool = False
    created_ms: Annotated[int, Meta(ge=0, le=LAST_MS)] = 0


LINES: dict[str, type[SessionLine | BlobLine]] = {"session": SessionLine, "blob": BlobLine}  # not events


class EventLine(NamedTuple):
    """A line that holds an event."""

    number: int
    envelope: Envelope
    line: bytes

    def conflict(self, head: Head) -> Conflict:
        """What to say when the log holds another history."""
        text = f"line {self.number}: {self.envelope.id} is not what this log has at that place"
        return Conflict(text, head.last)


class Imported(NamedTuple):
    """How much of an import was new."""

    added: int = 0
    known: int = 0
    blobs: int = 0


class Batch(NamedTuple):
    """Some events of a session, and whether they are its last."""

    session: SessionLine
    events: list[EventLine]
    last: bool


async def export_session(
    log: Log,
    session_id: str,
    after: int = -1,
    choice: Choice = EVERYTHING,
    spend: Spend | None = None,
) -> AsyncIterator[bytes]:
    """The lines of a session after a seq, as far as they are chosen, without their line ends.

    `NotFound` when a ring lets go of what comes next meanwhile. `spend` is told what was read.
    """
    head = await log.info(session_id)
    yield msgspec.json.encode(SessionLine(head.session_id, head.app, head.closed, head.created_ms))
    after = max(after, head.first - 1)
    while rows := await log.read(session_id, after):
        if rows.first > after + 1 and (await log.info(session_id)).first > after + 1:
            raise NotFound(f"what happened after seq {after} is not kept any more")
        if spend is not None:
            await spend(rows.size_bytes)
        for row in rows:
            if choice.takes(row):
                yield line_of(row)
        after = rows.last


async def import_lines(log: Log, lines: Iterable[bytes]) -> AsyncIterator[Imported]:
    """Take lines in, in batches; yields how much each batch added. Stops at the first line that is wrong."""
    for item in batches(lines):
        if isinstance(item, NamedBlob):
            await log.put_blob(item.session_id, item.blob.data, item.blob.media_type)
            yield Imported(blobs=1)
            continue
        session = item.session
        yield await log.restore(
            session.session_id, partial(restore_batch, session=session, batch=item.events)
        )
        if item.last and session.closed:
            await log.close_session(session.session_id)


def batches(lines: Iterable[bytes]) -> Iterator[Batch | NamedBlob]:
    """The events of each session, some at a time, and its blobs, one at a time."""
    session: SessionLine | None = None
    batch: list[EventLine] = []
    blobs, number = BlobReader(), 0
    for number, text in enumerate(lines, 1):
        line = text.strip()
        item = read_line(line, number) if line else None
        if item is None:
            continue
        if isinstance(item, BlobLine):
            check_place(session, item.blob.partition("/")[0], number)
            if blob := blobs.feed(item, number):
                yield blob
            continue
        blobs.check_complete(number)
        if isinstance(item, SessionLine):
            if session:
                yield Batch(session, batch, last=True)
            session, batch = item, []
            continue
        session = check_place(session, item.session_id, number)
        batch.append(EventLine(number, item, line))
        if len(batch) == BATCH:
            yield Batch(session, batch, last=False)
            batch = []
    blobs.check_complete(number + 1)
    if session:
        yield Batch(session, batch, last=True)


def check_place(session: SessionLine | None, session_id: str, number: int) -> SessionLine:
    """Return the session whose lines these are; raise `InvalidEvent` if a line is of another one."""
    if session is None or session_id != session.session_id:
        raise InvalidEvent(f"line {number}: expected the line of session {session_id} first")
    return session


def read_line(line: bytes, number: int) -> SessionLine | BlobLine | Envelope:
    """A line is a session, a blob or an envelope, and text throughout."""
    try:
        tree = msgspec.json.decode(line)
        name = tree.get("type") if isinstance(tree, dict) else None
        kind = LINES.get(name) if isinstance(name, str) else None
        return msgspec.json.decode(line, type=kind) if kind else decode(line)
    except InvalidEvent as error:
        raise InvalidEvent(f"line {number}: {error.problem}", error.path) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidEvent(f"line {number}: {short(str(error))}") from None


def restore_batch(
    store: Store, session: SessionLine, batch: list[EventLine]
) -> tuple[Imported, list[Row], str]:
    """One batch inside a transaction: checks first, writes last."""
    known = store.head(session.session_id)
    head = known or Head(
        session.session_id, epoch=new_epoch(), app=session.app, created_ms=session.created_ms or now_ms()
    )
    rows, marks, moved, lines = [], [], head, dict[str, bytes]()
    for item in batch:
        if lines.get(item.envelope.id) == item.line or (known and is_known(store, head, item)):
            continue
        if item.envelope.seq <= moved.last or item.envelope.id in lines:
            raise item.conflict(head)
        if head.closed:
            raise Closed(f"line {item.number}: {head.session_id} is closed")
        new, mark, moved = restored(moved, item)
        rows.append(new)
        marks.append(mark)
        lines[item.envelope.id] = item.line
    if known is None:
        store.put_head(head)
    if rows:
        store.put(moved, rows, [mark for mark in marks if mark])
    return Imported(len(rows), len(batch) - len(rows)), [new.row for new in rows], head.epoch


def is_known(store: Store, head: Head, item: EventLine) -> bool:
    """Whether the log has this very event, or had it and pruned it."""
    row = store.find(head.session_id, [item.envelope.id]).get(item.envelope.id)
    if row is None:
        return item.envelope.seq <= head.pruned and span_of(CATALOG.payload(item.envelope)) is not None
    if line_of(row) != item.line:
        raise item.conflict(head)
    return True


def restored(head: Head, item: EventLine) -> tuple[NewRow, SpanMark | None, Head]:
    """An event as it was: its bytes, seq and time; seqs that are missing before it were pruned."""
    envelope, payload = item.envelope, CATALOG.payload(item.envelope)
    span = span_of(payload)
    rank = head.rank + (span is None)
    meta = pack(rank, span is not None, envelope, envelope.type)
    row = make_row(head.session_id, envelope.seq, meta, b"data: " + item.line + b"\n\n")
    chain = head.chain if span else link(head.chain, row.frame)
    pruned = envelope.seq - 1 if envelope.seq > head.last + 1 else head.pruned
    ts_ms = milliseconds(envelope.ts)
    updated_ms = max(head.updated_ms, ts_ms)
    activity = activity_after(head, {envelope.channel}, ts_ms)
    moved = head.moved(
        last=envelope.seq, rank=rank, chain=chain, pruned=pruned, updated_ms=updated_ms, activity=activity
    )
    moved = told(moved, payload, envelope.actor, envelope.seq)
    mark = span_mark(payload, envelope.agent_id, envelope.trace_id, envelope.seq)
    return NewRow(row, envelope.id, ts_ms, None if span else chain, span), mark, moved
