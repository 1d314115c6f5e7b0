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
from turnlog.events import AssistantView, Envelope, Fault, Payload, UiAction, Unknown
from turnlog.events.ui import (
    ButtonClick,
    FormSubmit,
    InputSubmit,
    TableAddRow,
    TableDeleteRow,
    TableSave,
)
from turnlog.events.view_nodes import (
    PARTS,
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
    parts,
    read,
)

KEPT = 10_000  # parts of open views; five of the largest, hundreds of ordinary ones
PROBLEMS = 100  # that one answer tells; a person corrects a few at a time
NAMED = 8  # options that a message names
DIGITS = 700  # between the largest double and the smallest step there are 650
KEY_CHARS = 128  # of a name nobody knows, in a path

_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d"
_TIME = re.compile(rf"\d{{4}}-\d\d-\d\d(T{_CLOCK}(:[0-5]\d(\.\d{{1,6}})?)?(Z|[+-]{_CLOCK})?)?", re.ASCII)

Active = Form | TableEditor | Button
Path = tuple[str | int, ...]
Sees = Callable[[str | None], bool]
P = TypeVar("P", Form, TableEditor, Button)


def everything(channel: str | None) -> bool:
    """A person who sees all channels."""
    return True


class Problem(NamedTuple):
    """Why an action is not taken; `path` leads to the place in the action, or to `view_id`."""

    kind: Literal["conflict", "invalid"]
    message: str
    path: Path


@dataclass(frozen=True, slots=True)
class Shown:
    """A view that is open: what can be acted on, by id, and what has been."""

    event_id: str
    channel: str | None
    view_id: str
    size: int
    active: Mapping[str, Active]
    rows: Mapping[str, frozenset[str]]  # by table: the rows it has now
    used: frozenset[str] = frozenset()


@dataclass(slots=True)
class Views:
    """The open views of a session by channel and id, the one shown last at the end."""

    open: dict[tuple[str | None, str], Shown] = field(default_factory=dict)
    size: int = 0

    def apply(self, envelope: Envelope, payload: Payload | Unknown) -> None:
        """Take one event into account."""
        if isinstance(payload, AssistantView):
            self._show(envelope, payload)
        elif isinstance(payload, UiAction):
            self.take(payload, channel=envelope.channel)

    def find(self, action: UiAction, may_see: Sees, channel: str | None) -> Shown | None:
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

    def take(self, action: UiAction, may_see: Sees = everything, channel: str | None = None) -> None:
        """An action in a channel has been taken."""
        view = self.find(action, may_see, channel)
        step = TAKEN.get(type(action.action))
        if view is not None and step is not None:
            self.open[view.channel, view.view_id] = step(view, action.action)

    def is_current(self, action: UiAction) -> bool:
        """Whether the view that an action is for is still open, as the person saw it."""
        if action.view_id is None or action.shown is None:  # an answer to a call, or an older log
            return True
        return any(view.event_id == action.shown for view in self.open.values())

    def has_question(self, may_see: Sees) -> bool:
        """Whether an open view waits for a person: a form or a button that is taken once, and nothing was."""
        return any(
            isinstance(part, Form | Button) and not part.repeat
            for view in self.open.values()
            if may_see(view.channel) and not view.used
            for part in view.active.values()
        )

    def copy(self) -> "Views":
        """The same, to try actions on that come together."""
        return Views(dict(self.open), self.size)

    def _show(self, envelope: Envelope, payload: AssistantView) -> None:
        key = envelope.channel, payload.view.view_id
        self._close(key)
        root = read(payload.view.tree)
        if root is None:
            return
        found = [part for _, _, part in parts(root)]
        active = {part.id: part for part in found if isinstance(part, Active)}
        tables = [part for part in active.values() if isinstance(part, TableEditor)]
        rows = {table.id: frozenset(row.row_id for row in table.rows) for table in tables}
        self.open[key] = Shown(envelope.id, *key, len(found), active, rows)
        self.size += len(found)
        while self.size > KEPT:
            self._close(next(iter(self.open)))

    def _close(self, key: tuple[str | None, str]) -> None:
        if view := self.open.pop(key, None):
            self.size -= view.size


