"""Logs of agents as vectors tell them, and the laws that every such log keeps, whatever went wrong.

Ids are symbolic: an agent is called by its name, a call by its tool, with a number from the second one on.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnlog.events import Envelope


def body(event: Envelope) -> Any:
    return json.loads(bytes(event.payload))


KEPT: dict[str, Callable[[Any], dict[str, Any]]] = {
    "block.end": lambda payload: {"status": payload["status"]},
    "block.start": lambda payload: {"kind": payload["kind"]},
    "block.delta": lambda payload: {"text": payload["text"]},
    "block.retract": lambda payload: {"blocks": len(payload["block_ids"]), "reason": payload["reason"]},
    "assistant.message": lambda payload: {"text": payload["text"]},
    "agent.usage": lambda payload: {"usage": payload["usage"]},
    "approval.request": lambda payload: {"call_id": payload["call_id"], "risk": payload["risk"]},
    "approval.decision": lambda payload: {"call_id": payload["call_id"], "decision": payload["decision"]},
    "session.error": lambda payload: {"code": payload["code"], "retriable": payload.get("retriable", False)},
}
LEFT_OUT = {"tools", "model", "block_id", "tool", "message"}


def told(events: Sequence[Envelope]) -> list[list[Any]]:
    """A log as a vector tells it: type, agent, depth and what matters of the payload."""
    names = symbols(events)
    lines: list[list[Any]] = []
    for event in events:
        keep = KEPT.get(event.type)
        kept = keep(body(event)) if keep else without(body(event))
        line = [event.type, names.get(event.agent_id or ""), event.depth or 0, named(kept, names)]
        before = next((other for other in reversed(lines) if other[1] == line[1]), None)
        if before and before[0] == event.type == "block.delta":
            before[3]["text"] += line[3]["text"]
        else:
            lines.append(line)
    return lines


def without(payload: Any) -> Any:
    """A payload without what does not matter here."""
    if isinstance(payload, dict):
        kept = {key: without(value) for key, value in payload.items() if key not in LEFT_OUT}
        return {key: value for key, value in kept.items() if value is not None}
    return [without(item) for item in payload] if isinstance(payload, list) else payload


def symbols(events: Sequence[Envelope]) -> dict[str, str]:
    """A name for each agent and each call."""
    names: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for event in events:
        payload = body(event)
        if event.type == "agent.start":
            key, name, place = event.agent_id or "", payload["name"], ""
        elif event.type == "tool.call":
            key, name, place = payload["call_id"], payload["tool"], event.agent_id or ""
        else:
            continue
        seen[place + name] += 1
        number = seen[place + name]
        names[key] = name if number == 1 else f"{name}#{number}"
        names[key.removeprefix("agt_")] = names[key]
    return names


def named(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: named(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [named(item, names) for item in value]
    return names.get(value, value) if isinstance(value, str) else value


def lanes(lines: Sequence[list[Any]]) -> dict[str, list[list[Any]]]:
    """What each agent did, in order: agents that run at the same time may do it in any."""
    found: dict[str, list[list[Any]]] = {}
    for line in lines:
        lane = found.setdefault(line[1] or "", [])
        lane.append(line)
        if len(lane) > 1 and lane[-2][0] == line[0] == "tool.result":  # whoever was ready first
            lane[-2:] = sorted(lane[-2:], key=str)
    return found


# laws


@dataclass
class Open:
    """An agent that has started, by the events alone."""

    start: dict[str, Any]
    depth: int
    calls: dict[str, str | None] = field(default_factory=dict)  # with their blocks
    blocks: set[str] = field(default_factory=set)
    spent: list[dict[str, int]] = field(default_factory=list)


class Ledger:
    """Reads a log and refuses what must not be in one; what is open at its end is what waits."""

    def __init__(self, events: Sequence[Envelope]) -> None:
        self.open: dict[str, Open] = {}
        self.ended: set[str] = set()
        self.pending: set[str] = set()
        self.ends: list[str] = []
        for place, event in enumerate(events):
            agent_id = event.agent_id or ""
            assert agent_id not in self.ended, f"{event.type} after the end of its agent, at {place}"
            if event.type == "agent.start":
                self.begin(agent_id, event)
            elif event.type == "ui.message":
                traces = {body_trace(other) for other in self.open.values()}
                self.pending |= {event.trace_id or ""} - traces
            elif agent_id:
                self.take(self.open[agent_id], event, body(event))
            if event.type == "agent.handoff":
                handed_over(events, place)

    def begin(self, agent_id: str, event: Envelope) -> None:
        assert agent_id not in self.open, "a second start"
        start = body(event) | {"trace": event.trace_id}
        self.open[agent_id] = Open(start, event.depth or 0)
        self.pending.discard(event.trace_id or "")
        parent = self.open.get(start.get("parent_id", ""))
        assert (event.depth or 0) == (parent.depth + 1 if parent else 0), "the depth follows from the parent"
        assert parent is None or start["call_id"] in parent.calls

    def take(self, agent: Open, event: Envelope, payload: Any) -> None:
        match event.type:
            case "block.start":
                agent.blocks.add(payload["block_id"])
            case "block.end":
                agent.blocks.remove(payload["block_id"])
            case "block.retract":
                void = payload["block_ids"]
                agent.calls = {call: block for call, block in agent.calls.items() if block not in void}
            case "tool.call":
                assert payload["call_id"] not in agent.calls
                agent.calls[payload["call_id"]] = payload.get("block_id")
            case "tool.result":
                assert payload["call_id"] in agent.calls, "a result without a call, or a second one"
                del agent.calls[payload["call_id"]]
            case "agent.usage":
                agent.spent.append(payload["usage"])
            case "agent.end":
                self.end(agent, event.agent_id or "", payload)

    def end(self, agent: Open, agent_id: str, payload: Any) -> None:
        assert not agent.blocks, "an end with an open block"
        assert not agent.calls, "an end with an open call"
        assert all(other.start.get("parent_id") != agent_id for other in self.open.values()), "an orphan"
        sums = Counter[str]()
        for usage in agent.spent:
            sums.update(usage)
        assert payload.get("steps", 0) == len(agent.spent)
        assert Counter(payload.get("usage") or {}) == sums
        del self.open[agent_id]
        self.ended.add(agent_id)
        self.ends.append(payload["stop_reason"])


def body_trace(agent: Open) -> str:
    return str(agent.start["trace"])


def handed_over(events: Sequence[Envelope], place: int) -> None:
    """A hand-off is one batch: the result before it, the end and the start of the next agent behind it."""
    before, handoff, end, start = events[place - 1 : place + 3]
    assert (before.type, before.agent_id) == ("tool.result", handoff.agent_id)
    assert (end.type, end.agent_id, body(end)["stop_reason"]) == ("agent.end", handoff.agent_id, "handoff")
    assert (start.type, start.agent_id) == ("agent.start", body(handoff)["to_agent_id"])
    assert (start.depth, start.trace_id) == (handoff.depth, handoff.trace_id)


def lawful(events: Sequence[Envelope]) -> Ledger:
    """The account of a log in which everything that was begun has ended."""
    ledger = Ledger(events)
    assert (ledger.open, ledger.pending) == ({}, set())
    return ledger
