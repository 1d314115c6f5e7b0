"""The table of the example `weights`: what it takes, that a call counts once, and what it writes down."""

import sqlite3
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.tables import for_each_row
from turnlog.agents import ToolError
from turnlog.events import ToolCall
from turnlog_examples.weights.contract import Entry, weight_audit_list, weight_entries_list
from turnlog_examples.weights.table import Caller, WeightTable

NOW = datetime(2026, 1, 8, 18, 0, tzinfo=UTC)
NOON = "2026-01-08T12:00:00-05:00"
SAVE, DELETE = "weight_entry_save_batch", "weight_entry_delete"


@pytest.fixture
def table(tmp_path: Path) -> WeightTable:
    return WeightTable(tmp_path / "weights.db", lambda: NOW)


def caller(key: str = "call_1", person: str = "ada", session: str = "sess_1", tool: str = SAVE) -> Caller:
    return Caller(person, session, tool, key, f"of {key}")


def entry(weight: float = 187.6, at: str = NOON, notes: str = "", entry_id: str | None = None) -> Entry:
    return Entry(at, weight, notes, entry_id)


def fault_of(call: Any) -> tuple[str, str, Any]:
    with pytest.raises(ToolError) as raised:
        call()
    return raised.value.code, str(raised.value), raised.value.details


def test_what_is_saved_is_listed_the_newest_first(table: WeightTable) -> None:
    answer = table.save(caller(), [entry(190, "2026-01-01T12:00:00-05:00"), entry(notes="after breakfast")])
    assert answer["saved"] == 2
    assert all(entry_id.startswith("wt_") for entry_id in answer["ids"])
    newest = {"id": answer["ids"][1], "measured_at": NOON, "weight_lbs": 187.6, "notes": "after breakfast"}
    assert table.newest("ada", 1) == [newest]
    assert [row["weight_lbs"] for row in table.newest("ada", 30)] == [187.6, 190]


def test_order_is_that_of_time_and_not_of_words(table: WeightTable) -> None:
    table.save(caller(), [entry(1, "2026-01-08T12:00:00+09:00"), entry(2, "2026-01-08T05:00:00-05:00")])
    assert [row["weight_lbs"] for row in table.newest("ada", 30)] == [2, 1]


def test_a_row_with_an_id_is_changed(table: WeightTable) -> None:
    [entry_id] = table.save(caller(), [entry()])["ids"]
    assert table.save(caller("call_2"), [entry(186, entry_id=entry_id)]) == {"saved": 1, "ids": [entry_id]}
    assert [row["weight_lbs"] for row in table.newest("ada", 30)] == [186]


@for_each_row(
    ("row", "field", "message"),
    [
        (entry(0), "weight_lbs", "weight_lbs must be > 0"),
        (entry(-5), "weight_lbs", "weight_lbs must be > 0"),
        (entry(float("nan")), "weight_lbs", "weight_lbs must be > 0"),
        (entry(10_000), "weight_lbs", "weight_lbs must be < 10000"),
        (entry(float("inf")), "weight_lbs", "weight_lbs must be < 10000"),
        (entry(187.655), "weight_lbs", "weight_lbs must have at most 2 decimals"),
        (entry(at="2026-01-08"), "measured_at", "measured_at must be a date and time with its UTC offset"),
        (
            entry(at="2026-01-08T12:00:00+14:01"),
            "measured_at",
            "measured_at must have a UTC offset of at most 14 hours",
        ),
        (entry(at="noon"), "measured_at", "measured_at must be a date and time with its UTC offset"),
        (
            entry(at="20260108T1200-0500"),
            "measured_at",
            "measured_at must be a date and time with its UTC offset",
        ),
        (entry(at="2026-01-10T12:00:00-05:00"), "measured_at", "measured_at must not be in the future"),
        (entry(notes="x" * 501), "notes", "notes must be at most 500 characters long"),
    ],
)
def test_a_row_that_cannot_be_is_refused_with_its_path(
    table: WeightTable, row: Entry, field: str, message: str
) -> None:
    found = fault_of(lambda: table.save(caller(), [entry(), row]))
    assert found == ("VALIDATION_ERROR", message, {"path": ["rows", 1, field]})
    assert table.newest("ada", 30) == [], "all or none"
    assert table.audit("ada", 30) == []


def test_noon_of_today_may_be_still_to_come(table: WeightTable) -> None:
    assert table.save(caller(), [entry(at="2026-01-09T12:00:00-05:00")])["saved"] == 1


def test_a_batch_has_a_size_and_no_row_twice(table: WeightTable) -> None:
    [entry_id] = table.save(caller(), [entry()])["ids"]
    assert fault_of(lambda: table.save(caller("call_2"), [entry()] * 501))[2] == {"path": ["rows"]}
    twice = [entry(entry_id=entry_id), entry(entry_id=entry_id)]
    assert fault_of(lambda: table.save(caller("call_2"), twice))[2] == {"path": ["rows", 0, "id"]}


