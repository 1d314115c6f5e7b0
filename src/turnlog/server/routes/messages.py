"""`/api/send`, `POST /api/events`, `/api/stop`: what a member sends to a session."""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnlog.app import ClientEvent
from turnlog.errors import BadInput
from turnlog.events import UiMessage
from turnlog.events.payload import Name, Record
from turnlog.events.strict_json import convert_strict
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
    """One event that a client posts, as a whole envelope or as a part of one. A bare UUID is `evt_<uuid>`.

    The server ignores `ts`. `trace_id` selects the call that a result without a `call_id` answers, and has no
    other effect.
    """

    type: str
    payload: dict[str, Any] = {}
    id: str | None = None
    ts: str | None = None
    trace_id: str | None = None
    session_id: str | None = None


EventBodies = Annotated[list[EventBody], msgspec.Meta(max_length=MAX_EVENTS_PER_BODY)]


class PostEventsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Events that are appended together or not at all."""

    session: str
    events: EventBodies


class PostEventsResponse(msgspec.Struct):
    """The seqs of the events, in the order of the request."""

    seqs: list[int]


class Post(NamedTuple):
    """The events of a request, and the session that they are for."""

    session_id: str
    events: list[ClientEvent]


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
                "Post events: messages, answers, actions, the application's own.",
                PostEventsBody,
                {202: PostEventsResponse},
                other_bodies=(EventBody, EventBodies),
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
        post = parse_post(await read_json_body(request, object))
        membership = await self._access.find_membership(request, post.session_id)
        seqs = await self._access.sessions.post(membership, post.events)
        return json_response(PostEventsResponse(seqs), 202)

    async def stop(self, request: Request) -> Response:
        body = await read_json_body(request, StopBody, MAX_SMALL_BODY_BYTES)
        membership = await self._access.find_membership(request, body.session)
        return json_response(StopResponse(await self._access.sessions.stop(membership)), 202)


def parse_post(body: object) -> Post:
    """Return the events of a body: one envelope, a list of envelopes, or a `PostEventsBody`.

    All of them are for one session. Raise `BadInput` with the path.
    """
    if isinstance(body, list):
        envelopes = convert_strict(body, EventBodies)
        if not envelopes:
            raise BadInput("expected at least one envelope")
        return make_post(envelopes[0].session_id, envelopes, "$[{}]")
    if isinstance(body, dict) and "type" in body:
        envelope = convert_strict(body, EventBody)
        return make_post(envelope.session_id, [envelope], "$")
    posted = convert_strict(body, PostEventsBody)
    return make_post(posted.session, posted.events, "$.events[{}]")


def make_post(session_id: str | None, bodies: Sequence[EventBody], path_format: str) -> Post:
    paths = [path_format.format(number) for number in range(len(bodies))]
    if session_id is None:
        raise BadInput("expected the session of the event", f"{paths[0]}.session_id")
    for body, path in zip(bodies, paths, strict=True):
        if body.session_id not in (None, session_id):
            raise BadInput("expected events of one session in a request", f"{path}.session_id")
    return Post(session_id, [make_client_event(body, path) for body, path in zip(bodies, paths, strict=True)])


def make_client_event(body: EventBody, path: str) -> ClientEvent:
    text = body.payload.get("text")
    if body.type == "ui.message" and isinstance(text, str):
        check_message_text(text, f"{path}.payload.text")
    event_id = new_id("evt_") if body.id is None else to_event_id(body.id)
    return ClientEvent(body.type, body.payload, event_id, path, body.trace_id)
