"""A store that cannot write for a moment, for a while, or for good: every turn goes on or ends."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from tests.support.manual_clock import move_on, run_on_clock
from tests.unit.log.delegates import until
from turnlog import Agent, tool
from turnlog.agents import ReplyBuilder, Request, Scripted, ToolUse
from turnlog.agents.runtime.session_writer import PAUSES_S
from turnlog.errors import StoreError
from turnlog.events import AgentEnd, Entry, Payload
from turnlog.log import Log, MemoryStore
from turnlog.log.records import NewRow, SessionRecord
from turnlog.log.spans import SpanEdge
from turnlog.state.history import Message

LIMIT_S = 3600.0  # of a clock that the test moves
STEP_S = 5.0


class FailingStore(MemoryStore):
    """A store that refuses to write what agents do: `failures` times, from the write number `first` on."""

    def __init__(self, first: int = 0, failures: float = 1) -> None:
        super().__init__()
        self.first = first
        self.failures = failures
        self.writes = 0
        self.refused = 0

    def insert_rows(
        self, record: SessionRecord, rows: Sequence[NewRow], edges: Sequence[SpanEdge]
    ) -> SessionRecord:
        if rows and rows[0].row.type != "ui.message":
            self.writes += 1
            if self.writes > self.first and self.refused < self.failures:
                self.refused += 1
                raise StoreError("no space left on this disk")
        return super().insert_rows(record, rows, edges)


@tool
def look(topic: str) -> str:
    """Look something up."""
    return f"{topic} is green"


def script(messages: list[Message]) -> Iterator[str | ToolUse]:
    if any(part["type"] == "tool_result" for part in messages[-1].content):
        yield "It is green, "
        yield "and it is round."
    else:
        yield "I look it up."
        yield ToolUse("look", {"topic": "It"})


def guide() -> Agent:
    return Agent("Guide", "", Scripted(script), tools=(look,))


@asynccontextmanager
async def opened(store: MemoryStore) -> AsyncIterator[Log]:
    log = Log(store)
    try:
        yield log
    finally:
        await log.close()


def on_fast_clock(work: Callable[[], Any]) -> Any:
    """Run something while the clock of its loop runs ahead: pauses take no time."""

    async def raced() -> Any:
        task = asyncio.create_task(work())
        async with asyncio.timeout(LIMIT_S):
            while not task.done():
                await asyncio.sleep(0)
                move_on(STEP_S / 100)
        return await task

    return run_on_clock(raced)


async def run(agent: Agent, log: Log, session_id: str) -> list[Entry]:
    return [entry async for entry in agent.run("What is it?", log=log, session_id=session_id)]


def end_of(entries: list[Entry]) -> AgentEnd:
    [end] = [entry.payload for entry in entries if isinstance(entry.payload, AgentEnd)]
    return end


def durable_types(entries: list[Entry]) -> list[str]:
    return [entry.type for entry in entries if entry.type != "block.delta"]


async def turn_on(store: FailingStore) -> list[Entry]:
    async with opened(store) as log:
        return await run(guide(), log, await log.create("guide"))


def test_run_store_fails_one_write_ends_as_if_nothing_had_happened() -> None:
    whole = FailingStore(failures=0)
    types = durable_types(on_fast_clock(lambda: turn_on(whole)))
    assert whole.writes > 5
    for first in range(whole.writes):
        store = FailingStore(first)
        entries = on_fast_clock(partial(turn_on, store))
        assert store.refused == 1
        assert durable_types(entries) == types, f"write {first}"
        assert end_of(entries).stop_reason == "end_turn"


def test_run_store_fails_for_a_while_goes_on_when_it_is_back() -> None:
    store = FailingStore(first=2, failures=len(PAUSES_S))
    entries = on_fast_clock(lambda: turn_on(store))
    assert store.refused == len(PAUSES_S)
    assert end_of(entries).stop_reason == "end_turn"


def test_run_store_fails_for_good_raises_at_every_write() -> None:
    whole = FailingStore(failures=0)
    on_fast_clock(lambda: turn_on(whole))
    for first in range(whole.writes):
        store = FailingStore(first, failures=float("inf"))
        with pytest.raises(StoreError):
            on_fast_clock(partial(turn_on, store))
        assert store.refused > len(PAUSES_S)


def test_run_after_the_store_recovered_continues_the_turn_that_was_left_open() -> None:
    async def turns() -> tuple[list[Entry], list[str]]:
        store, agent = FailingStore(first=2, failures=float("inf")), guide()
        async with opened(store) as log:
            session_id = await log.create("guide")
            with pytest.raises(StoreError):
                await run(agent, log, session_id)
            store.failures = 0
            entries = await run(agent, log, session_id)
            page = await log.read(session_id)
            ends = [agent_end for agent_end in page.envelopes() if agent_end.type == "agent.end"]
            return entries, [str(bytes(end.payload)) for end in ends]

    entries, ends = on_fast_clock(turns)
    assert end_of(entries).stop_reason == "end_turn"
    assert len(ends) == 2
    assert all('"stop_reason":"end_turn"' in end for end in ends)


class Endless:
    """A model that speaks until it is told to go on to its end."""

    name = "endless"

    def __init__(self) -> None:
        self.spoke = asyncio.Event()

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        while True:
            yield reply.text("word ")
            self.spoke.set()
            await asyncio.sleep(0)


def test_run_session_closed_while_a_model_speaks_logs_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async def close_early() -> None:
        model = Endless()
        agent = Agent("Guide", "", model)
        async with opened(MemoryStore()) as log:
            session_id = await log.create("guide")
            running = asyncio.create_task(run(agent, log, session_id))
            await model.spoke.wait()
            await log.close_session(session_id)
            with pytest.raises(StoreError, match="the session was closed"):
                await running
            await until(lambda: not agent.run_pools)

    caplog.set_level(logging.WARNING)
    asyncio.run(close_early())
    assert [record.getMessage() for record in caplog.records] == []
