"""The open invocations of a runtime, and how they end (docs/protocol.md 4 and 5.13). Pure: ids come in.

Payloads go in with their agent and are appended to `output` as `EventDraft`, with scope and origin.
Invariant: `end` closes an agent's blocks, answers its calls with `CANCELLED`, and first ends the sub-agents
that it waits for. A background agent outlives its caller. A call id is unique within its agent only, so a
caller and a call identify a sub-agent.
Limits: 256 open agents, 1024 open calls of each, and the callers of the last 4096 calls.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from msgspec import structs

from turnlog.events import (
    AgentCheckpoint,
    AgentEnd,
    AgentHandoff,
    AgentStart,
    AgentUsage,
    ApprovalDecision,
    ApprovalRequest,
    AssistantFiles,
    AssistantMessage,
    BlockRetract,
    ContextCompact,
    EventDraft,
    Origin,
    ParseReject,
    Payload,
    ProcessAuth,
    Scope,
    SessionError,
    ToolAwait,
    ToolCall,
    ToolProgress,
    ToolResult,
)
from turnlog.events.agent import CompletionTotals, StopReason
from turnlog.parse.rejects import make_reject

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

MAX_OPEN_AGENTS = 256  # a runtime runs a handful at once
MAX_OPEN_CALLS = 1024  # of one agent, without a result
MAX_KNOWN_CALLERS = 4096  # a result, or a sub-agent, may come long after its call

# By class and not by its declaration: an application's event in a model's text comes from the model.
ORIGIN_BY_PAYLOAD: dict[type[Payload], Origin] = {
    AgentStart: "system",
    AgentEnd: "system",
    AgentHandoff: "system",
    AgentUsage: "system",
    AgentCheckpoint: "system",
    ContextCompact: "system",
    SessionError: "system",
    ProcessAuth: "system",
    ToolAwait: "system",
    ApprovalRequest: "system",
    ApprovalDecision: "system",
    ParseReject: "system",
    AssistantFiles: "tool",
    ToolProgress: "tool",
}  # all others come from the model
AGENT_ENDED_MESSAGE = "Its agent has ended."
FAILED_REASONS = frozenset({"error", "cancelled", "timeout"})  # sub-agents end with the same reason


class OpenMessage(Protocol):
    """A message that an agent streams."""

    def abort(self) -> list[Payload]:
        """Close the open blocks and return the events of their ends. A second call returns nothing."""
        ...


M = TypeVar("M", bound=OpenMessage)


class ToolEffects(Protocol):
    """Derives events with the origin `tool` from the tool calls of an agent and from their results."""

    def on_call(self, call: ToolCall) -> list[Payload]: ...

    def on_result(self, call: ToolCall, result: ToolResult, tool_report: Any) -> list[Payload]:
        """Return the events that follow from a result.

        `tool_report` is the tool's own structured result; None if the runtime has none.
        """
        ...


class OpenAgent(Generic[M]):
    """An invocation. Only `OpenAgents` changes it. `source_id` is the runtime's own id of it."""

    def __init__(
        self,
        scope: Scope,
        caller: "OpenAgent[M] | None" = None,
        call_id: str | None = None,
        speaker: str | None = None,
        source_id: str | None = None,
    ) -> None:
        self.scope = scope
        self.caller = caller
        self.call_id = call_id
        self.speaker = speaker  # in whose name the agent answers
        self.source_id = source_id
        self.prompt: str | None = None
        self.model: str | None = None
        self.is_background = False
        self.reported_stop: StopReason | None = None  # set if the runtime has reported its end early
        self.message: M | None = None
        self.steps = 0  # messages; a completion that shows nothing is counted in `totals` alone
        self.totals = CompletionTotals()
        self.open_calls: dict[str, ToolCall] = {}
        self.last_text: str | None = None
        self.last_text_block_id: str | None = None
        self.has_rejected_input = False  # one reject tells that the agent was not open

    @property
    def agent_id(self) -> str:
        return self.scope.agent_id or ""

    def owns_open_call(self, call_id: str | None) -> bool:
        return call_id is not None and call_id in self.open_calls


