"""The invocations of agents: every start has exactly one end.

`Usage` and `Cost` are added with `+`. Sums saturate: a sum above what a JSON reader can hold would make every
`agent.end` that carries it invalid, and recovery could not close the agent.
"""

from sys import float_info
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from turnlog.events.assistant import File
from turnlog.events.block import Interruption
from turnlog.events.content import PromptPart, SizeBytes
from turnlog.events.payload import (
    MAX_COUNT,
    SYSTEM_ORIGINS,
    AgentId,
    Amount,
    ConversationId,
    Count,
    Name,
    OpaqueId,
    Origins,
    Payload,
    Record,
)

AGENT_PREFIX = "agt_"
COST_DIGITS = 6  # millionths of a dollar; sums of floats have more digits, which mean nothing

StopReason = Literal[
    "end_turn",
    "max_tokens",
    "max_steps",
    "stop_sequence",
    "context_window",
    "refusal",
    "handoff",
    "timeout",
    "cancelled",
    "error",
]


def strip_agent_prefix(agent_id: str) -> str:
    return agent_id.removeprefix(AGENT_PREFIX)


def add_counts(*counts: int) -> int:
    """Return the sum, at most `MAX_COUNT`."""
    return min(sum(counts), MAX_COUNT)


def add_costs(*costs: float) -> float:
    """Return the sum in millionths, at most the largest double."""
    return min(round(sum(costs), COST_DIGITS), float_info.max)


class Usage(Record, frozen=True, kw_only=True):
    input_tokens: Count
    output_tokens: Count
    cache_read_tokens: Count = 0
    cache_creation_tokens: Count = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=add_counts(self.input_tokens, other.input_tokens),
            output_tokens=add_counts(self.output_tokens, other.output_tokens),
            cache_read_tokens=add_counts(self.cache_read_tokens, other.cache_read_tokens),
            cache_creation_tokens=add_counts(self.cache_creation_tokens, other.cache_creation_tokens),
        )


class Cost(Record, frozen=True, kw_only=True):
    total_cost: Amount
    input_cost: Amount = 0.0
    output_cost: Amount = 0.0
    cache_read_cost: Amount = 0.0
    cache_write_cost: Amount = 0.0
    currency: Literal["USD"] = "USD"

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            total_cost=add_costs(self.total_cost, other.total_cost),
            input_cost=add_costs(self.input_cost, other.input_cost),
            output_cost=add_costs(self.output_cost, other.output_cost),
            cache_read_cost=add_costs(self.cache_read_cost, other.cache_read_cost),
            cache_write_cost=add_costs(self.cache_write_cost, other.cache_write_cost),
        )


class CompletionTotals(Record, frozen=True, kw_only=True):
    """The sum of an agent's completions. The cost is None once that of one completion is unknown."""

    steps: Count = 0
    usage: Usage | None = None
    cost: Cost | None = None
    has_known_cost: bool = True

    def add(self, usage: Usage, cost: Cost | None) -> "CompletionTotals":
        has_known_cost = self.has_known_cost and cost is not None
        total_cost = None
        if cost is not None and has_known_cost:
            total_cost = cost if self.cost is None else self.cost + cost
        return CompletionTotals(
            steps=add_counts(self.steps, 1),
            usage=usage if self.usage is None else self.usage + usage,
            cost=total_cost,
            has_known_cost=has_known_cost,
        )


