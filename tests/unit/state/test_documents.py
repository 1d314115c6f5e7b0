"""Which events become documents, of which type and category, with which id (document 004)."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.folds import fold_documents
from tests.support.tables import check_laws, for_each_row
from tests.support.written_logs import vector_log
from turnlog.state.derived_documents import is_document_visible
from turnlog.team.documents import CATEGORIES, REDUCERS, Documents
from turnlog.vocabularies import FULL_CATALOG

VECTORS = Path(__file__).parents[2] / "vectors" / "state" / "documents.json"
FILE: dict[str, list[dict[str, Any]]] = json.loads(VECTORS.read_text())
JOINED = {"type": "roster.join", "payload": {"name": "Lyra", "seat": 0}}


def after_a_join(row: dict[str, Any]) -> dict[str, Any]:
    """The documents that the event of a row changes, when somebody has joined."""
    event = {"type": row["event"], "agent_id": "agt_1", "payload": row["payload"]}
    kept, (first, second) = Documents(), vector_log([JOINED, event])
    kept.apply(*first)
    return {made.id: made for made in kept.apply(*second)}


@for_each_row("row", FILE["table"], ids=lambda row: f"{row['seed']}-{row['event']}")
def test_a_row_of_the_table(row: dict[str, Any]) -> None:
    [made, *rest] = after_a_join(row).values()
    assert (made.type, made.category) == (row["type"], row["category"])
    assert json.loads(made.body).items() >= row["body"].items()
    assert made.id.startswith(f"{made.type}:")
    assert [other.type for other in rest] == (["agent-identity"] if row["seed"] == "session_end" else [])


@for_each_row("row", FILE["none"], ids=lambda row: row["seed"])
def test_what_makes_no_document(row: dict[str, Any]) -> None:
    assert after_a_join(row) == {}


def test_events_in_neither_list_make_none() -> None:
    told = {row["event"] for row in FILE["table"]}
    quiet = {name for name in FULL_CATALOG.types if name not in told}
    assert {FULL_CATALOG.get_event_type(name).payload_class for name in told} <= set(REDUCERS)
    assert {row["event"] for row in FILE["none"]} < quiet
    for name in quiet:
        assert (
            after_a_join({"event": name, "payload": FULL_CATALOG.get_event_type(name).payload_class.EXAMPLE})
            == {}
        ), name


def test_a_type_has_one_category() -> None:
    assert {row["type"]: row["category"] for row in FILE["table"]} == CATEGORIES


def check_documents(case: dict[str, Any]) -> None:
    found = fold_documents(vector_log(case["events"]))
    assert all(key == document.id for key, document in found.items())
    told = [{**document._asdict(), "body": document.body.decode()} for _, document in sorted(found.items())]
    assert told == case["documents"]


def check_a_body_is_compact_json_with_sorted_keys(case: dict[str, Any]) -> None:
    for document in case["documents"]:
        canonical = json.dumps(
            json.loads(document["body"]), sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
        assert document["body"] == canonical


@pytest.mark.parametrize("case", FILE["cases"], ids=lambda case: case["name"])
def test_vector(case: dict[str, Any]) -> None:
    laws = [
        check_documents,
        check_a_body_is_compact_json_with_sorted_keys,
    ]
    check_laws(laws, case)


def test_a_document_of_a_channel_is_seen_by_those_who_are_in_it() -> None:
    case = next(case for case in FILE["cases"] if case["name"] == "a channel has documents of its own")
    everybodys, customers = (document["body"].encode() for document in case["documents"])
    assert is_document_visible([], everybodys)
    assert is_document_visible(["installer", "customer"], customers)
    assert not is_document_visible(["installer"], customers)
    assert not is_document_visible([], customers)


def test_an_event_that_changes_nothing_gives_no_document() -> None:
    kept, sleeping = Documents(), {"type": "roster.status", "payload": {"agents": []}}
    changed = [len(kept.apply(*item)) for item in vector_log([JOINED, sleeping, sleeping])]
    assert changed == [1, 1, 0]


def test_what_an_ended_agent_said_is_not_kept() -> None:
    case = next(case for case in FILE["cases"] if case["name"].startswith("the blocks of one reply"))
    kept = Documents()
    for item in vector_log(case["events"]):
        kept.apply(*item)
    assert kept == Documents()
