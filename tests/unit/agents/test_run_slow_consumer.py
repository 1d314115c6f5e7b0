"""`Agent.run()` without a log, followed by a consumer that is far behind."""

from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

from tests.support.coverage_pause import without_coverage
from tests.unit.log.delegates import scenario
from turnlog.agents import Agent, Scripted, ToolUse, tool
from turnlog.state.history import Message

CALLS = 1001  # with their results more durable events than a ring keeps at least


@tool
def look_up(number: int) -> int:
    """Look a number up."""
    return number


def call_often(messages: list[Message]) -> Iterator[Any]:
    if messages[-1].content[0]["type"] == "tool_result":
        return iter(["Done."])
    return iter([ToolUse("look_up", {"number": number}) for number in range(CALLS)])


@without_coverage()
@scenario
async def test_run_with_a_consumer_that_waits_for_the_end_of_the_turn_gives_every_event() -> None:
    agent = Agent("Guide", "", Scripted(call_often), tools=[look_up])
    types: list[str] = []
    async with aclosing(agent.run("Go")) as entries:
        async for entry in entries:
            if not types:
                [pool] = agent.run_pools.values()
                runner = pool.runners.find(entry.session_id)
                while not runner.is_idle:  # the turn is over, and its consumer has seen one event
                    await runner.wait_for_seq(runner.tree.last_seq + 1)
            types.append(entry.type)
    assert types.count("tool.result") == CALLS
    assert types[-1] == "agent.end"
