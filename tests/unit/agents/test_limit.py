"""Turns that run too long are ended, and nothing else is: waiting is not running (protocol 4.17)."""

from typing import Any

import pytest

from tests.support.agent_logs import lawful
from tests.support.limited_session import LIMIT_S, PROBLEM, Scene, on_clock, opened, ring
from tests.support.manual_clock import run_on_clock
from tests.support.session_runners import agent_runtime
from tests.support.written_logs import log as hand_written
from tests.support.written_logs import scope
from turnlog.agents.runtime.turn_timeout import running_turns, timeout_events
from turnlog.events import (
    AgentEnd,
    AgentHandoff,
    AgentStart,
    AgentUsage,
    Envelope,
    Payload,
    Scope,
    SessionError,
    ToolAwait,
    ToolCall,
    Usage,
)
from turnlog.events.tool import AwaitedCall
from turnlog.state.tree import Tree


def ending(events: list[Envelope]) -> list[tuple[str, str | None]]:
    """What there is from the error on."""
    kinds = [(event.type, event.agent_name) for event in events]
    return kinds[[kind for kind, _ in kinds].index("session.error") :]


# what never ends


@on_clock
async def test_a_model_that_never_ends_is_hung_up_on() -> None:
    async with opened() as scene:
        await scene.send("hang")
        await scene.until("block.delta")
        await scene.passes(LIMIT_S - 1)
        assert scene.runner.tree.open
        await scene.passes(1)
        events = await scene.events()
        lawful(events)
        assert ending(events) == [("session.error", "Guide"), ("block.end", "Guide"), ("agent.end", "Guide")]
        assert await scene.bodies("session.error") == [PROBLEM]
        [block] = await scene.bodies("block.end")
        assert (block["status"], block["text"]) == ("aborted", "Let me")
        assert await scene.ends() == [("Guide", "timeout")]
        assert scene.mind.hung_up == ["hang"]
        assert {event.trace_id for event in events} == {"tr_1"}
        left = [
            scene.runner._tasks,
            agent_runtime(scene.runner)._completions.active_agents,
            scene.runner.timers._timers,
        ]
        assert not any(left)


@on_clock
async def test_a_tool_that_never_ends_is_stopped_and_its_call_answered() -> None:
    async with opened() as scene:
        await scene.send("stall")
        await scene.until("tool.call")
        await scene.passes(LIMIT_S)
        lawful(await scene.events())
        [result] = await scene.bodies("tool.result")
        assert (result["ok"], result["error"]["code"]) == (False, "CANCELLED")
        assert result["error"]["message"] == PROBLEM["message"]
        assert await scene.ends() == [("Guide", "timeout")]
        assert not scene.runner._tasks


@on_clock
async def test_an_agent_below_that_never_ends_takes_its_callers_with_it() -> None:
    async with opened() as scene:
        await scene.send("scout")
        await scene.until("block.delta", 2)
        await scene.passes(LIMIT_S)
        events = await scene.events()
        lawful(events)
        assert ending(events) == [
            ("session.error", "Guide"),
            ("block.end", "Scout"),
            ("agent.end", "Scout"),
            ("tool.result", "Guide"),
            ("agent.end", "Guide"),
        ]
        assert await scene.ends() == [("Scout", "timeout"), ("Guide", "timeout")]


@on_clock
async def test_the_limit_is_for_the_whole_turn_not_for_each_step() -> None:
    async with opened() as scene:
        await scene.send("scout")
        await scene.until("agent.start", 2)
        await scene.passes(LIMIT_S / 2)
        await scene.until("block.delta")
        await scene.passes(LIMIT_S / 2)
        assert await scene.ends() == [("Scout", "timeout"), ("Guide", "timeout")]


# waiting


@pytest.mark.parametrize(
    ("what", "value"), [("confirm", True), ("inquire", {"answer": "Oslo"}), ("remove", 1)]
)
def test_who_answers_takes_as_long_as_it_takes(what: str, value: Any) -> None:
    async def play() -> None:
        async with opened() as scene:
            await scene.send(what)
            await scene.until("approval.request" if what == "remove" else "tool.await")
            await scene.passes(0.9 * LIMIT_S if what == "remove" else 10 * LIMIT_S)
            await scene.answer(value)
            await scene.until("agent.end")
            assert await scene.ends() == [("Guide", "end_turn")]
            assert await scene.bodies("session.error") == []

    run_on_clock(play)


@on_clock
async def test_the_clock_starts_again_from_nothing_with_an_answer() -> None:
    async with opened() as scene:
        await scene.send("confirm hang")
        await scene.passes(LIMIT_S - 1)
        await scene.until("tool.await")
        await scene.passes(LIMIT_S)
        await scene.answer(True)
        await scene.until("block.delta")
        await scene.passes(LIMIT_S - 1)
        assert await scene.ends() == []
        await scene.passes(1)
        lawful(await scene.events())
        assert await scene.ends() == [("Guide", "timeout")]


