"""Row 27: a model that goes in circles, or calls agents without end, meets a limit; so does a tool."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.security.desk import Desk, desk, run
from tests.support.limits import HANG_S
from turnlog import Agent, App, tool
from turnlog.agents import Scripted, ToolUse
from turnlog.agents.runtime import executor, turn_loop
from turnlog.app import sessions as app_sessions
from turnlog.state.history import Message


def ring(at_most: int = 10**9) -> App:
    """Two agents that hand over to each other, until there were so many hand-offs."""
    handed: list[str] = []

    def pass_on(to: str) -> Any:
        def model(messages: list[Message]) -> Iterator[str | ToolUse]:
            handed.append(to)
            yield (
                "Enough." if len(handed) > at_most else ToolUse(f"handoff_to_{to}", {"prompt": "You do it."})
            )

        return Scripted(model)

    ping = Agent("Ping", "Pass on.", pass_on("pong"))
    pong = Agent("Pong", "Pass on.", pass_on("ping"), handoffs=[ping])
    object.__setattr__(ping, "handoffs", [pong])
    return App("ring", ping)


async def turn(at: Desk) -> list[Any]:
    """The events of one turn of ada's."""
    session = await at.session("ada")
    sent = await at.send("ada", session, "go")
    answer = await at.follow("ada", f"session={session}&turn={sent['turn']}").end()
    return answer.events


def count(events: list[Any], type: str) -> int:
    return [event["type"] for event in events].count(type)


def test_ring_of_hand_offs_ends_with_an_error_at_the_limit() -> None:
    async def scenario() -> None:
        async with desk(ring()) as at:
            events = await turn(at)
            assert count(events, "agent.handoff") == turn_loop.MAX_HANDOFFS
            [problem] = [event["payload"] for event in events if event["type"] == "session.error"]
            assert problem["code"] == "handoff_limit"
            ends = [event["payload"] for event in events if event["type"] == "agent.end"]
            assert [end["stop_reason"] for end in ends] == ["handoff"] * turn_loop.MAX_HANDOFFS + ["error"]

    run(scenario())


def test_control_without_that_limit_the_ring_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        more = 2 * turn_loop.MAX_HANDOFFS
        monkeypatch.setattr(turn_loop, "MAX_HANDOFFS", 10**9)
        async with desk(ring(more)) as at:
            assert count(await turn(at), "agent.handoff") == more

    run(scenario())


CALLED = 12


def crowd(max_agents: int) -> App:
    """An agent that calls many others in one step."""

    def call_all(messages: list[Message]) -> Iterator[str | ToolUse]:
        results = [part for part in messages[-1].content if part["type"] == "tool_result"]
        if results:
            yield f"{sum(part['is_error'] for part in results)} refused"
        else:
            yield from [ToolUse("helper", {"prompt": f"Part {number}"}) for number in range(CALLED)]

    helper = Agent("Helper", "Help.", Scripted(lambda _: ["Done."]))
    return App("crowd", Agent("Caller", "Call.", Scripted(call_all), agents=[helper], max_agents=max_agents))


def test_turn_starts_as_many_agents_as_it_may_and_refuses_the_other_calls() -> None:
    async def scenario() -> None:
        async with desk(crowd(max_agents=5)) as at:
            events = await turn(at)
            assert count(events, "agent.start") == 5
            [end] = [
                event["payload"] for event in events if event["type"] == "agent.end" and event["depth"] == 0
            ]
            assert (end["stop_reason"], end["result"]) == ("end_turn", f"{CALLED - 4} refused")

    run(scenario())


def test_turns_do_not_share_the_limit_of_agents() -> None:
    async def scenario() -> None:
        async with desk(crowd(max_agents=5)) as at:
            session = await at.session("ada")
            for number in (1, 2):
                await at.send("ada", session, "go")
                await at.told("ada", session, "agent.end", 5 * number)
            assert count(await at.log("ada", session), "agent.start") == 10

    run(scenario())


def test_control_with_a_high_limit_every_call_starts_an_agent() -> None:
    async def scenario() -> None:
        async with desk(crowd(max_agents=10**9)) as at:
            assert count(await turn(at), "agent.start") == CALLED + 1

    run(scenario())


# tools


class Stuck:
    """A tool that does not stop, and one that does."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def app(self) -> App:
        @tool(timeout_s=0.001)
        def hang() -> None:
            """Ignore that nobody waits."""
            self.released.wait(HANG_S)

        @tool
        def look() -> str:
            """Look."""
            return "seen"

        def model(messages: list[Message]) -> Iterator[str | ToolUse]:
            last = messages[-1].content[-1]
            yield str(last["content"]) if last["type"] == "tool_result" else ToolUse(str(last["text"]), {})

        return App("stuck", Agent("Clerk", "Obey.", Scripted(model), tools=[hang, look]))


async def look_beside_hung_tools(at: Desk, number: int) -> str:
    """What a tool answers in a session of its own while those of other sessions hang."""
    for _ in range(number):
        session = await at.session("ada")
        await at.send("ada", session, "hang")
        await at.told("ada", session, "agent.end")
    session = await at.session("bob")
    await at.send("bob", session, "look")
    [end] = await at.told("bob", session, "agent.end")
    return str(end["payload"]["result"])


@pytest.fixture
def two_hung_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "STOP_GRACE_S", 0.001)
    monkeypatch.setattr(app_sessions, "HungTools", lambda: executor.HungTools(max_tools=2))


@pytest.mark.usefixtures("two_hung_tools")
@pytest.mark.parametrize(("number", "answer"), [(1, "seen"), (2, "look cannot run now")])
def test_hung_tools_of_all_sessions_together_have_a_limit(number: int, answer: str) -> None:
    stuck = Stuck()

    async def scenario() -> None:
        async with desk(stuck.app()) as at:
            try:
                assert answer in await look_beside_hung_tools(at, number)
            finally:
                stuck.released.set()

    run(scenario())


@pytest.mark.usefixtures("two_hung_tools")
def test_control_without_a_common_limit_each_session_leaves_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = Stuck()

    async def scenario() -> None:
        monkeypatch.setattr(executor.HungTools, "is_full", False)
        async with desk(stuck.app()) as at:
            try:
                assert await look_beside_hung_tools(at, 4) == "seen"
            finally:
                stuck.released.set()

    run(scenario())
