"""The dialect `ai-sdk`: which events become which parts, for clients 5, 6 and 7."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.written_logs import log, scope, vector_log
from turnlog import events as ev
from turnlog.events.content import PromptDocument, PromptImage, PromptText
from turnlog.vocabularies import DIALECTS
from turnlog.wire.dialects.ai_sdk.dialect import AiSdk
from turnlog.wire.dialects.ai_sdk.messages import ChatMessages
from turnlog.wire.dialects.ai_sdk.parts import finish_reason
from turnlog.wire.dialects.ai_sdk.writer import AiSdkRun
from turnlog.wire.dialects.base import DEFAULT_OPTIONS, DONE, DialectOptions, no_history
from turnlog.wire.sse import Decoder

VECTORS = Path(__file__).parents[2] / "vectors"
CASES: list[dict[str, Any]] = json.loads((VECTORS / "ai_sdk" / "messages.json").read_text())["cases"]
RUNS: list[dict[str, Any]] = json.loads((VECTORS / "ai_sdk" / "runs.json").read_text())["runs"]
EVENTS: list[Any] = json.loads((VECTORS / "ag_ui" / "runs.json").read_text())["events"]
NEW_PARTS = {
    "6": {"tool-approval-request", "tool-output-denied"},
    "7": {"reset-step"},
}
AGENT = scope("agt_1")
CALL = ev.ToolCall(call_id="c1", tool="ask", args={}, executor="frontend")
START = (ev.AgentStart(name="Lead", via="prompt"), AGENT)


def options(version: str) -> DialectOptions:
    return DialectOptions(ai_sdk=version)  # type: ignore[arg-type]


def decode(messages: list[bytes]) -> list[Any]:
    return [json.loads(message) for message in messages]


@pytest.mark.parametrize("version", ["5", "6", "7"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_vector(case: dict[str, Any], version: str) -> None:
    dialect = AiSdk(options(version))
    messages = [message for item in vector_log(case["events"]) for message in dialect.convert(*item)]
    *end, done = dialect.close()
    assert done == DONE
    assert decode(messages + end) == case["messages"].get(version, case["messages"]["5"])


@pytest.mark.parametrize("run", RUNS, ids=lambda run: str(run["name"]))
def test_run_vector(run: dict[str, Any]) -> None:
    items = vector_log(EVENTS)[: run["upto"]]
    dialect = AiSdk(options(run["version"]), no_history, AiSdkRun(**run["run"]))
    for item in items[: run["at"]]:
        assert dialect.convert(*item) == []
        assert dialect.skip(*item) == []
    messages = dialect.begin()
    for item in items[run["at"] :]:
        messages += dialect.convert(*item)
    *end, _ = dialect.close()
    assert decode(messages + end) == run["messages"]
    assert dialect.is_finished is dialect.idle is (run["upto"] is None)


@pytest.mark.parametrize("version", ["5", "6"])
def test_an_older_client_gets_no_part_that_it_does_not_know(version: str) -> None:
    unknown = set[str]().union(*[kinds for since, kinds in NEW_PARTS.items() if since > version])
    for case in CASES:
        messages = case["messages"].get(version, case["messages"]["5"])
        assert not unknown & {message["type"] for message in messages}


def test_the_clients_own_message_begins_another_message_within_a_turn() -> None:
    dialect = AiSdk(DEFAULT_OPTIONS, no_history, AiSdkRun(own_message="evt_3"))
    items = log(
        START,
        (CALL, AGENT),
        (
            ev.ToolResult(
                call_id="c1", tool="ask", ok=False, error=ev.ErrorInfo(code="CANCELLED", message="x")
            ),
            AGENT,
        ),
        (ev.UiMessage(text="Never mind"), AGENT),
        (ev.AssistantMessage(text="Good."), AGENT),
        (ev.UiMessage(text="Of another member"), AGENT),
    )
    for item in items[:2]:
        assert dialect.convert(*item) == []
    assert dialect.begin() == []
    assert dialect.convert(*items[2]) == []
    [start] = decode(dialect.convert(*items[3]))
    assert start["type"] == "start"
    assert decode(dialect.convert(*items[4]))[0] == {"type": "start-step"}
    assert dialect.convert(*items[5]) == []


def test_a_message_of_a_person_ends_the_message_of_a_session() -> None:
    dialect = AiSdk()
    first = [message for item in log(START) for message in decode(dialect.convert(*item))]
    second = decode(dialect.convert(*log(START, (ev.UiMessage(text="Wait"), AGENT))[1]))
    assert [message["type"] for message in first] == ["start", "start-step"]
    assert [message["type"] for message in second] == ["finish-step", "finish"]


def test_a_stream_that_the_server_ends_early_ends_with_an_error() -> None:
    framing = DIALECTS.request("ai-sdk").framing
    error, done = Decoder().feed(framing.cut)
    assert json.loads(error.data)["type"] == "error"
    assert done.data == "[DONE]"
    assert (b"x-vercel-ai-ui-message-stream", b"v1") in framing.headers


def test_the_end_of_an_agent_that_never_started_says_nothing() -> None:
    [item] = log((ev.AgentEnd(stop_reason="end_turn"), AGENT))
    assert AiSdk().convert(*item) == []


def test_a_reason_without_an_end_is_another() -> None:
    assert finish_reason(None, is_waiting=False) == "other"


def reduce(version: str, events: list[Any]) -> Any:
    dialect = AiSdk(options(version))
    chat = ChatMessages()
    for item in vector_log(events):
        for message in dialect.convert(*item):
            chat.apply(json.loads(message))
    return chat.messages


@pytest.mark.parametrize("version", ["5", "6", "7"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_messages_of_a_chat_have_each_id_once_and_no_part_that_was_retracted(
    case: dict[str, Any], version: str
) -> None:
    messages = reduce(version, case["events"])
    assert len({message["id"] for message in messages}) == len(messages)
    retracted = {key for event in case["events"] for key in event["payload"].get("block_ids", ())}
    texts = [part["text"] for message in messages for part in message["parts"] if part["type"] == "text"]
    if retracted:
        assert not [text for text in texts if "Wrong" in text]


def test_a_message_of_a_person_and_a_part_that_is_not_known() -> None:
    chat = ChatMessages()
    chat.add_user_message("m1", "Hi")
    chat.apply({"type": "start", "messageId": "m2"})
    chat.apply({"type": "abort"})
    assert chat.messages == [
        {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]},
        {"id": "m2", "role": "assistant", "parts": []},
    ]


def test_files_of_a_message_are_parts_and_those_without_a_type_are_labels() -> None:
    image = PromptImage(src="api/blobs/x", media_type="image/png", title="plan.png")
    document = PromptDocument(src="api/blobs/y", media_type="text/plain")
    chat = ChatMessages()
    chat.add_user_message("m1", "Look.", (PromptText(text="Look."), image))
    chat.add_user_message("m2", "[document]", (document,))
    chat.add_user_message("m3", "[image]", (PromptImage(src="https://a.example/b.png"),))
    file = {"type": "file", "mediaType": "image/png", "url": "api/blobs/x", "filename": "plan.png"}
    assert [message["parts"] for message in chat.messages] == [
        [{"type": "text", "text": "Look."}, file],
        [{"type": "file", "mediaType": "text/plain", "url": "api/blobs/y"}],
        [{"type": "text", "text": "[image]"}],
    ]
