"""Messages of A2UI as a view: the vectors, the official examples, and what may be stored."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.tables import for_each_row
from turnlog.errors import InvalidEvent
from turnlog.events import CATALOG, AssistantView, View
from turnlog.events.a2ui import BASIC_CATALOG, find_a2ui_error

VECTORS = Path(__file__).parents[2] / "vectors" / "a2ui"
MESSAGES: list[dict[str, Any]] = json.loads((VECTORS / "messages.json").read_text())["cases"]
EXAMPLES: list[dict[str, Any]] = json.loads((VECTORS / "examples.json").read_text())["cases"]

CREATION = {"version": "v0.9", "createSurface": {"surfaceId": "s", "catalogId": BASIC_CATALOG}}


@for_each_row("case", MESSAGES, ids=lambda case: case["name"])
def test_messages_are_valid_or_have_an_error_with_its_path(case: dict[str, Any]) -> None:
    error = find_a2ui_error(case["view_id"], case["tree"])
    expected = case["error"]
    assert error == (None if expected is None else (expected["message"], expected["path"]))


def surface_id(messages: list[dict[str, Any]]) -> str:
    found: str = messages[0]["createSurface"]["surfaceId"]
    return found


@for_each_row("case", EXAMPLES, ids=lambda case: case["name"])
def test_official_example_is_valid(case: dict[str, Any]) -> None:
    assert find_a2ui_error(surface_id(case["messages"]), {"messages": case["messages"]}) is None


def test_view_of_messages_is_stored_as_it_came() -> None:
    view = View.a2ui("s", [CREATION], title="A surface")
    event = CATALOG.build_event("assistant.view", {"view": view}, id="evt_1", origin="tool")
    assert event.payload == AssistantView(view=view)
    assert view == View(kind="a2ui.v0.9", view_id="s", tree={"messages": [CREATION]}, title="A surface")


@for_each_row(
    ("kind", "tree", "error"),
    [
        (
            "a2ui.v1.0",
            {"messages": [CREATION]},
            "assistant.view: expected one of a2ui.v1, a2ui.v0.9, got 'a2ui.v1.0' (at $.payload.view.kind)",
        ),
        (
            "a2ui.v0.9",
            {"messages": [{**CREATION, "version": "v0.8"}]},
            "assistant.view: expected version v0.9 of A2UI, got 'v0.8'"
            " (at $.payload.view.tree.messages[0].version)",
        ),
        ("", {}, "assistant.view: expected str of length >= 1 (at $.payload.view.kind)"),
    ],
)
def test_unknown_version_is_refused_with_its_path(kind: str, tree: Any, error: str) -> None:
    with pytest.raises(InvalidEvent) as refused:
        CATALOG.build_event(
            "assistant.view",
            {"view": {"kind": kind, "view_id": "s", "tree": tree}},
            id="evt_1",
            origin="app",
        )
    assert str(refused.value) == error


def test_view_of_another_kind_is_stored_whatever_it_holds() -> None:
    # a tree that looks like nodes is not one: its button is no button
    button = {"type": "button", "id": "b", "label": "B", "emits": [{"type": "anything"}]}
    view = {"kind": "acme.chart", "view_id": "c", "tree": button}
    event = CATALOG.build_event("assistant.view", {"view": view}, id="evt_1", origin="model")
    assert json.loads(event.body) == {"view": view}
