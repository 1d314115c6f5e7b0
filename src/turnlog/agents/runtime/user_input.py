"""What people say to agents, as batches: a message, and the answer to a call that waits. Pure.

A message opens a turn, or goes to the agents that wait: their open questions are answered with `CANCELLED`,
and they go on with the message. An answer has the scope of the call it answers: the page's own call gets its
result, a tool that asked for input gets it, an approval is given or not.
"""

from collections.abc import Callable, Collection, Iterator
from hashlib import sha256
from typing import Any

import msgspec

from turnlog.agents.runtime.approvals import check_decision, format_roles, has_any_role
from turnlog.agents.runtime.turn_loop import TurnEvent, action_values
from turnlog.agents.tools import ok_result
from turnlog.errors import InvalidEvent, NotFound
from turnlog.events import (
    ApprovalDecision,
    Origin,
    Payload,
    Scope,
    ToolResult,
    UiAction,
    UiMessage,
    UnknownPayload,
)
from turnlog.events.ui import InputSubmit
from turnlog.state.tree import Invocation, OpenCall, Tree, build_cancelled_result

REMOTE_ANSWER_PREFIX = "evt_remote_"


def remote_answer_id(session_id: str, agent_id: str | None, call_id: str) -> str:
    """Return the id of the answer that another process gives to a call: the same however often it posts."""
    return (
        REMOTE_ANSWER_PREFIX + sha256(f"remote:{session_id}:{agent_id}:{call_id}".encode()).hexdigest()[:40]
    )


def message_events(tree: Tree, message: UiMessage, trace: str) -> list[TurnEvent]:
    """A message and what it frees in its channel; `trace` is for a new turn."""
    waiting = [tree.open[agent_id] for agent_id in tree.agents_asking_page()]
    waiting = [invocation for invocation in waiting if invocation.scope.channel == message.channel]
    scope = waiting[-1].scope if waiting else Scope(trace_id=trace, channel=message.channel)
    freed = [item for invocation in waiting for item in _cancel_waiting_calls(invocation)]
    return [*freed, TurnEvent(message, scope, "ui")]


def _cancel_waiting_calls(invocation: Invocation) -> Iterator[TurnEvent]:
    for call in invocation.own_calls.values():
        if call.is_waiting or call.is_pending_handoff:
            yield TurnEvent(
                build_cancelled_result(call.call, "The user went on with a message."),
                invocation.scope,
                "system",
            )


def find_waiting_call(tree: Tree, call_id: str) -> tuple[Scope, OpenCall]:
    """A call that somebody outside has to answer, and whose it is."""
    for invocation in tree.open.values():
        call = invocation.calls.get(call_id)
        if call and call.is_waiting:
            return invocation.scope, call
    raise NotFound(f"no call {call_id[:80]} waits for an answer")


def answer_events(tree: Tree, call_id: str, value: Any) -> list[TurnEvent]:
    """The answer to a call that waits: a result, an input (an object), or whether it may run."""
    scope, call = find_waiting_call(tree, call_id)
    if call.approval_request is not None:
        hashed, decision = call.approval_request.args_hash, "approve" if value else "deny"
        given = msgspec.convert(
            {"call_id": call_id, "args_hash": hashed, "decision": decision}, ApprovalDecision
        )
        return [TurnEvent(given, scope, "ui")]
    if call.call.executor == "backend":
        action = InputSubmit(values=value if isinstance(value, dict) else {"value": value})
        return [TurnEvent(UiAction(action=action, call_id=call_id), scope, "ui")]
    return [TurnEvent(ok_result(call.call, value), scope, "ui")]


def checked_answer_events(
    answer: Payload, scope: Scope, call: OpenCall, roles: Collection[str], now_ms: int
) -> list[TurnEvent]:
    """What an answer from outside brings; one that does not fit the call is refused."""
    check = ANSWER_CHECKS[type(answer)]
    if problem := check(answer, call, roles, now_ms):
        raise InvalidEvent(problem, "$.payload")
    # an executor is a tool, though it posts its results as a page does
    origin: Origin = "tool" if isinstance(answer, ToolResult) and call.call.executor == "remote" else "ui"
    items = [TurnEvent(answer, scope, origin)]
    if isinstance(answer, UiAction) and call.call.executor != "backend":
        items.append(TurnEvent(ok_result(call.call, action_values(answer)), scope, "ui"))
    return items


def get_answered_call_id(answer: Payload | UnknownPayload) -> str | None:
    """The call that an event answers, if it is an answer."""
    return getattr(answer, "call_id", None) if type(answer) in ANSWER_CHECKS else None


def _check_result(answer: ToolResult, call: OpenCall, roles: Collection[str], _: int) -> str | None:
    if not has_any_role(call.roles, roles):
        return f"{format_roles(call.roles)} may answer this"
    if answer.kind is not None:
        return "expected no kind: that is for results of the provider"
    if call.call.executor == "backend" or call.approval_request is not None:
        return f"{answer.call_id} is not answered by a result"
    return None if answer.tool == call.call.tool else f"expected a result of {call.call.tool}"


def _check_action(answer: UiAction, call: OpenCall, roles: Collection[str], _: int) -> str | None:
    if not has_any_role(call.roles, roles):
        return f"{format_roles(call.roles)} may answer this"
    return None if call.awaits_page else f"{answer.call_id} is not answered by an action"


def _check_decision(
    answer: ApprovalDecision, call: OpenCall, roles: Collection[str], now_ms: int
) -> str | None:
    if answer.decision == "expired":
        return "expected approve or deny: the time decides what is expired"
    fault = check_decision(call.approval_request, answer, call.call, roles, now_ms)
    void = fault is not None and (fault.code != "DENIED" or answer.decision == "approve")
    return fault.message if fault and void else None


ANSWER_CHECKS: dict[type, Callable[[Any, OpenCall, Collection[str], int], str | None]] = {
    ToolResult: _check_result,
    UiAction: _check_action,
    ApprovalDecision: _check_decision,
}
