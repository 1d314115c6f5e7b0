"""The open views of a session, and what an action on one may hold."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.written_logs import entry
from turnlog.events import AssistantView, Payload, Scope, UiAction, UiMessage, View
from turnlog.events.ui import ButtonClick, FormSubmit, TableDeleteRow, TableSave
from turnlog.events.view_nodes import (
    MAX_VIEW_PARTS,
    Button,
    Form,
    NumberField,
    Option,
    Root,
    Section,
    SelectField,
    TableEditor,
    TableRow,
    Text,
    TextField,
)
from turnlog.state.view_actions import (
    MAX_OPEN_PARTS,
    MAX_PROBLEMS,
    ActionProblem,
    OpenViews,
    build_action_error,
    find_field_error,
    validate_action,
)

VECTORS = Path(__file__).parents[2] / "vectors" / "views" / "actions.json"
VECTOR: dict[str, Any] = json.loads(VECTORS.read_text())
TREES: dict[Any, Any] = {"show": VECTOR["view"], "take away": {}}

CLICK = UiAction(view_id="view_1", action=ButtonClick(button_id="go"))


def happened(what: Any) -> Payload:
    if isinstance(what, str):
        return AssistantView(view=View(kind="a2ui.v1", view_id="view_1", tree=TREES[what]))
    return msgspec.convert(what, UiAction)


def folded(*payloads: Payload) -> OpenViews:
    views = OpenViews()
    for seq, payload in enumerate(payloads):
        views.apply(*entry(payload, seq=seq))
    return views


def shown(tree: Root, view_id: str = "view_1") -> AssistantView:
    return AssistantView(view=View.of(view_id, tree))


@pytest.mark.parametrize("case", VECTOR["cases"], ids=lambda case: case["name"])
def test_an_action_is_held_against_the_view_that_was_sent(case: dict[str, Any]) -> None:
    views = folded(happened("show"), *map(happened, case["before"]))
    problems = validate_action(views, msgspec.convert(case["action"], UiAction))
    told = [{"kind": kind, "path": list(path), "message": message} for kind, message, path in problems]
    assert told == case["problems"]


def test_a_view_belongs_to_its_session() -> None:
    assert validate_action(folded(shown(Button("go", "Go"))), CLICK) == ()
    assert validate_action(folded(UiMessage(text="Hello")), CLICK)[0].kind == "conflict"


def test_a_view_is_not_there_for_who_may_not_see_its_channel() -> None:
    views = OpenViews()
    views.apply(*entry(shown(Button("go", "Go")), Scope(channel="customer")))
    assert validate_action(views, CLICK) == validate_action(views, CLICK, {"customer"}.__contains__) == ()
    assert (
        validate_action(views, CLICK, {None, "broker"}.__contains__)
        == validate_action(OpenViews(), CLICK)
        != ()
    )


def test_actions_that_come_together_are_tried_on_a_copy() -> None:
    views = folded(shown(Button("go", "Go")))
    tried = views.copy()
    assert validate_action(tried, CLICK) == ()
    tried.record_action(CLICK)
    assert validate_action(tried, CLICK)[0].kind == "conflict"
    assert validate_action(views, CLICK) == (), "the log does not have it yet"


def test_the_oldest_views_close_when_there_are_too_many_parts() -> None:
    many = Section([Button("go", "Go"), *[Text("")] * (MAX_VIEW_PARTS - 2)])
    views = folded(*[shown(many, f"view_{number}") for number in range(MAX_OPEN_PARTS // MAX_VIEW_PARTS)])
    assert len(views.open) == 5
    views.apply(*entry(shown(Button("go", "Go"), "view_0"), seq=5))
    assert [key[1] for key in views.open] == ["view_1", "view_2", "view_3", "view_4", "view_0"]
    views.apply(*entry(shown(many, "view_9"), seq=6))
    assert [key[1] for key in views.open] == ["view_2", "view_3", "view_4", "view_0", "view_9"]
    assert views.part_count == sum(view.part_count for view in views.open.values()) == 4 * MAX_VIEW_PARTS + 1
    assert validate_action(views, CLICK)[0] == ActionProblem(
        "conflict", "view view_1 is not open in this session", ("view_id",)
    )


def test_an_answer_tells_a_bounded_number_of_problems() -> None:
    views = folded(shown(Form("f", [])))
    values = {f"{number}{'x' * 1000}": 1 for number in range(MAX_PROBLEMS + 1)}
    problems = validate_action(
        views, UiAction(view_id="view_1", action=FormSubmit(form_id="f", values=values))
    )
    assert len(problems) == MAX_PROBLEMS
    assert all(len(str(problem.path[-1])) <= 128 and len(problem.message) < 120 for problem in problems)


def test_a_table_has_a_bounded_number_of_rows() -> None:
    views = folded(shown(TableEditor("t", [TextField("a", "A")], can_add=True)))

    def save(count: int) -> tuple[ActionProblem, ...]:
        return validate_action(
            views, UiAction(view_id="view_1", action=TableSave(table_id="t", rows=({},) * count))
        )

    assert save(MAX_VIEW_PARTS) == ()
    assert save(MAX_VIEW_PARTS + 1) == (ActionProblem("invalid", "expected at most 2000 rows", ("rows",)),)


def test_who_comes_too_late_is_told_only_that() -> None:
    table = TableEditor(
        "t", [NumberField("n", "N")], [TableRow("a", {"n": 1}), TableRow("b", {"n": 2})], can_delete=True
    )
    views = folded(shown(table))
    views.record_action(UiAction(view_id="view_1", action=TableDeleteRow(table_id="t", row_id="b")))
    late = TableSave(table_id="t", rows=({"row_id": "a", "n": "x"}, {"row_id": "b"}))
    problems = validate_action(views, UiAction(view_id="view_1", action=late))
    assert problems == (
        ActionProblem("conflict", "row b of t has been deleted already", ("rows", 1, "row_id")),
    )
    assert build_action_error(problems).code == "CONFLICT"


def test_a_fault_tells_the_first_problem_and_all() -> None:
    first = ActionProblem("invalid", "weight_lbs must be > 0", ("rows", 0, "weight_lbs"))
    second = ActionProblem("invalid", "notes must be a text", ("rows", 1, "notes"))
    assert msgspec.to_builtins(build_action_error([first, second])) == {
        "code": "VALIDATION_ERROR",
        "message": "weight_lbs must be > 0",
        "details": {
            "path": ["rows", 0, "weight_lbs"],
            "problems": [
                {"path": ["rows", 0, "weight_lbs"], "message": "weight_lbs must be > 0"},
                {"path": ["rows", 1, "notes"], "message": "notes must be a text"},
            ],
        },
    }


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 10**400, -(10**5000)], ids=["nan", "inf", "large", "larger"]
)
def test_what_no_double_holds_is_no_number(value: float) -> None:
    assert find_field_error(NumberField("n", "N", step=1), value) == "must be a number"


def test_steps_are_exact_at_any_size() -> None:
    fine = NumberField("n", "N", step=0.1)
    assert [find_field_error(fine, value) for value in (0.3, 1e300, -0.7, 5)] == [None] * 4
    assert find_field_error(fine, 0.1 + 0.2) == "must be in steps of 0.1"
    assert find_field_error(NumberField("n", "N", step=1e-300), 1e300) is None


def test_a_message_names_some_options() -> None:
    letters = SelectField("letter", "Letter", options=[Option(letter) for letter in "abcdefghij"])
    assert find_field_error(letters, "z") == "must be one of a, b, c, d, e, f, g, h, …"
