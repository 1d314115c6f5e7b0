"""The envelope around every payload, and the steps from a draft to an event to its SSE frame.

An `EventDraft` is a payload with its scope and origin. A catalog validates and encodes it once: an `Event`.
`encode_sse_frame` adds session, seq and time, which come in as values: nothing is read from the world. It
writes the frame that the log stores and the server sends, one `data:` line of JSON without a newline in it.
An `Envelope` is such a line decoded. Its payload stays raw bytes, so that types and fields which this version
does not know are stored and sent unchanged. An `EnvelopeDraft` is the envelope of an event that is in no log.
"""

from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_type_hints

from msgspec import DecodeError, Raw, Struct, ValidationError, convert, defstruct, structs
from msgspec.json import Decoder, Encoder

from turnlog.errors import InvalidEvent
from turnlog.events.names import check_name_bytes
from turnlog.events.payload import (
    AgentId,
    Count,
    EventId,
    Name,
    Origin,
    Payload,
    Record,
    Role,
    SessionId,
    Timestamp,
    TraceId,
)
from turnlog.events.strict_json import one_line

if TYPE_CHECKING:
    from turnlog.events.catalog import Catalog


class Scope(Record, frozen=True, kw_only=True, gc=False):
    """The turn and the invocation an event belongs to, the role whose members alone may read it, and the
    principal who sent it."""

    trace_id: TraceId | None = None
    agent_id: AgentId | None = None
    agent_name: Name | None = None
    depth: Count | None = None
    channel: Role | None = None
    actor: Name | None = None


class UnknownPayload(Struct, frozen=True):
    """A payload that this version cannot decode: stored, replayed, ignored by folds.

    `problem` is None if no vocabulary declares the type. Otherwise it says why the stored payload does not
    fit its class: the application has changed the type of a field since, and its state lacks this event.
    """

    data: Raw
    problem: str | None = None


class EventDraft(Struct, frozen=True):
    """An event before it is validated. `id` is set if the id must follow from what the event is about."""

    payload: Payload
    scope: Scope
    origin: Origin
    id: str | None = None

    def build(self, catalog: "Catalog", event_id: str) -> "Event":
        """Build the event. `event_id` is used unless the draft has its own. Raise `InvalidEvent`."""
        return catalog.build_event(self.payload, id=self.id or event_id, origin=self.origin, scope=self.scope)


class Event(Struct, frozen=True, kw_only=True, gc=False):
    """A validated event. `body` is the payload as it will be stored, encoded once."""

    type: str
    id: str
    payload: Payload | UnknownPayload
    body: bytes
    origin: Origin
    scope: Scope = Scope()
    live: bool = False


