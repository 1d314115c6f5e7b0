"""What is open, what waits, and what closes it (protocol section 4)."""

import hashlib
import json
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from msgspec import structs

from tests.support.tables import check_laws, for_each_row
from tests.support.written_logs import Item, closing_log, entry, log, scope, vector_log
from turnlog.events import (
    AgentEnd,
    AgentHandoff,
    AgentStart,
    AgentUsage,
    AwaitedCall,
    BlockDelta,
    BlockEnd,
    BlockStart,
    EventDraft,
    Origin,
    Payload,
    ProcessEnd,
    ProcessStart,
    Scope,
    SessionMember,
    ToolAwait,
    ToolCall,
    ToolResult,
    UiMessage,
    UnknownPayload,
    Usage,
)
from turnlog.events.payload import ANY_ORIGIN
from turnlog.state.closing import build_closing_events, closing_id
from turnlog.state.tree import QueuedTurn, Tree, scope_without_actor

VECTORS = Path(__file__).parents[2] / "vectors" / "state" / "tree.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["cases"]
STOPS: list[dict[str, Any]] = json.loads(VECTORS.read_text())["stops"]

ROOT, CHILD, GRANDCHILD = scope("agt_1"), scope("agt_2", 1), scope("agt_3", 2)
USAGE = AgentUsage(model="scripted", usage=Usage(input_tokens=0, output_tokens=0))
BEGIN = AgentStart(name="Guide", via="prompt", prompt="Oslo")
CALL = ToolCall(call_id="call_1", tool="confirm", args={"question": "Go?"}, executor="frontend")
AWAIT = ToolAwait(calls=(AwaitedCall(call_id="call_1", tool="confirm", args={"question": "Go?"}),))
ANSWER = ToolResult(call_id="call_1", tool="confirm", ok=True, result=True)


def grown(items: list[Item]) -> Tree:
    tree = Tree()
    for envelope, payload in items:
        tree.apply(envelope, payload)
    return tree


def close(tree: Tree, *, keep_waiting: bool) -> list[EventDraft]:
    return build_closing_events(tree, "error", "It stopped.", keep_waiting=keep_waiting)


def after(items: list[Item], closings: list[EventDraft]) -> Tree:
    return grown(items + closing_log(closings, len(items)))


