"""The application's state in an agent's instructions and in its tools."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import msgspec
import pytest

from tests.statements.room import talk
from turnlog import Agent, App, tool
from turnlog.agents import Emit, ModelError, ReplyBuilder, Request, Scripted, ScriptTurn, ToolContext, ToolUse
from turnlog.errors import CallerError
from turnlog.events import Envelope, Payload, Vocabulary


class AddItem(Payload, frozen=True, kw_only=True):
    ORIGINS: ClassVar = frozenset({"model"})
    EXAMPLE: ClassVar = {"item": "tea"}

    item: str


def add_item(state: list[str], payload: AddItem, _: Envelope) -> list[str]:
    return [*state, payload.item]


class Recorder:
    """A scripted model that stores the instructions of its requests."""

    name = "recorder"

    def __init__(self, *steps: list[Any]) -> None:
        self.instructions: list[str] = []
        self._scripted = Scripted(lambda turn: steps[len(self.instructions) - 1])

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        self.instructions.append(request.instructions.partition("\n")[0])
        async for batch in self._scripted.stream(request, reply):
            yield batch


@tool
def count(context: ToolContext) -> int:
    """Count the items."""
    return -1 if context.state is None else len(context.state)


def make_app(agent: Agent) -> App:
    return App(
        "shop",
        agent,
        vocabulary=Vocabulary("shop", [AddItem]),
        reducers={AddItem: add_item},
        initial_state=list,
    )


def bodies(events: list[Envelope], name: str) -> list[Any]:
    return [msgspec.json.decode(event.payload) for event in events if event.type == name]


def test_instructions_of_a_function_follow_the_state_before_each_request() -> None:
    model = Recorder([Emit(AddItem(item="tea")), ToolUse("count", {})], ["Done."])
    agent = Agent("Clerk", lambda state: f"In the basket: {state}", model, tools=(count,))
    events = talk(make_app(agent), "tea")
    assert model.instructions == ["In the basket: []", "In the basket: ['tea']"]
    assert [result["result"] for result in bodies(events, "tool.result")] == [1]


def fail(state: Any) -> str:
    raise KeyError("secret")


@pytest.mark.parametrize(
    ("instructions", "message"),
    [
        (fail, "KeyError in the instructions of Clerk"),
        (lambda state: 3, "CallerError in the instructions of Clerk"),
    ],
    ids=["raises", "returns no text"],
)
def test_instructions_that_fail_end_the_step_and_the_model_is_not_called(
    instructions: Any, message: str
) -> None:
    model = Recorder(["Hello."])
    events = talk(make_app(Agent("Clerk", instructions, model)), "tea")
    [problem] = bodies(events, "session.error")
    assert (problem["code"], problem["message"]) == ("instructions_failed", message)
    assert bodies(events, "agent.end")[0]["stop_reason"] == "error"
    assert model.instructions == []


def test_run_without_an_application_passes_none() -> None:
    def script(turn: ScriptTurn) -> list[str | ToolUse]:
        return [turn.results[0].text] if turn.results else [ToolUse("count", {})]

    agent = Agent("Clerk", lambda state: repr(state), Scripted(script), tools=(count,))
    assert asyncio.run(agent.ask("how many?")) == "-1"
    assert agent.instructions_for(None) == "None"


def test_ask_raises_the_failure_of_instructions() -> None:
    agent = Agent("Clerk", fail, Scripted(lambda _: ["Hello."]))
    with pytest.raises(ModelError, match="KeyError in the instructions of Clerk"):
        asyncio.run(agent.ask("hello"))


def test_instructions_for_names_the_agent_whose_function_returns_no_text() -> None:
    agent: Any = Agent("Clerk", lambda state: state, Scripted(lambda _: []))
    with pytest.raises(CallerError, match="agent Clerk: expected instructions to return text, got 3"):
        agent.instructions_for(3)
