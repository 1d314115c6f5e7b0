"""What is open in a session, as JSON values: for panels and for a look from outside.

Derived from the `Tree` and nothing else. `waits_for` says who has to act on a call: the `page`, a person who
gives an `approval`, a process elsewhere (`remote`), the `agent` that it started, the `provider`, or this side
(`backend`), which also runs what comes before a question to the page.
"""

from typing import Any

from msgspec import to_builtins

from turnlog.state.descriptions import narrated
from turnlog.state.tree import Invocation, OpenCall, Tree

Value = dict[str, Any]


def pending(tree: Tree) -> Value:
    """All of it: the agents as a tree, every open call and block, and what waits for its turn."""
    return {"agents": agents(tree), "calls": calls(tree), "blocks": blocks(tree), "queue": queue(tree)}


def agents(tree: Tree) -> list[Value]:
    """The open agents, each with those that it called."""
    waiters = tree.waiters()
    nodes = {key: node(invocation, waits=key in waiters) for key, invocation in tree.open.items()}
    roots: list[Value] = []
    for agent_id, invocation in tree.open.items():
        parent = nodes.get(invocation.start.parent_id or "")
        (parent["agents"] if parent else roots).append(nodes[agent_id])
    return roots


def node(invocation: Invocation, *, waits: bool) -> Value:
    """One agent, with nobody below it yet."""
    return {
        **whose(invocation),
        "model": invocation.start.model,
        "via": invocation.start.via,
        "call_id": invocation.start.call_id,
        "depth": invocation.scope.depth or 0,
        "waits": waits,
        "stopped": invocation.stopped,
        "steps": invocation.steps,
        "usage": to_builtins(invocation.usage),
        "cost": to_builtins(invocation.cost),
        "agents": [],
    }


def whose(invocation: Invocation) -> Value:
    """Which agent, turn and channel something belongs to."""
    scope = invocation.scope
    return {
        "agent_id": scope.agent_id,
        "agent_name": invocation.start.name,
        "turn": scope.trace_id,
        "channel": scope.channel,
    }


def calls(tree: Tree) -> list[Value]:
    """The calls without a result, and whom they wait for."""
    children = tree.children()
    found = []
    for agent_id, invocation in tree.open.items():
        for call_id, call in invocation.calls.items():
            child = children.get((agent_id, call_id))
            asked = to_builtins(call.asked)
            fields = {"call_id": call_id, "tool": call.call.tool, "args": call.call.args}
            waits = {"waits_for": waits_for(call, child), "child_id": child, "approval": asked}
            found.append({**whose(invocation), **fields, **waits})
    return found


def waits_for(call: OpenCall, child: str | None) -> str:
    """Who has to act."""
    if call.asked is not None:
        return "approval"
    if call.awaited:
        return "page"
    if child is not None:
        return "agent"
    return "backend" if call.refused or call.call.executor == "frontend" else call.call.executor


def blocks(tree: Tree) -> list[Value]:
    """The blocks that are being written, with what there is of them."""
    return [
        {**whose(invocation), "block_id": block_id, "text": "".join(pieces)}
        for invocation in tree.open.values()
        for block_id, pieces in invocation.blocks.items()
    ]


def queue(tree: Tree) -> list[Value]:
    """What waits for its turn, in order."""
    return [
        {
            "turn": trace,
            "channel": opening.scope.channel,
            "text": narrated("", opening.what) if opening.what else None,
        }
        for trace, opening in tree.queue.items()
    ]
