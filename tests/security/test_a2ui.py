"""Row 18: messages of A2UI come from models; what harms a page is refused before it is stored."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.tables import for_each_row
from turnlog.errors import InvalidEvent
from turnlog.events import CATALOG, View, assistant
from turnlog.events.a2ui import BASIC_CATALOG
from turnlog.state import a2ui_surfaces
from turnlog.state.view_actions import OpenViews


def message(name: str, **fields: Any) -> dict[str, Any]:
    return {"version": "v0.9", name: {"surfaceId": "s", **fields}}


CREATION = message("createSurface", catalogId=BASIC_CATALOG)


def components(*items: Mapping[str, Any]) -> dict[str, Any]:
    return message("updateComponents", components=list(items))


def button(url: str) -> dict[str, Any]:
    call = {"call": "openUrl", "args": {"url": url}}
    return {"id": "root", "component": "Button", "child": "t", "action": {"functionCall": call}}


def column(component_id: str, *children: str) -> dict[str, Any]:
    return {"id": component_id, "component": "Column", "children": list(children)}


TEXT = {"id": "t", "component": "Text", "text": ""}
HOSTILE = [
    components({"id": "root", "component": "Html", "html": "<script>alert(1)</script>"}),
    components({**TEXT, "onclick": "alert(1)"}),
    components(button("javascript:alert(1)")),
    components(button("  JAVASCRIPT:alert(1)")),
    components({"id": "root", "component": "Image", "url": "javascript:alert(1)"}),
    components({"id": "root", "component": "Video", "url": "data:text/html,<script>alert(1)</script>"}),
    components({**TEXT, "id": "__proto__"}),
    components({**TEXT, "text": {"path": "/__proto__/polluted"}}),
    message("updateDataModel", path="/__proto__/admin", value=True),
    message("updateDataModel", path="/a/constructor/prototype/admin", value=True),
    message("updateDataModel", value={"a": [{"__proto__": {"admin": True}}]}),
    message("updateDataModel", path="/a" * 5000, value=1),
    {**message("updateDataModel", value=1), "version": "v1.0"},
]


def store(hostile: dict[str, Any]) -> None:
    view = View.a2ui("s", [CREATION, hostile])
    CATALOG.build_event("assistant.view", {"view": view}, id="evt_1", origin="model")


@for_each_row("hostile", HOSTILE)
def test_hostile_message_of_a2ui_is_refused_before_it_is_stored(hostile: dict[str, Any]) -> None:
    with pytest.raises(InvalidEvent) as refused:
        store(hostile)
    assert refused.value.path.startswith("$.payload.view.tree.messages[1]")


def test_control_without_the_check_of_its_kind_every_one_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assistant, "VIEW_CHECKS", {"a2ui.v0.9": lambda view: None})
    for hostile in HOSTILE:
        store(hostile)


LIST = {"id": "root", "component": "List", "children": {"componentId": "t", "path": "/items"}}
BOMBS: dict[str, list[dict[str, Any]]] = {
    "a circle": [components(column("root", "a"), column("a", "root"))],
    "a doubling": [components(column("root", "l0"), *(column(f"l{n}", *2 * [f"l{n + 1}"]) for n in range(18)), {**TEXT, "id": "l18"})],  # noqa: E501
    "a depth": [components(column("root", "l0"), *(column(f"l{n}", f"l{n + 1}") for n in range(1000)))],
    "many components": [components(*({**TEXT, "id": f"t{n}"} for n in range(2001)))],
    "many copies": [components(LIST, TEXT), message("updateDataModel", path="/items", value=[0] * 5000)],
    "much data": [message("updateDataModel", value="x" * 300_000)],
    "a gap": [message("updateDataModel", value=[]), message("updateDataModel", path="/999999999", value=1)],
    "an address in the data": [
        components({"id": "root", "component": "Image", "url": {"path": "/src"}}),
        message("updateDataModel", path="/src", value="javascript:alert(1)"),
    ],
}  # fmt: skip


@for_each_row("name", list(BOMBS))
def test_surface_that_no_page_can_draw_is_refused_and_opens_nothing(name: str) -> None:
    view = View.a2ui("s", [CREATION, *BOMBS[name]])
    views = OpenViews()
    assert views.find_update_error(view, None) is not None
    views.show(view, "evt_1", None)
    assert views.open == {}


def test_control_without_the_limits_they_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(a2ui_surfaces, "check_limits", lambda surface: None)
    opened = []
    for name, messages in BOMBS.items():
        views = OpenViews()
        views.show(View.a2ui("s", [CREATION, *messages]), "evt_1", None)
        opened += [name] if views.open else []
    assert opened == [name for name in BOMBS if name != "a gap"]  # the fold itself makes no gap
