"""Tokens, cost and time of a session, of each turn and of each invocation.

Input: the events of the log; live events are not needed. Times are those of the events.

- A turn lasts from its first event to the end of its last agent, waiting included.
- The first token is the first output of an agent: a block, a message or a call.
- A call counts when it is answered. A call that started an agent counts as that agent.
- The time in which a call waits for a person is `wait_ms`, never `tool_ms`.
- `agent.end` has the sums of `agent.usage`. It counts only for an agent that reported no usage.
- The numbers of an agent exclude the agents that it called.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any

from msgspec import Struct, field, to_builtins

from turnlog.events import (
    AgentEnd,
    AgentStart,
    AgentUsage,
    ApprovalDecision,
    ApprovalRequest,
    AssistantBlock,
    AssistantMessage,
    AssistantThinking,
    BlockStart,
    Cost,
    Envelope,
    Payload,
    ToolAwait,
    ToolCall,
    ToolResult,
    UiAction,
    UnknownPayload,
    Usage,
)
from turnlog.events.agent import add_costs, add_counts
from turnlog.events.envelope import parse_timestamp_ms
from turnlog.state.channels import is_channel_visible

FIRST_OUTPUT_PAYLOADS = (BlockStart, AssistantMessage, AssistantThinking, AssistantBlock, ToolCall)
TOKEN_FIELDS = Usage.__struct_fields__
COUNT_FIELDS = (
    *TOKEN_FIELDS,
    "completions",
    "unpriced",
    "calls",
    "failed",
    "tool_ms",
    "wait_ms",
    "agents",
    "running",
)
FIELD_ADDERS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(COUNT_FIELDS, add_counts),
    "cost_usd": add_costs,
}


class Meter(Struct, kw_only=True, omit_defaults=True):
    """The numbers of a session, a turn or an invocation.

    `cost_usd` excludes the `unpriced` completions. `agents` have started; `running` of them have not ended.
    """

    began: str
    channel: str | None = None
    ended: str | None = None
    duration_ms: int | None = None
    first_token_ms: int | None = None
    completions: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_creation_tokens: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0
    calls: int = 0
    failed: int = 0
    tool_ms: int = 0
    wait_ms: int = 0
    agents: int = 0
    running: int = 0

    def add_completions(self, usage: Usage, cost: Cost | None, completions: int) -> None:
        self.completions = add_counts(self.completions, completions)
        for name in TOKEN_FIELDS:
            setattr(self, name, add_counts(getattr(self, name), getattr(usage, name)))
        if cost is None:
            self.unpriced = add_counts(self.unpriced, completions)
        else:
            self.cost_usd = add_costs(self.cost_usd, cost.total_cost)

    def end(self, ts: str) -> None:
        """Set the end. The start of another agent, such as the target of a hand-off, clears it again."""
        self.ended = ts
        self.duration_ms = elapsed_ms(self.began, ts)


class UnansweredCall(Struct):
    """A call without a result. `waiting_since` is None if it waits for no person."""

    called_at: str
    waiting_since: str | None = None
    waited_ms: int = 0

    def resume(self, ts: str) -> None:
        if self.waiting_since is not None:
            self.waited_ms += elapsed_ms(self.waiting_since, ts)
            self.waiting_since = None


class Meters(Struct, kw_only=True):
    """The meters of a session, and its calls that have no result yet."""

    session: Meter | None = None
    turns: dict[str, Meter] = field(default_factory=dict)
    agents: dict[str, Meter] = field(default_factory=dict)
    # By open agent and call.
    unanswered_calls: dict[str, dict[str, UnansweredCall]] = field(default_factory=dict)

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        if self.session is None:
            self.session = Meter(began=envelope.ts)
        if envelope.trace_id and envelope.trace_id not in self.turns:
            self.turns[envelope.trace_id] = Meter(began=envelope.ts, channel=envelope.channel)
        reduce = REDUCERS.get(type(payload))
        if reduce is not None:
            reduce(self, envelope, payload)

    def open_calls(self, agent_id: str | None) -> dict[str, UnansweredCall]:
        return self.unanswered_calls.get(agent_id or "", {})

    def meters_for(self, envelope: Envelope) -> Iterator[Meter]:
        if self.session is not None:
            yield self.session
        turn = self.turns.get(envelope.trace_id or "")
        if turn is not None:
            yield turn
        agent = self.agents.get(envelope.agent_id or "")
        if agent is not None:
            yield agent

    def report(self) -> dict[str, Any]:
        session = to_builtins(self.session or {})
        session["turns"] = len(self.turns)
        session["turn_ms"] = sum(turn.duration_ms or 0 for turn in self.turns.values())
        return {"session": session, "turns": to_builtins(self.turns), "agents": to_builtins(self.agents)}

    def visible_in(self, channels: Collection[str]) -> "Meters":
        """Return the meters for a member of these channels. The session has the sums of the visible turns."""
        turns = filter_meters(self.turns, channels)
        agents = filter_meters(self.agents, channels)
        if self.session is None:
            return Meters(turns=turns, agents=agents)

        session = Meter(began=self.session.began)
        for name, add in FIELD_ADDERS.items():
            total = add(*(getattr(turn, name) for turn in turns.values()))
            if total:  # a zero stays the default, which is not encoded
                setattr(session, name, total)
        return Meters(session=session, turns=turns, agents=agents)


def filter_meters(meters: dict[str, Meter], channels: Collection[str]) -> dict[str, Meter]:
    return {key: meter for key, meter in meters.items() if is_channel_visible(meter.channel, channels)}


def _start(meters: Meters, envelope: Envelope, payload: AgentStart) -> None:
    if envelope.agent_id is None:
        return
    # A call that started an agent counts as that agent.
    meters.open_calls(payload.parent_id).pop(payload.call_id or "", None)
    for meter in meters.meters_for(envelope):
        meter.agents += 1
        meter.running += 1
        meter.ended = meter.duration_ms = None
    meters.agents[envelope.agent_id] = Meter(began=envelope.ts, channel=envelope.channel, running=1)


def _end(meters: Meters, envelope: Envelope, payload: AgentEnd) -> None:
    agent = meters.agents.get(envelope.agent_id or "")
    if agent is None or agent.ended is not None:
        return
    unreported_usage = payload.usage if agent.completions == 0 else None
    for meter in meters.meters_for(envelope):
        if unreported_usage is not None:
            meter.add_completions(unreported_usage, payload.cost, max(1, payload.steps))
        meter.running -= 1
        if meter.running == 0 and meter is not meters.session:
            meter.end(envelope.ts)
    meters.unanswered_calls.pop(envelope.agent_id or "", None)


def _usage(meters: Meters, envelope: Envelope, payload: AgentUsage) -> None:
    for meter in meters.meters_for(envelope):
        meter.add_completions(payload.usage, payload.cost, 1)


def _first_output(meters: Meters, envelope: Envelope, _: Payload) -> None:
    if envelope.agent_id in meters.agents:
        for meter in meters.meters_for(envelope):
            if meter.first_token_ms is None and meter is not meters.session:
                meter.first_token_ms = elapsed_ms(meter.began, envelope.ts)


def _call(meters: Meters, envelope: Envelope, payload: ToolCall) -> None:
    _first_output(meters, envelope, payload)
    if envelope.agent_id in meters.agents:
        calls = meters.unanswered_calls.setdefault(envelope.agent_id, {})
        calls[payload.call_id] = UnansweredCall(envelope.ts)


def _wait(meters: Meters, envelope: Envelope, payload: ToolAwait | ApprovalRequest) -> None:
    calls = meters.open_calls(envelope.agent_id)
    requests = payload.calls if isinstance(payload, ToolAwait) else (payload,)
    for request in requests:
        call = calls.get(request.call_id)
        if call is not None and call.waiting_since is None:
            call.waiting_since = envelope.ts


def _resume(meters: Meters, envelope: Envelope, payload: ApprovalDecision | UiAction) -> None:
    call = meters.open_calls(envelope.agent_id).get(payload.call_id or "")
    if call is not None:
        call.resume(envelope.ts)


def _result(meters: Meters, envelope: Envelope, payload: ToolResult) -> None:
    call = meters.open_calls(envelope.agent_id).pop(payload.call_id, None)
    if call is None:
        return
    call.resume(envelope.ts)
    # A clock that went back while the call waited must not make its time negative.
    ran_ms = max(0, elapsed_ms(call.called_at, envelope.ts) - call.waited_ms)
    for meter in meters.meters_for(envelope):
        meter.calls += 1
        meter.failed += not payload.ok
        meter.tool_ms += ran_ms
        meter.wait_ms += call.waited_ms


REDUCERS: dict[type, Callable[[Meters, Envelope, Any], None]] = {
    **dict.fromkeys(FIRST_OUTPUT_PAYLOADS, _first_output),
    AgentStart: _start,
    AgentEnd: _end,
    AgentUsage: _usage,
    ToolCall: _call,
    ToolAwait: _wait,
    ApprovalRequest: _wait,
    ApprovalDecision: _resume,
    UiAction: _resume,
    ToolResult: _result,
}


def elapsed_ms(earlier: str, later: str) -> int:
    """Return the milliseconds from one timestamp to another; 0 if the clock went back."""
    return max(0, parse_timestamp_ms(later) - parse_timestamp_ms(earlier))
