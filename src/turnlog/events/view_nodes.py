"""The nodes of an `assistant.view`: screens, texts, forms, table editors and buttons (protocol 3.3).

A view is built of these classes, and a tree that came from elsewhere is held against them: nothing that is
not listed here is ever shown. There is no node for HTML, for an image or for an address, and texts are plain
texts. A view is an answerable form: the fields say what a submit may hold, and `state/view_actions` holds
the submit against the view as it was sent. `error` texts show what was wrong with the last one.

    View.of("weigh_in", Form("weight_entry", [
        DatetimeField("measured_at", "Day", required=True, picks="date"),
        NumberField("weight_lbs", "Weight (lbs)", required=True, above=0, step=0.1),
    ]))

What a class alone can see is refused where it is made, the rest by `flaw`: more than 20 levels, more than
2,000 parts (nodes, rows and options), and ids that stand twice. Names and ids are such that no object of
JavaScript is harmed by them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from turnlog.errors import quote

LEVELS = 20  # real views have 4
PARTS = 2000  # what a page can show without a pause
COLUMNS = 64
LABEL_CHARS = 200
TEXT_CHARS = 10_000
LARGEST = 1.7976931348623157e308  # of a double; beyond it JSON readers see infinity

NAME_FORM = r"^(?!constructor$|prototype$)[A-Za-z][A-Za-z0-9_]{0,63}$(?!\n)"
ID_FORM = r"^(?!constructor$|prototype$)[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$(?!\n)"
DAY_FORM = r"^\d{4}-\d\d-\d\d$(?!\n)"
SAID = {  # how a refusal says it
    NAME_FORM: "a name: a letter, then letters, digits and _, 64 at most",
    ID_FORM: "an id: letters, digits and _ . : -, 128 at most",
    DAY_FORM: "a day like 2026-01-08",
}

FieldName = Annotated[str, Meta(pattern=NAME_FORM)]
Id = Annotated[str, Meta(pattern=ID_FORM)]
Day = Annotated[str, Meta(pattern=DAY_FORM)]
Label = Annotated[str, Meta(min_length=1, max_length=LABEL_CHARS)]
Words = Annotated[str, Meta(max_length=TEXT_CHARS)]
Number = int | float


class Strict(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="type"):
    """What every part of a view is: nothing but what it declares."""


class Named(Strict, frozen=True):
    name: FieldName
    label: Label


class Input(Named, frozen=True, kw_only=True):
    """What all fields have: `error` says what was wrong with the last answer."""

    required: bool = False
    help: Label | None = None
    error: Words | None = None


class TextField(Input, frozen=True, kw_only=True, tag="field.text"):
    """A text of at most `max_length` characters (code points)."""

    value: Words | None = None
    max_length: Annotated[int, Meta(ge=1, le=TEXT_CHARS)] = TEXT_CHARS
    multiline: bool = False
    placeholder: Label | None = None


class NumberField(Input, frozen=True, kw_only=True, tag="field.number"):
    """A number from `min` to `max`, or greater than `above`; `step` counts from `min`, or else from 0."""

    value: Number | None = None
    min: Number | None = None
    max: Number | None = None
    above: Number | None = None
    step: Number | None = None

    def __post_init__(self) -> None:
        given = (self.value, self.min, self.max, self.above, self.step)
        if not all(number is None or is_finite(number) for number in given):
            raise ValueError("Expected numbers that a double can hold")
        if self.step is not None and not self.step > 0:
            raise ValueError("Expected a step above 0")


class DatetimeField(Input, frozen=True, kw_only=True, tag="field.datetime"):
    """A day, or a time of a day with or without its offset; `min` and `max` are days as they are written."""

    value: Label | None = None
    picks: Literal["date", "datetime"] = "datetime"
    min: Day | None = None
    max: Day | None = None


class Option(Strict, frozen=True, tag=False):
    """A choice; without a label its value is shown."""

    value: Label
    label: Label | None = None


class SelectField(Input, frozen=True, kw_only=True, tag="field.select"):
    """One of some options."""

    options: Annotated[Sequence[Option], Meta(min_length=1)]
    value: Label | None = None

    def __post_init__(self) -> None:
        once("option", (option.value for option in self.options))


Field = TextField | NumberField | DatetimeField | SelectField


class Form(Strict, frozen=True, tag="form"):
    """Fields that are sent together. It is sent once, unless `repeat` says that it may be sent again."""

    id: Id
    fields: Sequence[Field]
    title: Label | None = None
    submit: Label = "Submit"
    confirm: Label | None = None
    repeat: bool = False
    error: Words | None = None

    def __post_init__(self) -> None:
        once("field", (field.name for field in self.fields))


class Row(Strict, frozen=True, tag=False):
    """A row of a table, with its values and what is wrong with them by column."""

    row_id: Id
    values: Mapping[str, str | int | float | None]
    errors: Mapping[str, Words] = {}
    error: Words | None = None


class TableEditor(Strict, frozen=True, tag="table_editor"):
    """A table that is edited and saved whole. A column is a field; a new row begins with its `value`."""

    id: Id
    columns: Annotated[Sequence[Field], Meta(min_length=1, max_length=COLUMNS)]
    rows: Sequence[Row] = ()
    title: Label | None = None
    can_add: bool = False
    can_delete: bool = False
    save: Label = "Save"
    confirm: Label | None = None
    error: Words | None = None

    def __post_init__(self) -> None:
        names = {column.name: column for column in self.columns}
        once("column", (column.name for column in self.columns))
        if "row_id" in names:
            raise ValueError("Expected no column row_id: a saved row says its id there")
        once("row", (row.row_id for row in self.rows))
        for row in self.rows:
            check_row(row, names)


class Button(Strict, frozen=True, tag="button"):
    """A click, once, unless `repeat` says that there may be more; `confirm` is asked before."""

    id: Id
    label: Label
    style: Literal["primary", "secondary", "danger"] = "secondary"
    confirm: Label | None = None
    repeat: bool = False


class Text(Strict, frozen=True, tag="text"):
    """A plain text; nothing in it is markup."""

    text: Words
    style: Literal["body", "heading", "subheading", "caption"] = "body"


class Section(Strict, frozen=True, tag="section"):
    """Nodes that belong together."""

    children: Sequence["Node"]
    title: Label | None = None


Node = Section | Text | Form | TableEditor | Button


class Screen(Strict, frozen=True, tag="screen"):
    """Everything a view shows, with a title."""

    children: Sequence[Node]
    title: Label | None = None


Root = Screen | Node
Part = Root | Field | Row | Option

INSIDE = ("children", "fields", "columns", "rows", "options")  # where a part holds others
FIELDS = "field.text, field.number, field.datetime, field.select"
NODES = "section, text, form, table_editor, button"


def is_finite(number: Number) -> bool:
    """Whether a double can hold it: neither NaN nor too large."""
    return abs(number) <= LARGEST


def once(what: str, names: Iterable[str]) -> None:
    """Refuse a name that stands twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"Expected each {what} once, got {quote(name)} twice")
        seen.add(name)


