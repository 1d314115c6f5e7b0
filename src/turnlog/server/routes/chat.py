"""`POST /api/chat/{role}`: direct events, then the turn, in one request that answers when it is over (000).

The page of a role sends what its buttons and forms mean as events, and what the person wrote. By the time the
model is asked, the state is right. State never comes from the page: a `seed` is taken and not used (C16). A
request with the same `Idempotency-Key`, or with events of the same ids and no message, is the same one again.
"""

from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnlog.app import ClientEvent, Membership, Sessions
from turnlog.app.messages import Chat, SendResult
from turnlog.errors import BadInput, InvalidEvent, NotFound, quote
from turnlog.events import UiMessage
from turnlog.ids import new_id
from turnlog.server.auth.authentication import get_identity
from turnlog.server.request_body import check_message_text, read_json_body
from turnlog.server.routes.api import (
    MAX_EVENTS_PER_BODY,
    ApiRoutes,
    json_response,
    make_idempotent_event_id,
    visible_transcript,
)
from turnlog.server.streaming.streams import StreamRegistry
from turnlog.state.transcript import TranscriptEntry


class DirectEvent(msgspec.Struct, forbid_unknown_fields=True):
    """An event of the application, by its bare name."""

    type: str
    data: dict[str, Any] = {}
    id: str | None = None


class ChatBody(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """What a page has to say."""

    session_id: str
    user_message: str | None = None
    direct_events: Annotated[list[DirectEvent], msgspec.Meta(max_length=MAX_EVENTS_PER_BODY)] = []
    seed: Any = None


class ChatAppEvent(msgspec.Struct):
    """An event of the application in this turn, and who said it."""

    type: str
    data: msgspec.Raw
    origin: str


class ChatResponse(msgspec.Struct, rename="camel"):
    """The state after the turn, what the assistant said last in it, its events, and the conversation."""

    turn: str
    seq: int
    state: Any
    assistant_message: str | None
    events: list[ChatAppEvent]
    messages: list[TranscriptEntry]


class ChatRoutes:
    """The route, on the routes of a server."""

    def __init__(self, routes: ApiRoutes, streams: StreamRegistry) -> None:
        self._routes = routes
        self._streams = streams

    async def chat(self, request: Request) -> Response:
        """One exchange of a role."""
        asked, role = await read_json_body(request, ChatBody), request.path_params["role"]
        seat = await self._routes.find_membership(request, asked.session_id)
        if not seat.may_speak_as(role):
            raise NotFound(f"no role {role[:80]} of yours in this session")
        channel = role if role in seat.app.channels else seat.channel
        sender = f"chat:{role}:{seat.session_id}:{seat.principal.name}"
        key = make_idempotent_event_id(sender, request.headers.get("idempotency-key"))
        message = None
        if asked.user_message is not None:
            message = UiMessage(text=check_message_text(asked.user_message, "$.userMessage"), channel=channel)
        direct = [to_client_event(seat, n, event, key) for n, event in enumerate(asked.direct_events)]
        if message is None and not direct:
            raise BadInput("expected a userMessage or directEvents")
        sessions = self._routes.sessions()
        try:
            with self._streams.count_stream(get_identity(request.scope)):  # it lasts as long as its turn
                sent = await sessions.chat(seat, Chat(channel, direct, message, key))
        except InvalidEvent as wrong:
            raise InvalidEvent(wrong.problem, to_chat_path(wrong.path)) from None
        request.scope["turnlog.turn"] = sent.turn
        return json_response(await make_chat_response(sessions, seat, sent))


def to_client_event(membership: Membership, number: int, event: DirectEvent, key: str | None) -> ClientEvent:
    """A direct event by its full name; only the application's own may come this way."""
    vocabulary = membership.app.vocabulary
    kind = vocabulary and (vocabulary.find_tag(event.type) or vocabulary.types.get(event.type))
    if not kind:
        path = f"$.directEvents[{number}].type"
        raise BadInput(f"expected an event of {membership.app.name}, got {quote(event.type)}", path)
    if event.id is not None:
        return ClientEvent(kind.name, event.data, event.id)
    return ClientEvent(kind.name, event.data, f"{key}_{number}" if key else new_id("evt_"))


def to_chat_path(path: str) -> str:
    """A path in what is posted, as a path in the body of a chat."""
    return path.replace("$.events[", "$.directEvents[", 1).replace("].payload", "].data", 1)


async def make_chat_response(sessions: Sessions, membership: Membership, sent: SendResult) -> ChatResponse:
    """What became of an exchange."""
    panels = await sessions.load_read_models(membership)
    bubbles = visible_transcript(panels.transcript, membership)
    said = [bubble.text for bubble in bubbles if bubble.who == "assistant" and bubble.turn == sent.turn]
    events, after = [], sent.seq - 1
    own = membership.app.vocabulary.types if membership.app.vocabulary else {}
    while page := await sessions.log.read(membership.session_id, after, replay_from=-1):
        for row, envelope in zip(page, page.envelopes(), strict=True):
            if row.trace == sent.turn and row.type in own and membership.may_see(row.channel):
                events.append(ChatAppEvent(row.type.rpartition(".")[2], envelope.payload, envelope.origin))
        after = page.last
    return ChatResponse(sent.turn, panels.seq, panels.state, said[-1] if said else None, events, bubbles)
