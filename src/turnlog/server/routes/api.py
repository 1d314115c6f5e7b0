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
from turnlog.agents.tools import IMAGE_TYPES
from turnlog.app import App, ClientEvent, Membership, Sessions
from turnlog.app.read_models import ReadModels
from turnlog.app.sessions import PAGE_SESSIONS
from turnlog.errors import BadInput, Unavailable, quote
from turnlog.events import UiMessage, is_session_id
from turnlog.events.catalog import Misfit
from turnlog.events.envelope import format_timestamp
from turnlog.events.payload import Name, Record
from turnlog.ids import new_id
from turnlog.log import ListPosition, SessionRecord
from turnlog.log.filter import EventFilter
from turnlog.log.transfer import export_session
from turnlog.server.auth.authentication import get_identity, get_session_creator
from turnlog.server.auth.credentials import is_guest
from turnlog.server.limits import RateLimiter
from turnlog.server.read_cost import ReadMeter
from turnlog.server.request_body import MAX_SMALL_BODY_BYTES, check_message_text, read_json_body
from turnlog.server.streaming.query import CursorGone, resolve_resume_seq
from turnlog.state.meters import Meters
from turnlog.state.pending import build_pending_report
from turnlog.state.transcript import Transcript, TranscriptEntry
from turnlog.state.tree import Tree
from turnlog.team.roster import Roster, Team, build_roster_report
from turnlog.wire import cursor

MAX_IDEMPOTENCY_KEY_CHARS = 256
EXPORT_CHUNK_BYTES = 64 * 1024  # of an export
MAX_PAGE_SESSIONS = 500  # some 100 KiB
PAGE_DOCUMENT_SESSIONS, MAX_PAGE_DOCUMENT_SESSIONS = (
    20,
    100,
)  # sessions in one page of documents: each has many
MAX_EVENTS_PER_BODY = (
    100  # in one body: all of them are checked and appended at once, and other requests wait
)
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


class SendResponse(msgspec.Struct, rename={"event_id": "eventId"}, omit_defaults=True):
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


class PostEventsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Events of a page, all or none."""

    session: str
    events: Annotated[list[EventBody], msgspec.Meta(max_length=MAX_EVENTS_PER_BODY)]


class PostEventsResponse(msgspec.Struct):
    """Where they are, in the order they were posted."""

    seqs: list[int]


class StopBody(msgspec.Struct, forbid_unknown_fields=True):
    """The session to stop."""

    session: str


class StopResponse(msgspec.Struct, rename={"event_id": "eventId"}):
    """Where the stop is."""

    event_id: int


class CreateSessionBody(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A session to make: of which application, called what."""

    app: str | None = None
    title: Name | None = None


class CreateSessionResponse(msgspec.Struct):
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


class SessionsResponse(msgspec.Struct, omit_defaults=True):
    """A page of the sessions of the caller, the one where something happened last first; `next` is the cursor
    of the next page, if there may be one."""

    sessions: list[SessionInfo]
    next: str | None = None


class StateResponse(msgspec.Struct, omit_defaults=True):
    """The application's state, the seq it is of, and what else was asked for."""

    seq: int
    state: Any
    transcript: list[TranscriptEntry] | None = None
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


class DocumentsResponse(msgspec.Struct, omit_defaults=True):
    """The documents that match: of a page of sessions, the last active first, each in the order of their ids.
    `next` is the cursor of the next page, if there may be one."""

    documents: list[DocumentInfo]
    next: str | None = None


class MeResponse(msgspec.Struct, omit_defaults=True):
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


class AppsResponse(msgspec.Struct):
    """The applications that are served, the one first that is meant if none is named."""

    apps: list[AppInfo]


class HealthResponse(msgspec.Struct):
    """Whether the server works."""

    status: str
    version: str


