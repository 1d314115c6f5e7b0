"""The open views of a session, and whether an action on one is valid (protocol 3.4 and 3.5).

`OpenViews` is a fold over the log. `assistant.view` opens a view or replaces the one with its id in its
channel; an empty one closes it. Messages of A2UI may also update theirs. A `ui.action` in the log has been
accepted. `validate_action` checks an action that is not in the log yet against the view as it was sent, and
returns all problems:

    conflict   the action is too late or in the wrong channel: the view is not open there, it was shown again,
               or its form was sent already. Sending it again does not help.
    invalid    the content of the action is wrong; `path` leads to the field or the cell.

A form or a button without `repeat`, and a table, accept one action until the view is shown again. A save
removes only the rows in `deleted`. Above 10,000 parts of open views the oldest views are closed.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Context, Decimal
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeVar

from turnlog.errors import InvalidEvent, quote
from turnlog.events import AssistantView, Envelope, ErrorInfo, Payload, UiAction, UnknownPayload, View
from turnlog.events.a2ui import A2UI_KIND, find_value_error
from turnlog.events.assistant import NODES_KIND
from turnlog.events.ui import (
    A2uiAction,
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
from turnlog.state.a2ui_surfaces import MAX_SURFACE_SIZE, Surface, apply_messages, measure
from turnlog.state.channels import ChannelFilter, may_see_all

MAX_OPEN_PARTS = 10_000  # parts of open views; five of the largest, hundreds of ordinary ones
MAX_PROBLEMS = 100  # in one response; a person corrects a few at a time
MAX_LISTED_OPTIONS = 8  # options that a message names
MAX_DECIMAL_DIGITS = 700  # between the largest double and the smallest step there are 650
MAX_CONTEXT_SIZE = 20_000  # of an A2UI action (`measure`): it is a line of the model's prompt
SURFACE_SIZE_PER_PART = 100  # counts the data of a surface as parts
MAX_PATH_NAME_CHARS = 128  # of an unknown field's name, in a path

DATE_EXAMPLES = {"date": "2026-01-08", "datetime": "2026-01-08 or 2026-01-08T12:30"}

_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d"
_TIME = re.compile(rf"\d{{4}}-\d\d-\d\d(T{_CLOCK}(:[0-5]\d(\.\d{{1,6}})?)?(Z|[+-]{_CLOCK})?)?", re.ASCII)

ActionablePart = Form | TableEditor | Button
ProblemPath = tuple[str | int, ...]
P = TypeVar("P", Form, TableEditor, Button)


class ActionProblem(NamedTuple):
    """Why an action is refused. `path` leads into the action, or to `view_id`."""

    kind: Literal["conflict", "invalid"]
    message: str
    path: ProblemPath


@dataclass(frozen=True, slots=True)
class OpenView:
    """An open view: its parts that take actions, by id, and those that have been used.

    A view of A2UI has a `surface` instead of parts. Its `event_id` is that of its `createSurface`.
    """

    event_id: str
    channel: str | None
    view_id: str
    part_count: int
    parts_by_id: Mapping[str, ActionablePart]
    row_ids: Mapping[str, frozenset[str]]  # by table: the rows it has now
    used_part_ids: frozenset[str] = frozenset()
    surface: Surface | None = None


@dataclass(slots=True)
class OpenViews:
    """The open views of a session by channel and id; the one that was shown last is the last."""

    open: dict[tuple[str | None, str], OpenView] = field(default_factory=dict)
    part_count: int = 0

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        if isinstance(payload, AssistantView):
            self.show(payload.view, envelope.id, envelope.channel)
        elif isinstance(payload, UiAction):
            self.record_action(payload, channel=envelope.channel)

    def find(self, action: UiAction, may_see: ChannelFilter, channel: str | None) -> OpenView | None:
        """Return the view that an action in a channel is for; None if no such view is open.

        Several channels may show one `view_id`. First comes the view that the action's `shown` names, then
        the one in the action's channel, then the one in no channel, then the one that was shown last.
        """
        candidates = [
            view for view in self.open.values() if view.view_id == action.view_id and may_see(view.channel)
        ]
        for view in candidates:
            if view.event_id == action.shown:
                return view
        for wanted_channel in (channel, None):
            for view in candidates:
                if view.channel == wanted_channel:
                    return view
        return candidates[-1] if candidates else None

    def record_action(
        self, action: UiAction, may_see: ChannelFilter = may_see_all, channel: str | None = None
    ) -> None:
        """Mark what an accepted action used. An action without an open view changes nothing."""
        view = self.find(action, may_see, channel)
        apply_effect = ACTION_EFFECTS.get(type(action.action))
        if view is not None and apply_effect is not None:
            self.open[view.channel, view.view_id] = apply_effect(view, action.action)

    def is_current(self, action: UiAction) -> bool:
        # An answer to a call has no view; actions in older logs have no `shown`.
        if action.view_id is None or action.shown is None:
            return True
        return any(view.event_id == action.shown for view in self.open.values())

    def has_question(self, may_see: ChannelFilter) -> bool:
        """Return whether an unused view has a form or a button that is taken once."""
        return any(map(may_see, self.channels_with_questions))

    @property
    def channels_with_questions(self) -> set[str | None]:
        channels: set[str | None] = set()
        for view in self.open.values():
            asks = any(map(is_taken_once, view.parts_by_id.values())) or has_event_button(view.surface)
            if asks and not view.used_part_ids:
                channels.add(view.channel)
        return channels

    def copy(self) -> "OpenViews":
        return OpenViews(dict(self.open), self.part_count)

    def find_update_error(self, view: View, channel: str | None) -> InvalidEvent | None:
        """Return why messages of A2UI do not fit the surface that is open; None for views of other kinds."""
        if view.kind != A2UI_KIND:
            return None
        try:
            apply_messages(self._find_surface((channel, view.view_id)), view.view_id, view.tree)
        except InvalidEvent as error:
            return InvalidEvent(error.problem, f"$.payload.view.tree{error.path[1:]}")
        return None

    def show(self, view: View, event_id: str, channel: str | None) -> None:
        """Open, replace, update or close a view in a channel, as its event says."""
        key = channel, view.view_id
        open_kind = VIEW_OPENERS.get(view.kind)
        if open_kind is not None:
            open_kind(self, key, event_id, view)
        else:
            self._close_view(key)  # a view of another kind takes no actions

    def _find_surface(self, key: tuple[str | None, str]) -> Surface | None:
        view = self.open.get(key)
        return view.surface if view is not None else None

    def _open_surface(self, key: tuple[str | None, str], event_id: str, view: View) -> None:
        before = self.open.get(key)
        try:
            surface = apply_messages(self._find_surface(key), view.view_id, view.tree)
        except InvalidEvent:
            return  # no reader can show it
        self._close_view(key)
        if surface is None:
            return

        part_count = len(surface.components) + surface.size // SURFACE_SIZE_PER_PART
        is_update = "createSurface" not in view.tree["messages"][0]
        if is_update and before is not None:
            opened = replace(before, part_count=part_count, surface=surface)
        else:
            opened = OpenView(event_id, key[0], view.view_id, part_count, {}, {}, surface=surface)
        self._add_view(key, opened)

    def _open_nodes(self, key: tuple[str | None, str], event_id: str, view: View) -> None:
        self._close_view(key)
        root = parse_view_tree(view.tree)
        if root is None:
            return

        parts = [part for _, _, part in iter_parts(root)]
        parts_by_id: dict[str, ActionablePart] = {}
        row_ids: dict[str, frozenset[str]] = {}
        for part in parts:
            if isinstance(part, ActionablePart):
                parts_by_id[part.id] = part
            if isinstance(part, TableEditor):
                row_ids[part.id] = frozenset(row.row_id for row in part.rows)

        opened = OpenView(
            event_id=event_id,
            channel=key[0],
            view_id=view.view_id,
            part_count=len(parts),
            parts_by_id=parts_by_id,
            row_ids=row_ids,
        )
        self._add_view(key, opened)

    def _add_view(self, key: tuple[str | None, str], view: OpenView) -> None:
        self.open[key] = view
        self.part_count += view.part_count
        while self.part_count > MAX_OPEN_PARTS:
            self._close_view(next(iter(self.open)))

    def _close_view(self, key: tuple[str | None, str]) -> None:
        view = self.open.pop(key, None)
        if view is not None:
            self.part_count -= view.part_count


VIEW_OPENERS: Mapping[str, Callable[[OpenViews, tuple[str | None, str], str, View], None]] = {
    NODES_KIND: OpenViews._open_nodes,
    A2UI_KIND: OpenViews._open_surface,
}


def has_event_button(surface: Surface | None) -> bool:
    return surface is not None and any(map(find_event, surface.components.values()))


def find_event(component: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the event that a click on this component of A2UI sends to the server, or None."""
    event: Mapping[str, Any] | None = component.get("action", {}).get("event")
    return event


