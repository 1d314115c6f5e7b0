"""What is open in a session, as JSON values: for panels, the API and `turnlog state`.

Input: a `Tree`, nothing else. `waits_for` names the party that must act on a call: the `page`, a person who
gives an `approval`, another process (`remote`), the `agent` that the call started, the `provider`, the
`runtime` of the agent, or this process (`backend`), which also runs what precedes a question to the page.
"""

from typing import Any

from msgspec import to_builtins

from turnlog.events import UiMessage
from turnlog.state.descriptions import describe_input
from turnlog.state.tree import Invocation, OpenCall, Tree
from turnlog.state.visible_events import EventView

JsonObject = dict[str, Any]


def build_pending_report(tree: Tree) -> JsonObject:
    return {
        "agents": pending_agents(tree),
        "calls": pending_calls(tree),
        "blocks": streaming_blocks(tree),
        "queue": pending_turns(tree),
    }


def build_question_report(tree: Tree, view: EventView) -> JsonObject:
    """Return what a member without internals sees: who works, the questions to it, and waiting messages.

    What a block has so far is not in it: a reader of the stream gets the texts.
    """
    waiting = tree.waiting_agents()
    agents = []
    questions = []
    for agent_id, invocation in tree.open.items():
        depth = invocation.scope.depth or 0
        agents.append({**owner_fields(invocation), "depth": depth, "waits": agent_id in waiting})
        for call_id, call in invocation.calls.items():
            party = responsible_party(call, None)
            roles = call.approval_request.roles if call.approval_request else call.roles
            if party in ("approval", "page") and view.is_asked(tuple(roles)):
                question = {"call_id": call_id, "tool": call.call.tool, "args": call.call.args}
                approval = to_builtins(call.approval_request)
                questions.append(
                    {**owner_fields(invocation), **question, "waits_for": party, "approval": approval}
                )
    queued = tree.queued_turns
    turns = [turn for turn in pending_turns(tree) if isinstance(queued[turn["turn"]].trigger, UiMessage)]
    return {"agents": agents, "calls": questions, "blocks": [], "queue": turns}


def pending_agents(tree: Tree) -> list[JsonObject]:
    waiting = tree.waiting_agents()
    nodes = {key: agent_node(invocation, is_waiting=key in waiting) for key, invocation in tree.open.items()}

    roots: list[JsonObject] = []
    for agent_id, invocation in tree.open.items():
        parent = nodes.get(invocation.start.parent_id or "")
        siblings = parent["agents"] if parent else roots
        siblings.append(nodes[agent_id])
    return roots


def agent_node(invocation: Invocation, *, is_waiting: bool) -> JsonObject:
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
    scope = invocation.scope
    return {
        "agent_id": scope.agent_id,
        "agent_name": invocation.start.name,
        "turn": scope.trace_id,
        "channel": scope.channel,
    }


def pending_calls(tree: Tree) -> list[JsonObject]:
    children = tree.children_by_call()
    calls = []
    for agent_id, invocation in tree.open.items():
        for call_id, call in invocation.calls.items():
            child_id = children.get((agent_id, call_id))
            calls.append(
                {
                    **owner_fields(invocation),
                    "call_id": call_id,
                    "tool": call.call.tool,
                    "args": call.call.args,
                    "waits_for": responsible_party(call, child_id),
                    "child_id": child_id,
                    "approval": to_builtins(call.approval_request),
                }
            )
    return calls


def responsible_party(call: OpenCall, child_id: str | None) -> str:
    if call.approval_request is not None:
        return "approval"
    if call.awaits_page:
        return "page"
    if child_id is not None:
        return "agent"
    if call.is_denied or call.call.executor == "frontend":
        return "backend"
    return call.call.executor


def streaming_blocks(tree: Tree) -> list[JsonObject]:
    return [
        {**owner_fields(invocation), "block_id": block_id, "text": "".join(pieces)}
        for invocation in tree.open.values()
        for block_id, pieces in invocation.blocks.items()
    ]


def pending_turns(tree: Tree) -> list[JsonObject]:
    """Return the queued turns, in order. `text` is None if only application events opened a turn."""
    return [
        {
            "turn": trace,
            "channel": turn.scope.channel,
            "text": describe_input("", turn.trigger) if turn.trigger else None,
        }
        for trace, turn in tree.queued_turns.items()
    ]
