"""What people say to agents, as batches, and what is refused (protocol section 4)."""

from typing import Any

import pytest

from tests.support.turn_loop import CHILD, ROOT, Table, call, running
from turnlog.agents.runtime.user_input import (
    answer_events,
    checked_answer_events,
    find_waiting_call,
    get_answered_call_id,
    message_events,
)
from turnlog.errors import InvalidEvent, NotFound
from turnlog.events import (
    AgentStart,
    ApprovalDecision,
    ApprovalRequest,
    AwaitedCall,
    EventDraft,
    Origin,
    Payload,
    Scope,
    ToolAwait,
    ToolCall,
    ToolResult,
    UiAction,
    UiMessage,
)
from turnlog.events.ui import FormSubmit, InputSubmit

HELLO = UiMessage(text="Hello")
PAGE = call("confirm", executor="frontend", args={"question": "Go?"})
ASKS = call("inquire", args={"question": "Which?"})
REMOVE = call("remove", args={"what": "weed"})
WEIGH = call("weigh", executor="remote", args={"what": "grass"})
PASS = call("handoff_to_writer", args={"prompt": "Write"})
HASH = REMOVE.args_hash
NOW_MS = 1_767_875_696_000


def waiting(*calls: ToolCall) -> Table:
    """A guide that waits for these."""
    table = running()
    table.calls(*calls)
    for item in calls:
        if item is REMOVE:
            table.feed(
                ApprovalRequest(call_id="remove", tool="remove", args_hash=HASH, risk="high", roles=("boss",))
            )
        elif item in (PAGE, ASKS):
            table.feed(ToolAwait(calls=(AwaitedCall(call_id=item.call_id, tool=item.tool, args=item.args),)))
    return table


def test_a_message_opens_a_turn_of_its_own() -> None:
    for table in (Table(), running()):
        assert message_events(table.loop.tree, HELLO, "tr_9") == [
            EventDraft(HELLO, Scope(trace_id="tr_9"), "ui")
        ]


def test_a_message_during_a_wait_cancels_what_is_open_and_goes_to_who_waits() -> None:
    table = waiting(PAGE, WEIGH, REMOVE, PASS)
    *results, message = message_events(table.loop.tree, HELLO, "tr_9")
    assert message == EventDraft(HELLO, ROOT, "ui")
    assert [item.payload.call_id for item in results] == ["confirm", "weigh", "remove", "handoff_to_writer"]  # type: ignore[attr-defined]
    assert {(item.scope.agent_id, item.origin) for item in results} == {("agt_root", "system")}


def test_a_message_goes_to_the_one_who_waits_below_and_leaves_its_caller_alone() -> None:
    table = running()
    table.calls(call("scout"), PAGE)
    table.feed(AgentStart(name="Scout", via="call", parent_id="agt_root", call_id="scout"), CHILD)
    table.calls(WEIGH, at=CHILD)
    table.feed(ToolAwait(calls=(AwaitedCall(call_id="confirm", tool="confirm", args={}),)))
    first, second, message = message_events(table.loop.tree, HELLO, "tr_9")
    assert [item.scope.agent_id for item in (first, second, message)] == [
        "agt_root",
        "agt_child",
        "agt_child",
    ]


def given(item: ToolCall, value: object) -> Payload:
    [answer] = answer_events(waiting(item).loop.tree, item.call_id, value)
    assert (answer.scope, answer.origin) == (ROOT, "ui")
    return answer.payload


def test_an_answer_has_the_form_of_its_call() -> None:
    assert given(PAGE, True) == ToolResult(call_id="confirm", tool="confirm", ok=True, result=True)
    assert given(WEIGH, "1 kg") == ToolResult(call_id="weigh", tool="weigh", ok=True, result="1 kg")
    assert given(ASKS, {"a": 1}) == UiAction(action=InputSubmit(values={"a": 1}), call_id="inquire")
    assert given(ASKS, "green") == UiAction(action=InputSubmit(values={"value": "green"}), call_id="inquire")
    assert given(REMOVE, True) == decided("approve")
    assert given(REMOVE, False) == decided("deny")


def test_what_does_not_wait_is_not_answered() -> None:
    for tree in (Table().loop.tree, running().loop.tree, waiting(call("look")).loop.tree):
        with pytest.raises(NotFound, match="no call look waits"):
            answer_events(tree, "look", True)


def decided(decision: Any, **fields: Any) -> ApprovalDecision:
    return ApprovalDecision(**{"call_id": "remove", "args_hash": HASH, "decision": decision} | fields)


def posted(item: ToolCall, answer: Payload, *roles: str) -> list[EventDraft]:
    table = waiting(item)
    return checked_answer_events(answer, *find_waiting_call(table.loop.tree, item.call_id), roles, NOW_MS)


def result(call_id: str, **fields: Any) -> ToolResult:
    named: dict[str, Any] = {"call_id": call_id, "tool": call_id, "ok": True}
    return ToolResult(**named | fields)


def test_an_answer_that_fits_is_taken() -> None:
    for item, answer in (
        (PAGE, result("confirm")),
        (WEIGH, result("weigh")),
        (ASKS, UiAction(action=InputSubmit(values={}), call_id="inquire")),
        (REMOVE, decided("approve")),
        (REMOVE, decided("deny", notes="no")),
    ):
        origin: Origin = "tool" if item is WEIGH else "ui"  # another process answers for a remote tool
        assert posted(item, answer, "boss") == [EventDraft(answer, ROOT, origin)]


def test_an_action_on_a_call_of_the_page_brings_its_result() -> None:
    form = UiAction(action=FormSubmit(form_id="f", values={"go": True}), call_id="confirm")
    assert posted(PAGE, form) == [
        EventDraft(form, ROOT, "ui"),
        EventDraft(result("confirm", result={"go": True}), ROOT, "ui"),
    ]


@pytest.mark.parametrize(
    ("item", "answer", "why"),
    [
        (PAGE, result("confirm", kind="search_result"), "expected no kind"),
        (PAGE, result("confirm", tool="other"), "expected a result of confirm"),
        (ASKS, result("inquire"), "inquire is not answered by a result"),
        (REMOVE, result("remove"), "remove is not answered by a result"),
        (REMOVE, UiAction(action=InputSubmit(values={}), call_id="remove"), "not answered by an action"),
        (REMOVE, decided("expired"), "only the server may decide"),
        (REMOVE, decided("approve", args_hash="other"), "other arguments"),
        (PAGE, ApprovalDecision(call_id="confirm", args_hash="h", decision="approve"), "no approval"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(item: ToolCall, answer: Payload, why: str) -> None:
    with pytest.raises(InvalidEvent, match=why):
        posted(item, answer, "boss")


def test_only_who_is_entitled_decides() -> None:
    with pytest.raises(InvalidEvent, match="the role boss may decide"):
        posted(REMOVE, decided("approve"), "clerk")


def test_the_call_that_an_event_answers() -> None:
    assert get_answered_call_id(result("confirm")) == "confirm"
    assert get_answered_call_id(UiAction(action=InputSubmit(values={}))) is None
    assert get_answered_call_id(HELLO) is None