def test_everybody_has_their_own(table: WeightTable) -> None:
    [entry_id] = table.save(caller(), [entry()])["ids"]
    assert table.newest("bob", 30) == table.audit("bob", 30) == []
    there_is_none = ("VALIDATION_ERROR", f"there is no entry {entry_id}")
    changed = [entry(), entry(1, entry_id=entry_id)]
    found = fault_of(lambda: table.save(caller("call_2", "bob"), changed))
    assert found == (*there_is_none, {"path": ["rows", 1, "id"]})
    found = fault_of(lambda: table.delete(caller("call_3", "bob", tool=DELETE), [entry_id]))
    assert found == (*there_is_none, {"path": ["ids", 0]})
    assert table.newest("bob", 30) == []
    assert [row["weight_lbs"] for row in table.newest("ada", 30)] == [187.6]


def test_a_call_that_comes_again_changes_nothing_and_gets_the_same_answer(table: WeightTable) -> None:
    answer = table.save(caller(), [entry()])
    assert table.save(caller(), [entry()]) == answer
    assert len(table.newest("ada", 30)) == len(table.audit("ada", 30)) == 1
    gone = table.delete(caller("call_2", tool=DELETE), answer["ids"])
    assert table.delete(caller("call_2", tool=DELETE), answer["ids"]) == gone == {"deleted": 1}
    assert table.save(caller(), [entry()]) == answer, "also when the row is gone"
    assert table.newest("ada", 30) == []


def test_a_key_belongs_to_one_call_of_one_tool_in_one_session(table: WeightTable) -> None:
    [first] = table.save(caller(), [entry()])["ids"]
    found = fault_of(lambda: table.save(caller(), [entry(1)]))
    assert found[1:] == (
        "this key belongs to a call with other arguments",
        {"path": ["idempotency_key"]},
    )
    assert table.save(caller(session="sess_2"), [entry()])["ids"] != [first]
    assert table.delete(caller(tool=DELETE), [first]) == {"deleted": 1}


def test_the_same_call_at_once_is_one_save(table: WeightTable) -> None:
    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda: answers.append(table.save(caller(), [entry()]))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8
    assert all(answer == answers[0] for answer in answers)
    assert len(table.newest("ada", 30)) == 1


def test_the_audit_says_what_was_changed_by_whom_and_from_what(table: WeightTable) -> None:
    [entry_id, other] = table.save(caller(), [entry(), entry(180)])["ids"]
    kept = entry(180, entry_id=other)
    table.save(caller("call_2"), [entry(186, entry_id=entry_id), kept])
    table.delete(caller("call_3", tool=DELETE), [entry_id])
    first, then = (
        {"id": entry_id, "measured_at": NOON, "weight_lbs": lbs, "notes": ""} for lbs in (187.6, 186)
    )
    deleted, changed, added = table.audit("ada", 30)
    assert [line["changes"] for line in (deleted, changed)] == [
        [{"before": then, "after": None}],
        [{"before": first, "after": then}],
    ], "a row that was saved as it was is no change"
    assert [change["before"] for change in added["changes"]] == [None, None]
    assert [line["tool"] for line in (deleted, changed, added)] == [DELETE, SAVE, SAVE]
    about = {name: deleted[name] for name in ("at", "person", "session_id", "call_id", "key")}
    assert about == {
        "at": "2026-01-08T18:00:00.000+00:00",
        "person": "ada",
        "session_id": "sess_1",
        "call_id": "of call_3",
        "key": "call_3",
    }
    assert table.audit("ada", 1) == [deleted]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET person = 'eve'",
        "DELETE FROM audit",
        "UPDATE weight_entry SET weight_lbs = 0",
        "UPDATE weight_entry SET weight_lbs = 1e9",
        "UPDATE weight_entry SET weight_lbs = 187.655",
        "UPDATE weight_entry SET measured_at = 'noon'",
        "UPDATE weight_entry SET id = 'x'",
        "UPDATE weight_entry SET weight_lbs = 'much'",
    ],
)
def test_the_file_itself_refuses_what_the_program_would(tmp_path: Path, statement: str) -> None:
    WeightTable(tmp_path / "weights.db", lambda: NOW).save(caller(), [entry()])
    db = sqlite3.connect(tmp_path / "weights.db")
    with pytest.raises(sqlite3.IntegrityError):
        db.execute(statement)
    db.execute("UPDATE weight_entry SET weight_lbs = 0.01")
    db.close()


def test_a_table_that_is_opened_again_has_everything(tmp_path: Path) -> None:
    answer = WeightTable(tmp_path / "weights.db", lambda: NOW).save(caller(), [entry()])
    again = WeightTable(tmp_path / "weights.db", lambda: NOW)
    assert [row["id"] for row in again.newest("ada", 30)] == answer["ids"]
    assert again.save(caller(), [entry()]) == answer


@for_each_row(("limit", "taken"), [(0, False), (-1, False), (1, True), (500, True), (10**30, False)])
def test_a_list_has_a_length_that_makes_sense(limit: int, taken: bool) -> None:
    for listing in (weight_entries_list, weight_audit_list):
        call = ToolCall(call_id="c1", tool=listing.name, args={"limit": limit})
        assert isinstance(listing.validate(call), dict) is taken