class OpenAgents(Generic[M]):
    """All open agents in the order of their starts. Appends their events to `output`."""

    def __init__(
        self,
        output: list[EventDraft],
        new_id: Callable[[Any], str],
        tool_effects: ToolEffects | None = None,
    ) -> None:
        self.output = output
        self._new_id = new_id
        self._tool_effects = tool_effects
        self.by_id: dict[str, OpenAgent[M]] = {}
        self._children: dict[tuple[str, str], OpenAgent[M]] = {}  # by the caller's id and the call's id
        # For a source whose lines name a call and no agent: its call ids are unique.
        self._caller_by_call: dict[str, OpenAgent[M]] = {}
        self._child_by_call: dict[str, OpenAgent[M]] = {}

    @property
    def is_full(self) -> bool:
        return len(self.by_id) >= MAX_OPEN_AGENTS

    def is_open(self, agent: OpenAgent[M]) -> bool:
        return self.by_id.get(agent.agent_id) is agent

    def begin(self, start: AgentStart, agent: OpenAgent[M]) -> None:
        self._add(start, agent)
        self.emit(agent, start)

    def restore(
        self, start: AgentStart, agent: OpenAgent[M], calls: Iterable[ToolCall], totals: CompletionTotals
    ) -> None:
        """Add an agent that is open in the log, with its open calls. Nothing is emitted."""
        self._add(start, agent)
        agent.open_calls = {call.call_id: call for call in calls}
        for call_id in agent.open_calls:
            put_bounded(self._caller_by_call, call_id, agent, MAX_KNOWN_CALLERS)
        agent.steps = totals.steps
        agent.totals = totals

    def _add(self, start: AgentStart, agent: OpenAgent[M]) -> None:
        self.by_id[agent.agent_id] = agent
        agent.prompt = start.prompt
        agent.model = start.model
        if agent.call_id:
            self._child_by_call[agent.call_id] = agent
            if agent.caller is not None:
                self._children[agent.caller.agent_id, agent.call_id] = agent

    def new_scope(
        self, name: str, trace_id: str, depth: int, channel: str | None = None, agent_id: str | None = None
    ) -> Scope:
        return Scope(
            trace_id=trace_id,
            agent_id=agent_id or self._new_id("agt_"),
            agent_name=name,
            depth=depth,
            channel=channel,
        )

    def find_child(self, caller: OpenAgent[M], call_id: str) -> OpenAgent[M] | None:
        return self._children.get((caller.agent_id, call_id))

    def find_by_call(self, call_id: str | None) -> OpenAgent[M] | None:
        """Return the agent that a call started, for a source whose call ids are unique."""
        return self._child_by_call.get(call_id or "")

    def find_by_source_id(self, source_id: str | None) -> OpenAgent[M] | None:
        if source_id is None:
            return None
        for agent in self.by_id.values():
            if agent.source_id == source_id:
                return agent
        return None

    def find_caller(self, call_id: str | None) -> OpenAgent[M] | None:
        """Return the agent that made a call. It may have ended since."""
        return self._caller_by_call.get(call_id or "")

    def update(
        self,
        agent: OpenAgent[M],
        *,
        source_id: str | None = None,
        is_background: bool = False,
        stop_reason: StopReason | None = None,
    ) -> None:
        """Store what the runtime reports about an agent. The first id and the last stop reason count."""
        agent.source_id = agent.source_id or source_id
        agent.is_background = agent.is_background or is_background
        agent.reported_stop = stop_reason or agent.reported_stop

    def begin_message(self, agent: OpenAgent[M], message: M) -> None:
        self.close_message(agent)
        agent.message = message
        agent.steps += 1

    def close_message(self, agent: OpenAgent[M]) -> None:
        """Close the agent's message. It stays known, because a source may repeat its blocks later."""
        if agent.message is not None:
            self.emit(agent, *agent.message.abort())

    def drop_message(self, agent: OpenAgent[M]) -> None:
        """Close the agent's message and forget it."""
        self.close_message(agent)
        agent.message = None

    def reject_input(self, agent: OpenAgent[M], reason: str, value: Any) -> None:
        """Emit a reject in the scope of the turn: an agent that is not open has no events.

        Only the first input of an agent leaves one: a runtime may go on to stream to it.
        """
        if agent.has_rejected_input:
            return
        agent.has_rejected_input = True
        scope = Scope(trace_id=agent.scope.trace_id, channel=agent.scope.channel)
        self.output.append(EventDraft(make_reject(reason, value), scope, "system"))

    def emit(self, agent: OpenAgent[M], *payloads: Payload) -> None:
        for payload in payloads:
            if isinstance(payload, AssistantMessage):
                payload = structs.replace(payload, speaker=agent.speaker)
                agent.last_text = payload.text
                agent.last_text_block_id = payload.block_id

            self.output.append(EventDraft(payload, agent.scope, get_origin(payload)))
            if isinstance(payload, ToolCall):
                self._add_call(agent, payload)
            elif isinstance(payload, ToolResult):
                agent.open_calls.pop(payload.call_id, None)
            elif isinstance(payload, AgentUsage):
                agent.totals = agent.totals.add(payload.usage, payload.cost)

    def emit_rest_usage(self, agent: OpenAgent[M], usages: Iterable[AgentUsage]) -> None:
        """Emit tokens that belong to no step of the agent."""
        steps = agent.totals.steps
        self.emit(agent, *usages)
        agent.totals = structs.replace(agent.totals, steps=steps)

    def _add_call(self, agent: OpenAgent[M], call: ToolCall) -> None:
        agent.open_calls[call.call_id] = call
        put_bounded(self._caller_by_call, call.call_id, agent, MAX_KNOWN_CALLERS)
        if self._tool_effects is not None:
            self._emit_effects(agent, self._tool_effects.on_call(call))
        if len(agent.open_calls) > MAX_OPEN_CALLS:
            self._cancel_call(agent, next(iter(agent.open_calls)))

    def add_result(self, agent: OpenAgent[M], result: ToolResult, tool_report: Any = None) -> None:
        """Answer an open call. The sub-agent that it started ends first, unless it runs in the background."""
        call = agent.open_calls[result.call_id]
        child = self.find_child(agent, result.call_id)
        if child is not None and not child.is_background:
            reason: StopReason = child.reported_stop or ("end_turn" if result.ok else "error")
            result_text = result.result if isinstance(result.result, str) else None
            self.end(child, reason, child.last_text or result_text)

        self.output.append(EventDraft(result, agent.scope, "tool"))
        del agent.open_calls[result.call_id]
        if self._tool_effects is not None:
            self._emit_effects(agent, self._tool_effects.on_result(call, result, tool_report))

    def _emit_effects(self, agent: OpenAgent[M], payloads: list[Payload]) -> None:
        for payload in payloads:
            self.output.append(EventDraft(payload, agent.scope, "tool"))

    def _cancel_call(self, agent: OpenAgent[M], call_id: str) -> None:
        call = agent.open_calls.pop(call_id)
        result = ToolResult.cancelled(call, AGENT_ENDED_MESSAGE)
        self.output.append(EventDraft(result, agent.scope, "system"))

    def retract_blocks(self, agent: OpenAgent[M], block_ids: list[str], reason: str) -> None:
        """Retract blocks and drop the open calls in them. The agents that those calls started end first."""
        retracted = set(block_ids)
        call_ids = {call_id for call_id, call in agent.open_calls.items() if call.block_id in retracted}
        for child in list(self.by_id.values()):
            if child.caller is agent and child.call_id in call_ids:
                self.end(child, "cancelled")
        for call_id in call_ids:
            del agent.open_calls[call_id]

        if agent.last_text_block_id in retracted:
            agent.last_text = None
        if block_ids:
            self.emit(agent, BlockRetract(block_ids=tuple(block_ids), reason=reason))

    def close_contents(self, agent: OpenAgent[M], reason: StopReason) -> None:
        """Close what is open inside an agent: sub-agents that it waits for, its blocks, then its calls."""
        child_reason: StopReason = reason if reason in FAILED_REASONS else "cancelled"
        for child in self._children_ending_with(agent):
            self.end(child, child.reported_stop or child_reason, child.last_text)

        self.close_message(agent)
        for call_id in list(agent.open_calls):
            self._cancel_call(agent, call_id)

    def end(
        self, agent: OpenAgent[M], reason: StopReason, result: str | None = None, **end_fields: Any
    ) -> None:
        self.close_contents(agent, reason)
        fields: dict[str, Any] = {
            "steps": max(agent.steps, agent.totals.steps),
            "usage": agent.totals.usage,
            "cost": agent.totals.cost,
        }
        fields |= end_fields
        self.emit(agent, AgentEnd(stop_reason=reason, result=result, **fields))

        agent.message = None
        del self.by_id[agent.agent_id]
        if agent.call_id:
            self._child_by_call.pop(agent.call_id, None)
            if agent.caller is not None:
                self._children.pop((agent.caller.agent_id, agent.call_id), None)

    def _children_ending_with(self, agent: OpenAgent[M]) -> list[OpenAgent[M]]:
        children: list[OpenAgent[M]] = []
        for child in reversed(self.by_id.values()):
            runs_on = child.is_background and child.reported_stop is None
            if child.caller is agent and not runs_on:
                children.append(child)
        return children

    def end_all(self, reason: StopReason) -> None:
        """End every open agent, the last one first: children start after their parents."""
        while self.by_id:
            agent = next(reversed(self.by_id.values()))
            self.end(agent, agent.reported_stop or reason, agent.last_text)


def get_origin(payload: Payload) -> Origin:
    return ORIGIN_BY_PAYLOAD.get(type(payload), "model")


def put_bounded(table: dict[K, T], key: K, value: T, limit: int) -> None:
    table[key] = value
    if len(table) > limit:
        del table[next(iter(table))]
