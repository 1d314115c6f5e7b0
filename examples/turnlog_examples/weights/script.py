"""What the agent says when nobody pays for a model: it follows from the conversation alone.

A message leads to a form, a table or a list; what the user does there leads to a call of the executor; the
executor's answer leads to the next view, or to a sentence. One call at a time.
"""

import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from turnlog.agents import ToolUse
from turnlog.agents.models import ScriptPart
from turnlog.agents.models.scripted import Script
from turnlog.events.ui import Action
from turnlog.state.history import Message
from turnlog_examples.conversation import Result, last_text, results
from turnlog_examples.weights.words import Json, entries_in

ACTED = re.compile(r"\[The user acted: (\{.*\})\]", re.DOTALL)
AUDIT = re.compile(r"\b(history|audit|changes|changed)\b", re.IGNORECASE)
SHOW = re.compile(r"\b(show|list|table|weights|entries)\b", re.IGNORECASE)
HELP = (
    "Tell me a weight, as in “Weigh-in 187.6 today”. I can also show your weights, and the history of "
    "what was changed."
)


class Told(msgspec.Struct):
    """What the user did, as the history tells it."""

    action: Action


class Turn(NamedTuple):
    """Where the conversation stands: what the user wrote or did, what calls have brought since."""

    text: str
    action: Json
    found: list[Result]
    table: list[Json]  # the rows as they were shown last
    zone: ZoneInfo


def make_script(zone: ZoneInfo) -> Script:
    """The script for a user in a time zone."""

    def weights(messages: list[Message]) -> Iterator[ScriptPart]:
        text = last_text(messages)
        turn = Turn(text, action_in(text), results(messages), shown_last(messages), zone)
        if turn.found:
            return AFTER[turn.found[-1].tool](turn, turn.found[-1])
        return FIRST.get(turn.action["kind"], unknown)(turn)

    return weights


def action_in(text: str) -> Json:
    """What the user did, as the history tells it; words that only look like it are words."""
    acted = ACTED.fullmatch(text)
    try:
        told: Told | None = msgspec.json.decode(acted[1], type=Told) if acted else None
    except (msgspec.MsgspecError, RecursionError):
        told = None
    return msgspec.to_builtins(told.action) if told else {"kind": "message"}


def shown_last(messages: list[Message]) -> list[Json]:
    """The rows of the table as the agent showed it last."""
    parts = [part for message in messages for part in message.content if part["type"] == "tool_use"]
    tables: list[list[Json]] = [part["input"]["rows"] for part in parts if part["name"] == "weight_table"]
    return tables[-1] if tables else []


def moment(text: Any, zone: ZoneInfo) -> Any:
    """A time with its offset: a day alone is its noon, where the user is."""
    try:
        when = datetime.fromisoformat(text if "T" in text else f"{text}T12:00:00")
    except (TypeError, ValueError):
        return text  # the executor will say what is wrong
    return text if when.tzinfo else when.replace(tzinfo=zone).isoformat()


def row_of(values: Json, zone: ZoneInfo) -> Json:
    """What the user entered, as the executor takes it; a row that has no id there is a new one."""
    row = {
        "measured_at": moment(values.get("measured_at"), zone),
        "weight_lbs": values.get("weight_lbs"),
        "notes": values.get("notes") or "",
    }
    row_id = values.get("row_id")
    return row | ({"id": row_id} if is_saved(row_id) else {})


def is_saved(row_id: Any) -> bool:
    return isinstance(row_id, str) and row_id.startswith("wt_")


# what the user wrote or did


def message(turn: Turn) -> Iterator[ScriptPart]:
    """A weigh-in, a wish, or neither."""
    entries = entries_in(turn.text)
    if AUDIT.search(turn.text):
        yield ToolUse("weight_audit_list", {})
    elif len(entries) == 1:
        yield "Got it. Please confirm the entry:"
        yield ToolUse("weight_entry_form", {"entry": entries[0]})
    elif entries:
        yield "Got it. Please confirm the entries:"
        yield ToolUse("weight_table", {"rows": entries})
    elif SHOW.search(turn.text):
        yield ToolUse("weight_entries_list", {})
    else:
        yield HELP


def submitted(turn: Turn) -> Iterator[ScriptPart]:
    yield ToolUse("weight_entry_save_batch", {"rows": [row_of(turn.action["values"], turn.zone)]})


def table_saved(turn: Turn) -> Iterator[ScriptPart]:
    """One call for all rows; rows that the user deleted are deleted after it."""
    rows = [row_of(row, turn.zone) for row in turn.action["rows"]]
    if rows:
        yield ToolUse("weight_entry_save_batch", {"rows": rows})
    else:
        yield from taken_out(turn)


def taken_out(turn: Turn) -> Iterator[ScriptPart]:
    """Delete the saved rows that the user deleted in the table, or show what there is."""
    gone = [row_id for row_id in turn.action.get("deleted", ()) if is_saved(row_id)]
    yield ToolUse("weight_entry_delete", {"ids": gone}) if gone else ToolUse("weight_entries_list", {})