def written(closings: list[EventDraft], expected: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Closing events as a vector writes them; `closes` stands only where the id is the one it gives."""
    names = {closes_id(item["closes"]): item["closes"] for item in expected}
    return [
        {
            "closes": names.get(item.id or ""),
            "type": envelope.type,
            "agent_id": envelope.agent_id,
            "payload": json.loads(bytes(envelope.payload)),
        }
        for item, (envelope, _) in zip(closings, closing_log(closings, 0), strict=True)
    ]


def closes_id(closes: str) -> str:
    return "evt_" + hashlib.sha256(closes.encode()).hexdigest()[:40]


def check_state_and_closing_events(case: dict[str, Any]) -> None:
    tree = grown(vector_log(case["events"]))
    assert tree.last_seq == len(case["events"]) - 1
    assert list(tree.open) == case["open"]
    assert list(tree.queued_turns) == case["queue"]
    assert [agent_id for agent_id in tree.open if agent_id in tree.waiting_agents()] == case["waits"]
    assert tree.agents_asking_page() == case["waiting"]
    assert written(close(tree, keep_waiting=False), case["stop"]) == case["stop"]
    assert written(close(tree, keep_waiting=True), case["recovery"]) == case["recovery"]


@for_each_row("case", STOPS, ids=lambda case: f"{case['channel']} {case['stop']}")
def test_a_stop_reaches_what_is_in_its_channel_and_in_none(case: dict[str, Any]) -> None:
    started = [
        {
            "type": "agent.start",
            "trace_id": f"tr_{number}",
            "agent_id": f"agt_{number}",
            "payload": {"name": "Guide", "via": "prompt"},
        }
        | ({"channel": channel} if channel else {})
        for number, channel in enumerate((None, "buyer", "seller"), 1)
    ]
    where = {"channel": case["channel"]} if case["channel"] else {}
    stop = {"type": "ui.command", "payload": {"command": {"kind": "stop", **case["stop"]}}, **where}
    tree = grown(vector_log([*started, stop]))
    assert [agent_id for agent_id, agent in tree.open.items() if agent.stop_requested] == case["stopped"]
    assert tree.traces_to_stop == {tree.open[agent_id].scope.trace_id for agent_id in case["stopped"]}


def check_after_the_closing_events_only_what_waits_is_open(case: dict[str, Any]) -> None:
    items = vector_log(case["events"])
    stopped = after(items, close(grown(items), keep_waiting=False))
    assert (stopped.open, list(stopped.queued_turns)) == ({}, case["queue"])
    recovered = after(items, close(grown(items), keep_waiting=True))
    assert list(recovered.open) == case["left"]
    assert recovered.is_all_waiting
    assert list(recovered.queued_turns) == case["queue"]
    assert close(recovered, keep_waiting=True) == []
    assert all(not invocation.blocks for invocation in recovered.open.values())


def check_every_agent_ends_once_and_children_before_their_parents(case: dict[str, Any]) -> None:
    tree = grown(vector_log(case["events"]))
    ended = [
        item.scope.agent_id for item in close(tree, keep_waiting=False) if isinstance(item.payload, AgentEnd)
    ]
    assert sorted(map(str, ended)) == sorted(tree.open)
    for agent_id, invocation in tree.open.items():
        if parent_id := invocation.start.parent_id:
            assert ended.index(agent_id) < ended.index(parent_id)


def check_who_closes_again_writes_the_same_events(case: dict[str, Any]) -> None:
    items = vector_log(case["events"])
    for keep_waiting in (True, False):
        first, second = (close(grown(items), keep_waiting=keep_waiting) for _ in range(2))
        assert first == second
        assert len({item.id for item in first}) == len(first)


def check_closing_does_not_change_the_tree(case: dict[str, Any]) -> None:
    items = vector_log(case["events"])
    tree = grown(items)
    close(tree, keep_waiting=False)
    close(tree, keep_waiting=True)
    assert tree == grown(items)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_vector(case: dict[str, Any]) -> None:
    laws = [
        check_state_and_closing_events,
        check_after_the_closing_events_only_what_waits_is_open,
        check_every_agent_ends_once_and_children_before_their_parents,
        check_who_closes_again_writes_the_same_events,
        check_closing_does_not_change_the_tree,
    ]
    check_laws(laws, case)


def test_a_message_of_no_turn_is_not_pending() -> None:
    assert grown(log((UiMessage(text="hi"), Scope()))).queued_turns == {}


def test_the_queue_holds_the_messages_themselves() -> None:
    first, second = UiMessage(text="Oslo", target="Guide"), UiMessage(text="Rome")
    items = log((first, Scope(trace_id="tr_1")), (second, Scope(trace_id="tr_2")))
    assert list(grown(items).queued_turns.items()) == [
        ("tr_1", QueuedTurn(first, Scope(trace_id="tr_1"))),
        ("tr_2", QueuedTurn(second, Scope(trace_id="tr_2"))),
    ]


def test_a_message_of_another_turn_queues_while_one_is_open() -> None:
    items = log((BEGIN, ROOT), (UiMessage(text="Rome"), Scope(trace_id="tr_2")))
    assert list(grown(items).queued_turns) == ["tr_2"]


def test_a_start_without_an_agent_opens_nothing() -> None:
    assert grown(log((BEGIN, Scope(trace_id="tr_1")))).open == {}


def test_what_a_start_says_is_kept() -> None:
    [invocation] = grown(log((BEGIN, ROOT))).open.values()
    assert (invocation.start, invocation.scope, invocation.steps) == (BEGIN, ROOT, 0)


def test_each_completion_is_a_step() -> None:
    items = log((BEGIN, ROOT), (USAGE, ROOT), (USAGE, CHILD), (USAGE, ROOT))
    tree = grown(items)
    assert tree.open["agt_1"].steps == 2
    [end] = build_closing_events(tree, "cancelled", "Stopped by the user.", keep_waiting=False)
    assert end.payload == AgentEnd(stop_reason="cancelled", steps=2, usage=USAGE.usage, reason="stopped")
    assert end.scope == ROOT


STRAY = [
    USAGE,
    BlockStart(block_id="blk_1", kind="text"),
    BlockDelta(block_id="blk_1", text="x"),
    BlockEnd(block_id="blk_1", status="complete"),
    CALL,
    ANSWER,
    AWAIT,
    AgentEnd(stop_reason="end_turn"),
]


@for_each_row("at", [Scope(), CHILD], ids=["no agent", "an agent that is not open"])
@for_each_row("payload", STRAY, ids=lambda payload: type(payload).__name__)
def test_events_of_agents_that_are_not_open_open_nothing(payload: Payload, at: Scope) -> None:
    before, tree = grown(log((BEGIN, ROOT))), grown(log((BEGIN, ROOT), (payload, at)))
    assert (tree.open, tree.queued_turns, tree.last_seq) == (before.open, {}, 1)


def test_ends_and_answers_of_nothing_change_nothing() -> None:
    end = BlockEnd(block_id="blk_9", status="complete")
    answer = ToolResult(call_id="call_9", tool="confirm", ok=True)
    tree = grown(log((BEGIN, ROOT), (CALL, ROOT), (end, ROOT), (answer, ROOT)))
    assert (list(tree.open["agt_1"].calls), tree.open["agt_1"].blocks) == (["call_1"], {})


def test_what_nobody_knows_only_moves_the_position() -> None:
    envelope, _ = entry(BEGIN, ROOT, 7)
    tree = Tree()
    tree.apply(envelope, UnknownPayload(msgspec.Raw(b"{}")))
    assert tree == Tree(last_seq=7)


def test_an_await_counts_for_the_calls_that_are_open() -> None:
    other = AwaitedCall(call_id="call_9", tool="confirm", args={})
    items = log((BEGIN, ROOT), (CALL, ROOT), (ToolAwait(calls=(other, *AWAIT.calls)), ROOT))
    calls = grown(items).open["agt_1"].calls
    assert {call_id: call.awaits_page for call_id, call in calls.items()} == {"call_1": True}


def test_a_delta_without_its_start_is_kept_for_the_abort() -> None:
    items = log((BEGIN, ROOT), (BlockDelta(block_id="blk_1", text="half"), ROOT))
    block, _ = close(grown(items), keep_waiting=True)
    assert block.payload == BlockEnd(block_id="blk_1", status="aborted", text="half", reason="interrupted")


def test_an_agent_without_calls_does_not_wait() -> None:
    assert not grown(log((BEGIN, ROOT))).is_all_waiting


def test_an_agent_does_not_wait_while_a_tool_of_its_runs() -> None:
    tool = ToolCall(call_id="call_2", tool="weather", args={})
    items = log((BEGIN, ROOT), (tool, ROOT), (CALL, ROOT), (AWAIT, ROOT))
    tree = grown(items)
    assert (tree.waiting_agents(), tree.agents_asking_page()) == (set(), [])
    [answer] = close(tree, keep_waiting=True)
    assert answer.payload == ToolResult.cancelled(tool, "It stopped.")
    assert after(items, [answer]).agents_asking_page() == ["agt_1"]


def test_an_answer_frees_the_agent_and_its_callers() -> None:
    nested = next(case for case in CASES if case["name"] == "a caller waits through the child of its child")
    items = vector_log(nested["events"])
    tree = grown(items)
    assert len(tree.open) == 3
    assert tree.is_all_waiting
    answer = ToolResult(call_id="call_3", tool="confirm", ok=True, result=True)
    tree.apply(*entry(answer, GRANDCHILD, len(items)))
    assert tree.waiting_agents() == set()
    assert tree.agents_asking_page() == []


def test_a_child_is_found_by_its_call_while_it_is_open() -> None:
    call = ToolCall(call_id="call_2", tool="scout", args={})
    start = AgentStart(name="Scout", via="call", parent_id="agt_1", call_id="call_2")
    items = log((BEGIN, ROOT), (call, ROOT), (start, CHILD))
    tree = grown(items)
    assert tree.children_by_call() == {(None, None): "agt_1", ("agt_1", "call_2"): "agt_2"}
    tree.apply(*entry(AgentEnd(stop_reason="end_turn"), CHILD, 3))
    assert tree.children_by_call() == {(None, None): "agt_1"}


def test_everybody_waits_through_a_long_line_of_callers() -> None:
    """Longer than Python nests calls: agents that call themselves have no limit of their own."""
    call = ToolCall(call_id="c", tool="scout", args={})
    line: list[tuple[Payload, Scope]] = [(BEGIN, ROOT)]
    for depth in range(1, 1200):
        caller = line[-1][1]
        start = AgentStart(name="Scout", via="call", parent_id=caller.agent_id, call_id="c")
        line += [(call, caller), (start, scope(f"agt_{depth + 1}", depth))]
    last = line[-1][1]
    tree = grown(log(*line, (CALL, last)))
    assert tree.waiting_agents() == set()
    tree.apply(*entry(AWAIT, last))
    assert tree.is_all_waiting
    assert tree.is_settled("tr_1")
    assert tree.agents_asking_page() == [last.agent_id]


def test_an_orphan_is_closed_alone() -> None:
    start = AgentStart(name="Scout", via="call", parent_id="agt_1", call_id="call_2")
    items = log((BEGIN, ROOT), (start, CHILD))
    closings = close(grown(items), keep_waiting=False)
    assert [item.scope for item in closings] == [CHILD, ROOT]
    assert after(items, closings).open == {}


def test_the_server_is_known_from_its_start_to_its_end() -> None:
    model = ProcessStart(process="model", pid=1)
    server = ProcessStart(process="server", pid=2)
    items = log((model, Scope()), (server, Scope()))
    tree = grown(items)
    assert tree.server_process == server
    tree.apply(*entry(ProcessEnd(process="model", reason="process_crash"), seq=2))
    assert tree.server_process == server
    tree.apply(*entry(ProcessEnd(process="server", reason="server_shutdown"), seq=3))
    assert tree.server_process is None


def test_the_scope_of_an_envelope_is_the_one_it_was_stamped_with() -> None:
    for at in (ROOT, GRANDCHILD, Scope(), Scope(trace_id="tr_9")):
        assert scope_without_actor(entry(CALL, at)[0]) == at


def test_closing_ids_name_what_is_closed() -> None:
    assert closing_id("call", "call_1") == closing_id("call", "call_1")
    others = {closing_id(what, key) for what in ("agent", "block", "call") for key in ("a", "b")}
    assert len(others) == 6
    assert closing_id("agent", "agt_1") == closes_id("agent:agt_1")


def test_a_cancelled_call_says_why() -> None:
    assert msgspec.to_builtins(ToolResult.cancelled(CALL, "It stopped.")) == {
        "call_id": "call_1",
        "tool": "confirm",
        "ok": False,
        "result": None,
        "error": {"code": "CANCELLED", "message": "It stopped."},
    }


def test_calls_and_blocks_of_two_agents_may_have_the_same_key() -> None:
    block = BlockStart(block_id="blk_1", kind="text")
    call = ToolCall(call_id="call_1", tool="scout", args={})
    start = AgentStart(name="Scout", via="call", parent_id="agt_1", call_id="call_1")
    items = log((BEGIN, ROOT), (call, ROOT), (start, CHILD), (call, CHILD), (block, ROOT), (block, CHILD))
    closings = close(grown(items), keep_waiting=False)
    assert len(closings) == 6


def said_by(actor: str, scope: Scope, seq: int) -> Item:
    envelope, payload = entry(UiMessage(text="Oslo"), scope, seq)
    return structs.replace(envelope, actor=actor), payload


def test_a_turn_has_the_roles_of_whoever_spoke_last_in_it() -> None:
    member, end = SessionMember(principal="ada", roles=("owner", "admin")), AgentEnd(stop_reason="end_turn")
    tree = grown([entry(member, Scope(), 0), said_by("ada", Scope(trace_id="tr_1"), 1)])
    assert tree.actor_roles("tr_1") == ("owner", "admin")
    assert tree.actor_roles("tr_2") == tree.actor_roles(None) == ()
    tree.apply(*entry(BEGIN, ROOT, 2))
    tree.apply(*said_by("bob", ROOT, 3))
    assert tree.actor_roles("tr_1") == ()
    tree.apply(*said_by("ada", ROOT, 4))
    tree.apply(*entry(end, ROOT, 5))
    assert tree.actors == {}


def test_the_roles_of_a_turn_outlive_a_hand_off() -> None:
    tree = grown([entry(SessionMember(principal="ada", roles=("owner",)), Scope(), 0)])
    tree.apply(*said_by("ada", Scope(trace_id="tr_1"), 1))
    tree.apply(*entry(BEGIN, ROOT, 2))
    tree.apply(*entry(AgentHandoff(to="Scout", to_agent_id="agt_2"), ROOT, 3))
    tree.apply(*entry(AgentEnd(stop_reason="handoff"), ROOT, 4))
    assert tree.actor_roles("tr_1") == ("owner",)


def test_events_of_the_application_open_a_turn_when_a_page_sent_them_with_one() -> None:
    class Noted(Payload, frozen=True, kw_only=True):
        ORIGINS: ClassVar = ANY_ORIGIN
        city: str = ""

    def noted(seq: int, trace: str | None, origin: Origin, actor: str | None = None) -> Item:
        envelope, _ = entry(UiMessage(text=""), Scope(trace_id=trace), seq)
        return structs.replace(envelope, type="tour.noted", origin=origin, actor=actor), Noted()

    tree = grown([noted(0, None, "ui"), noted(1, "tr_2", "model"), noted(2, "tr_3", "app")])
    assert tree.queued_turns == {}
    tree.apply(*noted(3, "tr_1", "ui", "ada"))
    tree.apply(*noted(4, "tr_1", "ui", "bob"))
    tree.apply(*noted(5, "tr_4", "ui"))
    assert tree.queued_turns == {
        "tr_1": QueuedTurn(None, Scope(trace_id="tr_1")),
        "tr_4": QueuedTurn(None, Scope(trace_id="tr_4")),
    }
    assert tree.actors == {"tr_1": "ada"}
    message = UiMessage(text="and this")
    tree.apply(*entry(message, Scope(trace_id="tr_1"), 6))
    assert tree.queued_turns["tr_1"].trigger == message
    tree.apply(*entry(BEGIN, ROOT, 7))
    tree.apply(*noted(8, "tr_1", "ui"))
    assert list(tree.queued_turns) == ["tr_4"]
