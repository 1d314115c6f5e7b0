"""The open agents of a Claude CLI process, and how they end (docs/protocol.md 4).

The process identifies a sub-agent by the call that started it. Lines without such a call belong to the main
agent; each turn of the process is one invocation of it. Payloads go in with their agent and are appended to
`output` as `EventDraft`, with scope and origin. Invariant: `end` closes an agent's blocks, answers its calls
with `CANCELLED`, and first ends the sub-agents that it waits for. A background agent outlives its caller.
Limits: 256 open agents, 1024 open calls of each, and the callers of the last 4096 calls.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from msgspec import structs

from turnlog.events import (
    AgentEnd,
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
    ToolCall,
    ToolProgress,
    ToolResult,
)
from turnlog.events.agent import StopReason
from turnlog.parse.claude.lines import Line
from turnlog.parse.claude.message import CliMessage
from turnlog.parse.json_values import JsonObject
from turnlog.parse.reply import ReplyBuilder, TextParserFactory

T = TypeVar("T")

MAX_OPEN_AGENTS = 256  # the process itself runs a handful at once
MAX_OPEN_CALLS = 1024  # of one agent, without a result
MAX_KNOWN_CALLERS = 4096  # a result, or a sub-agent, may come long after its call

ORIGIN_BY_PAYLOAD: dict[type[Payload], Origin] = {
    AgentStart: "system",
    AgentEnd: "system",
    AgentUsage: "system",
    ContextCompact: "system",
    SessionError: "system",
    ProcessAuth: "system",
    ApprovalRequest: "system",
    ApprovalDecision: "system",
    ParseReject: "system",
    Line: "system",
    AssistantFiles: "tool",
    ToolProgress: "tool",
}  # all others come from the model
AGENT_ENDED_MESSAGE = "Its agent has ended."
FAILED_REASONS = frozenset({"error", "cancelled", "timeout"})  # sub-agents end with the same reason


class ToolEffects(Protocol):
    """Derives events with the origin `tool` from the tool calls of an agent and from their results."""

    def on_call(self, call: ToolCall) -> list[Payload]: ...

    def on_result(self, call: ToolCall, result: ToolResult, tool_report: Any) -> list[Payload]:
        """Return the events that follow from a result.

        `tool_report` is the tool's own structured result; None if the process sent none.
        """
        ...


class CliAgent:
    """An open invocation. Only `OpenAgents` changes it."""

    def __init__(
        self,
        scope: Scope,
        caller: "CliAgent | None" = None,
        call_id: str | None = None,
        speaker: str | None = None,
    ) -> None:
        self.scope = scope
        self.caller = caller
        self.call_id = call_id
        self.speaker = speaker  # in whose name the main agent answers
        self.prompt: str | None = None
        self.task_id: str | None = None
        self.is_background = False
        self.task_stop_reason: StopReason | None = None  # set if its task has ended before the agent
        self.message: CliMessage | None = None
        self.steps = 0
        self.open_calls: dict[str, ToolCall] = {}
        self.last_text: str | None = None
        self.last_text_block_id: str | None = None

    @property
    def agent_id(self) -> str:
        return self.scope.agent_id or ""

    def owns_open_call(self, call_id: str | None) -> bool:
        return call_id is not None and call_id in self.open_calls


class OpenAgents:
    """All open agents in the order of their starts. Appends their events to `output`."""

    def __init__(
        self,
        output: list[EventDraft],
        new_id: Callable[[Any], str],
        make_text_parser: TextParserFactory,
        tool_effects: ToolEffects | None,
    ) -> None:
        self._output = output
        self._new_id = new_id
        self._make_text_parser = make_text_parser
        self._tool_effects = tool_effects
        self.by_id: dict[str, CliAgent] = {}
        self._caller_by_call: dict[str, CliAgent] = {}
        self._child_by_call: dict[str, CliAgent] = {}

    def begin(self, start: AgentStart, agent: CliAgent) -> None:
        self.by_id[agent.agent_id] = agent
        agent.prompt = start.prompt
        if agent.call_id:
            self._child_by_call[agent.call_id] = agent
        self.emit(agent, start)

    def new_scope(self, name: str, trace_id: str, depth: int, channel: str | None = None) -> Scope:
        agent_id = self._new_id("agt_")
        return Scope(trace_id=trace_id, agent_id=agent_id, agent_name=name, depth=depth, channel=channel)

    def find_by_call(self, call_id: str | None) -> CliAgent | None:
        return self._child_by_call.get(call_id or "")

    def find_by_task(self, task_id: str | None) -> CliAgent | None:
        if task_id is None:
            return None
        for agent in self.by_id.values():
            if agent.task_id == task_id:
                return agent
        return None

    def find_caller(self, call_id: str | None) -> CliAgent | None:
        """Return the agent that made a call. It may have ended since."""
        return self._caller_by_call.get(call_id or "")

    def update_task(
        self,
        agent: CliAgent,
        *,
        task_id: str | None = None,
        is_background: bool = False,
        stop_reason: StopReason | None = None,
    ) -> None:
        """Store what a line reports about an agent's task. The first id and the last stop reason count."""
        agent.task_id = agent.task_id or task_id
        agent.is_background = agent.is_background or is_background
        agent.task_stop_reason = stop_reason or agent.task_stop_reason

    def begin_message(self, agent: CliAgent, start: JsonObject) -> CliMessage:
        self.close_message(agent)
        agent.message = CliMessage(ReplyBuilder(self._new_id, self._make_text_parser), start)
        agent.steps += 1
        return agent.message

    def close_message(self, agent: CliAgent) -> None:
        """Close the agent's message. It stays known, because later lines may repeat its blocks."""
        if agent.message is not None:
            agent.message.close()
            self.emit_message(agent, agent.message)

    def emit_message(self, agent: CliAgent, message: CliMessage) -> None:
        self.emit(agent, *message.take_output())

    def emit(self, agent: CliAgent, *payloads: Payload) -> None:
        for payload in payloads:
            if isinstance(payload, AssistantMessage):
                payload = structs.replace(payload, speaker=agent.speaker)
                agent.last_text = payload.text
                agent.last_text_block_id = payload.block_id

            self._output.append(EventDraft(payload, agent.scope, get_origin(payload)))
            if isinstance(payload, ToolCall):
                self._add_call(agent, payload)
            elif isinstance(payload, ToolResult):
                agent.open_calls.pop(payload.call_id, None)

    def _add_call(self, agent: CliAgent, call: ToolCall) -> None:
        agent.open_calls[call.call_id] = call
        put_bounded(self._caller_by_call, call.call_id, agent, MAX_KNOWN_CALLERS)
        if self._tool_effects is not None:
            self._emit_effects(agent, self._tool_effects.on_call(call))
        if len(agent.open_calls) > MAX_OPEN_CALLS:
            self._cancel_call(agent, next(iter(agent.open_calls)))

    def add_result(self, agent: CliAgent, result: ToolResult, tool_report: Any) -> None:
        """Answer an open call. The sub-agent that it started ends first, unless it runs in the background."""
        call = agent.open_calls[result.call_id]
        child = self.find_by_call(result.call_id)
        if child is not None and child.caller is agent and not child.is_background:
            reason: StopReason = child.task_stop_reason or ("end_turn" if result.ok else "error")
            result_text = result.result if isinstance(result.result, str) else None
            self.end(child, reason, child.last_text or result_text)

        self._output.append(EventDraft(result, agent.scope, "tool"))
        del agent.open_calls[result.call_id]
        if self._tool_effects is not None:
            self._emit_effects(agent, self._tool_effects.on_result(call, result, tool_report))

    def _emit_effects(self, agent: CliAgent, payloads: list[Payload]) -> None:
        for payload in payloads:
            self._output.append(EventDraft(payload, agent.scope, "tool"))

    def _cancel_call(self, agent: CliAgent, call_id: str) -> None:
        call = agent.open_calls.pop(call_id)
        result = ToolResult.cancelled(call, AGENT_ENDED_MESSAGE)
        self._output.append(EventDraft(result, agent.scope, "system"))

    def retract_blocks(self, agent: CliAgent, block_ids: list[str], reason: str) -> None:
        call_ids = [call_id for call_id, call in agent.open_calls.items() if call.block_id in block_ids]
        for child in list(self.by_id.values()):
            if child.caller is agent and child.call_id in call_ids:
                self.end(child, "cancelled")
        for call_id in call_ids:
            del agent.open_calls[call_id]

        if agent.last_text_block_id in block_ids:
            agent.last_text = None
        if block_ids:
            self.emit(agent, BlockRetract(block_ids=tuple(block_ids), reason=reason))

    def end(self, agent: CliAgent, reason: StopReason, result: str | None = None, **end_fields: Any) -> None:
        """End an agent: first the sub-agents that it waits for, then its blocks, its calls, and itself."""
        child_reason: StopReason = reason if reason in FAILED_REASONS else "cancelled"
        for child in self._children_ending_with(agent):
            self.end(child, child.task_stop_reason or child_reason, child.last_text)

        self.close_message(agent)
        for call_id in list(agent.open_calls):
            self._cancel_call(agent, call_id)
        fields = {"stop_reason": reason, "steps": agent.steps, "result": result} | end_fields
        self.emit(agent, AgentEnd(**fields))

        agent.message = None
        del self.by_id[agent.agent_id]
        self._child_by_call.pop(agent.call_id or "", None)

    def _children_ending_with(self, agent: CliAgent) -> list[CliAgent]:
        children: list[CliAgent] = []
        for child in reversed(self.by_id.values()):
            runs_on = child.is_background and child.task_stop_reason is None
            if child.caller is agent and not runs_on:
                children.append(child)
        return children


def get_origin(payload: Payload) -> Origin:
    return ORIGIN_BY_PAYLOAD.get(type(payload), "model")


def put_bounded(table: dict[str, T], key: str, value: T, limit: int) -> None:
    table[key] = value
    if len(table) > limit:
        del table[next(iter(table))]
