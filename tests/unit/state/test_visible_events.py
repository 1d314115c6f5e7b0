"""What a member without internals sees of each event, and what stays hidden."""

from typing import Any, ClassVar

import pytest
from msgspec import Raw, json, structs

from turnlog.events import (
    CATALOG,
    AgentEnd,
    AgentHandoff,
    AgentStart,
    AgentUsage,
    ApprovalDecision,
    ApprovalRequest,
    AssistantFiles,
    AssistantMessage,
    AssistantThinking,
    BlockDelta,
    BlockEnd,
    BlockStart,
    Envelope,
    Payload,
    SessionClose,
    SessionError,
    SessionMember,
    SessionTitle,
    ToolAwait,
    ToolCall,
    ToolResult,
    UiAction,
    UiCommand,
    UiMessage,
    UnknownPayload,
    Usage,
)
from turnlog.events.content import PromptImage
from turnlog.events.tool import AwaitedCall, ErrorInfo
from turnlog.events.ui import ClientTool, InputSubmit, Stop, Summon
from turnlog.state.visible_events import HIDDEN_TOOL, PROJECTIONS, EventView, VisibleEvents

CONVERSATION = EventView(
    shows_internals=False, app_types=frozenset({"case.promise"}), roles=frozenset({"guest"})
)


class Promise(Payload, frozen=True, kw_only=True):
    EXAMPLE: ClassVar = {"day": "Monday"}

    day: str


def envelope(type: str = "x", agent: str | None = "agt_1", depth: int | None = 0) -> Envelope:
    return Envelope(
        type=type,
        id="evt_1",
        seq=1,
        ts="2026-01-01T00:00:00.000Z",
        session_id="sess_1",
        trace_id="tr_1",
        agent_id=agent,
        depth=depth,
        origin="model",
        payload=Raw(b"{}"),
    )


class Reader:
    """A reader without internals, and what it gets."""

    def __init__(self, view: EventView = CONVERSATION) -> None:
        self._events = VisibleEvents(view)

    def see(self, payload: Payload | UnknownPayload, type: str = "", **more: Any) -> Payload | None:
        name = type or getattr(payload, "TYPE", "")
        return self._events.project(envelope(name, **more), payload)


def test_every_core_type_is_decided_and_unknown_types_are_hidden() -> None:
    hidden = {kind.name for kind in CATALOG if kind.payload_class not in PROJECTIONS}
    assert hidden >= {"agent.usage", "parse.reject", "process.start", "assistant.thinking", "tool.progress"}
    reader = Reader()
    for kind in CATALOG:
        if kind.name in hidden:
            payload = json.decode(json.encode(kind.payload_class.EXAMPLE), type=kind.payload_class)
            assert reader.see(payload) is None, kind.name
    assert reader.see(UnknownPayload(Raw(b"{}"))) is None


def test_events_of_the_application_are_those_that_the_view_names() -> None:
    promise = Promise(day="Monday")
    assert Reader().see(promise, "case.promise") is promise
    assert Reader().see(promise, "case.other") is None
    everything = EventView()
    assert Reader(everything).see(promise, "case.other") is promise
    assert Reader(everything).see(AssistantThinking(text="hm")) == AssistantThinking(text="hm")
    assert everything.shows_all
    assert not CONVERSATION.shows_all


def test_a_message_has_no_tools_and_no_trace_context() -> None:
    tool = ClientTool(name="pick", parameters={"type": "object"})
    image = PromptImage(src="api/blobs/x")
    message = UiMessage(
        text="hi", tools=(tool,), content=(image,), traceparent=f"00-{'a' * 32}-{'b' * 16}-01"
    )
    assert Reader().see(message) == UiMessage(text="hi", content=(image,))


def test_a_stop_is_shown_and_other_commands_are_not() -> None:
    stop = UiCommand(command=Stop())
    assert Reader().see(stop) is stop
    assert Reader().see(UiCommand(command=Summon())) is None


def test_titles_closes_and_actions_are_shown_as_they_are() -> None:
    title = SessionTitle(title="A trip")
    assert Reader().see(title) is title
    close = SessionClose(by="ada", reason="Booked.")
    assert Reader().see(close) is close


def test_members_and_errors_lose_their_internals() -> None:
    member = SessionMember(principal="bob", roles=("guest",), name="Bob", invite_id="inv_1")
    assert Reader().see(member) == SessionMember(principal="bob", roles=("guest",), name="Bob")
    error = SessionError(code="overloaded", message="Later.", provider_message="account 7")
    assert Reader().see(error) == SessionError(code="overloaded", message="Later.")


def test_an_agent_shows_its_name_and_the_message_that_it_answers() -> None:
    prompt = '[It followed: {"type":"x"}]\nWhere is it?\n[The user acted: {"type":"y"}]'
    start = AgentStart(name="Clerk", via="prompt", model="m", tools=("t",), prompt=prompt, source_session="s")
    assert Reader().see(start) == AgentStart(name="Clerk", via="prompt", prompt="Where is it?")
    assert Reader().see(AgentStart(name="Clerk", via="prompt")) == AgentStart(name="Clerk", via="prompt")
    called = AgentStart(name="Child", via="call", parent_id="agt_1", call_id="c", prompt="secret")
    expected = AgentStart(name="Child", via="call", parent_id="agt_1", call_id="c")
    assert Reader().see(called, depth=1) == expected


