"""Messages of the Claude Agent SDK as lines of its program, and permissions that come with them."""

from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    HookEventMessage,
    ResultMessage,
    ServerToolUseBlock,
    StreamEvent,
    SystemMessage,
    TextBlock,
    ToolPermissionContext,
    ToolUseBlock,
    UserMessage,
)

from tests.support.claude_vectors import assert_lawful, counting
from turnlog.events import AgentUsage, Cost, EventDraft, ParseReject, ToolCall, Usage
from turnlog.parse import AgentEventBuilder, AgentInfo
from turnlog.parse.claude.results import TurnEnd
from turnlog.parse.claude.sdk_messages import ClaudeSdkTranslator, to_line


class Turn:
    """A turn that a host has started, and the translator of its messages."""

    def __init__(self) -> None:
        self.builder = AgentEventBuilder(counting())
        self.root = self.builder.start(AgentInfo("Root"), "tr_1")
        self.translator = ClaudeSdkTranslator(self.builder, self.root)

    def end(self) -> list[EventDraft]:
        self.builder.end(self.root)
        drafts = self.builder.take_output()
        assert_lawful(drafts)
        return drafts


def payloads(drafts: list[EventDraft], payload_class: type[Any]) -> list[Any]:
    return [draft.payload for draft in drafts if isinstance(draft.payload, payload_class)]


def make_result(**fields: Any) -> ResultMessage:
    numbers = {"duration_ms": 1, "duration_api_ms": 1, "num_turns": 1}
    return ResultMessage(**{"subtype": "success", "is_error": False, "session_id": "s", **numbers, **fields})


def make_events(*events: dict[str, Any]) -> list[StreamEvent]:
    return [StreamEvent(uuid=f"u{index}", session_id="s", event=event) for index, event in enumerate(events)]


def test_classes_and_blocks_that_have_no_line_are_dropped() -> None:
    assert to_line(object()) is None
    assert to_line(HookEventMessage(subtype="hook_started", hook_event_name="Stop", data={})) is None
    unknown: Any = object()
    message = AssistantMessage(content=[unknown, TextBlock(text="Hi")], model="m")
    line = to_line(message)
    assert line is not None
    assert line["message"]["content"] == [{"type": "text", "text": "Hi"}]
    turn = Turn()
    turn.translator.feed(object())
    assert len(turn.end()) == 2


def test_content_that_is_a_text_stays_one() -> None:
    line = to_line(UserMessage(content="Hi"))
    assert line == {"type": "user", "message": {"role": "user", "content": "Hi"}}


def test_system_message_is_the_line_that_it_has() -> None:
    assert to_line(SystemMessage(subtype="init", data={"type": "system"})) == {"type": "system"}
    broken: Any = None
    assert to_line(SystemMessage(subtype="init", data=broken)) == {}


def test_call_of_the_provider_is_its_own() -> None:
    turn = Turn()
    block = ServerToolUseBlock(id="srv_1", name="web_search", input={"query": "grass"})
    turn.translator.feed(AssistantMessage(content=[block], model="m", message_id="msg_1"))
    [call] = payloads(turn.end(), ToolCall)
    assert (call.executor, call.tool) == ("provider", "web_search")


def test_message_with_values_that_no_event_can_carry_leaves_a_reject() -> None:
    turn = Turn()
    turn.translator.feed(StreamEvent(uuid="u", session_id="s", event={"type": "ping", "value": object()}))
    [reject] = payloads(turn.end(), ParseReject)
    assert reject.reason == "bad_line"


def test_permission_before_the_stream_of_its_call_adds_the_call_once() -> None:
    turn = Turn()
    context = ToolPermissionContext(tool_use_id="call_1", description="It wants to run.")
    assert not turn.translator.knows_call("call_1")
    requested = turn.translator.open_call("Bash", {"command": "ls"}, context)
    assert requested is not None
    assert (requested.agent, requested.reason) == (turn.root, "It wants to run.")
    block = {"type": "tool_use", "id": "call_1", "name": "Bash", "input": {}}
    piece = {"type": "input_json_delta", "partial_json": '{"command": "ls"}'}
    for event in make_events(
        {"type": "message_start", "message": {"id": "msg_1", "model": "m"}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": piece},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_stop"},
    ):
        turn.translator.feed(event)
    assert turn.translator.knows_call("call_1")
    [call] = payloads(turn.end(), ToolCall)
    assert (call.args, call.executor) == ({"command": "ls"}, "runtime")


def test_permission_says_which_arguments_run_if_they_are_not_those_of_the_call() -> None:
    turn = Turn()
    block = ToolUseBlock(id="call_1", name="Bash", input={"command": "rm a"})
    turn.translator.feed(AssistantMessage(content=[block], model="m", message_id="msg_1"))
    context = ToolPermissionContext(tool_use_id="call_1", decision_reason="a rule")
    requested = turn.translator.open_call("Bash", {"command": "rm a"}, context)
    assert requested is not None
    assert requested.reason == "a rule"
    changed = turn.translator.open_call("Bash", {"command": "rm -i a"}, context)
    assert changed is not None
    assert (changed.reason, changed.args) == (
        'It will run with {"command":"rm -i a"}',
        {"command": "rm -i a"},
    )


def test_permission_for_a_call_without_an_id_has_no_call() -> None:
    assert Turn().translator.open_call("Bash", {}, ToolPermissionContext()) is None


def test_results_of_one_turn_are_added_up_and_the_last_one_says_why() -> None:
    assert Turn().translator.end is None
    turn = Turn()
    totals = {"m": {"inputTokens": 5, "outputTokens": 2}}
    turn.translator.feed(make_result(uuid="r1", total_cost_usd=0.25, model_usage=totals))
    turn.translator.feed(make_result(uuid="r1", total_cost_usd=0.25, model_usage=totals))
    turn.translator.feed(make_result(uuid="r2", total_cost_usd=0.75, structured_output={"city": "Oslo"}))
    end = turn.translator.end
    assert end is not None
    assert (end.cost, end.steps) == (Cost(total_cost=0.75), 2)
    assert turn.translator.result == '{"city":"Oslo"}'
    [usage] = payloads(turn.end(), AgentUsage)
    assert usage.usage == Usage(input_tokens=5, output_tokens=2)


def test_what_one_of_two_ends_does_not_know_is_that_of_the_other() -> None:
    known = TurnEnd("error", steps=1)
    assert known.followed_by(TurnEnd("end_turn")) == TurnEnd("end_turn", steps=1)
    assert TurnEnd("end_turn").followed_by(known) == known
