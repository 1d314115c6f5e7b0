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
    Fault,
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
from turnlog.parse.claude.message import Message
from turnlog.parse.deeds import Deeds
from turnlog.parse.json_values import Data
from turnlog.parse.reply import Reply, Tags

T = TypeVar("T")

AGENTS = 256  # the process itself runs a handful at once
CALLS = 1024  # of one agent, without a result
CALLERS = 4096  # an answer, or an agent, may come long after its call

ORIGINS: dict[type[Payload], Origin] = {
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
ENDED = "Its agent has ended."
BROKEN = frozenset({"error", "cancelled", "timeout"})  # ends that reach everybody below


class Said(NamedTuple):
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
        self.uuids: list[str] = []  # the messages it answers
        self.background = False
        self.outcome: StopReason | None = None  # of a task that is over, though nobody has ended its agent
        self.message: Message | None = None
        self.steps = 0
        self.calls: dict[str, ToolCall] = {}
        self.said: str | None = None  # its last text
        self.said_in: str | None = None  # the block of it

    @property
    def agent_id(self) -> str:
        """Which invocation it is."""
        return self.scope.agent_id or ""

    def close_message(self) -> list[Payload]:
        """Its message is over; what it showed is still known."""
        return self.message.close() if self.message else []


class Crew:
    """Every agent that is open, in the order of their starts."""

    def __init__(self, new_id: Callable[[Any], str], tags: Tags, deeds: Deeds) -> None:
        self._new_id, self._tags, self._deeds = new_id, tags, deeds
        self.open: dict[str, CliAgent] = {}
        self._callers: dict[str, CliAgent] = {}  # by call
        self._children: dict[str, CliAgent] = {}  # by call

    def begin(self, start: AgentStart, agent: CliAgent) -> list[Said]:
        """An invocation begins."""
        self.open[agent.agent_id] = agent
        agent.prompt = start.prompt
        if agent.call_id:
            self._children[agent.call_id] = agent
        return self.say(agent, [start])

    def scope(self, name: str, trace_id: str, depth: int, channel: str | None = None) -> Scope:
        """The scope of a new invocation."""
        return Scope(
            trace_id=trace_id,
            agent_id=self._new_id("agt_"),
            agent_name=name,
            depth=depth,
            channel=channel,
        )

    def child(self, call_id: str | None, task_id: str | None = None) -> CliAgent | None:
        """The open agent that a call spawned, or that is this task."""
        by_task = (agent for agent in self.open.values() if task_id and agent.task_id == task_id)
        return self._children.get(call_id or "") or next(by_task, None)

    def caller(self, call_id: str | None) -> CliAgent | None:
        """The open agent that made a call."""
        return self._callers.get(call_id or "")

    def begin_message(self, agent: CliAgent, start: Data) -> tuple[Message, list[Said]]:
        """Another message of an agent; the one before is over."""
        said = self.say(agent, agent.close_message())
        agent.message = Message(Reply(self._new_id, self._tags), start)
        agent.steps += 1
        return agent.message, said

    def say(self, agent: CliAgent, payloads: list[Payload]) -> list[Said]:
        """What an agent says or does, and what follows from it."""
        said: list[Said] = []
        for payload in payloads:
            if isinstance(payload, AssistantMessage):
                payload = structs.replace(payload, speaker=agent.speaker)
                agent.said, agent.said_in = payload.text, payload.block_id
            said.append(Said(payload, agent.scope, origin_of(payload)))
            if isinstance(payload, ToolCall):
                said += self._called(agent, payload)
            elif isinstance(payload, ToolResult):
                agent.calls.pop(payload.call_id, None)
        return said

    def _called(self, agent: CliAgent, call: ToolCall) -> list[Said]:
        keep(agent.calls, call.call_id, call, CALLS + 1)
        keep(self._callers, call.call_id, agent, CALLERS)
        said = self.say(agent, self._deeds.called(call))
        oldest = next(iter(agent.calls))
        return said + (self.cancel(agent, oldest) if len(agent.calls) > CALLS else [])

    def answer(self, agent: CliAgent, result: ToolResult, account: Any) -> list[Said]:
        """A call has its result; an agent that it waited for is over."""
        call = agent.calls[result.call_id]
        child = self._children.get(result.call_id)
        said: list[Said] = []
        if child and child.caller is agent and not child.background:
            reason: StopReason = child.outcome or ("end_turn" if result.ok else "error")
            text = result.result if isinstance(result.result, str) else None
            said = self.end(child, reason, child.said or text)
        said.append(Said(result, agent.scope, "tool"))
        del agent.calls[result.call_id]
        return said + self.say(agent, self._deeds.answered(call, result, account))

    def cancel(self, agent: CliAgent, call_id: str) -> list[Said]:
        """A call that nobody will answer."""
        fault = Fault(code="CANCELLED", message=ENDED)
        call = agent.calls.pop(call_id)
        result = ToolResult(call_id=call_id, tool=call.tool, ok=False, error=fault)
        return [Said(result, agent.scope, "system")]

    def retract(self, agent: CliAgent, block_ids: list[str], reason: str) -> list[Said]:
        """Blocks are void, and so are their calls and whom they called."""
        void = [key for key, call in agent.calls.items() if call.block_id in block_ids]
        called = [child for child in self.open.values() if child.caller is agent and child.call_id in void]
        said = [event for child in called for event in self.end(child, "cancelled")]
        for key in void:
            del agent.calls[key]
        agent.said = None if agent.said_in in block_ids else agent.said
        retracted = BlockRetract(block_ids=tuple(block_ids), reason=reason)
        return said + (self.say(agent, [retracted]) if block_ids else [])

    def end(self, agent: CliAgent, reason: StopReason, result: str | None = None, **known: Any) -> list[Said]:
        """An invocation is over: first whom it waits for, then its blocks, then its calls, then itself."""
        unfinished: StopReason = reason if reason in BROKEN else "cancelled"
        awaited = [(child, child.outcome or unfinished) for child in self._awaited(agent)]
        said = [event for child, outcome in awaited for event in self.end(child, outcome, child.said)]
        said += self.say(agent, agent.close_message())
        said += [event for call_id in list(agent.calls) for event in self.cancel(agent, call_id)]
        ended = AgentEnd(**{"stop_reason": reason, "steps": agent.steps, "result": result, **known})
        said += self.say(agent, [ended])
        agent.message = None
        del self.open[agent.agent_id]
        self._children.pop(agent.call_id or "", None)
        return said

    def _awaited(self, agent: CliAgent) -> list[CliAgent]:
        """The agents that end with this one: all that it called but those that run on in the background."""
        called = [child for child in self.open.values() if child.caller is agent]
        return [child for child in reversed(called) if not child.background or child.outcome]


def origin_of(payload: Payload) -> Origin:
    """Who says so: the table, or else the model."""
    return ORIGINS.get(type(payload), "model")


def keep(kept: dict[str, T], key: str, value: T, limit: int) -> None:
    """Remember something; beyond the limit the oldest is forgotten."""
    kept[key] = value
    if len(kept) > limit:
        del kept[next(iter(kept))]