class ApiRoutes:
    """The routes of one server."""

    def __init__(self, sessions: Callable[[], Sessions], rate_limiter: RateLimiter) -> None:
        self.sessions = sessions
        self.rate_limiter = rate_limiter

    async def find_membership(self, request: Request, session_id: str) -> Membership:
        """The caller's seat in a session; the journal is told which."""
        request.scope["turnlog.session"] = session_id
        return await self.sessions().get_membership(get_identity(request.scope).principal, session_id)

    def start_read_meter(self, request: Request) -> ReadMeter:
        """What the caller reads; raises `TooMuchRead` for who has read too much."""
        meter = ReadMeter(self.rate_limiter, get_identity(request.scope).principal)
        meter.check_budget()
        return meter

    async def create_session(self, request: Request) -> Response:
        asked, maker = (
            await read_json_body(request, CreateSessionBody, MAX_SMALL_BODY_BYTES),
            get_session_creator(request.scope),
        )
        event_id = make_idempotent_event_id(f"session:{maker.name}", request.headers.get("idempotency-key"))
        session_id = "sess_" + event_id.removeprefix("evt_") if event_id else None
        self.rate_limiter.consume_session(maker, time.monotonic())
        seat = await self.sessions().create(maker, asked.app, asked.title, session_id)
        request.scope["turnlog.session"] = seat.session_id
        return json_response(CreateSessionResponse(seat.session_id), 201)

    async def list_sessions(self, request: Request) -> Response:
        """A page of the caller's sessions."""
        query, sessions = request.query_params, self.sessions()
        if "session" in query:
            seat = await self.find_membership(request, query["session"])
            return json_response(SessionsResponse([make_session_info(*await sessions.summarize(seat))]))
        page = parse_limit(query, "limit", PAGE_SESSIONS, MAX_PAGE_SESSIONS)
        principal = get_identity(request.scope).principal
        listed, place = await sessions.list_summaries(principal, parse_page_cursor(query), page)
        return json_response(
            SessionsResponse([make_session_info(*one) for one in listed], format_page_cursor(place))
        )

    async def send(self, request: Request) -> Response:
        sent = await read_json_body(request, SendBody)
        text = check_message_text(sent.message, "$.message")
        principal = get_identity(request.scope).principal
        if sent.session is None:
            seat = await self.sessions().ensure_default_session(get_session_creator(request.scope), sent.app)
        else:
            seat = await self.find_membership(request, sent.session)
        message = UiMessage(text=text, target=sent.target_agent, channel=sent.channel)
        key = request.headers.get("idempotency-key")
        event_id = make_idempotent_event_id(f"{seat.session_id}:{principal.name}", key)
        seq, event_id, turn, _ = await self.sessions().send(seat, message, event_id)
        request.scope.update({"turnlog.session": seat.session_id, "turnlog.turn": turn})
        return json_response(
            SendResponse(seq, event_id, turn, None if sent.session else seat.session_id), 202
        )

    async def post_events(self, request: Request) -> Response:
        sent = await read_json_body(request, PostEventsBody)
        seat = await self.find_membership(request, sent.session)
        ids = [new_id("evt_") if item.id is None else item.id for item in sent.events]
        posted = [
            ClientEvent(item.type, item.payload, item_id)
            for item, item_id in zip(sent.events, ids, strict=True)
        ]
        return json_response(PostEventsResponse(await self.sessions().post(seat, posted)), 202)

    async def stop(self, request: Request) -> Response:
        sent = await read_json_body(request, StopBody, MAX_SMALL_BODY_BYTES)
        seat = await self.find_membership(request, sent.session)
        return json_response(StopResponse(await self.sessions().stop(seat)), 202)

    async def get_state(self, request: Request) -> Response:
        """The state now or as of a seq; `include` asks for what else is shown."""
        query = request.query_params
        seat = await self.find_membership(request, query.get("session", ""))
        wanted = parse_include(query)
        at = parse_at_seq(query, seat.head)
        if at is not None and at >= 0 and not await self.sessions().log.has_event(seat.session_id, at):
            raise CursorGone(f"seq {at} is not kept any more")
        if at is None and not wanted:
            seq, state = await self.sessions().state(seat)
            return json_response(StateResponse(seq, state, misfits=await self.sessions().misfits(seat)))
        meter = self.start_read_meter(request)
        parts = [STATE_INCLUDES[name].read_model for name in wanted]
        panels = await self.sessions().load_read_models(seat, at, parts, meter.charge)
        told = {name: STATE_INCLUDES[name].render(panels, seat) for name in wanted}
        misfits = await self.sessions().misfits(seat)
        return json_response(StateResponse(panels.seq, panels.state, misfits=misfits, **told))

    async def list_documents(self, request: Request) -> Response:
        """The documents of one session, or of a page of the caller's sessions."""
        query, sessions = request.query_params, self.sessions()
        place: ListPosition | None = None
        meter = self.start_read_meter(request)
        if "session" in query:
            seats = [await self.find_membership(request, query["session"])]
        else:
            page = parse_limit(query, "limit", PAGE_DOCUMENT_SESSIONS, MAX_PAGE_DOCUMENT_SESSIONS)
            principal = get_identity(request.scope).principal
            seats, place = await sessions.list_memberships(principal, parse_page_cursor(query), page)
        found = [
            DocumentInfo(one.session_id, one.id, one.type, one.category, msgspec.Raw(one.body))
            for seat in seats
            for one in await sessions.documents(seat, query.get("type"), query.get("category"), meter.charge)
        ]
        return json_response(DocumentsResponse(found, format_page_cursor(place)))

    async def get_blob(self, request: Request) -> Response:
        """Binary content, as an attachment: whatever it is, it is not a page of this server."""
        seat = await self.find_membership(request, request.path_params["session"])
        name = f"{seat.session_id}/{request.path_params['digest']}"
        blob = await self.sessions().log.get_blob(name)
        media_type = blob.media_type if blob.media_type in IMAGE_TYPES else "application/octet-stream"
        return Response(blob.data, media_type=media_type, headers=BLOB_HEADERS)

    async def export_log(self, request: Request) -> Response:
        """A session's log as lines of JSON, as `turnlog export` writes it: what this member may see of it."""
        seat = await self.find_membership(request, request.query_params.get("session", ""))
        after = resolve_resume_seq(cursor.parse_cursor(request.query_params.get("after", "")), seat.head)
        choice, spend = (
            EventFilter(channels=seat.visible_channels),
            self.start_read_meter(request).charge_and_wait,
        )
        lines = export_session(self.sessions().log, seat.session_id, after, choice, spend)
        name = f'attachment; filename="{seat.session_id}.jsonl"'
        return StreamingResponse(
            join_lines_in_chunks(lines), media_type="application/jsonl", headers={"content-disposition": name}
        )

    async def get_me(self, request: Request) -> Response:
        principal, sessions = get_identity(request.scope).principal, self.sessions()
        guest = is_guest(principal)
        seats = (await sessions.list_memberships(principal))[0] if guest else []
        session = seats[0].session_id if seats else None
        return json_response(
            MeResponse(
                principal.name, sorted(principal.server_roles), list(sessions.apps), not guest, session
            )
        )

    async def list_apps(self, request: Request) -> Response:
        principal, sessions = get_identity(request.scope).principal, self.sessions()
        seats = (await sessions.list_memberships(principal))[0] if is_guest(principal) else None
        return json_response(
            AppsResponse([make_app_info(app, suggestions_for(app, seats)) for app in sessions.apps.values()])
        )

    async def check_health(self, _: Request) -> Response:
        if self.sessions().log.health.is_failing:
            raise Unavailable("the log cannot be written: the last write failed")
        return json_response(HealthResponse("ok", turnlog.__version__))


