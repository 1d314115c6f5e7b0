"""The state of a stream: a fold over its events, and the decision about an append (protocol section 12).

`plan_stream_append` decides from the state alone and changes nothing. Its payload is appended only if the log
has not moved since, so dedupe and fencing of producers hold in the transaction of the append.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, NamedTuple

from msgspec import Struct, structs

from turnlog.events import Payload, UnknownPayload
from turnlog.wire.durable_streams.events import (
    ForkSource,
    InheritedPart,
    Producer,
    StreamAppend,
    StreamClose,
    StreamCreate,
    StreamDelete,
    StreamFork,
    StreamTouch,
)
from turnlog.wire.durable_streams.offsets import ANY_TAG, format_offset, tag_epoch
from turnlog.wire.durable_streams.requests import CreateRequest, media_type_of, parse_time_ms

MAX_PRODUCERS = 1000  # of one stream; about 100 KiB
PRODUCER_LIFETIME_MS = 7 * 24 * 3600 * 1000  # an older one makes room for a new one
MAX_FORKS = 1000  # of one stream: they are looked up to decide whether a deleted stream is gone
MAX_INHERITED_PARTS = 64  # forks of forks: each part is one more session to read
TOUCHES_PER_TTL = 10  # how exactly a use is recorded: a tenth of the TTL


class ProducerState(Struct, frozen=True):
    """The last request of a producer."""

    epoch: int
    seq: int
    at_ms: int


class StreamState(Struct, kw_only=True):
    """What the events of a stream say. `last` is the seq of the last one, -1 before the first.

    `base` is the position that a fork begins at. `tail` is the position after the last append. `used_ms` is
    the last recorded use.
    """

    last: int = -1
    path: str = ""
    content_type: str = ""
    ttl_s: int | None = None
    expires_at: str | None = None
    fork: ForkSource | None = None
    inherits: tuple[InheritedPart, ...] = ()
    base: int = 0
    tail: int = 0
    is_closed: bool = False
    closed_by: Producer | None = None
    is_deleted: bool = False
    used_ms: int = 0
    writer_seq: str | None = None
    producers: dict[str, ProducerState] = {}
    forks: list[str] = []

    def copy(self) -> "StreamState":
        return structs.replace(self, producers=dict(self.producers), forks=list(self.forks))

    def apply(self, payload: Payload | UnknownPayload, seq: int, ts_ms: int) -> None:
        """Take over the event at a seq. Other types of events change nothing but `last`."""
        self.last = seq
        reducer = REDUCERS.get(type(payload))
        if reducer is not None:
            reducer(self, payload, ts_ms)

    def is_expired(self, now_ms: int) -> bool:
        if self.expires_at is not None:
            return now_ms >= parse_time_ms(self.expires_at)
        return self.ttl_s is not None and now_ms >= self.used_ms + self.ttl_s * 1000

    def is_gone(self, now_ms: int) -> bool:
        """Return whether the stream was deleted or has expired. Forks of it can still be read."""
        return self.is_deleted or self.is_expired(now_ms)

    def needs_touch(self, now_ms: int) -> bool:
        """Return whether a use at this time must be recorded."""
        if self.ttl_s is None or self.is_gone(now_ms):
            return False
        return now_ms - self.used_ms > self.ttl_s * 1000 / TOUCHES_PER_TTL

    def parts_until(self, position: int, session_id: str, epoch: str) -> tuple[InheritedPart, ...]:
        """Return what a fork of this stream at a position inherits. The stream is in `session_id`."""
        parts = [
            structs.replace(part, until=min(part.until, position))
            for part, start in zip(self.inherits, self.part_starts, strict=True)
            if start < position
        ]
        if position > self.base:
            parts.append(InheritedPart(session_id=session_id, epoch=epoch, base=self.base, until=position))
        return tuple(parts)

    def tag_at(self, position: int, epoch: str) -> int:
        """Return the tag of the history that a position belongs to. The stream's own has `epoch`."""
        if position == 0:
            return ANY_TAG
        for part in self.inherits:
            if position <= part.until:
                return tag_epoch(part.epoch)
        return tag_epoch(epoch)

    def offset_at(self, position: int, epoch: str) -> str:
        return format_offset(position, self.tag_at(position, epoch))

    @property
    def part_starts(self) -> list[int]:
        """Return the position at which each inherited part begins."""
        return [0, *(part.until for part in self.inherits)][: len(self.inherits)]

    def matches(self, request: CreateRequest, source_path: str | None) -> bool:
        """Return whether a PUT describes this stream, so that it may be repeated."""
        fork = self.fork
        if request.fork is not None and fork is not None:
            offset = request.fork.offset
            has_same_offset = offset is None or offset.position == fork.position
            has_same_fork = source_path == fork.path and request.fork.sub_offset == fork.sub_offset
            is_same_source = has_same_offset and has_same_fork
        else:
            is_same_source = request.fork is None and fork is None

        content_type = request.content_type or self.content_type
        has_same_expiry = (request.ttl_s, request.expires_at) == (self.ttl_s, self.expires_at)
        if request.fork is not None and request.ttl_s is None and request.expires_at is None:
            has_same_expiry = True  # it was inherited
        is_same_type = media_type_of(content_type) == media_type_of(self.content_type)
        return is_same_source and is_same_type and has_same_expiry and request.closed == self.is_closed


