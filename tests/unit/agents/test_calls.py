"""Answers by idempotency key, folded from the log."""

from typing import Any

import msgspec
import pytest

from turnlog.agents.runtime import idempotency as module
from turnlog.agents.runtime.idempotency import IdempotencyCache, find_idempotency_key
from turnlog.events import (
    CATALOG,
    AgentEnd,
    ErrorInfo,
    Payload,
    Scope,
    ToolCall,
    ToolResult,
    decode_envelope,
    encode_envelope,
)
from turnlog.events.tool import hash_args


class Session:
    """A log as far as the fold reads it."""

    def __init__(self) -> None:
        self.calls = IdempotencyCache()
        self.seq = 0

    def apply(self, payload: Payload, agent: str = "agt_1") -> None:
        event = CATALOG.build_event(
            payload, id=f"evt_{self.seq}", origin="system", scope=Scope(agent_id=agent)
        )
        line = encode_envelope(event, session_id="sess_1", seq=self.seq, ts_ms=0)
        self.seq += 1
        self.calls.apply(decode_envelope(line), CATALOG.decode_payload(decode_envelope(line)))

    def ran(self, call: ToolCall, result: Any = "done", agent: str = "agt_1") -> None:
        self.apply(call, agent)
        self.apply(ToolResult(call_id=call.call_id, tool=call.tool, ok=True, result=result), agent)


def call(key: str | None, call_id: str = "call_1", tool: str = "save", **args: Any) -> ToolCall:
    return ToolCall(call_id=call_id, tool=tool, args=args, idempotency_key=key)


def test_the_key_is_the_callers_or_an_argument() -> None:
    assert find_idempotency_key(call("k")) == "k"
    assert find_idempotency_key(call("k", idempotency_key="other")) == "k"
    assert find_idempotency_key(call(None, idempotency_key="k")) == "k"
    for nothing in ("", 3, None, ["k"]):
        assert find_idempotency_key(call(None, idempotency_key=nothing)) is None
    assert find_idempotency_key(call(None)) is None


def test_a_repeat_has_the_first_answer() -> None:
    session = Session()
    session.ran(call("k", rows=[1], unit="kg"), {"saved": 1})
    again = session.calls.find_result(call("k", "call_2", unit="kg", rows=[1]))
    assert again == ToolResult(call_id="call_2", tool="save", ok=True, result={"saved": 1})


def test_the_first_answer_stands() -> None:
    session = Session()
    session.ran(call("k"), 1)
    session.ran(call("k", "call_2"), 2)
    answer = session.calls.find_result(call("k", "call_3"))
    assert answer is not None
    assert answer.result == 1


def test_other_arguments_are_refused() -> None:
    session = Session()
    session.ran(call("k", rows=[1]))
    answer = session.calls.find_result(call("k", "call_2", rows=[2]))
    assert answer is not None
    assert answer.error == ErrorInfo(
        code="VALIDATION_ERROR",
        message="this idempotency key belongs to a call with other arguments",
        details={"path": ["idempotency_key"]},
    )


def test_another_tool_or_key_is_another_call() -> None:
    session = Session()
    session.ran(call("k"))
    assert session.calls.find_result(call("k", tool="other")) is None
    assert session.calls.find_result(call("l")) is None
    assert session.calls.find_result(call(None)) is None


def test_calls_without_a_key_or_an_answer_are_not_remembered() -> None:
    session = Session()
    session.ran(call(None))
    session.apply(call("k"))
    assert session.calls.results == {}


def test_a_failure_may_be_tried_again() -> None:
    session = Session()
    session.apply(call("k"))
    fault = ErrorInfo(code="TIMEOUT", message="slow")
    session.apply(ToolResult(call_id="call_1", tool="save", ok=False, error=fault))
    assert session.calls.find_result(call("k", "call_2")) is None


def test_an_answer_belongs_to_its_agents_call() -> None:
    session = Session()
    session.apply(call("k"), "agt_1")
    session.apply(ToolResult(call_id="call_1", tool="save", ok=True, result=1), "agt_2")
    assert session.calls.results == {}


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 2)
    session = Session()
    for number in range(3):
        session.ran(call(f"k{number}", f"call_{number}"))
    assert [key for _, key in session.calls.results] == ["k1", "k2"]


def test_the_largest_are_forgotten_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TOTAL_BYTES", 500)
    session = Session()
    session.ran(call("small"), "x")
    session.ran(call("large", "call_2"), "x" * 400)
    assert [key for _, key in session.calls.results] == ["large"]
    session.ran(call("vast", "call_3"), "x" * 501)
    assert session.calls.results == {}
    session.ran(call("small", "call_4"), "x")
    assert [key for _, key in session.calls.results] == ["small"]


def test_equal_arguments_have_one_hash() -> None:
    one: dict[str, Any] = {"b": [1, {"d": None, "c": "é"}], "a": 1.5}
    other = msgspec.json.decode(b'{"a": 1.5, "b": [1, {"c": "\\u00e9", "d": null}]}')
    assert hash_args(one) == hash_args(other)
    assert len({hash_args(args) for args in ({}, {"a": 1}, {"a": "1"}, {"a": [1]}, {"a": None})}) == 5
    assert len(hash_args(one)) == 32


def test_calls_agent_ended_without_a_result_forgets_its_open_calls() -> None:
    session = Session()
    session.apply(call("k"), "agt_1")
    session.apply(call("l", "call_2"), "agt_2")
    session.apply(AgentEnd(stop_reason="cancelled"), "agt_1")
    assert list(session.calls._open_calls) == [("agt_2", "call_2")]


def test_calls_result_in_the_log_is_held_once() -> None:
    session = Session()
    session.apply(call("k"))
    session.calls.add_pending(call("k"), ToolResult(call_id="call_1", tool="save", ok=True, result=1))
    assert session.calls.find_result(call("k", "call_2")) is not None
    session.apply(ToolResult(call_id="call_1", tool="save", ok=True, result=1))
    assert session.calls._pending_results == {}
    assert session.calls.find_result(call("k", "call_2")) is not None


def test_calls_results_on_their_way_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TOTAL_BYTES", 500)
    session = Session()
    for name in ("one", "two"):
        result = ToolResult(call_id="call_1", tool="save", ok=True, result="x" * 300)
        session.calls.add_pending(call(name), result)
    assert session.calls.find_result(call("one")) is None
    assert session.calls.find_result(call("two")) is not None
