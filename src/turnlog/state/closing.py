"""The events that close what is open in a session, after a crash, a stop or a timeout.

Input: a `Tree`, a stop reason and a message for people. Output: events that are not yet built, children
before their parents. Their ids derive from what they close, so two recoveries write the same event once.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Literal

from msgspec import structs

from turnlog.events import BlockEnd, EventDraft, ToolCall, ToolResult
from turnlog.events.agent import StopReason
from turnlog.state.tree import Invocation, Tree

# The reason that people read. `error` here is a process that ended, never a model that failed.
INTERRUPTION_REASONS: dict[StopReason, Literal["stopped", "timeout", "interrupted"]] = {
    "cancelled": "stopped",
    "timeout": "timeout",
    "error": "interrupted",
}


def closing_id(kind: str, key: str) -> str:
    """Return the id of the event that closes something: the same for every process that closes it."""
    return "evt_" + sha256(f"{kind}:{key}".encode()).hexdigest()[:40]


def build_closing_events(
    tree: Tree, reason: StopReason, message: str, *, keep_waiting: bool
) -> list[EventDraft]:
    """Return the events that close what is open. With `keep_waiting`, agents that wait stay open.

    A caller that only waits for agents that stay open stays open too. Its other open calls are answered.
    """
    closing_events: list[EventDraft] = []
    agents_kept_open: set[str] = set()
    children = tree.children_by_call()

    # A child starts after its parent, so the reverse order closes children first.
    for agent_id, invocation in reversed(tree.open.items()):
        waiting_calls: set[str] = set()
        if keep_waiting:
            for call_id, call in invocation.calls.items():
                if call.is_waiting or children.get((agent_id, call_id)) in agents_kept_open:
                    waiting_calls.add(call_id)

        calls_kept_open: set[str] = set()
        if waiting_calls:
            agents_kept_open.add(agent_id)
            calls_kept_open = waiting_calls | _calls_that_follow(invocation)

        closing_events += _close_blocks(invocation, reason)
        for call_id, call in invocation.calls.items():
            if call_id not in calls_kept_open:
                closing_events.append(_cancel_call(invocation, call.call, message))
        if not calls_kept_open:
            closing_events += _close_agent(tree, invocation, reason, message)

    # A call may be cancelled twice: by its own agent and by the agent that it started.
    return list({event.id: event for event in closing_events}.values())


def _calls_that_follow(invocation: Invocation) -> set[str]:
    return {
        call_id
        for call_id, call in invocation.calls.items()
        if call.is_pending_handoff or call.call.executor == "provider"
    }


def _close_blocks(invocation: Invocation, reason: StopReason) -> Iterator[EventDraft]:
    for block_id, pieces in invocation.blocks.items():
        end = BlockEnd(
            block_id=block_id,
            status="aborted",
            text="".join(pieces),
            reason=INTERRUPTION_REASONS.get(reason),
        )
        event_id = closing_id("block", f"{invocation.scope.agent_id}:{block_id}")
        yield EventDraft(end, invocation.scope, "system", event_id)


def _close_agent(
    tree: Tree, invocation: Invocation, reason: StopReason, message: str
) -> Iterator[EventDraft]:
    end = structs.replace(invocation.build_end(reason), reason=INTERRUPTION_REASONS.get(reason))
    yield EventDraft(end, invocation.scope, "system", closing_id("agent", invocation.agent_id))

    parent = tree.open.get(invocation.start.parent_id or "")
    if parent is not None:
        call = parent.calls.get(invocation.start.call_id or "")
        if call is not None:
            yield _cancel_call(parent, call.call, message)


def _cancel_call(invocation: Invocation, call: ToolCall, message: str) -> EventDraft:
    event_id = closing_id("call", f"{invocation.scope.agent_id}:{call.call_id}")
    return EventDraft(ToolResult.cancelled(call, message), invocation.scope, "system", event_id)