def is_taken_once(part: object) -> bool:
    return isinstance(part, Form | Button) and not part.repeat


def validate_action(
    views: OpenViews, action: UiAction, may_see: ChannelFilter = may_see_all, channel: str | None = None
) -> tuple[ActionProblem, ...]:
    """Return the problems of an action in a channel; an empty tuple if it is valid.

    If there are conflicts, only these are returned. A view in a channel that the person may not see is not
    open for that person. The caller must accept an action whose event id is in the log already.
    """
    if action.view_id is None:
        if action.call_id is not None:  # an answer to a call has no view
            return ()
        return (invalid_problem("expected a view_id or a call_id", "view_id"),)

    view = views.find(action, may_see, channel)
    if view is None:
        return (conflict_problem(f"view {action.view_id} is not open in this session", "view_id"),)
    if action.shown is not None and action.shown != view.event_id:
        return (conflict_problem(f"view {action.view_id} has been shown anew", "shown"),)

    check = ACTION_CHECKS[type(action.action)]
    problems = tuple(islice(check(view, action.action), MAX_PROBLEMS))
    conflicts = tuple(problem for problem in problems if problem.kind == "conflict")
    return conflicts or problems


def build_action_error(problems: Sequence[ActionProblem]) -> ErrorInfo:
    """Return the error of a response: the first problem (there must be one), and all of them as details."""
    first = problems[0]
    code = "CONFLICT" if first.kind == "conflict" else "VALIDATION_ERROR"
    details = [{"path": list(problem.path), "message": problem.message} for problem in problems]
    return ErrorInfo(
        code=code,
        message=first.message,
        details={"path": list(first.path), "problems": details},
    )


