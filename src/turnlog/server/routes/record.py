"""`POST /api/record`: events of an agent that runs elsewhere, from a principal of the role `source`."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from turnlog.app.recordings import RecordedEvent
from turnlog.errors import BadInput
from turnlog.events.payload import AgentId, Count, EventId, Role, TraceId
from turnlog.server.openapi import Operation, post_route
from turnlog.server.request_body import check_message_text, read_json_body
from turnlog.server.responses import json_response
from turnlog.server.routes.messages import MAX_EVENTS_PER_BODY
from turnlog.server.session_access import SessionAccess

Recorder = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{8,64}$(?!\n)")]


class RecordedEventBody(msgspec.Struct, forbid_unknown_fields=True):
    """One event of a recording. `agent_id` is its agent, also that of an `agent.start`.

    `trace_id` and `channel` are those of a new turn: its message and its first agent have them.
    """

    type: str
    id: EventId
    payload: dict[str, Any] = {}
    agent_id: AgentId | None = None
    trace_id: TraceId | None = None
    channel: Role | None = None


class RecordBody(msgspec.Struct, forbid_unknown_fields=True):
    """Without a `fence` the recording begins. With one its lease is renewed, and its events are appended.

    `recorder` is the name that the process has chosen for itself. `release` ends the recording.
    """

    session: str
    recorder: Recorder
    fence: Count | None = None
    events: Annotated[list[RecordedEventBody], Meta(max_length=MAX_EVENTS_PER_BODY)] = []
    release: bool = False


class RecordResponse(msgspec.Struct):
    """The fence, the last seq, the seqs of the events, and for how many seconds the lease was renewed."""

    fence: int
    last: int
    lease_s: float
    seqs: list[int]


class RecordRoutes:
    """The route of recordings."""

    def __init__(self, access: SessionAccess) -> None:
        self._access = access

    def operations(self) -> list[Operation]:
        return [
            post_route(
                "/api/record",
                self.record,
                "Record the events of an agent that runs elsewhere, under a lease.",
                RecordBody,
                {202: RecordResponse},
            )
        ]

    async def record(self, request: Request) -> Response:
        body = await read_json_body(request, RecordBody)
        membership = await self._access.find_membership(request, body.session)
        recordings = self._access.sessions.recordings
        if body.fence is None:
            if body.events or body.release:
                raise BadInput("expected a fence: a recording begins without events", "$.fence")
            state = await recordings.begin(membership, body.recorder)
            return json_response(RecordResponse(*state, seqs=[]), 202)

        items = [make_recorded_event(item, f"$.events[{number}]") for number, item in enumerate(body.events)]
        state, seqs = await recordings.append(membership, body.recorder, body.fence, items)
        if body.release:
            await recordings.release(membership, body.recorder, body.fence)
        return json_response(RecordResponse(*state, seqs=seqs), 202)


def make_recorded_event(body: RecordedEventBody, path: str) -> RecordedEvent:
    text = body.payload.get("text")
    if body.type == "ui.message" and isinstance(text, str):
        check_message_text(text, f"{path}.payload.text")
    return RecordedEvent(body.type, body.payload, body.id, path, body.agent_id, body.trace_id, body.channel)
