"""The real chats of the Vercel AI SDK 5, 6 and 7 against the real server."""

import json
import os
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from tests.e2e.harness import Server, running
from tests.foreign_clients.apps import GATE_VARIABLE, PIXEL
from tests.foreign_clients.node import Client, running_client

APP = "tests.foreign_clients.apps:app"
HEARTBEAT = ("--heartbeat", "0.1")
COLOR_TOOL = {
    "name": "set_color",
    "description": "Set the colour of the page.",
    "parameters": {"type": "object", "properties": {"color": {"type": "string"}}},
}


class Chat(NamedTuple):
    """A chat of one version of the client."""

    client: Client
    version: int
    server: Server
    id: str

    def begin(self) -> None:
        headers = {**self.server.headers, "turnlog-ai-sdk": str(self.version)}
        self.client.do("new", url=f"{self.server.url}/ai-sdk/desk", headers=headers, id=self.id)

    def do(self, op: str, **step: Any) -> Any:
        return clean(self.client.do(op, **step))

    def say(self, text: str, **step: Any) -> Any:
        return self.do("say", text=text, **step)


def clean(report: Any) -> Any:
    problems = (report["warnings"], report["errors"], report.get("failure"))
    assert problems == ([], [], None), report
    assert report["status"] == "ready"
    return report


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("ai-sdk")
    os.environ[GATE_VARIABLE] = str(folder / "gate")
    with running(APP, folder, options=HEARTBEAT) as server:
        yield server


@pytest.fixture(scope="module", params=[5, 6, 7])
def process(request: pytest.FixtureRequest) -> Iterator[tuple[Client, int]]:
    with running_client("ai_sdk.mjs", f"ai{request.param}") as client:
        yield client, request.param


@pytest.fixture
def chat(server: Server, process: tuple[Client, int], request: pytest.FixtureRequest) -> Chat:
    client, version = process
    chat = Chat(client, version, server, request.node.name)
    chat.begin()
    return chat


@pytest.fixture
def gate(server: Server) -> Iterator[Path]:
    path = Path(os.environ[GATE_VARIABLE])
    path.unlink(missing_ok=True)
    yield path
    path.touch()


def parts(report: Any, kind: str) -> list[Any]:
    return [part for part in report["messages"][-1]["parts"] if part["type"] == kind]


def texts(report: Any) -> list[str]:
    return [part["text"] for part in parts(report, "text")]


def tools(report: Any) -> list[tuple[str, str, Any]]:
    return [
        (part["toolName"], part["state"], part.get("output", part.get("errorText")))
        for part in parts(report, "dynamic-tool")
    ]


def test_a_text_and_its_usage(chat: Chat) -> None:
    report = chat.say("hello")
    assert texts(report) == ["You said hello."]
    assert [message["role"] for message in report["messages"]] == ["user", "assistant"]
    usage = report["messages"][-1]["metadata"]["usage"]
    assert (usage["inputTokens"], usage["outputTokens"]) == (7, 4)
    report = chat.say("again")
    assert len({message["id"] for message in report["messages"]}) == 4


def test_thinking(chat: Chat) -> None:
    report = chat.say("think")
    assert [part["text"] for part in parts(report, "reasoning")] == ["Let me see what this is."]
    assert texts(report) == ["I have thought."]


def test_tools_of_the_server(chat: Chat) -> None:
    report = chat.say("add")
    assert tools(report) == [("add", "output-available", 3)]
    assert texts(report) == ["Adding.", "Got 3."]
    report = chat.say("parallel")
    assert tools(report) == [("add", "output-available", 3), ("add", "output-available", 7)]


def test_a_failing_tool_tells_no_secret(chat: Chat) -> None:
    [(_, state, error)] = tools(chat.say("call break_down"))
    assert (state, error) == ("output-error", "break_down failed")


def test_a_view_progress_an_image_and_a_source(chat: Chat) -> None:
    report = chat.say("call draw")
    assert parts(report, "data-view")[0]["data"]["view_id"] == "dot"
    assert parts(report, "data-progress")[0]["data"]["text"] == "half"
    [(_, _, output)] = tools(report)
    assert (output["result"], output["images"][0]["mediaType"]) == ("a dot", "image/png")
    [source] = parts(chat.say("cite"), "source-url")
    assert source["url"] == "https://example.org/grass"


