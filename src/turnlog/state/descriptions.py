"""Text descriptions of events, for the model's prompt, the transcript and the documents.

An action without words is described in words. An event that a page sent directly reads like the tag that a
model would write: its bare name and its data. The same values give the same text.
"""

from typing import TypeGuard

import msgspec

from turnlog.events import Envelope, Payload, UiAction, UiMessage, UnknownPayload
from turnlog.events.content import label_files

ACT_PREFIX = "[The user acted: "
RULE_PREFIX = "[It followed: "


def describe_input(type_name: str, payload: Payload) -> str:
    if isinstance(payload, UiMessage):
        return label_files(payload.text, payload.content)
    if isinstance(payload, UiAction):
        return describe_action({"action": payload.action, "view_id": payload.view_id})
    return describe_action({"type": bare_name(type_name), "data": payload})


def describe_action(fields: dict[str, object]) -> str:
    return f"{ACT_PREFIX}{encode_text(fields)}]"


def describe_app_event(envelope: Envelope, payload: Payload) -> str:
    """Describe an event of the application: as an act of the user, or as what a rule emitted."""
    if envelope.origin == "ui":
        return describe_input(envelope.type, payload)
    return f"{RULE_PREFIX}{encode_text({'type': bare_name(envelope.type), 'data': payload})}]"


def strip_descriptions(text: str) -> str:
    """Return a prompt without the lines that describe events: what a person wrote."""
    lines = [line for line in text.split("\n") if not line.startswith((ACT_PREFIX, RULE_PREFIX))]
    return "\n".join(lines)


def bare_name(type_name: str) -> str:
    return type_name.rpartition(".")[2]


def encode_text(fields: dict[str, object]) -> str:
    return msgspec.json.encode(fields).decode()


# The package's own classes carry their full names in TYPE; an application's classes do not.


def is_page_event(envelope: Envelope, payload: Payload | UnknownPayload) -> bool:
    return envelope.origin == "ui" and isinstance(payload, Payload) and not payload.TYPE


def is_app_event_for_model(payload: Payload | UnknownPayload, envelope: Envelope) -> TypeGuard[Payload]:
    """Return whether the model reads this event of the application: a page sent it, or a rule emitted it."""
    return envelope.origin in ("ui", "app") and isinstance(payload, Payload) and not payload.TYPE
