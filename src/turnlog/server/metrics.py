"""Counters of this process in the text format of Prometheus, for `GET /metrics`.

Input: events as they are appended (`observe`), and deliveries, which the streams count. The durations of
turns and tools come from the time stamps of their events. No name in the output comes from a user.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from turnlog.events import AgentEnd, AgentStart, Envelope, Payload, ToolCall, ToolResult, UnknownPayload
from turnlog.events.envelope import parse_timestamp_ms
from turnlog.log import Row
from turnlog.log.writer import WriteHealth

BUCKET_BOUNDS_S = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0)
MAX_OPEN_TIMERS = 10_000  # starts that are stored; the oldest ones are dropped and not timed


@dataclass(slots=True)
class Histogram:
    """Durations, counted by upper bounds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKET_BOUNDS_S) + 1))
    sum_s: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKET_BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    def format_lines(self, name: str) -> Iterator[str]:
        yield f"# TYPE {name} histogram"
        cumulative = 0
        for bound, count in zip((*BUCKET_BOUNDS_S, "+Inf"), self.counts, strict=True):
            cumulative += count
            yield f'{name}_bucket{{le="{bound}"}} {cumulative}'
        yield f"{name}_sum {self.sum_s:.3f}"
        yield f"{name}_count {cumulative}"


@dataclass(slots=True)
class Metrics:
    """All counters."""

    events: Counter[str] = field(default_factory=Counter)
    turns: Histogram = field(default_factory=Histogram)
    tools: Histogram = field(default_factory=Histogram)
    subscribers: int = 0
    deliveries: int = 0
    delivered_bytes: int = 0
    _start_times_ms: dict[tuple[str, str], int] = field(default_factory=dict)

    def observe(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        # Types of applications may be user input: they are counted under one name.
        is_unknown = isinstance(payload, UnknownPayload)
        family = "application" if is_unknown else envelope.type.partition(".")[0]
        self.events[family] += 1
        match payload:
            case ToolCall(call_id=key):
                self._start_timer(envelope, key)
            case ToolResult(call_id=key):
                self._stop_timer(envelope, key, self.tools)
            case AgentStart(parent_id=None):
                self._start_timer(envelope, envelope.agent_id or "")
            case AgentEnd():
                self._stop_timer(envelope, envelope.agent_id or "", self.turns)
            case _:
                pass

    def observe_live(self, row: Row) -> None:
        self.events[row.type.partition(".")[0]] += 1

    def _start_timer(self, envelope: Envelope, key: str) -> None:
        self._start_times_ms[envelope.session_id, key] = parse_timestamp_ms(envelope.ts)
        if len(self._start_times_ms) > MAX_OPEN_TIMERS:
            del self._start_times_ms[next(iter(self._start_times_ms))]

    def _stop_timer(self, envelope: Envelope, key: str, histogram: Histogram) -> None:
        start_ms = self._start_times_ms.pop((envelope.session_id, key), None)
        if start_ms is not None:
            histogram.add(max(0, parse_timestamp_ms(envelope.ts) - start_ms) / 1000)

    def count_delivery(self, size_bytes: int) -> None:
        self.deliveries += 1
        self.delivered_bytes += size_bytes

    def render(self, lags: Iterable[int] = (), health: WriteHealth | None = None) -> str:
        """Return the metrics as text. `lags` are the events that each projection is behind."""
        lines = list(self._format_lines(max(lags, default=0)))
        if health is not None:
            lines += format_health_lines(health)
        return "\n".join([*lines, ""])

    def _format_lines(self, lag: int) -> Iterator[str]:
        yield "# TYPE turnlog_events_total counter"
        for name, count in sorted(self.events.items()):
            yield f'turnlog_events_total{{family="{name}"}} {count}'
        for name, metric_type, value in (
            ("turnlog_subscribers", "gauge", self.subscribers),
            ("turnlog_deliveries_total", "counter", self.deliveries),
            ("turnlog_delivered_bytes_total", "counter", self.delivered_bytes),
            ("turnlog_lag_events", "gauge", lag),
        ):
            yield f"# TYPE {name} {metric_type}"
            yield f"{name} {value}"
        yield from self.turns.format_lines("turnlog_turn_seconds")
        yield from self.tools.format_lines("turnlog_tool_seconds")


def format_health_lines(health: WriteHealth) -> Iterator[str]:
    yield "# TYPE turnlog_write_failing gauge"
    yield f"turnlog_write_failing {int(health.is_failing)}"
    if health.last_stored_s is not None:
        yield "# TYPE turnlog_last_write_timestamp_seconds gauge"
        yield f"turnlog_last_write_timestamp_seconds {health.last_stored_s:.3f}"
