"""`POST /agent/run` and `POST /agent/tool_results`: where a response begins and ends if many calls wait."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.testclient import TestClient

from turnlog import Agent, App, tool
from turnlog.agents import Scripted, ToolUse
from turnlog.app import LOCAL
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog.state.history import Message
from turnlog.wire.sse import Decoder

HEADERS = {"authorization": "Bearer t"}


@tool(executor="frontend")
def ask(question: str) -> str:
    """Ask the user."""
    raise NotImplementedError  # the page answers


def two_questions(messages: list[Message]) -> Iterator[str | ToolUse]:
    if len(messages) > 1:
        yield "Thank you."
        return
    yield ToolUse("ask", {"question": "Where?"})
    yield ToolUse("ask", {"question": "When?"})


def told(body: bytes) -> list[Any]:
    [*messages, done] = Decoder().feed(body)
    assert done.data == "[DONE]"
    return [json.loads(message.data) for message in messages]


@contextmanager
def asking() -> Iterator[tuple[TestClient, str, list[str]]]:
    """A client, a session, and the calls that wait in it."""
    app = App("asking", Agent("Asking", "", Scripted(two_questions), tools=(ask,)))
    site = create_app(app, "memory:", auth=BuiltinAuth(b"k" * 32, {hash_token("t"): LOCAL}))
    with TestClient(site, base_url="http://localhost", headers=HEADERS) as client:
        run = client.post("/agent/run", json={"user_prompt": "Hello"})
        calls = [call["tool_use_id"] for call in json.loads(told(run.content)[-1]["delta"])]
        yield client, run.headers["turnlog-session"], calls


def test_a_response_to_several_results_tells_them_all_and_how_the_turn_goes_on() -> None:
    with asking() as (client, session, calls):
        results = [{"tool_use_id": call, "content": f"{number}"} for number, call in enumerate(calls)]
        asked = {"agent_uuid": session, "tool_results": results}
        refused = client.post("/agent/tool_results", json=asked | {"tool_results": results[:1]})
        last = client.get("/api/sessions").json()["sessions"][0]["last"]
        assert refused.status_code == 409
        assert refused.json()["error"].endswith(f"the last seq is {last}")
        messages = told(client.post("/agent/tool_results", json=asked).content)
        assert [(one["id"], one["delta"]) for one in messages[:2]] == list(zip(calls, "01", strict=True))
        assert "".join(one["delta"] for one in messages[2:]) == "Thank you."


def test_a_response_to_a_message_during_a_wait_begins_with_the_calls_that_wait_no_more() -> None:
    with asking() as (client, session, calls):
        run = client.post("/agent/run", json={"user_prompt": "Never mind.", "agent_uuid": session})
        messages = told(run.content)
        assert [(one["type"], one["id"]) for one in messages[:2]] == [("tool_result", call) for call in calls]
        assert all("CANCELLED" in one["delta"] for one in messages[:2])
        assert "".join(one["delta"] for one in messages[2:]) == "Thank you."
