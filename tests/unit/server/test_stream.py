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
from turnlog.log.filter import EVERYTHING, Choice
from turnlog.server.streaming import event_stream
from turnlog.server.streaming.event_stream import chosen
from turnlog.server.streaming.query import wanted_dialect, wanted_events
from turnlog.server.streaming.streams import HEARTBEAT
from turnlog.testing.factories import agent, began, called, delta, note, over, started
from turnlog.wire.sse import Decoder

SESSION = "sess_1"
NOBODY = Scope()


@pytest.mark.parametrize(
    ("query", "choice"),
    [
        ("", EVERYTHING),
        ("types=", EVERYTHING),
        ("types=tool.call", Choice(("tool.call",))),
        ("types=tool,agent.end&depth=0", Choice(("tool", "agent.end"), 0)),
        ("depth=12&turn=tr_1", Choice((), 12, "tr_1")),
    ],
)
def test_a_choice_is_read_from_the_query(query: str, choice: Choice) -> None:
    assert wanted_events(QueryParams(query)) == choice


@pytest.mark.parametrize(
    ("query", "name"),
    [("depth=-1", "depth"), ("depth=x", "depth"), ("depth=\u0663", "depth"), ("types=" + "a," * 65, "types")],
)
def test_a_wrong_choice_names_its_parameter(query: str, name: str) -> None:
    with pytest.raises(BadInput) as refusal:
        wanted_events(QueryParams(query))
    assert refusal.value.path == name


@pytest.mark.parametrize("query", ["dialect=klingon", "dialect=blocks&stream_tool_results=1"])
def test_a_wrong_dialect_or_option_is_refused(query: str) -> None:
    with pytest.raises(BadInput):
        wanted_dialect(QueryParams(query), {})


def logged(run: Callable[[Log], Coroutine[Any, Any, None]]) -> None:
    async def scenario() -> None:
        log = Log(MemoryStore())
        await log.create("t", SESSION)
        try:
            await run(log)
        finally:
            await log.close()

    asyncio.run(asyncio.wait_for(scenario(), HANG_S))


async def take(log: Log, choice: Choice, count: int, after: int = -1) -> list[bytes]:
    head, found = await log.info(SESSION), list[bytes]()
    pages = log.follow(SESSION, after, idle_s=0.01, epoch=head.epoch)
    async for data in chosen(pages, head.epoch, choice):
        found.append(data)
        if len(found) == count:
            break
    return found


def test_types_depth_and_turn_choose_events_and_keep_their_cursors() -> None:
    async def run(log: Log) -> None:
        root, child = agent(1), structs.replace(agent(2), depth=1)
        events = [note("a", scope=NOBODY), started(root), started(child), called("c", child)]
        await log.append(SESSION, [*events, note("b", scope=NOBODY)])
        epoch = (await log.info(SESSION)).epoch
        cases = [
            (Choice(("agent",)), [1, 2]),
            (Choice(("tool.call",)), [3]),
            (Choice((), 0), [0, 1, 4]),
            (Choice((), None, "tr_1"), [1, 2, 3]),
            (Choice(("agent",), 0, "tr_1"), [1]),
        ]
        for choice, seqs in cases:
            [data] = await take(log, choice, 1)
            assert [message.id for message in Decoder().feed(data)] == [f"{epoch}:{seq}" for seq in seqs]

    logged(run)


def test_what_is_passed_over_moves_the_cursor_with_a_heartbeat() -> None:
    async def run(log: Log) -> None:
        await log.append(SESSION, [note("a"), began("x"), delta("x"), over("x")])
        epoch = (await log.info(SESSION)).epoch
        first, second = await take(log, Choice(("tool",)), 2)
        decoder = Decoder()
        assert [message.event for message in decoder.feed(first)] == ["heartbeat"]
        assert decoder.last_id == f"{epoch}:3"
        assert second == HEARTBEAT

    logged(run)


def test_a_stream_of_events_that_are_not_wanted_beats_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(log: Log) -> None:
        monkeypatch.setattr(event_stream, "HEARTBEAT_S", 0.0)
        await log.append(SESSION, [note("a")])
        head = await log.info(SESSION)
        pages = log.follow(SESSION, epoch=head.epoch)  # it is never silent
        frames = chosen(pages, head.epoch, Choice(("tool",)))
        async for data in frames:
            assert data == HEARTBEAT + f"id: {head.epoch}:0\n\n".encode()
            break
        await frames.aclose()

    logged(run)
