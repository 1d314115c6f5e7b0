"""What the server can be asked, but for streams: each route takes a body of a declared shape and a seat.

Every route that names a session goes through `Sessions.seat` first, so a session that is not there and one of
somebody else are the same 404.
"""

import time
from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

import turnlog
from turnlog.agents.tools import PICTURES
from turnlog.app import App, Posted, Seat, Sessions
from turnlog.app.read_models import Panels
from turnlog.app.sessions import PAGE_SESSIONS
from turnlog.errors import BadInput, Unavailable, quote
from turnlog.events import UiMessage, is_session_id
from turnlog.events.catalog import Misfit
from turnlog.events.envelope import timestamp
from turnlog.events.payload import Name, Record
from turnlog.ids import new_id
from turnlog.log import Head, Place
from turnlog.log.filter import Choice
from turnlog.log.transfer import export_session
from turnlog.server.auth.authentication import known_of, maker_of
from turnlog.server.auth.credentials import is_guest
from turnlog.server.limits import Budgets
from turnlog.server.read_cost import ReadMeter
from turnlog.server.request_body import SMALL_BYTES, body, checked_text
from turnlog.server.streaming.query import Gone, continued
from turnlog.state.meters import Meters
from turnlog.state.pending import pending
from turnlog.state.roster import Roster, Team, report
from turnlog.state.transcript import Bubble, Transcript
from turnlog.state.tree import Tree
from turnlog.wire import cursor

KEY_CHARS = 256
PART_BYTES = 64 * 1024  # of an export
MAX_PAGE_SESSIONS = 500  # some 100 KiB
PAGE_DOCUMENTED, MAX_PAGE_DOCUMENTED = 20, 100  # sessions in one page of documents: each has many
MAX_EVENTS = 100  # in one body: all of them are checked and appended at once, and other requests wait
BLOB_HEADERS = {
    "content-disposition": "attachment",
    "content-security-policy": "default-src 'none'; sandbox",
    "cache-control": "private, max-age=31536000, immutable",
}


