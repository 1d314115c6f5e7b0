"""Tools that a client brings with its message: what the log accepts of them."""

from typing import Any

import pytest

from turnlog.errors import InvalidEvent
from turnlog.events import CATALOG, UiMessage
from turnlog.events.json_schema import find_schema_error
from turnlog.events.ui import MAX_CLIENT_TOOLS, MAX_TOOL_SCHEMA_BYTES

COLOR = {
    "name": "set_color",
    "description": "Set the colour of the page.",
    "parameters": {
        "type": "object",
        "properties": {
            "color": {"type": "string", "enum": ["red", "green"]},
            "deep": {"$ref": "#/$defs/deep"},
        },
        "required": ["color"],
        "additionalProperties": False,
        "$defs": {"deep": {"anyOf": [{"type": ["integer", "null"]}, True]}},
        "x-ours": {"type": 7},
    },
}


def build(tools: list[Any]) -> UiMessage:
    event = CATALOG.build_event("ui.message", {"text": "Hi", "tools": tools}, id="evt_1", origin="ui")
    assert isinstance(event.payload, UiMessage)
    return event.payload


def test_a_message_carries_the_tools_of_its_page() -> None:
    [tool] = build([COLOR]).tools
    assert (tool.name, tool.parameters) == ("set_color", COLOR["parameters"])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"name": "set color"}, "tools\\[0\\].name"),
        ({"name": "x" * 65}, "tools\\[0\\].name"),
        ({"description": "x" * 4097}, "tools\\[0\\].description"),
        ({"parameters": {}}, "expected the schema of an object"),
        ({"parameters": {"type": "string"}}, "expected the schema of an object"),
        ({"parameters": {"type": "object", "properties": {"a": {"type": "text"}}}}, "properties"),
        ({"parameters": {"type": "object", "required": "a"}}, "required"),
        ({"parameters": {"type": "object", "title": "x" * MAX_TOOL_SCHEMA_BYTES}}, "at most"),
    ],
)
def test_a_tool_that_is_none_is_refused_with_its_place(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidEvent, match=problem):
        build([COLOR | change])


def test_the_number_of_tools_is_limited() -> None:
    tools = [COLOR | {"name": f"tool_{number}"} for number in range(MAX_CLIENT_TOOLS + 1)]
    assert len(build(tools[1:]).tools) == MAX_CLIENT_TOOLS
    with pytest.raises(InvalidEvent, match="tools"):
        build(tools)


def test_a_schema_that_is_no_object_is_an_error_with_a_path() -> None:
    assert find_schema_error([]) == ("expected object, got array", "$")
    problem = find_schema_error({"type": "object", "properties": {"a": {"items": {"minLength": "x"}}}})
    assert problem == ("expected int, got str", "$.properties[...].items.minLength")
