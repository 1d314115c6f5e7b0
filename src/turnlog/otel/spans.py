"""Events of a session in, finished spans out, with the names of the GenAI semantic conventions. Pure.

    turn                          from its first event to the end of its last agent
    └─ invoke_agent Support       from agent.start to agent.end
       ├─ chat claude-...         one completion (agent.usage)
       └─ execute_tool search     from tool.call to tool.result
          └─ invoke_agent ...     an agent that the call started

The ids of traces and spans derive from the ids of what they show: the same events always give the same spans,
so a backend that has them gets nothing new. A message that came with a `traceparent` continues the trace of
its sender. Texts, arguments and results are not in the spans: the log has them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal, NamedTuple

from turnlog.events import (
    AgentEnd,
    AgentStart,
    AgentUsage,
    BlockStart,
    Entry,
    SessionError,
    ToolCall,
    ToolResult,
    UiMessage,
    Usage,
)
from turnlog.events.envelope import parse_timestamp_ms
from turnlog.otel.providers import find_provider

AttributeValue = str | int | float | tuple[str, ...]
SpanKind = Literal["internal", "client", "server"]

NS_PER_MS = 1_000_000
FAILED_STOP_REASONS = frozenset({"error", "timeout"})
MAX_OPEN_TURNS = 1024  # a turn that never ends must not keep its spans for ever


class SpanValue(NamedTuple):
    """A span that has ended. Ids are hexadecimal: 32 digits of a trace, 16 of a span. Times are in ns."""

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str | None
    kind: SpanKind
    start_ns: int
    end_ns: int
    attributes: dict[str, AttributeValue]
    error: str | None = None
    last_seq: int = -1


@dataclass(slots=True)
class OpenSpan:
    """A span that has no end yet."""

    name: str
    span_id: str
    parent_span_id: str | None
    start_ns: int
    attributes: dict[str, AttributeValue]
    kind: SpanKind = "internal"


@dataclass(slots=True)
class TurnSpans:
    """A turn and the spans in it. `completion_starts` has when the open completion of each agent began."""

    span: OpenSpan
    trace_id: str
    agents: dict[str, OpenSpan] = field(default_factory=dict)
    calls: dict[tuple[str, str], OpenSpan] = field(default_factory=dict)
    completion_starts: dict[str, int] = field(default_factory=dict)
    error_code: str | None = None  # of the last `session.error`


class SpanBuilder:
    """Folds the events of one session. `take_spans` returns those spans that have ended since."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._turns: dict[str, TurnSpans] = {}
        self._spans: list[SpanValue] = []

    def take_spans(self) -> list[SpanValue]:
        spans, self._spans = self._spans, []
        return spans

    def apply(self, entry: Entry) -> None:
        trace = entry.trace_id
        if trace is None:
            return
        at_ns = parse_timestamp_ms(entry.ts) * NS_PER_MS
        turn = self._turns.get(trace)
        if turn is None:
            turn = self._open_turn(trace, entry, at_ns)
            if turn is None:
                return
        handler = EVENT_HANDLERS.get(type(entry.payload))
        if handler is not None:
            handler(self, turn, entry, entry.payload, at_ns)

    # turns

    def _open_turn(self, trace: str, entry: Entry, at_ns: int) -> TurnSpans | None:
        # an event that comes after the end of its turn opens no second one
        if not isinstance(entry.payload, UiMessage | AgentStart) and entry.origin != "ui":
            return None
        remote = None
        if isinstance(entry.payload, UiMessage) and entry.payload.traceparent is not None:
            remote = entry.payload.traceparent.split("-")
        trace_id = remote[1] if remote else derive_id(32, "trace", self._session_id, trace)
        attributes: dict[str, AttributeValue] = {
            "gen_ai.conversation.id": self._session_id,
            "turnlog.turn": trace,
        }
        span_id = derive_id(16, "turn", self._session_id, trace)
        span = OpenSpan("turn", span_id, remote[2] if remote else None, at_ns, attributes, "server")
        turn = TurnSpans(span, trace_id)
        self._turns[trace] = turn
        if len(self._turns) > MAX_OPEN_TURNS:
            del self._turns[next(iter(self._turns))]
        return turn

    def _end_turn(self, turn: TurnSpans, entry: Entry, at_ns: int, error: str | None) -> None:
        del self._turns[entry.trace_id or ""]
        self._add_span(turn, turn.span, entry, at_ns, error)

    # agents

    def _start_agent(self, turn: TurnSpans, entry: Entry, start: AgentStart, at_ns: int) -> None:
        agent_id = entry.agent_id or ""
        call = turn.calls.get((start.parent_id or "", start.call_id or ""))
        parent = call or turn.agents.get(start.parent_id or "") or turn.span
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": find_provider(start.model),
            "gen_ai.agent.id": agent_id,
            "gen_ai.agent.name": start.name,
            "gen_ai.conversation.id": self._session_id,
        }
        if start.model is not None:
            attributes["gen_ai.request.model"] = start.model
        span_id = derive_id(16, "agent", self._session_id, agent_id)
        name = f"invoke_agent {start.name}"
        turn.agents[agent_id] = OpenSpan(name, span_id, parent.span_id, at_ns, attributes)

    def _end_agent(self, turn: TurnSpans, entry: Entry, end: AgentEnd, at_ns: int) -> None:
        span = turn.agents.pop(entry.agent_id or "", None)
        if span is None:
            return
        span.attributes["gen_ai.response.finish_reasons"] = (end.stop_reason,)
        if end.usage is not None:
            span.attributes |= usage_attributes(end.usage)
        error = None
        if end.stop_reason in FAILED_STOP_REASONS:
            error = turn.error_code or end.stop_reason
        turn.completion_starts.pop(entry.agent_id or "", None)
        self._add_span(turn, span, entry, at_ns, error)
        # the successor of a hand-off starts in the same batch
        if not turn.agents and end.stop_reason != "handoff":
            # a turn whose sub-agent failed, or that went on after an error, may still end well
            self._end_turn(turn, entry, at_ns, error)

    def _note_error(self, turn: TurnSpans, entry: Entry, error: SessionError, at_ns: int) -> None:
        turn.error_code = error.code

    # completions and calls

    def _begin_completion(self, turn: TurnSpans, entry: Entry, start: BlockStart, at_ns: int) -> None:
        turn.completion_starts.setdefault(entry.agent_id or "", at_ns)

    def _add_completion(self, turn: TurnSpans, entry: Entry, usage: AgentUsage, at_ns: int) -> None:
        agent = turn.agents.get(entry.agent_id or "")
        if agent is None:
            return
        start_ns = turn.completion_starts.pop(entry.agent_id or "", at_ns)
        if usage.duration_ms is not None:
            start_ns = at_ns - usage.duration_ms * NS_PER_MS
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": find_provider(usage.model),
            "gen_ai.request.model": usage.model,
            "gen_ai.response.model": usage.model,
            "gen_ai.conversation.id": self._session_id,
            **usage_attributes(usage.usage),
        }
        if usage.cost is not None:
            attributes["turnlog.cost_usd"] = usage.cost.total_cost
        span_id = derive_id(16, "completion", self._session_id, entry.id)
        span = OpenSpan(f"chat {usage.model}", span_id, agent.span_id, start_ns, attributes, "client")
        self._add_span(turn, span, entry, at_ns, None)

    def _start_call(self, turn: TurnSpans, entry: Entry, call: ToolCall, at_ns: int) -> None:
        agent_id = entry.agent_id or ""
        agent = turn.agents.get(agent_id)
        if agent is None:
            return
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.tool,
            "gen_ai.tool.call.id": call.call_id,
            "gen_ai.tool.type": "function",
            "turnlog.executor": call.executor,
        }
        span_id = derive_id(16, "call", self._session_id, entry.id)
        turn.calls[agent_id, call.call_id] = OpenSpan(
            f"execute_tool {call.tool}", span_id, agent.span_id, at_ns, attributes
        )

    def _end_call(self, turn: TurnSpans, entry: Entry, result: ToolResult, at_ns: int) -> None:
        span = turn.calls.pop((entry.agent_id or "", result.call_id), None)
        if span is not None:
            error = None if result.ok or result.error is None else result.error.code
            self._add_span(turn, span, entry, at_ns, error)

    def _add_span(
        self, turn: TurnSpans, span: OpenSpan, entry: Entry, end_ns: int, error: str | None
    ) -> None:
        if error is not None:
            span.attributes["error.type"] = error
        value = SpanValue(
            span.name,
            turn.trace_id,
            span.span_id,
            span.parent_span_id,
            span.kind,
            # clocks may be set back between two events
            min(span.start_ns, end_ns),
            end_ns,
            span.attributes,
            error,
            entry.seq,
        )
        self._spans.append(value)


