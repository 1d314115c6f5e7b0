"""What lets another process continue a turn: the marks in the tree, and the events that end only what ran."""

from collections.abc import Sequence

import pytest

from tests.support.written_logs import closing_log, entry, log, scope
from turnlog.events import (
    AgentCheckpoint,
    AgentStart,
    AgentUsage,
    ApprovalDecision,
    ApprovalRequest,
    AwaitedCall,
    BlockDelta,
    BlockEnd,
    BlockRetract,
    BlockStart,
    EventDraft,
    Payload,
    Scope,
    ToolAwait,
    ToolCall,
    ToolResult,
    UiAction,
    Usage,
)
from turnlog.events.ui import InputSubmit
from turnlog.state.closing import build_closing_events, build_interruption_events
from turnlog.state.tree import Invocation, OpenCall, Tree

ROOT, CHILD = scope("agt_1"), scope("agt_2", 1)
START = AgentStart(name="Guide", via="prompt")
CHILD_START = AgentStart(name="Scout", via="call", parent_id="agt_1", call_id="scout")
USAGE = AgentUsage(model="m", usage=Usage(input_tokens=1, output_tokens=1))
LOOK = ToolCall(call_id="look", tool="look", args={})
PAY = ToolCall(call_id="pay", tool="pay", args={})
SCOUT = ToolCall(call_id="scout", tool="scout", args={})
PAGE = ToolCall(call_id="page", tool="confirm", args={}, executor="frontend")
PROVIDER = ToolCall(call_id="search", tool="search", args={}, executor="provider")
REQUEST = ApprovalRequest(call_id="pay", tool="pay", args_hash="h", risk="high")
APPROVE = ApprovalDecision(call_id="pay", args_hash="h", decision="approve")
TEXT = BlockStart(block_id="b1", kind="text")
MESSAGE = "It ended."


def grown(*payloads: Payload | tuple[Payload, Scope]) -> Tree:
    """Fold events, those without a scope as events of the root agent."""
    tree = Tree()
    entries = [item if isinstance(item, tuple) else (item, ROOT) for item in payloads]
    for envelope, payload in log(*entries):
        tree.apply(envelope, payload)
    return tree


def asked(*calls: ToolCall) -> ToolAwait:
    return ToolAwait(
        calls=tuple(AwaitedCall(call_id=call.call_id, tool=call.tool, args={}) for call in calls)
    )


def submit(call: ToolCall, answer: str = "x") -> UiAction:
    return UiAction(action=InputSubmit(values={"answer": answer}), call_id=call.call_id)


def apply_closings(tree: Tree, drafts: Sequence[EventDraft]) -> None:
    for envelope, payload in closing_log(drafts, tree.last_seq + 1):
        tree.apply(envelope, payload)


def always(_: Invocation, __: OpenCall) -> bool:
    return True


def never(_: Invocation, __: OpenCall) -> bool:
    return False


# answers


def test_answer_seq_is_that_of_the_decision_that_was_waited_for() -> None:
    tree = grown(START, PAY, USAGE, REQUEST)
    assert (tree.open["agt_1"].answer_seq, tree.open["agt_1"].calls["pay"].answer_seq) == (-1, -1)
    tree.apply(*entry(APPROVE, ROOT, 4))
    assert (tree.open["agt_1"].answer_seq, tree.open["agt_1"].calls["pay"].answer_seq) == (4, 4)
    tree.apply(*entry(APPROVE, ROOT, 5))
    assert tree.open["agt_1"].answer_seq == 4, "only the first decision is an answer"


def test_answer_seq_of_a_decision_that_nobody_asked_for_is_not_set() -> None:
    tree = grown(START, PAY, USAGE, APPROVE)
    assert (tree.open["agt_1"].answer_seq, tree.open["agt_1"].calls["pay"].answer_seq) == (-1, -1)


def test_input_is_the_first_action_that_was_waited_for() -> None:
    tree = grown(START, LOOK, USAGE, asked(LOOK), submit(LOOK, "first"), submit(LOOK, "second"))
    call = tree.open["agt_1"].calls["look"]
    assert (call.input, call.answer_seq, tree.open["agt_1"].answer_seq) == (submit(LOOK, "first"), 4, 4)
    assert not call.is_waiting


def test_input_of_a_call_that_does_not_wait_is_not_kept() -> None:
    tree = grown(START, LOOK, USAGE, submit(LOOK))
    call = tree.open["agt_1"].calls["look"]
    assert (call.input, call.answer_seq, tree.open["agt_1"].answer_seq) == (None, -1, -1)


@pytest.mark.parametrize(
    ("payloads", "seq"),
    [([PAGE, USAGE, asked(PAGE)], 4), ([PAGE, USAGE], -1)],
    ids=["waiting", "not waiting"],
)
def test_answer_seq_of_an_agent_is_that_of_a_result_that_was_waited_for(
    payloads: list[Payload], seq: int
) -> None:
    tree = grown(START, *payloads)
    tree.apply(*entry(ToolResult(call_id="page", tool="confirm", ok=True), ROOT, tree.last_seq + 1))
    assert tree.open["agt_1"].answer_seq == seq


# the blocks of a step


def test_step_blocks_are_those_of_a_completion_that_is_not_complete() -> None:
    tree = grown(
        START, TEXT, BlockEnd(block_id="b1", status="complete"), BlockStart(block_id="b2", kind="text")
    )
    assert tree.open["agt_1"].step_blocks == ["b1", "b2"]
    tree.apply(*entry(BlockRetract(block_ids=("b1",), reason="r"), ROOT, 4))
    assert tree.open["agt_1"].step_blocks == ["b2"]
    tree.apply(*entry(USAGE, ROOT, 5))
    assert tree.open["agt_1"].step_blocks == []