# Checks of the content of an action


def invalid_problem(message: str, *path: str | int) -> ActionProblem:
    return ActionProblem("invalid", message, path)


def conflict_problem(message: str, *path: str | int) -> ActionProblem:
    return ActionProblem("conflict", message, path)


def find_part(view: OpenView, key: str, kind: type[P]) -> P | None:
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
        message = f"table {table.id} has been saved already; wait until it is shown again"
        yield conflict_problem(message, "table_id")
    else:
        yield from _check_rows(table, view.row_ids[table.id], action)


def _check_rows(table: TableEditor, known: frozenset[str], action: TableSave) -> Iterator[ActionProblem]:
    unnamed = set(known)  # rows that the save has not named yet
    for index, row in enumerate(action.rows):
        row_id = row.get("row_id")
        if row_id is None:
            if not table.can_add:
                yield invalid_problem(f"rows cannot be added to {table.id}", "rows", index)
        elif not isinstance(row_id, str):
            yield invalid_problem("row_id must be a text", "rows", index, "row_id")
        elif row_id not in known:
            yield unknown_row_problem(table, row_id, "rows", index, "row_id")
        elif row_id not in unnamed:
            yield invalid_problem(f"row {row_id} stands twice", "rows", index, "row_id")
        else:
            unnamed.discard(row_id)
        cells = {name: value for name, value in row.items() if name != "row_id"}
        yield from _check_values(table.columns, cells, "rows", index)
    yield from _check_deletions(table, known, unnamed, action.deleted)


def _check_deletions(
    table: TableEditor, known: frozenset[str], unnamed: set[str], deleted: Sequence[str]
) -> Iterator[ActionProblem]:
    for index, row_id in enumerate(deleted):
        if not table.can_delete:
            yield invalid_problem(f"rows of {table.id} cannot be deleted", "deleted", index)
        elif row_id not in known:
            yield unknown_row_problem(table, row_id, "deleted", index)
        elif row_id not in unnamed:
            yield invalid_problem(f"row {row_id} stands twice", "deleted", index)
        unnamed.discard(row_id)


