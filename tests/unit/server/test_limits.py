"""What one principal may ask for, with a given clock; others have their own."""

import asyncio

import pytest

from turnlog.app import Principal
from turnlog.server.limits import Limits, rate_limiter
from turnlog.server.limits.rate_limiter import RateLimiter, TooManySessions

SMALL = Limits(requests_per_s=2.0, burst=3, streams=2)
ADA, BOB, EVE = Principal("ada"), Principal("bob"), Principal("eve")
GUEST, ROOT = Principal("guest_0123"), Principal("root", frozenset({"operator"}))
WORKER = Principal("worker", frozenset({"executor"}))


def spent(budgets: RateLimiter, now_s: float, who: Principal = ADA) -> int:
    """How many requests there are now."""
    count = 0
    while not budgets.consume_request(who, 0, now_s):
        count += 1
    return count


def test_a_burst_is_granted_and_then_there_is_a_wait() -> None:
    budgets = RateLimiter(SMALL)
    assert [budgets.consume_request(ADA, 0, 10.0) for _ in range(5)] == [0, 0, 0, 0.5, 0.5]


def test_time_gives_requests_back_up_to_the_burst() -> None:
    budgets = RateLimiter(SMALL)
    assert spent(budgets, 10.0) == 3
    assert spent(budgets, 10.5) == 1
    assert spent(budgets, 11.75) == 2
    assert spent(budgets, 1000.0) == 3


def test_the_wait_that_is_told_is_enough() -> None:
    budgets = RateLimiter(Limits(requests_per_s=0.3, burst=1))
    now_s = 5.0
    for _ in range(5):
        while wait_s := budgets.consume_request(ADA, 0, now_s):
            assert 0 < wait_s <= 1 / 0.3
            assert budgets.consume_request(ADA, 0, now_s + wait_s * 0.9), "less is not enough"
            now_s += wait_s + 1e-9
        assert budgets.consume_request(ADA, 0, now_s)


def test_a_clock_that_goes_back_gives_nothing() -> None:
    budgets = RateLimiter(SMALL)
    assert spent(budgets, 10.0) == 3
    assert spent(budgets, 1.0) == 0


def test_principals_do_not_share() -> None:
    budgets = RateLimiter(SMALL)
    assert (spent(budgets, 10.0, ADA), spent(budgets, 10.0, BOB)) == (3, 3)


def test_the_longest_silent_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limiter, "MAX_TRACKED_PRINCIPALS", 2)
    budgets = RateLimiter(SMALL)
    assert (spent(budgets, 10.0, ADA), spent(budgets, 10.0, BOB)) == (3, 3)
    assert budgets.consume_request(ADA, 0, 10.0) > 0
    assert spent(budgets, 10.0, EVE) == 3
    assert budgets.consume_request(ADA, 0, 10.0) > 0, "it asked later than bob"
    assert spent(budgets, 10.0, BOB) == 3


def test_streams_are_counted_and_given_back() -> None:
    budgets = RateLimiter(SMALL)
    assert [budgets.acquire_stream(ADA) for _ in range(3)] == [True, True, False]
    assert budgets.acquire_stream(BOB)
    budgets.release_stream(ADA)
    assert [budgets.acquire_stream(ADA) for _ in range(2)] == [True, False]


def test_who_has_no_stream_leaves_no_trace() -> None:
    budgets = RateLimiter(SMALL)
    for _ in range(2):
        budgets.acquire_stream(ADA)
    for _ in range(2):
        budgets.release_stream(ADA)
    with pytest.raises(KeyError):
        budgets.release_stream(ADA)


def test_request_with_a_body_over_the_bytes_left_waits_until_they_are_back() -> None:
    budgets = RateLimiter(Limits(body_bytes_per_s=100, burst_bytes=1000))
    assert [budgets.consume_request(ADA, 600, 5.0) for _ in range(2)] == [0, 2]
    assert budgets.consume_request(ADA, 0, 5.0) == 0, "a request without a body needs none of them"
    assert budgets.consume_request(BOB, 600, 5.0) == 0
    assert budgets.consume_request(ADA, 600, 7.0) == 0


def test_request_that_is_refused_takes_nothing() -> None:
    budgets = RateLimiter(Limits(requests_per_s=1, burst=2, body_bytes_per_s=1, burst_bytes=10))
    assert budgets.consume_request(ADA, 10, 0.0) == 0
    assert budgets.consume_request(ADA, 10, 0.0) == 10
    assert spent(budgets, 0.0) == 1


def test_body_larger_than_the_burst_takes_the_whole_burst() -> None:
    budgets = RateLimiter(Limits(body_bytes_per_s=1, burst_bytes=10))
    assert budgets.consume_request(ADA, 1000, 0.0) == 0
    assert budgets.consume_request(ADA, 1000, 0.0) == 10


def test_streams_and_requests_of_guests_people_and_programs_differ() -> None:
    limits = Limits(streams=3, guest_streams=1, program_streams=5, burst=2, guest_burst=1, program_burst=4)
    budgets = RateLimiter(limits)
    everyone = (ADA, GUEST, ROOT, WORKER)
    assert [sum(budgets.acquire_stream(who) for _ in range(9)) for who in everyone] == [3, 1, 5, 5]
    assert [spent(budgets, 0.0, who) for who in everyone] == [2, 1, 4, 4]