class Envelope(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An event with session, seq and time; the order of the fields is their order on the wire."""

    type: Name
    id: EventId
    seq: Count
    ts: Timestamp
    session_id: SessionId
    trace_id: TraceId | None = None
    agent_id: AgentId | None = None
    agent_name: Name | None = None
    depth: Count | None = None
    channel: Role | None = None
    actor: Name | None = None
    origin: Origin
    payload: Raw


class ServerFields(Struct, frozen=True):
    """The fields of a stored envelope that no other envelope has."""

    seq: object = None
    origin: object = None


class EnvelopeDraft(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The envelope of an event that is in no log: it has no seq and no origin (protocol 8.6).

    `ts` and `trace_id` may be any text here. Its reader decides whether they count.
    """

    type: Name
    id: EventId
    ts: str | None = None
    trace_id: str | None = None
    session_id: SessionId
    payload: dict[str, Any] = {}


class Entry(Struct, frozen=True, kw_only=True, gc=False):
    """The fields of an envelope and its decoded payload."""

    type: str
    id: str
    seq: int
    ts: str
    session_id: str
    trace_id: str | None
    agent_id: str | None
    agent_name: str | None
    depth: int
    channel: str | None
    actor: str | None
    origin: Origin
    payload: Payload | UnknownPayload


E = TypeVar("E", Envelope, EnvelopeDraft)
S = TypeVar("S", bound=Struct)

UNIX_EPOCH = datetime(1970, 1, 1)  # in UTC by definition; exact


def _without_constraints(struct_class: type[S]) -> type[S]:
    """Return a subclass with the same fields, whose decoder checks types but no pattern or length."""
    types = get_type_hints(struct_class)
    fields = structs.fields(struct_class)
    required = [(field.name, types[field.name]) for field in fields if field.required]
    optional = [(field.name, types[field.name], field.default) for field in fields if not field.required]
    name = f"Stored{struct_class.__name__}"
    stored_class = defstruct(
        name, [*required, *optional], bases=(struct_class,), kw_only=True, frozen=True, gc=False
    )
    return cast(type[S], stored_class)


_decoder = Decoder(Envelope)
_stored_decoder = Decoder(_without_constraints(Envelope))
_draft_decoder = Decoder(EnvelopeDraft)
_server_fields_decoder = Decoder(ServerFields)
_encoder = Encoder()


@lru_cache(8)  # a busy session has many events per second
def _format_iso_second(s: int) -> str:
    return (UNIX_EPOCH + timedelta(seconds=s)).isoformat()


@lru_cache(64)  # and some per millisecond
def format_timestamp(ms: int) -> str:
    """Format milliseconds since 1970 as `2026-01-08T12:34:56.789Z`."""
    return f"{_format_iso_second(ms // 1000)}.{ms % 1000:03d}Z"


def parse_timestamp_ms(ts: str) -> int:
    """Parse a timestamp to milliseconds since 1970.

    Return 0 for an impossible date: imported logs are only checked against the pattern.
    """
    try:
        return (datetime.fromisoformat(ts[:-1]) - UNIX_EPOCH) // timedelta(milliseconds=1)
    except ValueError:
        return 0


def encode_sse_frame(event: Event, *, session_id: str, seq: int, ts_ms: int) -> bytes:
    """Return the frame that is stored and sent. The same values always give the same bytes."""
    return FrameEncoder(session_id, ts_ms).encode(event, seq)


class FrameEncoder:
    """Encodes frames of one session and time as `encode_sse_frame` does.

    Neighbouring events of one type and scope share all but their id, seq and payload.
    """

    __slots__ = ("_middle", "_origin", "_scope", "_session_id", "_start", "_ts", "_type", "ts_ms")

    def __init__(self, session_id: str, ts_ms: int) -> None:
        self.ts_ms = ts_ms
        self._session_id = session_id
        self._ts = format_timestamp(ts_ms)
        self._scope: Scope | None = None
        self._type = self._origin = ""
        self._start = self._middle = b""

    def encode(self, event: Event, seq: int) -> bytes:
        if event.scope is not self._scope or event.type != self._type or event.origin != self._origin:
            self._scope = event.scope
            self._type = event.type
            self._origin = event.origin
            self._start, self._middle = _encode_prefix_and_middle(
                event.type, self._session_id, event.scope, event.origin
            )
        id_seq_ts = f'{event.id}","seq":{seq},"ts":"{self._ts}'.encode()
        return b"".join((self._start, id_seq_ts, self._middle, event.body, b"}\n\n"))


def encode_envelope(event: Event, *, session_id: str, seq: int, ts_ms: int) -> bytes:
    frame = encode_sse_frame(event, session_id=session_id, seq=seq, ts_ms=ts_ms)
    return frame[len(b"data: ") : -len(b"\n\n")]


@lru_cache(1024)  # the events of one invocation share scope and origin
def _encode_prefix_and_middle(
    type: str, session_id: str, scope: Scope, origin: Origin
) -> tuple[bytes, bytes]:
    fields = {"session_id": session_id, **structs.asdict(scope), "origin": origin}
    present = {name: value for name, value in fields.items() if value is not None}
    start = b'data: {"type":%b,"id":"' % _encoder.encode(type)
    return start, b'",%b,"payload":' % _encoder.encode(present)[1:-1]


def is_session_id(text: str) -> bool:
    return _has_form(text, SessionId)


def is_trace_id(text: str | None) -> bool:
    return _has_form(text, TraceId)


def _has_form(text: str | None, form: Any) -> bool:
    try:
        convert(text, form)
    except ValidationError:
        return False
    return True


def decode_envelope(line: bytes) -> Envelope:
    """Decode a stored line. The payload stays raw. Raise `InvalidEvent`."""
    return _decode_line(_decoder, line, ("type", "agent_name", "actor"))


def decode_stored_envelope(line: bytes) -> Envelope:
    """Decode the line of a row whose checksum matches. Raise `InvalidEvent`.

    Names and ids were checked when it was appended. To check them again takes four times as long.
    """
    try:
        return _stored_decoder.decode(line)
    except (DecodeError, ValueError, RecursionError) as error:
        raise InvalidEvent(f"not an envelope: {one_line(str(error))}") from None


def decode_any_envelope(line: bytes) -> Envelope | EnvelopeDraft:
    """Decode a stored line, or an envelope without seq and origin. Raise `InvalidEvent`."""
    try:
        return decode_envelope(line)
    except InvalidEvent as error:
        if not _lacks_server_fields(line):
            raise error from None
    return _decode_line(_draft_decoder, line, ("type",))


def _lacks_server_fields(line: bytes) -> bool:
    """Return whether a line is an object that has neither seq nor origin."""
    try:
        fields = _server_fields_decoder.decode(line)
    except (DecodeError, ValueError, RecursionError):
        return False
    return fields == ServerFields()


def _decode_line(decoder: Decoder[E], line: bytes, name_fields: tuple[str, ...]) -> E:
    if b"\n" in line or b"\r" in line:
        raise InvalidEvent("not an envelope: expected one line")
    try:
        envelope = decoder.decode(line)
        for field in name_fields:
            if (name := getattr(envelope, field)) is not None:
                check_name_bytes(name, f"$.{field}")
    except (DecodeError, ValueError, RecursionError, InvalidEvent) as error:
        raise InvalidEvent(f"not an envelope: {one_line(str(error))}") from None
    return envelope
