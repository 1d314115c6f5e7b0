"""Spans of a log: a block, a call or an agent, from its first event to its last.

Input are payloads, output are span keys and edges that stores index. Replay uses the index to leave out live
events of finished spans, recovery to find what is open.
"""

from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

from turnlog.events import (
    AgentEnd,
    AgentStart,
    BlockDelta,
    BlockEnd,
    BlockStart,
    Payload,
    ToolCall,
    ToolProgress,
    ToolResult,
    UnknownPayload,
)

MAX_SAME_AGENTS = 8  # sessions that contain one agent id: more than one only where logs were imported

# A block, a call and an agent may have the same id: the prefix tells them apart.
BLOCK_SPAN_PREFIX = "block:"
CALL_SPAN_PREFIX = "call:"
AGENT_SPAN_PREFIX = "agent:"

LIVE_EVENT_SPANS: dict[type, tuple[str, str]] = {  # live payload: prefix, field with the id of its span
    BlockDelta: (BLOCK_SPAN_PREFIX, "block_id"),
    ToolProgress: (CALL_SPAN_PREFIX, "call_id"),
}
SPAN_EDGES: dict[type, tuple[str, str, bool]] = {  # prefix, field with the id ("": the agent), starts a span
    BlockStart: (BLOCK_SPAN_PREFIX, "block_id", True),
    BlockEnd: (BLOCK_SPAN_PREFIX, "block_id", False),
    ToolCall: (CALL_SPAN_PREFIX, "call_id", True),
    ToolResult: (CALL_SPAN_PREFIX, "call_id", False),
    AgentStart: (AGENT_SPAN_PREFIX, "", True),
    AgentEnd: (AGENT_SPAN_PREFIX, "", False),
}
LIVE_TYPES = tuple(cls.TYPE for cls in LIVE_EVENT_SPANS if issubclass(cls, Payload))


class SpanEdge(NamedTuple):
    """The event that starts or ends a span."""

    key: str
    is_start: bool
    seq: int
    trace: str | None
    is_agent: bool


def live_event_span(payload: Payload | UnknownPayload) -> str | None:
    span = LIVE_EVENT_SPANS.get(type(payload))
    if span is None:
        return None
    prefix, field = span
    return prefix + str(getattr(payload, field))


def span_edge(
    payload: Payload | UnknownPayload, agent_id: str | None, trace: str | None, seq: int
) -> SpanEdge | None:
    edge = SPAN_EDGES.get(type(payload))
    if edge is None:
        return None

    prefix, field, is_start = edge
    span_id = getattr(payload, field) if field else agent_id
    if not span_id:
        return None
    return SpanEdge(prefix + str(span_id), is_start, seq, trace, prefix is AGENT_SPAN_PREFIX)


def oldest_open_turn_start(spans: Iterable[tuple[str | None, int, int | None]], at: int) -> int:
    """Return the first seq of the oldest turn that was open at a seq, or `at + 1` if none was.

    `spans` are (trace, first, last), last None while open. A turn is open from its first span to the end of
    its last one, so a hand-off does not close it. A span without a trace is a turn of its own.
    """
    turns: dict[str | int, tuple[int, float]] = {}
    for trace, first, last in spans:
        key = first if trace is None else trace
        end = inf if last is None else last
        turn_first, turn_end = turns.get(key, (first, -1))
        turns[key] = (min(turn_first, first), max(turn_end, first, end))

    return min((first for first, end in turns.values() if first <= at < end), default=at + 1)


def span_bounds(spans: Sequence[tuple[int, int | None]]) -> tuple[int, int | None] | None:
    """Return the first seq of some (first, last) spans and the last one, None while a span is open.

    Return None if there are no spans.
    """
    if not spans:
        return None
    first = min(span_first for span_first, _ in spans)
    ends = [last for _, last in spans if last is not None]
    is_open = len(ends) < len(spans)
    return first, None if is_open else max(ends)
