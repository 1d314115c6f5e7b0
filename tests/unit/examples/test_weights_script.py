"""The agent of the example `weights`: what it reads from words, what it does next, what its views hold."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.support.tables import for_each_row
from turnlog.agents import AnthropicModel, ScriptTurn, ToolUse
from turnlog.events.view_nodes import find_view_error
from turnlog.state.descriptions import describe_action
from turnlog.state.history import Message
from turnlog_examples import weights
from turnlog_examples.weights.script import HELP, make_script, moment
from turnlog_examples.weights.team import INSTRUCTIONS
from turnlog_examples.weights.views import Draft, form_of, make_views, table_of
from turnlog_examples.weights.words import entries_in

WORDS = json.loads((Path(__file__).parents[2] / "vectors" / "examples" / "words.json").read_text())
ZONE = ZoneInfo("America/New_York")
NOON = "2026-01-08T12:00:00-05:00"
SAVE, LIST, DELETE, AUDIT = (
    "weight_entry_save_batch",
    "weight_entries_list",
    "weight_entry_delete",
    "weight_audit_list",
)
Call = tuple[str, dict[str, Any], Any]  # a tool, its arguments, and what it brought


class Broken(dict[str, Any]):
    """What a call brought that did not work."""


def conversation(*items: str | Call) -> list[Message]:
    """What the user said, and calls with their results."""
    messages: list[Message] = []
    for number, item in enumerate(items):
        if isinstance(item, str):
            messages.append(Message("user", [{"type": "text", "text": item}]))
            continue
        tool, args, result = item
        use = {"type": "tool_use", "id": f"c{number}", "name": tool, "input": args}
        content = result if isinstance(result, str) else json.dumps(result)
        part = {"type": "tool_result", "tool_use_id": f"c{number}", "content": content}
        messages.append(Message("assistant", [use]))
        messages.append(Message("user", [part | {"is_error": isinstance(result, Broken)}]))
    return messages


def said(*items: str | Call) -> tuple[str, list[tuple[str, Any]]]:
    """What the agent says to a conversation, and what it calls."""
    parts = list(make_script(ZONE)(ScriptTurn(conversation(*items))))
    calls = [(part.tool, part.args) for part in parts if isinstance(part, ToolUse)]
    return " ".join(part for part in parts if isinstance(part, str)), calls


def acted(kind: str, **fields: Any) -> str:
    return describe_action({"action": {"kind": kind, **fields}, "view_id": "view_1"})


def draft(weight: float, day: str = "today", notes: str = "") -> dict[str, Any]:
    return {"measured_at": day, "weight_lbs": weight, "notes": notes}


@for_each_row("vector", WORDS["weigh_ins"])
def test_weigh_ins_are_found_in_words(vector: dict[str, Any]) -> None:
    assert entries_in(vector["text"]) == vector["entries"]


@for_each_row("vector", WORDS["moments"])
def test_a_day_alone_is_its_noon_where_the_user_is(vector: dict[str, str]) -> None:
    assert moment(vector["text"], ZONE) == vector["moment"]


@for_each_row(
    ("text", "words", "calls"),
    [
        (
            "Weigh-in 187.6 today",
            "Got it. Please confirm the entry:",
            [("weight_entry_form", {"entry": draft(187.6)})],
        ),
        (
            "188 yesterday and 187.6 today",
            "Got it. Please confirm the entries:",
            [("weight_table", {"rows": [draft(188, "yesterday"), draft(187.6)]})],
        ),
        ("Show my weights!", "", [(LIST, {})]),
        ("What has changed?", "", [(AUDIT, {})]),
        ("Good morning", HELP, []),
        (acted("button.click", button_id="b"), HELP, []),
        ("[The user acted: {}]", HELP, []),
        ("[The user acted: {what?}]", HELP, []),
        ('[The user acted: {"action":[]}]', HELP, []),
        ('[The user acted: {"action":{"kind":"form.submit"}}]', HELP, []),
        ('[The user acted: {"action":{"kind":"button.click","button_id":null}}]', HELP, []),
        ('[The user acted: {"action":' + "[" * 5000 + "}]", HELP, []),
        (
            acted("table.add_row", table_id="weight_entries"),
            "Please fill in the new entry:",
            [("weight_entry_form", {"entry": {"measured_at": "today"}})],
        ),
    ],
)
def test_a_message_leads_to_a_view_or_a_question(text: str, words: str, calls: list[Any]) -> None:
    assert said(text) == (words, calls)


def test_what_nobody_entered_is_the_executors_to_refuse() -> None:
    nothing = {"measured_at": None, "weight_lbs": None, "notes": ""}
    assert said(acted("form.submit", form_id="weight_entry", values={}))[1] == [(SAVE, {"rows": [nothing]})]
    rows = [{"row_id": 7}, {"row_id": [], "measured_at": "noon"}]
    saved = said(acted("table.save", table_id="weight_entries", rows=rows))[1]
    assert saved == [(SAVE, {"rows": [nothing, nothing | {"measured_at": "noon"}]})]


VALUES = {"measured_at": "2026-01-08", "weight_lbs": 187.6}
SUBMIT = acted("form.submit", form_id="weight_entry", values=VALUES)
ROW = {"measured_at": NOON, "weight_lbs": 187.6, "notes": ""}


@for_each_row(
    "fault",
    [
        Broken(code="CANCELLED", message="stopped"),
        Broken(code="EXECUTION_ERROR", message="stopped", details=None),
    ],
)
def test_what_failed_otherwise_is_said(fault: Broken) -> None:
    assert said(SUBMIT, (SAVE, {"rows": [ROW]}, fault)) == ("It is not saved: stopped.", [])
    assert said("list", (LIST, {}, fault)) == ("The entries cannot be shown: stopped.", [])
    assert said("history", (AUDIT, {}, fault)) == ("The history cannot be shown: stopped.", [])


def saved_row(number: int, **changed: Any) -> dict[str, Any]:
    return {"id": f"wt_{number}", **ROW, **changed}


def test_the_history_says_what_changed_when_and_by_whom() -> None:
    before, after = saved_row(1), saved_row(1, weight_lbs=186, notes="tired")
    changes = [
        {"before": None, "after": before},
        {"before": before, "after": after},
        {"before": after, "after": None},
    ]
    line = {"at": "noon", "person": "ada", "call_id": "c1", "changes": changes}
    words, calls = said("history", (AUDIT, {}, {"changes": [line]}))
    assert calls == []
    assert words.split("\n")[1:] == [
        "- noon ada: added 187.6 lbs on 2026-01-08 (c1)",
        "- noon ada: changed 187.6 lbs on 2026-01-08 to 186 lbs on 2026-01-08, tired (c1)",
        "- noon ada: deleted 186 lbs on 2026-01-08, tired (c1)",
    ]
    assert said("audit", (AUDIT, {}, {"changes": []})) == ("Nothing was changed yet.", [])


class Showing:
    """A context that keeps what it is shown."""

    def __init__(self) -> None:
        self.views: list[Any] = []

    def show_view(self, view: Any) -> None:
        self.views.append(view)


@pytest.fixture
def shown() -> Any:
    """Show something late in the evening in New York, when it is tomorrow in Greenwich."""
    form, table = make_views(ZONE, lambda: datetime(2026, 1, 9, 3, 0, tzinfo=UTC))

    def show(*rows: Draft, as_table: bool = False) -> Any:
        context = Showing()
        if as_table:
            table.function(list(rows), context)
        else:
            form.function(rows[0], context)
        return context.views[0].tree

    return show


def test_today_is_where_the_user_is(shown: Any) -> None:
    assert shown(Draft("today", 187.6, ""))["fields"][0]["value"] == "2026-01-08"
    rows = shown(Draft("yesterday", 1), Draft("2026-01-01", 2), Draft(), as_table=True)["rows"]
    assert [row["values"]["measured_at"] for row in rows] == ["2026-01-07", "2026-01-01", None]


def test_views_are_lawful_and_show_errors_at_their_place() -> None:
    form = form_of(Draft("2026-01-08", 0, "", errors={"weight_lbs": "weight_lbs must be > 0"}))
    assert (form.view_id, form.tree["id"]) == ("view_weight_entry", "weight_entry")
    assert [field.get("error") for field in form.tree["fields"]] == [None, "weight_lbs must be > 0", None]
    gone = Draft(NOON, 1, "", "wt_1", {"id": "there is no entry wt_1", "notes": "too long"})
    table = table_of([gone, Draft(NOON, 2)])
    assert (table.view_id, table.tree["id"]) == ("view_weight_entries", "weight_entries")
    first, second = table.tree["rows"]
    assert (first["row_id"], first["error"], first["errors"]) == (
        "wt_1",
        "there is no entry wt_1",
        {"notes": "too long"},
    )
    assert (second["row_id"], "error" in second) == ("new_2", False)
    assert find_view_error(form.tree) is find_view_error(table.tree) is None


def test_a_real_model_may_take_the_place_of_the_script() -> None:
    agent = weights.make_agent(model="anthropic:claude-sonnet-4-5", zone="Asia/Tokyo")
    assert isinstance(agent.model, AnthropicModel)
    assert "Asia/Tokyo" in agent.instructions_for(None)
    named = [spec.name for spec in agent.tool_specs]
    assert all(name in INSTRUCTIONS for name in named), "it is told when to use what it has"
    assert weights.app.name == "weights"