def check(
    views: Views, action: UiAction, may_see: Sees = everything, channel: str | None = None
) -> tuple[Problem, ...]:
    """Why an action in a channel may not be taken; nothing if it may. One that only answers a call is not of
    a view.

    For who may not see its channel a view is not there. An action that is in the log already, under its id,
    was taken: that is for the caller to know.
    """
    if action.view_id is None:
        known = action.call_id is not None
        return () if known else (Problem("invalid", "expected a view_id or a call_id", ("view_id",)),)
    view = views.find(action, may_see, channel)
    if view is None:
        return (Problem("conflict", f"view {action.view_id} is not open in this session", ("view_id",)),)
    if action.shown not in (None, view.event_id):
        return (Problem("conflict", f"view {action.view_id} has been shown anew", ("shown",)),)
    problems = tuple(islice(CHECKS[type(action.action)](view, action.action), PROBLEMS))
    return tuple(problem for problem in problems if problem.kind == "conflict") or problems


def fault(problems: Sequence[Problem]) -> Fault:
    """Problems (at least one) as an answer says them: the first one, and all of them in its details."""
    first = problems[0]
    code = "CONFLICT" if first.kind == "conflict" else "VALIDATION_ERROR"
    told = [{"path": list(problem.path), "message": problem.message} for problem in problems]
    return Fault(code=code, message=first.message, details={"path": told[0]["path"], "problems": told})


# what an action holds


def invalid(message: str, *path: str | int) -> Problem:
    return Problem("invalid", message, path)


def late(message: str, *path: str | int) -> Problem:
    return Problem("conflict", message, path)


def found(view: Shown, key: str, kind: type[P]) -> P | None:
    """A form, table or button of a view."""
    part = view.active.get(key)
    return part if isinstance(part, kind) else None


def _submit(view: Shown, action: FormSubmit) -> Iterator[Problem]:
    form = found(view, action.form_id, Form)
    if form is None:
        yield invalid(f"the view has no form {action.form_id}", "form_id")
    elif form.id in view.used:
        yield late(f"form {form.id} has been submitted already", "form_id")
    else:
        yield from _values(form.fields, action.values, "values")


def _click(view: Shown, action: ButtonClick) -> Iterator[Problem]:
    button = found(view, action.button_id, Button)
    if button is None:
        yield invalid(f"the view has no button {action.button_id}", "button_id")
    elif button.id in view.used:
        yield late(f"button {button.id} has been clicked already", "button_id")


def _input(_: Shown, __: InputSubmit) -> Iterator[Problem]:
    yield invalid("input.submit answers a call, not a view", "kind")


def _add(view: Shown, action: TableAddRow) -> Iterator[Problem]:
    table = found(view, action.table_id, TableEditor)
    if table is None:
        yield invalid(f"the view has no table {action.table_id}", "table_id")
    elif not table.can_add:
        yield invalid(f"rows cannot be added to {table.id}", "table_id")


def _delete(view: Shown, action: TableDeleteRow) -> Iterator[Problem]:
    table = found(view, action.table_id, TableEditor)
    if table is None:
        yield invalid(f"the view has no table {action.table_id}", "table_id")
    elif not table.can_delete:
        yield invalid(f"rows of {table.id} cannot be deleted", "table_id")
    elif action.row_id not in view.rows[table.id]:
        yield unknown_row(table, action.row_id, "row_id")


def _save(view: Shown, action: TableSave) -> Iterator[Problem]:
    table = found(view, action.table_id, TableEditor)
    if table is None:
        yield invalid(f"the view has no table {action.table_id}", "table_id")
    elif len(action.rows) + len(action.deleted) > PARTS:
        yield invalid(f"expected at most {PARTS} rows", "rows")
    elif table.id in view.used:
        yield late(f"table {table.id} has been saved already; wait until it is shown again", "table_id")
    else:
        yield from _rows(table, view.rows[table.id], action)


def _rows(table: TableEditor, known: frozenset[str], action: TableSave) -> Iterator[Problem]:
    left = set(known)
    for index, row in enumerate(action.rows):
        row_id = row.get("row_id")
        if row_id is None:
            if not table.can_add:
                yield invalid(f"rows cannot be added to {table.id}", "rows", index)
        elif not isinstance(row_id, str):
            yield invalid("row_id must be a text", "rows", index, "row_id")
        elif row_id not in known:
            yield unknown_row(table, row_id, "rows", index, "row_id")
        elif row_id not in left:
            yield invalid(f"row {row_id} stands twice", "rows", index, "row_id")
        else:
            left.discard(row_id)
        cells = {name: value for name, value in row.items() if name != "row_id"}
        yield from _values(table.columns, cells, "rows", index)
    yield from _deletions(table, known, left, action.deleted)


