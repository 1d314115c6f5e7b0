"""Surfaces of A2UI in the dialects of other clients: whole, because these replace what they have."""

import json
from typing import Any

from tests.support.written_logs import log, scope
from turnlog import events as ev
from turnlog.events import AssistantView, View
from turnlog.events.a2ui import BASIC_CATALOG
from turnlog.wire.dialects.ag_ui.dialect import AgUi
from turnlog.wire.dialects.ai_sdk.dialect import AiSdk

AGENT = scope("agt_1")
START = (ev.AgentStart(name="Host", via="prompt"), AGENT)


def message(name: str, **fields: Any) -> dict[str, Any]:
    return {"version": "v0.9", name: {"surfaceId": "s", **fields}}


ROOT = {"id": "root", "component": "Text", "text": {"path": "/words"}}
CREATION = message("createSurface", catalogId=BASIC_CATALOG)
COMPONENTS = message("updateComponents", components=[ROOT])
FIRST = message("updateDataModel", path="/words", value="one")
SECOND = message("updateDataModel", path="/words", value="two")
END = message("deleteSurface")


def shown(*messages: dict[str, Any]) -> tuple[AssistantView, Any]:
    return AssistantView(view=View.a2ui("s", messages)), AGENT


def data(words: str) -> dict[str, Any]:
    return message("updateDataModel", path="/", value={"words": words})


def convert(dialect: Any, *entries: Any) -> list[Any]:
    messages: list[bytes] = []
    for item in log(START, *entries):
        messages += dialect.convert(*item)
    return [json.loads(one) for one in messages]


def activities(*entries: Any) -> list[Any]:
    found = [one for one in convert(AgUi(), *entries) if one["type"].startswith("ACTIVITY")]
    assert all(one.pop("timestamp") for one in found)
    return found


def snapshot(*operations: Any) -> dict[str, Any]:
    return {
        "type": "ACTIVITY_SNAPSHOT",
        "messageId": "a2ui-surface-s",
        "activityType": "a2ui-surface",
        "content": {"a2ui_operations": list(operations)},
    }


def test_ag_ui_gets_the_activity_of_its_middleware_with_the_whole_surface() -> None:
    assert activities(shown(CREATION, COMPONENTS, FIRST), shown(SECOND), shown(END)) == [
        snapshot(CREATION, COMPONENTS, data("one")),
        snapshot(CREATION, COMPONENTS, data("two")),
        snapshot(END),
    ]


def test_ag_ui_gets_a_patch_for_a_surface_that_an_earlier_response_created() -> None:
    assert activities(shown(FIRST, SECOND)) == [
        {
            "type": "ACTIVITY_DELTA",
            "messageId": "a2ui-surface-s",
            "activityType": "a2ui-surface",
            "patch": [
                {"op": "add", "path": "/a2ui_operations/-", "value": FIRST},
                {"op": "add", "path": "/a2ui_operations/-", "value": SECOND},
            ],
        }
    ]


def test_ag_ui_gets_no_operations_for_a_view_that_an_empty_tree_closes() -> None:
    closed = AssistantView(view=View(kind="a2ui.v0.9", view_id="s", tree={})), AGENT
    assert activities(shown(CREATION), closed)[1] == snapshot()


def test_ag_ui_gets_a_view_of_another_kind_as_it_is() -> None:
    view = View(kind="acme.chart", view_id="c", tree={"points": [1]})
    [activity] = activities((AssistantView(view=view), AGENT))
    assert activity["activityType"] == "view"
    assert activity["content"] == {"kind": "acme.chart", "view_id": "c", "tree": {"points": [1]}}


def trees(*entries: Any) -> list[Any]:
    parts = [one for one in convert(AiSdk(), *entries) if one["type"] == "data-view"]
    assert {part["id"] for part in parts} == {"s"}
    return [part["data"]["tree"] for part in parts]


def test_ai_sdk_gets_the_whole_surface_in_its_part() -> None:
    assert trees(shown(CREATION, COMPONENTS, FIRST), shown(SECOND), shown(END)) == [
        {"messages": [CREATION, COMPONENTS, data("one")]},
        {"messages": [CREATION, COMPONENTS, data("two")]},
        {"messages": [END]},
    ]


def test_ai_sdk_gets_the_messages_alone_if_another_message_created_the_surface() -> None:
    assert trees(shown(SECOND)) == [{"messages": [SECOND]}]
