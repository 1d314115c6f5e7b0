"""An action on a view that was shown again is a conflict: at the post, and when it waited for its turn."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.unit.app.desk import ADA, BOB, EVE, Desk, bodies, desk, play
from turnlog import Agent, App, View, tool
from turnlog.agents import Scripted, ToolContext, ToolUse
from turnlog.app import Membership
from turnlog.errors import Conflict
from turnlog.events.view_nodes import Button, Form, NumberField, Screen, TableEditor, TableRow
from turnlog.state.history import Message

NEXT = Button("next", "Next", repeat=True)
TABLE = TableEditor(
    "t", [NumberField("n", "N")], [TableRow("a", {"n": 1}), TableRow("b", {"n": 2})], can_delete=True
)
SAVE = {"kind": "table.save", "table_id": "t", "rows": [{"row_id": "a", "n": 1}, {"row_id": "b", "n": 3}]}
CLICK = {"kind": "button.click", "button_id": "next"}


class Table:
    """A session with a table; `handled` are the prompts that reached the model, `gate` holds its tool up."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.handled: list[str] = []

    def app(self) -> App:
        @tool
        async def show(context: ToolContext) -> str:
            """Show the table."""
            await self.gate.wait()
            context.show_view(View.of("v", Screen([TABLE, NEXT])))
            return "shown"

        def script(messages: list[Message]) -> Iterator[str | ToolUse]:
            self.handled = [str(one.get("text", "")) for message in messages for one in message.content]
            answered = any(part["type"] == "tool_result" for part in messages[-1].content)
            yield "There it is." if answered else ToolUse("show")

        return App("plain", Agent("Clerk", "", Scripted(script), tools=[show]))


@asynccontextmanager
async def table() -> AsyncIterator[tuple[Table, Desk, Membership]]:
    """A table that is shown."""
    made = Table()
    async with desk(made.app()) as at:
        seat = await at.sessions.create(ADA)
        turn = await at.say(seat, "show it")
        await at.until(seat, "agent.end", trace_id=turn)
        yield made, at, seat


async def shown(at: Desk, seat: Membership) -> str:
    """The id of the event that showed the view last."""
    return (await at.told(seat, "assistant.view"))[-1].id


def on_view(action: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"view_id": "v", "action": action, **more}


def test_a_table_that_two_tabs_save_is_saved_once() -> None:
    async def run() -> None:
        async with table() as (_, at, seat):
            event = await shown(at, seat)
            await at.post(seat, "ui.action", on_view(SAVE, shown=event))
            with pytest.raises(Conflict):
                await at.post(seat, "ui.action", on_view(SAVE, shown=event))
            assert len(await at.told(seat, "ui.action")) == 1

    play(run)


def test_an_action_without_shown_is_stored_with_the_event_of_its_view() -> None:
    async def run() -> None:
        async with table() as (made, at, seat):
            event = await shown(at, seat)
            made.gate.clear()
            seq = await at.post(seat, "ui.action", on_view(CLICK), "evt_click")
            assert [body["shown"] for body in bodies(await at.told(seat, "ui.action"))] == [event]
            made.gate.set()
            await at.until(seat, "agent.end", stop_reason="end_turn", trace_id=await turn_of(at, seat, -1))
            assert await at.post(seat, "ui.action", on_view(CLICK), "evt_click") == seq, "the same event"

    play(run)


async def turn_of(at: Desk, seat: Membership, place: int) -> str:
    return (await at.told(seat, "ui.action"))[place].trace_id or ""


def test_an_action_that_waited_while_its_view_was_shown_again_is_not_carried_out() -> None:
    async def run() -> None:
        async with table() as (made, at, seat):
            event = await shown(at, seat)
            made.gate.clear()
            await at.post(seat, "ui.action", on_view(SAVE, shown=event))
            await at.until(seat, "tool.call", trace_id=await turn_of(at, seat, 0))
            await at.post(seat, "ui.action", on_view(CLICK, shown=event))
            late = await turn_of(at, seat, 1)
            made.gate.set()
            error = await at.until(seat, "session.error", trace_id=late)
            assert error["code"] == "action_conflict"
            assert (await at.until(seat, "agent.end", trace_id=late))["stop_reason"] == "error"
            assert [one.trace_id for one in await at.told(seat, "tool.call")].count(late) == 0

            again = await at.say(seat, "go on")
            await at.until(seat, "agent.end", trace_id=again)
            assert [text for text in made.handled if "table.save" in text] != []
            assert [text for text in made.handled if "button.click" in text] == []

    play(run)


def test_an_action_on_the_view_that_is_open_is_carried_out() -> None:
    async def run() -> None:
        async with table() as (made, at, seat):
            event = await shown(at, seat)
            await at.post(seat, "ui.action", on_view(CLICK, shown=event))
            turn = await turn_of(at, seat, 0)
            assert (await at.until(seat, "agent.end", trace_id=turn))["stop_reason"] == "end_turn"
            assert any("button.click" in text for text in made.handled)

    play(run)


def test_two_channels_that_show_one_view_id_answer_each_their_own_form() -> None:
    @tool
    def ask(context: ToolContext) -> str:
        """Show a form."""
        context.show_view(View.of("v", Form("f", [NumberField("n", "N")])))
        return "shown"

    def script(messages: list[Message]) -> Iterator[str | ToolUse]:
        last = messages[-1].content[-1]
        yield ToolUse("ask") if last.get("text") == "go" else f"Read: {last.get('text', '')}"

    async def run() -> None:
        agents = {name: Agent(name, "", Scripted(script), tools=[ask]) for name in ("buyer", "seller")}
        async with desk(App("shop", agents)) as at:
            ada = await at.sessions.create(ADA)
            seats = [await at.member(ada, BOB, "buyer"), await at.member(ada, EVE, "seller")]
            for seat in seats:
                turn = await at.say(seat, "go")
                await at.until(ada, "agent.end", trace_id=turn)
            for number, seat in enumerate(seats):
                submit = {"kind": "form.submit", "form_id": "f", "values": {"n": number}}
                await at.post(seat, "ui.action", {"view_id": "v", "action": submit})
            told = await at.told(ada, "ui.action")
            values = [body["action"]["values"]["n"] for body in bodies(told)]
            assert [(event.channel, value) for event, value in zip(told, values, strict=True)] == [
                ("buyer", 0),
                ("seller", 1),
            ]
            shown = [body["shown"] for body in bodies(told)]
            assert shown == [event.id for event in await at.told(ada, "assistant.view")]

    play(run)
