"""What the user sees: a form to confirm one weigh-in, a table to edit several.

The form leaves it to the executor what a weight may be, and shows its objection at the field. The table holds
its cells against the rule before anything is sent: there one wrong cell would refuse all the others.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec

from turnlog import View, tool
from turnlog.agents import Tool, ToolContext
from turnlog.events.view_nodes import DatetimeField, Form, NumberField, TableEditor, TableRow, TextField

FORM_VIEW, FORM = "view_weight_entry", "weight_entry"
TABLE_VIEW, TABLE = "view_weight_entries", "weight_entries"
FIELDS = ("measured_at", "weight_lbs", "notes")
DAYS_AGO = {"today": 0, "yesterday": 1}
NOTES_CHARS = 500
SHOWN = "It is shown. Say nothing more, and wait until the user acts."


class Draft(msgspec.Struct, forbid_unknown_fields=True):
    """A weigh-in as it is shown. `measured_at` may be `today` or `yesterday`; one without an id is not saved
    yet; `errors` says what is wrong, by field."""

    measured_at: str | None = None
    weight_lbs: float | None = None
    notes: str | None = None
    id: str | None = None
    errors: dict[str, str] = {}


def form_of(entry: Draft) -> View:
    """A form with one weigh-in."""
    wrong = entry.errors.get
    fields = (
        DatetimeField(
            "measured_at",
            "Day",
            required=True,
            picks="date",
            value=entry.measured_at,
            error=wrong("measured_at"),
        ),
        NumberField(
            "weight_lbs", "Weight (lbs)", required=True, value=entry.weight_lbs, error=wrong("weight_lbs")
        ),
        TextField("notes", "Notes", max_length=NOTES_CHARS, value=entry.notes, error=wrong("notes")),
    )
    return View.of(FORM_VIEW, Form(FORM, fields, title="Weigh-in", submit="Save"))


def table_of(rows: list[Draft]) -> View:
    """A table with weigh-ins, saved and new ones."""
    columns = (
        DatetimeField("measured_at", "Measured", required=True),
        NumberField("weight_lbs", "Weight (lbs)", required=True, above=0, step=0.01),
        TextField("notes", "Notes", max_length=NOTES_CHARS),
    )
    shown = [row_of(number, row) for number, row in enumerate(rows, 1)]
    return View.of(
        TABLE_VIEW, TableEditor(TABLE, columns, shown, title="Weigh-ins", can_add=True, can_delete=True)
    )


def row_of(number: int, row: Draft) -> TableRow:
    """A row of the table; what is wrong with no cell of it is wrong with the row."""
    values = {"measured_at": row.measured_at, "weight_lbs": row.weight_lbs, "notes": row.notes}
    cells = {name: text for name, text in row.errors.items() if name in FIELDS}
    rest = [text for name, text in row.errors.items() if name not in FIELDS]
    return TableRow(row.id or f"new_{number}", values, cells, "; ".join(rest) or None)


def make_views(zone: ZoneInfo, now: Callable[[], datetime]) -> tuple[Tool, Tool]:
    """The tools that show the form and the table; they know what day it is where the user is."""

    def dated(entry: Draft) -> Draft:
        ago = DAYS_AGO.get(entry.measured_at or "")
        if ago is None:
            return entry
        day = now().astimezone(zone).date() - timedelta(days=ago)
        return msgspec.structs.replace(entry, measured_at=day.isoformat())

    @tool
    def weight_entry_form(entry: Draft, context: ToolContext) -> str:
        """Show a form with one weigh-in, for the user to confirm or to correct.

        Args:
            entry: What is known of it; `measured_at` is a day, `today` or `yesterday`.
        """
        context.show_view(form_of(dated(entry)))
        return SHOWN

    @tool
    def weight_table(rows: list[Draft], context: ToolContext) -> str:
        """Show a table with weigh-ins, which the user may edit, add to, delete from and save.

        Args:
            rows: The weigh-ins; those that are saved have an id.
        """
        context.show_view(table_of([dated(row) for row in rows]))
        return SHOWN

    return weight_entry_form, weight_table