def unknown_row_problem(table: TableEditor, row_id: str, *path: str | int) -> ActionProblem:
    if any(row.row_id == row_id for row in table.rows):
        return conflict_problem(f"row {row_id} of {table.id} has been deleted already", *path)
    return invalid_problem(f"table {table.id} has no row {quote(row_id)}", *path)


def _check_values(
    fields: Sequence[Field], values: Mapping[str, Any], *path: str | int
) -> Iterator[ActionProblem]:
    for form_field in fields:
        error = find_field_error(form_field, values.get(form_field.name))
        if error:
            yield invalid_problem(f"{form_field.name} {error}", *path, form_field.name)

    known = {form_field.name for form_field in fields}
    for name in values:
        if name not in known:
            yield invalid_problem(f"{quote(name)} is not a field", *path, name[:MAX_PATH_NAME_CHARS])


def _check_a2ui_action(view: OpenView, action: A2uiAction) -> Iterator[ActionProblem]:
    surface = view.surface
    component = surface.components.get(action.component_id) if surface is not None else None
    event = find_event(component) if component is not None else None
    if surface is None or event is None:
        yield invalid_problem(f"the view has no button {quote(action.component_id)}", "component_id")
        return
    if action.name != event["name"]:
        problem = f"button {quote(action.component_id)} sends {quote(event['name'])}"
        yield invalid_problem(problem, "name")
        return

    yield from _check_context(event.get("context", {}), action.context)
    yield from _check_bounds(action.context, MAX_CONTEXT_SIZE, "context")
    if action.data_model is None:
        return
    if not surface.sends_data_model:
        yield invalid_problem("the surface does not ask for its data model", "data_model")
    else:
        yield from _check_bounds(action.data_model, MAX_SURFACE_SIZE, "data_model")


def _check_bounds(value: Any, max_size: int, field_name: str) -> Iterator[ActionProblem]:
    error = find_value_error(value, "$")
    if error is not None:
        yield invalid_problem(error[0], field_name)
    elif measure(value) > max_size:
        yield invalid_problem(f"expected a value with a size of at most {max_size}", field_name)


def _check_context(declared: Mapping[str, Any], sent: Mapping[str, Any]) -> Iterator[ActionProblem]:
    """A constant of the button must come back as it was sent. What the page computes may be any value."""
    for name, value in declared.items():
        short_name = name[:MAX_PATH_NAME_CHARS]
        if is_constant(value) and (name not in sent or not is_same_json(sent[name], value)):
            yield invalid_problem(f"{quote(name)} must be {quote(value)}", "context", short_name)
    for name in sent:
        if name not in declared:
            problem = f"{quote(name)} is not in the context of the button"
            yield invalid_problem(problem, "context", name[:MAX_PATH_NAME_CHARS])


def is_constant(value: Any) -> bool:
    """Return whether a declared value has no binding and no call. A list may hold them."""
    return not isinstance(value, dict | list)


def is_same_json(value: Any, other: Any) -> bool:
    # In Python 1 == True
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)


ACTION_CHECKS: Mapping[type, Callable[[OpenView, Any], Iterator[ActionProblem]]] = {
    FormSubmit: _check_submit,
    TableSave: _check_save,
    TableAddRow: _check_add_row,
    TableDeleteRow: _check_delete_row,
    ButtonClick: _check_click,
    A2uiAction: _check_a2ui_action,
    InputSubmit: _check_input,
}


# Effects of an accepted action on its view. The log may hold actions that were never checked.


def _apply_submit(view: OpenView, action: FormSubmit) -> OpenView:
    return _mark_used(view, action.form_id)


def _apply_click(view: OpenView, action: ButtonClick) -> OpenView:
    return _mark_used(view, action.button_id)


def _mark_used(view: OpenView, part_id: str) -> OpenView:
    if not is_taken_once(view.parts_by_id.get(part_id)):
        return view
    return replace(view, used_part_ids=view.used_part_ids | {part_id})