class StateInclude(NamedTuple):
    """Something that is shown of a session: the part that it is made of, and what a member sees of it."""

    read_model: str
    render: Callable[[ReadModels, Membership], Any]


STATE_INCLUDES = {
    "transcript": StateInclude(
        "transcript", lambda panels, seat: visible_transcript(panels.transcript, seat)
    ),
    "meters": StateInclude("meters", lambda panels, seat: visible_meters(panels.meters, seat).report()),
    "open": StateInclude("tree", lambda panels, seat: build_pending_report(visible_tree(panels.tree, seat))),
    "roster": StateInclude(
        "roster", lambda panels, seat: build_roster_report(visible_teams(panels.roster, seat))
    ),
}


def visible_tree(tree: Tree, membership: Membership) -> Tree:
    """What a member sees of what is open."""
    agents = {key: agent for key, agent in tree.open.items() if membership.may_see(agent.scope.channel)}
    queue = {
        trace: opening
        for trace, opening in tree.queued_turns.items()
        if membership.may_see(opening.scope.channel)
    }
    return Tree(last_seq=tree.last_seq, open=agents, queued_turns=queue)


def visible_meters(meters: Meters, membership: Membership) -> Meters:
    """What a member sees of what a session took."""
    return meters if membership.visible_channels is None else meters.visible_in(membership.visible_channels)


