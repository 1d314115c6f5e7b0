"""Tools that a client brings with its message, from the message to the model and back."""

from collections.abc import AsyncIterator
from typing import Any

from tests.unit.app.desk import ADA, desk, play
from turnlog import Agent, App, tool
from turnlog.agents.models import Request
from turnlog.events import Payload, Usage
from turnlog.events.ui import ClientTool
from turnlog.parse.reply import ReplyBuilder

SCHEMA = {"type": "object", "properties": {"color": {"type": "string"}}}


@tool
def paint(color: str, prompt: str = "") -> str:
    """Paint."""
    return f"painted {color}"


class Caller:
    """A model that calls the tool that it is told, and stores which tools it was offered."""

    name = "caller"

    def __init__(self) -> None:
        self.offers: list[list[str]] = []

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        self.offers.append([spec.name for spec in request.tools])
        yield reply.begin(self.name)
        part = request.messages[-1].content[-1]
        if part["type"] == "text" and part["text"] != "stop":
            name, _, prompt = part["text"].partition(" ")
            yield reply.call(name, {"prompt": prompt, "color": "red"})
            yield reply.done("tool_use", Usage(input_tokens=1, output_tokens=1))
        else:
            yield reply.text(str(part.get("content", "done")))
            yield reply.done("end_turn", Usage(input_tokens=1, output_tokens=1))


def client_tool(name: str) -> ClientTool:
    return ClientTool(name=name, description="Of the page.", parameters=SCHEMA)


def make(**more: Any) -> tuple[App, Caller]:
    model = Caller()
    return App("page", Agent("Painter", "", model, tools=(paint,), **more)), model


def test_the_model_calls_a_tool_of_the_page_and_the_page_answers() -> None:
    app, model = make()

    async def run() -> None:
        async with desk(app) as at:
            seat = await at.sessions.create(ADA)
            turn = await at.say(seat, "set_color now", tools=(client_tool("set_color"),))
            start = await at.until(seat, "agent.start", trace_id=turn)
            assert start["tools"] == ["paint", "set_color"]
            asked = await at.until(seat, "tool.await", trace_id=turn)
            [call] = asked["calls"]
            called = await at.until(seat, "tool.call", trace_id=turn)
            assert (call["tool"], called["executor"]) == ("set_color", "frontend")
            answer = {"call_id": call["call_id"], "tool": "set_color", "ok": True, "result": "red"}
            await at.post(seat, "tool.result", answer)
            assert (await at.until(seat, "agent.end", trace_id=turn))["stop_reason"] == "end_turn"
            assert model.offers == [["paint", "set_color"]] * 2

            # the tools are those of that turn
            turn = await at.say(seat, "stop")
            await at.until(seat, "agent.end", trace_id=turn)
            assert model.offers[-1] == ["paint"]

    play(run)


def test_a_page_cannot_replace_a_tool_of_the_application() -> None:
    app, model = make()

    async def run() -> None:
        async with desk(app) as at:
            seat = await at.sessions.create(ADA)
            tools = (client_tool("paint"), client_tool("handoff_to_eve"), client_tool("a"), client_tool("a"))
            turn = await at.say(seat, "paint now", tools=tools)
            result = await at.until(seat, "tool.result", trace_id=turn)
            assert result["result"] == "painted red"
            assert model.offers[0] == ["paint", "a"]

    play(run)


def test_called_agents_do_not_get_the_tools_of_the_page_and_successors_do() -> None:
    helper_model, next_model = Caller(), Caller()
    helper = Agent("Helper", "", helper_model)
    successor = Agent("Next", "", next_model)
    app, _ = make(agents=(helper,), handoffs=(successor,))

    async def run() -> None:
        async with desk(app) as at:
            seat = await at.sessions.create(ADA)
            tools = (client_tool("set_color"),)
            turn = await at.say(seat, "helper stop", tools=tools)
            await at.until(seat, "tool.result", trace_id=turn)
            assert helper_model.offers == [[]]
            turn = await at.say(seat, "handoff_to_next stop", tools=tools)
            start = await at.until(seat, "agent.start", trace_id=turn, name="Next")
            await at.until(seat, "agent.end", trace_id=turn, stop_reason="end_turn")
            assert (start["tools"], next_model.offers) == (["set_color"], [["set_color"]])

    play(run)


def test_a_message_within_a_turn_replaces_the_tools() -> None:
    app, model = make()

    async def run() -> None:
        async with desk(app) as at:
            seat = await at.sessions.create(ADA)
            turn = await at.say(seat, "set_color", tools=(client_tool("set_color"),))
            await at.until(seat, "tool.await", trace_id=turn)
            assert await at.say(seat, "stop", tools=(client_tool("other"),)) == turn
            await at.until(seat, "agent.end", trace_id=turn)
            assert model.offers[-1] == ["paint", "other"]

    play(run)
