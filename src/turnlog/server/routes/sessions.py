"""`/api/sessions`: create a session, list the caller's sessions."""

import time

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from turnlog.app import Membership
from turnlog.app.sessions import PAGE_SESSIONS
from turnlog.events.envelope import format_timestamp
from turnlog.events.payload import Name, Record
from turnlog.server.auth.authentication import get_identity, get_session_creator
from turnlog.server.openapi import Operation, get_route, post_route
from turnlog.server.request_body import MAX_SMALL_BODY_BYTES, read_json_body
from turnlog.server.responses import json_response
from turnlog.server.routes.idempotency import make_idempotent_event_id
from turnlog.server.routes.paging import format_page_cursor, parse_limit, parse_page_cursor
from turnlog.server.scope_keys import SESSION_KEY
from turnlog.server.session_access import SessionAccess

MAX_PAGE_SESSIONS = 500  # some 100 KiB
MAX_EMPTY_PAGES = 20
SESSIONS_QUERY = {
    "session": "only this session",
    "limit": f"how many sessions: {PAGE_SESSIONS} without it, {MAX_PAGE_SESSIONS} at most",
    "after": "the cursor: `next` of the page before",
}


class CreateSessionBody(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The application and the title of a new session; without `app` the first application."""

    app: str | None = None
    title: Name | None = None


class CreateSessionResponse(msgspec.Struct):
    """The id of the new session."""

    session_id: str


class SessionInfo(msgspec.Struct):
    """A session as its member sees it.

    `state` is idle, running, waiting or closed. `invites` are the roles that the member may make links for.
    `last` is there for members who see every channel.
    """

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
    """A page of the caller's sessions, the last active first; `next` is the cursor of the next page."""

    sessions: list[SessionInfo]
    next: str | None = None


class SessionRoutes:
    """The routes of sessions."""

    def __init__(self, access: SessionAccess) -> None:
        self._access = access

    def operations(self) -> list[Operation]:
        return [
            post_route(
                "/api/sessions",
                self.create_session,
                "Make a session.",
                CreateSessionBody,
                {201: CreateSessionResponse},
            ),
            get_route(
                "/api/sessions",
                self.list_sessions,
                "A page of the caller's sessions, the last active first.",
                SessionsResponse,
                query=SESSIONS_QUERY,
            ),
        ]

    async def create_session(self, request: Request) -> Response:
        body = await read_json_body(request, CreateSessionBody, MAX_SMALL_BODY_BYTES)
        creator = get_session_creator(request.scope)

        session_id = None
        key = request.headers.get("idempotency-key")
        event_id = make_idempotent_event_id(f"session:{creator.name}", key)
        if event_id is not None:
            session_id = "sess_" + event_id.removeprefix("evt_")

        self._access.rate_limiter.consume_session(creator, time.monotonic())
        membership = await self._access.sessions.create(creator, body.app, body.title, session_id)
        request.scope[SESSION_KEY] = membership.session_id
        return json_response(CreateSessionResponse(membership.session_id), 201)

    async def list_sessions(self, request: Request) -> Response:
        query = request.query_params
        sessions = self._access.sessions
        if "session" in query:
            membership = await self._access.find_membership(request, query["session"])
            summary = await sessions.summarize(membership)
            return json_response(SessionsResponse([make_session_info(*summary)]))

        limit = parse_limit(query, "limit", PAGE_SESSIONS, MAX_PAGE_SESSIONS)
        principal = get_identity(request.scope).principal
        summaries, position = await sessions.list_summaries(principal, parse_page_cursor(query), limit)
        # An operator's pages also cover sessions that are not listed, such as streams: skip empty ones.
        for _ in range(MAX_EMPTY_PAGES):
            if summaries or position is None:
                break
            summaries, position = await sessions.list_summaries(principal, position, limit)
        infos = [make_session_info(*summary) for summary in summaries]
        return json_response(SessionsResponse(infos, format_page_cursor(position)))


def make_session_info(
    membership: Membership, state: str, last_activity: str, last: int | None
) -> SessionInfo:
    record = membership.record
    return SessionInfo(
        record.session_id,
        record.app,
        record.title or membership.app.untitled,
        state,
        sorted(membership.roles),
        len(record.members),
        format_timestamp(record.created_ms),
        last_activity,
        membership.invitable_roles,
        UNSET if last is None else last,
    )
