"""What a page asks of a real server with the client library, and that both make the same of the log."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.e2e.broker_desk import APPS as BROKERS
from tests.e2e.harness import ROOT, Server, running
from tests.e2e.weights_desk import APP as WEIGHTS
from tests.e2e.weights_desk import executing
from tests.support.limits import HANG_S


def told(node: str, story: str, server: Server) -> Any:
    """What came of a story."""
    command = [node, "web/tests/requests.mjs", story, server.url, server.token]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def same(compared: list[Any]) -> None:
    """A page's own folds are what the server tells about the same seq."""
    mine, theirs = compared
    for name in ("transcript", "meters", "open"):
        assert mine[name] == theirs[name], name
    assert sorted(mine["documents"], key=key) == sorted(theirs["documents"], key=key)


def key(document: Any) -> str:
    return str(document["id"])


def test_a_conversation_with_a_question(node: str, tmp_path: Path) -> None:
    with running("fast", tmp_path) as server:
        story = told(node, "tour", server)
    first, second = story["sent"]
    assert first == second
    assert story["answers"][0] == story["answers"][1]
    assert (story["other"], story["late"], story["foreign"]) == (
        "Conflict 409",
        "Conflict 409",
        "NotFound 404",
    )
    assert (story["title"], story["state"]) == ("A trip", "idle")
    assert [(app["name"], app["types"]) for app in story["apps"]] == [("tour", ["tour.note_trip"])]
    assert story["waiting"][0]["open"]["calls"][0]["waits_for"] == "page"
    same(story["waiting"])
    same(story["ended"])


def test_a_form_is_told_what_the_server_would_say(node: str, tmp_path: Path) -> None:
    with running(WEIGHTS, tmp_path) as server, executing(server, tmp_path):
        story = told(node, "weights", server)
    assert story["mine"] == story["theirs"]
    assert len(story["mine"]["details"]["problems"]) == 3
    assert story["allowed"] == []
    assert [problem["kind"] for problem in story["doubled"]] == ["conflict"]
    assert story["again"] == "Conflict 409"
    same(story["compared"])


def test_stop_in_mid_sentence(node: str, tmp_path: Path) -> None:
    with running("endless", tmp_path) as server:
        story = told(node, "endless", server)
    assert story["reason"] == "cancelled"
    assert story["compared"][0]["transcript"][-1]["partial"] is True
    same(story["compared"])


def test_a_chat_of_a_page_is_answered_with_its_text_its_events_and_the_state(
    node: str, tmp_path: Path
) -> None:
    with running(BROKERS + "echo", tmp_path) as server:
        story = told(node, "broker", server)
    answer = story["first"]
    assert (answer["displayText"], answer["state"]["status"]) == ("That is me.", "quote_ready")
    assert [(event["type"], event["origin"]) for event in answer["events"]] == [("record_eligibility", "ui")]
    assert story["again"] == answer
    assert (story["other"], story["wrong"]) == ("Conflict 409", "Invalid 400")