def check_row(row: Row, columns: Mapping[str, Field]) -> None:
    """Refuse cells that no column shows, and values a column cannot hold."""
    for name in (*row.values, *row.errors):
        if name not in columns:
            raise ValueError(f"Expected cells of columns, got {quote(name)} in row {row.row_id}")
    for name, value in row.values.items():
        number = isinstance(columns[name], NumberField)
        if value is not None and isinstance(value, str) == number:
            raise ValueError(f"Expected a {'number' if number else 'text'} as {name} of row {row.row_id}")
        if number and value is not None and not is_finite(value):  # type: ignore[arg-type]
            raise ValueError(f"Expected a number that a double can hold as {name} of row {row.row_id}")


def read(tree: object) -> Root | None:
    """The nodes of a tree, or none of an empty one; a `ValidationError` if it is no view."""
    return None if tree == {} else msgspec.convert(tree, Root)


def parts(part: Part, path: str = "$", level: int = 1) -> Iterator[tuple[str, int, Part]]:
    """A part and all parts in it, each with its path and its level."""
    yield path, level, part
    for place in INSIDE:
        for index, inner in enumerate(getattr(part, place, ())):
            yield from parts(inner, f"{path}.{place}[{index}]", level + 1)


def flaw(tree: object) -> tuple[str, str] | None:
    """What is wrong with a tree, and where (a JSON path); nothing, if it can be shown."""
    try:
        root = read(tree)
    except RecursionError:
        return f"Expected at most {LEVELS} levels", "$"
    except msgspec.ValidationError as error:
        sentence, _, path = str(error).rpartition(" - at `")
        return (clear(sentence, path), path.rstrip("`")) if sentence else (str(error), "$")
    return misfit(root) if root is not None else None


def misfit(root: Root) -> tuple[str, str] | None:
    """What no part can see alone: too deep, too many, an id that stands twice."""
    ids: set[str] = set()
    for count, (path, level, part) in enumerate(parts(root), 1):
        if level > LEVELS:
            return f"Expected at most {LEVELS} levels", path
        if count > PARTS:
            return f"Expected at most {PARTS} parts", path
        key: Any = getattr(part, "id", None)
        if key in ids:
            return f"Expected each id once, got {key} twice", path
        ids |= {key} - {None}
    return None


def clear(sentence: str, path: str) -> str:
    """A refusal of the decoder in words that help."""
    for form, words in SAID.items():
        if repr(form) in sentence:
            return f"Expected {words}"
    if sentence.startswith("Invalid value") and path.endswith(".type`"):
        _, _, place = path.rpartition("[")[0].rpartition(".")
        known = {"": f"screen, {NODES}", "children": NODES}.get(place, FIELDS)
        return f"{sentence}: expected one of {known}"
    return sentence
