"""The values that pass through a store."""

import msgspec
import pytest

from turnlog.events import (
    AgentEnd,
    AgentStart,
    BlockDelta,
    BlockEnd,
    BlockStart,
    Payload,
    Scope,
    ToolCall,
    ToolProgress,
    ToolResult,
    UiMessage,
    UnknownPayload,
)
from turnlog.log.records import Row, SessionRecord, encode_meta
from turnlog.log.spans import SpanEdge, live_event_span, span_edge


@pytest.mark.parametrize("channel", [None, "customer"])
@pytest.mark.parametrize("trace", [None, "tr_1"])
@pytest.mark.parametrize("live", [False, True])
def test_what_stands_beside_a_frame_comes_back(trace: str | None, live: bool, channel: str | None) -> None:
    row = Row(7, encode_meta(12, live, Scope(trace_id=trace, depth=3, channel=channel), "ui.message"), b"", 0)
    beside = (row.durable_count, row.live, row.depth, row.trace, row.channel, row.type)
    assert beside == (12, live, 3, trace, channel, "ui.message")


def test_a_type_from_elsewhere_may_hold_the_separator() -> None:
    row = Row(0, encode_meta(1, False, Scope(trace_id="tr_1"), "strange|type|\u00e9"), b"", 0)
    assert (row.trace, row.type) == ("tr_1", "strange|type|\u00e9")


def test_a_head_that_moved_is_another_one() -> None:
    head = SessionRecord("sess_1", epoch="e1", app="a")
    assert head.replace(last=4, closed=True) == SessionRecord(
        "sess_1", epoch="e1", app="a", last=4, closed=True
    )
    assert head.last == -1


@pytest.mark.parametrize(
    ("payload", "key", "opens", "agent"),
    [
        (BlockStart(block_id="b", kind="text"), "block:b", True, False),
        (BlockEnd(block_id="b", status="aborted"), "block:b", False, False),
        (ToolCall(call_id="c", tool="t", args={}), "call:c", True, False),
        (ToolResult(call_id="c", tool="t", ok=True), "call:c", False, False),
        (AgentStart(name="Ada", via="prompt"), "agent:agt_1", True, True),
        (AgentEnd(stop_reason="error"), "agent:agt_1", False, True),
    ],
)
def test_some_events_open_or_close_a_span(payload: Payload, key: str, opens: bool, agent: bool) -> None:
    assert span_edge(payload, "agt_1", "tr_1", 5) == SpanEdge(key, opens, 5, "tr_1", agent)
    assert live_event_span(payload) is None


@pytest.mark.parametrize(
    ("payload", "key"),
    [(BlockDelta(block_id="b", text="t"), "block:b"), (ToolProgress(call_id="c", text="t"), "call:c")],
)
def test_live_events_are_inside_a_span(payload: Payload, key: str) -> None:
    assert live_event_span(payload) == key
    assert span_edge(payload, "agt_1", "tr_1", 5) is None


@pytest.mark.parametrize(
    "payload",
    [UiMessage(text="t"), UnknownPayload(msgspec.Raw(b"{}")), AgentStart(name="A", via="call")],
)
def test_others_do_neither_nor_does_an_agent_without_an_id(payload: Payload | UnknownPayload) -> None:
    assert live_event_span(payload) is None
    assert span_edge(payload, None, "tr_1", 5) is None
