"""Actions on surfaces of A2UI: the vectors, and when a surface is a question."""

import json
from pathlib import Path
from typing import Any

import msgspec

from tests.support.tables import for_each_row
from tests.support.written_logs import entry
from turnlog.errors import InvalidEvent
from turnlog.events import AssistantView, Payload, UiAction, View
from turnlog.events.a2ui import BASIC_CATALOG
from turnlog.events.ui import A2uiAction
from turnlog.state.channels import may_see_all
from turnlog.state.view_actions import MAX_OPEN_PARTS, OpenViews, validate_action

VECTORS = Path(__file__).parents[2] / "vectors" / "a2ui" / "actions.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["cases"]
SURFACE = CASES[0]["views"][0]["tree"]["messages"]
CLICK = msgspec.convert(CASES[0]["action"], UiAction)


def message(name: str, **fields: Any) -> dict[str, Any]:
    return {"version": "v0.9", name: {"surfaceId": "s", **fields}}


def shown(*messages: dict[str, Any]) -> AssistantView:
    return AssistantView(view=View.a2ui("s", messages))


def fold(*payloads: Payload) -> OpenViews:
    views = OpenViews()
    for seq, payload in enumerate(payloads):
        views.apply(*entry(payload, seq=seq))
    return views


@for_each_row("case", CASES, ids=lambda case: case["name"])
def test_action_is_valid_or_has_problems(case: dict[str, Any]) -> None:
    views = OpenViews()
    for index, view in enumerate(case["views"]):
        views.show(msgspec.convert(view, View), f"evt_{index}", None)
    problems = validate_action(views, msgspec.convert(case["action"], UiAction))
    assert [{"kind": kind, "message": said, "path": list(path)} for kind, said, path in problems] == case[
        "problems"
    ]


def test_surface_with_an_event_is_a_question_until_it_is_answered() -> None:
    assert fold(shown(*SURFACE)).has_question(may_see_all)
    assert fold(shown(*SURFACE), shown(message("updateDataModel", path="/a", value=1))).has_question(
        may_see_all
    )
    assert not fold(shown(*SURFACE), CLICK).has_question(may_see_all)
    assert not fold(shown(*SURFACE[:1])).has_question(may_see_all)
    assert fold(shown(*SURFACE), CLICK, shown(*SURFACE)).has_question(may_see_all)


def test_button_takes_a_second_click_as_the_standard_has_it() -> None:
    views = fold(shown(*SURFACE), CLICK)
    assert validate_action(views, CLICK) == ()


def test_action_of_a2ui_on_a_view_of_nodes_changes_nothing() -> None:
    view = View(kind="a2ui.v1", view_id="s", tree={"type": "button", "id": "go", "label": "Go"})
    views = fold(AssistantView(view=view))
    before = dict(views.open)
    views.record_action(UiAction(view_id="s", action=A2uiAction(name="x", component_id="go", context={})))
    assert views.open == before


def test_update_that_does_not_fit_changes_nothing_in_the_fold() -> None:
    views = fold(shown(*SURFACE))
    before = dict(views.open)
    views.apply(*entry(shown(message("updateDataModel", path="/a/b/c", value=1))))
    views.apply(*entry(shown(message("updateDataModel", path="/a", value=2))))
    after = views.open[None, "s"]
    assert after.surface is not None
    assert after.surface.data == {"a": 2}
    views = fold(shown(*SURFACE))
    views.apply(*entry(shown(message("updateDataModel", path="/x/7", value=1))))
    assert views.open == before


@for_each_row(
    ("view", "error"),
    [
        (View.a2ui("s", [message("updateDataModel", path="/a", value=1)]), None),
        (View(kind="a2ui.v1", view_id="t", tree={}), None),
        (
            View.a2ui("t", [{"version": "v0.9", "updateDataModel": {"surfaceId": "t"}}]),
            "surface 't' is not open: expected createSurface first (at $.payload.view.tree.messages[0])",
        ),
    ],
)
def test_update_is_compared_with_what_is_open(view: View, error: str | None) -> None:
    found = fold(shown(*SURFACE)).find_update_error(view, None)
    assert found is None or isinstance(found, InvalidEvent)
    assert error == (None if found is None else str(found))


def test_data_of_surfaces_counts_against_the_limit_of_open_views() -> None:
    views = OpenViews()
    for number in range(20):
        surface_id = f"s{number}"
        messages = [
            {"version": "v0.9", "createSurface": {"surfaceId": surface_id, "catalogId": BASIC_CATALOG}},
            {"version": "v0.9", "updateDataModel": {"surfaceId": surface_id, "value": "x" * 100_000}},
        ]
        views.show(View.a2ui(surface_id, messages), f"evt_{number}", None)
    assert views.part_count <= MAX_OPEN_PARTS
    assert [view.view_id for view in views.open.values()] == [f"s{number}" for number in range(10, 20)]
