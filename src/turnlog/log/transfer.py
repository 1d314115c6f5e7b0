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

from turnlog.errors import Conflict, InvalidEvent, NotFound, SessionClosed
from turnlog.events import CATALOG, Envelope, decode_envelope
from turnlog.events.envelope import parse_timestamp_ms
from turnlog.events.payload import SessionId
from turnlog.events.strict_json import one_line
from turnlog.ids import new_epoch, now_ms
from turnlog.log.append import activity_after, apply_to_record
from turnlog.log.blobs import BlobLine, BlobReader, NamedBlob
from turnlog.log.filter import MATCH_ALL, EventFilter
from turnlog.log.log import Log
from turnlog.log.sqlite.checksums import chain_hash, make_row
from turnlog.log.store import (
    NewRow,
    Row,
    SessionRecord,
    SpanEdge,
    Store,
    encode_meta,
    envelope_json,
    live_event_span,
    span_edge,
)
from turnlog.log.subscription import ChargeBytes

MAX_BATCH_EVENTS = 500
MAX_TIMESTAMP_MS = 253_402_300_799_999  # the end of the year 9999: what is later has no time stamp


class SessionLine(msgspec.Struct, tag_field="type", tag="session", frozen=True):
    """The first line of a session."""

    session_id: SessionId
    app: str = ""
    closed: bool = False
    created_ms: Annotated[int, Meta(ge=0, le=MAX_TIMESTAMP_MS)] = 0


LINE_TYPES: dict[str, type[SessionLine | BlobLine]] = {"session": SessionLine, "blob": BlobLine}  # not events


class EventLine(NamedTuple):
    """A line that holds an event."""

    number: int
    envelope: Envelope
    line: bytes

    def conflict_error(self, record: SessionRecord) -> Conflict:
        """What to say when the log holds another history."""
        text = f"line {self.number}: {self.envelope.id} is not what this log has at that place"
        return Conflict(text, record.last)


class ImportCounts(NamedTuple):
    """How much of an import was new."""

    new_events: int = 0
    known_events: int = 0
    new_blobs: int = 0


class ImportBatch(NamedTuple):
    """Some events of a session, and whether they are its last."""

    session: SessionLine
    events: list[EventLine]
    is_last: bool


