"""Decisions and positions as statuses, headers and messages of responses."""

from typing import NamedTuple

from turnlog.wire.durable_streams.events import Producer, StreamAppend
from turnlog.wire.durable_streams.state import MAX_FORKS, MAX_PRODUCERS, Outcome, StreamDecision, StreamState

NEXT_OFFSET = "stream-next-offset"
UP_TO_DATE = "stream-up-to-date"
CLOSED = "stream-closed"
# A page of history never changes. The end of a stream must be asked for again, with its ETag.
HISTORY_CACHE = "private, max-age=60, stale-while-revalidate=300"
TAIL_CACHE = "private, no-cache"
VARY = "authorization, cookie, origin"  # a path is another stream for another principal

SUCCESS = 204
SUCCESS_OF_PRODUCER = 200  # of new data: 204 tells a producer that it was known
STATUS_BY_OUTCOME = {
    Outcome.ACCEPTED: SUCCESS,
    Outcome.DUPLICATE: SUCCESS,
    Outcome.ALREADY_CLOSED: SUCCESS,
    Outcome.GONE: 404,
    Outcome.CLOSED: 409,
    Outcome.OTHER_TYPE: 409,
    Outcome.STALE_EPOCH: 403,
    Outcome.WRONG_FIRST_SEQ: 400,
    Outcome.SEQ_GAP: 409,
    Outcome.WRITER_SEQ_TOO_LOW: 409,
    Outcome.TOO_MANY_PRODUCERS: 429,
    Outcome.TOO_MANY_FORKS: 409,
}
MESSAGES = {
    Outcome.GONE: "no such stream",
    Outcome.CLOSED: "the stream is closed",
    Outcome.OTHER_TYPE: "expected the content type of the stream",
    Outcome.STALE_EPOCH: "expected the producer's current epoch: a newer process of it writes now",
    Outcome.WRONG_FIRST_SEQ: "expected Producer-Seq 0 in a new epoch",
    Outcome.SEQ_GAP: "expected the next Producer-Seq",
    Outcome.WRITER_SEQ_TOO_LOW: "expected a Stream-Seq greater than the one before",
    Outcome.TOO_MANY_PRODUCERS: f"expected at most {MAX_PRODUCERS} producers of a stream in 7 days",
    Outcome.TOO_MANY_FORKS: f"expected at most {MAX_FORKS} forks of a stream",
}


class StreamAnswer(NamedTuple):
    """A response without content: status, headers and, for a refusal, a message."""

    status: int
    headers: dict[str, str]
    message: str | None = None


def answer_append(decision: StreamDecision, producer: Producer | None, offset: str) -> StreamAnswer:
    """Return the response to a POST of a producer; None: of none. `offset` is that of `decision.tail`."""
    outcome = decision.outcome
    status = STATUS_BY_OUTCOME[outcome]
    headers: dict[str, str] = {}
    if status == SUCCESS or outcome is Outcome.CLOSED:
        headers[NEXT_OFFSET] = offset
        if decision.is_closed:
            headers[CLOSED] = "true"
    if producer is not None:
        headers |= describe_producer(decision, producer)
        if isinstance(decision.payload, StreamAppend):
            status = SUCCESS_OF_PRODUCER
    return StreamAnswer(status, headers, MESSAGES.get(outcome))


def describe_producer(decision: StreamDecision, producer: Producer) -> dict[str, str]:
    outcome = decision.outcome
    known = decision.producer
    if outcome is Outcome.SEQ_GAP:
        expected = known.seq + 1 if known else 0
        return {"producer-expected-seq": str(expected), "producer-received-seq": str(producer.seq)}
    if outcome is Outcome.STALE_EPOCH and known:
        return {"producer-epoch": str(known.epoch)}
    if STATUS_BY_OUTCOME[outcome] == SUCCESS and known:
        return {"producer-epoch": str(known.epoch), "producer-seq": str(known.seq)}
    return {}


def describe_stream(state: StreamState, offset: str) -> dict[str, str]:
    """Return the headers that HEAD and PUT send about a stream."""
    headers = {"content-type": state.content_type, NEXT_OFFSET: offset}
    if state.is_closed:
        headers[CLOSED] = "true"
    return headers


def describe_expiry(state: StreamState) -> dict[str, str]:
    if state.ttl_s is not None:
        return {"stream-ttl": str(state.ttl_s)}
    return {"stream-expires-at": state.expires_at} if state.expires_at is not None else {}


def make_etag(session_id: str, start: str, end: str, is_closed: bool) -> str:
    """Return the ETag of a page. Closing a stream changes it without new data."""
    suffix = ":c" if is_closed else ""
    return f'"{session_id}:{start}:{end}{suffix}"'


def matches_etag(if_none_match: str | None, etag: str) -> bool:
    if if_none_match is None:
        return False
    known = [value.strip().removeprefix("W/") for value in if_none_match.split(",")]
    return etag in known or "*" in known
