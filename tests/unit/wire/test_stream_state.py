"""The state of a stream, decisions about appends, and the responses to them."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import for_each_row
from turnlog.events import Payload, SessionTitle
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
from turnlog.wire.durable_streams.offsets import START, Offset, format_offset, tag_epoch
from turnlog.wire.durable_streams.requests import CreateRequest, ForkRequest
from turnlog.wire.durable_streams.responses import (
    MESSAGES,
    STATUS_BY_OUTCOME,
    answer_append,
    describe_expiry,
    describe_stream,
    make_etag,
    matches_etag,
)
from turnlog.wire.durable_streams.state import (
    MAX_FORKS,
    MAX_INHERITED_PARTS,
    MAX_PRODUCERS,
    PRODUCER_LIFETIME_MS,
    AppendRequestBody,
    Outcome,
    StreamDecision,
    StreamState,
    plan_delete,
    plan_fork,
    plan_stream_append,
    plan_touch,
)

TEXT = "text/plain"
CREATE = StreamCreate(path="a", content_type=TEXT)
PART = InheritedPart(session_id="sess_1", epoch="g1", base=0, until=5)


def state_after(*payloads: Payload, ts_ms: int = 0) -> StreamState:
    state = StreamState()
    for payload in payloads:
        state.apply(payload, state.last + 1, ts_ms)
    return state


def producer(seq: int, epoch: int = 0, id: str = "p") -> Producer:
    return Producer(id=id, epoch=epoch, seq=seq)


def append(
    data: bytes = b"x",
    sender: Producer | None = None,
    *,
    writer_seq: str | None = None,
    closes: bool = False,
    content_type: str = TEXT,
) -> AppendRequestBody:
    content = StreamAppend(data=data, producer=sender, writer_seq=writer_seq, closes=closes)
    return AppendRequestBody(content, content_type, sender, closes)


def close(sender: Producer | None = None) -> AppendRequestBody:
    return AppendRequestBody(None, "", sender, closes=True)


def run(state: StreamState, request: AppendRequestBody, now_ms: int = 0) -> StreamDecision:
    """Decide a request, and append what it leads to."""
    decision = plan_stream_append(request, state, now_ms)
    if decision.payload is not None:
        state.apply(decision.payload, state.last + 1, now_ms)
        assert decision.tail == state.tail
        assert decision.is_closed == state.is_closed
    return decision


CLOSED = (CREATE, StreamClose())
CLOSED_BY_P = (CREATE, StreamAppend(data=b"x", producer=producer(0), closes=True))
CLOSED_IN_EPOCH_2 = (CREATE, StreamClose(producer=producer(0, 2)))
SEQ_2 = (CREATE, StreamAppend(data=b"x", writer_seq="2", producer=producer(0)))


@for_each_row(
    ("events", "request_", "expected"),
    [
        ((CREATE,), append(), Outcome.ACCEPTED),
        ((CREATE,), append(content_type="TEXT/plain; x=y"), Outcome.ACCEPTED),
        ((CREATE,), append(content_type="application/json"), Outcome.OTHER_TYPE),
        ((CREATE,), append(sender=producer(0, epoch=7)), Outcome.ACCEPTED),
        ((CREATE,), append(sender=producer(1)), Outcome.SEQ_GAP),
        (CLOSED, append(), Outcome.CLOSED),
        (CLOSED, close(), Outcome.ALREADY_CLOSED),
        (CLOSED, close(producer(0)), Outcome.CLOSED),
        # The request that closed the stream is known, whatever it contains now.
        (CLOSED_BY_P, append(b"y", producer(0), closes=True), Outcome.DUPLICATE),
        (CLOSED_BY_P, append(sender=producer(1)), Outcome.CLOSED),
        (CLOSED_IN_EPOCH_2, append(sender=producer(0, 1)), Outcome.STALE_EPOCH),
        ((CREATE, StreamDelete()), append(), Outcome.GONE),
        ((CREATE,), append(writer_seq="b"), Outcome.ACCEPTED),
        (SEQ_2, append(writer_seq="10"), Outcome.WRITER_SEQ_TOO_LOW),
        (SEQ_2, append(writer_seq="2"), Outcome.WRITER_SEQ_TOO_LOW),
        (SEQ_2, append(), Outcome.ACCEPTED),
        (SEQ_2, append(sender=producer(0), writer_seq="2"), Outcome.DUPLICATE),
    ],
)
def test_decisions(events: tuple[Payload, ...], request_: AppendRequestBody, expected: Outcome) -> None:
    state = state_after(*events)
    decision = plan_stream_append(request_, state, 0)
    assert decision.outcome is expected
    assert (decision.payload is not None) == (expected is Outcome.ACCEPTED)
    assert state == state_after(*events)  # planning changes nothing


@for_each_row(
    ("epoch", "seq", "expected"),
    [
        (1, 5, Outcome.DUPLICATE),
        (1, 0, Outcome.DUPLICATE),
        (1, 6, Outcome.ACCEPTED),
        (1, 7, Outcome.SEQ_GAP),
        (0, 6, Outcome.STALE_EPOCH),
        (2, 0, Outcome.ACCEPTED),
        (2, 1, Outcome.WRONG_FIRST_SEQ),
    ],
)
def test_a_producer_after_epoch_1_seq_5(epoch: int, seq: int, expected: Outcome) -> None:
    state = state_after(CREATE, StreamAppend(data=b"x", producer=producer(5, 1)))
    assert plan_stream_append(append(sender=producer(seq, epoch)), state, 0).outcome is expected


requests = st.lists(
    st.tuples(st.sampled_from("pq"), st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=30
)


@given(requests)
def test_each_number_of_a_producer_is_stored_once_and_in_order(sent: list[tuple[str, int, int]]) -> None:
    state = state_after(CREATE)
    stored: list[tuple[str, int, int]] = []
    for sender, epoch, seq in sent:
        decision = run(state, append(sender=producer(seq, epoch, sender)))
        if decision.outcome is Outcome.ACCEPTED:
            stored.append((sender, epoch, seq))
    assert len(set(stored)) == len(stored)
    for name in "pq":
        own = [(epoch, seq) for sender, epoch, seq in stored if sender == name]
        assert own == sorted(own)
        for epoch in {epoch for epoch, _ in own}:
            seqs = [seq for own_epoch, seq in own if own_epoch == epoch]
            assert seqs == list(range(len(seqs)))


def test_a_snapshot_continues_like_the_state() -> None:
    state = state_after(
        CREATE, StreamAppend(data=b"x", producer=producer(0)), StreamFork(session_id="sess_2")
    )
    restored = msgspec.json.decode(msgspec.json.encode(state), type=StreamState)
    assert restored == state
    copy = state.copy()
    copy.apply(StreamAppend(data=b"y", producer=producer(1)), 3, 0)
    copy.apply(StreamFork(session_id="sess_3"), 4, 0)
    assert restored == state


def test_other_events_change_nothing_but_the_last_seq() -> None:
    state = state_after(CREATE, SessionTitle(title="x"))
    assert (state.last, state.tail) == (1, 0)


def test_a_stream_has_a_limited_number_of_producers() -> None:
    state = state_after(CREATE)
    for number in range(MAX_PRODUCERS):
        run(state, append(sender=producer(0, id=str(number))), now_ms=1)
    late = append(sender=producer(0, id="late"))
    assert run(state, late, PRODUCER_LIFETIME_MS).outcome is Outcome.TOO_MANY_PRODUCERS
    assert run(state, append(sender=producer(1, id="0")), PRODUCER_LIFETIME_MS).outcome is Outcome.ACCEPTED
    assert run(state, late, PRODUCER_LIFETIME_MS + 1).outcome is Outcome.ACCEPTED
    assert set(state.producers) == {"0", "late"}


# Expiry


def test_a_ttl_counts_from_the_last_use() -> None:
    state = state_after(CREATE.__class__(path="a", content_type=TEXT, ttl_s=10), ts_ms=1000)
    assert not state.is_expired(10_999)
    assert state.is_expired(11_000)
    assert plan_touch(state, 2000).payload is None  # within a tenth of the TTL
    assert plan_touch(state, 2001).payload == StreamTouch()
    state.apply(StreamTouch(), 1, 5000)
    assert not state.is_gone(14_999)
    assert state.is_gone(15_000)
    assert plan_touch(state, 15_000).payload is None
    state.apply(StreamAppend(data=b"x"), 2, 6000)
    state.apply(StreamClose(), 3, 7000)
    assert not state.is_gone(16_999)


def test_a_fixed_expiry_does_not_move() -> None:
    create = StreamCreate(path="a", content_type=TEXT, expires_at="1970-01-01T00:00:10Z")
    state = state_after(create, StreamAppend(data=b"x"), ts_ms=9000)
    assert plan_touch(state, 9500).payload is None
    assert not state.is_gone(9_999)
    assert state.is_gone(10_000)
    assert plan_stream_append(append(), state, 10_000).outcome is Outcome.GONE


def test_a_stream_without_expiry_needs_no_touch() -> None:
    assert plan_touch(state_after(CREATE), 10**15).payload is None


# Forks


def test_offsets_of_a_fork_are_those_of_its_source_up_to_the_fork() -> None:
    create = StreamCreate(
        path="b",
        content_type=TEXT,
        fork=ForkSource(path="a", position=5),
        inherits=(PART,),
    )
    state = state_after(create)
    assert (state.base, state.tail) == (5, 5)
    assert state.offset_at(0, "own") == format_offset(0, 0)
    assert state.offset_at(5, "own") == format_offset(5, tag_epoch("g1"))
    run(state, append())
    assert state.tail == 7
    assert state.offset_at(7, "own") == format_offset(7, tag_epoch("own"))


def test_a_fork_of_a_fork_inherits_the_parts_up_to_its_place() -> None:
    state = StreamState(
        inherits=(PART, InheritedPart(session_id="sess_2", epoch="g2", base=5, until=9)), base=9
    )
    own = InheritedPart(session_id="sess_3", epoch="g3", base=9, until=12)
    assert state.parts_until(12, "sess_3", "g3") == (*state.inherits, own)
    assert state.parts_until(9, "sess_3", "g3") == state.inherits
    assert state.parts_until(5, "sess_3", "g3") == (PART,)
    assert state.parts_until(2, "sess_3", "g3") == (msgspec.structs.replace(PART, until=2),)
    assert state.parts_until(0, "sess_3", "g3") == ()


def test_forks_are_recorded_up_to_a_limit() -> None:
    state = state_after(CREATE)
    assert plan_fork("sess_2", state, 0).payload == StreamFork(session_id="sess_2")
    state.forks = ["sess_2"] * MAX_FORKS
    assert plan_fork("sess_3", state, 0).outcome is Outcome.TOO_MANY_FORKS
    deep = StreamState(inherits=(PART,) * (MAX_INHERITED_PARTS - 1))
    assert plan_fork("sess_3", deep, 0).outcome is Outcome.TOO_MANY_FORKS
    assert plan_fork("sess_2", state_after(CREATE, StreamDelete()), 0).outcome is Outcome.GONE


def test_a_stream_is_deleted_once() -> None:
    state = state_after(CREATE)
    assert plan_delete(state, 0).payload == StreamDelete()
    state.apply(StreamDelete(), 1, 0)
    assert plan_delete(state, 0).outcome is Outcome.GONE


PUT = CreateRequest(TEXT, None, None, False, None)
FORK_PUT = PUT._replace(content_type=None, fork=ForkRequest("a", None, 2))
FORK = StreamCreate(
    path="b",
    content_type=TEXT,
    ttl_s=60,
    fork=ForkSource(path="a", position=5, sub_offset=2),
    inherits=(PART,),
)


@for_each_row(
    ("events", "request_", "source", "expected"),
    [
        ((CREATE,), PUT, None, True),
        ((CREATE,), PUT._replace(content_type="Text/Plain"), None, True),
        ((CREATE,), PUT._replace(content_type="text/html"), None, False),
        ((CREATE,), PUT._replace(ttl_s=60), None, False),
        ((CREATE,), PUT._replace(closed=True), None, False),
        ((CREATE, StreamClose()), PUT._replace(closed=True), None, True),
        ((CREATE,), FORK_PUT, "a", False),
        ((FORK,), PUT._replace(ttl_s=60), None, False),
        ((FORK,), FORK_PUT, "a", True),
        ((FORK,), FORK_PUT._replace(ttl_s=61), "a", False),
        ((FORK,), FORK_PUT, "c", False),
        ((FORK,), FORK_PUT._replace(fork=ForkRequest("a", Offset(5, 1), 2)), "a", True),
        ((FORK,), FORK_PUT._replace(fork=ForkRequest("a", START, 2)), "a", False),
        ((FORK,), FORK_PUT._replace(fork=ForkRequest("a", None, 1)), "a", False),
    ],
)
def test_a_put_may_be_repeated(
    events: tuple[Payload, ...], request_: CreateRequest, source: str | None, expected: bool
) -> None:
    assert state_after(*events).matches(request_, source) is expected


# Responses


def answer(events: tuple[Payload, ...], request_: AppendRequestBody) -> Any:
    decision = plan_stream_append(request_, state_after(*events), 0)
    return answer_append(decision, request_.producer, "OFFSET")


WRITTEN = (CREATE, StreamAppend(data=b"x", producer=producer(4, 1)))
NEXT = {"stream-next-offset": "OFFSET"}
IS_CLOSED = {"stream-closed": "true"}


def known(seq: int) -> dict[str, str]:
    return {"producer-epoch": "1", "producer-seq": str(seq)}


def gap(expected: int) -> dict[str, str]:
    return {"producer-expected-seq": str(expected), "producer-received-seq": "9"}


@for_each_row(
    ("events", "request_", "status", "headers"),
    [
        ((CREATE,), append(), 204, NEXT),
        ((CREATE,), append(closes=True), 204, NEXT | IS_CLOSED),
        ((CREATE,), close(), 204, NEXT | IS_CLOSED),
        (WRITTEN, append(sender=producer(5, 1)), 200, NEXT | known(5)),
        (WRITTEN, append(sender=producer(3, 1)), 204, NEXT | known(4)),
        (WRITTEN, close(producer(5, 1)), 204, NEXT | IS_CLOSED | known(5)),
        (WRITTEN, append(sender=producer(9, 1)), 409, gap(5)),
        ((CREATE,), append(sender=producer(9)), 409, gap(0)),
        (WRITTEN, append(sender=producer(9, 0)), 403, {"producer-epoch": "1"}),
        (WRITTEN, append(sender=producer(9, 2)), 400, {}),
        (CLOSED, append(), 409, NEXT | IS_CLOSED),
        (CLOSED, close(), 204, NEXT | IS_CLOSED),
        ((CREATE,), append(content_type="a/b"), 409, {}),
    ],
)
def test_responses_to_a_post(
    events: tuple[Payload, ...], request_: AppendRequestBody, status: int, headers: dict[str, str]
) -> None:
    response = answer(events, request_)
    assert (response.status, response.headers) == (status, headers)
    assert (response.message is None) == (status < 300)


def test_every_outcome_has_a_status_and_every_refusal_a_message() -> None:
    assert set(STATUS_BY_OUTCOME) == set(Outcome)
    assert set(MESSAGES) == {outcome for outcome, status in STATUS_BY_OUTCOME.items() if status >= 300}


def test_a_stream_is_described_by_headers() -> None:
    state = state_after(StreamCreate(path="a", content_type=TEXT, ttl_s=60), StreamClose())
    assert describe_stream(state, "OFFSET") == {"content-type": TEXT, **NEXT, **IS_CLOSED}
    assert describe_stream(state_after(CREATE), "OFFSET") == {"content-type": TEXT, **NEXT}
    assert describe_expiry(state) == {"stream-ttl": "60"}
    assert describe_expiry(state_after(CREATE)) == {}
    fixed = StreamCreate(path="a", content_type=TEXT, expires_at="2026-01-08T12:00:00Z")
    assert describe_expiry(state_after(fixed)) == {"stream-expires-at": "2026-01-08T12:00:00Z"}


def test_etags() -> None:
    etag = make_etag("s", "-1", "5", False)
    assert etag != make_etag("s", "-1", "5", True)
    assert not matches_etag(None, etag)
    assert not matches_etag('"other"', etag)
    assert matches_etag(f'"other", W/{etag}', etag)
    assert matches_etag("*", etag)
