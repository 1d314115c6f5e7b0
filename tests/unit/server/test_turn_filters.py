"""`GET /api/events?turn=` with `types=` and `depth=`: the filters of a stream hold for a response."""

import json
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from turnlog import Agent, App
from turnlog.agents import Scripted, ToolUse
from turnlog.app import LOCAL
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog.state.history import Message
from turnlog.wire.sse import Decoder

HELPER = Agent("Helper", "", Scripted(lambda _: ["I help."]))


def script(messages: list[Message]) -> Iterator[str | ToolUse]:
    """Call the helper once, then say what came of it."""
    if any(part["type"] == "tool_result" for part in messages[-1].content):
        yield "Done."
    else:
        yield ToolUse(HELPER.tool_name, {"prompt": "help"})


@pytest.fixture(scope="module")
def turn() -> Iterator[tuple[TestClient, str]]:
    app = App("plain", Agent("Clerk", "", Scripted(script), agents=[HELPER]))
    server = create_app(app, "memory:", auth=BuiltinAuth(b"k" * 32, {hash_token("t"): LOCAL}))
    headers = {"authorization": "Bearer t"}
    with TestClient(server, base_url="http://localhost", headers=headers) as client:
        session = client.post("/api/sessions", json={}).json()["session_id"]
        sent = client.post("/api/send", json={"session": session, "message": "hello"}).json()
        path = f"/api/events?session={session}&turn={sent['turn']}"
        client.get(path)  # a response ends with its turn
        yield client, path


def read(client: TestClient, path: str) -> list[dict[str, object]]:
    """The events of a response, without its last message."""
    *events, done = [message.data for message in Decoder().feed(client.get(path).content)]
    assert done == "[DONE]"
    return [json.loads(data) for data in events]


def test_a_turn_without_filters_has_every_depth_and_type(turn: tuple[TestClient, str]) -> None:
    events = read(*turn)
    assert {event.get("depth", 0) for event in events} == {0, 1}
    assert {"agent.start", "tool.call", "tool.result"} <= {str(event["type"]) for event in events}


def test_a_turn_with_depth_leaves_deeper_events_out(turn: tuple[TestClient, str]) -> None:
    client, path = turn
    events = read(client, f"{path}&depth=0")
    assert {event.get("depth", 0) for event in events} == {0}


def test_a_turn_with_types_has_only_these_types(turn: tuple[TestClient, str]) -> None:
    client, path = turn
    events = read(client, f"{path}&types=tool.call,agent")
    assert {event["type"] for event in events} == {"tool.call", "agent.start", "agent.usage", "agent.end"}


def test_a_turn_in_another_dialect_has_the_messages_of_the_chosen_events_only(
    turn: tuple[TestClient, str],
) -> None:
    client, path = turn
    whole, shallow = (read(client, f"{path}&dialect=blocks{depth}") for depth in ("", "&depth=0"))
    assert len({message["agent"] for message in whole} - {""}) == 2
    assert len({message["agent"] for message in shallow} - {""}) == 1