class SendBody(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message; without a session it goes to the caller's own one of the application."""

    message: str
    session: str | None = None
    app: str | None = None
    channel: Name | None = None
    target_agent: Name | None = msgspec.field(default=None, name="targetAgent")


class SendAnswer(msgspec.Struct, rename={"event_id": "eventId"}, omit_defaults=True):
    """Where the message is; the session is said to who did not name one."""

    event_id: int
    id: str
    turn: str
    session: str | None = None


class EventBody(msgspec.Struct, forbid_unknown_fields=True):
    """One event that a page may post."""

    type: str
    payload: dict[str, Any] = {}
    id: str | None = None


class EventsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Events of a page, all or none."""

    session: str
    events: Annotated[list[EventBody], msgspec.Meta(max_length=MAX_EVENTS)]


class EventsAnswer(msgspec.Struct):
    """Where they are, in the order they were posted."""

    seqs: list[int]


class StopBody(msgspec.Struct, forbid_unknown_fields=True):
    """The session to stop."""

    session: str


class StopAnswer(msgspec.Struct, rename={"event_id": "eventId"}):
    """Where the stop is."""

    event_id: int


class NewSession(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A session to make: of which application, called what."""

    app: str | None = None
    title: Name | None = None


class MadeSession(msgspec.Struct):
    """The session that was made."""

    session_id: str


class SessionInfo(msgspec.Struct):
    """A session as its member sees it. `state` is idle, running, waiting or closed. `invites` are the roles
    that the member may make links for. `last` is there for members who see every channel."""

    session_id: str
    app: str
    title: str
    state: str
    roles: list[str]
    members: int
    created: str
    last_activity: str
    invites: list[str]
    last: int | UnsetType = UNSET


class SessionsAnswer(msgspec.Struct, omit_defaults=True):
    """A page of the sessions of the caller, the one where something happened last first; `next` is the cursor
    of the next page, if there may be one."""

    sessions: list[SessionInfo]
    next: str | None = None


class StateAnswer(msgspec.Struct, omit_defaults=True):
    """The application's state, the seq it is of, and what else was asked for."""

    seq: int
    state: Any
    transcript: list[Bubble] | None = None
    meters: dict[str, Any] | None = None
    open: dict[str, Any] | None = None
    roster: list[dict[str, Any]] | None = None
    misfits: list[Misfit] = []


class DocumentInfo(msgspec.Struct):
    """A document that events made."""

    session_id: str
    id: str
    type: str
    category: str
    body: msgspec.Raw


class DocumentsAnswer(msgspec.Struct, omit_defaults=True):
    """The documents that match: of a page of sessions, the last active first, each in the order of their ids.
    `next` is the cursor of the next page, if there may be one."""

    documents: list[DocumentInfo]
    next: str | None = None


class Me(msgspec.Struct, omit_defaults=True):
    """Who is asking, and which applications there are; `roles` are those it has in every session.

    A guest makes no sessions: `session` is the one that it was invited to.
    """

    name: str
    roles: list[str]
    apps: list[str]
    may_create_sessions: bool
    session: str | None = None


class AppInfo(msgspec.Struct):
    """An application. `types` are its own events; a `process` takes commands as well as messages."""

    name: str
    title: str
    guide: str
    tries: list[str]
    types: list[str]
    agents: list[str]
    channels: list[str]
    process: bool


class AppsAnswer(msgspec.Struct):
    """The applications that are served, the one first that is meant if none is named."""

    apps: list[AppInfo]


class Health(msgspec.Struct):
    """Whether the server works."""

    status: str
    version: str


class Routes:
    """The routes of one server."""

    def __init__(self, sessions: Callable[[], Sessions], budgets: Budgets) -> None:
        self.sessions = sessions
        self.budgets = budgets

    async def seat(self, request: Request, session_id: str) -> Seat:
        """The caller's seat in a session; the journal is told which."""
        request.scope["turnlog.session"] = session_id
        return await self.sessions().seat(known_of(request.scope).principal, session_id)

    def meter(self, request: Request) -> ReadMeter:
        """What the caller reads; raises `TooMuchRead` for who has read too much."""
        meter = ReadMeter(self.budgets, known_of(request.scope).principal)
        meter.admit()
        return meter

    async def create_session(self, request: Request) -> Response:
        asked, maker = await body(request, NewSession, SMALL_BYTES), maker_of(request.scope)
        event_id = keyed_id(f"session:{maker.name}", request.headers.get("idempotency-key"))
        session_id = "sess_" + event_id.removeprefix("evt_") if event_id else None
        self.budgets.create_session(maker, time.monotonic())
        seat = await self.sessions().create(maker, asked.app, asked.title, session_id)
        request.scope["turnlog.session"] = seat.session_id
        return answer(MadeSession(seat.session_id), 201)

    async def list_sessions(self, request: Request) -> Response:
        """A page of the caller's sessions."""
        query, sessions = request.query_params, self.sessions()
        if "session" in query:
            seat = await self.seat(request, query["session"])
            return answer(SessionsAnswer([described(*await sessions.listed(seat))]))
        page = wanted_number(query, "limit", PAGE_SESSIONS, MAX_PAGE_SESSIONS)
        principal = known_of(request.scope).principal
        listed, place = await sessions.seats(principal, wanted_place(query), page)
        return answer(SessionsAnswer([described(*one) for one in listed], place_text(place)))

    async def send(self, request: Request) -> Response:
        sent = await body(request, SendBody)
        text = checked_text(sent.message, "$.message")
        principal = known_of(request.scope).principal
        if sent.session is None:
            seat = await self.sessions().default(maker_of(request.scope), sent.app)
        else:
            seat = await self.seat(request, sent.session)
        message = UiMessage(text=text, target=sent.target_agent, channel=sent.channel)
        key = request.headers.get("idempotency-key")
        event_id = keyed_id(f"{seat.session_id}:{principal.name}", key)
        seq, event_id, turn, _ = await self.sessions().send(seat, message, event_id)
        request.scope.update({"turnlog.session": seat.session_id, "turnlog.turn": turn})
        return answer(SendAnswer(seq, event_id, turn, None if sent.session else seat.session_id), 202)

    async def post_events(self, request: Request) -> Response:
        sent = await body(request, EventsBody)
        seat = await self.seat(request, sent.session)
        ids = [new_id("evt_") if item.id is None else item.id for item in sent.events]
        posted = [
            Posted(item.type, item.payload, item_id) for item, item_id in zip(sent.events, ids, strict=True)
        ]
        return answer(EventsAnswer(await self.sessions().post(seat, posted)), 202)

    async def stop(self, request: Request) -> Response:
        sent = await body(request, StopBody, SMALL_BYTES)
        seat = await self.seat(request, sent.session)
        return answer(StopAnswer(await self.sessions().stop(seat)), 202)

    async def state(self, request: Request) -> Response:
        """The state now or as of a seq; `include` asks for what else is shown."""
        query = request.query_params
        seat = await self.seat(request, query.get("session", ""))
        wanted = wanted_panels(query)
        at = wanted_seq(query, seat.head)
        if at is not None and at >= 0 and not await self.sessions().log.holds(seat.session_id, at):
            raise Gone(f"seq {at} is not kept any more")
        if at is None and not wanted:
            seq, state = await self.sessions().state(seat)
            return answer(StateAnswer(seq, state, misfits=await self.sessions().misfits(seat)))
        meter = self.meter(request)
        parts = [PANELS[name].part for name in wanted]
        panels = await self.sessions().panels(seat, at, parts, meter.charge)
        told = {name: PANELS[name].show(panels, seat) for name in wanted}
        misfits = await self.sessions().misfits(seat)
        return answer(StateAnswer(panels.seq, panels.state, misfits=misfits, **told))

    async def documents(self, request: Request) -> Response:
        """The documents of one session, or of a page of the caller's sessions."""
        query, sessions = request.query_params, self.sessions()
        place: Place | None = None
        meter = self.meter(request)
        if "session" in query:
            seats = [await self.seat(request, query["session"])]
        else:
            page = wanted_number(query, "limit", PAGE_DOCUMENTED, MAX_PAGE_DOCUMENTED)
            principal = known_of(request.scope).principal
            seats, place = await sessions.seats_of(principal, wanted_place(query), page)
        found = [
            DocumentInfo(one.session_id, one.id, one.type, one.category, msgspec.Raw(one.body))
            for seat in seats
            for one in await sessions.documents(seat, query.get("type"), query.get("category"), meter.charge)
        ]
        return answer(DocumentsAnswer(found, place_text(place)))

    async def blob(self, request: Request) -> Response:
        """Binary content, as an attachment: whatever it is, it is not a page of this server."""
        seat = await self.seat(request, request.path_params["session"])
        name = f"{seat.session_id}/{request.path_params['digest']}"
        blob = await self.sessions().log.get_blob(name)
        media_type = blob.media_type if blob.media_type in PICTURES else "application/octet-stream"
        return Response(blob.data, media_type=media_type, headers=BLOB_HEADERS)

    async def log(self, request: Request) -> Response:
        """A session's log as lines of JSON, as `turnlog export` writes it: what this member may see of it."""
        seat = await self.seat(request, request.query_params.get("session", ""))
        after = continued(cursor.parse(request.query_params.get("after", "")), seat.head)
        choice, spend = Choice(channels=seat.sees), self.meter(request).spend
        lines = export_session(self.sessions().log, seat.session_id, after, choice, spend)
        name = f'attachment; filename="{seat.session_id}.jsonl"'
        return StreamingResponse(
            ended(lines), media_type="application/jsonl", headers={"content-disposition": name}
        )

    async def me(self, request: Request) -> Response:
        principal, sessions = known_of(request.scope).principal, self.sessions()
        guest = is_guest(principal)
        seats = (await sessions.seats_of(principal))[0] if guest else []
        session = seats[0].session_id if seats else None
        return answer(
            Me(principal.name, sorted(principal.server_roles), list(sessions.apps), not guest, session)
        )

    async def list_apps(self, request: Request) -> Response:
        principal, sessions = known_of(request.scope).principal, self.sessions()
        seats = (await sessions.seats_of(principal))[0] if is_guest(principal) else None
        return answer(AppsAnswer([app_info(app, tries_for(app, seats)) for app in sessions.apps.values()]))

    async def health(self, _: Request) -> Response:
        if self.sessions().log.health.is_failing:
            raise Unavailable("the log cannot be written: the last write failed")
        return answer(Health("ok", turnlog.__version__))


class Panel(NamedTuple):
    """Something that is shown of a session: the part that it is made of, and what a member sees of it."""

    part: str
    show: Callable[[Panels, Seat], Any]


PANELS = {
    "transcript": Panel("transcript", lambda panels, seat: seen_bubbles(panels.transcript, seat)),
    "meters": Panel("meters", lambda panels, seat: seen_meters(panels.meters, seat).report()),
    "open": Panel("tree", lambda panels, seat: pending(seen_tree(panels.tree, seat))),
    "roster": Panel("roster", lambda panels, seat: report(seen_teams(panels.roster, seat))),
}


def seen_tree(tree: Tree, seat: Seat) -> Tree:
    """What a member sees of what is open."""
    agents = {key: agent for key, agent in tree.open.items() if seat.may_see(agent.scope.channel)}
    queue = {trace: opening for trace, opening in tree.queue.items() if seat.may_see(opening.scope.channel)}
    return Tree(last=tree.last, open=agents, queue=queue)


def seen_meters(meters: Meters, seat: Seat) -> Meters:
    """What a member sees of what a session took."""
    return meters if seat.sees is None else meters.seen_in(seat.sees)


def seen_teams(roster: Roster, seat: Seat) -> dict[str, Team]:
    """What a member sees of the teams."""
    return roster.teams if seat.sees is None else roster.seen_in(seat.sees)


def seen_bubbles(transcript: Transcript, seat: Seat) -> list[Bubble]:
    """What a member sees of a conversation."""
    return list(transcript.bubbles.values()) if seat.sees is None else transcript.seen_in(seat.sees)


def wanted_panels(query: QueryParams) -> list[str]:
    """What else a request wants to see."""
    names = [name for name in query.get("include", "").split(",") if name]
    if unknown := [name for name in names if name not in PANELS]:
        raise BadInput(f"expected some of {', '.join(PANELS)}, got {quote(unknown[0])}", "include")
    return names


def wanted_seq(query: QueryParams, head: Head) -> int | None:
    """As of which seq a request wants to see; one that is not there any more is gone."""
    at = query.get("at")
    return continued(cursor.parse(at, "at"), head) if at else None


def wanted_place(query: QueryParams) -> Place | None:
    """After which place of a list a page begins; None for the first one."""
    text = query.get("after")
    if not text:
        return None
    time, _, session_id = text.partition("-")
    if not (time.isascii() and time.isdigit() and len(time) <= 16 and is_session_id(session_id)):
        raise BadInput(f"expected the `next` of a page before, got {quote(text)}", "after")
    return Place(int(time), session_id)


def place_text(place: Place | None) -> str | None:
    """A place of a list as the cursor of a page."""
    return None if place is None else f"{place.active_ms}-{place.session_id}"


def wanted_number(query: QueryParams, name: str, default: int, most: int) -> int:
    """A number from 1 that a request asks for."""
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= most):
        raise BadInput(f"expected a number from 1 to {most}, got {quote(text)}", name)
    return int(text)


