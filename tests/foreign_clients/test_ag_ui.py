"""The real clients of AG-UI against the real server: every kind of run, and attaching at any time.

Version 1.0.0, and 0.0.59, which CopilotKit and assistant-ui have.
"""

import os
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.e2e.harness import Server, running
from tests.foreign_clients.apps import GATE_VARIABLE, PIXEL
from tests.foreign_clients.node import Client, running_client

APP = "tests.foreign_clients.apps:app"
HEARTBEAT = ("--heartbeat", "0.1")
CANCELLED = [None, {"type": "cancelled"}]  # by version
COLOR_TOOL = {
    "name": "set_color",
    "description": "Set the colour of the page.",
    "parameters": {"type": "object", "properties": {"color": {"type": "string"}}},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("ag-ui")
    os.environ[GATE_VARIABLE] = str(folder / "gate")
    with running(APP, folder, options=HEARTBEAT) as server:
        yield server


@pytest.fixture(scope="module", params=[0, 1])
def version(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture(scope="module")
def process(version: int) -> Iterator[Client]:
    with running_client("ag_ui.mjs", f"ag-ui-{version}") as client:
        yield client


@pytest.fixture
def client(server: Server, process: Client, request: pytest.FixtureRequest) -> Client:
    begin(process, server, request.node.name)
    return process


@pytest.fixture
def gate(server: Server) -> Iterator[Path]:
    path = Path(os.environ[GATE_VARIABLE])
    path.unlink(missing_ok=True)
    yield path
    path.touch()


def begin(client: Client, server: Server, thread: str) -> None:
    client.do("new", url=f"{server.url}/ag-ui/desk", headers=server.headers, thread=thread)


def texts(report: Any, role: str = "assistant") -> list[str]:
    return [item["content"] for item in report["messages"] if item["role"] == role and item.get("content")]


def clean(report: Any) -> Any:
    assert (report["warnings"], report.get("failure")) == ([], None), report
    return report


def say(client: Client, text: str | list[Any], **more: Any) -> Any:
    return clean(client.do("say", text=text, **more))


def calls(report: Any) -> list[tuple[str, str]]:
    functions = [call["function"] for item in report["messages"] for call in item.get("toolCalls", ())]
    return [(function["name"], function["arguments"]) for function in functions]


def test_a_text_and_its_usage(client: Client) -> None:
    report = say(client, "hello")
    assert texts(report) == ["You said hello."]
    assert report["outcome"] == {"type": "success"}
    assert report["result"] == "You said hello."
    [usage] = report["usage"]
    assert usage == {"model": "scripted", "inputTokens": 7, "outputTokens": 4, "totalTokens": 11}
    assert report["types"][0] == "RUN_STARTED"
    assert report["types"].count("TEXT_MESSAGE_CONTENT") > 1
    assert report["state"] == {"notes": []}


def test_a_second_run_of_the_thread_knows_the_first(client: Client) -> None:
    say(client, "hello")
    report = say(client, "again")
    assert texts(report) == ["You said hello.", "You said again."]


def test_thinking_and_its_signature(client: Client) -> None:
    report = say(client, "think")
    [reasoning] = [item for item in report["messages"] if item["role"] == "reasoning"]
    assert reasoning["content"] == "Let me see what this is."
    assert reasoning["encryptedValue"] == "c2ln"
    assert texts(report) == ["I have thought."]


def test_a_tool_of_the_server(client: Client) -> None:
    report = say(client, "add")
    assert calls(report) == [("add", '{"a":1,"b":2}')]
    assert texts(report, "tool") == ["3"]
    assert texts(report) == ["Adding.", "Got 3."]
    [usage] = report["usage"]
    assert usage["cachedInputTokens"] == 3


def test_parallel_tools(client: Client) -> None:
    report = say(client, "parallel")
    assert calls(report) == [("add", '{"a":1,"b":2}'), ("add", '{"a":3,"b":4}')]
    assert sorted(texts(report, "tool")) == ["3", "7"]


def test_a_failing_tool_tells_no_secret(client: Client) -> None:
    report = say(client, "call break_down")
    [result] = [item for item in report["messages"] if item["role"] == "tool"]
    assert "break_down failed" in result["content"]
    assert "secret" not in result["content"]
    assert result["metadata"] == {"turnlog": {"error": "EXECUTION_ERROR"}}


def test_a_view_progress_and_an_image(client: Client, server: Server, version: int) -> None:
    report = say(client, "call draw")
    kinds = {
        item["activityType"]: item["content"] for item in report["messages"] if item["role"] == "activity"
    }
    assert kinds["tool-progress"]["text"] == "half"
    assert kinds["view"]["view_id"] == "dot"
    [result] = [item for item in report["messages"] if item["role"] == "tool"]
    if version == 0:
        text, url = result["content"].split("\n")
        assert text == "a dot"
        assert server.get("/" + url)[1].startswith(b"\x89PNG")
        return
    assert [part["type"] for part in result["content"]] == ["text", "image"]
    assert result["content"][1]["source"]["mimeType"] == "image/png"


def test_a_citation_is_a_custom_event(client: Client) -> None:
    assert "CUSTOM" in say(client, "cite")["types"]


def test_the_state_of_the_application_is_patched(client: Client) -> None:
    say(client, "note milk")
    report = say(client, "note eggs")
    assert report["state"] == {"notes": ["milk", "eggs"]}
    assert "STATE_DELTA" in report["types"]


def test_a_tool_of_the_page(client: Client, version: int) -> None:
    report = say(client, "call set_color red", tools=[COLOR_TOOL])
    assert calls(report) == [("set_color", '{"color":"red"}')]
    assert len(report["outcome"].get("pendingToolCallIds", ())) == version
    report = clean(client.do("answer", content="it is red now", tools=[COLOR_TOOL]))
    assert [item["role"] for item in report["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert texts(report) == ["Got it is red now."]
    assert report["outcome"] == {"type": "success"}


def test_a_message_in_place_of_an_answer(client: Client) -> None:
    say(client, "call set_color red", tools=[COLOR_TOOL])
    report = say(client, "hello", tools=[COLOR_TOOL])
    assert texts(report) == ["You said hello."]
    [result] = [item for item in report["messages"] if item["role"] == "tool"]
    assert result["metadata"] == {"turnlog": {"error": "CANCELLED"}}


def test_sub_agents(client: Client) -> None:
    report = say(client, "call helper add")
    assert "SUBAGENT_STARTED" in report["types"]
    assert "SUBAGENT_FINISHED" in report["types"]
    tagged = [item for item in report["messages"] if item.get("subagentRunId")]
    assert len({item["subagentRunId"] for item in tagged}) == 1
    assert [item["content"] for item in tagged if item["role"] == "assistant" and "content" in item] == [
        "Adding.",
        "Got 3.",
    ]
    assert texts(report)[-1] == "Got Got 3.."


def test_a_hand_over(client: Client) -> None:
    report = say(client, "call handoff_to_writer hello")
    assert report["types"].count("STEP_STARTED") == 2
    assert report["types"].count("STEP_FINISHED") == 2


@pytest.mark.parametrize(
    ("payload", "result"), [({"approved": True}, "a.txt is deleted"), (False, "said no")]
)
def test_an_approval(client: Client, payload: Any, result: str) -> None:
    report = say(client, "call delete_file a.txt")
    [interrupt] = report["interrupts"]
    assert (interrupt["reason"], interrupt["toolCallId"]) == ("tool_call", interrupt["id"])
    report = clean(client.do("resume", payload=payload))
    assert result in texts(report)[-1]
    assert report["interrupts"] == []


def test_an_approval_under_the_id_of_its_run(client: Client) -> None:
    """As the runtime of CopilotKit does it."""
    say(client, "call delete_file a.txt", runId="run-of-approval")
    report = clean(client.do("resume", payload={"approved": True}, runId="run-of-approval"))
    assert texts(report) == ["Got a.txt is deleted."]


def test_an_approval_of_a_sub_agent_suspends_it(client: Client) -> None:
    report = say(client, "call helper call delete_file b.txt")
    [interrupt] = report["interrupts"]
    assert interrupt["subagentRunId"]
    report = clean(client.do("resume", status="cancelled"))
    assert report["types"].count("SUBAGENT_STARTED") == 1
    assert "said no" in texts(report)[-1]


def test_an_approval_without_a_decision_is_refused(client: Client) -> None:
    say(client, "call delete_file a.txt")
    report = client.do("resume", payload={"ok": 1})
    assert "$.resume[0].payload" in report["failure"]
    report["warnings"].clear()


def test_an_input_and_a_question_that_is_cancelled(client: Client, version: int) -> None:
    report = say(client, "call order coat")
    [interrupt] = report["interrupts"]
    assert (interrupt["reason"], interrupt["message"]) == ("input_required", "Which size?")
    report = clean(client.do("resume", payload="XL"))
    assert texts(report) == ["Got coat in XL."]

    say(client, "call order hat")
    report = clean(client.do("resume", status="cancelled"))
    assert report.get("outcome") == CANCELLED[version]


def test_an_error_of_the_model(client: Client) -> None:
    report = say(client, "fail")
    assert report["error"] == {"message": "The model is away.", "code": "overloaded_error"}
    assert texts(report) == ["Before the failure "]


def test_a_retraction_leaves_no_doubled_text(client: Client, version: int) -> None:
    say(client, "hello")
    report = say(client, f"retry {version}")
    assert "MESSAGES_SNAPSHOT" in report["types"]
    assert texts(report) == ["You said hello.", f"You said retry {version}."]
    assert texts(report, "reasoning") == []


def test_stop(client: Client, gate: Path, version: int) -> None:
    report = say(client, "wait", until="TEXT_MESSAGE_CONTENT", then="stop")
    assert report.get("outcome") == CANCELLED[version]
    assert texts(report)[0].startswith("One two ")


def test_a_silent_turn_gets_heartbeats_that_the_client_ignores(client: Client, gate: Path) -> None:
    client.start("say", text="wait", pings=3)
    assert client.report() == {"step": "pinged"}
    gate.touch()
    assert texts(clean(client.report())) == ["One two three four."]


def test_heartbeats_that_are_data_would_reach_the_client(client: Client, gate: Path, version: int) -> None:
    client.start("say", text="wait", pings=3, spoil=True)
    report = client.report()
    if version == 0:  # it ends the run at once
        assert "invalid_union_discriminator" in report["failure"]
        return
    assert report == {"step": "pinged"}
    gate.touch()
    assert any("heartbeat" in warning for warning in client.report()["warnings"])


def test_attaching_in_mid_run_gives_the_same_text(
    client: Client, server: Server, gate: Path, request: Any
) -> None:
    report = client.do("say", text="wait", until="TEXT_MESSAGE_CONTENT", count=2)
    assert texts(report) == ["One two three"]
    begin(client, server, request.node.name)
    client.start("attach", until="TEXT_MESSAGE_START", then="tell")
    client.report()
    gate.touch()
    report = clean(client.report())
    assert [item["role"] for item in report["messages"]] == ["user", "assistant"]
    assert texts(report) == ["One two three four."]
    assert report["state"] == {"notes": []}


def test_attaching_to_half_a_text_does_not_double_it(client: Client, gate: Path) -> None:
    client.do("say", text="wait", until="TEXT_MESSAGE_CONTENT", count=2)
    client.start("attach", until="TEXT_MESSAGE_START", then="tell")
    client.report()
    gate.touch()
    assert texts(clean(client.report())) == ["One two three four."]


def test_attaching_a_page_that_has_the_messages_changes_none_of_them(client: Client) -> None:
    say(client, "call set_color red", tools=[COLOR_TOOL])
    clean(client.do("answer", content="it is red now", tools=[COLOR_TOOL]))
    say(client, "parallel")
    live = say(client, "call helper add")["messages"]
    attached = clean(client.do("attach"))["messages"]
    assert [without_fields_of_clients(item) for item in attached] == [
        without_fields_of_clients(item) for item in live
    ]


def without_fields_of_clients(message: Any) -> Any:
    return {key: value for key, value in message.items() if key != "metadata"}


def test_attaching_in_mid_run_keeps_the_order_of_the_messages(client: Client, gate: Path) -> None:
    say(client, "hello")
    client.do("say", text="wait", until="TEXT_MESSAGE_CONTENT", count=2)
    client.start("attach", until="TEXT_MESSAGE_START", then="tell")
    client.report()
    gate.touch()
    report = clean(client.report())
    assert [item["content"] for item in report["messages"]] == [
        "hello",
        "You said hello.",
        "wait",
        "One two three four.",
    ]


def test_an_attached_page_keeps_the_file_of_a_message(client: Client, version: int) -> None:
    data = {"type": "data", "value": b64encode(PIXEL).decode(), "mimeType": "image/png"}
    say(client, [{"type": "text", "text": "hello"}, {"type": "image", "source": data}])
    content = clean(client.do("attach"))["messages"][0]["content"]
    if version == 0:
        assert content == "hello\n[image]"
        return
    text, image = content
    assert text == {"type": "text", "text": "hello"}
    assert image["source"]["value"].startswith("api/blobs/")
    assert texts(say(client, content)) == ["You said hello."] * 2
    repeated = clean(client.do("attach"))["messages"][2]["content"]
    assert repeated == content


@pytest.mark.parametrize("thread", ["team/1", "what? 100%", "ü\u2028\U0001f642"])
def test_any_text_is_a_thread_id(client: Client, server: Server, thread: str, version: int) -> None:
    thread = f"{thread} {version}"
    begin(client, server, thread)
    say(client, "call delete_file a.txt")
    begin(client, server, thread)
    assert len(clean(client.do("attach"))["interrupts"]) == 1
    status, _ = server.post(f"/ag-ui/desk/{quote(thread, safe='')}/stop", {})
    assert status == 202


def test_attaching_after_the_end_and_to_a_question(client: Client, server: Server, request: Any) -> None:
    say(client, "note milk")
    live = say(client, "call helper call delete_file c.txt")
    begin(client, server, request.node.name)
    report = clean(client.do("attach"))
    assert report["state"] == {"notes": ["milk"]}
    assert without_ids(report["messages"]) == without_ids(live["messages"])
    assert report["interrupts"] == live["interrupts"]
    report = clean(client.do("resume", payload=True))
    assert texts(report)[-1] == "Got Got c.txt is deleted.."


def without_ids(messages: list[Any]) -> list[Any]:
    """The messages of people have ids of their client, or of the log."""
    return [
        {key: value for key, value in item.items() if item["role"] != "user" or key in ("role", "content")}
        for item in messages
    ]


def test_the_same_run_sent_again_is_not_run_again(client: Client, server: Server, request: Any) -> None:
    first = say(client, "hello", runId="run-1")
    again = clean(client.do("say", runId="run-1"))
    assert texts(again) == texts(first) == ["You said hello."]


def test_a_thread_without_a_run_is_empty(client: Client, server: Server) -> None:
    report = clean(client.do("attach"))
    assert (report["messages"], report["outcome"]) == ([], {"type": "success"})
    assert texts(say(client, "hello")) == ["You said hello."]


def test_an_unknown_session_and_application_are_not_found(server: Server) -> None:
    assert server.get("/ag-ui/desk/sess_nothing")[0] == 404
    assert server.get("/ag-ui/desk/" + "x" * 1000)[0] == 404
    assert server.get("/ag-ui/other/thread")[0] == 404
    assert server.get("/ag-ui/other/capabilities")[0] == 404
    status, capabilities = server.get("/ag-ui/desk/capabilities")
    assert status == 200
    assert capabilities["transport"]["resumable"] is True


def test_a_server_that_is_killed_in_mid_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setenv(GATE_VARIABLE, str(tmp_path / "gate"))
    program = ("ag_ui.mjs", f"ag-ui-{version}")
    with running_client(*program) as client, running(APP, tmp_path) as first:
        begin(client, first, "killed")
        client.start("say", text="wait", until="TEXT_MESSAGE_CONTENT", count=2, then="tell")
        client.report()
        first.kill()
        client.report()
        with running(APP, tmp_path, first.port) as second, running_client(*program) as other:
            begin(other, second, "killed")
            other.start("attach", until="RUN_STARTED", then="tell")
            other.report()
            (tmp_path / "gate").touch()
            report = clean(other.report())
            assert report["outcome"] == {"type": "success"}
            assert texts(report) == ["One two three four."]
            assert texts(say(other, "hello"))[-1] == "You said hello."
