"""The nodes of an `assistant.view`: screens, texts, forms, table editors and buttons (protocol 3.3).

A view is built of these classes, and a tree from elsewhere is validated against them: nothing else is ever
shown. There is no node for HTML, images or addresses, and texts are plain texts. The fields declare what a
submit may contain; `state/view_actions` validates a submit against the view that was sent.

    View.of("weigh_in", Form("weight_entry", [
        DatetimeField("measured_at", "Day", required=True, picks="date"),
        NumberField("weight_lbs", "Weight (lbs)", required=True, above=0, step=0.1),
    ]))

Limits: 20 levels, 2,000 parts (nodes, rows, options and events of buttons), unique ids (`find_view_error`).
Names and ids cannot collide with properties of JavaScript objects.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from turnlog.errors import quote
from turnlog.events.catalog import tag_name
from turnlog.events.payload import Payload

MAX_VIEW_DEPTH = 20  # real views have 4
MAX_VIEW_PARTS = 2000  # a page can show as many without a pause
MAX_COLUMNS = 64
MAX_BUTTON_EVENTS = 16  # of one click; they are appended together
MAX_LABEL_CHARS = 200
MAX_TEXT_CHARS = 10_000
MAX_DOUBLE = 1.7976931348623157e308  # JSON readers read a larger number as infinity

NAME_PATTERN = r"^(?!constructor$|prototype$)[A-Za-z][A-Za-z0-9_]{0,63}$(?!\n)"
ID_PATTERN = r"^(?!constructor$|prototype$)[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$(?!\n)"
DAY_PATTERN = r"^\d{4}-\d\d-\d\d$(?!\n)"
PATTERN_HELP = {  # for error messages
    NAME_PATTERN: "a name: a letter, then letters, digits and _, 64 at most",
    ID_PATTERN: "an id: letters, digits and _ . : -, 128 at most",
    DAY_PATTERN: "a day like 2026-01-08",
}

FieldName = Annotated[str, Meta(pattern=NAME_PATTERN)]
Id = Annotated[str, Meta(pattern=ID_PATTERN)]
Day = Annotated[str, Meta(pattern=DAY_PATTERN)]
Label = Annotated[str, Meta(min_length=1, max_length=MAX_LABEL_CHARS)]
LongText = Annotated[str, Meta(max_length=MAX_TEXT_CHARS)]
Number = int | float


class ViewPart(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="type"):
    """A part of a view; unknown fields are refused."""


class LabelledPart(ViewPart, frozen=True):
    name: FieldName
    label: Label


class Input(LabelledPart, frozen=True, kw_only=True):
    """The base of all fields. `error` is shown: it says what was wrong with the last answer."""

    required: bool = False
    help: Label | None = None
    error: LongText | None = None


class TextField(Input, frozen=True, kw_only=True, tag="field.text"):
    """A text of at most `max_length` characters (code points)."""

    value: LongText | None = None
    max_length: Annotated[int, Meta(ge=1, le=MAX_TEXT_CHARS)] = MAX_TEXT_CHARS
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
        numbers = (self.value, self.min, self.max, self.above, self.step)
        if not all(number is None or is_finite(number) for number in numbers):
            raise ValueError("Expected numbers that a double can hold")
        if self.step is not None and not self.step > 0:
            raise ValueError("Expected a step above 0")


class DatetimeField(Input, frozen=True, kw_only=True, tag="field.datetime"):
    """A day, or a time with or without its offset. `min` and `max` are days in the same notation."""

    value: Label | None = None
    picks: Literal["date", "datetime"] = "datetime"
    min: Day | None = None
    max: Day | None = None


class Option(ViewPart, frozen=True, tag=False):
    """A choice. Without a label its value is shown."""

    value: Label
    label: Label | None = None


class SelectField(Input, frozen=True, kw_only=True, tag="field.select"):
    """One of some options."""

    options: Annotated[Sequence[Option], Meta(min_length=1)]
    value: Label | None = None

    def __post_init__(self) -> None:
        require_unique("option", (option.value for option in self.options))


Field = TextField | NumberField | DatetimeField | SelectField


class Form(ViewPart, frozen=True, tag="form"):
    """Fields that are submitted together: once, or several times if `repeat` is set."""

    id: Id
    fields: Sequence[Field]
    title: Label | None = None
    submit: Label = "Submit"
    confirm: Label | None = None
    repeat: bool = False
    error: LongText | None = None

    def __post_init__(self) -> None:
        require_unique("field", (field.name for field in self.fields))


class TableRow(ViewPart, frozen=True, tag=False):
    """A row of a table: values and error texts by column."""

    row_id: Id
    values: Mapping[str, str | int | float | None]
    errors: Mapping[str, LongText] = {}
    error: LongText | None = None


class TableEditor(ViewPart, frozen=True, tag="table_editor"):
    """A table that is edited and saved as a whole. A column is a field; its `value` is the default."""

    id: Id
    columns: Annotated[Sequence[Field], Meta(min_length=1, max_length=MAX_COLUMNS)]
    rows: Sequence[TableRow] = ()
    title: Label | None = None
    can_add: bool = False
    can_delete: bool = False
    save: Label = "Save"
    confirm: Label | None = None
    error: LongText | None = None

    def __post_init__(self) -> None:
        names = {column.name: column for column in self.columns}
        require_unique("column", (column.name for column in self.columns))
        if "row_id" in names:
            raise ValueError("Expected no column row_id: a saved row says its id there")
        require_unique("row", (row.row_id for row in self.rows))
        for row in self.rows:
            check_row(row, names)


class ButtonEvent(ViewPart, frozen=True, tag=False):
    """An event of the application that a click emits: its bare name and its fields."""

    type: FieldName
    data: dict[str, Any] = {}

    @classmethod
    def of(cls, event: "Payload | ButtonEvent") -> "ButtonEvent":
        """Return a payload as a view stores it. Raise `ValueError` for an event of Turnlog's own."""
        if isinstance(event, ButtonEvent):
            return event
        if event.TYPE:
            raise ValueError(f"Expected an event of the application, got {event.TYPE}")
        return cls(tag_name(type(event)), msgspec.to_builtins(event))


