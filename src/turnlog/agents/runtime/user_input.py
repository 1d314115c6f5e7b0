"""What people say to agents, as batches: a message, and the answer to a call that waits. Pure.

A message opens a turn, or goes to the agents that wait: their open questions are answered with `CANCELLED`,
and they go on with the message. An answer has the scope of the call it answers: the page's own call gets its
result, a tool that asked for input gets it, an approval is given or not.
"""

from collections.abc import Callable, Collection, Iterator
from hashlib import sha256
from typing import Any

import msgspec

from turnlog.agents.runtime.approvals import entitled, judge, named
from turnlog.agents.runtime.loop_inputs import values_of
from turnlog.agents.runtime.turn_loop import Item
from turnlog.agents.tools import succeeded
from turnlog.errors import InvalidEvent, NotFound
from turnlog.events import ApprovalDecision, Origin, Payload, Scope, ToolResult, UiAction, UiMessage, Unknown
from turnlog.events.ui import InputSubmit
from turnlog.state.tree import Invocation, OpenCall, Tree, cancelled

REMOTE_ANSWER = "evt_remote_"


def answer_id(session_id: str, agent_id: str | None, call_id: str) -> str:
    """Return the id of the answer that another process gives to a call: the same however often it posts."""
    return REMOTE_ANSWER + sha256(f"remote:{session_id}:{agent_id}:{call_id}".encode()).hexdigest()[:40]


def message_batch(tree: Tree, message: UiMessage, trace: str) -> list[Item]:
    """A message and what it frees in its channel; `trace` is for a new turn."""
    waiting = [tree.open[agent_id] for agent_id in tree.waiting()]
    waiting = [invocation for invocation in waiting if invocation.scope.channel == message.channel]
    scope = waiting[-1].scope if waiting else Scope(trace_id=trace, channel=message.channel)
    freed = [item for invocation in waiting for item in _freed(invocation)]
    return [*freed, Item(message, scope, "ui")]


def _freed(invocation: Invocation) -> Iterator[Item]:
    for call in invocation.own_calls.values():
        if call.waits or call.held:
            yield Item(cancelled(call.call, "The user went on with a message."), invocation.scope, "system")


def waiting_call(tree: Tree, call_id: str) -> tuple[Scope, OpenCall]:
    """A call that somebody outside has to answer, and whose it is."""
    for invocation in tree.open.values():
        call = invocation.calls.get(call_id)
        if call and call.waits:
            return invocation.scope, call
    raise NotFound(f"no call {call_id[:80]} waits for an answer")


def answer_items(tree: Tree, call_id: str, value: Any) -> list[Item]:
    """The answer to a call that waits: a result, an input (an object), or whether it may run."""
    scope, call = waiting_call(tree, call_id)
    if call.asked is not None:
        hashed, decision = call.asked.args_hash, "approve" if value else "deny"
        given = msgspec.convert(
            {"call_id": call_id, "args_hash": hashed, "decision": decision}, ApprovalDecision
        )
        return [Item(given, scope, "ui")]
    if call.call.executor == "backend":
        action = InputSubmit(values=value if isinstance(value, dict) else {"value": value})
        return [Item(UiAction(action=action, call_id=call_id), scope, "ui")]
    return [Item(succeeded(call.call, value), scope, "ui")]


def answered(
    answer: Payload, scope: Scope, call: OpenCall, roles: Collection[str], now_ms: int
) -> list[Item]:
    """What an answer from outside brings; one that does not fit the call is refused."""
    check = CHECKS[type(answer)]
    if problem := check(answer, call, roles, now_ms):
        raise InvalidEvent(problem, "$.payload")
    # an executor is a tool, though it posts its results as a page does
    origin: Origin = "tool" if isinstance(answer, ToolResult) and call.call.executor == "remote" else "ui"
    items = [Item(answer, scope, origin)]
    if isinstance(answer, UiAction) and call.call.executor != "backend":
        items.append(Item(succeeded(call.call, values_of(answer)), scope, "ui"))
    return items


def call_of(answer: Payload | Unknown) -> str | None:
    """The call that an event answers, if it is an answer."""
    return getattr(answer, "call_id", None) if type(answer) in CHECKS else None


def _result(answer: ToolResult, call: OpenCall, roles: Collection[str], _: int) -> str | None:
    if not entitled(call.roles, roles):
        return f"{named(call.roles)} may answer this"
    if answer.kind is not None:
        return "expected no kind: that is for results of the provider"
    if call.call.executor == "backend" or call.asked is not None:
        return f"{answer.call_id} is not answered by a result"
    return None if answer.tool == call.call.tool else f"expected a result of {call.call.tool}"


def _action(answer: UiAction, call: OpenCall, roles: Collection[str], _: int) -> str | None:
    if not entitled(call.roles, roles):
        return f"{named(call.roles)} may answer this"
    return None if call.awaited else f"{answer.call_id} is not answered by an action"


def _decision(answer: ApprovalDecision, call: OpenCall, roles: Collection[str], now_ms: int) -> str | None:
    if answer.decision == "expired":
        return "expected approve or deny: the time decides what is expired"
    fault = judge(call.asked, answer, call.call, roles, now_ms)
    void = fault is not None and (fault.code != "DENIED" or answer.decision == "approve")
    return fault.message if fault and void else None


CHECKS: dict[type, Callable[[Any, OpenCall, Collection[str], int], str | None]] = {
    ToolResult: _result,
    UiAction: _action,
    ApprovalDecision: _decision,
}