# interruptions


def test_interruption_of_a_text_aborts_and_retracts_it_and_leaves_its_agent_open() -> None:
    tree = grown(START, TEXT, BlockDelta(block_id="b1", text="Half of"))
    end, retraction = build_interruption_events(tree, always, MESSAGE)
    assert end.payload == BlockEnd(block_id="b1", status="aborted", text="Half of", reason="interrupted")
    assert retraction.payload == BlockRetract(block_ids=("b1",), reason="interrupted")
    assert (end.scope, end.origin, retraction.scope) == (ROOT, "system", ROOT)
    apply_closings(tree, [end, retraction])
    assert tree.open["agt_1"].step_blocks == []
    assert build_interruption_events(tree, always, MESSAGE) == []


def test_interruption_retracts_blocks_that_have_ended_with_their_calls() -> None:
    call = ToolCall(call_id="look", tool="look", args={}, block_id="b2")
    tree = grown(
        START,
        TEXT,
        BlockEnd(block_id="b1", status="complete"),
        BlockStart(block_id="b2", kind="tool_call"),
        BlockEnd(block_id="b2", status="complete"),
        call,
    )
    [retraction] = build_interruption_events(tree, always, MESSAGE)
    assert retraction.payload == BlockRetract(block_ids=("b1", "b2"), reason="interrupted")
    apply_closings(tree, [retraction])
    assert tree.open["agt_1"].calls == {}


def test_interruption_cancels_the_calls_that_are_selected() -> None:
    tree = grown(START, LOOK, PAY, USAGE)
    [result] = build_interruption_events(tree, lambda _, call: call.call.tool == "pay", MESSAGE)
    assert isinstance(result.payload, ToolResult)
    assert (result.payload.call_id, result.payload.ok, result.origin) == ("pay", False, "system")
    assert result.payload.error is not None
    assert (result.payload.error.code, result.payload.error.message) == ("CANCELLED", MESSAGE)
    assert build_interruption_events(tree, never, MESSAGE) == []


def test_interruption_names_the_same_events_for_every_process() -> None:
    payloads = (START, LOOK, USAGE, TEXT)
    first = build_interruption_events(grown(*payloads), always, MESSAGE)
    assert [draft.id for draft in first] == [
        draft.id for draft in build_interruption_events(grown(*payloads), always, MESSAGE)
    ]
    assert len({draft.id for draft in first}) == 3


def test_interruption_of_a_call_whose_id_is_used_again_is_another_event() -> None:
    result = ToolResult(call_id="look", tool="look", ok=True)
    [first] = build_interruption_events(grown(START, LOOK, USAGE), always, MESSAGE)
    [second] = build_interruption_events(grown(START, LOOK, USAGE, result, LOOK, USAGE), always, MESSAGE)
    assert first.id != second.id


def test_interruption_ends_children_before_their_parents() -> None:
    tree = grown(START, SCOUT, LOOK, USAGE, (CHILD_START, CHILD), (LOOK, CHILD), (USAGE, CHILD))
    drafts = build_interruption_events(tree, lambda _, call: call.call.tool == "look", MESSAGE)
    assert [draft.scope.agent_id for draft in drafts] == ["agt_2", "agt_1"]


# agents that stay open


def kinds(drafts: Sequence[EventDraft]) -> list[tuple[str | None, str]]:
    return [(draft.scope.agent_id, type(draft.payload).__name__) for draft in drafts]


def test_closing_leaves_the_agents_that_are_kept() -> None:
    tree = grown(START, LOOK, USAGE)
    assert build_closing_events(tree, "error", MESSAGE, keep_waiting=True, kept_agents=["agt_1"]) == []
    assert kinds(build_closing_events(tree, "error", MESSAGE, keep_waiting=True)) == [
        ("agt_1", "ToolResult"),
        ("agt_1", "AgentEnd"),
    ]


def test_closing_leaves_the_caller_of_a_kept_agent_and_answers_its_other_calls() -> None:
    tree = grown(START, SCOUT, LOOK, PROVIDER, USAGE, (CHILD_START, CHILD))
    drafts = build_closing_events(tree, "error", MESSAGE, keep_waiting=True, kept_agents=["agt_2"])
    assert kinds(drafts) == [("agt_1", "ToolResult")]
    assert getattr(drafts[0].payload, "call_id", "") == "look"


def test_closing_leaves_a_paused_agent_and_ends_its_blocks() -> None:
    tree = grown(
        START, TEXT, PAGE, AgentCheckpoint(source="s", version="1", blob="b", paused=True), asked(PAGE)
    )
    assert kinds(build_closing_events(tree, "error", MESSAGE, keep_waiting=True)) == [("agt_1", "BlockEnd")]
    assert kinds(build_closing_events(tree, "error", MESSAGE, keep_waiting=False)) == [
        ("agt_1", "BlockEnd"),
        ("agt_1", "ToolResult"),
        ("agt_1", "AgentEnd"),
    ]


def test_closing_answers_the_call_of_an_ended_child_once() -> None:
    tree = grown(START, SCOUT, USAGE, (CHILD_START, CHILD))
    drafts = build_closing_events(tree, "error", MESSAGE, keep_waiting=False)
    assert kinds(drafts) == [("agt_2", "AgentEnd"), ("agt_1", "ToolResult"), ("agt_1", "AgentEnd")]
    assert len({draft.id for draft in drafts}) == 3


def test_closing_a_child_whose_parent_is_not_open_answers_nothing() -> None:
    tree = grown((CHILD_START, CHILD))
    assert kinds(build_closing_events(tree, "error", MESSAGE, keep_waiting=False)) == [("agt_2", "AgentEnd")]
