"""The envelope around every payload, and the step from an event to its envelope.

An `Event` is what an emitter hands to the log: a validated payload, encoded once, with its identity and
scope. `stamp` gives it its place: session, seq and time come in as values, nothing is read from the world.
An `Envelope` keeps its payload as raw bytes, so types and fields this version does not know survive.
`encode` writes one line of JSON with no newline in it, ready for one SSE `data:` line.
"""

from datetime import datetime, timedelta
from functools import lru_cache

from msgspec import DecodeError, Raw, Struct
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
    SessionId,
    Timestamp,
    TraceId,
    bound,
)
from turnlog.events.gate import short


class Scope(Record, frozen=True, kw_only=True):
    """Whose event it is: the turn, and the invocation with its depth."""

    trace_id: TraceId | None = None
    agent_id: AgentId | None = None
    agent_name: Name | None = None
    depth: Count | None = None


class Unknown(Struct, frozen=True):
    """The payload of a type that no vocabulary here declares: kept, replayed, ignored by folds."""

    data: Raw


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
    origin: Origin
    payload: Raw


EPOCH = datetime(1970, 1, 1)  # in UTC by definition; exact

_decoder = Decoder(Envelope)
_encoder = Encoder()


@lru_cache(8)  # events come many to the second
def second(s: int) -> str:
    """Seconds since 1970 as `2026-01-08T12:34:56`."""
    return (EPOCH + timedelta(seconds=s)).isoformat()


def timestamp(ms: int) -> str:
    """Milliseconds since 1970 as `2026-01-08T12:34:56.789Z`."""
    return f"{second(ms // 1000)}.{ms % 1000:03d}Z"


def stamp(event: Event, *, session_id: str, seq: int, ts_ms: int) -> Envelope:
    """Give an event its place. Pure: the same values give the same envelope."""
    scope = event.scope
    return Envelope(
        type=event.type,
        id=event.id,
        seq=seq,
        ts=timestamp(ts_ms),
        session_id=session_id,
        trace_id=scope.trace_id,
        agent_id=scope.agent_id,
        agent_name=scope.agent_name,
        depth=scope.depth,
        origin=event.origin,
        payload=Raw(event.body),
    )


def encode(envelope: Envelope) -> bytes:
    """One line of compact JSON."""
    return _encoder.encode(envelope)


def decode(line: bytes) -> Envelope:
    """Read a stored line; the payload stays raw."""
    if b"\n" in line or b"\r" in line:
        raise InvalidEvent("not an envelope: expected one line")
    try:
        envelope = _decoder.decode(line)
        bound("type", envelope.type)
        bound("agent_name", envelope.agent_name)
    except (DecodeError, ValueError, RecursionError) as error:
        raise InvalidEvent(f"not an envelope: {short(str(error))}") from None
    return envelope
