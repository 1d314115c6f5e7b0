"""The events that close what is open in a session, after a crash, a stop or a timeout.

Input: a `Tree`, a stop reason and a message for people. Output: events that are not yet built, children
before their parents. Their ids derive from what they close, so two recoveries write the same event once.
`build_interruption_events` closes only what a process was doing, so that the next one can continue the turn.
"""

from collections.abc import Callable, Collection, Iterator
from hashlib import sha256
from typing import Literal

from msgspec import structs

from turnlog.events import BlockEnd, BlockRetract, EventDraft, ToolCall, ToolResult
from turnlog.events.agent import StopReason
from turnlog.state.tree import Invocation, OpenCall, Tree, restrict_to_turns

# The reason that people read. `error` here is a process that ended, never a model that failed.
INTERRUPTION_REASONS: dict[StopReason, Literal["stopped", "timeout", "interrupted"]] = {
    "cancelled": "stopped",
    "timeout": "timeout",
    "error": "interrupted",
}


def closing_id(kind: str, key: str) -> str:
    """Return the id of the event that closes something: the same for every process that closes it."""
    return "evt_" + sha256(f"{kind}:{key}".encode()).hexdigest()[:40]


INTERRUPTED = "interrupted"  # the reason of a retraction: its process ended before the message was complete


def build_interruption_events(
    tree: Tree, is_interrupted: Callable[[Invocation, OpenCall], bool], message: str
) -> list[EventDraft]:
    """Return the events after which another process can continue all turns: their agents stay open.

    Completions that are not complete are retracted. Calls that `is_interrupted` selects are cancelled.
    """
    events: list[EventDraft] = []
    for agent_id, invocation in reversed(tree.open.items()):
        events += _close_blocks(invocation, "error")
        block_ids = tuple(invocation.step_blocks)
        if block_ids:
            retract_id = closing_id("retract", f"{agent_id}:{block_ids[-1]}")
            retraction = BlockRetract(block_ids=block_ids, reason=INTERRUPTED)
            events.append(EventDraft(retraction, invocation.scope, "system", retract_id))
        for call in invocation.calls.values():
            if call.call.block_id not in block_ids and is_interrupted(invocation, call):
                # The agent continues, and its model may use the id of a call again in a later step.
                key = f"{agent_id}:{call.call.call_id}:{invocation.steps}"
                result = ToolResult.cancelled(call.call, message)
                events.append(EventDraft(result, invocation.scope, "system", closing_id("call", key)))
    return events


def build_closing_events(
    tree: Tree, reason: StopReason, message: str, *, keep_waiting: bool, kept_agents: Collection[str] = ()
) -> list[EventDraft]:
    """Return the events that close what is open. With `keep_waiting`, agents that wait stay open.

    `kept_agents` stay open, too. A caller that only waits for agents that stay open stays open as well. Its
    other open calls are answered. The agents of a paused runtime stay open with all their calls: the runtime
    runs them when it goes on.
    """
    closing_events: list[EventDraft] = []
    agents_kept_open = tree.paused_agents() if keep_waiting else set()
    paused_agents = frozenset(agents_kept_open)
    children = tree.children_by_call()

    # A child starts after its parent, so the reverse order closes children first.
    for agent_id, invocation in reversed(tree.open.items()):
        if agent_id in kept_agents:
            agents_kept_open.add(agent_id)
            continue
        if agent_id in paused_agents:
            closing_events += _close_blocks(invocation, reason)
            continue

        calls_kept_open: set[str] = set()
        if keep_waiting:
            children_kept = {
                call_id
                for (parent, call_id), key in children.items()
                if parent == agent_id and key in agents_kept_open
            }
            calls_kept_open = _calls_kept_open(invocation, children_kept)
        if calls_kept_open:
            agents_kept_open.add(agent_id)

        closing_events += _close_blocks(invocation, reason)
        for call_id, call in invocation.calls.items():
            if call_id not in calls_kept_open:
                closing_events.append(_cancel_call(invocation, call.call, message))
        if not calls_kept_open:
            closing_events += _close_agent(tree, invocation, reason, message)

    # A call may be cancelled twice: by its own agent and by the agent that it started.
    return list({event.id: event for event in closing_events}.values())


def build_recording_closings(tree: Tree, message: str) -> list[EventDraft]:
    """Return the events that close the turns of agents that another process recorded and did not end."""
    traces = {agent.scope.trace_id for agent in tree.open.values() if agent.start.recorder is not None}
    return build_closing_events(restrict_to_turns(tree, traces), "error", message, keep_waiting=False)


def _calls_kept_open(invocation: Invocation, children_kept: Collection[str | None]) -> set[str]:
    """Return the calls that wait, and if there are any, those that follow them."""
    waiting = {
        call_id for call_id, call in invocation.calls.items() if call.is_waiting or call_id in children_kept
    }
    if not waiting:
        return waiting
    following = {
        call_id
        for call_id, call in invocation.calls.items()
        if call.is_pending_handoff or call.call.executor == "provider"
    }
    return waiting | following


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
