"""The time limit of a remote tool holds on the server, whether an executor is connected or not."""

from typing import Any

import pytest

from tests.support.manual_clock import move_on, run_on_clock
from tests.unit.app.desk import ADA, BOB, Desk, bodies, desk
from turnlog import Agent, App, tool
from turnlog.agents import Scripted, ToolUse
from turnlog.app import Membership, Principal
from turnlog.errors import InvalidEvent
from turnlog.log import Log, MemoryStore

LIMIT_S = 30.0


def app_with(**options: Any) -> App:
    @tool(executor="remote", timeout_s=LIMIT_S, **options)
    def weigh(what: str) -> int:
        """Weigh something elsewhere."""
        raise NotImplementedError

    def script(messages: list[Any]) -> Any:
        results = [part for part in messages[-1].content if part["type"] == "tool_result"]
        yield f"It said {results[-1]['content']}" if results else ToolUse("weigh", {"what": "a stone"})

    return App("scale", Agent("Scale", "", Scripted(script), tools=(weigh,)))


async def called(at: Desk) -> tuple[Membership, str]:
    seat = await at.sessions.create(ADA)
    await at.say(seat, "How heavy?")
    call = await at.until(seat, "tool.call")
    await at.until(seat, "agent.usage")
    await at.sessions.tree(seat)
    return seat, str(call["call_id"])


async def timed_out(at: Desk, seat: Membership) -> bool:
    """Whether the one call is answered with TIMEOUT when its time has passed."""
    move_on(LIMIT_S)
    await at.until(seat, "agent.end")
    [result] = bodies(await at.told(seat, "tool.result"))
    return bool(not result["ok"] and result["error"]["code"] == "TIMEOUT")


def test_remote_tool_no_executor_connected_times_out() -> None:
    async def run() -> None:
        async with desk(app_with()) as at:
            seat, _ = await called(at)
            assert await timed_out(at, seat)

    run_on_clock(run)


def test_remote_tool_that_needs_approval_times_out_after_it_is_given() -> None:
    async def run() -> None:
        async with desk(app_with(approval=True, expires_s=10 * LIMIT_S)) as at:
            seat, call_id = await called(at)
            asked = await at.until(seat, "approval.request")
            move_on(2 * LIMIT_S)
            await at.sessions.tree(seat)
            decision = {"call_id": call_id, "args_hash": asked["args_hash"], "decision": "approve"}
            await at.post(seat, "approval.decision", decision)
            await at.wait_for_runner(seat)
            assert await timed_out(at, seat)

    run_on_clock(run)


def test_remote_tool_server_restarted_times_out() -> None:
    async def run() -> None:
        app, log = app_with(), Log(MemoryStore())
        async with desk(app, log=log) as at:
            seat, _ = await called(at)
        async with desk(app, log=log) as later:
            await later.wait_for_runner(seat)
            assert await timed_out(later, seat)
        await log.close()

    run_on_clock(run)


def test_remote_tool_answered_in_time_keeps_its_answer_as_origin_tool() -> None:
    async def run() -> None:
        async with desk(app_with()) as at:
            seat, call_id = await called(at)
            bob = await at.sessions.get_membership(Principal("bob", frozenset({"executor"})), seat.session_id)
            answer = {"call_id": call_id, "tool": "weigh", "ok": True, "result": 7, "error": None}
            await at.post(bob, "tool.result", answer)
            move_on(LIMIT_S)
            await at.until(seat, "agent.end")
            [result] = await at.told(seat, "tool.result")
            assert (result.origin, result.actor) == ("tool", "bob")

    run_on_clock(run)


def test_remote_tool_answered_without_the_role_is_refused_with_the_reason() -> None:
    async def run() -> None:
        async with desk(app_with()) as at:
            seat, call_id = await called(at)
            bob = await at.member(seat, BOB, "guest")
            answer = {"call_id": call_id, "tool": "weigh", "ok": True, "result": 7, "error": None}
            with pytest.raises(InvalidEvent, match="expected the role executor or owner"):
                await at.post(bob, "tool.result", answer)

    run_on_clock(run)
