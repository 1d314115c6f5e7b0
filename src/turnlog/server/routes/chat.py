"""`POST /api/chat/{role}`: direct events, then the turn, in one request that answers when it is over (000).

The page of a role sends what its buttons and forms mean as events, and what the person wrote. By the time the
model is asked, the state is right. State never comes from the page: a `seed` is taken and not used (C16). A
request with the same `Idempotency-Key`, or with events of the same ids and no message, is the same one again.
"""

from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnlog.app import Posted, Seat, Sessions
from turnlog.app.messages import Chat, Sent
from turnlog.errors import BadInput, InvalidEvent, NotFound, quote
from turnlog.events import UiMessage
from turnlog.ids import new_id
from turnlog.server.auth.authentication import known_of
from turnlog.server.request_body import body, checked_text
from turnlog.server.routes.api import MAX_EVENTS, Routes, answer, keyed_id, seen_bubbles
from turnlog.server.streaming.streams import Readers
from turnlog.state.transcript import Bubble


class DirectEvent(msgspec.Struct, forbid_unknown_fields=True):
    """An event of the application, by its bare name."""

    type: str
    data: dict[str, Any] = {}
    id: str | None = None


class ChatBody(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """What a page has to say."""

    session_id: str
    user_message: str | None = None
    direct_events: Annotated[list[DirectEvent], msgspec.Meta(max_length=MAX_EVENTS)] = []
    seed: Any = None


class ToldEvent(msgspec.Struct):
    """An event of the application in this turn, and who said it."""

    type: str
    data: msgspec.Raw
    origin: str


class ChatAnswer(msgspec.Struct, rename="camel"):
    """The state after the turn, what the assistant said last in it, its events, and the conversation."""

    turn: str
    seq: int
    state: Any
    assistant_message: str | None
    events: list[ToldEvent]
    messages: list[Bubble]


class ChatRoutes:
    """The route, on the routes of a server."""

    def __init__(self, routes: Routes, readers: Readers) -> None:
        self._routes = routes
        self._readers = readers

    async def chat(self, request: Request) -> Response:
        """One exchange of a role."""
        asked, role = await body(request, ChatBody), request.path_params["role"]
        seat = await self._routes.seat(request, asked.session_id)
        if not seat.may_speak_as(role):
            raise NotFound(f"no role {role[:80]} of yours in this session")
        channel = role if role in seat.app.channels else seat.channel
        sender = f"chat:{role}:{seat.session_id}:{seat.principal.name}"
        key = keyed_id(sender, request.headers.get("idempotency-key"))
        message = None
        if asked.user_message is not None:
            message = UiMessage(text=checked_text(asked.user_message, "$.userMessage"), channel=channel)
        direct = [posted(seat, n, event, key) for n, event in enumerate(asked.direct_events)]
        if message is None and not direct:
            raise BadInput("expected a userMessage or directEvents")
        sessions = self._routes.sessions()
        try:
            with self._readers.counted(known_of(request.scope)):  # it lasts as long as its turn
                sent = await sessions.chat(seat, Chat(channel, direct, message, key))
        except InvalidEvent as wrong:
            raise InvalidEvent(wrong.problem, path_in_chat(wrong.path)) from None
        request.scope["turnlog.turn"] = sent.turn
        return answer(await told(sessions, seat, sent))


def posted(seat: Seat, number: int, event: DirectEvent, key: str | None) -> Posted:
    """A direct event by its full name; only the application's own may come this way."""
    vocabulary = seat.app.vocabulary
    kind = vocabulary and (vocabulary.tag(event.type) or vocabulary.kinds.get(event.type))
    if not kind:
        path = f"$.directEvents[{number}].type"
        raise BadInput(f"expected an event of {seat.app.name}, got {quote(event.type)}", path)
    if event.id is not None:
        return Posted(kind.name, event.data, event.id)
    return Posted(kind.name, event.data, f"{key}_{number}" if key else new_id("evt_"))


def path_in_chat(path: str) -> str:
    """A path in what is posted, as a path in the body of a chat."""
    return path.replace("$.events[", "$.directEvents[", 1).replace("].payload", "].data", 1)


async def told(sessions: Sessions, seat: Seat, sent: Sent) -> ChatAnswer:
    """What became of an exchange."""
    panels = await sessions.panels(seat)
    bubbles = seen_bubbles(panels.transcript, seat)
    said = [bubble.text for bubble in bubbles if bubble.who == "assistant" and bubble.turn == sent.turn]
    events, after = [], sent.seq - 1
    own = seat.app.vocabulary.kinds if seat.app.vocabulary else {}
    while page := await sessions.log.read(seat.session_id, after, origin=-1):
        for row, envelope in zip(page, page.envelopes(), strict=True):
            if row.trace == sent.turn and row.type in own and seat.may_see(row.channel):
                events.append(ToldEvent(row.type.rpartition(".")[2], envelope.payload, envelope.origin))
        after = page.last
    return ChatAnswer(sent.turn, panels.seq, panels.state, said[-1] if said else None, events, bubbles)
