"""Export and import of sessions as lines of JSON. Ids, seqs and bytes stay the same; a bare UUID gets `evt_`.

A session is one line that describes it, `{"type":"session",...}`, then its envelopes as they are stored, one
per line, then its blobs, `{"type":"blob",...}` (see `blobs`). Import adds what is missing, so importing twice
changes nothing. A session that an import creates has a new epoch: its history was restored.
Import also takes envelopes without seq and origin (`EnvelopeDraft`). They need no line of their session, and
get the next seqs.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Annotated, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from turnlog.errors import InvalidEvent, NotFound
from turnlog.events import Envelope, EnvelopeDraft, decode_any_envelope, decode_envelope
from turnlog.events.payload import SessionId
from turnlog.events.strict_json import one_line
from turnlog.ids import new_epoch, now_ms, to_event_id
from turnlog.log.blobs import BlobLine, BlobReader, NamedBlob
from turnlog.log.drafts import DraftBuilder, parse_draft_time_ms
from turnlog.log.filter import MATCH_ALL, EventFilter
from turnlog.log.jobs import DraftLine, EventLine, ImportCounts, ImportEvents, PutBlob
from turnlog.log.log import Log
from turnlog.log.records import Row, SessionRecord, envelope_json
from turnlog.log.subscription import ChargeBytes

E = TypeVar("E")

BARE_ID_PATTERN = re.compile(rb'"id"\s*:\s*"[0-9a-fA-F]{8}-')  # may also match inside a payload
MAX_BATCH_EVENTS = 500
MAX_TIMESTAMP_MS = 253_402_300_799_999  # the end of the year 9999: later times have no timestamp


class SessionLine(msgspec.Struct, tag_field="type", tag="session", frozen=True):
    """The first line of a session."""

    session_id: SessionId
    app: str = ""
    closed: bool = False
    created_ms: Annotated[int, Meta(ge=0, le=MAX_TIMESTAMP_MS)] = 0


LINE_TYPES: dict[str, type[SessionLine | BlobLine]] = {"session": SessionLine, "blob": BlobLine}  # not events


class ImportBatch(NamedTuple):
    """Some events of a session, and whether they are its last."""

    session: SessionLine
    events: list[EventLine | DraftLine]
    is_last: bool


async def export_session(
    log: Log,
    session_id: str,
    after: int = -1,
    event_filter: EventFilter = MATCH_ALL,
    charge_bytes: ChargeBytes | None = None,
    project_row: Callable[[Row], Row | None] | None = None,
) -> AsyncIterator[bytes]:
    """Yield the lines of a session after a seq that match a filter, without line ends.

    `project_row` returns each row as its reader gets it, or None. `charge_bytes` gets the size of each page.
    Raise `NotFound` if the next events are evicted meanwhile.
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
            visible_row = row if project_row is None else project_row(row)
            if visible_row is not None and event_filter.matches(row):
                yield envelope_json(visible_row)
        after = page.last


async def import_lines(log: Log, lines: Iterable[bytes]) -> AsyncIterator[ImportCounts]:
    """Import lines in batches and yield the counts of each. Stops at the first wrong line.

    Raise `InvalidEvent`, `Conflict` or `SessionClosed` with the number of the line.
    """
    for item in batch_by_session(lines):
        if isinstance(item, NamedBlob):
            await log.run_job(PutBlob(item.name, item.blob))
            yield ImportCounts(new_blobs=1)
            continue

        session = item.session
        record = SessionRecord(
            session.session_id, new_epoch(), session.app, created_ms=session.created_ms or now_ms()
        )
        yield await log.import_events(ImportEvents(record, tuple(item.events)))
        if item.is_last and session.closed:
            # Its `session.close` has closed it; an export from before there was one gets none.
            await log.close_session(session.session_id)


def batch_by_session(lines: Iterable[bytes]) -> Iterator[ImportBatch | NamedBlob]:
    session: SessionLine | None = None
    events: list[EventLine | DraftLine] = []
    drafts = DraftBuilder()
    blobs = BlobReader()
    number = 0
    for number, text in enumerate(lines, 1):
        line = with_full_event_id(text.strip())
        if not line:
            continue
        item = decode_line(line, number, decode_any_envelope)

        if isinstance(item, BlobLine):
            check_session_line(session, item.blob.partition("/")[0], number)
            blob = blobs.feed(item, number)
            if blob:
                yield blob
            continue

        blobs.check_complete(number)
        next_session = find_next_session(session, item)
        if next_session is not None:
            if session:
                yield ImportBatch(session, events, is_last=True)
            session = next_session
            events = []
            drafts = DraftBuilder()
        if isinstance(item, SessionLine):
            continue

        session = check_session_line(session, item.session_id, number)
        events.append(make_event_line(drafts, item, number, line))
        if len(events) == MAX_BATCH_EVENTS:
            yield ImportBatch(session, events, is_last=False)
            events = []

    blobs.check_complete(number + 1)
    if session:
        yield ImportBatch(session, events, is_last=True)


def find_next_session(
    session: SessionLine | None, item: SessionLine | Envelope | EnvelopeDraft
) -> SessionLine | None:
    """Return the session that an item begins; None if it belongs to the open one."""
    if isinstance(item, SessionLine):
        return item
    is_of_other = session is None or session.session_id != item.session_id
    return SessionLine(item.session_id) if isinstance(item, EnvelopeDraft) and is_of_other else None


def check_session_line(session: SessionLine | None, session_id: str, number: int) -> SessionLine:
    if session is None or session_id != session.session_id:
        raise InvalidEvent(f"line {number}: expected the line of session {session_id} first")
    return session


def make_event_line(
    drafts: DraftBuilder, envelope: Envelope | EnvelopeDraft, number: int, line: bytes
) -> EventLine | DraftLine:
    if isinstance(envelope, Envelope):
        return EventLine(number, envelope, line)
    try:
        event = drafts.build(envelope)
    except InvalidEvent as error:
        raise InvalidEvent(f"line {number}: {error.problem}", error.path) from None
    return DraftLine(number, event, parse_draft_time_ms(envelope) or now_ms())


def decode_export_line(line: bytes, number: int) -> SessionLine | BlobLine | Envelope:
    """Decode a session, a blob or an envelope. Raise `InvalidEvent` with the number of the line."""
    return decode_line(line, number, decode_envelope)


def decode_line(line: bytes, number: int, decode_event: Callable[[bytes], E]) -> SessionLine | BlobLine | E:
    try:
        tree = msgspec.json.decode(line)
        type_name = tree.get("type") if isinstance(tree, dict) else None
        line_type = LINE_TYPES.get(type_name) if isinstance(type_name, str) else None
        return msgspec.json.decode(line, type=line_type) if line_type else decode_event(line)
    except InvalidEvent as error:
        raise InvalidEvent(f"line {number}: {error.problem}", error.path) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidEvent(f"line {number}: {one_line(str(error))}") from None


def with_full_event_id(line: bytes) -> bytes:
    """Return a line whose bare UUID as id has the prefix `evt_`. All other values keep their bytes."""
    if not BARE_ID_PATTERN.search(line):
        return line
    try:
        fields = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        event_id = msgspec.json.decode(fields.get("id", b"null"), type=str)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return line  # `decode_line` says what is wrong with it
    fields["id"] = msgspec.Raw(msgspec.json.encode(to_event_id(event_id)))
    return msgspec.json.encode(fields)
