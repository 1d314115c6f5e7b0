"""The dialect `ag-ui`: which events become which events of AG-UI 1.0, in a session and in a response."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.written_logs import log, scope, vector_log
from turnlog import events as ev
from turnlog.events import Envelope, Payload, UnknownPayload
from turnlog.events.content import PromptDocument, PromptImage, PromptText, label_files
from turnlog.vocabularies import DIALECTS
from turnlog.wire.dialects.ag_ui import messages as ag_ui_messages
from turnlog.wire.dialects.ag_ui.dialect import AgUi
from turnlog.wire.dialects.ag_ui.messages import ThreadMessages
from turnlog.wire.dialects.ag_ui.writer import AgUiRun
from turnlog.wire.dialects.base import DEFAULT_OPTIONS, DialectOptions, no_history
from turnlog.wire.sse import Decoder

VECTORS = Path(__file__).parents[2] / "vectors" / "ag_ui"
CASES: list[dict[str, Any]] = json.loads((VECTORS / "messages.json").read_text())["cases"]
RUNS: dict[str, Any] = json.loads((VECTORS / "runs.json").read_text())


def decode(messages: list[bytes]) -> list[Any]:
    return [json.loads(message) for message in messages]


def in_response(run: AgUiRun) -> AgUi:
    return AgUi(DEFAULT_OPTIONS, no_history, run)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_vector(case: dict[str, Any]) -> None:
    dialect = AgUi()
    messages = [message for item in vector_log(case["events"]) for message in dialect.convert(*item)]
    assert decode(messages) == case["messages"]
    assert decode(dialect.close()) == case.get("close", [])


def as_version_0(message: Any) -> Any:
    """Return a message as clients before 1.0 take it: they refuse what they do not know."""
    if message["type"] == "RUN_FINISHED":
        message["outcome"].pop("pendingToolCallIds", None)
        if message["outcome"]["type"] == "cancelled":
            del message["outcome"]
    elif message["type"] == "TOOL_CALL_RESULT" and isinstance(message["content"], list):
        texts = [part["text"] for part in message["content"] if part["type"] == "text"]
        sources = [part["source"] for part in message["content"] if part["type"] == "image"]
        urls = [source["value"] for source in sources if source["type"] == "url"]
        message["content"] = "\n".join(texts + urls)
    return message


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_vector_for_clients_before_1(case: dict[str, Any]) -> None:
    dialect = AgUi(DialectOptions(ag_ui="0"))
    messages = [message for item in vector_log(case["events"]) for message in dialect.convert(*item)]
    expected = copy.deepcopy([*case["messages"], *case.get("close", [])])
    assert decode(messages + dialect.close()) == [as_version_0(message) for message in expected]


def test_vectors_have_what_clients_before_1_refuse() -> None:
    messages = [message for case in CASES for message in case["messages"]]
    assert sum(as_version_0(copy.deepcopy(message)) != message for message in messages) >= 3


@pytest.mark.parametrize("run", RUNS["runs"], ids=lambda run: str(run["name"]))
def test_run_vector(run: dict[str, Any]) -> None:
    items = vector_log(RUNS["events"])[: run["upto"]]
    dialect = in_response(AgUiRun("thread-1", "run-1", **run["run"]))
    for item in items[: run["at"]]:
        assert dialect.convert(*item) == []
    messages = dialect.begin()
    for item in items[run["at"] :]:
        messages += dialect.convert(*item)
    assert decode(messages + dialect.close()) == run["messages"]


class Counter:
    """A state that counts messages of the assistant."""

    def __init__(self) -> None:
        self.count = 0

    @property
    def value(self) -> Any:
        return {"count": min(self.count, 2)}

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> bool:
        self.count += isinstance(payload, ev.AssistantMessage)
        return isinstance(payload, ev.AssistantMessage)


def test_the_state_is_sent_whole_and_then_as_patches() -> None:
    said = (ev.AssistantMessage(text="x"), scope("agt_1"))
    items = log(said, said, said)
    dialect = in_response(AgUiRun("t", "r", state=Counter()))
    assert decode(dialect.begin())[1] == {"type": "STATE_SNAPSHOT", "snapshot": {"count": 0}}
    [*_, delta] = decode(dialect.convert(*items[0]))
    assert delta["delta"] == [{"op": "replace", "path": "/count", "value": 1}]

    # an event of another turn changes the state only
    [delta] = decode(dialect.skip(*items[1]))
    assert delta["type"] == "STATE_DELTA"
    assert "STATE_DELTA" not in [message["type"] for message in decode(dialect.convert(*items[2]))]


def test_a_message_of_another_client_keeps_its_id_unless_this_client_has_it() -> None:
    run = AgUiRun("t", "r", own_message="evt_9", messages=ThreadMessages([{"id": "m1", "role": "user"}]))
    dialect = in_response(run)
    dialect.begin()
    agent = scope("agt_1")
    items = log(
        (ev.UiMessage(text="One", client_message_id="m1"), agent),
        (ev.UiMessage(text="Two", client_message_id="m2"), agent),
        (ev.UiMessage(text="Three", client_message_id="m2"), agent),
    )
    starts = [decode(dialect.convert(*item))[0] for item in items]
    assert [start["messageId"] for start in starts] == ["evt_0", "m2", "evt_2"]


def test_the_results_of_a_retracted_call_are_removed_with_it() -> None:
    dialect = in_response(AgUiRun("t", "r"))
    dialect.begin()
    agent = scope("agt_1")
    items = log(
        (ev.AgentStart(name="Lead", via="prompt"), agent),
        (ev.BlockStart(block_id="b1", kind="tool_call", call_id="c1", tool="add"), agent),
        (ev.ToolCall(call_id="c1", tool="add", args={}, block_id="b1"), agent),
        (ev.ToolResult(call_id="c1", tool="add", ok=True, result=3), agent),
        (ev.BlockRetract(block_ids=("b1",), reason="busy"), agent),
    )
    *_, snapshot = [message for item in items for message in decode(dialect.convert(*item))]
    assert (snapshot["type"], snapshot["messages"]) == ("MESSAGES_SNAPSHOT", [])


def test_a_result_that_was_removed_is_not_in_a_snapshot_beside_its_call() -> None:
    run = AgUiRun("t", "r")
    dialect = in_response(run)
    dialect.begin()
    agent = scope("agt_1")
    items = log(
        (ev.AgentStart(name="Lead", via="prompt"), agent),
        (ev.BlockStart(block_id="b1", kind="tool_call", call_id="c1", tool="add"), agent),
        (ev.ToolCall(call_id="c1", tool="add", args={}, block_id="b1"), agent),
        (ev.ToolResult(call_id="c1", tool="add", ok=True, result=3), agent),
    )
    for item in items:
        dialect.convert(*item)
    call, result = decode([*map(bytes, run.messages.to_json(with_activities=True))])
    assert (call["role"], result["role"]) == ("assistant", "tool")
    run.messages.remove([result["id"]])
    assert decode([*map(bytes, run.messages.to_json(with_activities=True))]) == [call]


def test_a_snapshot_has_the_files_of_a_message_as_parts() -> None:
    site = "https://example.org"
    files = (
        PromptText(text="Look"),
        PromptImage(src=f"{site}/a.png", media_type="image/png"),
        PromptDocument(src=f"{site}/b", title="plan.pdf"),
        PromptDocument(src=f"{site}/c"),
    )
    shown = label_files("Look", files)
    for text, first in ((shown, [{"type": "text", "text": "Look"}]), (shown.removeprefix("Look\n"), [])):
        dialect = in_response(AgUiRun("t", "r", sends_messages=True))
        for item in log((ev.UiMessage(text=text, content=files), scope("agt_1"))):
            dialect.convert(*item)
        [message] = decode(dialect.begin())[1]["messages"]
        assert message["content"] == [
            *first,
            {
                "type": "image",
                "source": {"type": "url", "value": "https://example.org/a.png", "mimeType": "image/png"},
            },
            {
                "type": "document",
                "source": {"type": "url", "value": f"{site}/b"},
                "metadata": {"filename": "plan.pdf"},
            },
            {"type": "document", "source": {"type": "url", "value": f"{site}/c"}},
        ]


def test_the_messages_that_a_client_has_stay_in_a_retraction() -> None:
    earlier = {"id": "m1", "role": "user", "content": "Hi", "x": 1}
    run = AgUiRun("t", "r", own_message="evt_9", messages=ThreadMessages([earlier]))
    dialect = in_response(run)
    dialect.begin()
    agent = scope("agt_1")
    view = ev.AssistantView(view=ev.View(kind="a2ui.v1", view_id="v", tree={}))
    items = log(
        (ev.AssistantThinking(text="Hm.", block_id="b0"), agent),
        (view, agent),
        (ev.BlockStart(block_id="b1", kind="text"), agent),
        (ev.BlockDelta(block_id="b1", text="Wrong"), agent),
        (ev.BlockRetract(block_ids=("b0", "b1"), reason="busy"), agent),
    )
    events = [message for item in items for message in dialect.convert(*item)]
    snapshot = decode(events)[-1]
    assert snapshot["messages"] == [
        {"id": "m1", "role": "user", "content": "Hi", "x": 1},
        {"id": "b0", "role": "reasoning", "content": ""},
    ]


def test_a_snapshot_has_the_newest_messages_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ag_ui_messages, "MAX_SNAPSHOT_BYTES", 250)
    dialect = in_response(AgUiRun("t", "r", sends_messages=True))
    for item in log(*[(ev.AssistantMessage(text=f"{number:050}"), scope("agt_1")) for number in range(9)]):
        dialect.convert(*item)
    messages = decode(dialect.begin())[1]["messages"]
    assert [int(message["content"]) for message in messages] == [7, 8]


def test_a_message_of_another_member_in_a_turn_is_sent_and_an_own_one_is_not() -> None:
    dialect = in_response(AgUiRun("t", "r", own_message="evt_0"))
    dialect.begin()
    message = (ev.UiMessage(text="Hi"), scope("agt_1"))
    own, other = log(message, message)
    assert dialect.convert(*own) == []
    assert decode(dialect.convert(*other))[0]["role"] == "user"


def test_a_stream_that_the_server_ends_early_ends_with_an_error() -> None:
    [message] = Decoder().feed(DIALECTS.request("ag-ui").framing.cut)
    assert json.loads(message.data)["code"] == "stream_ended"


AGENT = scope("agt_1")
START = (ev.AgentStart(name="Lead", via="prompt"), AGENT)
USAGE = (ev.AgentUsage(model="m", usage=ev.Usage(input_tokens=1, output_tokens=1)), AGENT)


def page_call(call_id: str = "c1", executor: Any = "frontend") -> ev.ToolCall:
    return ev.ToolCall(call_id=call_id, tool="ask", args={}, executor=executor)


def page_question(call_id: str = "c1") -> ev.ToolAwait:
    return ev.ToolAwait(calls=(ev.AwaitedCall(call_id=call_id, tool="ask", args={}),))


def test_a_response_is_finished_when_nothing_runs_and_no_turn_waits() -> None:
    dialect = in_response(AgUiRun("t", "r"))
    assert dialect.is_finished
    assert dialect.idle
    stop = (ev.UiCommand(command=ev.ui.Stop()), ev.Scope())
    items = log(
        (ev.UiMessage(text="Hi"), ev.Scope(trace_id="tr_1")),
        START,
        (page_call(), AGENT),
        USAGE,
        (page_question(), AGENT),
        stop,
    )
    states = []
    for item in items:
        dialect.convert(*item)
        states.append(dialect.is_finished)
    assert states == [False, False, False, False, True, False]
    assert not dialect.idle


def test_what_no_agent_ends_and_what_an_agent_leaves_open() -> None:
    dialect = AgUi()
    end = (ev.AgentEnd(stop_reason="end_turn"), AGENT)
    items = log(
        end,
        START,
        (ev.BlockStart(block_id="b1", kind="text"), AGENT),
        (ev.BlockStart(block_id="b2", kind="text"), AGENT),
        (ev.BlockRetract(block_ids=("b2",), reason="busy"), AGENT),
        end,
    )
    kinds = [[message["type"] for message in decode(dialect.convert(*item))] for item in items]
    assert kinds[0] == []
    assert kinds[4] == ["TEXT_MESSAGE_END", "CUSTOM"]
    assert kinds[5] == ["TEXT_MESSAGE_END", "STEP_FINISHED", "RUN_FINISHED"]


def test_a_sub_agent_that_waits_for_the_page_is_suspended_without_interrupts() -> None:
    child = scope("agt_2", depth=1)
    dialect = AgUi()
    items = log(
        START,
        (ev.ToolCall(call_id="c0", tool="helper", args={}), AGENT),
        USAGE,
        (ev.AgentStart(name="Helper", via="call", parent_id="agt_1", call_id="c0"), child),
        (page_call(), child),
        (USAGE[0], child),
        (page_question(), child),
    )
    messages = [message for item in items for message in decode(dialect.convert(*item))]
    assert messages[-3]["outcome"] == {"type": "suspended"}
    assert messages[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["c1"]}


def test_a_question_whose_call_id_another_agent_has_used() -> None:
    other = scope("agt_2")
    dialect = AgUi()
    items = log(
        START,
        (page_call(executor="backend"), AGENT),
        USAGE,
        (ev.AgentStart(name="Other", via="prompt"), other),
        (page_question(), AGENT),
        (ev.ToolResult(call_id="c1", tool="ask", ok=True), other),
        (ev.AgentEnd(stop_reason="end_turn"), other),
    )
    messages = [message for item in items for message in decode(dialect.convert(*item))]
    [interrupt] = messages[-1]["outcome"]["interrupts"]
    assert interrupt == {"id": "c1", "reason": "input_required", "toolCallId": "c1"}


def test_a_run_that_begins_within_a_block_ignores_what_its_client_does_not_have() -> None:
    run = AgUiRun("t", "r", own_message="evt_9")
    dialect = in_response(run)
    [start, first, *rest] = log(
        START,
        (ev.BlockStart(block_id="b0", kind="thinking"), AGENT),
        (ev.BlockDelta(block_id="b0", text="Hm."), AGENT),
        (ev.AssistantThinking(text="Hm.", signature="c2ln", block_id="b0"), AGENT),
    )
    dialect.convert(*start)
    dialect.convert(*first)
    dialect.begin()
    for item in rest:
        dialect.convert(*item)
    assert run.messages.to_json(with_activities=True) == []


def test_a_snapshot_has_the_last_form_of_an_activity_and_the_metadata_of_calls() -> None:
    dialect = in_response(AgUiRun("t", "r", sends_messages=True))
    items = log(
        (ev.ToolCall(call_id="c1", tool="search", args={}, executor="provider"), AGENT),
        (ev.ToolProgress(call_id="c1", text="half"), AGENT),
        (ev.ToolProgress(call_id="c1", text="all"), AGENT),
    )
    for item in items:
        dialect.convert(*item)
    call, activity = decode(dialect.begin())[1]["messages"]
    assert call["toolCalls"][0]["metadata"] == {"turnlog": {"executor": "provider"}}
    assert activity["content"] == {"toolCallId": "c1", "text": "all"}


def test_attaching_for_clients_before_1_sends_open_messages_and_waiting_calls_from_their_start() -> None:
    items = log(
        START,
        (ev.AssistantMessage(text="Done."), AGENT),
        (ev.BlockStart(block_id="b1", kind="text"), AGENT),
        (ev.BlockDelta(block_id="b1", text="Hel"), AGENT),
        (ev.BlockStart(block_id="b2", kind="text"), AGENT),
        (ev.ToolCall(call_id="c1", tool="page", executor="frontend", args={"a": 1}), AGENT),
        (ev.ToolAwait(calls=(ev.AwaitedCall(call_id="c1", tool="page", args={"a": 1}),)), AGENT),
        (ev.BlockDelta(block_id="b1", text="lo"), AGENT),
    )
    dialect = AgUi(DialectOptions(ag_ui="0"), no_history, AgUiRun("t", "r", sends_messages=True))
    for item in items[:-1]:
        dialect.convert(*item)
    _, snapshot, *reopened = decode(dialect.begin())
    assert [message["content"] for message in snapshot["messages"]] == ["Done."]
    assert [(event["type"], event.get("delta")) for event in reopened] == [
        ("STEP_STARTED", None),
        ("TEXT_MESSAGE_START", None),
        ("TEXT_MESSAGE_CONTENT", "Hel"),
        ("TEXT_MESSAGE_START", None),
        ("TOOL_CALL_START", None),
        ("TOOL_CALL_ARGS", '{"a":1}'),
        ("TOOL_CALL_END", None),
    ]
    [delta] = decode(dialect.convert(*items[-1]))
    assert delta == {"type": "TEXT_MESSAGE_CONTENT", "messageId": "b1", "delta": "lo"}
