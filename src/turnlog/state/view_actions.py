"""The views of a session that are open, and whether an action on one may be taken (protocol 3.4 and 3.5).

`Views` is a fold over the log: `assistant.view` opens a view or takes the place of the one with its id in its
channel, an empty one takes it away, and a `ui.action` in the log was taken. `check` holds an action that is
not in the log yet against the view as it was sent, and says all that is wrong, or nothing:

    conflict   the action comes too late or to the wrong place: the view is not open here, it was shown anew,
               its form was sent already. To send it again does not help.
    invalid    what the action holds is wrong; `path` says where in the action, for the field or the cell.

Nothing is doubled by a second tab: a form or a button without `repeat`, and a table, are taken once, until
the view is shown again. A table loses the rows that a save names in `deleted`, and no others. What is kept is
bounded: when the open views have more than 10,000 parts, the oldest are not open any more.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Context, Decimal
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeVar

from turnlog.errors import quote
from turnlog.events import AssistantView, Envelope, ErrorInfo, Payload, UiAction, UnknownPayload
from turnlog.events.ui import (
    ButtonClick,
    FormSubmit,
    InputSubmit,
    TableAddRow,
    TableDeleteRow,
    TableSave,
)
from turnlog.events.view_nodes import (
    MAX_VIEW_PARTS,
    Button,
    DatetimeField,
    Field,
    Form,
    Number,
    NumberField,
    SelectField,
    TableEditor,
    TextField,
    is_finite,
    iter_parts,
    parse_view_tree,
)

MAX_OPEN_PARTS = 10_000  # parts of open views; five of the largest, hundreds of ordinary ones
MAX_PROBLEMS = 100  # that one answer tells; a person corrects a few at a time
MAX_LISTED_OPTIONS = 8  # options that a message names
MAX_DECIMAL_DIGITS = 700  # between the largest double and the smallest step there are 650
MAX_PATH_NAME_CHARS = 128  # of a name nobody knows, in a path

_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d"
_TIME = re.compile(rf"\d{{4}}-\d\d-\d\d(T{_CLOCK}(:[0-5]\d(\.\d{{1,6}})?)?(Z|[+-]{_CLOCK})?)?", re.ASCII)

ActionablePart = Form | TableEditor | Button
ProblemPath = tuple[str | int, ...]
ChannelFilter = Callable[[str | None], bool]
P = TypeVar("P", Form, TableEditor, Button)


def may_see_all(channel: str | None) -> bool:
    """A person who sees all channels."""
    return True


class ActionProblem(NamedTuple):
    """Why an action is not taken; `path` leads to the place in the action, or to `view_id`."""

    kind: Literal["conflict", "invalid"]
    message: str
    path: ProblemPath


@dataclass(frozen=True, slots=True)
class OpenView:
    """A view that is open: what can be acted on, by id, and what has been."""

    event_id: str
    channel: str | None
    view_id: str
    part_count: int
    parts_by_id: Mapping[str, ActionablePart]
    row_ids: Mapping[str, frozenset[str]]  # by table: the rows it has now
    used_part_ids: frozenset[str] = frozenset()


@dataclass(slots=True)
class OpenViews:
    """The open views of a session by channel and id, the one shown last at the end."""

    open: dict[tuple[str | None, str], OpenView] = field(default_factory=dict)
    part_count: int = 0

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        """Take one event into account."""
        if isinstance(payload, AssistantView):
            self._open_view(envelope, payload)
        elif isinstance(payload, UiAction):
            self.record_action(payload, channel=envelope.channel)

    def find(self, action: UiAction, may_see: ChannelFilter, channel: str | None) -> OpenView | None:
        """Return the view that an action in a channel is for; None if no such view is open.

        Several channels may show one `view_id`. First comes the view that the action's `shown` names, then
        the one in the action's channel, then the one in no channel, then the one that was shown last.
        """
        named = [
            view for view in self.open.values() if view.view_id == action.view_id and may_see(view.channel)
        ]
        preferred = [
            *(view for view in named if view.event_id == action.shown),
            *(view for view in named if view.channel == channel),
            *(view for view in named if view.channel is None),
            *reversed(named),
        ]
        return preferred[0] if preferred else None

    def record_action(
        self, action: UiAction, may_see: ChannelFilter = may_see_all, channel: str | None = None
    ) -> None:
        """An action in a channel has been taken."""
        view = self.find(action, may_see, channel)
        step = ACTION_EFFECTS.get(type(action.action))
        if view is not None and step is not None:
            self.open[view.channel, view.view_id] = step(view, action.action)

    def is_current(self, action: UiAction) -> bool:
        """Whether the view that an action is for is still open, as the person saw it."""
        if action.view_id is None or action.shown is None:  # an answer to a call, or an older log
            return True
        return any(view.event_id == action.shown for view in self.open.values())

    def has_question(self, may_see: ChannelFilter) -> bool:
        """Whether an open view waits for a person: a form or a button that is taken once, and nothing was."""
        return any(
            isinstance(part, Form | Button) and not part.repeat
            for view in self.open.values()
            if may_see(view.channel) and not view.used_part_ids
            for part in view.parts_by_id.values()
        )

    def copy(self) -> "OpenViews":
        """The same, to try actions on that come together."""
        return OpenViews(dict(self.open), self.part_count)

    def _open_view(self, envelope: Envelope, payload: AssistantView) -> None:
        key = envelope.channel, payload.view.view_id
        self._close_view(key)
        root = parse_view_tree(payload.view.tree)
        if root is None:
            return
        found = [part for _, _, part in iter_parts(root)]
        active = {part.id: part for part in found if isinstance(part, ActionablePart)}
        tables = [part for part in active.values() if isinstance(part, TableEditor)]
        rows = {table.id: frozenset(row.row_id for row in table.rows) for table in tables}
        self.open[key] = OpenView(envelope.id, *key, len(found), active, rows)
        self.part_count += len(found)
        while self.part_count > MAX_OPEN_PARTS:
            self._close_view(next(iter(self.open)))

    def _close_view(self, key: tuple[str | None, str]) -> None:
        if view := self.open.pop(key, None):
            self.part_count -= view.part_count


def validate_action(
    views: OpenViews, action: UiAction, may_see: ChannelFilter = may_see_all, channel: str | None = None
) -> tuple[ActionProblem, ...]:
    """Why an action in a channel may not be taken; nothing if it may. One that only answers a call is not of
    a view.

    For who may not see its channel a view is not there. An action that is in the log already, under its id,
    was taken: that is for the caller to know.
    """
    if action.view_id is None:
        known = action.call_id is not None
        return () if known else (ActionProblem("invalid", "expected a view_id or a call_id", ("view_id",)),)
    view = views.find(action, may_see, channel)
    if view is None:
        return (
            ActionProblem("conflict", f"view {action.view_id} is not open in this session", ("view_id",)),
        )
    if action.shown not in (None, view.event_id):
        return (ActionProblem("conflict", f"view {action.view_id} has been shown anew", ("shown",)),)
    problems = tuple(islice(ACTION_CHECKS[type(action.action)](view, action.action), MAX_PROBLEMS))
    return tuple(problem for problem in problems if problem.kind == "conflict") or problems


def build_action_error(problems: Sequence[ActionProblem]) -> ErrorInfo:
    """Problems (at least one) as an answer says them: the first one, and all of them in its details."""
    first = problems[0]
    code = "CONFLICT" if first.kind == "conflict" else "VALIDATION_ERROR"
    told = [{"path": list(problem.path), "message": problem.message} for problem in problems]
    return ErrorInfo(code=code, message=first.message, details={"path": told[0]["path"], "problems": told})


# what an action holds


def invalid_problem(message: str, *path: str | int) -> ActionProblem:
    return ActionProblem("invalid", message, path)


def conflict_problem(message: str, *path: str | int) -> ActionProblem:
    return ActionProblem("conflict", message, path)


def find_part(view: OpenView, key: str, kind: type[P]) -> P | None:
    """A form, table or button of a view."""
    part = view.parts_by_id.get(key)
    return part if isinstance(part, kind) else None


def _check_submit(view: OpenView, action: FormSubmit) -> Iterator[ActionProblem]:
    form = find_part(view, action.form_id, Form)
    if form is None:
        yield invalid_problem(f"the view has no form {action.form_id}", "form_id")
    elif form.id in view.used_part_ids:
        yield conflict_problem(f"form {form.id} has been submitted already", "form_id")
    else:
        yield from _check_values(form.fields, action.values, "values")


def _check_click(view: OpenView, action: ButtonClick) -> Iterator[ActionProblem]:
    button = find_part(view, action.button_id, Button)
    if button is None:
        yield invalid_problem(f"the view has no button {action.button_id}", "button_id")
    elif button.id in view.used_part_ids:
        yield conflict_problem(f"button {button.id} has been clicked already", "button_id")


def _check_input(_: OpenView, __: InputSubmit) -> Iterator[ActionProblem]:
    yield invalid_problem("input.submit answers a call, not a view", "kind")


def _check_add_row(view: OpenView, action: TableAddRow) -> Iterator[ActionProblem]:
    table = find_part(view, action.table_id, TableEditor)
    if table is None:
        yield invalid_problem(f"the view has no table {action.table_id}", "table_id")
    elif not table.can_add:
        yield invalid_problem(f"rows cannot be added to {table.id}", "table_id")


def _check_delete_row(view: OpenView, action: TableDeleteRow) -> Iterator[ActionProblem]:
    table = find_part(view, action.table_id, TableEditor)
    if table is None:
        yield invalid_problem(f"the view has no table {action.table_id}", "table_id")
    elif not table.can_delete:
        yield invalid_problem(f"rows of {table.id} cannot be deleted", "table_id")
    elif action.row_id not in view.row_ids[table.id]:
        yield unknown_row_problem(table, action.row_id, "row_id")


def _check_save(view: OpenView, action: TableSave) -> Iterator[ActionProblem]:
    table = find_part(view, action.table_id, TableEditor)
    if table is None:
        yield invalid_problem(f"the view has no table {action.table_id}", "table_id")
    elif len(action.rows) + len(action.deleted) > MAX_VIEW_PARTS:
        yield invalid_problem(f"expected at most {MAX_VIEW_PARTS} rows", "rows")
    elif table.id in view.used_part_ids:
        yield conflict_problem(
            f"table {table.id} has been saved already; wait until it is shown again", "table_id"
        )
    else:
        yield from _check_rows(table, view.row_ids[table.id], action)


def _check_rows(table: TableEditor, known: frozenset[str], action: TableSave) -> Iterator[ActionProblem]:
    left = set(known)
    for index, row in enumerate(action.rows):
        row_id = row.get("row_id")
        if row_id is None:
            if not table.can_add:
                yield invalid_problem(f"rows cannot be added to {table.id}", "rows", index)
        elif not isinstance(row_id, str):
            yield invalid_problem("row_id must be a text", "rows", index, "row_id")
        elif row_id not in known:
            yield unknown_row_problem(table, row_id, "rows", index, "row_id")
        elif row_id not in left:
            yield invalid_problem(f"row {row_id} stands twice", "rows", index, "row_id")
        else:
            left.discard(row_id)
        cells = {name: value for name, value in row.items() if name != "row_id"}
        yield from _check_values(table.columns, cells, "rows", index)
    yield from _check_deletions(table, known, left, action.deleted)


def _check_deletions(
    table: TableEditor, known: frozenset[str], left: set[str], deleted: Sequence[str]
) -> Iterator[ActionProblem]:
    """What is wrong with the rows to delete; `left` are those that the save does not name otherwise."""
    for index, row_id in enumerate(deleted):
        if not table.can_delete:
            yield invalid_problem(f"rows of {table.id} cannot be deleted", "deleted", index)
        elif row_id not in known:
            yield unknown_row_problem(table, row_id, "deleted", index)
        elif row_id not in left:
            yield invalid_problem(f"row {row_id} stands twice", "deleted", index)
        left.discard(row_id)


def unknown_row_problem(table: TableEditor, row_id: str, *path: str | int) -> ActionProblem:
    """A row that was never there is wrong; one that was comes too late."""
    if any(row.row_id == row_id for row in table.rows):
        return conflict_problem(f"row {row_id} of {table.id} has been deleted already", *path)
    return invalid_problem(f"table {table.id} has no row {quote(row_id)}", *path)


def _check_values(
    fields: Sequence[Field], values: Mapping[str, Any], *path: str | int
) -> Iterator[ActionProblem]:
    """What is wrong with the values of fields, or of the cells of a row."""
    for each in fields:
        if sentence := find_field_error(each, values.get(each.name)):
            yield invalid_problem(f"{each.name} {sentence}", *path, each.name)
    known = {each.name for each in fields}
    for name in values:
        if name not in known:
            yield invalid_problem(f"{quote(name)} is not a field", *path, name[:MAX_PATH_NAME_CHARS])


ACTION_CHECKS: Mapping[type, Callable[[OpenView, Any], Iterator[ActionProblem]]] = {
    FormSubmit: _check_submit,
    TableSave: _check_save,
    TableAddRow: _check_add_row,
    TableDeleteRow: _check_delete_row,
    ButtonClick: _check_click,
    InputSubmit: _check_input,
}


# what becomes of a view when an action is taken; the log may hold actions that nobody checked


def _mark_used(view: OpenView, key: str) -> OpenView:
    part = view.parts_by_id.get(key)
    once = isinstance(part, Form | Button) and not part.repeat
    return replace(view, used_part_ids=view.used_part_ids | {key}) if once else view


def _with_row_ids(view: OpenView, table_id: str, rows: frozenset[str]) -> OpenView:
    return replace(view, row_ids={**view.row_ids, table_id: rows})


def _apply_save(view: OpenView, action: TableSave) -> OpenView:
    known = view.row_ids.get(action.table_id)
    if known is None:
        return view
    kept = _with_row_ids(view, action.table_id, known - frozenset(action.deleted))
    return replace(kept, used_part_ids=view.used_part_ids | {action.table_id})


def _apply_delete_row(view: OpenView, action: TableDeleteRow) -> OpenView:
    known = view.row_ids.get(action.table_id)
    return view if known is None else _with_row_ids(view, action.table_id, known - {action.row_id})


ACTION_EFFECTS: Mapping[type, Callable[[OpenView, Any], OpenView]] = {
    FormSubmit: lambda view, action: _mark_used(view, action.form_id),
    ButtonClick: lambda view, action: _mark_used(view, action.button_id),
    TableSave: _apply_save,
    TableDeleteRow: _apply_delete_row,
}


# what a field takes


def find_field_error(each: Field, value: Any) -> str | None:
    """Why a field does not take a value: a sentence without its subject. Blank text is no value."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return "is required" if each.required else None
    return FIELD_CHECKS[type(each)](each, value)


