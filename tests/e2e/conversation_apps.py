"""An application for tests of the conversation: an agent that says back what it is told, or calls a tool.

table      a table with a column of dates
delete     a tool that changes data, which a person must approve
read       a tool that only reads, which a person must approve
picture    a tool that makes a picture
"""

from collections.abc import Iterator

from turnlog import Agent, App, tool
from turnlog.agents import Scripted, ToolContext, ToolUse
from turnlog.agents.models.scripted import ScriptPart
from turnlog.agents.tools import ImageContent
from turnlog.events import View
from turnlog.events.view_nodes import DatetimeField, NumberField, TableEditor, TableRow
from turnlog.state.history import Message
from turnlog_examples.assistant.chart import bars

TRIES = ("Tell me something",)
COLUMNS: list[DatetimeField | NumberField] = [
    DatetimeField("measured_at", "Measured", required=True),
    NumberField("weight_lbs", "Weight (lbs)", required=True),
]


@tool
def table(context: ToolContext) -> str:
    """Show a table."""
    rows = [TableRow("row_1", {"measured_at": "2026-11-16T12:00:00-05:00", "weight_lbs": 187.6})]
    context.show_view(View.of("weights", TableEditor("weights", COLUMNS, rows=rows, can_delete=True)))
    return "shown"


@tool(kind="write", approval=True, risk="db_write")
def delete(entry_ids: list[str]) -> str:
    """Delete entries."""
    return f"{len(entry_ids)} deleted"


@tool(approval=True)
def look(where: str) -> str:
    """Look at something."""
    return where


@tool
def picture() -> ImageContent:
    """Draw a chart."""
    return ImageContent(bars([2, 3, 9], 6), "image/png")


CALLS = {
    "table": ToolUse("table", {}),
    "delete": ToolUse("delete", {"entry_ids": ["row_1", "row_2"]}),
    "read": ToolUse("look", {"where": "in the attic"}),
    "picture": ToolUse("picture", {}),
}


def answer(messages: list[Message]) -> Iterator[ScriptPart]:
    last = messages[-1].content[-1]
    if last["type"] == "tool_result":
        yield "Done."
    elif last["text"] in CALLS:
        yield CALLS[last["text"]]
    else:
        yield str(last["text"])


app = App(
    "desk",
    Agent("Lead", "Answer.", Scripted(answer), tools=(table, delete, look, picture)),
    suggestions=TRIES,
    guide="A desk.",
)
