"""What is open, as JSON values."""

from typing import Any

import pytest

from tests.support.folds import apply_events
from tests.support.written_logs import log, scope
from turnlog.events import (
    AgentStart,
    AgentUsage,
    ApprovalDecision,
    ApprovalRequest,
    AwaitedCall,
    BlockDelta,
    BlockStart,
    Payload,
    Scope,
    ToolAwait,
    ToolCall,
    UiAction,
    UiMessage,
    Usage,
)
from turnlog.events.ui import ButtonClick
from turnlog.state.pending import (
    build_pending_report,
    build_question_report,
    pending_agents,
    pending_calls,
    pending_turns,
    streaming_blocks,
)
from turnlog.state.tree import QueuedTurn, Tree
from turnlog.state.visible_events import EventView

ROOT, CHILD = scope("agt_1"), scope("agt_2", 1)
START = AgentStart(name="Guide", via="prompt", model="m")
CALLED = AgentStart(name="Scout", via="call", parent_id="agt_1", call_id="c1")
USED = AgentUsage(model="m", usage=Usage(input_tokens=1, output_tokens=2))


def call(call_id: str, executor: Any = "backend") -> ToolCall:
    return ToolCall(call_id=call_id, tool="t", args={"a": 1}, executor=executor)


def grown(*entries: tuple[Payload, Scope]) -> Tree:
    return apply_events(Tree(), log((START, ROOT), *entries))


def test_nothing_is_open_in_an_empty_session() -> None:
    assert build_pending_report(Tree()) == {"agents": [], "calls": [], "blocks": [], "queue": []}


def test_agents_stand_below_those_who_called_them() -> None:
    [root] = pending_agents(grown((call("c1"), ROOT), (USED, ROOT), (CALLED, CHILD)))
    [child] = root.pop("agents")
    assert root == {
        "agent_id": "agt_1",
        "agent_name": "Guide",
        "turn": "tr_1",
        "channel": None,
        "model": "m",
        "via": "prompt",
        "call_id": None,
        "depth": 0,
        "waits": False,
        "stopped": False,
        "steps": 1,
        "usage": {"input_tokens": 1, "output_tokens": 2},
        "cost": None,
    }
    assert (child["agent_name"], child["call_id"], child["depth"]) == ("Scout", "c1", 1)
    assert child["agents"] == []


def test_an_agent_whose_caller_is_gone_stands_alone() -> None:
    [orphan] = pending_agents(apply_events(Tree(), log((CALLED, CHILD))))
    assert orphan["agent_id"] == "agt_2"


ASKED = ApprovalRequest(call_id="c1", tool="t", args_hash="h", risk="write")
DENIED = ApprovalDecision(call_id="c1", args_hash="h", decision="deny")
AWAITED = ToolAwait(calls=(AwaitedCall(call_id="c1", tool="t", args={}),))


@pytest.mark.parametrize(
    ("entries", "waits_for"),
    [
        ([(call("c1"), ROOT)], "backend"),
        ([(call("c1", "provider"), ROOT)], "provider"),
        ([(call("c1", "remote"), ROOT)], "remote"),
        ([(call("c1", "remote"), ROOT), (USED, ROOT)], "remote"),
        ([(call("c1", "frontend"), ROOT)], "backend"),
        ([(call("c1", "frontend"), ROOT), (AWAITED, ROOT)], "page"),
        ([(call("c1"), ROOT), (CALLED, CHILD)], "agent"),
        ([(call("c1", "remote"), ROOT), (ASKED, ROOT)], "approval"),
        ([(call("c1", "remote"), ROOT), (ASKED, ROOT), (DENIED, ROOT)], "backend"),
    ],
)
def test_a_call_says_whom_it_waits_for(entries: list[tuple[Payload, Scope]], waits_for: str) -> None:
    [found] = pending_calls(grown(*entries))
    assert found["waits_for"] == waits_for
    assert (found["call_id"], found["tool"], found["args"]) == ("c1", "t", {"a": 1})
    assert (found["agent_id"], found["turn"]) == ("agt_1", "tr_1")
    assert found["child_id"] == ("agt_2" if waits_for == "agent" else None)
    approval = {"call_id": "c1", "tool": "t", "args_hash": "h", "risk": "write"}
    assert found["approval"] == (approval if waits_for == "approval" else None)


def test_a_block_has_what_there_is_of_it() -> None:
    pieces = [BlockDelta(block_id="b1", text=text) for text in ("Once ", "upon")]
    [found] = streaming_blocks(
        grown((BlockStart(block_id="b1", kind="text"), ROOT), *((piece, ROOT) for piece in pieces))
    )
    assert (found["agent_name"], found["block_id"], found["text"]) == ("Guide", "b1", "Once upon")


def test_what_waits_for_its_turn_is_told_in_order() -> None:
    click = UiAction(action=ButtonClick(button_id="b1"))
    waiting = grown(
        (UiMessage(text="Rome"), Scope(trace_id="tr_2", channel="customer")),
        (click, Scope(trace_id="tr_3")),
    )
    assert pending_turns(waiting) == [
        {"turn": "tr_2", "channel": "customer", "text": "Rome"},
        {
            "turn": "tr_3",
            "channel": None,
            "text": '[The user acted: {"action":{"kind":"button.click","button_id":"b1"},"view_id":null}]',
        },
    ]


def test_an_event_of_the_application_opens_a_turn_without_a_text() -> None:
    waiting = Tree(queued_turns={"tr_1": QueuedTurn(None, Scope(trace_id="tr_1"))})
    assert pending_turns(waiting) == [{"turn": "tr_1", "channel": None, "text": None}]


def test_a_member_without_internals_gets_who_works_and_the_questions_to_it() -> None:
    guest = EventView(False, frozenset(), frozenset({"guest"}))
    for_clerks = ApprovalRequest(call_id="c2", tool="t", args_hash="h", risk="write", roles=("clerk",))
    tree = grown(
        (call("c1", "frontend"), ROOT),
        (AWAITED, ROOT),
        (call("c2"), ROOT),
        (for_clerks, ROOT),
        (call("c3"), ROOT),
        (BlockStart(block_id="b1", kind="thinking"), ROOT),
        (BlockDelta(block_id="b1", text="hm"), ROOT),
    )
    tree.queued_turns = {
        "tr_2": QueuedTurn(UiMessage(text="hi"), Scope(trace_id="tr_2")),
        "tr_3": QueuedTurn(None, Scope(trace_id="tr_3")),
    }
    report = build_question_report(tree, guest)
    owner = {"agent_id": "agt_1", "agent_name": "Guide", "turn": "tr_1", "channel": None}
    assert report["agents"] == [{**owner, "depth": 0, "waits": False}]
    question = {"call_id": "c1", "tool": "t", "args": {"a": 1}, "waits_for": "page", "approval": None}
    assert report["calls"] == [{**owner, **question}]
    assert report["blocks"] == []
    assert [turn["turn"] for turn in report["queue"]] == ["tr_2"]