ButtonStyle = Literal["primary", "secondary", "danger"]


class Button(ViewPart, frozen=True, tag="button"):
    """A button, for one click or for several if `repeat` is set. `confirm` is asked before the click.

    `emits` are events of the application. The server appends them with the click, from the member who
    clicked, and refuses the click if the member's page may not post them.
    """

    id: Id
    label: Label
    style: ButtonStyle = "secondary"
    confirm: Label | None = None
    repeat: bool = False
    emits: Annotated[Sequence[ButtonEvent], Meta(max_length=MAX_BUTTON_EVENTS)] = ()

    if TYPE_CHECKING:
        # msgspec makes it; only the type of `emits` differs
        def __init__(
            self,
            id: Id,
            label: Label,
            style: ButtonStyle = "secondary",
            confirm: Label | None = None,
            repeat: bool = False,
            emits: Sequence[Payload | ButtonEvent] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "emits", tuple(ButtonEvent.of(event) for event in self.emits))


class Text(ViewPart, frozen=True, tag="text"):
    """A plain text without markup."""

    text: LongText
    style: Literal["body", "heading", "subheading", "caption"] = "body"


class Section(ViewPart, frozen=True, tag="section"):
    """Nodes that belong together."""

    children: Sequence["Node"]
    title: Label | None = None


Node = Section | Text | Form | TableEditor | Button


class Screen(ViewPart, frozen=True, tag="screen"):
    """The root of a view with several nodes."""

    children: Sequence[Node]
    title: Label | None = None


Root = Screen | Node
AnyPart = Root | Field | TableRow | Option | ButtonEvent

CHILD_FIELDS = ("children", "fields", "columns", "rows", "options", "emits")  # fields that contain parts
FIELD_TYPES = "field.text, field.number, field.datetime, field.select"
NODE_TYPES = "section, text, form, table_editor, button"


