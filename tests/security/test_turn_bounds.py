"""Row 27: a model that goes in circles, or calls agents without end, meets a limit; so does a tool."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.security.desk import Desk, desk, run
from turnlog import Agent, App
from turnlog.agents import Scripted, ToolUse, loop
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
            assert count(events, "agent.handoff") == loop.MAX_HANDOFFS
            [problem] = [event["payload"] for event in events if event["type"] == "session.error"]
            assert problem["code"] == "handoff_limit"
            ends = [event["payload"] for event in events if event["type"] == "agent.end"]
            assert [end["stop_reason"] for end in ends] == ["handoff"] * loop.MAX_HANDOFFS + ["error"]

    run(scenario())


def test_control_without_that_limit_the_ring_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        more = 2 * loop.MAX_HANDOFFS
        monkeypatch.setattr(loop, "MAX_HANDOFFS", 10**9)
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