def visible_teams(roster: Roster, membership: Membership) -> dict[str, Team]:
    """What a member sees of the teams."""
    return (
        roster.teams
        if membership.visible_channels is None
        else roster.visible_in(membership.visible_channels)
    )


def visible_transcript(transcript: Transcript, membership: Membership) -> list[TranscriptEntry]:
    """What a member sees of a conversation."""
    return (
        list(transcript.entries.values())
        if membership.visible_channels is None
        else transcript.visible_in(membership.visible_channels)
    )


def parse_include(query: QueryParams) -> list[str]:
    """What else a request wants to see."""
    names = [name for name in query.get("include", "").split(",") if name]
    if unknown := [name for name in names if name not in STATE_INCLUDES]:
        raise BadInput(f"expected some of {', '.join(STATE_INCLUDES)}, got {quote(unknown[0])}", "include")
    return names


def parse_at_seq(query: QueryParams, head: SessionRecord) -> int | None:
    """As of which seq a request wants to see; one that is not there any more is gone."""
    at = query.get("at")
    return resolve_resume_seq(cursor.parse_cursor(at, "at"), head) if at else None


def parse_page_cursor(query: QueryParams) -> ListPosition | None:
    """After which place of a list a page begins; None for the first one."""
    text = query.get("after")
    if not text:
        return None
    time, _, session_id = text.partition("-")
    if not (time.isascii() and time.isdigit() and len(time) <= 16 and is_session_id(session_id)):
        raise BadInput(f"expected the `next` of a page before, got {quote(text)}", "after")
    return ListPosition(int(time), session_id)


def format_page_cursor(place: ListPosition | None) -> str | None:
    """A place of a list as the cursor of a page."""
    return None if place is None else f"{place.active_ms}-{place.session_id}"


def parse_limit(query: QueryParams, name: str, default: int, maximum: int) -> int:
    """A number from 1 that a request asks for."""
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= maximum):
        raise BadInput(f"expected a number from 1 to {maximum}, got {quote(text)}", name)
    return int(text)


def json_response(value: msgspec.Struct, status: int = 200) -> Response:
    """A struct as JSON."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def make_session_info(
    membership: Membership, state: str, last_activity: str, last: int | None
) -> SessionInfo:
    """A session as its member sees it."""
    head = membership.head
    return SessionInfo(
        head.session_id,
        head.app,
        head.title or membership.app.untitled,
        state,
        sorted(membership.roles),
        len(head.members),
        format_timestamp(head.created_ms),
        last_activity,
        membership.invitable_roles,
        UNSET if last is None else last,
    )


def suggestions_for(app: App, memberships: list[Membership] | None) -> list[str]:
    """Messages worth sending, for whoever speaks in the first channel; guests have no seats but their own."""
    first = next(iter(app.channels), None)
    speaks = memberships is None or any(seat.app is app and seat.channel == first for seat in memberships)
    return list(app.suggestions) if speaks else []


def make_app_info(app: App, suggestions: list[str]) -> AppInfo:
    """An application as it describes itself."""
    return AppInfo(
        app.name,
        app.title,
        app.guide,
        suggestions,
        list(app.event_types),
        list(app.agent_names),
        list(app.channels),
        app.claude_code is not None,
    )


async def join_lines_in_chunks(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Lines with their ends, many at once: each part that is sent costs as much as some hundred lines."""
    part, size_bytes = list[bytes](), 0
    async for line in lines:
        part += (line, b"\n")
        size_bytes += len(line) + 1
        if size_bytes >= EXPORT_CHUNK_BYTES:
            yield b"".join(part)
            part, size_bytes = [], 0
    yield b"".join(part)


def make_idempotent_event_id(sender: str, key: str | None) -> str | None:
    """The event id of a request that names itself, so that sending it again is sending it once."""
    if check_idempotency_key(key) is None:
        return None
    return "evt_" + sha256(f"{len(sender)}:{sender}:{key}".encode()).hexdigest()[:40]


def check_idempotency_key(key: str | None) -> str | None:
    """An Idempotency-Key that is not too long; None if a request has none."""
    if key is not None and not 0 < len(key) <= MAX_IDEMPOTENCY_KEY_CHARS:
        raise BadInput(
            f"expected an Idempotency-Key of 1 to {MAX_IDEMPOTENCY_KEY_CHARS} characters, got {len(key)}"
        )
    return key
