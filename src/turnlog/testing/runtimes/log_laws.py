"""What the log of any runtime keeps: every start has one end, every call one result, every block one end."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from turnlog.events import (
    AgentEnd,
    AgentHandoff,
    AgentStart,
    AgentUsage,
    AssistantMessage,
    BlockEnd,
    BlockRetract,
    BlockStart,
    Entry,
    ParseReject,
    ToolCall,
    ToolResult,
    Usage,
)


@dataclass
class OpenAgentState:
    start: AgentStart
    depth: int
    calls: dict[str, str | None] = field(default_factory=dict)  # with their blocks
    blocks: set[str] = field(default_factory=set)
    usages: list[Usage] = field(default_factory=list)


class LogLaws:
    """Reads a log and raises AssertionError for what must not be in one. `open` are the open agents."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.open: dict[str, OpenAgentState] = {}
        self._ended: set[str] = set()
        self._successors: set[str] = set()
        for entry in entries:
            self._read(entry)
        assert not self._successors, "a hand-off without its successor"

    def _read(self, entry: Entry) -> None:
        payload = entry.payload
        agent_id = entry.agent_id or ""
        assert not isinstance(payload, ParseReject), f"a reject: {payload.reason}"
        assert agent_id not in self._ended, f"{entry.type} after the end of its agent"
        if isinstance(payload, AgentStart):
            self._begin(agent_id, entry, payload)
        elif agent_id in self.open:
            self._read_event(agent_id, self.open[agent_id], entry)
        else:
            assert not agent_id, f"{entry.type} of an agent that has not started"

    def _begin(self, agent_id: str, entry: Entry, start: AgentStart) -> None:
        assert agent_id not in self.open, "a second start"
        parent = self.open.get(start.parent_id or "")
        assert (start.parent_id is None) == (parent is None), "an agent whose parent is not open"
        assert entry.depth == (parent.depth + 1 if parent is not None else 0), "a wrong depth"
        if parent is not None and start.call_id is not None:
            assert start.call_id in parent.calls, "an agent of a call that is not open"
        if start.via == "handoff":
            assert agent_id in self._successors, "a successor without a hand-off"
            self._successors.discard(agent_id)
        self.open[agent_id] = OpenAgentState(start, entry.depth)

    def _read_event(self, agent_id: str, agent: OpenAgentState, entry: Entry) -> None:
        payload = entry.payload
        if isinstance(payload, BlockStart):
            assert payload.block_id not in agent.blocks, "a second start of a block"
            agent.blocks.add(payload.block_id)
        elif isinstance(payload, BlockEnd):
            agent.blocks.remove(payload.block_id)
        elif isinstance(payload, BlockRetract):
            void = set(payload.block_ids)
            agent.calls = {call: block for call, block in agent.calls.items() if block not in void}
        elif isinstance(payload, ToolCall):
            assert payload.call_id not in agent.calls, "a second call of one id"
            agent.calls[payload.call_id] = payload.block_id
        elif isinstance(payload, ToolResult):
            assert payload.call_id in agent.calls, "a result without a call, or a second one"
            del agent.calls[payload.call_id]
        elif isinstance(payload, AgentUsage):
            agent.usages.append(payload.usage)
        elif isinstance(payload, AgentHandoff):
            self._successors.add(payload.to_agent_id)
        elif isinstance(payload, AgentEnd):
            self._end(agent_id, agent, payload)

    def _end(self, agent_id: str, agent: OpenAgentState, end: AgentEnd) -> None:
        assert not agent.blocks, "an end with an open block"
        assert not agent.calls, "an end with an open call"
        children = [other for other in self.open.values() if other.start.parent_id == agent_id]
        assert not children, "an end before that of a sub-agent"
        total: Usage | None = None
        for usage in agent.usages:
            total = usage if total is None else total + usage
        assert end.usage == total, f"the sum of usages is {total}, the end has {end.usage}"
        del self.open[agent_id]
        self._ended.add(agent_id)


def texts_by_agent(entries: Sequence[Entry]) -> dict[str, list[str]]:
    """Return the texts that agents said, by name, without those that were retracted."""
    void: set[str] = set()
    for entry in entries:
        if isinstance(entry.payload, BlockRetract):
            void.update(entry.payload.block_ids)
    texts: dict[str, list[str]] = {}
    for entry in entries:
        if isinstance(entry.payload, AssistantMessage) and entry.payload.block_id not in void:
            texts.setdefault(entry.agent_name or "", []).append(entry.payload.text)
    return texts


def same_texts(left: dict[str, list[str]], right: dict[str, list[str]]) -> bool:
    """Return whether two agents of one name said the same in any order: they may run at the same time."""
    return {name: Counter(texts) for name, texts in left.items()} == {
        name: Counter(texts) for name, texts in right.items()
    }