def row_deleted(turn: Turn) -> Iterator[ScriptPart]:
    """A saved row is deleted by the executor; one that was never saved is only shown no more."""
    row_id = turn.action["row_id"]
    if is_saved(row_id):
        yield ToolUse("weight_entry_delete", {"ids": [row_id]})
    else:
        names = [row.get("id") or f"new_{number}" for number, row in enumerate(turn.table, 1)]
        rest = [row for name, row in zip(names, turn.table, strict=True) if name != row_id]
        yield ToolUse("weight_table", {"rows": rest})


def row_added(turn: Turn) -> Iterator[ScriptPart]:
    yield "Please fill in the new entry:"
    yield ToolUse("weight_entry_form", {"entry": {"measured_at": "today"}})


def unknown(turn: Turn) -> Iterator[ScriptPart]:
    yield HELP


# what a call has brought


def saved(turn: Turn, result: Result) -> Iterator[ScriptPart]:
    """A sentence, or the table again; what was refused is shown where it is wrong."""
    if not result.ok:
        yield from refused(turn, json.loads(result.text))
    elif turn.action["kind"] == "table.save":
        yield f"Saved: {json.loads(result.text)['saved']} entries."
        yield from taken_out(turn)
    else:
        values = turn.action["values"]
        yield f"Saved: {values['weight_lbs']} lbs on {values['measured_at']}."


def refused(turn: Turn, fault: Json) -> Iterator[ScriptPart]:
    """Show the user's own values again, with the objection at its place."""
    path = (fault.get("details") or {}).get("path", [])
    if fault["code"] != "VALIDATION_ERROR" or path[:1] != ["rows"]:
        yield f"It is not saved: {fault['message']}."
        return
    yield f"That cannot be saved: {fault['message']}. Please correct it:"
    entered = [turn.action["values"]] if turn.action["kind"] == "form.submit" else turn.action["rows"]
    rows = [drafted(values) for values in entered]
    if len(path) > 1:
        rows[path[1]]["errors"] = {str(path[-1]): fault["message"]}
    if turn.action["kind"] == "form.submit":
        yield ToolUse("weight_entry_form", {"entry": rows[0]})
    else:
        rows += [row for row in turn.table if row.get("id") in turn.action.get("deleted", ())]
        yield ToolUse("weight_table", {"rows": rows})


def drafted(values: Json) -> Json:
    """What the user entered, to be shown again."""
    row_id = values.get("row_id")
    kept = {name: value for name, value in values.items() if name != "row_id"}
    return kept | ({"id": row_id} if is_saved(row_id) else {})


def deleted(turn: Turn, result: Result) -> Iterator[ScriptPart]:
    if result.ok:
        yield f"Deleted: {json.loads(result.text)['deleted']}."
    else:
        yield f"Nothing is deleted: {json.loads(result.text)['message']}."
    yield ToolUse("weight_entries_list", {})


def listed(turn: Turn, result: Result) -> Iterator[ScriptPart]:
    if not result.ok:
        yield f"The entries cannot be shown: {json.loads(result.text)['message']}."
        return
    rows = json.loads(result.text)["rows"]
    yield "These are your entries:" if rows else "There are no entries yet."
    yield ToolUse("weight_table", {"rows": rows})


def audited(turn: Turn, result: Result) -> Iterator[ScriptPart]:
    """What changed, when, by whom and by which call."""
    if not result.ok:
        yield f"The history cannot be shown: {json.loads(result.text)['message']}."
        return
    lines = [
        f"- {line['at']} {line['person']}: {told(change)} ({line['call_id']})"
        for line in json.loads(result.text)["changes"]
        for change in line["changes"]
    ]
    yield "\n".join(["What was changed, the last first:", *lines]) if lines else "Nothing was changed yet."


def told(change: dict[str, Any]) -> str:
    """A change in a few words."""
    before, after = change["before"], change["after"]
    if before is None:
        return f"added {brief(after)}"
    return f"deleted {brief(before)}" if after is None else f"changed {brief(before)} to {brief(after)}"


def brief(entry: Json) -> str:
    notes = f", {entry['notes']}" if entry["notes"] else ""
    return f"{entry['weight_lbs']:g} lbs on {entry['measured_at'][:10]}{notes}"


def nothing(turn: Turn, result: Result) -> Iterator[ScriptPart]:
    """The view speaks for itself."""
    return iter(())


FIRST: dict[str, Callable[[Turn], Iterator[ScriptPart]]] = {
    "message": message,
    "form.submit": submitted,
    "table.save": table_saved,
    "table.delete_row": row_deleted,
    "table.add_row": row_added,
}
AFTER: dict[str, Callable[[Turn, Result], Iterator[ScriptPart]]] = {
    "weight_entry_save_batch": saved,
    "weight_entry_delete": deleted,
    "weight_entries_list": listed,
    "weight_audit_list": audited,
    "weight_entry_form": nothing,
    "weight_table": nothing,
}
