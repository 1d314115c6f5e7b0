"""What a runtime reports about its agents: every vector whole, drained in pieces, and broken off anywhere."""

from typing import Any

import pytest

from tests.support.agent_event_vectors import VECTORS, assert_balanced, make_runtime, run_steps
from tests.support.claude_vectors import counting, fold_tree, shown, types
from tests.support.tables import check_laws
from turnlog.events import (
    AgentEnd,
    AgentStart,
    EventDraft,
    ParseReject,
    Payload,
    ToolCall,
    ToolProgress,
    ToolResult,
    Usage,
)
from turnlog.events.agent import StopReason
from turnlog.parse import AgentEventBuilder, AgentInfo, RuntimeAgent
from turnlog.parse.blocks import MAX_REPLY_CHARS
from turnlog.parse.json_values import MAX_VALUE_BYTES
from turnlog.parse.open_agents import MAX_KNOWN_CALLERS, MAX_OPEN_AGENTS, MAX_OPEN_CALLS

Data = dict[str, Any]
REASONS: list[StopReason] = ["error", "cancelled", "timeout", "end_turn"]


def check_events(vector: Data) -> None:
    _, drafts = run_steps(vector, vector["steps"])
    assert [shown(draft) for draft in drafts] == vector["expected"]


def check_draining_changes_nothing(vector: Data) -> None:
    runtime = make_runtime(vector)
    drafts: list[EventDraft] = []
    for step in vector["steps"]:
        runtime.report(step)
        drafts += runtime.builder.take_output()
    assert [shown(draft) for draft in drafts] == vector["expected"]
    assert runtime.builder.take_output() == []


def check_flush_at_every_position_closes_everything(vector: Data) -> None:
    for end in range(len(vector["steps"]) + 1):
        for reason in REASONS:
            runtime, drafts = run_steps(vector, vector["steps"][:end])
            runtime.builder.flush(reason)
            assert_balanced(runtime, drafts + runtime.builder.take_output())
            assert runtime.builder.open_agents == []


def check_a_second_flush_changes_nothing(vector: Data) -> None:
    runtime, _ = run_steps(vector, vector["steps"])
    runtime.builder.flush()
    runtime.builder.take_output()
    runtime.builder.flush("cancelled")
    assert runtime.builder.take_output() == []


def check_every_step_may_be_reported_after_the_end(vector: Data) -> None:
    runtime, _ = run_steps(vector, vector["steps"])
    runtime.builder.flush()
    runtime.builder.take_output()
    for step in vector["steps"]:
        if step[0] not in ("start", "restore"):
            runtime.report(step)
    assert {type(draft.payload) for draft in runtime.builder.take_output()} <= {ParseReject}


def check_a_restored_builder_closes_what_the_log_has_open(vector: Data) -> None:
    """Another process goes on from the log, after any step at which no block is open."""
    for end in range(len(vector["steps"]) + 1):
        runtime, drafts = run_steps(vector, vector["steps"][:end])
        tree = fold_tree(runtime.restored + drafts)
        if any(invocation.blocks for invocation in tree.open.values()):
            continue
        builder = AgentEventBuilder(counting())
        for invocation in tree.open.values():
            calls = [call.call for call in invocation.calls.values()]
            builder.restore(invocation.start, invocation.scope, calls, totals=invocation.totals)
        assert builder.take_output() == []
        builder.flush("error")
        assert_balanced(runtime, drafts + builder.take_output())


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_vector(vector: Data) -> None:
    laws = [
        check_events,
        check_draining_changes_nothing,
        check_flush_at_every_position_closes_everything,
        check_a_second_flush_changes_nothing,
        check_every_step_may_be_reported_after_the_end,
        check_a_restored_builder_closes_what_the_log_has_open,
    ]
    check_laws(laws, vector)


def start_agent(builder: AgentEventBuilder) -> RuntimeAgent:
    return builder.start(AgentInfo("Lead"), "tr_1")


def payloads(builder: AgentEventBuilder, kind: type[Payload]) -> list[Any]:
    return [draft.payload for draft in builder.take_output() if isinstance(draft.payload, kind)]


def test_the_laws_see_what_they_forbid() -> None:
    vector = next(item for item in VECTORS if item["id"] == "three levels, each called by the one above")
    runtime, drafts = run_steps(vector, vector["steps"])
    assert_balanced(runtime, drafts)
    ends = [index for index, draft in enumerate(drafts) if isinstance(draft.payload, AgentEnd)]
    results = [index for index, draft in enumerate(drafts) if isinstance(draft.payload, ToolResult)]
    calls = [index for index, draft in enumerate(drafts) if isinstance(draft.payload, ToolCall)]
    child_last = drafts[: ends[0]] + drafts[ends[0] + 1 :] + [drafts[ends[0]]]
    without_end = drafts[: ends[-1]]
    two_ends = [*drafts, drafts[ends[-1]]]
    without_result = drafts[: results[0]] + drafts[results[0] + 1 :]
    without_call = drafts[: calls[0]] + drafts[calls[0] + 1 :]
    for broken in (child_last, without_end, two_ends, without_result, without_call):
        with pytest.raises((AssertionError, KeyError)):
            assert_balanced(runtime, broken)


