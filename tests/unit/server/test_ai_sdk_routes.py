"""The routes of the AI SDK: what a chat brings, and what it gets, without a client of the SDK."""

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
    text,
)
from turnlog.server.protocols.ai_sdk import routes as ai_sdk

COLOR = {"name": "set_color", "description": "Set it.", "parameters": {"type": "object"}}


@pytest.fixture
def client() -> Iterator[ProtocolClient]:
    with protocol_client() as client:
        yield client


def said(messages: list[Any]) -> str:
    return "".join(one["delta"] for one in messages if one["type"] == "text-delta")


def first(messages: list[Any], type: str) -> Any:
    return next(one for one in messages if one["type"] == type)


def test_a_chat_and_its_messages(client: ProtocolClient, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = client.chat(text("hello"))
    assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert said(messages_of(answer)) == "You said hello."
    assert answer.content.endswith(b"data: [DONE]\n\n")
    user, assistant = client.get("/ai-sdk/desk/chat/t").json()
    assert (user["role"], assistant["role"]) == ("user", "assistant")

    # a page that has loaded the message before it was complete gets it again, but not for ever
    replayed = messages_of(client.get("/ai-sdk/desk/chat/t/stream"))
    assert said(replayed) == "You said hello."
    monkeypatch.setattr(ai_sdk, "RECENT_END_MS", 0)
    assert client.get("/ai-sdk/desk/chat/t/stream").status_code == 204

    # the same request again is the same message, replayed
    again = messages_of(client.chat(text("hello")))
    assert first(again, "start")["messageId"] == assistant["id"]
    assert said(again) == "You said hello."
    assert len(client.get("/ai-sdk/desk/chat/t").json()) == 2

    # another text under its id, and a request for another answer, are not
    assert said(messages_of(client.chat(text("other")))) == "You said other."
    assert said(messages_of(client.chat(text("other"), trigger="regenerate-message"))) == "You said other."
    assert len(client.get("/ai-sdk/desk/chat/t").json()) == 6


def test_files_of_a_message(client: ProtocolClient) -> None:
    image = {"type": "file", "mediaType": "image/png", "url": "https://example.org/a.png"}
    data = "data:text/plain;base64," + b64encode(b"notes").decode()
    note = {"type": "file", "mediaType": "text/plain", "url": data, "filename": "notes.txt"}
    unnamed = {
        "type": "file",
        "mediaType": "image/png",
        "url": "data:image/png;base64," + b64encode(PIXEL).decode(),
    }
    answer = client.chat(text("hello"), image, note, unnamed, {"type": "data-x", "data": 1})
    assert said(messages_of(answer)) == "You said hello."
    session = answer.headers["turnlog-session"]
    other = "api/blobs/sess_other/" + "0" * 64
    answer = client.chat({"type": "file", "mediaType": "image/png", "url": other})
    assert "expected an address" in answer.json()["error"]
    missing = f"api/blobs/{session}/" + "0" * 64
    assert client.chat({"type": "file", "mediaType": "image/png", "url": missing}).status_code == 404
    [stored] = [part for part in client.get("/ai-sdk/desk/chat/t").json()[0]["parts"] if "url" in part][-1:]
    again = client.chat(text("hello"), stored, message_id="m2")
    assert said(messages_of(again)) == "You said hello."
    answer = client.chat({"type": "file", "url": 7})
    assert "$.messages[0].parts[0]" in answer.json()["error"]


def test_a_file_of_the_web_is_there_when_the_chat_is_loaded_again(client: ProtocolClient) -> None:
    image = {"type": "file", "mediaType": "image/png", "url": "https://example.org/a.png"}
    page = {"type": "file", "mediaType": "text/html", "url": "https://example.org/b", "filename": "b.html"}
    messages_of(client.chat(text("hello"), image, page))
    [message, _] = client.get("/ai-sdk/desk/chat/t").json()
    assert message["parts"] == [text("hello"), image, page]
    # the page sends it again as it is
    messages_of(client.chat(*message["parts"], message_id="m2"))
    assert client.get("/ai-sdk/desk/chat/t").json()[2]["parts"] == message["parts"]

    # the SDK has no file without a type
    messages_of(client.chat(text("hello"), {**image, "mediaType": ""}, message_id="m3"))
    assert client.get("/ai-sdk/desk/chat/t").json()[4]["parts"] == [text("hello\n[document]")]


def test_addresses_of_large_files_do_not_add_up(client: ProtocolClient) -> None:
    data = "data:application/pdf;base64," + b64encode(b"%PDF" + bytes(3 << 20)).decode()
    client.chat(text("hello"), {"type": "file", "mediaType": "application/pdf", "url": data})
    [_, stored] = client.get("/ai-sdk/desk/chat/t").json()[0]["parts"]
    assert client.chat(text("hello"), stored, stored, message_id="m2").status_code == 200
    refused = client.chat(text("hello"), stored, stored, stored, message_id="m3")
    assert (refused.status_code, "together" in refused.json()["error"]) == (413, True)


def test_an_output_and_an_error_of_a_tool_of_the_page(client: ProtocolClient) -> None:
    outcomes: list[dict[str, Any]] = [{"state": "output-available", "output": 5}, {"state": "output-error"}]
    for number, part in enumerate(outcomes):
        asked = messages_of(client.chat(text(f"call set_color {number}"), tools=[COLOR]))
        call_id = first(asked, "tool-input-available")["toolCallId"]
        other = {"toolCallId": "unknown", "state": "output-available"}
        answer = client.chat(other, {**part, "toolCallId": call_id}, role="assistant")
        assert ["Got 5.", "It failed."][number] in said(messages_of(answer))


@pytest.mark.parametrize("approved", [True, False])
def test_an_approval_in_the_message(client: ProtocolClient, approved: bool) -> None:
    messages_of(client.chat(text("call delete_file a")))
    message = client.get("/ai-sdk/desk/chat/t", **{"turnlog-ai-sdk": "6"}).json()[-1]
    call_id = first(message["parts"], "dynamic-tool")["toolCallId"]
    approval = {"id": call_id, "approved": approved, "reason": "because"}
    part = {"toolCallId": call_id, "state": "approval-responded", "approval": approval}
    waiting = {"toolCallId": call_id, "state": "approval-requested"}
    assert client.chat(waiting, role="assistant").status_code == 400
    answer = messages_of(client.chat(part, role="assistant"))
    assert ("a is deleted" if approved else "because") in said(answer)


def test_an_id_whose_path_is_the_stream_of_another_chat_is_refused(client: ProtocolClient) -> None:
    for chat_id in ("team/stream", "/stream"):
        answer = client.chat(text("hello"), id=chat_id)
        assert (answer.status_code, "$.id" in answer.json()["error"]) == (400, True)
    for chat_id in ("stream", "team/stream/1", "team/stop"):
        messages_of(client.chat(text("hello"), id=chat_id))
        assert len(client.get(f"/ai-sdk/desk/chat/{chat_id}").json()) == 2
        assert client.get(f"/ai-sdk/desk/chat/{chat_id}/stream").status_code == 200
        assert client.post(f"/ai-sdk/desk/chat/{chat_id}/stop", {}).status_code == 202


@pytest.mark.parametrize("version", ["5", "6", "7"])
def test_a_call_for_other_roles_waits_for_others(version: str) -> None:
    headers = {"turnlog-ai-sdk": version}
    with boss_and_visitor_clients() as (boss, visitor, session):
        for call in ("erase", "paint"):
            asked = messages_of(boss.chat(text(call), id=session, message_id=call))
            call_id = first(asked, "tool-input-available")["toolCallId"]
            assert "data-waiting" not in kinds_of(asked)
            # loaded with all messages, and replayed
            loaded = visitor.get(f"/ai-sdk/desk/chat/{session}", **headers).json()[-1]["parts"]
            assert first(loaded, "dynamic-tool")["state"] == "input-available"
            replayed = messages_of(visitor.get(f"/ai-sdk/desk/chat/{session}/stream", **headers))
            for parts in (loaded, replayed):
                assert first(parts, "data-waiting")["data"] == {
                    "toolCallId": call_id,
                    "tool": call,
                    "roles": ["boss"],
                }
                assert not any("approval" in kind for kind in kinds_of(parts))
            approval = {"id": call_id, "approved": True}
            refused = visitor.chat(id=session, role="assistant", approvals=[approval], answers={call_id: 1})
            assert (refused.status_code, "role boss" in refused.json()["error"]) == (400, True)
            answered = messages_of(visitor.chat(text("stop"), id=session, message_id=f"no {call}"))
            assert said(answered) == "You said stop."


def kinds_of(parts: list[Any]) -> list[str]:
    return [part["type"] for part in parts]


def test_answers_beside_the_messages(client: ProtocolClient) -> None:
    messages_of(client.chat(text("call delete_file a")))
    message = client.get("/ai-sdk/desk/chat/t").json()[-1]
    call_id = first(message["parts"], "dynamic-tool")["toolCallId"]
    unknown = {"id": "unknown", "approved": True}
    body = {"approvals": [unknown, {"id": call_id, "approved": False}], "answers": {call_id: 1, "unknown": 2}}
    assert "said no" in said(messages_of(client.chat(role="assistant", **body)))

    question = first(messages_of(client.chat(text("call order coat"))), "data-question")
    answers = {question["data"]["toolCallId"]: {"value": "XL"}}
    assert said(messages_of(client.chat(role="assistant", answers=answers))) == "Got coat in XL."

    asked = messages_of(client.chat(text("call set_color red"), tools=[COLOR]))
    call_id = first(asked, "tool-input-available")["toolCallId"]
    assert said(messages_of(client.chat(role="assistant", answers={call_id: "red"}))) == "Got red."


def test_a_message_within_a_turn_is_one_of_the_messages(client: ProtocolClient) -> None:
    messages_of(client.chat(text("call set_color red"), tools=[COLOR]))
    assert said(messages_of(client.chat(text("hello"), message_id="m2"))) == "You said hello."
    messages = client.get("/ai-sdk/desk/chat/t").json()
    assert [message["role"] for message in messages] == ["user", "assistant"] * 2


def test_what_does_not_exist_and_what_is_wrong(client: ProtocolClient) -> None:
    assert client.get("/ai-sdk/desk/chat/none").json() == []
    assert client.get("/ai-sdk/desk/chat/none/stream").status_code == 204
    assert client.get(f"/ai-sdk/desk/chat/{'x' * 300}/stream").status_code == 204
    assert client.post("/ai-sdk/desk/chat/none/stop", {}).status_code == 404
    assert client.get("/ai-sdk/other/chat/none").status_code == 404
    assert client.post("/ai-sdk/desk/chat", {"id": "t", "messages": []}).status_code == 400
    answer = client.post("/ai-sdk/desk/chat", {"id": "t", "messages": []}, **{"turnlog-ai-sdk": "4"})
    assert answer.json()["error"] == "expected 5 or 6 or 7, got '4' (at ai_sdk)"
    messages_of(client.chat(text("hello")))
    assert client.post("/ai-sdk/desk/chat/t/stop", {}).status_code == 202