@on_clock
async def test_who_waits_beside_one_that_runs_is_ended_with_it() -> None:
    async with opened() as scene:
        await scene.send("asker+scout")
        await scene.until("tool.await")
        await scene.until("block.delta")
        await scene.passes(LIMIT_S)
        lawful(await scene.events())
        assert sorted(await scene.ends()) == [(name, "timeout") for name in ("Asker", "Guide", "Scout")]


# what comes next, and what is beside it


@on_clock
async def test_the_next_message_in_line_has_its_turn_and_a_clock_of_its_own() -> None:
    async with opened() as scene:
        for _ in range(2):
            await scene.send("hang")
        await scene.send("end")
        await scene.until("block.delta")
        await scene.passes(LIMIT_S)
        await scene.until("block.delta", 2)
        await scene.passes(LIMIT_S - 1)
        assert await scene.ends() == [("Guide", "timeout")]
        await scene.passes(1)
        await scene.until("agent.end", 3)
        lawful(await scene.events())
        assert await scene.ends() == [("Guide", "timeout"), ("Guide", "timeout"), ("Guide", "end_turn")]


@on_clock
async def test_another_turn_that_runs_in_the_same_session_goes_on() -> None:
    async with opened() as scene:
        await scene.send("confirm hang")
        await scene.until("tool.await")
        await scene.send("hang", channel="side")
        await scene.until("block.delta", 2)  # the first one is of the question
        await scene.passes(LIMIT_S / 2)
        await scene.answer(True)
        await scene.until("block.delta", 3)
        await scene.passes(LIMIT_S / 2)
        ends = [event.trace_id for event in await scene.events() if event.type == "agent.end"]
        assert ends == ["tr_2"]
        assert scene.mind.hung_up == ["hang"]
        await scene.passes(LIMIT_S / 2)
        lawful(await scene.events())
        assert await scene.ends() == [("Guide", "timeout")] * 2


@on_clock
async def test_another_session_goes_on() -> None:
    async with opened() as scene:
        other = Scene(scene.log, await scene.log.create("limit"))
        await other.open()
        await scene.send("hang")
        await scene.until("block.delta")
        await scene.passes(LIMIT_S / 2)
        await other.send("hang")
        await other.until("block.delta")
        await scene.passes(LIMIT_S / 2)
        assert (await scene.ends(), await other.ends()) == ([("Guide", "timeout")], [])
        await other.runner.close()


def test_a_driver_that_is_closed_has_no_clock_left(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        async with opened() as scene:
            await scene.send("hang")
            await scene.until("block.delta")
            await scene.runner.wait_for_head()
        await ring(LIMIT_S)
        assert not scene.runner._tasks

    run_on_clock(play)
    assert caplog.text == ""


# by hand

CALL = ToolCall(call_id="c", tool="confirm", args={}, executor="frontend")
USAGE = AgentUsage(model="m", usage=Usage(input_tokens=1, output_tokens=1))
AWAIT = ToolAwait(calls=(AwaitedCall(call_id="c", tool="confirm", args={}),))


def tree(*entries: tuple[Payload, Scope]) -> Tree:
    made = Tree()
    for envelope, payload in hand_written(*entries):
        made.apply(envelope, payload)
    return made


def test_turns_that_run_are_those_in_which_somebody_does_not_wait() -> None:
    one, two = scope("agt_1"), scope("agt_2", trace_id="tr_2")
    start = AgentStart(name="A", via="prompt")
    waits = [(start, one), (CALL, one), (USAGE, one), (AWAIT, one)]
    assert running_turns(tree()) == set()
    assert running_turns(tree(*waits)) == set()
    assert running_turns(tree(*waits, (start, two))) == {"tr_2"}
    handed = [(AgentHandoff(to="B", to_agent_id="agt_3"), two), (AgentEnd(stop_reason="handoff"), two)]
    assert running_turns(tree((start, two), *handed)) == {"tr_2"}


def test_the_events_that_end_a_turn_are_about_that_turn() -> None:
    one, two = scope("agt_1"), scope("agt_2", trace_id="tr_2")
    start = AgentStart(name="A", via="prompt")
    closings = timeout_events(tree((start, one), (start, two)), "tr_2", 1.5)
    problem, end = [item.payload for item in closings]
    assert isinstance(problem, SessionError)
    assert problem.message == "The turn took longer than 1.5 s and was ended."
    assert end == AgentEnd(stop_reason="timeout", reason="timeout")
    assert {item.scope for item in closings} == {two}
    assert timeout_events(tree((start, one)), "tr_2", 1.5) == []
