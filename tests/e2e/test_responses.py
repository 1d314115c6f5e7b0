"""`POST /agent/run` and `POST /agent/tool_results`: one turn as a response that ends (protocol section 8)."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.harness import Server, running
from tests.support.limits import HANG_S
from turnlog.client.assembler import Assembler
from turnlog.wire.sse import Decoder, ServerSentEvent


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("fast", tmp_path_factory.mktemp("responses")) as server:
        yield server


@dataclass
class Answer:
    """A whole response."""

    status: int
    headers: dict[str, str]
    messages: list[ServerSentEvent]

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(message.data) for message in self.messages[:-1]]


def post(server: Server, path: str, body: object) -> Answer:
    headers = {"content-type": "application/json", **server.headers}
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=HANG_S) as response:
            raw, status, found = response.read(), response.status, response.headers
    except urllib.error.HTTPError as error:
        raw, status, found = error.read(), error.code, error.headers
        error.close()
        return Answer(status, dict(found), [ServerSentEvent(raw.decode(), "", "")] if raw else [])
    decoder = Decoder()
    messages = [*decoder.feed(raw), *decoder.flush()]
    return Answer(status, {name.lower(): value for name, value in found.items()}, messages)


def test_a_run_ends_when_it_waits_and_goes_on_with_the_results(server: Server) -> None:
    first = post(server, "/agent/run", {"user_prompt": "Rome"})
    assert first.status == 200
    assert first.headers["content-type"].startswith("text/event-stream")
    session, turn = first.headers["turnlog-session"], first.headers["turnlog-turn"]
    assert (session[:5], turn[:3]) == ("sess_", "tr_")
    assert (first.messages[-1].data, first.messages[-1].id) == ("[DONE]", first.messages[-2].id)
    assert first.bodies[0]["type"] == "meta_init"
    assert first.bodies[-1]["type"] == "awaiting_frontend_tools"
    [call] = json.loads(first.bodies[-1]["delta"])
    results = [{"tool_use_id": call["tool_use_id"], "content": True}]
    second = post(server, "/agent/tool_results", {"agent_uuid": session, "tool_results": results})
    assert (second.headers["turnlog-session"], second.headers["turnlog-turn"]) == (session, turn)
    assert second.messages[-1].data == "[DONE]"
    kinds = [body["type"] for body in second.bodies]
    assert "meta_init" not in kinds
    text = "".join(body["delta"] for body in second.bodies if body["type"] == "text")
    assert text == "Noted: Rome, clear and 21 °C. Have a good time!"
    again = post(server, "/agent/run", {"user_prompt": {"city": "Oslo"}, "agent_uuid": session})
    assert again.headers["turnlog-session"] == session
    assert again.headers["turnlog-turn"] != turn


def test_the_two_responses_are_one_run_to_a_reader(server: Server) -> None:
    option = "?stream_meta_history_and_tool_results=true"
    first = post(server, "/agent/run" + option, {"user_prompt": "Bern"})
    [call] = json.loads(first.bodies[-1]["delta"])
    answer = {"tool_use_id": call["tool_use_id"], "content": False}
    body = {"agent_uuid": first.headers["turnlog-session"], "tool_results": [answer]}
    second = post(server, "/agent/tool_results" + option, body)
    reader = Assembler()
    for message in [*first.messages, *second.messages]:
        reader.feed(message.data, message.id)
    assert all(block.complete for block in reader.blocks)
    assert reader.pending == []
    assert [agent.name for agent in reader.agents.values()] == ["Guide", "Scout"]
    assert all(agent.meta_final for agent in reader.agents.values())


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/agent/run", {"user_prompt": "  "}, 400),
        ("/agent/run", {"user_prompt": "x" * 100_001}, 400),
        ("/agent/run", {}, 400),
        ("/agent/run", {"user_prompt": "x", "agent_uuid": "sess_nobody"}, 404),
        ("/agent/tool_results", {"agent_uuid": "sess_nobody", "tool_results": []}, 404),
    ],
)
def test_what_cannot_be_run_is_refused(server: Server, path: str, body: object, status: int) -> None:
    answer = post(server, path, body)
    assert answer.status == status
    assert "error" in json.loads(answer.messages[0].data)


def test_results_must_be_those_that_are_waited_for(server: Server) -> None:
    first = post(server, "/agent/run", {"user_prompt": "Rome"})
    session = first.headers["turnlog-session"]
    for results in ([], [{"tool_use_id": "call_other", "content": 1}]):
        refused = post(server, "/agent/tool_results", {"agent_uuid": session, "tool_results": results})
        assert refused.status == 409


def follow(server: Server, session: str, turn: str, after: str = "", dialect: str = "blocks") -> Answer:
    query = f"session={session}&turn={turn}&dialect={dialect}"
    request = urllib.request.Request(f"{server.url}/api/events?{query}", headers=server.headers)
    if after:
        request.add_header("last-event-id", after)
    try:
        with urllib.request.urlopen(request, timeout=HANG_S) as response:
            decoder = Decoder()
            return Answer(response.status, {}, [*decoder.feed(response.read()), *decoder.flush()])
    except urllib.error.HTTPError as error:
        error.close()
        return Answer(error.code, {}, [])


def test_a_turn_can_be_gone_on_with_from_any_message(server: Server) -> None:
    first = post(server, "/agent/run", {"user_prompt": "Rome"})
    session, turn = first.headers["turnlog-session"], first.headers["turnlog-turn"]
    whole = [(message.id, message.data) for message in first.messages]
    assert [(m.id, m.data) for m in follow(server, session, turn).messages] == whole
    for place, message in enumerate(first.messages[:-1]):
        rest = follow(server, session, turn, message.id).messages
        assert [(m.id, m.data) for m in rest[:-1]] == whole[place + 1 : -1]
        assert rest[-1].data == "[DONE]"
    [call] = json.loads(first.bodies[-1]["delta"])
    results = [{"tool_use_id": call["tool_use_id"], "content": True}]
    second = post(server, "/agent/tool_results", {"agent_uuid": session, "tool_results": results})
    behind = follow(server, session, turn, first.messages[-2].id)
    assert [(m.id, m.data) for m in behind.messages] == [(m.id, m.data) for m in second.messages]
    assert follow(server, session, turn, second.messages[-2].id).status == 204
    post(server, "/agent/run", {"user_prompt": "Oslo", "agent_uuid": session})
    assert follow(server, session, turn).messages[-1].data == "[DONE]"
    told = [message.data for message in follow(server, session, turn).messages]
    assert told == [message.data for message in [*first.messages[:-1], *second.messages]]


def test_a_turn_as_envelopes_and_one_that_is_not_there(server: Server) -> None:
    first = post(server, "/agent/run", {"user_prompt": "Rome"})
    session, turn = first.headers["turnlog-session"], first.headers["turnlog-turn"]
    *messages, done = follow(server, session, turn, dialect="turnlog").messages
    events = [json.loads(message.data) for message in messages]
    assert done.data == "[DONE]"
    assert events[0]["type"] == "ui.message"
    assert {event["trace_id"] for event in events} == {turn}
    assert events[-1]["type"] == "tool.await"
    assert follow(server, session, "tr_nobody").status == 404
