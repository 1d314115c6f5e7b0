"""The state of a surface of A2UI: the vectors, the limits, and messages that build the same surface."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.tables import for_each_row
from turnlog.errors import InvalidEvent
from turnlog.events.a2ui import BASIC_CATALOG
from turnlog.state.a2ui_surfaces import (
    MAX_COMPONENTS,
    MAX_SURFACE_SIZE,
    NO_DATA,
    Surface,
    apply_messages,
    measure,
    snapshot_messages,
)

VECTORS = Path(__file__).parents[2] / "vectors" / "a2ui"
CASES: list[dict[str, Any]] = json.loads((VECTORS / "surfaces.json").read_text())["cases"]
EXAMPLES: list[dict[str, Any]] = json.loads((VECTORS / "examples.json").read_text())["cases"]


def message(name: str, **fields: Any) -> dict[str, Any]:
    return {"version": "v0.9", name: {"surfaceId": "s", **fields}}


CREATION = message("createSurface", catalogId=BASIC_CATALOG)


def text(component_id: str, words: str = "") -> dict[str, Any]:
    return {"id": component_id, "component": "Text", "text": words}


def apply(*messages: dict[str, Any], surface: Surface | None = None) -> Surface | None:
    return apply_messages(surface, "s", {"messages": list(messages)})


@for_each_row("case", CASES, ids=lambda case: case["name"])
def test_messages_fold_into_a_surface(case: dict[str, Any]) -> None:
    surface: Surface | None = None
    refused: list[dict[str, Any]] = []
    for index, tree in enumerate(case["events"]):
        try:
            surface = apply_messages(surface, "s", tree)
        except InvalidEvent as error:
            refused.append({"event": index, "message": error.problem, "path": error.path})
    assert refused == case["refused"]
    if surface is None:
        assert case["surface"] is None
        return
    assert list(surface.components.values()) == case["surface"]["components"]
    assert (surface.data is NO_DATA) == ("data" not in case["surface"])
    assert surface.data is NO_DATA or surface.data == case["surface"]["data"]

    # a reader that comes late gets the same surface
    again = apply(*snapshot_messages(surface))
    assert again is not None
    assert again.components == surface.components
    assert again.data == ({} if surface.data is NO_DATA else surface.data)


@for_each_row("case", EXAMPLES, ids=lambda case: case["name"])
def test_official_example_is_the_same_at_once_and_message_by_message(case: dict[str, Any]) -> None:
    messages = case["messages"]
    surface_id = messages[0]["createSurface"]["surfaceId"]
    whole = apply_messages(None, surface_id, {"messages": messages})
    step: Surface | None = None
    for one in messages:
        step = apply_messages(step, surface_id, {"messages": [one]})
    assert whole == step
    assert whole is None or whole.size == sum(map(measure, (*whole.components.values(), whole.data)))


def test_fold_leaves_the_surface_before_it_unchanged() -> None:
    before = apply(CREATION, message("updateDataModel", value={"a": {"b": [1]}}))
    assert before is not None
    apply(message("updateDataModel", path="/a/b/0", value=2), surface=before)
    assert before.data == {"a": {"b": [1]}}


def test_limit_of_components_holds_for_all_messages_together() -> None:
    half = [text(f"a{number}") for number in range(MAX_COMPONENTS)]
    surface = apply(CREATION, message("updateComponents", components=half))
    with pytest.raises(InvalidEvent, match="at most 2000 components"):
        apply(message("updateComponents", components=[text("more")]), surface=surface)


def test_limit_of_size_holds_for_all_messages_together() -> None:
    words = "x" * (MAX_SURFACE_SIZE // 2)
    surface = apply(CREATION, message("updateDataModel", path="/a", value=words))
    with pytest.raises(InvalidEvent, match="a size of at most 200000"):
        apply(message("updateDataModel", path="/b", value=words), surface=surface)
    assert apply(message("updateDataModel", path="/a", value=words), surface=surface) is not None


@for_each_row(
    ("value", "size"),
    [(None, 1), (12345, 1), ("äx", 3), ([], 1), ([1, "a"], 4), ({"ab": True}, 4), ({"a": {"b": "c"}}, 6)],
)
def test_size_counts_values_and_characters(value: Any, size: int) -> None:
    assert measure(value) == size


def test_surface_says_whether_it_wants_its_data_back() -> None:
    plain = apply(CREATION)
    asking = apply(message("createSurface", catalogId=BASIC_CATALOG, sendDataModel=True))
    assert plain is not None
    assert asking is not None
    assert (plain.sends_data_model, asking.sends_data_model) == (False, True)
