"""Views with one `view_id` in several channels, on the vectors shared with JavaScript."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.written_logs import entry
from turnlog.events import AssistantView, Payload, Scope, UiAction, View
from turnlog.events.ui import ButtonClick
from turnlog.state.view_actions import OpenViews, validate_action

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "views" / "channels.json").read_text()
)
CLICK = ButtonClick(button_id="go")


def payload_of(event: dict[str, Any]) -> Payload:
    if "click" in event:
        return UiAction(view_id=event["click"], shown=event.get("shown"), action=CLICK)
    view_id = event.get("show") or event["hide"]
    tree = VECTORS["view"] if "show" in event else {}
    return AssistantView(view=View(kind="a2ui.v1", view_id=view_id, tree=tree))


def views_after(events: list[dict[str, Any]]) -> OpenViews:
    views = OpenViews()
    for seq, event in enumerate(events):
        envelope, payload = entry(payload_of(event), seq=seq, at=Scope(channel=event.get("channel")))
        views.apply(envelope, payload)
    return views


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
def test_views_in_several_channels_follow_the_vector(case: dict[str, Any]) -> None:
    views = views_after(case["events"])
    problems = validate_action(views, UiAction(**case["action"], action=CLICK), channel=case["channel"])
    assert [problem.message for problem in problems] == case["problems"]
    assert [view.event_id for view in views.open.values()] == case["open"]
    assert [view.event_id for view in views.open.values() if view.used_part_ids] == case["used"]


def test_views_take_with_a_view_the_sender_cannot_see_acts_on_the_visible_one() -> None:
    views = views_after([{"show": "v", "channel": "buyer"}, {"show": "v", "channel": "seller"}])
    views.record_action(UiAction(view_id="v", action=CLICK), lambda channel: channel == "buyer")
    assert [view.channel for view in views.open.values() if view.used_part_ids] == ["buyer"]
