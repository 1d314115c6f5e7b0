"""The routes of AG-UI: what a run brings, and what it gets, without a client of the protocol."""

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from tests.foreign_clients.apps import PIXEL
from tests.unit.server.protocol_client import (
    ProtocolClient,
    boss_and_visitor_clients,
    messages_of,
    protocol_client,
    user,
)
from turnlog import Agent, App
from turnlog.agents import Scripted
from turnlog.agents.claude.claude_code import ClaudeCode
from turnlog.server.protocols.ag_ui.capabilities import describe_capabilities

COLOR = {"name": "set_color", "description": "Set it.", "parameters": {"properties": {"color": {}}}}
IMAGE: dict[str, Any] = {
    "type": "image",
    "source": {"type": "data", "value": b64encode(PIXEL).decode(), "mimeType": "image/png"},
}


@pytest.fixture
def client() -> Iterator[ProtocolClient]:
    with protocol_client() as client:
        yield client


def said(messages: list[Any]) -> str:
    return "".join(one["delta"] for one in messages if one["type"] == "TEXT_MESSAGE_CONTENT")


def log_of(client: ProtocolClient, answer: Any, type: str) -> list[Any]:
    session = answer.headers["turnlog-session"]
    lines = client.get(f"/api/log?session={session}").text.splitlines()
    events = [one for one in map(json.loads, lines) if one.get("type") == type]
    return [one["payload"] for one in events]


def test_a_run_and_its_thread(client: ProtocolClient) -> None:
    answer = client.run(runId="r1", messages=[user("hello")], parentRunId="r0")
    messages = messages_of(answer)
    assert messages[0]["parentRunId"] == "r0"
    assert said(messages) == "You said hello."
    assert messages[-1]["runId"] == "r1"
    attached = messages_of(client.get("/ag-ui/desk/t"))
    assert [one["type"] for one in attached][:3] == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT"]
    assert [one["role"] for one in attached[1]["messages"]] == ["user", "assistant"]
    assert messages_of(client.run(runId="r1", messages=[user("hello")]))[1]["type"] == "MESSAGES_SNAPSHOT"


def test_context_is_for_the_model_and_not_for_people(client: ProtocolClient) -> None:
    context = [{"description": "The colour", "value": "red"}]
    answer = client.run(runId="r1", messages=[user("hello")], context=context)
    assert said(messages_of(answer)) == "You said hello."
    [message] = log_of(client, answer, "ui.message")
    assert message["text"] == "hello"
    assert message["content"][0]["text"] == "What the page shows:\nThe colour: red"


def test_context_beside_a_file_is_not_for_people_either(client: ProtocolClient) -> None:
    context = [{"description": "The colour", "value": "red"}]
    content = [{"type": "text", "text": "hello"}, IMAGE, {"type": "text", "text": "[image]"}]
    client.run(runId="r1", messages=[user(content)], context=context)
    [message, _] = client.get("/ai-sdk/desk/chat/t").json()
    assert [part.get("text") for part in message["parts"]] == ["hello\n[image]", None]


def test_parts_of_a_message(client: ProtocolClient) -> None:
    source = {"type": "url", "value": "https://example.org/a.pdf", "mimeType": "application/pdf"}
    url = {"type": "document", "source": source, "metadata": {"filename": "plan.pdf"}}
    parts = [{"type": "text", "text": "hello"}, IMAGE, url]
    context = [{"description": "The colour", "value": "red"}]
    answer = client.run(runId="r1", messages=[user(parts)], context=context)
    [message] = log_of(client, answer, "ui.message")
    assert [part["type"] for part in message["content"]] == ["text", "text", "image", "document"]
    assert message["content"][2]["src"].startswith("api/blobs/")
    assert message["content"][3]["title"] == "plan.pdf"
    assert message["content"][3]["media_type"] == "application/pdf"


def test_binary_parts_of_clients_before_1_0(client: ProtocolClient) -> None:
    data = IMAGE["source"]["value"]
    image = {"type": "binary", "mimeType": "image/png", "data": data}
    file = {
        "type": "binary",
        "mimeType": "application/pdf",
        "url": "https://example.org/a.pdf",
        "filename": "a",
    }
    answer = client.run(runId="r1", messages=[user([{"type": "text", "text": "hello"}, image, file])])
    [message] = log_of(client, answer, "ui.message")
    assert [part["type"] for part in message["content"]] == ["text", "image", "document"]
    assert message["content"][2]["title"] == "a"


def test_the_path_of_the_capabilities_is_no_thread(client: ProtocolClient) -> None:
    answer = client.run(runId="r1", threadId="capabilities", messages=[user("hello")])
    assert (answer.status_code, "$.threadId" in answer.json()["error"]) == (400, True)