def test_an_event_of_the_application(chat: Chat) -> None:
    [part] = parts(chat.say("note milk"), "data-event")
    assert part["data"] == {"type": "desk.note_added", "payload": {"text": "milk"}}


def test_a_tool_of_the_page(chat: Chat) -> None:
    report = chat.say("call set_color red", body={"tools": [COLOR_TOOL]})
    assert tools(report) == [("set_color", "input-available", None)]
    report = chat.do("output", output="it is red now")
    assert tools(report) == [("set_color", "output-available", "it is red now")]
    assert texts(report) == ["Got it is red now."]
    assert [message["role"] for message in report["messages"]] == ["user", "assistant"]


def test_a_message_in_place_of_an_answer(chat: Chat) -> None:
    chat.say("call set_color red", body={"tools": [COLOR_TOOL]})
    report = chat.say("hello")
    assert texts(report) == ["You said hello."]
    assert len({message["id"] for message in report["messages"]}) == 4


def test_sub_agents_are_data(chat: Chat) -> None:
    report = chat.say("call helper add")
    [agent] = [part["data"] for part in parts(report, "data-agent")]
    assert (agent["name"], agent["status"]) == ("Helper", "done")
    kinds = [(part["type"], part.get("text", part.get("state"))) for part in agent["parts"]]
    assert kinds == [("text", "Adding."), ("tool", "done"), ("text", "Got 3.")]
    deltas = [part["data"]["delta"] for part in report["data"] if part["type"] == "data-agent-delta"]
    assert "".join(deltas) == "Adding.Got 3."
    assert texts(report) == ["Got Got 3.."]


@pytest.mark.parametrize("prefix", ["", "call helper "])
@pytest.mark.parametrize("approved", [True, False])
def test_an_approval(chat: Chat, prefix: str, approved: bool) -> None:
    report = chat.say(f"{prefix}call delete_file a.txt")
    if chat.version == 5:
        [request] = parts(report, "data-approval")
        approvals = [{"id": request["data"]["toolCallId"], "approved": approved}]
        report = chat.do("send", body={"approvals": approvals})
    else:
        report = chat.do("approve", approved=approved)
    states = {state for tool, state, _ in tools(report) if tool == "delete_file"}
    refusal = "output-error" if chat.version == 5 else "output-denied"
    assert states == {"output-available" if approved else refusal}
    assert ("a.txt is deleted" if approved else "said no") in texts(report)[-1]
    assert [message["role"] for message in report["messages"]] == ["user", "assistant"]


def test_an_approval_that_another_page_decided_is_not_asked_again(chat: Chat) -> None:
    """Of two calls that wait, one is decided. The page is loaded again, and decides the other one."""
    chat.say("both")
    first, second = call_ids(chat)
    body = {"id": chat.id, "messages": [], "approvals": [{"id": first, "approved": False, "reason": "No."}]}
    assert chat.server.post("/ai-sdk/desk/chat", body)[0] == 200
    report = chat.do("reload")
    states = [part["state"] for part in parts(report, "dynamic-tool")]
    assert chat.version == 5 or states == ["output-denied", "approval-requested"]
    if chat.version == 5:
        report = chat.do("send", body={"approvals": [{"id": second, "approved": True}]})
    else:
        report = chat.do("approve", approved=True)
    assert [state for _, state, _ in tools(report)] == [
        "output-error" if chat.version == 5 else "output-denied",
        "output-available",
    ]
    assert "b.txt is deleted" in texts(report)[-1]


def call_ids(chat: Chat) -> list[str]:
    return [part["toolCallId"] for part in last_parts(chat, "dynamic-tool")]


def test_an_approval_with_its_reasons(chat: Chat) -> None:
    report = chat.say("call delete_file a.txt")
    if chat.version == 5:
        assert parts(report, "data-approval")[0]["data"]["reason"] == "Delete a file."
        return
    approval = parts(report, "dynamic-tool")[0]["approval"]
    assert approval.get("requestReason") == ("Delete a file." if chat.version == 7 else None)
    report = chat.do("approve", approved=False, reason="Not on a Friday.")
    [part] = parts(report, "dynamic-tool")
    assert (part["state"], part["approval"]["approved"]) == ("output-denied", False)
    assert part["approval"]["reason"] == "Not on a Friday."
    assert last_parts(chat, "dynamic-tool")[0]["approval"]["reason"] == "Not on a Friday."


