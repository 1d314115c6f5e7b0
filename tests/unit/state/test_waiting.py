"""Who waits although a call is open that nobody runs yet, and whom a stop is for (protocol section 4)."""

import pytest

from tests.support.written_logs import log, scope
from turnlog.events import (
    AgentStart,
    AgentUsage,
    ApprovalDecision,
    ApprovalRequest,
    AssistantFiles,
    AwaitedCall,
    BlockRetract,
    File,
    Payload,
    Scope,
    ToolAwait,
    ToolCall,
    UiCommand,
    Usage,
)
from turnlog.events.ui import Stop, Summon
from turnlog.state.closing import build_closing_events
from turnlog.state.tree import Tree

ROOT = scope("agt_1")
BEGIN = AgentStart(name="Guide", via="prompt", prompt="Oslo")
DONE = AgentUsage(model="m", usage=Usage(input_tokens=0, output_tokens=0))
REMOTE = ToolCall(call_id="call_1", tool="weigh", args={}, executor="remote")
PAGE = ToolCall(call_id="call_2", tool="confirm", args={}, executor="frontend")
PASS = ToolCall(call_id="call_3", tool="handoff_to_writer", args={})
ASKED = ToolAwait(calls=(AwaitedCall(call_id="call_2", tool="confirm", args={}),))


def grown(*payloads: Payload, at: Scope = ROOT) -> Tree:
    tree = Tree()
    for envelope, payload in log(*((payload, at) for payload in payloads)):
        tree.apply(envelope, payload)
    return tree


def test_nobody_waits_for_another_process_before_the_message_is_complete() -> None:
    assert not grown(BEGIN, REMOTE).is_all_waiting
    assert not grown(BEGIN, REMOTE).is_settled("tr_1")
    assert grown(BEGIN, REMOTE, DONE).is_all_waiting


def test_a_hand_off_that_is_held_does_not_keep_its_agent_from_waiting() -> None:
    assert not grown(BEGIN, PAGE, PASS, DONE).is_all_waiting
    assert grown(BEGIN, PAGE, PASS, DONE, ASKED).is_all_waiting
    assert not grown(BEGIN, PASS, DONE).is_all_waiting, "one that takes place is no wait"


def test_a_hand_off_that_is_held_outlives_the_process() -> None:
    tree = grown(BEGIN, PAGE, PASS, DONE, ASKED)
    assert build_closing_events(tree, "error", "It stopped.", keep_waiting=True) == []


@pytest.mark.parametrize(
    ("stop", "stopped"),
    [
        (Stop(), True),
        (Stop(turn="tr_1"), True),
        (Stop(turn="tr_2"), False),
        (Stop(agent_id="agt_1"), True),
        (Stop(agent_id="agt_2"), False),
        (Summon(), False),
    ],
)
def test_a_stop_is_for_what_it_names_or_for_everybody(stop: Stop | Summon, stopped: bool) -> None:
    assert bool(grown(BEGIN, UiCommand(command=stop)).traces_to_stop) is stopped


def test_what_is_retracted_is_not_waited_for() -> None:
    call = ToolCall(call_id="call_1", tool="search", args={}, executor="provider", block_id="blk_1")
    tree = grown(BEGIN, call, BlockRetract(block_ids=("blk_1",), reason="overloaded_error"))
    assert tree.open["agt_1"].calls == {}


@pytest.mark.parametrize(
    "late",
    [
        BlockRetract(block_ids=("blk_1",), reason="overloaded_error"),
        ApprovalRequest(call_id="call_1", tool="remove", args_hash="h", risk="high"),
        ApprovalDecision(call_id="call_1", args_hash="h", decision="approve"),
        AssistantFiles(files=(File(file_id="f", filename="f", storage_location="s"),)),
        DONE,
        PAGE,
        ASKED,
    ],
    ids=lambda payload: type(payload).__name__,
)
def test_what_comes_for_an_agent_that_is_not_open_changes_nothing(late: Payload) -> None:
    assert grown(late).open == {}
