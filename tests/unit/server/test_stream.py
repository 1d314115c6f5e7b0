"""Which events a reader asks for, and that a filter loses nothing and moves the cursor."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from msgspec import structs
from starlette.datastructures import QueryParams

from tests.support.limits import HANG_S
from turnlog.errors import BadInput
from turnlog.events import Scope
from turnlog.log import Log, MemoryStore
from turnlog.log.filter import MATCH_ALL, EventFilter
from turnlog.server.streaming.event_stream import filter_pages
from turnlog.server.streaming.query import parse_dialect_request, parse_event_filter
from turnlog.testing.factories import (
    agent_scope,
    agent_start_event,
    block_delta_event,
    block_end_event,
    block_start_event,
    durable_event,
    tool_call_event,
)
from turnlog.vocabularies import DIALECTS
from turnlog.wire.dialects.framing import NATIVE_FRAMING
from turnlog.wire.sse import Decoder

SESSION = "sess_1"
NOBODY = Scope()


@pytest.mark.parametrize(
    ("query", "choice"),
    [
        ("", MATCH_ALL),
        ("types=", MATCH_ALL),
        ("types=tool.call", EventFilter(("tool.call",))),
        ("types=tool,agent.end&depth=0", EventFilter(("tool", "agent.end"), 0)),
        ("depth=12&turn=tr_1", EventFilter((), 12, "tr_1")),
    ],
)
def test_a_choice_is_read_from_the_query(query: str, choice: EventFilter) -> None:
    assert parse_event_filter(QueryParams(query)) == choice


@pytest.mark.parametrize(
    ("query", "name"),
    [("depth=-1", "depth"), ("depth=x", "depth"), ("depth=\u0663", "depth"), ("types=" + "a," * 65, "types")],
)
def test_a_wrong_choice_names_its_parameter(query: str, name: str) -> None:
    with pytest.raises(BadInput) as refusal:
        parse_event_filter(QueryParams(query))
    assert refusal.value.path == name


@pytest.mark.parametrize("query", ["dialect=klingon", "dialect=blocks&stream_tool_results=1"])
def test_a_wrong_dialect_or_option_is_refused(query: str) -> None:
    with pytest.raises(BadInput):
        parse_dialect_request(QueryParams(query), DIALECTS, DIALECTS.request("turnlog"))


def logged(run: Callable[[Log], Coroutine[Any, Any, None]]) -> None:
    async def scenario() -> None:
        log = Log(MemoryStore())
        await log.create("t", SESSION)
        try:
            await run(log)
        finally:
            await log.close()

    asyncio.run(asyncio.wait_for(scenario(), HANG_S))


async def take(log: Log, choice: EventFilter, count: int, after: int = -1) -> list[bytes]:
    head, found = await log.info(SESSION), list[bytes]()
    pages = log.follow(SESSION, after, idle_s=0.01, epoch=head.epoch)
    async for data in filter_pages(pages, head.epoch, choice, 60.0):
        found.append(data)
        if len(found) == count:
            break
    return found


def test_types_depth_and_turn_choose_events_and_keep_their_cursors() -> None:
    async def run(log: Log) -> None:
        root, child = agent_scope(1), structs.replace(agent_scope(2), depth=1)
        events = [
            durable_event("a", scope=NOBODY),
            agent_start_event(root),
            agent_start_event(child),
            tool_call_event("c", child),
        ]
        await log.append(SESSION, [*events, durable_event("b", scope=NOBODY)])
        epoch = (await log.info(SESSION)).epoch
        cases = [
            (EventFilter(("agent",)), [1, 2]),
            (EventFilter(("tool.call",)), [3]),
            (EventFilter((), 0), [0, 1, 4]),
            (EventFilter((), None, "tr_1"), [1, 2, 3]),
            (EventFilter(("agent",), 0, "tr_1"), [1]),
        ]
        for choice, seqs in cases:
            [data] = await take(log, choice, 1)
            assert [message.id for message in Decoder().feed(data)] == [f"{seq}:{epoch}" for seq in seqs]

    logged(run)


def test_what_is_passed_over_moves_the_cursor_with_a_heartbeat() -> None:
    async def run(log: Log) -> None:
        await log.append(
            SESSION,
            [durable_event("a"), block_start_event("x"), block_delta_event("x"), block_end_event("x")],
        )
        epoch = (await log.info(SESSION)).epoch
        first, second = await take(log, EventFilter(("tool",)), 2)
        decoder = Decoder()
        assert [message.event for message in decoder.feed(first)] == ["heartbeat"]
        assert decoder.last_id == f"3:{epoch}"
        assert second == NATIVE_FRAMING.heartbeat

    logged(run)


def test_a_stream_of_events_that_are_not_wanted_beats_all_the_same() -> None:
    async def run(log: Log) -> None:
        await log.append(SESSION, [durable_event("a")])
        head = await log.info(SESSION)
        pages = log.follow(SESSION, epoch=head.epoch)  # it is never silent
        frames = filter_pages(pages, head.epoch, EventFilter(("tool",)), 0.0)
        async for data in frames:
            assert data == NATIVE_FRAMING.heartbeat + f"id: 0:{head.epoch}\n\n".encode()
            break
        await frames.aclose()

    logged(run)