def test_a_page_that_is_loaded_again_has_the_ids_of_its_messages(chat: Chat) -> None:
    live = chat.say("hello")["messages"]
    loaded = chat.do("reload")["messages"]
    assert [message["id"] for message in loaded] == [message["id"] for message in live]
    chat.do("regenerate")
    ids = [message["id"] for message in messages_of(chat)]
    assert len(set(ids)) == len(ids) == 4


@pytest.mark.parametrize("name", ["team/1", "what? 100%", "ü\U0001f642"])
def test_any_text_is_a_chat_id(chat: Chat, name: str) -> None:
    chat = chat._replace(id=f"{name} {chat.version}")
    chat.begin()
    chat.say("hello")
    path = f"/ai-sdk/desk/chat/{quote(chat.id, safe='')}"
    assert len(chat.server.get(path)[1]) == 2
    assert chat.server.get(path + "/stream")[0] == 200
    assert chat.server.post(path + "/stop", {})[0] == 202


def test_an_input(chat: Chat) -> None:
    [question] = parts(chat.say("call order coat"), "data-question")
    assert question["data"]["questions"] == {"question": "Which size?"}
    report = chat.do("send", body={"answers": {question["data"]["toolCallId"]: "XL"}})
    assert texts(report) == ["Got coat in XL."]


def test_a_hand_over(chat: Chat) -> None:
    [part] = parts(chat.say("call handoff_to_writer hello"), "data-handoff")
    assert part["data"] == {"from": "Lead", "to": "Writer"}


def test_an_error_of_the_model(chat: Chat) -> None:
    report = chat.client.do("say", text="fail")
    assert (report["status"], report["warnings"]) == ("error", [])
    assert "The model is away." in report["errors"][0]
    assert texts(report) == ["Before the failure "]


def test_a_retraction(chat: Chat) -> None:
    answer = f"You said retry {chat.version}."
    report = chat.say(f"retry {chat.version}")
    if chat.version == 7:
        assert texts(report) == [answer]
    else:
        assert texts(report) == ["Wrong words ", answer]
        assert len(parts(report, "data-retract")[0]["data"]["ids"]) == 2
    assert [part["text"] for part in last_parts(chat, "text")] == [answer]
    assert last_parts(chat, "reasoning") == []


def last_parts(chat: Chat, kind: str) -> list[Any]:
    """Return parts of the last message, as a page that is loaded gets them."""
    return parts({"messages": messages_of(chat)}, kind)


def messages_of(chat: Chat) -> Any:
    headers = {"turnlog-ai-sdk": str(chat.version)}
    status, messages = chat.server.get(f"/ai-sdk/desk/chat/{quote(chat.id)}", headers)
    assert status == 200
    return messages


def test_stop(chat: Chat, gate: Path) -> None:
    report = chat.say("wait", when="One", then="stop")
    assert texts(report)[0].startswith("One two")


def test_a_silent_turn_gets_heartbeats_that_the_client_ignores(chat: Chat, gate: Path) -> None:
    chat.client.start("say", text="wait", pings=3)
    assert chat.client.report() == {"step": "pinged"}
    gate.touch()
    assert texts(clean(chat.client.report())) == ["One two three four."]


def test_heartbeats_that_are_data_would_end_the_stream(chat: Chat, gate: Path) -> None:
    report = chat.client.do("say", text="wait", spoil=True)
    assert report["status"] == "error"
    assert "heartbeat" in report["errors"][0]


def test_resuming_in_mid_run_does_not_double_the_text(chat: Chat, gate: Path) -> None:
    assert texts(chat.say("wait", when="three", then="detach")) == ["One two three"]
    chat.client.start("resume", when="three", then="tell")
    assert chat.client.report() == {"step": "reached"}
    gate.touch()
    report = clean(chat.client.report())
    assert texts(report) == ["One two three four."]
    assert [message["role"] for message in report["messages"]] == ["user", "assistant"]


def test_a_page_that_is_loaded_again_in_mid_run(chat: Chat, gate: Path) -> None:
    chat.say("hello")
    chat.say("wait", when="three", then="detach")
    chat.client.start("reload", when="three", then="tell")
    assert chat.client.report() == {"step": "reached"}
    gate.touch()
    report = clean(chat.client.report())
    assert texts(report) == ["One two three four."]
    assert [message["role"] for message in report["messages"]] == ["user", "assistant"] * 2


