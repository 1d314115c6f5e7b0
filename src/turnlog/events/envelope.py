"""The envelope around every payload, and the step from an event to its envelope.

An `Event` is what an emitter hands to the log: a validated payload, encoded once, with its identity and
scope. `stamp` gives it its place: session, seq and time come in as values, nothing is read from the world.
It writes one line of JSON with no newline in it, ready for one SSE `data:` line. An `Envelope` is such a
line read back; it keeps its payload as raw bytes, so types and fields this version does not know survive.
"""

from datetime import datetime, timedelta
from functools import lru_cache

from msgspec import DecodeError, Raw, Struct, ValidationError, convert, structs
from msgspec.json import Decoder, Encoder

from turnlog.errors import InvalidEvent
from turnlog.events.base import (
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
from turnlog.events.gate import short
from turnlog.events.names import check_name_bytes


class Scope(Record, frozen=True, kw_only=True):
    """Whose event it is: the turn, the invocation with its depth, the role whose members alone see it, and
    the person who sent it."""

    trace_id: TraceId | None = None
    agent_id: AgentId | None = None
    agent_name: Name | None = None
    depth: Count | None = None
    channel: Role | None = None
    actor: Name | None = None


class Unknown(Struct, frozen=True):
    """A payload that this version cannot read: stored, replayed, ignored by folds.

    `problem` is None if no vocabulary here declares the type. Otherwise it says why the stored payload does
    not fit the class of today: the application has retyped a field, and its state lacks this event.
    """

    data: Raw
    problem: str | None = None


class Event(Struct, frozen=True, kw_only=True):
    """What an emitter hands to the log. `body` is the payload as it will be stored, encoded once."""

    type: str
    id: str
    payload: Payload | Unknown
    body: bytes
    origin: Origin
    scope: Scope = Scope()
    live: bool = False


class Envelope(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event in its place in the log; the field order is the order on the wire."""

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


class Entry(Struct, frozen=True, kw_only=True):
    """An event of the log as it is read: the fields of its envelope, and its payload as its class."""

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
    payload: Payload | Unknown


EPOCH = datetime(1970, 1, 1)  # in UTC by definition; exact

_decoder = Decoder(Envelope)
_encoder = Encoder()


@lru_cache(8)  # events come many to the second
def second(s: int) -> str:
    """Seconds since 1970 as `2026-01-08T12:34:56`."""
    return (EPOCH + timedelta(seconds=s)).isoformat()


@lru_cache(64)  # and some to the millisecond
def timestamp(ms: int) -> str:
    """Milliseconds since 1970 as `2026-01-08T12:34:56.789Z`."""
    return f"{second(ms // 1000)}.{ms % 1000:03d}Z"


def milliseconds(ts: str) -> int:
    """A time stamp as milliseconds since 1970; a date that no calendar has, as a foreign log may, is 1970."""
    try:
        return (datetime.fromisoformat(ts[:-1]) - EPOCH) // timedelta(milliseconds=1)
    except ValueError:
        return 0


def frame(event: Event, *, session_id: str, seq: int, ts_ms: int) -> bytes:
    """An event in its place, as it is stored and sent. Pure: the same values give the same bytes."""
    start, middle = _around(event.type, session_id, event.scope, event.origin)
    place = f'{event.id}","seq":{seq},"ts":"{timestamp(ts_ms)}'.encode()
    return b"".join((start, place, middle, event.body, b"}\n\n"))


def stamp(event: Event, *, session_id: str, seq: int, ts_ms: int) -> bytes:
    """An event in its place, as one line of JSON."""
    return frame(event, session_id=session_id, seq=seq, ts_ms=ts_ms)[len(b"data: ") : -len(b"\n\n")]


@lru_cache(1024)  # events come many to an invocation
def _around(type: str, session_id: str, scope: Scope, origin: Origin) -> tuple[bytes, bytes]:
    """The bytes before the id of an event, and those between its time and its payload."""
    fields = {"session_id": session_id, **structs.asdict(scope), "origin": origin}
    present = {name: value for name, value in fields.items() if value is not None}
    start = b'data: {"type":%b,"id":"' % _encoder.encode(type)
    return start, b'",%b,"payload":' % _encoder.encode(present)[1:-1]


def is_session_id(text: str) -> bool:
    """Whether a session may be called so."""
    try:
        convert(text, SessionId)
    except ValidationError:
        return False
    return True


def decode(line: bytes) -> Envelope:
    """Read a stored line; the payload stays raw."""
    if b"\n" in line or b"\r" in line:
        raise InvalidEvent("not an envelope: expected one line")
    try:
        envelope = _decoder.decode(line)
        for field in ("type", "agent_name", "actor"):
            if (name := getattr(envelope, field)) is not None:
                check_name_bytes(name, f"$.{field}")
    except (DecodeError, ValueError, RecursionError, InvalidEvent) as error:
        raise InvalidEvent(f"not an envelope: {short(str(error))}") from None
    return envelope
