"""Export and import of sessions as lines of JSON. Ids, seqs and bytes stay the same; a bare UUID gets `evt_`.

A session is one line that describes it, `{"type":"session",...}`, then its envelopes as they are stored, one
per line, then its blobs, `{"type":"blob",...}` (see `blobs`). Import adds what is missing, so importing twice
changes nothing. A session that an import creates has a new epoch: its history was restored.
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
from turnlog.ids import new_epoch, now_ms, to_event_id
from turnlog.log.append import RowBatch, activity_after, apply_to_record
from turnlog.log.blobs import BlobLine, BlobReader, NamedBlob
from turnlog.log.filter import MATCH_ALL, EventFilter
from turnlog.log.log import Log
from turnlog.log.records import Row, SessionRecord, envelope_json
from turnlog.log.spans import live_event_span
from turnlog.log.store import Store
from turnlog.log.subscription import ChargeBytes

MAX_BATCH_EVENTS = 500
MAX_TIMESTAMP_MS = 253_402_300_799_999  # the end of the year 9999: later times have no timestamp


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
        text = f"line {self.number}: the log has another event in the place of {self.envelope.id}"
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
    """Yield the lines of a session after a seq that match a filter, without line ends.

    Raise `NotFound` if the next events are evicted meanwhile. `charge_bytes` gets the size of each page.
    """
    record = await log.info(session_id)
    yield msgspec.json.encode(SessionLine(record.session_id, record.app, record.closed, record.created_ms))

    after = max(after, record.first - 1)
    while page := await log.read(session_id, after):
        if page.first > after + 1 and (await log.info(session_id)).first > after + 1:
            raise NotFound(f"the events after seq {after} are no longer stored")
        if charge_bytes is not None:
            await charge_bytes(page.size_bytes)
        for row in page:
            if event_filter.matches(row):
                yield envelope_json(row)
        after = page.last


async def import_lines(log: Log, lines: Iterable[bytes]) -> AsyncIterator[ImportCounts]:
    """Import lines in batches and yield the counts of each. Stops at the first wrong line.

    Raise `InvalidEvent`, `Conflict` or `SessionClosed` with the number of the line.
    """
    for item in batch_by_session(lines):
        if isinstance(item, NamedBlob):
            await log.put_blob(item.session_id, item.blob.data, item.blob.media_type)
            yield ImportCounts(new_blobs=1)
            continue

        session = item.session
        yield await log.append_raw(
            session.session_id, partial(import_batch, session=session, lines=item.events)
        )
        if item.is_last and session.closed:
            await log.close_session(session.session_id)


def batch_by_session(lines: Iterable[bytes]) -> Iterator[ImportBatch | NamedBlob]:
    """Yield the events of each session in batches, and its blobs one at a time."""
    session: SessionLine | None = None
    events: list[EventLine] = []
    blobs = BlobReader()
    number = 0
    for number, text in enumerate(lines, 1):
        line = text.strip()
        if not line:
            continue
        item = decode_export_line(line, number)

        if isinstance(item, BlobLine):
            check_session_line(session, item.blob.partition("/")[0], number)
            blob = blobs.feed(item, number)
            if blob:
                yield blob
            continue

        blobs.check_complete(number)
        if isinstance(item, SessionLine):
            if session:
                yield ImportBatch(session, events, is_last=True)
            session = item
            events = []
            continue

        session = check_session_line(session, item.envelope.session_id, number)
        events.append(item)
        if len(events) == MAX_BATCH_EVENTS:
            yield ImportBatch(session, events, is_last=False)
            events = []

    blobs.check_complete(number + 1)
    if session:
        yield ImportBatch(session, events, is_last=True)


def check_session_line(session: SessionLine | None, session_id: str, number: int) -> SessionLine:
    if session is None or session_id != session.session_id:
        raise InvalidEvent(f"line {number}: expected the line of session {session_id} first")
    return session


def decode_export_line(line: bytes, number: int) -> SessionLine | BlobLine | EventLine:
    """Decode a session, a blob or an envelope; raise `InvalidEvent` with the number of the line."""
    try:
        tree = msgspec.json.decode(line)
        type_name = tree.get("type") if isinstance(tree, dict) else None
        line_type = LINE_TYPES.get(type_name) if isinstance(type_name, str) else None
        if line_type:
            return msgspec.json.decode(line, type=line_type)
        event_id = tree.get("id") if isinstance(tree, dict) else None
        if isinstance(event_id, str) and to_event_id(event_id) != event_id:
            line = with_event_id(line, to_event_id(event_id))
        return EventLine(number, decode_envelope(line), line)
    except InvalidEvent as error:
        raise InvalidEvent(f"line {number}: {error.problem}", error.path) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidEvent(f"line {number}: {one_line(str(error))}") from None


def with_event_id(line: bytes, event_id: str) -> bytes:
    """Return an envelope with another id; all its other values keep their bytes."""
    fields = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    fields["id"] = msgspec.Raw(msgspec.json.encode(event_id))
    return msgspec.json.encode(fields)


def import_batch(
    store: Store, session: SessionLine, lines: list[EventLine]
) -> tuple[ImportCounts, list[Row], str]:
    """Import events inside a transaction: checks first, writes last.

    Return the counts, the new rows and the epoch of the session.
    """
    known_record = store.get_record(session.session_id)
    record = known_record or SessionRecord(
        session.session_id, epoch=new_epoch(), app=session.app, created_ms=session.created_ms or now_ms()
    )
    updated = record
    batch = RowBatch(record)
    line_by_id: dict[str, bytes] = {}
    for item in lines:
        envelope = item.envelope
        if line_by_id.get(envelope.id) == item.line:
            continue
        if known_record and is_already_imported(store, record, item):
            continue
        if envelope.seq <= batch.last or envelope.id in line_by_id:
            raise item.conflict_error(record)
        if record.closed:
            raise SessionClosed(f"line {item.number}: {record.session_id} is closed")

        updated = restore_event(updated, batch, item)
        line_by_id[envelope.id] = item.line

    if known_record is None:
        store.put_record(record)
    if batch.rows:
        updated = updated.replace(last=batch.last, durable_count=batch.durable_count, chain=batch.chain)
        store.insert_rows(updated, batch.rows, batch.edges)
    counts = ImportCounts(len(batch.rows), len(lines) - len(batch.rows))
    return counts, [new.row for new in batch.rows], record.epoch


def is_already_imported(store: Store, record: SessionRecord, item: EventLine) -> bool:
    """Return True if the log has this event, or had it and pruned it; raise `Conflict` for another event."""
    envelope = item.envelope
    row = store.find(record.session_id, [envelope.id]).get(envelope.id)
    if row is None:
        if envelope.seq > record.pruned_through:
            return False
        return live_event_span(CATALOG.decode_payload(envelope)) is not None
    if envelope_json(row) != item.line:
        raise item.conflict_error(record)
    return True


def restore_event(record: SessionRecord, batch: RowBatch, item: EventLine) -> SessionRecord:
    """Add an event to a batch with its own bytes, seq and time; return the record after it.

    Missing seqs before it count as pruned.
    """
    envelope = item.envelope
    payload = CATALOG.decode_payload(envelope)
    ts_ms = parse_timestamp_ms(envelope.ts)
    has_gap = envelope.seq > batch.last + 1
    batch.add(
        envelope,
        envelope,
        payload,
        seq=envelope.seq,
        live=live_event_span(payload) is not None,
        frame=b"data: " + item.line + b"\n\n",
        ts_ms=ts_ms,
    )
    updated = record.replace(
        pruned_through=envelope.seq - 1 if has_gap else record.pruned_through,
        updated_ms=max(record.updated_ms, ts_ms),
        activity=activity_after(record, {envelope.channel}, ts_ms),
    )
    return apply_to_record(updated, payload, envelope.actor, envelope.seq)
