"""A surface of A2UI for a client of AG-UI: the activity, and the action that comes back with a run."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.e2e.a2ui_apps import script, show_surface
from tests.support.tables import for_each_row
from tests.unit.server.protocol_client import ProtocolClient, messages_of, protocol_client, user
from turnlog import Agent, App
from turnlog.agents import Scripted
from turnlog.errors import BadInput
from turnlog.server.protocols.ag_ui.run_input import RunAgentBody, read_run_input

ACTION = {
    "name": "book_table",
    "surfaceId": "booking",
    "sourceComponentId": "book",
    "timestamp": "2026-01-08T12:00:00Z",
    "context": {"guest": "Ada", "day": "2026-03-01", "table": ["inside"], "price": 12},
}


@pytest.fixture
def client() -> Iterator[ProtocolClient]:
    with protocol_client(App("desk", Agent("Host", "", Scripted(script), tools=[show_surface]))) as client:
        yield client


def run_action(client: ProtocolClient, run_id: str, **action: Any) -> Any:
    props = {"a2uiAction": {"userAction": {**ACTION, **action}}}
    return client.run(runId=run_id, messages=[user("form")], forwardedProps=props)


def test_action_of_a_client_opens_a_turn_and_its_update_patches_the_activity(client: ProtocolClient) -> None:
    first = messages_of(client.run(runId="r1", messages=[user("form")]))
    [created] = [one for one in first if one["type"] == "ACTIVITY_SNAPSHOT"]
    assert created["activityType"] == "a2ui-surface"
    assert [*created["content"]["a2ui_operations"][0]] == ["version", "createSurface"]

    answer = run_action(client, "r2")
    [patch] = [one for one in messages_of(answer) if one["type"] == "ACTIVITY_DELTA"]
    assert patch["messageId"] == created["messageId"]
    assert patch["patch"][0]["value"]["updateDataModel"]["value"] == "Your table is booked."

    # the same run again attaches: no second action, and the activity has the whole surface
    again = messages_of(run_action(client, "r2"))
    activity = [one for one in again[1]["messages"] if one["role"] == "activity"]
    assert activity[0]["content"]["a2ui_operations"][-1]["updateDataModel"]["value"]["status"] == (
        "Your table is booked."
    )
    lines = client.get(f"/api/log?session={answer.headers['turnlog-session']}").text.splitlines()
    [event] = [one for one in map(json.loads, lines) if one.get("type") == "ui.action"]
    assert event["payload"]["action"]["context"] == ACTION["context"]
    assert event["actor"] == "ada"


def test_action_that_does_not_fit_the_surface_is_refused(client: ProtocolClient) -> None:
    assert run_action(client, "r1").status_code == 409
    messages_of(client.run(runId="r2", messages=[user("form")]))
    answer = run_action(client, "r3", context={**ACTION["context"], "price": 1})  # type: ignore[dict-item]
    assert answer.status_code == 400
    assert "'price' must be 12" in answer.text


@for_each_row(
    ("props", "has_action"),
    [
        (None, False),
        (7, False),
        ({}, False),
        ({"a2uiAction": None}, False),
        ({"a2uiAction": {}}, False),
        ({"a2uiAction": {"userAction": ACTION}}, True),
    ],
)
def test_action_is_read_from_the_forwarded_props_and_wins_over_a_message(
    props: Any, has_action: bool
) -> None:
    body = RunAgentBody("t", "r", messages=[user("hello")], forwarded_props=props)
    run_input = read_run_input(body, {}, frozenset())
    assert (run_input.action is not None) == has_action
    assert (run_input.prompt is None) == has_action


def test_action_that_is_none_is_refused_with_its_path() -> None:
    body = msgspec.convert(
        {"threadId": "t", "runId": "r", "forwardedProps": {"a2uiAction": {"userAction": {"name": 7}}}},
        RunAgentBody,
    )
    with pytest.raises(BadInput) as refused:
        read_run_input(body, {}, frozenset())
    assert refused.value.path == "$.forwardedProps.a2uiAction.userAction.name"
