"""What is open in a session, as JSON values: for panels and for a look from outside.

Derived from the `Tree` and nothing else. `waits_for` says who has to act on a call: the `page`, a person who
gives an `approval`, a process elsewhere (`remote`), the `agent` that it started, the `provider`, or this side
(`backend`), which also runs what comes before a question to the page.
"""

from typing import Any

from msgspec import to_builtins

from turnlog.state.descriptions import describe_input
from turnlog.state.tree import Invocation, OpenCall, Tree

JsonObject = dict[str, Any]


def build_pending_report(tree: Tree) -> JsonObject:
    """All of it: the agents as a tree, every open call and block, and what waits for its turn."""
    return {
        "agents": pending_agents(tree),
        "calls": pending_calls(tree),
        "blocks": streaming_blocks(tree),
        "queue": pending_turns(tree),
    }


def pending_agents(tree: Tree) -> list[JsonObject]:
    """The open agents, each with those that it called."""
    waiters = tree.waiting_agents()
    nodes = {key: agent_node(invocation, is_waiting=key in waiters) for key, invocation in tree.open.items()}
    roots: list[JsonObject] = []
    for agent_id, invocation in tree.open.items():
        parent = nodes.get(invocation.start.parent_id or "")
        (parent["agents"] if parent else roots).append(nodes[agent_id])
    return roots


def agent_node(invocation: Invocation, *, is_waiting: bool) -> JsonObject:
    """One agent, with nobody below it yet."""
    return {
        **owner_fields(invocation),
        "model": invocation.start.model,
        "via": invocation.start.via,
        "call_id": invocation.start.call_id,
        "depth": invocation.scope.depth or 0,
        "waits": is_waiting,
        "stopped": invocation.stop_requested,
        "steps": invocation.steps,
        "usage": to_builtins(invocation.usage),
        "cost": to_builtins(invocation.cost),
        "agents": [],
    }


def owner_fields(invocation: Invocation) -> JsonObject:
    """Which agent, turn and channel something belongs to."""
    scope = invocation.scope
    return {
        "agent_id": scope.agent_id,
        "agent_name": invocation.start.name,
        "turn": scope.trace_id,
        "channel": scope.channel,
    }


def pending_calls(tree: Tree) -> list[JsonObject]:
    """The calls without a result, and whom they wait for."""
    children = tree.children_by_call()
    found = []
    for agent_id, invocation in tree.open.items():
        for call_id, call in invocation.calls.items():
            child = children.get((agent_id, call_id))
            asked = to_builtins(call.approval_request)
            fields = {"call_id": call_id, "tool": call.call.tool, "args": call.call.args}
            waits = {"waits_for": responsible_party(call, child), "child_id": child, "approval": asked}
            found.append({**owner_fields(invocation), **fields, **waits})
    return found


def responsible_party(call: OpenCall, child: str | None) -> str:
    """Who has to act."""
    if call.approval_request is not None:
        return "approval"
    if call.awaits_page:
        return "page"
    if child is not None:
        return "agent"
    return "backend" if call.is_denied or call.call.executor == "frontend" else call.call.executor


def streaming_blocks(tree: Tree) -> list[JsonObject]:
    """The blocks that are being written, with what there is of them."""
    return [
        {**owner_fields(invocation), "block_id": block_id, "text": "".join(pieces)}
        for invocation in tree.open.values()
        for block_id, pieces in invocation.blocks.items()
    ]


def pending_turns(tree: Tree) -> list[JsonObject]:
    """What waits for its turn, in order."""
    return [
        {
            "turn": trace,
            "channel": opening.scope.channel,
            "text": describe_input("", opening.trigger) if opening.trigger else None,
        }
        for trace, opening in tree.queued_turns.items()
    ]