EVENT_HANDLERS: dict[type, Callable[[SpanBuilder, TurnSpans, Entry, Any, int], None]] = {
    AgentStart: SpanBuilder._start_agent,
    AgentEnd: SpanBuilder._end_agent,
    AgentUsage: SpanBuilder._add_completion,
    BlockStart: SpanBuilder._begin_completion,
    SessionError: SpanBuilder._note_error,
    ToolCall: SpanBuilder._start_call,
    ToolResult: SpanBuilder._end_call,
}


def build_spans(session_id: str, entries: Iterable[Entry]) -> list[SpanValue]:
    """Return the spans of all turns, agents, completions and calls that ended in these events."""
    builder = SpanBuilder(session_id)
    for entry in entries:
        builder.apply(entry)
    return builder.take_spans()


def usage_attributes(usage: Usage) -> dict[str, AttributeValue]:
    # in the conventions the input includes what came from a cache; in the log it does not
    cached_tokens = usage.cache_read_tokens + usage.cache_creation_tokens
    attributes: dict[str, AttributeValue] = {
        "gen_ai.usage.input_tokens": usage.input_tokens + cached_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
    }
    if usage.cache_read_tokens:
        attributes["gen_ai.usage.cache_read.input_tokens"] = usage.cache_read_tokens
    if usage.cache_creation_tokens:
        attributes["gen_ai.usage.cache_creation.input_tokens"] = usage.cache_creation_tokens
    return attributes


def derive_id(digits: int, *parts: str) -> str:
    """Return an id of so many hexadecimal digits that always follows from the same parts."""
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return sha256(text.encode()).hexdigest()[:digits]