async def export_session(
    log: Log,
    session_id: str,
    after: int = -1,
    event_filter: EventFilter = MATCH_ALL,
    charge_bytes: ChargeBytes | None = None,
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
        if charge_bytes is not None:
            await charge_bytes(rows.size_bytes)
        for row in rows:
            if event_filter.matches(row):
                yield envelope_json(row)
        after = rows.last


async def import_lines(log: Log, lines: Iterable[bytes]) -> AsyncIterator[ImportCounts]:
    """Take lines in, in batches; yields how much each batch added. Stops at the first line that is wrong."""
    for item in batch_by_session(lines):
        if isinstance(item, NamedBlob):
            await log.put_blob(item.session_id, item.blob.data, item.blob.media_type)
            yield ImportCounts(new_blobs=1)
            continue
        session = item.session
        yield await log.append_raw(
            session.session_id, partial(import_batch, session=session, batch=item.events)
        )
        if item.is_last and session.closed:
            await log.close_session(session.session_id)


def batch_by_session(lines: Iterable[bytes]) -> Iterator[ImportBatch | NamedBlob]:
    """The events of each session, some at a time, and its blobs, one at a time."""
    session: SessionLine | None = None
    batch: list[EventLine] = []
    blobs, number = BlobReader(), 0
    for number, text in enumerate(lines, 1):
        line = text.strip()
        item = decode_export_line(line, number) if line else None
        if item is None:
            continue
        if isinstance(item, BlobLine):
            check_session_line(session, item.blob.partition("/")[0], number)
            if blob := blobs.feed(item, number):
                yield blob
            continue
        blobs.check_complete(number)
        if isinstance(item, SessionLine):
            if session:
                yield ImportBatch(session, batch, is_last=True)
            session, batch = item, []
            continue
        session = check_session_line(session, item.session_id, number)
        batch.append(EventLine(number, item, line))
        if len(batch) == MAX_BATCH_EVENTS:
            yield ImportBatch(session, batch, is_last=False)
            batch = []
    blobs.check_complete(number + 1)
    if session:
        yield ImportBatch(session, batch, is_last=True)


def check_session_line(session: SessionLine | None, session_id: str, number: int) -> SessionLine:
    """Return the session whose lines these are; raise `InvalidEvent` if a line is of another one."""
    if session is None or session_id != session.session_id:
        raise InvalidEvent(f"line {number}: expected the line of session {session_id} first")
    return session


def decode_export_line(line: bytes, number: int) -> SessionLine | BlobLine | Envelope:
    """A line is a session, a blob or an envelope, and text throughout."""
    try:
        tree = msgspec.json.decode(line)
        name = tree.get("type") if isinstance(tree, dict) else None
        kind = LINE_TYPES.get(name) if isinstance(name, str) else None
        return msgspec.json.decode(line, type=kind) if kind else decode_envelope(line)
    except InvalidEvent as error:
        raise InvalidEvent(f"line {number}: {error.problem}", error.path) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidEvent(f"line {number}: {one_line(str(error))}") from None


def import_batch(
    store: Store, session: SessionLine, batch: list[EventLine]
) -> tuple[ImportCounts, list[Row], str]:
    """One batch inside a transaction: checks first, writes last."""
    known = store.get_record(session.session_id)
    head = known or SessionRecord(
        session.session_id, epoch=new_epoch(), app=session.app, created_ms=session.created_ms or now_ms()
    )
    rows, marks, moved, lines = [], [], head, dict[str, bytes]()
    for item in batch:
        if lines.get(item.envelope.id) == item.line or (known and is_already_imported(store, head, item)):
            continue
        if item.envelope.seq <= moved.last or item.envelope.id in lines:
            raise item.conflict_error(head)
        if head.closed:
            raise SessionClosed(f"line {item.number}: {head.session_id} is closed")
        new, mark, moved = restore_event(moved, item)
        rows.append(new)
        marks.append(mark)
        lines[item.envelope.id] = item.line
    if known is None:
        store.put_record(head)
    if rows:
        store.insert_rows(moved, rows, [mark for mark in marks if mark])
    return ImportCounts(len(rows), len(batch) - len(rows)), [new.row for new in rows], head.epoch


def is_already_imported(store: Store, record: SessionRecord, item: EventLine) -> bool:
    """Whether the log has this very event, or had it and pruned it."""
    row = store.find(record.session_id, [item.envelope.id]).get(item.envelope.id)
    if row is None:
        return (
            item.envelope.seq <= record.pruned_through
            and live_event_span(CATALOG.decode_payload(item.envelope)) is not None
        )
    if envelope_json(row) != item.line:
        raise item.conflict_error(record)
    return True


def restore_event(record: SessionRecord, item: EventLine) -> tuple[NewRow, SpanEdge | None, SessionRecord]:
    """An event as it was: its bytes, seq and time; seqs that are missing before it were pruned."""
    envelope, payload = item.envelope, CATALOG.decode_payload(item.envelope)
    span = live_event_span(payload)
    rank = record.durable_count + (span is None)
    meta = encode_meta(rank, span is not None, envelope, envelope.type)
    row = make_row(record.session_id, envelope.seq, meta, b"data: " + item.line + b"\n\n")
    chain = record.chain if span else chain_hash(record.chain, row.frame)
    pruned = envelope.seq - 1 if envelope.seq > record.last + 1 else record.pruned_through
    ts_ms = parse_timestamp_ms(envelope.ts)
    updated_ms = max(record.updated_ms, ts_ms)
    activity = activity_after(record, {envelope.channel}, ts_ms)
    moved = record.replace(
        last=envelope.seq,
        durable_count=rank,
        chain=chain,
        pruned_through=pruned,
        updated_ms=updated_ms,
        activity=activity,
    )
    moved = apply_to_record(moved, payload, envelope.actor, envelope.seq)
    mark = span_edge(payload, envelope.agent_id, envelope.trace_id, envelope.seq)
    return NewRow(row, envelope.id, ts_ms, None if span else chain, span), mark, moved
