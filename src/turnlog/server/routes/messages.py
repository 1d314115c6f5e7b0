"""`/api/send`, `POST /api/events`, `/api/stop`: what a member sends to a session."""

from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnlog.app import ClientEvent
from turnlog.events import UiMessage
from turnlog.events.payload import Name, Record
from turnlog.ids import new_id, to_event_id
from turnlog.server.auth.authentication import get_identity, get_session_creator
from turnlog.server.openapi import Operation, post_route
from turnlog.server.request_body import MAX_SMALL_BODY_BYTES, check_message_text, read_json_body
from turnlog.server.responses import json_response
from turnlog.server.routes.idempotency import make_idempotent_event_id
from turnlog.server.scope_keys import SESSION_KEY, TURN_KEY
from turnlog.server.session_access import SessionAccess

# All events of a body are checked and appended at once, and other requests wait.
MAX_EVENTS_PER_BODY = 100


class SendBody(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message. Without `session` it goes to the caller's default session of the application."""

    message: str
    session: str | None = None
    app: str | None = None
    channel: Name | None = None
    target_agent: Name | None = msgspec.field(default=None, name="targetAgent")


class SendResponse(msgspec.Struct, rename={"event_id": "eventId"}, omit_defaults=True):
    """The seq, the event id and the turn of the message; `session` if the request named none."""

    event_id: int
    id: str
    turn: str
    session: str | None = None


class EventBody(msgspec.Struct, forbid_unknown_fields=True):
    """One event that a client posts. A bare UUID is the id `evt_<uuid>`."""

    type: str
    payload: dict[str, Any] = {}
    id: str | None = None


class PostEventsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Events that are appended together or not at all."""

    session: str
    events: Annotated[list[EventBody], msgspec.Meta(max_length=MAX_EVENTS_PER_BODY)]


class PostEventsResponse(msgspec.Struct):
    """The seqs of the events, in the order of the request."""

    seqs: list[int]


class StopBody(msgspec.Struct, forbid_unknown_fields=True):
    """The session to stop."""

    session: str


class StopResponse(msgspec.Struct, rename={"event_id": "eventId"}):
    """The seq of the stop command."""

    event_id: int


class MessageRoutes:
    """The routes that append what members send."""

    def __init__(self, access: SessionAccess) -> None:
        self._access = access

    def operations(self) -> list[Operation]:
        return [
            post_route(
                "/api/events",
                self.post_events,
                "Post events: answers, actions, the application's own.",
                PostEventsBody,
                {202: PostEventsResponse},
            ),
            post_route("/api/send", self.send, "Send a message.", SendBody, {202: SendResponse}),
            post_route("/api/stop", self.stop, "Stop what runs.", StopBody, {202: StopResponse}),
        ]

    async def send(self, request: Request) -> Response:
        body = await read_json_body(request, SendBody)
        text = check_message_text(body.message, "$.message")
        sessions = self._access.sessions
        if body.session is None:
            creator = get_session_creator(request.scope)
            membership = await sessions.ensure_default_session(creator, body.app)
        else:
            membership = await self._access.find_membership(request, body.session)
        session_id = membership.session_id

        message = UiMessage(text=text, target=body.target_agent, channel=body.channel)
        principal = get_identity(request.scope).principal
        key = request.headers.get("idempotency-key")
        event_id = make_idempotent_event_id(f"{session_id}:{principal.name}", key)
        result = await sessions.send(membership, message, event_id)

        request.scope[SESSION_KEY] = session_id
        request.scope[TURN_KEY] = result.turn
        default_session = None if body.session else session_id
        return json_response(SendResponse(result.seq, result.id, result.turn, default_session), 202)

    async def post_events(self, request: Request) -> Response:
        body = await read_json_body(request, PostEventsBody)
        membership = await self._access.find_membership(request, body.session)
        events = [
            ClientEvent(
                event.type, event.payload, new_id("evt_") if event.id is None else to_event_id(event.id)
            )
            for event in body.events
        ]
        return json_response(PostEventsResponse(await self._access.sessions.post(membership, events)), 202)

    async def stop(self, request: Request) -> Response:
        body = await read_json_body(request, StopBody, MAX_SMALL_BODY_BYTES)
        membership = await self._access.find_membership(request, body.session)
        return json_response(StopResponse(await self._access.sessions.stop(membership)), 202)