def _check_text(each: TextField, value: Any) -> str | None:
    if not isinstance(value, str):
        return "must be a text"
    return None if len(value) <= each.max_length else f"must be at most {each.max_length} characters long"


def _check_number(each: NumberField, value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not is_finite(value):
        return "must be a number"
    if each.above is not None and value <= each.above:
        return f"must be > {each.above}"
    if each.min is not None and value < each.min:
        return f"must be >= {each.min}"
    if each.max is not None and value > each.max:
        return f"must be <= {each.max}"
    return None if each.step is None else _check_step(each.step, each.min or 0, value)


def _check_step(step: Number, start: Number, value: Number) -> str | None:
    """Exact on what is written: 187.6 is a multiple of 0.1."""
    exact = Context(prec=MAX_DECIMAL_DIGITS)
    rest = exact.remainder(exact.subtract(Decimal(str(value)), Decimal(str(start))), Decimal(str(step)))
    return None if rest == 0 else f"must be in steps of {step}" + (f" from {start}" if start else "")


def _check_datetime(each: DatetimeField, value: Any) -> str | None:
    if not is_time(value) or (each.picks == "date" and "T" in value):
        example = {"date": "2026-01-08", "datetime": "2026-01-08 or 2026-01-08T12:30"}[each.picks]
        return f"must be a date like {example}"
    day = value[:10]  # as it is written: where the person is
    if each.min is not None and day < each.min:
        return f"must not be before {each.min}"
    return f"must not be after {each.max}" if each.max is not None and day > each.max else None


def is_time(value: Any) -> bool:
    """Whether a text is a real day, or a real time of a day."""
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        return False
    try:
        date.fromisoformat(value[:10])
    except ValueError:
        return False
    return True


def _check_select(each: SelectField, value: Any) -> str | None:
    options = [option.value for option in each.options]
    if value in options:
        return None
    return f"must be one of {', '.join(options[:MAX_LISTED_OPTIONS])}" + (
        ", …" if len(options) > MAX_LISTED_OPTIONS else ""
    )


FIELD_CHECKS: Mapping[type, Callable[[Any, Any], str | None]] = {
    TextField: _check_text,
    NumberField: _check_number,
    DatetimeField: _check_datetime,
    SelectField: _check_select,
}
