"""A snapshot at any cut and the events after it are the whole, for the logs of the vectors."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.folds import apply_events
from tests.support.tables import for_each_row
from tests.support.written_logs import Item, vector_log
from turnlog.errors import BadInput
from turnlog.events import Scope
from turnlog.state.meters import Meters
from turnlog.state.snapshot import dump, load
from turnlog.state.transcript import Transcript
from turnlog.state.tree import QueuedTurn, Tree
from turnlog.team.documents import Documents

FOLDS: list[Any] = [Tree, Transcript, Meters, Documents]
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
        assert again == before
        assert dump(again) == dump(before)
        assert dump(apply_events(again, items[cut:])) == whole


def test_a_turn_that_an_event_of_the_application_opened_waits_again() -> None:
    tree = Tree(queued_turns={"tr_1": QueuedTurn(None, Scope(trace_id="tr_1"))})
    assert load(Tree, dump(tree)) == tree


@for_each_row(
    ("kind", "data"),
    [
        *((kind, b"{") for kind in FOLDS),
        *((kind, b"[]") for kind in FOLDS),
        *((kind, b'"\xff"') for kind in FOLDS),
        (Tree, dump(Transcript())),
        (Tree, dump(Tree()).replace(b'"last_seq"', b'"lost"')),
        (Transcript, dump(Tree()).replace(b'"last_seq"', b'"entries"')),
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
