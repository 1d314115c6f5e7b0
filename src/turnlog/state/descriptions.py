"""How an event is told, and to whom: shared by a model's prompt, the transcript and the documents.

What people do without words is told in words. An event that a page sends directly reads like the tag that a
model would write: its bare name and its data.
"""

from typing import TypeGuard

import msgspec

from turnlog.events import Envelope, Payload, UiAction, UiMessage, UnknownPayload
from turnlog.events.catalog import get_payload_channel


def describe_input(name: str, payload: Payload) -> str:
    """A message as it is; an action, or an event of the application by its name, told."""
    if isinstance(payload, UiMessage):
        return payload.text
    if isinstance(payload, UiAction):
        return describe_action({"action": payload.action, "view_id": payload.view_id})
    return describe_action({"type": name.rpartition(".")[2], "data": payload})


def describe_action(fields: dict[str, object]) -> str:
    """What somebody did, as the model reads it: the same values give the same text."""
    return f"[The user acted: {msgspec.json.encode(fields).decode()}]"


def describe_app_event(envelope: Envelope, payload: Payload) -> str:
    """An event of the application, told as what it is: somebody acted, or something followed."""
    if envelope.origin == "ui":
        return describe_input(envelope.type, payload)
    fields = {"type": envelope.type.rpartition(".")[2], "data": payload}
    return f"[It followed: {msgspec.json.encode(fields).decode()}]"


def is_page_event(envelope: Envelope, payload: Payload | UnknownPayload) -> bool:
    """Whether a page sent an event of the application; the package's own classes carry their names."""
    return envelope.origin == "ui" and isinstance(payload, Payload) and not payload.TYPE


def is_app_event_for_model(payload: Payload | UnknownPayload, envelope: Envelope) -> TypeGuard[Payload]:
    """Whether an event of the application is news to the model: a page sent it, or a rule said it."""
    return envelope.origin in ("ui", "app") and isinstance(payload, Payload) and not payload.TYPE


def visible_channel(envelope: Envelope, payload: Payload | UnknownPayload) -> str | None:
    """The role whose members alone see an event; none is everybody. Older events say it in their payload."""
    return envelope.channel or get_payload_channel(payload)
