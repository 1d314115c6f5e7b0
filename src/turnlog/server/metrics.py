"""`GET /metrics`: what this process has seen and sent, in the text format of Prometheus.

Counts and times come from the events that this process sees as they happen: how many of each family, how long
turns and tools took by the time stamps in the log. What was sent, and to how many, the streams count
themselves. No name in it comes from a user.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from turnlog.events import AgentEnd, AgentStart, Envelope, Payload, ToolCall, ToolResult, Unknown
from turnlog.events.envelope import milliseconds
from turnlog.log.writer import WriteHealth

BOUNDS_S = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0)
OPEN = 10_000  # beginnings that are remembered; older ones are not timed


@dataclass(slots=True)
class Times:
    """How long something took, counted by upper bounds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sum_s: float = 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    def lines(self, name: str) -> Iterator[str]:
        """As a histogram: every bucket counts the ones below it too."""
        yield f"# TYPE {name} histogram"
        seen = 0
        for bound, count in zip((*BOUNDS_S, "+Inf"), self.counts, strict=True):
            seen += count
            yield f'{name}_bucket{{le="{bound}"}} {seen}'
        yield f"{name}_sum {self.sum_s:.3f}"
        yield f"{name}_count {seen}"


@dataclass(slots=True)
class Metrics:
    """Everything that is counted."""

    events: Counter[str] = field(default_factory=Counter)
    turns: Times = field(default_factory=Times)
    tools: Times = field(default_factory=Times)
    subscribers: int = 0
    deliveries: int = 0
    delivered_bytes: int = 0
    _begun: dict[tuple[str, str], int] = field(default_factory=dict)

    def observe(self, envelope: Envelope, payload: Payload | Unknown) -> None:
        """Take one event into account."""
        self.events["application" if isinstance(payload, Unknown) else envelope.type.partition(".")[0]] += 1
        match payload:
            case ToolCall(call_id=key):
                self._begin(envelope, key)
            case ToolResult(call_id=key):
                self._end(envelope, key, self.tools)
            case AgentStart(parent_id=None):
                self._begin(envelope, envelope.agent_id or "")
            case AgentEnd():
                self._end(envelope, envelope.agent_id or "", self.turns)
            case _:
                pass

    def _begin(self, envelope: Envelope, key: str) -> None:
        self._begun[envelope.session_id, key] = milliseconds(envelope.ts)
        if len(self._begun) > OPEN:
            del self._begun[next(iter(self._begun))]

    def _end(self, envelope: Envelope, key: str, times: Times) -> None:
        begun = self._begun.pop((envelope.session_id, key), None)
        if begun is not None:
            times.add(max(0, milliseconds(envelope.ts) - begun) / 1000)

    def delivered(self, size_bytes: int) -> None:
        """One write to one reader."""
        self.deliveries += 1
        self.delivered_bytes += size_bytes

    def text(self, lags: Iterable[int] = (), health: WriteHealth | None = None) -> str:
        """The page that Prometheus reads; `lags` are how far the projections are behind, in events."""
        lines = [*self._lines(max(lags, default=0)), *(health_lines(health) if health else ())]
        return "\n".join([*lines, ""])

    def _lines(self, lag: int) -> Iterator[str]:
        yield "# TYPE turnlog_events_total counter"
        for name, count in sorted(self.events.items()):
            yield f'turnlog_events_total{{family="{name}"}} {count}'
        for name, kind, value in (
            ("turnlog_subscribers", "gauge", self.subscribers),
            ("turnlog_deliveries_total", "counter", self.deliveries),
            ("turnlog_delivered_bytes_total", "counter", self.delivered_bytes),
            ("turnlog_lag_events", "gauge", lag),
        ):
            yield f"# TYPE {name} {kind}"
            yield f"{name} {value}"
        yield from self.turns.lines("turnlog_turn_seconds")
        yield from self.tools.lines("turnlog_tool_seconds")


def health_lines(health: WriteHealth) -> Iterator[str]:
    """Whether writes fail, and when the last one was stored; a process that has stored none has no time."""
    yield "# TYPE turnlog_write_failing gauge"
    yield f"turnlog_write_failing {int(health.is_failing)}"
    if health.stored_s is not None:
        yield "# TYPE turnlog_last_write_timestamp_seconds gauge"
        yield f"turnlog_last_write_timestamp_seconds {health.stored_s:.3f}"
