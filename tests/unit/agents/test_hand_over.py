"""A pool that drains: it claims nothing more, and hands every session over between two steps of its turns."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.support.limited_session import on_clock
from tests.support.limits import HANG_S
from tests.unit.agents.test_runner_pool import Office, make_agent, opened
from tests.unit.log.delegates import until
from turnlog.agents import Agent, Scripted, ToolUse, tool
from turnlog.agents.models.scripted import Fail
from turnlog.agents.retry import RetryPolicy
from turnlog.agents.runtime.runner_pool import RunnerPool
from turnlog.errors import Conflict
from turnlog.events import Event
from turnlog.state.history import Message

NEVER_S = 3600.0
NO_TIME_S = 0.0


@tool(executor="remote", timeout_s=NEVER_S)
def ship() -> str:
    """Ship, in another process."""
    raise NotImplementedError


def call_once(name: str) -> Agent:
    """Make an agent that calls a tool and then ends."""

    def play(messages: list[Message]) -> Iterator[str | ToolUse]:
        is_called = messages[-1].content[-1]["type"] == "tool_result"
        yield "Done." if is_called else ToolUse(name, {})

    return make_agent(script=play)


class BlockedTool:
    """A tool that writes, and ends when the test says so."""

    def __init__(self) -> None:
        self.starts = 0
        self.may_end = asyncio.Event()

        @tool(kind="write")
        async def note() -> str:
            """Write a note."""
            self.starts += 1
            await self.may_end.wait()
            return "noted"

        self.tool = note

    def agent(self) -> Agent:
        def play(messages: list[Message]) -> Iterator[str | ToolUse]:
            is_called = messages[-1].content[-1]["type"] == "tool_result"
            yield "Done." if is_called else ToolUse("note", {})

        return Agent("Clerk", "", Scripted(play), tools=(self.tool,))


async def drained(pool: RunnerPool) -> None:
    await asyncio.wait_for(pool.drain(NEVER_S), HANG_S)


async def continue_elsewhere(office: Office) -> None:
    """Let another pool of the same log run the session to the end of its turn."""
    other = RunnerPool(office.log, office._make_runner)
    other.start()
    await asyncio.wait_for(office.wait_for("agent.end"), HANG_S)
    await other.close()


@on_clock
async def test_sessions_that_wait_are_released_at_once() -> None:
    async with opened() as office:
        office.pool.start()
        await office.send("pay")
        await office.wait_for("approval.request")
        await drained(office.pool)
        assert len(office.pool) == 0
        assert await office.log.leases.owner_of(office.session_id) is None
        assert await office.log.leases.next_wake_ms() is not None  # when the approval expires
        assert "process.end" not in await office.types()


@on_clock
async def test_a_session_that_waits_for_a_remote_executor_is_released_at_once() -> None:
    async with opened() as office:
        office.agent = Agent("Clerk", "", call_once("ship").model, tools=(ship,))
        office.pool.start()
        await office.send("ship it")
        await office.wait_for("tool.call")
        await until(lambda: bool(office.made) and office.made[0].has_tasks_beside(set()))
        await drained(office.pool)
        assert await office.log.leases.owner_of(office.session_id) is None
        # The next owner starts the timer of the call again.
        assert [lease.session_id for lease in await office.log.leases.claim_wanted("next")] == [
            office.session_id
        ]


@on_clock
async def test_a_pool_that_drains_claims_nothing_and_opens_nothing() -> None:
    async with opened() as office:
        office.pool.start()
        await until(lambda: len(office.pool) == 1)
        await drained(office.pool)
        await office.send("Hello")
        with pytest.raises(Conflict, match="this process is being stopped"):
            await office.pool.open(office.session_id)
        assert [lease.session_id for lease in await office.log.leases.claim_wanted("next")] == [
            office.session_id
        ]


@on_clock
async def test_a_step_is_finished_and_the_next_one_left_to_another_owner() -> None:
    async with opened() as office:
        blocked = BlockedTool()
        office.agent = blocked.agent()
        office.pool.start()
        await office.send("Hello")
        await until(lambda: blocked.starts == 1)
        drain = asyncio.create_task(office.pool.drain(NEVER_S))
        await asyncio.sleep(0)
        assert not drain.done()
        blocked.may_end.set()
        await asyncio.wait_for(drain, HANG_S)
        types = await office.types()
        assert types[-1] == "tool.result"
        assert (types.count("agent.usage"), types.count("agent.end")) == (1, 0)

        await continue_elsewhere(office)
        assert blocked.starts == 1
        assert "block.retract" not in await office.types()


@on_clock
async def test_calls_that_the_runner_has_not_read_yet_are_started_before_the_hand_over() -> None:
    """The completion is in the log, and the runner is still to react to it when the drain begins."""
    async with opened() as office:
        blocked = BlockedTool()
        blocked.may_end.set()
        office.agent = blocked.agent()
        runner = await office.pool.open(office.session_id)
        write = runner.writer.write

        async def write_unread(events: Sequence[Event], **expected: Any) -> list[int]:
            if any(event.type == "tool.call" for event in events):
                await runner.lock.acquire()  # the runner processes no page until the test releases it
            return await write(events, **expected)

        runner.writer.write = write_unread  # type: ignore[method-assign]
        await office.send("Hello")
        await office.wait_for("tool.call")
        await until(lambda: not runner.has_tasks_beside(set()))
        drain = asyncio.create_task(office.pool.drain(NEVER_S))
        for _ in range(20):  # turns of the loop: a release would begin in the first
            await asyncio.sleep(0)
        assert runner.session_id not in office.pool._releases
        runner.lock.release()
        await asyncio.wait_for(drain, HANG_S)
        assert blocked.starts == 1
        [result] = [row for row in await office.log.read(office.session_id, -1) if row.type == "tool.result"]
        assert b"noted" in result.frame


@on_clock
async def test_a_completion_that_waits_for_its_next_attempt_is_left_to_another_owner() -> None:
    attempts = 0

    def fail_once(messages: list[Message]) -> Iterator[str | Fail]:
        nonlocal attempts
        attempts += 1
        yield "So "
        yield Fail() if attempts == 1 else "it is."

    async with opened() as office:
        retry = RetryPolicy(initial_delay_s=NEVER_S, max_delay_s=NEVER_S)
        office.agent = make_agent(script=fail_once, retry=retry)
        office.pool.start()
        await office.send("Hello")
        await office.wait_for("block.retract")
        await drained(office.pool)
        assert attempts == 1
        await continue_elsewhere(office)
        assert attempts == 2
        assert "session.error" not in await office.types()


@on_clock
async def test_a_drain_ends_after_its_time_with_what_still_runs() -> None:
    async with opened() as office:
        blocked = BlockedTool()
        office.agent = blocked.agent()
        office.pool.start()
        await office.send("Hello")
        await until(lambda: blocked.starts == 1)
        await office.pool.drain(NO_TIME_S)
        assert len(office.pool) == 1
        assert await office.log.leases.owner_of(office.session_id) == office.pool.owner


@on_clock
async def test_a_session_that_is_used_is_released_after_its_user() -> None:
    async with opened() as office:
        async with office.pool.use(office.session_id):
            drain = asyncio.create_task(office.pool.drain(NEVER_S))
            await asyncio.sleep(0)
            assert len(office.pool) == 1
        await asyncio.wait_for(drain, HANG_S)
        assert len(office.pool) == 0


@on_clock
async def test_a_session_that_was_lost_and_claimed_again_gets_a_new_runner() -> None:
    async with opened() as office:
        first = await office.pool.open(office.session_id)
        await first.wait_for_head()
        lease = await office.lose()
        await office.log.leases.release(lease, await office.log.last_seq(lease.session_id))
        office.pool.start()
        await office.send("Hello")
        await asyncio.wait_for(office.wait_for("agent.end"), HANG_S)
        assert len(office.made) == 2
        second = office.pool.find(office.session_id)
        assert second is office.made[1]
        assert second.lease.fence > first.lease.fence
        assert first.is_stopping
