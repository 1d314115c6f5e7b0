"""The answers of the agent without a paid model: each follows from the conversation alone.

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

from turnlog.agents import Script, ScriptPart, ScriptResult, ScriptTurn, ToolUse
from turnlog.events import Action
from turnlog_examples.weights.words import Json, entries_in

AUDIT = re.compile(r"\b(history|audit|changes|changed)\b", re.IGNORECASE)
SHOW = re.compile(r"\b(show|list|table|weights|entries)\b", re.IGNORECASE)
HELP = (
    "Tell me a weight, as in “Weigh-in 187.6 today”. I can also show your weights, and the history of "
    "what was changed."
)


class Step(NamedTuple):
    """The input of the next step: what the user wrote or did, and the results of calls since then."""

    text: str
    action: Json
    results: list[ScriptResult]
    table: list[Json]  # the rows as they were shown last
    zone: ZoneInfo


def make_script(zone: ZoneInfo) -> Script:
    """The script for a user in a time zone."""

    def weights(turn: ScriptTurn) -> Iterator[ScriptPart]:
        step = Step(turn.text, read_action(turn), turn.results, find_last_table(turn), zone)
        if step.results:
            return AFTER[step.results[-1].tool](step, step.results[-1])
        return FIRST.get(step.action["kind"], unknown)(step)

    return weights


def read_action(turn: ScriptTurn) -> Json:
    """Return the user's action; text that only looks like one is a message."""
    fields = turn.action or {}
    try:
        action = msgspec.convert(fields["action"], Action)
    except (KeyError, msgspec.MsgspecError):
        return {"kind": "message"}
    values: Json = msgspec.to_builtins(action)
    return values


def find_last_table(turn: ScriptTurn) -> list[Json]:
    """Return the rows of the table as the agent showed it last."""
    parts = [part for message in turn for part in message.content if part["type"] == "tool_use"]
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


def message(step: Step) -> Iterator[ScriptPart]:
    """A weigh-in, a wish, or neither."""
    entries = entries_in(step.text)
    if AUDIT.search(step.text):
        yield ToolUse("weight_audit_list", {})
    elif len(entries) == 1:
        yield "Got it. Please confirm the entry:"
        yield ToolUse("weight_entry_form", {"entry": entries[0]})
    elif entries:
        yield "Got it. Please confirm the entries:"
        yield ToolUse("weight_table", {"rows": entries})
    elif SHOW.search(step.text):
        yield ToolUse("weight_entries_list", {})
    else:
        yield HELP


def submitted(step: Step) -> Iterator[ScriptPart]:
    yield ToolUse("weight_entry_save_batch", {"rows": [row_of(step.action["values"], step.zone)]})


def table_saved(step: Step) -> Iterator[ScriptPart]:
    """One call for all rows; rows that the user deleted are deleted after it."""
    rows = [row_of(row, step.zone) for row in step.action["rows"]]
    if rows:
        yield ToolUse("weight_entry_save_batch", {"rows": rows})
    else:
        yield from taken_out(step)


def taken_out(step: Step) -> Iterator[ScriptPart]:
    """Delete the saved rows that the user deleted in the table, or show what there is."""
    gone = [row_id for row_id in step.action.get("deleted", ()) if is_saved(row_id)]
    yield ToolUse("weight_entry_delete", {"ids": gone}) if gone else ToolUse("weight_entries_list", {})


def row_deleted(step: Step) -> Iterator[ScriptPart]:
    """A saved row is deleted by the executor; one that was never saved is only shown no more."""
    row_id = step.action["row_id"]
    if is_saved(row_id):
        yield ToolUse("weight_entry_delete", {"ids": [row_id]})
    else:
        names = [row.get("id") or f"new_{number}" for number, row in enumerate(step.table, 1)]
        rest = [row for name, row in zip(names, step.table, strict=True) if name != row_id]
        yield ToolUse("weight_table", {"rows": rest})


def row_added(step: Step) -> Iterator[ScriptPart]:
    yield "Please fill in the new entry:"
    yield ToolUse("weight_entry_form", {"entry": {"measured_at": "today"}})


def unknown(step: Step) -> Iterator[ScriptPart]:
    yield HELP


# what a call has brought


def saved(step: Step, result: ScriptResult) -> Iterator[ScriptPart]:
    """A sentence, or the table again; what was refused is shown where it is wrong."""
    if not result.ok:
        yield from refused(step, json.loads(result.text))
    elif step.action["kind"] == "table.save":
        yield f"Saved: {json.loads(result.text)['saved']} entries."
        yield from taken_out(step)
    else:
        values = step.action["values"]
        yield f"Saved: {values['weight_lbs']} lbs on {values['measured_at']}."


def refused(step: Step, fault: Json) -> Iterator[ScriptPart]:
    """Show the user's own values again, with the objection at its place."""
    path = (fault.get("details") or {}).get("path", [])
    if fault["code"] != "VALIDATION_ERROR" or path[:1] != ["rows"]:
        yield f"It is not saved: {fault['message']}."
        return
    yield f"That cannot be saved: {fault['message']}. Please correct it:"
    entered = [step.action["values"]] if step.action["kind"] == "form.submit" else step.action["rows"]
    rows = [drafted(values) for values in entered]
    if len(path) > 1:
        rows[path[1]]["errors"] = {str(path[-1]): fault["message"]}
    if step.action["kind"] == "form.submit":
        yield ToolUse("weight_entry_form", {"entry": rows[0]})
    else:
        rows += [row for row in step.table if row.get("id") in step.action.get("deleted", ())]
        yield ToolUse("weight_table", {"rows": rows})


def drafted(values: Json) -> Json:
    """What the user entered, to be shown again."""
    row_id = values.get("row_id")
    kept = {name: value for name, value in values.items() if name != "row_id"}
    return kept | ({"id": row_id} if is_saved(row_id) else {})


def deleted(step: Step, result: ScriptResult) -> Iterator[ScriptPart]:
    if result.ok:
        yield f"Deleted: {json.loads(result.text)['deleted']}."
    else:
        yield f"Nothing is deleted: {json.loads(result.text)['message']}."
    yield ToolUse("weight_entries_list", {})


def listed(step: Step, result: ScriptResult) -> Iterator[ScriptPart]:
    if not result.ok:
        yield f"The entries cannot be shown: {json.loads(result.text)['message']}."
        return
    rows = json.loads(result.text)["rows"]
    yield "These are your entries:" if rows else "There are no entries yet."
    yield ToolUse("weight_table", {"rows": rows})


def audited(step: Step, result: ScriptResult) -> Iterator[ScriptPart]:
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


def nothing(step: Step, result: ScriptResult) -> Iterator[ScriptPart]:
    """The view speaks for itself."""
    return iter(())


FIRST: dict[str, Callable[[Step], Iterator[ScriptPart]]] = {
    "message": message,
    "form.submit": submitted,
    "table.save": table_saved,
    "table.delete_row": row_deleted,
    "table.add_row": row_added,
}
AFTER: dict[str, Callable[[Step, ScriptResult], Iterator[ScriptPart]]] = {
    "weight_entry_save_batch": saved,
    "weight_entry_delete": deleted,
    "weight_entries_list": listed,
    "weight_audit_list": audited,
    "weight_entry_form": nothing,
    "weight_table": nothing,
}