def test_a_page_that_is_loaded_after_the_end_has_the_same_messages(chat: Chat) -> None:
    chat.say("think")
    chat.say("call helper add")
    live = chat.say("cite")["messages"]
    loaded = chat.do("reload")["messages"]
    assert [comparable(message) for message in loaded] == [comparable(message) for message in live]


def comparable(message: Any) -> Any:
    """A message without the ids of its person's client, and without fields that only one side has."""
    kept = []
    for part in message["parts"]:
        fields = {name: value for name, value in part.items() if name in KEPT and value is not None}
        kept.append(json.dumps(fields, sort_keys=True))
    return message["role"], kept, message["id"] if message["role"] == "assistant" else None


KEPT = ("type", "text", "toolName", "toolCallId", "state", "input", "output", "url", "sourceId", "data")


def test_the_same_message_sent_again_is_not_sent_twice(chat: Chat, server: Server) -> None:
    body = {
        "id": chat.id,
        "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hello"}]}],
    }
    first = server.post("/ai-sdk/desk/chat", body)
    assert first[0] == 200
    assert b'"type":"text-delta"' in first[1]
    again = server.post("/ai-sdk/desk/chat", body)
    assert again[1].endswith(b"data: [DONE]\n\n")
    assert len(messages_of(chat)) == 2


def test_regenerating_asks_again(chat: Chat) -> None:
    chat.say("hello")
    assert texts(chat.do("regenerate")) == ["You said hello."]


def test_a_file_of_the_person(chat: Chat) -> None:
    url = "data:image/png;base64," + b64encode(PIXEL).decode()
    files = [{"type": "file", "mediaType": "image/png", "url": url, "filename": "dot.png"}]
    report = chat.say("hello", files=files)
    assert texts(report) == ["You said hello."]
    report = chat.client.do("say", text="hello", files=[{**files[0], "mediaType": "video/mp4"}])
    assert "expected one of application/pdf, text/plain" in report["errors"][0]


def test_a_page_that_is_loaded_again_asks_again_with_its_file(chat: Chat) -> None:
    url = "data:text/plain;base64," + b64encode(b"notes").decode()
    chat.say("hello", files=[{"type": "file", "mediaType": "text/plain", "url": url, "filename": "a.txt"}])
    [_, stored] = chat.do("reload")["messages"][0]["parts"]
    assert stored["url"].startswith("api/blobs/")
    assert texts(chat.do("regenerate")) == ["You said hello."]
    [again] = [message["parts"] for message in messages_of(chat) if message["role"] == "user"][1:]
    assert again[1] == stored


def test_nothing_to_resume_and_nothing_new(server: Server) -> None:
    assert server.get("/ai-sdk/desk/chat/none/stream")[0] == 204
    assert server.get("/ai-sdk/desk/chat/none")[1] == []
    assert server.post("/ai-sdk/desk/chat", {"id": "x", "messages": []})[0] == 400
    assert server.post("/ai-sdk/desk/chat/none/stop", {})[0] == 404
    status, error = server.get("/ai-sdk/desk/chat/none/stream", {"turnlog-ai-sdk": "4"})
    assert status == 204
    status, error = server.post("/ai-sdk/desk/chat", {"id": "x", "messages": []}, {"turnlog-ai-sdk": "4"})
    assert (status, error["error"]) == (400, "expected 5 or 6 or 7, got '4' (at ai_sdk)")


def test_a_server_that_is_killed_in_mid_run(
    tmp_path: Path, process: tuple[Client, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, version = process
    monkeypatch.setenv(GATE_VARIABLE, str(tmp_path / "gate"))
    with running_client("ai_sdk.mjs", f"ai{version}") as client, running(APP, tmp_path) as first:
        chat = Chat(client, version, first, "killed")
        chat.begin()
        client.start("say", text="wait", when="three", then="tell")
        client.report()
        first.kill()
        assert client.report()["status"] == "error"
        with running(APP, tmp_path, first.port):
            client.start("reload")
            (tmp_path / "gate").touch()
            report = clean(client.report())
            assert texts(report)[-1] == "One two three four."
            assert texts(chat.say("hello")) == ["You said hello."]