def is_finite(number: Number) -> bool:
    """Return True if a double can hold the number: it is neither NaN nor too large."""
    return abs(number) <= MAX_DOUBLE


def require_unique(kind: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"Expected each {kind} once, got {quote(name)} twice")
        seen.add(name)


def check_row(row: TableRow, columns: Mapping[str, Field]) -> None:
    """Raise `ValueError` for cells without a column, and for values that do not fit their column."""
    for name in (*row.values, *row.errors):
        if name not in columns:
            raise ValueError(f"Expected cells of columns, got {quote(name)} in row {row.row_id}")

    for name, value in row.values.items():
        if value is None:
            continue
        if not isinstance(columns[name], NumberField):
            if not isinstance(value, str):
                raise ValueError(f"Expected a text as {name} of row {row.row_id}")
        elif isinstance(value, str):
            raise ValueError(f"Expected a number as {name} of row {row.row_id}")
        elif not is_finite(value):
            raise ValueError(f"Expected a number that a double can hold as {name} of row {row.row_id}")


def parse_view_tree(tree: object) -> Root | None:
    """Return the nodes of a tree; None for an empty tree. Raise `ValidationError`."""
    return None if tree == {} else msgspec.convert(tree, Root)


def iter_parts(part: AnyPart, path: str = "$", level: int = 1) -> Iterator[tuple[str, int, AnyPart]]:
    """Yield a part and all parts in it, each with its path and its level."""
    yield path, level, part
    for field in CHILD_FIELDS:
        for index, child in enumerate(getattr(part, field, ())):
            yield from iter_parts(child, f"{path}.{field}[{index}]", level + 1)


def iter_button_events(tree: Mapping[str, Any]) -> Iterator[tuple[str, ButtonEvent]]:
    """Yield the events of the buttons in a tree with their paths. An invalid tree has none."""
    try:
        root = parse_view_tree(tree)
    except (msgspec.ValidationError, RecursionError):
        return  # `find_view_error` refuses it
    if root is None:
        return
    for path, _, part in iter_parts(root):
        if isinstance(part, ButtonEvent):
            yield path, part


def find_view_error(tree: object) -> tuple[str, str] | None:
    """Return the message and the JSON path of the first error of a tree; None if it is a valid view."""
    try:
        root = parse_view_tree(tree)
    except RecursionError:
        return f"Expected at most {MAX_VIEW_DEPTH} levels", "$"
    except msgspec.ValidationError as error:
        sentence, _, path = str(error).rpartition(" - at `")
        if not sentence:
            return str(error), "$"
        return explain_view_error(sentence, path), path.rstrip("`")

    if root is None:
        return None
    return find_structure_error(root)


def find_structure_error(root: Root) -> tuple[str, str] | None:
    """Check the limits that span nodes: depth, number of parts, unique ids.

    Return the message and the path of the first violation, or None.
    """
    ids: set[str] = set()
    for count, (path, level, part) in enumerate(iter_parts(root), 1):
        if level > MAX_VIEW_DEPTH:
            return f"Expected at most {MAX_VIEW_DEPTH} levels", path
        if count > MAX_VIEW_PARTS:
            return f"Expected at most {MAX_VIEW_PARTS} parts", path
        part_id: str | None = getattr(part, "id", None)
        if part_id is None:
            continue
        if part_id in ids:
            return f"Expected each id once, got {part_id} twice", path
        ids.add(part_id)
    return None


def explain_view_error(sentence: str, path: str) -> str:
    """Return the decoder's message with the expected form or the known types instead of a pattern."""
    for pattern, description in PATTERN_HELP.items():
        if repr(pattern) in sentence:
            return f"Expected {description}"

    if sentence.startswith("Invalid value") and path.endswith(".type`"):
        _, _, parent_field = path.rpartition("[")[0].rpartition(".")
        types_by_field = {"": f"screen, {NODE_TYPES}", "children": NODE_TYPES}
        known = types_by_field.get(parent_field, FIELD_TYPES)
        return f"{sentence}: expected one of {known}"
    return sentence
