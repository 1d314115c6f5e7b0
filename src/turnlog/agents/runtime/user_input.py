"""Build the events of a user's message, and of an answer to a call that waits. Pure.

A message opens a turn, or resumes the agents that wait in its channel: their open questions get the result
`CANCELLED`, and they continue with the message. An answer has the scope of its call: a call of the page gets
its result, a tool that asked for input gets the input, an approval gets a decision.
"""

from collections.abc import Callable, Collection, Iterator
from hashlib import sha256
from typing import Any

from turnlog.agents.runtime.approvals import check_decision, format_roles, has_any_role
from turnlog.agents.runtime.turn_loop import action_values
from turnlog.agents.tools import ok_result
from turnlog.errors import InvalidEvent, NotFound
from turnlog.events import (
    ApprovalDecision,
    EventDraft,
    Origin,
    Payload,
    Scope,
    ToolResult,
    UiAction,
    UiMessage,
    UnknownPayload,
)
from turnlog.events.ui import InputSubmit
from turnlog.state.tree import Invocation, OpenCall, Tree

REMOTE_ANSWER_PREFIX = "evt_remote_"
CANCELLED_BY_MESSAGE = "The user went on with a message."


def remote_answer_id(session_id: str, agent_id: str | None, call_id: str) -> str:
    """Return the id of a remote executor's answer to a call: the same however often it is posted."""
    digest = sha256(f"remote:{session_id}:{agent_id}:{call_id}".encode()).hexdigest()
    return REMOTE_ANSWER_PREFIX + digest[:40]


def message_events(
    tree: Tree, message: UiMessage, trace: str, answered: Collection[str] = ()
) -> list[EventDraft]:
    """Build the results that a message cancels in its channel, then the message.

    `trace` is used if the message opens a new turn. `answered` are the calls that are answered before it in
    the same batch: an agent whose waiting calls are all among them waits no more.
    """
    scope = Scope(trace_id=trace, channel=message.channel)
    items: list[EventDraft] = []
    for agent_id in tree.agents_asking_page():
        invocation = tree.open[agent_id]
        waiting = {call_id for call_id, call in invocation.calls.items() if call.is_waiting}
        if invocation.scope.channel == message.channel and not waiting.issubset(answered):
            items += _cancel_waiting_calls(invocation, answered)
            scope = invocation.scope
    return [*items, EventDraft(message, scope, "ui")]


def _cancel_waiting_calls(invocation: Invocation, answered: Collection[str]) -> Iterator[EventDraft]:
    for call_id, call in invocation.own_calls.items():
        if call_id not in answered and (call.is_waiting or call.is_pending_handoff):
            result = ToolResult.cancelled(call.call, CANCELLED_BY_MESSAGE)
            yield EventDraft(result, invocation.scope, "system")


def find_waiting_call(tree: Tree, call_id: str, args_hash: str | None = None) -> tuple[Scope, OpenCall]:
    """Return a call that waits for an answer, and the scope of its agent. Raise `NotFound` without one.

    Two agents may use the same call id. Of their calls, the one whose approval has the `args_hash` counts,
    or else the first.
    """
    found: tuple[Scope, OpenCall] | None = None
    for invocation in tree.open.values():
        call = invocation.calls.get(call_id)
        if call is None or not call.is_waiting:
            continue
        request = call.approval_request
        if args_hash is not None and request is not None and request.args_hash == args_hash:
            return invocation.scope, call
        found = found or (invocation.scope, call)
    if found is None:
        raise NotFound(f"no call {call_id[:80]} waits for an answer")
    return found


def answer_events(tree: Tree, call_id: str, value: Any) -> list[EventDraft]:
    """Build the answer to a call that waits.

    `value` is the result of a page's call, the input (an object) for a tool, or whether a call is approved.
    """
    scope, call = find_waiting_call(tree, call_id)
    if call.approval_request is not None:
        decision = ApprovalDecision(
            call_id=call_id,
            args_hash=call.approval_request.args_hash,
            decision="approve" if value else "deny",
        )
        return [EventDraft(decision, scope, "ui")]
    if call.call.executor == "backend":
        values = value if isinstance(value, dict) else {"value": value}
        action = UiAction(action=InputSubmit(values=values), call_id=call_id)
        return [EventDraft(action, scope, "ui")]
    return [EventDraft(ok_result(call.call, value), scope, "ui")]


def checked_answer_events(
    answer: Payload, scope: Scope, call: OpenCall, roles: Collection[str], now_ms: int
) -> list[EventDraft]:
    """Build the events of a posted answer. Raise `InvalidEvent` if it does not fit the call."""
    check = ANSWER_CHECKS[type(answer)]
    problem = check(answer, call, roles, now_ms)
    if problem is not None:
        raise InvalidEvent(problem, "$.payload")

    # a remote executor posts its results as a page does, but they are results of a tool
    is_remote_result = isinstance(answer, ToolResult) and call.call.executor == "remote"
    origin: Origin = "tool" if is_remote_result else "ui"
    items = [EventDraft(answer, scope, origin)]
    if isinstance(answer, UiAction) and call.call.executor != "backend":
        items.append(EventDraft(ok_result(call.call, action_values(answer)), scope, "ui"))
    return items


def get_answered_call_id(answer: Payload | UnknownPayload) -> str | None:
    return getattr(answer, "call_id", None) if type(answer) in ANSWER_CHECKS else None


def _check_result(answer: ToolResult, call: OpenCall, roles: Collection[str], _: int) -> str | None:
    if not has_any_role(call.roles, roles):
        return f"{format_roles(call.roles)} may answer this"
    if answer.kind is not None:
        return "expected no kind: only results of the provider have one"
    if call.call.executor == "backend" or call.approval_request is not None:
        return f"{answer.call_id} is not answered by a result"
    if answer.tool != call.call.tool:
        return f"expected a result of {call.call.tool}"
    return None


def _check_action(answer: UiAction, call: OpenCall, roles: Collection[str], _: int) -> str | None:
    if not has_any_role(call.roles, roles):
        return f"{format_roles(call.roles)} may answer this"
    if not call.awaits_page:
        return f"{answer.call_id} is not answered by an action"
    return None


def _check_decision(
    answer: ApprovalDecision, call: OpenCall, roles: Collection[str], now_ms: int
) -> str | None:
    if answer.decision == "expired":
        return "expected approve or deny: only the server may decide that an approval has expired"
    error = check_decision(call.approval_request, answer, call.call, roles, now_ms)
    if error is None:
        return None
    # DENIED is the expected outcome of a deny
    if error.code == "DENIED" and answer.decision == "deny":
        return None
    return error.message


ANSWER_CHECKS: dict[type, Callable[[Any, OpenCall, Collection[str], int], str | None]] = {
    ToolResult: _check_result,
    UiAction: _check_action,
    ApprovalDecision: _check_decision,
}