def _apply_save(view: OpenView, action: TableSave) -> OpenView:
    if action.table_id not in view.row_ids:
        return view
    saved = _remove_rows(view, action.table_id, action.deleted)
    return replace(saved, used_part_ids=view.used_part_ids | {action.table_id})


def _apply_delete_row(view: OpenView, action: TableDeleteRow) -> OpenView:
    return _remove_rows(view, action.table_id, (action.row_id,))


def _remove_rows(view: OpenView, table_id: str, row_ids: Sequence[str]) -> OpenView:
    known = view.row_ids.get(table_id)
    if known is None:
        return view
    return replace(view, row_ids={**view.row_ids, table_id: known - frozenset(row_ids)})


def _apply_a2ui_action(view: OpenView, action: A2uiAction) -> OpenView:
    # The standard lets a button be clicked again; the view is no longer a question.
    if view.surface is None:
        return view
    return replace(view, used_part_ids=view.used_part_ids | {action.component_id})


ACTION_EFFECTS: Mapping[type, Callable[[OpenView, Any], OpenView]] = {
    FormSubmit: _apply_submit,
    ButtonClick: _apply_click,
    A2uiAction: _apply_a2ui_action,
    TableSave: _apply_save,
    TableDeleteRow: _apply_delete_row,
}


# Checks of one field


def find_field_error(form_field: Field, value: Any) -> str | None:
    """Return why a field refuses a value, as a sentence without its subject; None if it accepts it."""
    is_blank = value is None or (isinstance(value, str) and not value.strip())
    if is_blank:
        return "is required" if form_field.required else None
    return FIELD_CHECKS[type(form_field)](form_field, value)


def _check_text(form_field: TextField, value: Any) -> str | None:
    if not isinstance(value, str):
        return "must be a text"
    if len(value) > form_field.max_length:
        return f"must be at most {form_field.max_length} characters long"
    return None


def _check_number(form_field: NumberField, value: Any) -> str | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not is_finite(value):
        return "must be a number"
    if form_field.above is not None and value <= form_field.above:
        return f"must be > {form_field.above}"
    if form_field.min is not None and value < form_field.min:
        return f"must be >= {form_field.min}"
    if form_field.max is not None and value > form_field.max:
        return f"must be <= {form_field.max}"
    if form_field.step is not None:
        return _check_step(form_field.step, form_field.min or 0, value)
    return None


def _check_step(step: Number, start: Number, value: Number) -> str | None:
    # Decimals of the written numbers: 187.6 is a multiple of 0.1, which binary floats deny.
    exact = Context(prec=MAX_DECIMAL_DIGITS)
    distance = exact.subtract(Decimal(str(value)), Decimal(str(start)))
    if exact.remainder(distance, Decimal(str(step))) == 0:
        return None
    return f"must be in steps of {step} from {start}" if start else f"must be in steps of {step}"


def _check_datetime(form_field: DatetimeField, value: Any) -> str | None:
    if not is_time(value) or (form_field.picks == "date" and "T" in value):
        return f"must be a date like {DATE_EXAMPLES[form_field.picks]}"
    day = value[:10]  # as it is written: in the time zone of the person
    if form_field.min is not None and day < form_field.min:
        return f"must not be before {form_field.min}"
    if form_field.max is not None and day > form_field.max:
        return f"must not be after {form_field.max}"
    return None


def is_time(value: Any) -> bool:
    """Return whether a value is the text of a real day, or of a time on a real day."""
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        return False
    try:
        date.fromisoformat(value[:10])
    except ValueError:
        return False
    return True


def _check_select(form_field: SelectField, value: Any) -> str | None:
    options = [option.value for option in form_field.options]
    if value in options:
        return None
    listed = ", ".join(options[:MAX_LISTED_OPTIONS])
    if len(options) > MAX_LISTED_OPTIONS:
        listed += ", …"
    return f"must be one of {listed}"


FIELD_CHECKS: Mapping[type, Callable[[Any, Any], str | None]] = {
    TextField: _check_text,
    NumberField: _check_number,
    DatetimeField: _check_datetime,
    SelectField: _check_select,
}