def test_the_end_of_an_agent_has_no_numbers_and_ends_what_it_left_open() -> None:
    reader = Reader()
    reader.see(BlockStart(block_id="b", kind="text"))
    reader.see(BlockStart(block_id="b", kind="text"), agent="agt_2")
    reader.see(ToolCall(call_id="c", tool="t", args={}, executor="frontend"))
    end = AgentEnd(stop_reason="end_turn", steps=2, usage=Usage(input_tokens=1, output_tokens=1), result="r")
    assert reader.see(end) == AgentEnd(stop_reason="end_turn")
    assert reader.see(BlockDelta(block_id="b", text="x")) is None
    assert reader.see(BlockDelta(block_id="b", text="x"), agent="agt_2") is not None
    result = reader.see(ToolResult(call_id="c", tool="t", ok=True, result=1))
    assert isinstance(result, ToolResult)
    assert result.result is None


@pytest.mark.parametrize(
    "payload",
    [AssistantMessage(text="hi"), AssistantFiles(files=()), AgentHandoff(to="B", to_agent_id="agt_2")],
)
def test_what_a_called_agent_writes_is_hidden(payload: Payload) -> None:
    assert Reader().see(payload) is payload
    assert Reader().see(payload, depth=1) is None
    assert Reader().see(AgentUsage(model="m", usage=Usage(input_tokens=1, output_tokens=1))) is None


def test_only_text_blocks_of_a_root_agent_are_shown() -> None:
    for kind, depth, is_shown in (("text", 0, True), ("text", 1, False), ("thinking", 0, False)):
        reader = Reader()
        payloads = [
            BlockStart(block_id="b", kind=kind),  # type: ignore[arg-type]
            BlockDelta(block_id="b", text="x"),
            BlockEnd(block_id="b", status="aborted", text="x"),
        ]
        assert [reader.see(payload, depth=depth) is payload for payload in payloads] == [is_shown] * 3
        assert reader.see(payloads[1], depth=depth) is None


def test_a_call_of_the_page_is_whole_and_any_other_has_no_name_and_no_arguments() -> None:
    reader = Reader()
    page_call = ToolCall(call_id="p", tool="pick", args={"a": 1}, executor="frontend", extra={"x": 1})
    assert reader.see(page_call) == ToolCall(call_id="p", tool="pick", args={"a": 1}, executor="frontend")
    answer = ToolResult(call_id="p", tool="pick", ok=True, result=7, extra={"x": 1})
    assert reader.see(answer) == ToolResult(call_id="p", tool="pick", ok=True, result=7)
    assert reader.see(ToolCall(call_id="c", tool="secret", args={"a": 1})) == ToolCall(
        call_id="c", tool=HIDDEN_TOOL, args={}
    )
    failure = ToolResult(call_id="c", tool="secret", ok=False, error=ErrorInfo(code="TIMEOUT", message="db7"))
    masked = ToolResult(
        call_id="c", tool=HIDDEN_TOOL, ok=False, error=ErrorInfo(code="TIMEOUT", message="TIMEOUT")
    )
    assert reader.see(failure) == masked


def test_a_question_is_shown_to_the_roles_that_it_is_for() -> None:
    own = AwaitedCall(call_id="a", tool="ask", args={"q": 1}, roles=("guest",))
    other = AwaitedCall(call_id="b", tool="ask", args={"q": 2}, roles=("clerk",))
    assert Reader().see(ToolAwait(calls=(own, other))) == ToolAwait(calls=(own,))
    assert Reader().see(ToolAwait(calls=(other,))) is None


def test_a_call_of_the_page_for_other_roles_shows_neither_arguments_nor_result() -> None:
    reader = Reader(CONVERSATION._replace(hidden_tools=frozenset({"pick"})))
    call = ToolCall(call_id="p", tool="pick", args={"a": 1}, executor="frontend")
    assert reader.see(call) == ToolCall(call_id="p", tool=HIDDEN_TOOL, args={}, executor="frontend")
    answer = ToolResult(call_id="p", tool="pick", ok=True, result=7)
    assert reader.see(answer) == ToolResult(call_id="p", tool=HIDDEN_TOOL, ok=True)


def test_an_answer_is_shown_to_readers_who_got_the_question() -> None:
    answer = UiAction(action=InputSubmit(values={"iban": "DE1"}), call_id="a")
    asked = AwaitedCall(call_id="a", tool="ask", args={"q": 1})
    for roles, is_shown in (((), True), (("clerk",), False)):
        reader = Reader()
        reader.see(ToolCall(call_id="a", tool="ask", args={}))
        assert reader.see(answer) is None
        reader.see(ToolAwait(calls=(structs.replace(asked, roles=roles),)))
        assert (reader.see(answer) is answer) is is_shown
    on_view = UiAction(action=InputSubmit(values={}), view_id="v")
    assert Reader().see(on_view) is on_view


def test_an_approval_has_the_arguments_and_its_decision_follows() -> None:
    reader = Reader()
    request = ApprovalRequest(call_id="c", tool="pay", args_hash="h", risk="money")
    decision = ApprovalDecision(call_id="c", args_hash="h", decision="approve")
    assert reader.see(decision) is None
    assert reader.see(request) == request
    reader.see(ToolCall(call_id="c", tool="pay", args={"sum": 7}))
    assert reader.see(decision) is None
    shown = reader.see(request)
    assert isinstance(shown, ApprovalRequest)
    assert shown.args == {"sum": 7}
    assert reader.see(decision) is decision
    hidden = ApprovalRequest(call_id="c", tool="pay", args_hash="h", risk="money", roles=("owner",))
    assert Reader().see(hidden) is None
