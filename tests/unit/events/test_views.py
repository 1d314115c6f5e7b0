"""The nodes of a view: what can be shown, what is refused and where, and what an author writes."""

import json
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from msgspec import structs

import turnlog
from tests.support.tables import check_laws, for_each_row
from turnlog.errors import InvalidEvent
from turnlog.events import (
    CORE,
    AssistantView,
    Payload,
    View,
    Vocabulary,
    decode_envelope,
    encode_envelope,
    view_nodes,
)
from turnlog.events.catalog import Catalog
from turnlog.events.view_nodes import (
    Button,
    DatetimeField,
    Form,
    NumberField,
    Option,
    Screen,
    Section,
    SelectField,
    TableEditor,
    TableRow,
    Text,
    TextField,
    find_view_error,
)


class NoteTrip(Payload, frozen=True, kw_only=True):
    """The event that the buttons of the vectors emit."""

    ORIGINS: ClassVar = frozenset({"ui"})
    EXAMPLE: ClassVar = {"city": "Oslo", "weather": "rain"}

    city: str
    weather: str


TOUR = Catalog(CORE, Vocabulary("tour", [NoteTrip]))
VECTORS = Path(__file__).parents[2] / "vectors" / "views" / "trees.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["cases"]

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])


def nested(levels: int) -> dict[str, Any]:
    tree: dict[str, Any] = {"type": "text", "text": "deep"}
    for _ in range(levels - 1):
        tree = {"type": "section", "children": [tree]}
    return tree


def show(tree: Any) -> turnlog.Event:
    view = {"view": {"kind": "a2ui.v1", "view_id": "view_1", "tree": tree}}
    return TOUR.build_event("assistant.view", view, id="evt_1", origin="tool")


def check_a_tree_is_shown_or_refused_with_its_place(case: dict[str, Any]) -> None:
    expected = case["flaw"] and (case["flaw"]["says"], case["flaw"]["path"])
    assert find_view_error(case["tree"]) == expected


def check_an_append_keeps_the_bytes_of_a_tree_or_names_the_path(case: dict[str, Any]) -> None:
    if not isinstance(case["tree"], dict):
        return
    if case["flaw"] is None:
        tree = json.dumps(case["tree"], ensure_ascii=False, separators=(",", ":")).encode()
        assert show(case["tree"]).body.endswith(b'"tree":' + tree + b"}}")
    else:
        with pytest.raises(InvalidEvent) as refused:
            show(case["tree"])
        assert refused.value.path == "$.payload.view.tree" + case["flaw"]["path"][1:]


@each_case
def test_vector(case: dict[str, Any]) -> None:
    laws = [
        check_a_tree_is_shown_or_refused_with_its_place,
        check_an_append_keeps_the_bytes_of_a_tree_or_names_the_path,
    ]
    check_laws(laws, case)


def test_twenty_levels_are_enough() -> None:
    assert find_view_error(nested(view_nodes.MAX_VIEW_DEPTH)) is None
    expected = "$" + ".children[0]" * view_nodes.MAX_VIEW_DEPTH
    assert find_view_error(nested(view_nodes.MAX_VIEW_DEPTH + 1)) == ("Expected at most 20 levels", expected)
    assert find_view_error(nested(100_000)) == ("Expected at most 20 levels", "$")


def test_two_thousand_parts_are_enough() -> None:
    def many(count: int) -> dict[str, Any]:
        return {"type": "section", "children": [{"type": "text", "text": ""}] * (count - 1)}

    assert find_view_error(many(view_nodes.MAX_VIEW_PARTS)) is None
    assert find_view_error(many(view_nodes.MAX_VIEW_PARTS + 1)) == (
        "Expected at most 2000 parts",
        "$.children[1999]",
    )


def test_rows_columns_and_options_count() -> None:
    rows = [TableRow(f"r{number}", {}) for number in range(view_nodes.MAX_VIEW_PARTS - 4)]
    unit = SelectField("unit", "Unit", options=[Option("lbs"), Option("kg")])
    assert find_view_error(msgspec.to_builtins(TableEditor("t", [unit], rows))) is None
    more = [*rows, TableRow("more", {})]
    assert find_view_error(msgspec.to_builtins(TableEditor("t", [unit], more))) is not None


@for_each_row(
    "number", [float("nan"), float("inf"), 10**400, -(10**5000)], ids=["nan", "inf", "large", "larger"]
)
def test_a_number_is_one_that_every_reader_holds(number: float) -> None:
    for name in ("value", "min", "max", "above", "step"):
        with pytest.raises(ValueError, match="double"):
            structs.replace(NumberField("n", "N"), **{name: number})
    with pytest.raises(ValueError, match="double can hold as n of row r"):
        TableEditor("t", [NumberField("n", "N")], [TableRow("r", {"n": number})])


def test_what_an_author_makes_is_checked_where_it_is_made() -> None:
    with pytest.raises(ValueError, match="each field once, got 'a' twice"):
        Form("f", [TextField("a", "A"), NumberField("a", "A")])


def test_a_view_is_written_in_python() -> None:
    tree = Screen(
        [
            Text("Please confirm:", style="caption"),
            Section(
                [
                    Form(
                        "weight_entry",
                        [
                            DatetimeField("measured_at", "Day", required=True, picks="date"),
                            NumberField("weight_lbs", "Weight (lbs)", required=True, above=0, step=0.1),
                        ],
                        submit="Save",
                    )
                ]
            ),
            Button("skip", "Not now", style="danger", confirm="Skip it?"),
        ],
        title="Weigh-in",
    )
    view = View.of("view_1", tree, title="Weights")
    assert turnlog.event(AssistantView(view=view)).body == msgspec.json.encode({"view": view})
    assert view_nodes.parse_view_tree(view.tree) == tree
    assert view.tree["children"][1]["children"][0]["fields"][1] == {
        "type": "field.number",
        "name": "weight_lbs",
        "label": "Weight (lbs)",
        "required": True,
        "above": 0,
        "step": 0.1,
    }


def test_a_wrong_view_cannot_be_made() -> None:
    twice = Section([Button("a", "A"), Button("a", "B")])
    with pytest.raises(msgspec.ValidationError, match=r"each id once.*\$\.view\.tree\.children\[1\]"):
        AssistantView(view=View.of("view_1", twice))


def test_a_view_of_a_newer_writer_is_kept_and_not_read() -> None:
    class Sketch(turnlog.Payload, frozen=True, kw_only=True):
        """A view that nobody checks."""

        TYPE = "assistant.view"
        view: dict[str, Any]

    tree = {"type": "hologram"}
    written = Catalog(Vocabulary("newer", [Sketch])).build_event(
        Sketch(view={"kind": "a2ui.v1", "view_id": "view_1", "tree": tree}), id="evt_1"
    )
    line = encode_envelope(written, session_id="sess_1", seq=0, ts_ms=0)
    assert not isinstance(turnlog.events.CATALOG.decode_payload(decode_envelope(line)), AssistantView)
    assert b"hologram" in bytes(decode_envelope(line).payload)