def test_sessions_in_an_hour_are_counted_for_everyone_but_operators() -> None:
    budgets = RateLimiter(Limits(sessions_per_hour=2))
    for _ in range(2):
        budgets.consume_session(ADA, 0.0)
    with pytest.raises(TooManySessions) as caught:
        budgets.consume_session(ADA, 0.0)
    assert caught.value.retry_after_s == 1800
    budgets.consume_session(ADA, 1800.0)
    budgets.consume_session(BOB, 0.0)
    for _ in range(9):
        budgets.consume_session(ROOT, 0.0)


def test_time_that_was_spent_is_waited_for_and_given_back() -> None:
    budgets = RateLimiter(Limits(busy_share=0.5, burst_busy_s=2.0))
    budgets.charge_busy_time(ADA, 1.5, 0.0)
    assert budgets.consume_request(ADA, 0, 0.0) == 0
    budgets.charge_busy_time(ADA, 1.5, 0.0)
    assert budgets.consume_request(ADA, 0, 0.0) == 2.0
    assert budgets.consume_request(BOB, 0, 0.0) == 0
    assert budgets.consume_request(ADA, 0, 2.0) == 0


def test_time_of_programs_has_no_limit_and_guests_have_less_than_people() -> None:
    budgets = RateLimiter(
        Limits(busy_share=0.5, burst_busy_s=2.0, guest_busy_share=0.1, guest_burst_busy_s=1.0)
    )
    for who in (ADA, GUEST, ROOT, WORKER):
        budgets.charge_busy_time(who, 3.0, 0.0)
    waits_s = [budgets.consume_request(who, 0, 0.0) for who in (ADA, GUEST, ROOT, WORKER)]
    assert waits_s == pytest.approx([2.0, 20.0, 0, 0])


def test_requests_beyond_those_at_once_begin_when_one_ends_in_the_order_they_came() -> None:
    async def scenario() -> None:
        budgets, begun = RateLimiter(Limits(concurrent_requests=2)), list[int]()

        async def begin(number: int) -> None:
            assert await budgets.start_request(ADA)
            begun.append(number)

        tasks = [asyncio.create_task(begin(number)) for number in range(4)]
        await asyncio.sleep(0)
        assert begun == [0, 1]
        for _ in range(2):
            budgets.finish_request(ADA)
        await asyncio.gather(*tasks)
        assert begun == [0, 1, 2, 3]

    asyncio.run(scenario())


def test_request_that_was_given_up_passes_its_turn_on() -> None:
    async def scenario() -> None:
        budgets = RateLimiter(Limits(concurrent_requests=1))
        await budgets.start_request(ADA)
        first, second, third = (asyncio.create_task(budgets.start_request(ADA)) for _ in range(3))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        budgets.finish_request(ADA)
        second.cancel()  # it was its turn, and it has not begun
        assert await third
        assert second.cancelled()

    asyncio.run(scenario())


def test_stream_makes_room_for_a_request() -> None:
    async def scenario() -> None:
        budgets = RateLimiter(Limits(concurrent_requests=1))
        await budgets.start_request(ADA)
        waiting = asyncio.create_task(budgets.start_request(ADA))
        await asyncio.sleep(0)
        assert budgets.acquire_stream(ADA)
        assert await waiting

    asyncio.run(scenario())


def test_requests_that_wait_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(rate_limiter, "MAX_WAITING_REQUESTS", 1)
        budgets = RateLimiter(Limits(concurrent_requests=1))
        assert await budgets.start_request(ADA)
        waiting = asyncio.create_task(budgets.start_request(ADA))
        await asyncio.sleep(0)
        assert not await budgets.start_request(ADA)
        budgets.finish_request(ADA)
        assert await waiting

    asyncio.run(scenario())


def test_peers_that_have_not_signed_in_share_a_limit_and_do_not_wait() -> None:
    async def scenario() -> None:
        budgets = RateLimiter(Limits(anonymous_concurrent_requests=2))
        assert [await budgets.start_request(None) for _ in range(3)] == [True, True, False]
        assert await budgets.start_request(ADA)
        budgets.finish_request(None)
        assert await budgets.start_request(None)

    asyncio.run(scenario())


def test_refusals_beyond_a_few_are_answered_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(rate_limiter, "REFUSAL_DELAY_S", 1e6)
        monkeypatch.setattr(rate_limiter, "MAX_DELAYED_REFUSALS", 1)
        budgets = RateLimiter(Limits())
        for _ in range(20):
            await budgets.delay_refusal(ADA, 0.0)
        delayed = asyncio.create_task(budgets.delay_refusal(ADA, 0.0))
        await asyncio.sleep(0)
        assert not delayed.done()
        await budgets.delay_refusal(ADA, 0.0)  # as many are kept back as may be
        await budgets.delay_refusal(BOB, 0.0)
        delayed.cancel()
        await asyncio.gather(delayed, return_exceptions=True)

    asyncio.run(scenario())
