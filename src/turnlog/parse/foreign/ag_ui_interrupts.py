"""Interrupts of AG-UI as values: which form of an answer the agent expects. Pure, never raises.

The core reasons are `tool_call` and `confirmation`, answered by `{"approved": ...}`, and `input_required`,
answered by any value. LangGraph passes the request of its middleware on: a list of actions, answered by a
list of decisions. Servers before interrupts send the same request as a CUSTOM event `on_interrupt`.
"""

from contextlib import suppress
from typing import Any, Literal, NamedTuple

from turnlog.errors import BadInput
from turnlog.parse.foreign.common import get_text
from turnlog.parse.json_values import JsonObject, as_list, decode_json, get_field

ON_INTERRUPT = "on_interrupt"
APPROVAL_REASONS = frozenset({"tool_call", "confirmation"})
REASON_FIELDS = ("reason", "notes", "message", "feedback")  # for a denial, if the schema has one of them

AnswerForm = Literal["approval", "decisions", "value"]


class Interrupt(NamedTuple):
    """A question of a run. `interrupt_id` is None if it came as a CUSTOM event.

    `actions` are the calls that the `decisions` are about. `reason_field` is where a denial says why.
    """

    interrupt_id: str | None
    form: AnswerForm
    message: str | None
    call_id: str | None = None
    subagent_run_id: str = ""
    actions: tuple[Any, ...] = ()
    reason_field: str = REASON_FIELDS[0]
    args: JsonObject | None = None


def read_interrupt(item: Any) -> Interrupt:
    schema = get_field(get_field(item, "responseSchema"), "properties")
    fields = schema if isinstance(schema, dict) else {}
    raw = get_field(get_field(get_field(item, "metadata"), "langgraph"), "raw")
    actions = tuple(as_list(get_field(raw, "action_requests")))
    is_approval = "approved" in fields or get_text(item, "reason") in APPROVAL_REASONS
    form: AnswerForm = "approval" if is_approval else "value"
    if actions:
        form = "decisions"
    message = get_text(item, "message") or None
    return Interrupt(
        get_text(item, "id"),
        form,
        message,
        get_text(item, "toolCallId") or None,
        get_text(item, "subagentRunId"),
        actions,
        next((name for name in REASON_FIELDS if name in fields), REASON_FIELDS[0]),
        describe_question(message, raw),
    )


def read_old_interrupt(event: Any) -> Interrupt | None:
    """Return the interrupt that a CUSTOM event has; None if it is about something else."""
    if get_text(event, "name") != ON_INTERRUPT:
        return None
    value = get_field(event, "value")
    if isinstance(value, str):
        with suppress(BadInput):  # else it is a question in words
            value = decode_json(value.encode(errors="replace"))
    actions = tuple(as_list(get_field(value, "action_requests")))
    message = value if isinstance(value, str) else None
    form: AnswerForm = "decisions" if actions else "value"
    return Interrupt(None, form, message, actions=actions, args=describe_question(message, value))


def describe_question(message: str | None, raw: Any) -> JsonObject:
    """Return what the page shows of a question."""
    if isinstance(raw, dict):
        return dict(raw)
    return {"question": message or raw}