def reduce_create(state: StreamState, payload: StreamCreate, ts_ms: int) -> None:
    state.path = payload.path
    state.content_type = payload.content_type
    state.ttl_s = payload.ttl_s
    state.expires_at = payload.expires_at
    state.fork = payload.fork
    state.inherits = payload.inherits
    state.base = payload.fork.position if payload.fork else 0
    state.tail = state.base
    state.used_ms = ts_ms


def reduce_append(state: StreamState, payload: StreamAppend, ts_ms: int) -> None:
    state.tail = state.base + state.last + 1
    state.used_ms = ts_ms
    if payload.writer_seq is not None:
        state.writer_seq = payload.writer_seq
    record_producer(state, payload.producer, ts_ms)
    if payload.closes:
        state.is_closed = True
        state.closed_by = payload.producer


def reduce_close(state: StreamState, payload: StreamClose, ts_ms: int) -> None:
    state.used_ms = ts_ms
    record_producer(state, payload.producer, ts_ms)
    state.is_closed = True
    state.closed_by = payload.producer


def record_producer(state: StreamState, producer: Producer | None, ts_ms: int) -> None:
    if producer is None:
        return
    if producer.id not in state.producers and len(state.producers) >= MAX_PRODUCERS:
        state.producers = {
            name: known
            for name, known in state.producers.items()
            if ts_ms - known.at_ms < PRODUCER_LIFETIME_MS
        }
    state.producers[producer.id] = ProducerState(producer.epoch, producer.seq, ts_ms)


def reduce_touch(state: StreamState, payload: StreamTouch, ts_ms: int) -> None:
    state.used_ms = ts_ms


def reduce_fork(state: StreamState, payload: StreamFork, ts_ms: int) -> None:
    state.forks.append(payload.session_id)


def reduce_delete(state: StreamState, payload: StreamDelete, ts_ms: int) -> None:
    state.is_deleted = True


REDUCERS: dict[type, Callable[[StreamState, Any, int], None]] = {
    StreamCreate: reduce_create,
    StreamAppend: reduce_append,
    StreamClose: reduce_close,
    StreamTouch: reduce_touch,
    StreamFork: reduce_fork,
    StreamDelete: reduce_delete,
}


class Outcome(Enum):
    """What becomes of a request that changes a stream."""

    ACCEPTED = auto()
    DUPLICATE = auto()  # the producer sent it before
    ALREADY_CLOSED = auto()  # a second request that only closes
    GONE = auto()
    CLOSED = auto()
    OTHER_TYPE = auto()
    STALE_EPOCH = auto()
    WRONG_FIRST_SEQ = auto()
    SEQ_GAP = auto()
    WRITER_SEQ_TOO_LOW = auto()
    TOO_MANY_PRODUCERS = auto()
    TOO_MANY_FORKS = auto()


class StreamDecision(NamedTuple):
    """The outcome of a request. `payload` is what is appended if it is accepted.

    `tail` and `is_closed` are those of the stream after it. `producer` is the stored state of the producer,
    or the one that the request leads to.
    """

    outcome: Outcome
    tail: int
    is_closed: bool
    payload: Payload | None = None
    producer: ProducerState | None = None


class AppendRequestBody(NamedTuple):
    """A POST: what it appends, None if it only closes, its content type and the size of its body."""

    content: StreamAppend | None
    content_type: str
    producer: Producer | None
    closes: bool
    size_bytes: int = 0


