"""Events fold in linear time: four times the events take four times the steps, not the 16 times of a square.

The steps are counted. `tests/soak/test_growth.py` measures the CPU time of 100,000 events.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec import structs

from tests.support.folds import apply_events
from tests.support.work import count_lines, is_linear
from tests.support.written_logs import Item, log, scope
from turnlog.events import (
    AgentEnd,
    AgentStart,
    AgentUsage,
    AssistantMessage,
    BlockEnd,
    BlockRetract,
    BlockStart,
    Envelope,
    Payload,
    ToolCall,
    ToolResult,
    UiMessage,
    UnknownPayload,
    Usage,
)
from turnlog.state.history import History
from turnlog.state.meters import Meters
from turnlog.state.transcript import Transcript
from turnlog.state.tree import Tree
from turnlog.team.documents import Documents

EVENTS = 1_000
Shape = Callable[[int], list[Item]]
STEP: list[Payload] = [
    BlockStart(block_id="b", kind="text"),
    BlockEnd(block_id="b", status="aborted", text="Half"),
    BlockRetract(block_ids=("b",), reason="overloaded_error"),
    AssistantMessage(text="Whole", block_id="b"),
    ToolCall(call_id="c", tool="t", args={"a": 1}),
    AgentUsage(model="m", usage=Usage(input_tokens=1, output_tokens=1)),
    ToolResult(call_id="c", tool="t", ok=True, result="r"),
]
START, END = AgentStart(name="Guide", via="prompt"), AgentEnd(stop_reason="end_turn")
CALL, RESULT = log(*((payload, scope("agt_1")) for payload in (STEP[4], STEP[6])))
TURN = log(*((payload, scope("agt_1")) for payload in [UiMessage(text="Hello"), START, *STEP, END]))


def numbered(payload: Any, number: int) -> Any:
    """A payload with ids of its own."""
    ids = {
        "block_id": f"b{number}",
        "block_ids": (f"b{number}",),
        "call_id": f"c{number}",
        "message_id": f"m{number}",
    }
    known = {name: ids[name] for name in payload.__struct_fields__ if name in ids}
    return payload if isinstance(payload, AgentStart) else structs.replace(payload, **known)


def written(turns: int, items: list[Item], agents: int) -> Iterator[Item]:
    """The same events again and again: of one agent, or of as many as turns."""
    seq = 0
    for turn in range(turns):
        whose = f"agt_{turn % agents}"
        for envelope, payload in items:
            at = structs.replace(envelope, seq=seq, id=f"evt_{seq}", agent_id=whose, trace_id=f"tr_{whose}")
            yield at, numbered(payload, turn)
            seq += 1


def steps(kind: Any, items: list[Item]) -> int:
    return count_lines(lambda: apply_events(kind(), items))


def many_turns(events: int) -> list[Item]:
    return list(written(events // len(TURN), TURN, events))


def one_agent_that_never_ends(events: int) -> list[Item]:
    begun, step = TURN[1:2], TURN[2:-1]
    return [*written(1, begun, 1), *written(events // len(step), step, 1)]


@pytest.mark.parametrize("shape", [many_turns, one_agent_that_never_ends])
@pytest.mark.parametrize("kind", [Tree, Transcript, Meters, Documents])
def test_folding_four_times_the_events_takes_four_times_the_steps(kind: Any, shape: Shape) -> None:
    assert is_linear(lambda events: steps(kind, shape(events)), EVENTS)


class Backward(list[int]):
    """A fold that looks at all earlier events for each one."""

    def apply(self, envelope: Envelope, _: Payload | UnknownPayload) -> None:
        self.append(envelope.seq)
        total = 0
        for seq in self:
            total += seq


def retries(size: int) -> list[Item]:
    half, void = AssistantMessage(text="Half", block_id="b"), BlockRetract(block_ids=("b",), reason="r")
    turn = [START, half, void, AssistantMessage(text="Whole"), END]
    return list(written(size, log(*((payload, scope("agt_1")) for payload in turn)), size))


def results_of_no_call(size: int) -> list[Item]:
    return [*written(size, TURN, size), *written(size, [RESULT], 1)]


def calls_at_once(size: int) -> list[Item]:
    return [*written(size, [CALL], 1), *written(size, [RESULT], 1)]


@pytest.mark.parametrize("shape", [retries, results_of_no_call, calls_at_once])
def test_a_history_is_not_searched_from_its_beginning(shape: Shape) -> None:
    assert is_linear(lambda turns: steps(History, shape(turns)), EVENTS // 10)


def test_control_a_fold_that_looks_back_for_each_event_is_seen() -> None:
    assert not is_linear(lambda events: steps(Backward, many_turns(events)), EVENTS // 4)
