"""`/api/send`, `POST /api/events`, `/api/stop`: what a member sends to a session."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response

from turnlog.app import ClientEvent, Membership
from turnlog.app.attachments import AttachmentBody, attach_files, message_text
from turnlog.errors import BadInput, InvalidEvent
from turnlog.events import UiCommand, UiMessage
from turnlog.events.content import PromptPart
from turnlog.events.payload import Name
from turnlog.events.strict_json import convert_strict
from turnlog.ids import new_id, to_event_id
from turnlog.parse.json_values import as_name
from turnlog.server.auth.authentication import get_identity, get_session_creator
from turnlog.server.openapi import Operation, post_route
from turnlog.server.request_body import MAX_SMALL_BODY_BYTES, check_message_text, read_json_body
from turnlog.server.responses import json_response
from turnlog.server.routes.idempotency import make_idempotent_event_id
from turnlog.server.scope_keys import SESSION_KEY, TURN_KEY
from turnlog.server.session_access import SessionAccess
from turnlog.server.trace_context import read_traceparent
from turnlog.team.page_commands import COMMAND_BUILDERS, CommandFields, GridPosition
from turnlog.team.roster import NO_CHANNEL

# All events of a body are checked and appended at once, and other requests wait.
MAX_EVENTS_PER_BODY = 100


class SendBody(CommandFields, frozen=True, kw_only=True, rename="camel"):
    """A message, or a command of document 004. Unknown fields are ignored.

    Without `session` it goes to the caller's default session of the application. `text` is another name of
    `message`. `targetGridPosition` names the agent by its seat and wins over `targetAgent`. `speakerName` is
    shown with the message, unless it is the name of another member. `attachments` are files that the caller
    has uploaded to the session; a message with files may have no text.
    """

    type: Literal["user_message", "user_summon", "user_wake", "user_session_start", "user_session_end"] = (
        "user_message"
    )
    message: str | None = None
    text: str | None = None
    session: str | None = None
    app: str | None = None
    channel: Name | None = None
    target_agent: Name | None = None
    target_grid_position: GridPosition | None = None
    speaker_name: str | None = None
    attachments: tuple[AttachmentBody, ...] = ()


class SendResponse(msgspec.Struct, rename={"event_id": "eventId"}, omit_defaults=True):
    """The seq and the event id; the turn of a message; `session` if the request named none."""

    event_id: int
    id: str
    turn: str | None = None
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
            post_route("/api/send", self.send, "Send a message or a command.", SendBody, {202: SendResponse}),
            post_route("/api/stop", self.stop, "Stop what runs.", StopBody, {202: StopResponse}),
        ]

    async def send(self, request: Request) -> Response:
        body = await read_json_body(request, SendBody)
        build_command = COMMAND_BUILDERS.get(body.type)
        command = build_command(body) if build_command else None
        text = body.message or body.text or ""
        if command is None and (text or not body.attachments):
            check_message_text(text, "$.message")
        sessions = self._access.sessions
        if body.session is None:
            creator = get_session_creator(request.scope)
            membership = await sessions.ensure_default_session(creator, body.app)
        else:
            membership = await self._access.find_membership(request, body.session)
        session_id = membership.session_id
        request.scope[SESSION_KEY] = session_id
        default_session = None if body.session else session_id

        principal = get_identity(request.scope).principal
        key = request.headers.get("idempotency-key")
        event_id = make_idempotent_event_id(f"{session_id}:{principal.name}", key)
        if command is not None:
            posted = await self._post_command(membership, UiCommand(command=command), event_id)
            return json_response(SendResponse(*posted, session=default_session), 202)

        content = await self._attach(membership, text, body.attachments, "$.attachments")
        message = UiMessage(
            text=message_text(text, content),
            content=content,
            target=body.target_agent,
            channel=body.channel,
            traceparent=read_traceparent(request),
        )
        message = await self._with_speaker(membership, message, body.speaker_name)
        message = await self._with_seat(request, membership, message, body.target_grid_position)
        result = await sessions.send(membership, message, event_id)
        request.scope[TURN_KEY] = result.turn
        return json_response(SendResponse(result.seq, result.id, result.turn, default_session), 202)

    async def _attach(
        self, membership: Membership, text: str, files: Sequence[AttachmentBody], path: str
    ) -> tuple[PromptPart, ...]:
        """Return the content of a message with files; nothing for one without."""
        if not files:
            return ()
        membership.require_member()
        log = self._access.sessions.log
        return await attach_files(log, membership.app.attachments, membership.session_id, text, files, path)

    async def _attach_posted(self, membership: Membership, event: ClientEvent) -> ClientEvent:
        """Return a posted message whose `attachments` are its content, as they are in the log."""
        if event.type != UiMessage.TYPE or "attachments" not in event.payload:
            return event
        payload = dict(event.payload)
        path = f"{event.path}.payload.attachments"
        try:
            files = convert_strict(payload.pop("attachments"), list[AttachmentBody])
        except BadInput as error:
            raise BadInput(error.problem, path + error.path[1:]) from None
        text = str(payload.get("text", ""))
        content = await self._attach(membership, text, files, path)
        if content:
            payload |= {"text": message_text(text, content), "content": msgspec.to_builtins(content)}
        return event._replace(payload=payload)

    async def _post_command(
        self, membership: Membership, command: UiCommand, event_id: str | None
    ) -> tuple[int, str]:
        """Append a command as `POST /api/events` does. Return its seq and its id."""
        # Members may not choose an id of the form that a key leads to.
        posted_id = event_id.replace("evt_", "evt_key_") if event_id else new_id("evt_")
        event = ClientEvent(UiCommand.TYPE, msgspec.to_builtins(command), posted_id)
        try:
            [seq] = await self._access.sessions.post(membership, [event])
        except InvalidEvent as error:
            raise InvalidEvent(error.problem, "$.type") from None
        return seq, posted_id

    async def _with_speaker(
        self, membership: Membership, message: UiMessage, speaker_name: str | None
    ) -> UiMessage:
        """Return the message with the name that its page shows for the speaker, if it may have that name.

        The envelope has the principal in any case.
        """
        speaker = as_name((speaker_name or "").strip())
        if speaker is None:
            return message
        taken = await self._access.sessions.other_member_names(membership)
        return message if speaker.casefold() in taken else structs.replace(message, speaker=speaker)

    async def _with_seat(
        self, request: Request, membership: Membership, message: UiMessage, seat: int | None
    ) -> UiMessage:
        """Return the message with the agent in a seat as its target. Names of agents are not unique."""
        if seat is None:
            return message
        meter = self._access.start_read_meter(request)
        models = await self._access.sessions.load_read_models(membership, None, ["roster"], meter.charge)
        channel = message.channel or membership.channel
        team = models.roster.teams.get(channel or NO_CHANNEL) if membership.may_see(channel) else None
        member = team.seats.get(seat) if team else None
        if member is not None:
            return structs.replace(message, target=member.name, target_seat=seat)
        if message.target is None:
            raise BadInput(
                f"expected the seat of an agent, got the empty seat {seat}", "$.targetGridPosition"
            )
        return message

    async def post_events(self, request: Request) -> Response:
        post = parse_post(await read_json_body(request, object))
        membership = await self._access.find_membership(request, post.session_id)
        events = [await self._attach_posted(membership, event) for event in post.events]
        seqs = await self._access.sessions.post(membership, events)
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
    has_files_alone = not text and bool(body.payload.get("attachments"))
    if body.type == "ui.message" and isinstance(text, str) and not has_files_alone:
        check_message_text(text, f"{path}.payload.text")
    event_id = new_id("evt_") if body.id is None else to_event_id(body.id)
    return ClientEvent(body.type, body.payload, event_id, path, body.trace_id)
