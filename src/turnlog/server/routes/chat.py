"""`POST /api/chat/{role}`: events and a message in one request, which is answered when the turn has ended.

The page of a role sends the meaning of its buttons and forms as events, and the text that the person wrote.
The events are appended before the model is called, so the model sees the new state. The server never takes
state from the page: it accepts `seed` and ignores it (C16). A request with the same `Idempotency-Key`, or
with events of the same ids and no message, has its effect once.
"""

from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnlog.app import ClientEvent, Membership, Sessions
from turnlog.app.messages import Chat, SendResult
from turnlog.errors import BadInput, InvalidEvent, NotFound, quote
from turnlog.events import UiMessage
from turnlog.ids import new_id, to_event_id
from turnlog.server.auth.authentication import get_identity
from turnlog.server.openapi import Operation, post_route
from turnlog.server.request_body import check_message_text, read_json_body
from turnlog.server.responses import json_response
from turnlog.server.routes.idempotency import make_idempotent_event_id
from turnlog.server.routes.messages import MAX_EVENTS_PER_BODY
from turnlog.server.routes.state import visible_transcript
from turnlog.server.scope_keys import TURN_KEY
from turnlog.server.session_access import SessionAccess
from turnlog.server.streaming.streams import StreamRegistry
from turnlog.server.trace_context import read_traceparent
from turnlog.state.transcript import TranscriptEntry


class DirectEvent(msgspec.Struct, forbid_unknown_fields=True):
    """An event of the application, by its bare name. A bare UUID is the id `evt_<uuid>`."""

    type: str
    data: dict[str, Any] = {}
    id: str | None = None


class ChatBody(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """Events, then a message; at least one of them."""

    session_id: str
    user_message: str | None = None
    direct_events: Annotated[list[DirectEvent], msgspec.Meta(max_length=MAX_EVENTS_PER_BODY)] = []
    seed: Any = None


class ChatAppEvent(msgspec.Struct):
    """An event of the application in this turn, and its origin."""

    type: str
    data: msgspec.Raw
    origin: str


class ChatResponse(msgspec.Struct, rename="camel"):
    """The state after the turn, the text to show (may be empty), its events, and the conversation."""

    turn: str
    seq: int
    state: Any
    display_text: str
    events: list[ChatAppEvent]
    messages: list[TranscriptEntry]


class ChatRoutes:
    """The route that responds when a turn has ended."""

    def __init__(self, access: SessionAccess, streams: StreamRegistry) -> None:
        self._access = access
        self._streams = streams

    def operations(self) -> list[Operation]:
        return [
            post_route(
                "/api/chat/{role}",
                self.chat,
                "Direct events and a message, answered when the turn is over.",
                ChatBody,
                {200: ChatResponse},
            )
        ]

    async def chat(self, request: Request) -> Response:
        body = await read_json_body(request, ChatBody)
        role = request.path_params["role"]
        membership = await self._access.find_membership(request, body.session_id)
        if not membership.may_speak_as(role):
            raise NotFound(f"no role {role[:80]} of yours in this session")
        channel = role if role in membership.app.channels else membership.channel

        sender = f"chat:{role}:{membership.session_id}:{membership.principal.name}"
        key = make_idempotent_event_id(sender, request.headers.get("idempotency-key"))
        message = None
        if body.user_message is not None:
            text = check_message_text(body.user_message, "$.userMessage")
            # a request with a key may be sent again, with another span of its sender
            traceparent = read_traceparent(request) if key is None else None
            message = UiMessage(text=text, channel=channel, traceparent=traceparent)
        events = [
            to_client_event(membership, index, event, key) for index, event in enumerate(body.direct_events)
        ]
        if message is None and not events:
            raise BadInput("expected a userMessage or directEvents")

        sessions = self._access.sessions
        try:
            # The request lasts as long as its turn, so it counts as a stream.
            with self._streams.count_stream(get_identity(request.scope)):
                sent = await sessions.chat(membership, Chat(channel, events, message, key))
        except InvalidEvent as error:
            raise InvalidEvent(error.problem, to_chat_path(error.path)) from None
        request.scope[TURN_KEY] = sent.turn
        return json_response(await make_chat_response(sessions, membership, sent))


def to_client_event(membership: Membership, index: int, event: DirectEvent, key: str | None) -> ClientEvent:
    """Return the event under its full name. Raise `BadInput` if the application does not declare it."""
    vocabulary = membership.app.vocabulary
    event_type = None
    if vocabulary is not None:
        event_type = vocabulary.find_tag(event.type) or vocabulary.types.get(event.type)
    if event_type is None:
        path = f"$.directEvents[{index}].type"
        raise BadInput(f"expected an event of {membership.app.name}, got {quote(event.type)}", path)

    event_id = f"{key}_{index}" if key else new_id("evt_")
    if event.id is not None:
        event_id = to_event_id(event.id)
    return ClientEvent(event_type.name, event.data, event_id, f"$.directEvents[{index}]")


def to_chat_path(path: str) -> str:
    """Return the path in a chat's body, where the payload of an event is its `data`."""
    return path.replace("].payload", "].data", 1)


async def make_chat_response(sessions: Sessions, membership: Membership, sent: SendResult) -> ChatResponse:
    models = await sessions.load_read_models(membership)
    entries = visible_transcript(models.transcript, membership)
    # The texts of this request alone: a turn that waited has texts of earlier requests, too.
    texts = [
        entry.text
        for entry in entries
        if entry.who == "assistant" and entry.turn == sent.turn and entry.seq > sent.seq and entry.depth == 0
    ]

    events = []
    view = membership.event_view
    app_types = membership.app.vocabulary.types if membership.app.vocabulary else {}
    after_seq = sent.seq - 1
    while page := await sessions.log.read(membership.session_id, after_seq, replay_from=-1):
        for row, envelope in zip(page, page.envelopes(), strict=True):
            is_visible = membership.may_see(row.channel) and view.shows_app_type(row.type)
            if row.trace == sent.turn and row.type in app_types and is_visible:
                bare_name = row.type.rpartition(".")[2]
                events.append(ChatAppEvent(bare_name, envelope.payload, envelope.origin))
        after_seq = page.last

    return ChatResponse(sent.turn, models.seq, models.state, "\n\n".join(texts), events, entries)
