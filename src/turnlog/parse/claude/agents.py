"""The agents of a Claude CLI process: who is open, who called whom, and what closes them (protocol 4).

The process names an agent by the call that spawned it; one without is the main agent, of which each turn of
the process is one invocation. Payloads go in with their agent and come out as `Said`, with scope and origin.
Nothing is left open: `end` closes an agent's blocks, answers its calls with `CANCELLED` and ends the agents
it waits for, before it. An agent in the background outlives its caller. Limits: 256 open agents, 1024 open
calls of each, and the callers of the last 4096 calls.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from msgspec import structs

from turnlog.events import (
    AgentEnd,
    AgentStart,
    AgentUsage,
    ApprovalDecision,
    ApprovalRequest,
    ArtifactWrite,
    AssistantFiles,
    AssistantMessage,
    BlockRetract,
    ContextCompact,
    ErrorInfo,
    Origin,
    ParseReject,
    Payload,
    ProcessAuth,
    Scope,
    ScreenCommand,
    SessionError,
    ToolCall,
    ToolProgress,
    ToolResult,
)
from turnlog.events.agent import StopReason
from turnlog.parse.claude.lines import Line
from turnlog.parse.claude.message import CliMessage
from turnlog.parse.deeds import ToolEffects
from turnlog.parse.json_values import JsonObject
from turnlog.parse.reply import ReplyBuilder, TextParserFactory

T = TypeVar("T")

MAX_OPEN_AGENTS = 256  # the process itself runs a handful at once
MAX_OPEN_CALLS = 1024  # of one agent, without a result
MAX_KNOWN_CALLERS = 4096  # an answer, or an agent, may come long after its call

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
    ArtifactWrite: "tool",
    ScreenCommand: "tool",
}  # all others are the model's
AGENT_ENDED_MESSAGE = "Its agent has ended."
FAILED_REASONS = frozenset({"error", "cancelled", "timeout"})  # ends that reach everybody below


class EventDraft(NamedTuple):
    """An event before it is built."""

    payload: Payload
    scope: Scope
    origin: Origin


class CliAgent:
    """One invocation that is open."""

    def __init__(self, scope: Scope, caller: "CliAgent | None" = None, call_id: str | None = None) -> None:
        self.scope, self.caller, self.call_id = scope, caller, call_id
        self.task_id: str | None = None
        self.prompt: str | None = None
        self.speaker: str | None = None  # in whose name the main agent speaks
        self.answered_uuids: list[str] = []  # the messages it answers
        self.is_background = False
        self.task_stop_reason: StopReason | None = (
            None  # of a task that is over, though nobody has ended its agent
        )
        self.message: CliMessage | None = None
        self.steps = 0
        self.open_calls: dict[str, ToolCall] = {}
        self.last_text: str | None = None  # its last text
        self.last_text_block: str | None = None  # the block of it

    @property
    def agent_id(self) -> str:
        """Which invocation it is."""
        return self.scope.agent_id or ""

    def close_message(self) -> list[Payload]:
        """Its message is over; what it showed is still known."""
        return self.message.close() if self.message else []


class OpenAgents:
    """Every agent that is open, in the order of their starts."""

    def __init__(
        self, new_id: Callable[[Any], str], make_text_parser: TextParserFactory, tool_effects: ToolEffects
    ) -> None:
        self._new_id, self._make_text_parser, self._tool_effects = new_id, make_text_parser, tool_effects
        self.by_id: dict[str, CliAgent] = {}
        self._caller_by_call: dict[str, CliAgent] = {}  # by call
        self._child_by_call: dict[str, CliAgent] = {}  # by call

    def begin(self, start: AgentStart, agent: CliAgent) -> list[EventDraft]:
        """An invocation begins."""
        self.by_id[agent.agent_id] = agent
        agent.prompt = start.prompt
        if agent.call_id:
            self._child_by_call[agent.call_id] = agent
        return self.emit(agent, [start])

    def new_scope(self, name: str, trace_id: str, depth: int, channel: str | None = None) -> Scope:
        """The scope of a new invocation."""
        return Scope(
            trace_id=trace_id,
            agent_id=self._new_id("agt_"),
            agent_name=name,
            depth=depth,
            channel=channel,
        )

    def find_child(self, call_id: str | None, task_id: str | None = None) -> CliAgent | None:
        """The open agent that a call spawned, or that is this task."""
        by_task = (agent for agent in self.by_id.values() if task_id and agent.task_id == task_id)
        return self._child_by_call.get(call_id or "") or next(by_task, None)

    def find_caller(self, call_id: str | None) -> CliAgent | None:
        """The open agent that made a call."""
        return self._caller_by_call.get(call_id or "")

    def begin_message(self, agent: CliAgent, start: JsonObject) -> tuple[CliMessage, list[EventDraft]]:
        """Another message of an agent; the one before is over."""
        said = self.emit(agent, agent.close_message())
        agent.message = CliMessage(ReplyBuilder(self._new_id, self._make_text_parser), start)
        agent.steps += 1
        return agent.message, said

    def emit(self, agent: CliAgent, payloads: list[Payload]) -> list[EventDraft]:
        """What an agent says or does, and what follows from it."""
        said: list[EventDraft] = []
        for payload in payloads:
            if isinstance(payload, AssistantMessage):
                payload = structs.replace(payload, speaker=agent.speaker)
                agent.last_text, agent.last_text_block = payload.text, payload.block_id
            said.append(EventDraft(payload, agent.scope, get_origin(payload)))
            if isinstance(payload, ToolCall):
                said += self._on_call(agent, payload)
            elif isinstance(payload, ToolResult):
                agent.open_calls.pop(payload.call_id, None)
        return said

    def _on_call(self, agent: CliAgent, call: ToolCall) -> list[EventDraft]:
        put_bounded(agent.open_calls, call.call_id, call, MAX_OPEN_CALLS + 1)
        put_bounded(self._caller_by_call, call.call_id, agent, MAX_KNOWN_CALLERS)
        said = self.emit(agent, self._tool_effects.on_call(call))
        oldest = next(iter(agent.open_calls))
        return said + (self.cancel_call(agent, oldest) if len(agent.open_calls) > MAX_OPEN_CALLS else [])

    def add_result(self, agent: CliAgent, result: ToolResult, tool_report: Any) -> list[EventDraft]:
        """A call has its result; an agent that it waited for is over."""
        call = agent.open_calls[result.call_id]
        child = self._child_by_call.get(result.call_id)
        said: list[EventDraft] = []
        if child and child.caller is agent and not child.is_background:
            reason: StopReason = child.task_stop_reason or ("end_turn" if result.ok else "error")
            text = result.result if isinstance(result.result, str) else None
            said = self.end(child, reason, child.last_text or text)
        said.append(EventDraft(result, agent.scope, "tool"))
        del agent.open_calls[result.call_id]
        return said + self.emit(agent, self._tool_effects.on_result(call, result, tool_report))

    def cancel_call(self, agent: CliAgent, call_id: str) -> list[EventDraft]:
        """A call that nobody will answer."""
        fault = ErrorInfo(code="CANCELLED", message=AGENT_ENDED_MESSAGE)
        call = agent.open_calls.pop(call_id)
        result = ToolResult(call_id=call_id, tool=call.tool, ok=False, error=fault)
        return [EventDraft(result, agent.scope, "system")]

    def retract_blocks(self, agent: CliAgent, block_ids: list[str], reason: str) -> list[EventDraft]:
        """Blocks are void, and so are their calls and whom they called."""
        void = [key for key, call in agent.open_calls.items() if call.block_id in block_ids]
        called = [child for child in self.by_id.values() if child.caller is agent and child.call_id in void]
        said = [event for child in called for event in self.end(child, "cancelled")]
        for key in void:
            del agent.open_calls[key]
        agent.last_text = None if agent.last_text_block in block_ids else agent.last_text
        retracted = BlockRetract(block_ids=tuple(block_ids), reason=reason)
        return said + (self.emit(agent, [retracted]) if block_ids else [])

    def end(
        self, agent: CliAgent, reason: StopReason, result: str | None = None, **known: Any
    ) -> list[EventDraft]:
        """An invocation is over: first whom it waits for, then its blocks, then its calls, then itself."""
        unfinished: StopReason = reason if reason in FAILED_REASONS else "cancelled"
        awaited = [(child, child.task_stop_reason or unfinished) for child in self._agents_ending_with(agent)]
        said = [event for child, outcome in awaited for event in self.end(child, outcome, child.last_text)]
        said += self.emit(agent, agent.close_message())
        said += [event for call_id in list(agent.open_calls) for event in self.cancel_call(agent, call_id)]
        ended = AgentEnd(**{"stop_reason": reason, "steps": agent.steps, "result": result, **known})
        said += self.emit(agent, [ended])
        agent.message = None
        del self.by_id[agent.agent_id]
        self._child_by_call.pop(agent.call_id or "", None)
        return said

    def _agents_ending_with(self, agent: CliAgent) -> list[CliAgent]:
        """The agents that end with this one: all that it called but those that run on in the background."""
        called = [child for child in self.by_id.values() if child.caller is agent]
        return [child for child in reversed(called) if not child.is_background or child.task_stop_reason]


def get_origin(payload: Payload) -> Origin:
    """Who says so: the table, or else the model."""
    return ORIGIN_BY_PAYLOAD.get(type(payload), "model")


def put_bounded(table: dict[str, T], key: str, value: T, limit: int) -> None:
    """Remember something; beyond the limit the oldest is forgotten."""
    table[key] = value
    if len(table) > limit:
        del table[next(iter(table))]
