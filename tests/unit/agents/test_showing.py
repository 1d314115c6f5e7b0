"""A tool shows a view: it is in the log before the tool's answer, with the scope of its call."""

import asyncio
from collections.abc import Iterator
from typing import Any

from tests.support.limits import HANG_S
from turnlog import View, open_log
from turnlog.agents import Agent, Scripted, ToolContext, ToolUse, tool
from turnlog.events import AssistantView, Entry, ToolResult
from turnlog.events.view_nodes import DatetimeField, Form, NumberField
from turnlog.state.history import Message


@tool
def ask_weight(pounds: float, context: ToolContext) -> str:
    """Ask the person to confirm a weight."""
    form = Form(
        "weight_entry",
        [
            DatetimeField("measured_at", "Day", required=True, picks="date"),
            NumberField("weight_lbs", "Weight (lbs)", required=True, above=0, value=pounds),
        ],
    )
    context.show_view(View.of("weigh_in", form))
    return "The form is shown."


@tool
async def ask_wrongly(context: ToolContext) -> str:
    """Show what cannot be shown."""
    context.show_view(View(kind="a2ui.v1", view_id="v", tree={"type": "html"}))
    return "never"


def played(use: ToolUse) -> list[Entry]:
    def script(messages: list[Message]) -> Iterator[Any]:
        results = messages[-1].content[0]["type"] == "tool_result"
        return iter(["Please confirm."] if results else [use])

    async def work() -> list[Entry]:
        log = await open_log("memory:")
        agent = Agent("Guide", "", Scripted(script), tools=(ask_weight, ask_wrongly))
        async with asyncio.timeout(HANG_S):
            events = [entry async for entry in agent.run("Weigh-in 187.6 today", log=log)]
        await log.close()
        return events

    return asyncio.run(work())


def test_a_view_stands_before_the_answer_of_its_tool() -> None:
    events = played(ToolUse("ask_weight", {"pounds": 187.6}))
    types = [event.type for event in events]
    assert types.index("tool.call") < types.index("assistant.view") < types.index("tool.result")
    view = events[types.index("assistant.view")]
    call = events[types.index("tool.call")]
    assert (view.origin, view.trace_id, view.agent_id) == ("tool", call.trace_id, call.agent_id)
    assert isinstance(view.payload, AssistantView)
    assert view.payload.view.tree["fields"][1]["value"] == 187.6


def test_a_tool_that_shows_what_cannot_be_shown_has_failed() -> None:
    events = played(ToolUse("ask_wrongly", {}))
    assert "assistant.view" not in [event.type for event in events]
    [result] = [event.payload for event in events if isinstance(event.payload, ToolResult)]
    assert result.error is not None
    assert result.error.code == "VALIDATION_ERROR"
    assert "(at $.payload.view" in result.error.message
    assert result.error.details is not None
    assert result.error.details["path"][0] == "view"