def _deletions(
    table: TableEditor, known: frozenset[str], left: set[str], deleted: Sequence[str]
) -> Iterator[Problem]:
    """What is wrong with the rows to delete; `left` are those that the save does not name otherwise."""
    for index, row_id in enumerate(deleted):
        if not table.can_delete:
            yield invalid(f"rows of {table.id} cannot be deleted", "deleted", index)
        elif row_id not in known:
            yield unknown_row(table, row_id, "deleted", index)
        elif row_id not in left:
            yield invalid(f"row {row_id} stands twice", "deleted", index)
        left.discard(row_id)


def unknown_row(table: TableEditor, row_id: str, *path: str | int) -> Problem:
    """A row that was never there is wrong; one that was comes too late."""
    if any(row.row_id == row_id for row in table.rows):
        return late(f"row {row_id} of {table.id} has been deleted already", *path)
    return invalid(f"table {table.id} has no row {quote(row_id)}", *path)


def _values(fields: Sequence[Field], values: Mapping[str, Any], *path: str | int) -> Iterator[Problem]:
    """What is wrong with the values of fields, or of the cells of a row."""
    for each in fields:
        if sentence := wrong(each, values.get(each.name)):
            yield invalid(f"{each.name} {sentence}", *path, each.name)
    known = {each.name for each in fields}
    for name in values:
        if name not in known:
            yield invalid(f"{quote(name)} is not a field", *path, name[:KEY_CHARS])


CHECKS: Mapping[type, Callable[[Shown, Any], Iterator[Problem]]] = {
    FormSubmit: _submit,
    TableSave: _save,
    TableAddRow: _add,
    TableDeleteRow: _delete,
    ButtonClick: _click,
    InputSubmit: _input,
}


# what becomes of a view when an action is taken; the log may hold actions that nobody checked


def _use(view: Shown, key: str) -> Shown:
    part = view.active.get(key)
    once = isinstance(part, Form | Button) and not part.repeat
    return replace(view, used=view.used | {key}) if once else view


def _keep(view: Shown, table_id: str, rows: frozenset[str]) -> Shown:
    return replace(view, rows={**view.rows, table_id: rows})


def _saved(view: Shown, action: TableSave) -> Shown:
    known = view.rows.get(action.table_id)
    if known is None:
        return view
    kept = _keep(view, action.table_id, known - frozenset(action.deleted))
    return replace(kept, used=view.used | {action.table_id})


def _deleted(view: Shown, action: TableDeleteRow) -> Shown:
    known = view.rows.get(action.table_id)
    return view if known is None else _keep(view, action.table_id, known - {action.row_id})


TAKEN: Mapping[type, Callable[[Shown, Any], Shown]] = {
    FormSubmit: lambda view, action: _use(view, action.form_id),
    ButtonClick: lambda view, action: _use(view, action.button_id),
    TableSave: _saved,
    TableDeleteRow: _deleted,
}


# what a field takes


def wrong(each: Field, value: Any) -> str | None:
    """Why a field does not take a value: a sentence without its subject. Blank text is no value."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return "is required" if each.required else None
    return TAKES[type(each)](each, value)


def _text(each: TextField, value: Any) -> str | None:
    if not isinstance(value, str):
        return "must be a text"
    return None if len(value) <= each.max_length else f"must be at most {each.max_length} characters long"


def _number(each: NumberField, value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not is_finite(value):
        return "must be a number"
    if each.above is not None and value <= each.above:
        return f"must be > {each.above}"
    if each.min is not None and value < each.min:
        return f"must be >= {each.min}"
    if each.max is not None and value > each.max:
        return f"must be <= {each.max}"
    return None if each.step is None else _stepped(each.step, each.min or 0, value)


def _stepped(step: Number, start: Number, value: Number) -> str | None:
    """Exact on what is written: 187.6 is a multiple of 0.1."""
    exact = Context(prec=DIGITS)
    rest = exact.remainder(exact.subtract(Decimal(str(value)), Decimal(str(start))), Decimal(str(step)))
    return None if rest == 0 else f"must be in steps of {step}" + (f" from {start}" if start else "")


def _datetime(each: DatetimeField, value: Any) -> str | None:
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


def _select(each: SelectField, value: Any) -> str | None:
    options = [option.value for option in each.options]
    if value in options:
        return None
    return f"must be one of {', '.join(options[:NAMED])}" + (", …" if len(options) > NAMED else "")


TAKES: Mapping[type, Callable[[Any, Any], str | None]] = {
    TextField: _text,
    NumberField: _number,
    DatetimeField: _datetime,
    SelectField: _select,
}
