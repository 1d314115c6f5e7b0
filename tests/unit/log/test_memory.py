"""The ring: what it lets go of, and what never."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from tests.support.coverage_pause import without_coverage
from tests.unit.log.delegates import scenario, soon
from turnlog.errors import NotFound, StoreError
from turnlog.events import CORE, AgentEnd, Catalog, Event, Origin, Payload, Scope, UiAction, Vocabulary
from turnlog.events.payload import ANY_ORIGIN
from turnlog.events.ui import ButtonClick
from turnlog.log import Log, MemoryStore, Row
from turnlog.log.memory import RING_BYTES, RING_EVENTS, Ring
from turnlog.log.tail import MAX_TAIL_BYTES, MAX_TAIL_ROWS
from turnlog.testing.factories import (
    agent_end_event,
    agent_scope,
    agent_start_event,
    block_delta_event,
    block_end_event,
    block_start_event,
    durable_event,
    make_event,
    tool_call_event,
    tool_result_event,
    user_message_event,
)
from turnlog.testing.harness import open_follower

SESSION = "sess_1"


@asynccontextmanager
async def ring(events: int = 10, size_bytes: int = 1 << 20) -> AsyncIterator[Log]:
    log = Log(MemoryStore(events, size_bytes))
    await log.create("t", SESSION)
    try:
        yield log
    finally:
        await log.close()


def turn(number: int, *inside: Event) -> list[Event]:
    """A whole turn: three durable events and what happened inside."""
    scope = agent_scope(number, trace=number)
    return [
        user_message_event(f"m{number}", trace=number),
        agent_start_event(scope),
        *inside,
        agent_end_event(scope),
    ]


async def add(log: Log, *batches: Sequence[Event]) -> None:
    for batch in batches:
        await log.append(SESSION, batch)


async def kept(log: Log) -> list[int]:
    rows = await log.read(SESSION, max_bytes=1 << 30)
    assert not rows or rows[0].seq == (await log.info(SESSION)).first
    return [row.seq for row in rows]


@scenario
async def test_nothing_goes_while_there_is_room() -> None:
    async with ring(events=9) as log:
        await add(log, turn(1), turn(2), turn(3))
        assert await kept(log) == list(range(9))
        assert (await log.info(SESSION)).first == 0


@scenario
async def test_finished_turns_go_whole() -> None:
    async with ring(events=9) as log:
        await add(log, turn(1), turn(2), turn(3), turn(4))
        assert await kept(log) == list(range(3, 12))
        await add(log, turn(5, durable_event("a", scope=agent_scope(5, trace=5))))
        assert await kept(log) == list(range(6, 16))


@scenario
async def test_after_letting_go_the_ring_is_within_its_bounds_and_goes_on() -> None:
    async with ring(events=9) as log:
        for number in range(50):
            await add(log, turn(number))
            assert len(await kept(log)) <= 9
        head = await log.info(SESSION)
        assert (head.last, head.durable_count, head.epoch) == (149, 150, (await log.sessions())[0].epoch)
        assert (await log.append(SESSION, [durable_event("a")], expected_last=149)).seqs == [150]


@scenario
async def test_only_durable_events_count() -> None:
    async with ring(events=5) as log:
        deltas = [block_delta_event("x", number) for number in range(100)]
        await add(log, turn(1, block_start_event("x"), *deltas, block_end_event("x")))
        assert len(await kept(log)) == 105
        await add(log, turn(2), turn(3))
        assert await kept(log) == list(range(105, 111))


@scenario
async def test_bytes_count_live_ones_too() -> None:
    async with ring(events=1000, size_bytes=20_000) as log:
        for number in range(20):
            name, scope = f"x{number}", agent_scope(number, trace=number)
            deltas = [block_delta_event(name, place, scope) for place in range(30)]
            await add(
                log, turn(number, block_start_event(name, scope), *deltas, block_end_event(name, scope))
            )
            rows = await log.read(SESSION, max_bytes=1 << 30)
            assert sum(len(row.frame) for row in rows) <= 20_000
        assert (await log.info(SESSION)).first > 300


@scenario
async def test_an_open_turn_never_goes_with_the_message_that_opened_it() -> None:
    async with ring(events=5) as log:
        await add(log, turn(1)[:-1], [durable_event(str(number)) for number in range(50)])
        assert await kept(log) == list(range(52))
        await add(log, turn(1)[-1:], turn(2), turn(3))
        assert await kept(log) == list(range(53, 59))


@scenario
async def test_what_is_older_than_an_open_turn_may_go_what_is_younger_may_not() -> None:
    async with ring(events=5) as log:
        await add(log, turn(1), [agent_start_event(agent_scope(2, trace=2))], turn(3), turn(4), turn(5))
        assert (await kept(log))[0] == 3
        assert len(await kept(log)) == 10


@scenario
async def test_an_open_block_or_call_is_not_cut() -> None:
    async with ring(events=3) as log:
        await add(
            log,
            [durable_event("a"), block_start_event("x")],
            [block_delta_event("x")],
            [durable_event(str(number)) for number in range(20)],
        )
        assert (await kept(log))[0] == 1
        await add(log, [block_end_event("x")], turn(2))
        assert await kept(log) == [24, 25, 26]


@scenario
async def test_a_message_that_waits_for_its_turn_never_goes() -> None:
    async with ring(events=3) as log:
        await add(log, turn(1), [user_message_event("m", trace=9)], *[turn(number) for number in range(2, 8)])
        assert (await kept(log))[0] == 3
        await add(
            log,
            [agent_start_event(agent_scope(9, trace=9)), agent_end_event(agent_scope(9, trace=9))],
            turn(10),
        )
        assert await kept(log) == [24, 25, 26]


class Noted(Payload, frozen=True, kw_only=True):
    """Something of an application."""

    ORIGINS: ClassVar = ANY_ORIGIN


CASES = Catalog(CORE, Vocabulary("case", [Noted]))


def noted(trace: int, origin: Origin) -> Event:
    scope = Scope(trace_id=f"tr_{trace}")
    return CASES.build_event(Noted(), id=f"evt_noted-{trace}-{origin}", origin=origin, scope=scope)


def clicked(trace: int) -> Event:
    action = UiAction(action=ButtonClick(button_id="b"), view_id="v")
    return make_event(action, f"clicked-{trace}", Scope(trace_id=f"tr_{trace}"))


@pytest.mark.parametrize(
    "opening",
    [[noted(9, "ui")], [clicked(9)], [noted(9, "ui"), user_message_event("m", trace=9)]],
    ids=["event of a page", "action", "chat"],
)
def test_whatever_waits_for_its_turn_never_goes(opening: list[Event]) -> None:
    @scenario
    async def run() -> None:
        async with ring(events=3) as log:
            await add(log, opening, *[turn(number) for number in range(1, 7)])
            assert (await kept(log))[0] == 0
            await add(
                log,
                [agent_start_event(agent_scope(9, trace=9)), agent_end_event(agent_scope(9, trace=9))],
                turn(10),
            )
            assert len(await kept(log)) == 3

    run()


@scenario
async def test_an_event_that_asks_for_no_turn_goes() -> None:
    async with ring(events=3) as log:
        await add(log, [noted(9, "app")], *[turn(number) for number in range(1, 7)])
        assert len(await kept(log)) <= 3


@scenario
async def test_a_message_in_the_turn_of_an_agent_that_has_just_ended_waits() -> None:
    first = agent_scope(1)
    async with ring(events=3) as log:
        await add(
            log,
            [agent_start_event(first)],
            [agent_end_event(first), user_message_event("m")],
            turn(2),
            turn(3),
        )
        assert (await kept(log))[0] == 0


@scenario
async def test_an_agent_that_ends_in_another_turn_has_ended() -> None:
    elsewhere = make_event(AgentEnd(stop_reason="end_turn"), "end", agent_scope(1, trace=8))
    async with ring(events=3) as log:
        await add(
            log, [user_message_event("m"), agent_start_event(agent_scope(1))], [elsewhere], turn(2), turn(3)
        )
        assert len(await kept(log)) <= 3


@scenario
async def test_what_began_again_is_held_where_it_began_last() -> None:
    async with ring(events=3) as log:
        again = make_event(block_start_event("x").payload, "again")  # type: ignore[arg-type]
        await add(log, [block_start_event("x")], turn(5), [again], turn(6), turn(7))
        assert (await kept(log))[0] == 4
        await add(log, [block_end_event("x")], turn(8))
        assert len(await kept(log)) <= 3


@scenario
async def test_what_holds_the_ring_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0

    class Rows(list[Row]):
        def __iter__(self) -> Iterator[Row]:
            nonlocal looked
            for row in super().__iter__():
                looked += 1
                yield row

    @dataclass
    class Counting(Ring):
        rows: list[Row] = field(default_factory=Rows)

    monkeypatch.setattr("turnlog.log.memory.Ring", Counting)
    async with ring(events=3) as log:
        scope = agent_scope(1)
        await add(log, [agent_start_event(scope)], *[[durable_event(str(number))] for number in range(100)])
        assert looked == 1
        await add(log, [agent_end_event(scope)])
        assert (len(await kept(log)), looked) == (102, 103)


@scenario
async def test_ring_after_a_long_turn_looks_for_a_cut_only_when_there_can_be_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = 0

    @dataclass
    class Counting(Ring):
        def evict(self, events: int, size_bytes: int) -> list[Row]:
            nonlocal looked
            before = self.evict_from_count
            gone = super().evict(events, size_bytes)
            looked += before == 0 or bool(gone)
            return gone

    monkeypatch.setattr("turnlog.log.memory.Ring", Counting)
    scope = agent_scope(1)
    async with ring(events=10) as log:
        inside = [durable_event(str(number), scope=scope) for number in range(50)]
        await add(log, [agent_start_event(scope), *inside, agent_end_event(scope)])
        for number in range(2, 5):
            await add(log, *[[event] for event in turn(number)])
        assert (looked, (await kept(log))[0]) == (1, 0)
        await add(log, turn(5))
        assert (looked, (await kept(log))[0]) == (2, 52)


@scenario
async def test_what_was_let_go_of_is_forgotten_altogether() -> None:
    async with ring(events=6) as log:
        await add(log, turn(1, block_start_event("x"), block_end_event("x")))
        await add(log, *[turn(number) for number in range(2, 8)])
        assert await log.closing_event(SESSION, "x") is None
        assert not await log.has_event(SESSION, 0)
        assert await log.sessions_with_open_agents() == []


@scenario
async def test_a_follower_the_ring_has_overtaken_is_not_served_a_gap() -> None:
    async with ring(events=10) as log, open_follower(log, SESSION) as pages:
        await add(log, turn(1))
        cursor = (await anext(pages))[-1].seq
        await add(log, *[turn(number) for number in range(2, MAX_TAIL_ROWS)])
        try:
            page = await anext(pages)
        except (StopAsyncIteration, StoreError):
            return
        assert page[0].seq == cursor + 1


@scenario
async def test_a_follower_within_the_window_reads_on_though_the_ring_has_moved() -> None:
    async with ring(events=10) as log, open_follower(log, SESSION) as pages:
        await add(log, turn(1))
        assert [row.seq for row in await anext(pages)] == [0, 1, 2]
        await add(log, *[turn(number) for number in range(2, 100)])
        assert [row.seq for row in await anext(pages)] == list(range(3, 297))


@scenario
async def test_asking_about_an_unknown_session_is_no_bug() -> None:
    async with ring() as log:
        with suppress(NotFound):
            assert not await log.has_event("sess_x", 0)
        with suppress(NotFound):
            assert await log.oldest_open_turn_start("sess_x", 0) == 1
        with suppress(NotFound):
            assert await log.closing_event("sess_x", "x") is None


@scenario
async def test_a_follower_of_a_ring_that_is_empty_again_is_not_served_a_gap() -> None:
    async with ring(size_bytes=10_000) as log, open_follower(log, SESSION) as pages:
        await add(log, turn(1))
        assert [row.seq for row in await anext(pages)] == [0, 1, 2]
        big = [
            durable_event(str(number), "z" * MAX_TAIL_BYTES, agent_scope(2, trace=2)) for number in range(3)
        ]
        await add(log, *[[event] for event in turn(2, *big)])
        assert (await log.info(SESSION)).first == 9  # the newest turn alone was far too large
        with pytest.raises(StopAsyncIteration):
            await soon(anext(pages))


@scenario
async def test_pages_are_as_long_as_ever_after_letting_go() -> None:
    async with ring(events=9) as log:
        for number in range(20):
            await add(log, turn(number))
        first = (await log.info(SESSION)).first
        size = len((await log.read(SESSION, first - 1, max_bytes=1))[0].frame)
        assert [row.seq for row in await log.read(SESSION, first - 1, max_bytes=1)] == [first]
        assert len(await log.read(SESSION, first - 1, max_bytes=size + 1)) == 2


@pytest.mark.parametrize("number", [420, 1000])
@without_coverage()
def test_queued_messages_that_are_all_answered_leave_the_newest_2000_durable_events(number: int) -> None:
    @scenario
    async def run() -> None:
        async with ring(RING_EVENTS, RING_BYTES) as log:
            await add(log, [user_message_event(f"m{place}", trace=place) for place in range(number)])
            for place in range(number):
                scope = agent_scope(place, trace=place)
                inside = [durable_event(f"n{place}-{step}", scope=scope) for step in range(5)]
                await add(log, [agent_start_event(scope), *inside, agent_end_event(scope)])
            last = (await log.info(SESSION)).last
            assert await kept(log) == list(range(last + 1))

    run()


@scenario
async def test_one_turn_of_many_calls_stays_whole_when_it_has_ended() -> None:
    scope = agent_scope(1)
    async with ring(RING_EVENTS, RING_BYTES) as log:
        await add(log, [user_message_event("m"), agent_start_event(scope)])
        for number in range(1200):
            await add(log, [tool_call_event(str(number), scope), tool_result_event(str(number), scope)])
        await add(log, [agent_end_event(scope)])
        assert await kept(log) == list(range(2403))


@without_coverage()
@scenario
async def test_ring_lets_go_of_a_long_turn_when_2000_newer_durable_events_are_there() -> None:
    scope = agent_scope(1)
    async with ring(RING_EVENTS, RING_BYTES) as log:
        await add(
            log,
            [agent_start_event(scope), *[durable_event(f"n{number}", scope=scope) for number in range(3000)]],
        )
        await add(log, [agent_end_event(scope)], *[turn(number) for number in range(2, 668)])
        assert (await kept(log))[0] == 0
        await add(log, turn(668))
        assert len(await kept(log)) == 2001


@scenario
async def test_newest_turn_stays_though_it_is_larger_than_the_ring() -> None:
    async with ring(size_bytes=10_000) as log:
        await add(log, turn(1), turn(2, durable_event("a", "z" * 12_000, agent_scope(2, trace=2))))
        assert await kept(log) == [3, 4, 5, 6]
