"""The agent with its tools, and the application around it."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from turnlog import Agent, App
from turnlog.agents import Model, Scripted
from turnlog_examples.weights.contract import (
    EXPIRES_S,
    make_delete,
    weight_audit_list,
    weight_entries_list,
    weight_entry_save_batch,
)
from turnlog_examples.weights.script import make_script
from turnlog_examples.weights.table import utc_now
from turnlog_examples.weights.views import make_views

GUIDE = Path(__file__).with_name("guide.md")
TRIES = (
    "Weigh-in 187.6 today",
    "85 kg yesterday, after breakfast; 84.5 kg today",
    "show my weights",
    "history",
)
ZONE = "America/New_York"
INSTRUCTIONS = """You keep the user's weigh-ins, in pounds (lbs). The user is in the time zone {zone}.
- A weight in a message: say "Got it. Please confirm the entry:" and call weight_entry_form. Several weights:
  "Got it. Please confirm the entries:" and weight_table. After a view is shown say nothing more.
- Never save what the user has not confirmed. When the form is submitted or the table is saved, call
  weight_entry_save_batch once, with all rows. measured_at has the offset of the time zone; a day alone is
  12:00. A row_id that begins with wt_ is the id of the row; other rows have no id.
- After a VALIDATION_ERROR show the same view again with what the user entered and the message in `errors`, at
  the field that the path names. If a form is saved, say so in one sentence.
- "Show my weights": weight_entries_list, then weight_table with its rows. So too after a table was saved.
- table.delete_row, and the rows that table.save names in `deleted`: weight_entry_delete with their ids.
  Delete no other row. A person is asked before it runs. Then show the table again, whatever the answer was.
- table.add_row: weight_entry_form. Questions about the history: weight_audit_list."""


def make_agent(
    pace_s: float = 0.0,
    zone: str = ZONE,
    now: Callable[[], datetime] = utc_now,
    expires_s: float = EXPIRES_S,
    model: Model | str | None = None,
) -> Agent:
    """The agent. A pace makes the words come as from a model; a model of your own speaks for itself."""
    place = ZoneInfo(zone)
    return Agent(
        "Weights",
        INSTRUCTIONS.format(zone=zone),
        model or Scripted(make_script(place), pace_s),
        tools=(
            *make_views(place, now),
            weight_entry_save_batch,
            weight_entries_list,
            weight_audit_list,
            make_delete(expires_s),
        ),
    )


def make_app(
    pace_s: float = 0.0,
    zone: str = ZONE,
    now: Callable[[], datetime] = utc_now,
    expires_s: float = EXPIRES_S,
    model: Model | str | None = None,
) -> App:
    """The agent behind a server: `turnlog serve turnlog_examples.weights:app`."""
    agent = make_agent(pace_s, zone, now, expires_s, model)
    return App("weights", agent, title="Weigh-ins", guide=GUIDE, suggestions=TRIES)