def test_two_clients_may_use_one_message_id(client: ProtocolClient) -> None:
    for run_id in ("r1", "r2"):
        client.run(runId=run_id, messages=[{"id": "m1", "role": "user", "content": f"hello {run_id}"}])
    [_, snapshot, *_] = messages_of(client.run(runId="r3", messages=[]))
    people = [item for item in snapshot["messages"] if item["role"] == "user"]
    assert [item["content"] for item in people] == ["hello r1", "hello r2"]
    assert people[0]["id"] == "m1" != people[1]["id"]


@pytest.mark.parametrize("message_id", [7, "", "x" * 257, None])
def test_a_message_id_that_is_none_is_not_stored(client: ProtocolClient, message_id: Any) -> None:
    answer = client.run(runId="r1", messages=[{**user("hello"), "id": message_id}])
    [message] = log_of(client, answer, "ui.message")
    assert "client_message_id" not in message


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (7, "$.messages[0].content"),
        ([{"type": "video"}], "$.messages[0].content[0].type"),
        (["x"], "$.messages[0].content[0].type"),
        ([{"type": "image"}], "$.messages[0].content[0].source.type"),
        ([{"type": "image", "source": {"type": "url", "value": 7}}], "$.messages[0].content"),
        ("  ", "$.messages[0].content"),
    ],
)
def test_content_that_is_none_is_refused(client: ProtocolClient, content: Any, place: str) -> None:
    answer = client.run(runId="r1", messages=[user(content)])
    assert answer.status_code == 400
    assert place in answer.json()["error"]


def test_a_run_without_anything_new_attaches(client: ProtocolClient) -> None:
    messages = messages_of(
        client.run(runId="r1", messages=[{"id": "s", "role": "system", "content": "Obey."}])
    )
    kinds = [one["type"] for one in messages]
    assert kinds == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "RUN_FINISHED"]


def test_a_tool_of_the_page_fails_or_is_cancelled(client: ProtocolClient) -> None:
    asked = messages_of(client.run(runId="r1", messages=[user("call set_color red")], tools=[COLOR]))
    [call_id] = asked[-1]["outcome"]["pendingToolCallIds"]
    result = {"id": "x", "role": "tool", "toolCallId": call_id, "content": "", "error": "no colour"}
    assert "no colour" in said(messages_of(client.run(runId="r2", messages=[result, result])))

    asked = messages_of(client.run(runId="r3", messages=[user("call set_color red")], tools=[COLOR]))
    [call_id] = asked[-1]["outcome"]["pendingToolCallIds"]
    entry = {"interruptId": call_id, "status": "cancelled"}
    answer = messages_of(client.run(runId="r4", resume=[entry, entry, {**entry, "interruptId": "none"}]))
    assert "The user cancelled it." in said(answer)


def test_tools_that_are_none_are_refused(client: ProtocolClient) -> None:
    tools = [{"name": "no name", "parameters": None}]
    answer = client.run(runId="r1", messages=[user("hello")], tools=tools)
    assert answer.status_code == 400
    assert "tools[0].name" in answer.json()["error"]


def test_an_approval_with_notes_and_an_input_with_fields(client: ProtocolClient) -> None:
    asked = messages_of(client.run(runId="r1", messages=[user("call delete_file a")]))
    [interrupt] = asked[-1]["outcome"]["interrupts"]
    payload = {"approved": False, "notes": "keep it"}
    entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": payload}
    assert "keep it" in said(messages_of(client.run(runId="r2", resume=[entry])))

    asked = messages_of(client.run(runId="r3", messages=[user("call order coat")]))
    [interrupt] = asked[-1]["outcome"]["interrupts"]
    entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"value": "XL"}}
    assert "coat in XL" in said(messages_of(client.run(runId="r4", resume=[entry])))


@pytest.mark.parametrize("status", ["resolved", "cancelled"])
@pytest.mark.parametrize("call", ["delete_file a", "order coat"])
def test_a_repeated_answer_attaches_and_one_to_no_interrupt_is_refused(
    client: ProtocolClient, call: str, status: str
) -> None:
    asked = messages_of(client.run(runId="r1", messages=[user(f"call {call}")]))
    [interrupt] = asked[-1]["outcome"]["interrupts"]
    entry = {"interruptId": interrupt["id"], "status": status, "payload": {"approved": True, "value": "XL"}}
    messages_of(client.run(runId="r2", resume=[entry]))
    again = messages_of(client.run(runId="r2", resume=[entry]))
    assert again[1]["type"] == "MESSAGES_SNAPSHOT"
    assert len([one for one in again[1]["messages"] if one["role"] == "tool"]) == 1

    unknown = {**entry, "interruptId": "call_of_no_thread"}
    refused = client.run(runId="r3", resume=[entry, unknown])
    assert refused.status_code == 400
    assert "$.resume[1].interruptId" in refused.json()["error"]
    assert "call_of_no_thread" in refused.json()["error"]


