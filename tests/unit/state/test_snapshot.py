"""A snapshot at any cut and the events after it are the whole, for the logs of the vectors."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.logs import Item, log, scope, vector_log
from tests.support.tables import for_each_row
from turnlog.errors import BadInput
from turnlog.events import AgentHandoff, AgentStart, AssistantMessage, BlockRetract, Scope, ToolCall
from turnlog.state.documents import Documents
from turnlog.state.fold import apply_events
from turnlog.state.history import History
from turnlog.state.meters import Meters
from turnlog.state.snapshot import dump, load
from turnlog.state.transcript import Transcript
from turnlog.state.tree import QueuedTurn, Tree

FOLDS: list[Any] = [Tree, History, Transcript, Meters, Documents]
VECTORS = Path(__file__).parents[2] / "vectors" / "state"
LOGS = [
    pytest.param(vector_log(case["events"]), id=f"{path.stem}: {case['name']}")
    for path in sorted(VECTORS.glob("*.json"))
    for case in json.loads(path.read_text())["cases"]
]


@pytest.mark.parametrize("items", LOGS)
@for_each_row("kind", FOLDS, ids=lambda kind: kind.__name__)
def test_a_snapshot_at_any_cut_and_the_tail_are_the_whole(kind: Any, items: list[Item]) -> None:
    whole = dump(apply_events(kind(), items))
    for cut in range(len(items) + 1):
        before = apply_events(kind(), items[:cut])
        again = load(kind, dump(before))
        assert again == before or kind is History  # which may hold conversations without a word
        assert dump(again) == dump(before)
        assert dump(apply_events(again, items[cut:])) == whole


def test_a_turn_that_an_event_of_the_application_opened_waits_again() -> None:
    tree = Tree(queued_turns={"tr_1": QueuedTurn(None, Scope(trace_id="tr_1"))})
    assert load(Tree, dump(tree)) == tree


def test_what_opens_a_turn_that_has_not_begun_is_still_read_when_it_begins() -> None:
    history = History(_queued_parts={"tr_1": [{"type": "text", "text": "[The user acted.]"}]})
    again = load(History, dump(history))
    assert again == history
    [start] = log((AgentStart(name="Guide", via="prompt"), scope("agt_1")))
    again.apply(*start)
    [message] = again.messages("agt_1")
    assert message.content == [{"type": "text", "text": "[The user acted.]"}]


def test_who_only_looks_leaves_no_trace() -> None:
    history = History()
    assert history.messages("agt_1") == []
    assert dump(history) == dump(History())


def test_who_takes_over_goes_on_with_the_same_conversation() -> None:
    one, two, heir = scope("agt_1"), scope("agt_2", 1), scope("agt_3", 1)
    called: dict[str, Any] = {"parent_id": "agt_1", "call_id": "c1"}
    items = log(
        (AgentStart(name="Guide", via="prompt", prompt="Go"), one),
        (ToolCall(call_id="c1", tool="scout", args={}), one),
        (AgentStart(name="Scout", via="call", prompt="Look", **called), two),
        (AssistantMessage(text="I pass it on.", block_id="b1"), two),
        (AgentHandoff(to="Heir", to_agent_id="agt_3"), two),
        (AgentStart(name="Heir", via="handoff", **called), heir),
    )
    history = load(History, dump(apply_events(History(), items)))
    assert history.by_agent["agt_3"] is history.by_agent["agt_2"]
    apply_events(history, log((BlockRetract(block_ids=("b1",), reason="x"), two)))
    assert [message.content for message in history.by_agent["agt_3"].messages] == [
        [{"type": "text", "text": "Look"}]
    ]


def test_an_agent_that_starts_twice_has_one_conversation() -> None:
    start, at = AgentStart(name="Scout", via="call", prompt="Look"), scope("agt_2", 1)
    said = AssistantMessage(text="I pass it on.", block_id="b1")
    history = apply_events(History(), log((start, at), (said, at), (start, at)))
    assert dump(load(History, dump(history))) == dump(history)


HISTORY = b'{"conversations":[[]],"roots":{},"called":{"a":7},"traces":[],"shown":{},"answers":[]}'


@for_each_row(
    ("kind", "data"),
    [
        *((kind, b"{") for kind in FOLDS),
        *((kind, b"[]") for kind in FOLDS),
        *((kind, b'"\xff"') for kind in FOLDS),
        (Tree, dump(Transcript())),
        (Tree, dump(Tree()).replace(b'"last_seq"', b'"lost"')),
        (History, dump(Tree())),
        (History, HISTORY),
        (Meters, b'{"turns":{"tr_1":{}}}'),
        (dict, b"[]"),
    ],
)
def test_what_is_no_snapshot_of_its_class_is_refused(kind: Any, data: bytes) -> None:
    with pytest.raises(BadInput, match=f"expected a snapshot of {kind.__name__}, got "):
        load(kind, data)


class Case(msgspec.Struct):
    status: str
    consents: list[str]


@for_each_row("state", [{"b": [1, {"z": None, "a": "é"}], "a": 0.1}, Case("intake", ["search"]), 42, [1, 2]])
def test_a_state_comes_back_with_its_keys_in_order(state: Any) -> None:
    again = load(type(state), dump(state))
    assert again == state
    assert dump(again) == dump(state)