class AgentStart(Payload, frozen=True, kw_only=True):
    """An invocation began: by a prompt, a call of its parent, or a hand-off."""

    TYPE: ClassVar = "agent.start"
    ORIGINS: ClassVar[Origins] = SYSTEM_ORIGINS
    EXAMPLE: ClassVar = {
        "name": "Researcher",
        "via": "call",
        "model": "claude-sonnet-4-5",
        "parent_id": "agt_1",
        "call_id": "toolu_01",
        "tools": ["grep_search"],
        "prompt": "What colour is the grass?",
    }

    name: Name
    via: Literal["prompt", "call", "handoff"]
    model: Name | None = None
    parent_id: AgentId | None = None
    call_id: Annotated[OpaqueId | None, Meta(description="The tool call that spawned it.")] = None
    tools: tuple[Name, ...] = ()
    prompt: str | None = None
    content: Annotated[
        tuple[PromptPart, ...], Meta(description="The parts of a prompt that is more than a text.")
    ] = ()
    source_session: Annotated[OpaqueId | None, Meta(description="The session id of the source itself.")] = (
        None
    )
    resumes: Annotated[
        AgentId | None, Meta(description="The ended agent whose conversation it continues.")
    ] = None
    conversation_id: Annotated[
        ConversationId | None,
        Meta(description="The id of its conversation, the same in every turn; without it that of the agent."),
    ] = None
    recorder: Annotated[
        Name | None, Meta(description="Who records it from another process: no server runs or continues it.")
    ] = None


class AgentEnd(Payload, frozen=True, kw_only=True):
    """An invocation ended, for whatever reason. After a crash, recovery emits it."""

    TYPE: ClassVar = "agent.end"
    ORIGINS: ClassVar[Origins] = SYSTEM_ORIGINS
    EXAMPLE: ClassVar = {
        "stop_reason": "end_turn",
        "steps": 3,
        "usage": {"input_tokens": 1000, "output_tokens": 300},
        "result": "The grass is green.",
    }

    stop_reason: StopReason
    steps: Count = 0
    usage: Usage | None = None
    cost: Cost | None = None
    result: str | None = None
    files: tuple[File, ...] = ()
    reason: Interruption = None


class AgentHandoff(Payload, frozen=True, kw_only=True):
    """An agent handed its caller and depth over to another, between the call's result and its own end."""

    TYPE: ClassVar = "agent.handoff"
    ORIGINS: ClassVar[Origins] = SYSTEM_ORIGINS
    EXAMPLE: ClassVar = {"to": "Writer", "to_agent_id": "agt_2"}

    to: Name
    to_agent_id: AgentId


class AgentUsage(Payload, frozen=True, kw_only=True):
    """The tokens of one completion of a model. `cost` is absent if the price is not known."""

    TYPE: ClassVar = "agent.usage"
    ORIGINS: ClassVar[Origins] = SYSTEM_ORIGINS
    EXAMPLE: ClassVar = {"model": "claude-sonnet-4-5", "usage": {"input_tokens": 900, "output_tokens": 120}}

    model: Name
    usage: Usage
    cost: Cost | None = None
    duration_ms: Count | None = None


class ContextCompact(Payload, frozen=True, kw_only=True):
    """The model's context was compacted."""

    TYPE: ClassVar = "context.compact"
    ORIGINS: ClassVar[Origins] = SYSTEM_ORIGINS
    EXAMPLE: ClassVar = {"tokens_before": 180000, "tokens_after": 30000}

    tokens_before: Count | None = None
    tokens_after: Count | None = None


class AgentCheckpoint(Payload, frozen=True, kw_only=True):
    """A runtime stored what only it can read, to go on later. The content is a private blob: no member of the
    session can fetch it."""

    TYPE: ClassVar = "agent.checkpoint"
    ORIGINS: ClassVar[Origins] = SYSTEM_ORIGINS
    EXAMPLE: ClassVar = {
        "source": "pydantic_ai",
        "version": "2.66.0",
        "blob": "sess_1/private-7d1f0c52a9e84b63b0c4d6a1f2e39587",
        "paused": True,
        "size_bytes": 2914,
    }

    source: Annotated[Name, Meta(description="The framework that can read the content.")]
    version: Annotated[Name, Meta(description="The version of the framework or of its format.")]
    blob: Annotated[OpaqueId, Meta(description="The name of the private blob, of the same session.")]
    paused: Annotated[
        bool, Meta(description="True: the agent waits, and its calls that have not begun wait with it.")
    ] = False
    size_bytes: SizeBytes = None


EVENTS = (AgentStart, AgentEnd, AgentHandoff, AgentUsage, ContextCompact, AgentCheckpoint)
