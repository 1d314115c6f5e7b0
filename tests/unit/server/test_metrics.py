"""What is counted, and how Prometheus reads it."""

from tests.support.written_logs import entry, log, scope
from turnlog.events import AgentEnd, AgentStart, Payload, Scope, ToolCall, ToolResult, UiMessage
from turnlog.server.metrics import MAX_OPEN_TIMERS, Metrics

ROOT = scope("agt_1")
EVENTS: list[tuple[Payload, Scope]] = [
    (UiMessage(text="hi"), ROOT),
    (AgentStart(name="A", via="prompt"), ROOT),
    (ToolCall(call_id="c", tool="t", args={}), ROOT),
    (ToolResult(call_id="c", tool="t", ok=True), ROOT),
    (AgentEnd(stop_reason="end_turn"), ROOT),
    (ToolResult(call_id="unheard-of", tool="t", ok=True), ROOT),
]


def test_events_turns_and_tools_are_counted_and_timed() -> None:
    metrics = Metrics()
    for envelope, payload in log(*EVENTS):
        metrics.observe(envelope, payload)
    metrics.count_delivery(100)
    lines = metrics.render([3, 7]).splitlines()
    assert 'turnlog_events_total{family="tool"} 3' in lines
    assert 'turnlog_events_total{family="agent"} 2' in lines
    assert "turnlog_tool_seconds_count 1" in lines
    assert "turnlog_tool_seconds_sum 0.001" in lines
    assert 'turnlog_tool_seconds_bucket{le="0.01"} 1' in lines
    assert 'turnlog_turn_seconds_bucket{le="+Inf"} 1' in lines
    assert "turnlog_turn_seconds_sum 0.003" in lines
    assert "turnlog_deliveries_total 1" in lines
    assert "turnlog_delivered_bytes_total 100" in lines
    assert "turnlog_lag_events 7" in lines
    assert all(line.startswith(("# TYPE", "turnlog_")) for line in lines)


def test_what_never_ends_is_forgotten_in_the_end() -> None:
    metrics = Metrics()
    for number in range(MAX_OPEN_TIMERS + 5):
        envelope, payload = entry(ToolCall(call_id=f"c{number}", tool="t", args={}), ROOT)
        metrics.observe(envelope, payload)
    assert len(metrics._start_times_ms) == MAX_OPEN_TIMERS