def answer(value: msgspec.Struct, status: int = 200) -> Response:
    """A struct as JSON."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def described(seat: Seat, state: str, last_activity: str, last: int | None) -> SessionInfo:
    """A session as its member sees it."""
    head = seat.head
    return SessionInfo(
        head.session_id,
        head.app,
        head.title or seat.app.untitled,
        state,
        sorted(seat.roles),
        len(head.members),
        timestamp(head.created_ms),
        last_activity,
        seat.invites,
        UNSET if last is None else last,
    )


def tries_for(app: App, seats: list[Seat] | None) -> list[str]:
    """Messages worth sending, for whoever speaks in the first channel; guests have no seats but their own."""
    first = next(iter(app.channels), None)
    speaks = seats is None or any(seat.app is app and seat.channel == first for seat in seats)
    return list(app.tries) if speaks else []


def app_info(app: App, tries: list[str]) -> AppInfo:
    """An application as it describes itself."""
    return AppInfo(
        app.name,
        app.title,
        app.guide,
        tries,
        list(app.types),
        list(app.names),
        list(app.channels),
        app.cli is not None,
    )


async def ended(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Lines with their ends, many at once: each part that is sent costs as much as some hundred lines."""
    part, size_bytes = list[bytes](), 0
    async for line in lines:
        part += (line, b"\n")
        size_bytes += len(line) + 1
        if size_bytes >= PART_BYTES:
            yield b"".join(part)
            part, size_bytes = [], 0
    yield b"".join(part)


def keyed_id(sender: str, key: str | None) -> str | None:
    """The event id of a request that names itself, so that sending it again is sending it once."""
    if checked_key(key) is None:
        return None
    return "evt_" + sha256(f"{len(sender)}:{sender}:{key}".encode()).hexdigest()[:40]


def checked_key(key: str | None) -> str | None:
    """An Idempotency-Key that is not too long; None if a request has none."""
    if key is not None and not 0 < len(key) <= KEY_CHARS:
        raise BadInput(f"expected an Idempotency-Key of 1 to {KEY_CHARS} characters, got {len(key)}")
    return key