def test_a_question_that_is_cancelled_stops_the_turn(client: ProtocolClient) -> None:
    asked = messages_of(client.run(runId="r1", messages=[user("call order coat")]))
    [interrupt] = asked[-1]["outcome"]["interrupts"]
    entry = {"interruptId": interrupt["id"], "status": "cancelled"}
    assert messages_of(client.run(runId="r2", resume=[entry]))[-1]["outcome"] == {"type": "cancelled"}
    assert client.post("/ag-ui/desk/t/stop", {}).status_code == 202


@pytest.fixture
def boss_and_visitor() -> Iterator[tuple[ProtocolClient, ProtocolClient, str]]:
    with boss_and_visitor_clients() as clients:
        yield clients


@pytest.mark.parametrize("version", ["1.0", ""])
def test_an_approval_for_other_roles_is_no_interrupt(
    boss_and_visitor: tuple[ProtocolClient, ProtocolClient, str], version: str
) -> None:
    boss, visitor, session = boss_and_visitor
    asked = messages_of(boss.run(threadId=session, runId="r1", messages=[user("erase")]))
    [interrupt] = asked[-1]["outcome"]["interrupts"]

    attached = messages_of(visitor.get(f"/ag-ui/desk/{session}?protocolVersion={version}"))
    assert attached[-1]["outcome"] == {"type": "success"}
    [waiting] = [one["value"] for one in attached if one["type"] == "CUSTOM" and one["name"] == "waiting"]
    assert waiting == {"toolCallId": interrupt["id"], "tool": "erase", "roles": ["boss"]}
    assert "waiting" not in [one.get("name") for one in asked]
    refused = visitor.run(
        threadId=session,
        runId="r2",
        resume=[{"interruptId": interrupt["id"], "status": "resolved", "payload": True}],
    )
    assert (refused.status_code, "the role boss may decide" in refused.json()["error"]) == (400, True)

    # it may send on: as everywhere, a message cancels what waits
    answered = messages_of(visitor.run(threadId=session, runId="r3", messages=[user("never mind")]))
    assert said(answered) == "You said never mind."


def test_a_page_call_for_other_roles_is_not_pending_and_its_result_is_no_answer(
    boss_and_visitor: tuple[ProtocolClient, ProtocolClient, str],
) -> None:
    boss, visitor, session = boss_and_visitor
    asked = messages_of(boss.run(threadId=session, runId="r1", messages=[user("paint")]))
    [call_id] = asked[-1]["outcome"]["pendingToolCallIds"]

    attached = messages_of(visitor.get(f"/ag-ui/desk/{session}?protocolVersion=1.0"))
    assert attached[-1]["outcome"] == {"type": "success"}
    [waiting] = [one["value"] for one in attached if one["type"] == "CUSTOM" and one["name"] == "waiting"]
    assert waiting == {"toolCallId": call_id, "tool": "paint", "roles": ["boss"]}

    # a page that has run the call all the same may send on
    result = {"id": "x", "role": "tool", "toolCallId": call_id, "content": "painted"}
    answer = visitor.run(threadId=session, runId="r2", messages=[result])
    assert messages_of(answer)[-1]["outcome"] == {"type": "success"}
    assert said(messages_of(boss.run(threadId=session, runId="r3", messages=[result]))) == "You said paint."


def test_what_does_not_exist(client: ProtocolClient) -> None:
    assert client.get("/ag-ui/desk/nothing").status_code == 200  # a thread without a run is empty
    assert client.get("/ag-ui/desk/sess_nothing").status_code == 404
    assert client.post("/ag-ui/desk/nothing/stop", {}).status_code == 404
    assert client.get(f"/ag-ui/desk/{'x' * 300}").status_code == 404
    assert client.get("/ag-ui/other/capabilities").status_code == 404
    assert client.run(runId="").status_code == 400


def test_a_session_of_another_application_is_not_a_thread_of_this_one() -> None:
    plain = Agent("Echo", "", Scripted(lambda _: ["Hi."]))
    with protocol_client(App("desk", plain), App("other", plain)) as client:
        session = client.run(runId="r1", messages=[user("x")]).headers["turnlog-session"]
        assert client.get(f"/ag-ui/desk/{session}").status_code == 200
        assert client.get(f"/ag-ui/other/{session}").status_code == 404


def test_a_run_shows_the_state_that_other_turns_change(client: ProtocolClient) -> None:
    client.run(runId="r1", messages=[user("note milk")])
    messages = messages_of(client.run(runId="r2", messages=[user("note eggs")]))
    [delta] = [one["delta"] for one in messages if one["type"] == "STATE_DELTA"]
    assert delta == [{"op": "add", "path": "/notes/-", "value": "eggs"}]


def test_capabilities(client: ProtocolClient) -> None:
    capabilities = client.get("/ag-ui/desk/capabilities").json()
    assert [one["name"] for one in capabilities["multiAgent"]["subagents"]] == ["Helper", "Writer"]
    assert capabilities["state"]["deltas"] is True
    process = describe_capabilities(
        App("julian", ClaudeCode(["claude"], name="Julian")), shows_internals=True
    )
    assert process["tools"] == {"supported": True, "parallelCalls": True, "clientProvided": False}