def plan_stream_append(request: AppendRequestBody, state: StreamState, now_ms: int) -> StreamDecision:
    """Decide an append or a close. The content of the request has its producer and writer seq already."""
    outcome = find_refusal(state, request, now_ms)
    if outcome is not None:
        known = state.producers.get(request.producer.id) if request.producer else None
        return StreamDecision(outcome, state.tail, state.is_closed, producer=known)

    payload: Payload = request.content or StreamClose(producer=request.producer)
    producer = request.producer
    accepted = ProducerState(producer.epoch, producer.seq, now_ms) if producer else None
    tail = state.base + state.last + 2 if request.content else state.tail
    return StreamDecision(Outcome.ACCEPTED, tail, request.closes, payload, accepted)


def find_refusal(state: StreamState, request: AppendRequestBody, now_ms: int) -> Outcome | None:
    """Return why a request changes nothing; None if it is accepted."""
    if state.is_gone(now_ms):
        return Outcome.GONE
    producer_outcome = check_producer(state, request.producer, now_ms)
    if state.is_closed:
        return find_closed_refusal(request, producer_outcome)
    if request.content is not None and media_type_of(request.content_type) != media_type_of(
        state.content_type
    ):
        return Outcome.OTHER_TYPE
    if producer_outcome is not None:
        return producer_outcome

    writer_seq = request.content.writer_seq if request.content else None
    # Clients compare bytes: code points of UTF-8 sort like its bytes.
    if writer_seq is not None and state.writer_seq is not None and writer_seq <= state.writer_seq:
        return Outcome.WRITER_SEQ_TOO_LOW
    return None


def find_closed_refusal(request: AppendRequestBody, producer_outcome: Outcome | None) -> Outcome:
    """Return the outcome of a request to a closed stream."""
    # A producer that was fenced, or whose request is stored, must learn that.
    if producer_outcome in (Outcome.DUPLICATE, Outcome.STALE_EPOCH):
        return producer_outcome
    if request.content is None and request.producer is None:
        return Outcome.ALREADY_CLOSED
    return Outcome.CLOSED


def check_producer(state: StreamState, producer: Producer | None, now_ms: int) -> Outcome | None:
    """Return why a producer's request is not the next one; None if it is, or if it has no producer."""
    if producer is None:
        return None
    known = state.producers.get(producer.id)
    if known is None:
        if producer.seq > 0:
            return Outcome.SEQ_GAP
        return None if has_room_for_producer(state, now_ms) else Outcome.TOO_MANY_PRODUCERS
    if producer.epoch < known.epoch:
        return Outcome.STALE_EPOCH
    if producer.epoch > known.epoch:
        return Outcome.WRONG_FIRST_SEQ if producer.seq > 0 else None
    if producer.seq <= known.seq:
        return Outcome.DUPLICATE
    return Outcome.SEQ_GAP if producer.seq > known.seq + 1 else None


def has_room_for_producer(state: StreamState, now_ms: int) -> bool:
    if len(state.producers) < MAX_PRODUCERS:
        return True
    return any(now_ms - known.at_ms >= PRODUCER_LIFETIME_MS for known in state.producers.values())


def plan_touch(state: StreamState, now_ms: int) -> StreamDecision:
    """Record that a stream is used, if its TTL needs it."""
    if not state.needs_touch(now_ms):
        return StreamDecision(Outcome.DUPLICATE, state.tail, state.is_closed)
    return StreamDecision(Outcome.ACCEPTED, state.tail, state.is_closed, StreamTouch())


def plan_fork(session_id: str, state: StreamState, now_ms: int) -> StreamDecision:
    """Record that a session is about to become a fork of the stream."""
    if state.is_gone(now_ms):
        return StreamDecision(Outcome.GONE, state.tail, state.is_closed)
    if len(state.forks) >= MAX_FORKS or len(state.inherits) >= MAX_INHERITED_PARTS - 1:
        return StreamDecision(Outcome.TOO_MANY_FORKS, state.tail, state.is_closed)
    return StreamDecision(Outcome.ACCEPTED, state.tail, state.is_closed, StreamFork(session_id=session_id))


def plan_delete(state: StreamState, now_ms: int) -> StreamDecision:
    """Delete a stream. One that is gone stays as it is."""
    if state.is_gone(now_ms):
        return StreamDecision(Outcome.GONE, state.tail, state.is_closed)
    return StreamDecision(Outcome.ACCEPTED, state.tail, state.is_closed, StreamDelete())
