"""An agent that shows a booking form of A2UI, updates it after the answer, and repairs a wrong message."""

from collections.abc import Iterator
from typing import Any

from turnlog import Agent, App, View, tool
from turnlog.agents import Scripted, ScriptPart, ToolContext, ToolUse
from turnlog.events.a2ui import BASIC_CATALOG
from turnlog.state.history import Message

CONTEXT = {"guest": {"path": "/guest"}, "day": {"path": "/day"}, "table": {"path": "/table"}, "price": 12}
HAS_NAME = {
    "condition": {"call": "required", "args": {"value": {"path": "/guest"}}},
    "message": "A name, please",
}
COMPONENTS: list[dict[str, Any]] = [
    {"id": "root", "component": "Card", "child": "body"},
    {
        "id": "body",
        "component": "Column",
        "children": ["title", "note", "guest", "day", "table", "terms", "size", "row", "status", "menu"],
    },
    {"id": "title", "component": "Text", "text": "Book a table", "variant": "h2"},
    {
        "id": "note",
        "component": "Text",
        "text": "A table is **yours**. <img src=x onerror=alert(1)>",
    },
    {
        "id": "guest",
        "component": "TextField",
        "label": "Name",
        "value": {"path": "/guest"},
        "checks": [HAS_NAME],
    },
    {
        "id": "day",
        "component": "DateTimeInput",
        "label": "Day",
        "value": {"path": "/day"},
        "enableDate": True,
    },
    {
        "id": "table",
        "component": "ChoicePicker",
        "label": "Table",
        "variant": "mutuallyExclusive",
        "options": [{"label": "Inside", "value": "inside"}, {"label": "Garden", "value": "garden"}],
        "value": {"path": "/table"},
    },
    {"id": "terms", "component": "CheckBox", "label": "Tell me about offers", "value": {"path": "/offers"}},
    {
        "id": "size",
        "component": "Slider",
        "label": "People",
        "min": 1,
        "max": 8,
        "value": {"path": "/people"},
    },
    {"id": "row", "component": "Row", "children": ["book", "help"]},
    {
        "id": "book",
        "component": "Button",
        "child": "book_label",
        "variant": "primary",
        "checks": [HAS_NAME],
        "action": {"event": {"name": "book_table", "context": CONTEXT}},
    },
    {"id": "book_label", "component": "Text", "text": "Book"},
    {
        "id": "help",
        "component": "Button",
        "child": "help_label",
        "action": {"functionCall": {"call": "openUrl", "args": {"url": "https://example.com/help"}}},
    },
    {"id": "help_label", "component": "Text", "text": "Help"},
    {"id": "status", "component": "Text", "text": {"path": "/status"}, "variant": "caption"},
    {"id": "menu", "component": "List", "children": {"componentId": "dish", "path": "/dishes"}},
    {"id": "dish", "component": "Row", "children": ["dish_icon", "dish_name"]},
    {"id": "dish_icon", "component": "Icon", "name": "star"},
    {"id": "dish_name", "component": "Text", "text": {"path": "name"}},
]
DATA = {
    "guest": "",
    "day": "2026-03-01",
    "table": ["inside"],
    "offers": False,
    "people": 2,
    "status": "Not booked yet",
    "dishes": [{"name": "Soup"}, {"name": "Bread"}],
}


def message(name: str, **fields: Any) -> dict[str, Any]:
    return {"version": "v0.9", name: {"surfaceId": "booking", **fields}}


CREATION = [
    message("createSurface", catalogId=BASIC_CATALOG),
    message("updateComponents", components=COMPONENTS),
    message("updateDataModel", path="/", value=DATA),
]
UPDATE = [message("updateDataModel", path="/status", value="Your table is booked.")]
END = [message("deleteSurface")]
WRONG = [
    message("createSurface", catalogId=BASIC_CATALOG),
    message("updateComponents", components=[{"id": "root", "component": "Html", "html": "<b>"}]),
]


@tool
def show_surface(messages: list[dict[str, Any]], context: ToolContext) -> str:
    """Show messages of A2UI."""
    context.show_view(View.a2ui("booking", messages, title="Booking"))
    return "shown"


def script(messages: list[Message]) -> Iterator[ScriptPart]:
    last = messages[-1].content[-1]
    if last["type"] == "tool_result":
        words = str(last["content"])
        # what the server says about a wrong message is enough to repair it
        if "unknown component" in words:
            yield ToolUse("show_surface", {"messages": CREATION})
        else:
            yield "Done: " + ("shown." if "shown" in words else words)
    elif "book_table" in last["text"]:
        yield ToolUse("show_surface", {"messages": UPDATE})
    elif last["text"] == "wrong":
        yield ToolUse("show_surface", {"messages": WRONG})
    elif last["text"] == "update":
        yield ToolUse("show_surface", {"messages": UPDATE})
    elif last["text"] == "end":
        yield ToolUse("show_surface", {"messages": END})
    elif last["text"] == "form":
        yield ToolUse("show_surface", {"messages": CREATION})
    else:
        yield "Hello."


restaurant = App("restaurant", Agent("Host", "Take bookings.", Scripted(script), tools=[show_surface]))


@tool
def show_chart(context: ToolContext) -> str:
    """Show a view of a kind that Turnlog does not know."""
    context.show_view(View(kind="acme.chart", view_id="chart", tree={"points": [1, 2, 3]}))
    return "shown"


def chart_script(messages: list[Message]) -> Iterator[ScriptPart]:
    is_shown = messages[-1].content[-1]["type"] == "tool_result"
    yield "There it is." if is_shown else ToolUse("show_chart", {})


charts = App("charts", Agent("Analyst", "Show charts.", Scripted(chart_script), tools=[show_chart]))
