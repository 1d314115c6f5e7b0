"""Build events from the envelopes of other systems, which have no seq and no origin (protocol 6.6). Pure.

A call without a `call_id` gets the id of its event. A result without one answers the only open call of its
tool among the drafts before it, or of its turn if it names one. A time or a turn that has another form does
not count.
"""

from typing import Any, NamedTuple

import msgspec

from turnlog.errors import InvalidEvent, quote
from turnlog.events import CATALOG, EnvelopeDraft, Event, Origin, Scope, ToolResult, UnknownPayload
from turnlog.events.catalog import EventType
from turnlog.events.envelope import is_trace_id, parse_timestamp_ms
from turnlog.events.payload import Payload, Timestamp

# The parties of document 002 first. A type without one of these origins comes from the server.
ORIGIN_ORDER: tuple[Origin, ...] = ("ui", "model", "tool", "app")


class OpenDraftCall(NamedTuple):
    tool: object
    trace_id: str | None


class DraftBuilder:
    """Builds the events of one session's drafts, in their order."""

    def __init__(self) -> None:
        self._open_calls: dict[str, OpenDraftCall] = {}  # by call id

    def build(self, draft: EnvelopeDraft) -> Event:
        """Build the event of a draft. Raise `InvalidEvent` if its payload does not fit its type."""
        payload = self._with_call_id(draft)
        scope = Scope(trace_id=draft.trace_id if is_trace_id(draft.trace_id) else None)
        event_type = CATALOG.types.get(draft.type)
        body = msgspec.json.encode(payload)
        if event_type is not None:
            origin = get_draft_origin(event_type, event_type.decode_payload(body))
            return CATALOG.build_event(draft.type, payload, id=draft.id, origin=origin, scope=scope)
        return Event(
            type=draft.type,
            id=draft.id,
            payload=UnknownPayload(msgspec.Raw(body)),
            body=body,
            origin="app",
            scope=scope,
        )

    def _with_call_id(self, draft: EnvelopeDraft) -> dict[str, Any]:
        payload = draft.payload
        if draft.type == "tool.call":
            payload = {"call_id": draft.id, **payload}
            self._open_calls[str(payload["call_id"])] = OpenDraftCall(payload.get("tool"), draft.trace_id)
        elif draft.type == "tool.result":
            if "call_id" not in payload:
                payload = {"call_id": self._find_call(draft), **payload}
            self._open_calls.pop(str(payload["call_id"]), None)
        return payload

    def _find_call(self, draft: EnvelopeDraft) -> str:
        tool = draft.payload.get("tool")
        call_ids = [
            call_id
            for call_id, call in self._open_calls.items()
            if call.tool == tool and draft.trace_id in (None, call.trace_id)
        ]
        if len(call_ids) != 1:
            problem = f"expected one open call of {quote(tool)} before it, got {len(call_ids)}"
            raise InvalidEvent(f"{problem}; add the call_id", "$.payload")
        return call_ids[0]


def get_draft_origin(event_type: EventType, payload: Payload) -> Origin:
    """Return the party that emits such an event: a tool its results, a page its input, a model the rest."""
    if isinstance(payload, ToolResult):
        return "tool"
    for origin in ORIGIN_ORDER:
        if event_type.allows_origin(payload, origin):
            return origin
    return "system"


def parse_draft_time_ms(draft: EnvelopeDraft) -> int | None:
    """Return the time of a draft in milliseconds since 1970; None if it has no valid one."""
    try:
        ts = msgspec.convert(draft.ts, Timestamp)
    except msgspec.ValidationError:
        return None
    return parse_timestamp_ms(ts) or None