def test_more_agents_than_the_limit_are_not_started() -> None:
    builder = AgentEventBuilder(counting())
    agents = [start_agent(builder) for _ in range(MAX_OPEN_AGENTS + 2)]
    builder.text(agents[-1], "unheard")
    output = builder.take_output()
    starts = [draft for draft in output if isinstance(draft.payload, AgentStart)]
    rejects = [draft.payload.reason for draft in output if isinstance(draft.payload, ParseReject)]
    assert len(starts) == MAX_OPEN_AGENTS
    assert rejects == ["too_many_agents"] * 2
    assert builder.is_open(agents[0])
    assert not builder.is_open(agents[-1])

    builder.end(agents[0])
    child = builder.start_child(agents[1], None, AgentInfo("Child"))
    assert builder.is_open(child)


def test_more_open_calls_than_the_limit_cancel_the_oldest() -> None:
    builder = AgentEventBuilder(counting())
    agent = start_agent(builder)
    for number in range(MAX_OPEN_CALLS + 1):
        builder.call(agent, "t", {}, f"c{number}")
        builder.complete_message(agent)
    cancelled = payloads(builder, ToolResult)
    assert [result.call_id for result in cancelled] == ["c0"]
    builder.result(agent, "c0", "late")
    assert payloads(builder, Payload) == []


def test_repeated_calls_are_known_up_to_the_limit() -> None:
    builder = AgentEventBuilder(counting())
    agent = start_agent(builder)
    for number in range(MAX_KNOWN_CALLERS + 1):
        builder.call(agent, "t", {}, f"c{number}")
        builder.result(agent, f"c{number}")
    builder.take_output()
    builder.call(agent, "t", {}, f"c{MAX_KNOWN_CALLERS}")
    assert payloads(builder, Payload) == []


def test_a_reply_without_room_refuses_calls_and_blocks() -> None:
    builder = AgentEventBuilder(counting())
    agent = start_agent(builder)
    builder.text(agent, "x" * MAX_REPLY_CHARS)
    builder.call(agent, "t", {}, "c1")
    builder.start_call(agent, "t", "c2")
    builder.other(agent, "file", {})
    reasons = [reject.reason for reject in payloads(builder, ParseReject)]
    assert reasons == ["too_long", "too_long", "too_long", "bad_block"]
    builder.flush()
    assert payloads(builder, ToolCall) == []


def test_values_that_json_cannot_express_are_refused_and_their_calls_answered() -> None:
    builder = AgentEventBuilder(counting())
    agent = start_agent(builder)
    builder.call(agent, "t", {"when": object()}, "c1")
    builder.call(agent, "t", None, "c2")
    builder.result(agent, "c1", object())
    builder.result(agent, "c2", "x" * (MAX_VALUE_BYTES + 1))
    output = builder.take_output()
    results = [draft.payload for draft in output if isinstance(draft.payload, ToolResult)]
    assert [(result.call_id, result.ok, result.result) for result in results] == [
        ("c1", True, None),
        ("c2", True, None),
    ]
    reasons = [draft.payload.reason for draft in output if isinstance(draft.payload, ParseReject)]
    assert reasons == ["bad_arguments", "bad_result", "bad_result"]


def test_a_usage_with_values_of_other_types_is_refused() -> None:
    builder = AgentEventBuilder(counting())
    agent = start_agent(builder)
    tokens: Any = object()
    builder.complete_message(agent, Usage(input_tokens=tokens, output_tokens=1))
    assert [reject.reason for reject in payloads(builder, ParseReject)] == ["bad_usage"]


def test_lone_surrogates_are_replaced_everywhere() -> None:
    builder = AgentEventBuilder(counting())
    agent = builder.start(AgentInfo("Lead", prompt="a\ud800"), "tr_1")
    builder.call(agent, "t", {"a": "\ud800"}, "c1")
    builder.complete_message(agent)
    builder.progress(agent, "c1", "\ud800")
    builder.fail(agent, "c1", "X", "\ud800", {"a": "\ud800"})
    builder.end(agent, result="\ud800")
    output = [draft.payload for draft in builder.take_output()]
    texts: list[Any] = [
        [payload.prompt for payload in output if isinstance(payload, AgentStart)],
        [payload.args["a"] for payload in output if isinstance(payload, ToolCall)],
        [payload.text for payload in output if isinstance(payload, ToolProgress)],
        [payload.error.message for payload in output if isinstance(payload, ToolResult) and payload.error],
        [payload.result for payload in output if isinstance(payload, AgentEnd)],
    ]
    assert texts == [["a\ufffd"], ["\ufffd"], ["\ufffd"], ["\ufffd"], ["\ufffd"]]


def test_one_report_costs_the_same_however_many_came_before() -> None:
    """Events per report are counted: a text delta is one event, after ten of them and after ten thousand."""
    builder = AgentEventBuilder(counting())
    agent = start_agent(builder)
    builder.text(agent, "a")
    builder.take_output()
    for _ in range(10_000):
        builder.text(agent, "a")
        assert types(builder.take_output()) == ["block.delta"]
