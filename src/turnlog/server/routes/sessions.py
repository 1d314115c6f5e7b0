"""`/api/sessions`: create, list, search, rename, close and delete sessions."""

import time

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from turnlog.app import ClientEvent, Membership
from turnlog.app.attachments import Attachments
from turnlog.app.session_ends import delete_session, stop_and_close
from turnlog.app.sessions import PAGE_SESSIONS
from turnlog.errors import BadInput, Forbidden
from turnlog.events import SessionTitle
from turnlog.events.envelope import format_timestamp
from turnlog.events.payload import Name, Record
from turnlog.events.process import CloseReason
from turnlog.ids import new_id
from turnlog.log.log import MAX_SEARCHED_SESSIONS
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
RECORD_COST_BYTES = 1024  # of a record that a search reads
SESSIONS_QUERY = {
    "session": "only this session",
    "limit": f"how many sessions: {PAGE_SESSIONS} without it, {MAX_PAGE_SESSIONS} at most",
    "after": "the cursor: `next` of the page before",
    "search": "only sessions whose title contains this text; upper and lower case are equal",
}
MAX_SEARCH_CHARS = 128  # of the text; a title has 128 bytes


class CreateSessionBody(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The application and the title of a new session; without `app` the first application."""

    app: str | None = None
    title: Name | None = None


class CreateSessionResponse(msgspec.Struct):
    """The id of the new session."""

    session_id: str


class CloseBody(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The session to close. `reason` is shown to its members."""

    session: str
    reason: CloseReason | None = None


class DeleteBody(msgspec.Struct, forbid_unknown_fields=True):
    """The session to delete."""

    session: str


class RenameBody(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A session and its new title."""

    session: str
    title: Name


class RenameResponse(msgspec.Struct, rename={"event_id": "eventId"}):
    """The seq of the `session.title`."""

    event_id: int


class AttachmentLimits(msgspec.Struct):
    """The files that a message may have. `max_bytes` is the most of any file, the others of their kind."""

    media_types: list[str]
    max_bytes: int
    max_image_bytes: int
    max_text_bytes: int
    max_count: int


class SessionInfo(msgspec.Struct):
    """A session as its member sees it.

    `state` is idle, running, waiting or closed. `invites` are the roles that the member may make links for.
    `may` is what the member may do with the session: rename, close, delete.
    `last` is there for members who see every channel, `attachments` in the answer about one session.
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
    may: list[str]
    last: int | UnsetType = UNSET
    attachments: AttachmentLimits | UnsetType = UNSET


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
            post_route(
                "/api/sessions/rename",
                self.rename_session,
                "Give a session another title.",
                RenameBody,
                {202: RenameResponse},
            ),
            post_route(
                "/api/sessions/close",
                self.close_session,
                "Stop what is open in a session, and close it.",
                CloseBody,
                {204: None},
            ),
            post_route(
                "/api/sessions/delete",
                self.delete_session,
                "Close a session and erase what it has.",
                DeleteBody,
                {204: None},
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
        if body.title is not None:
            check_title(body.title)
        membership = await self._access.sessions.create(creator, body.app, body.title, session_id)
        request.scope[SESSION_KEY] = membership.session_id
        return json_response(CreateSessionResponse(membership.session_id), 201)

    async def list_sessions(self, request: Request) -> Response:
        query = request.query_params
        sessions = self._access.sessions
        if "session" in query:
            membership = await self._access.find_membership(request, query["session"])
            summary = await sessions.summarize(membership)
            info = make_session_info(*summary)
            info.attachments = make_attachment_limits(membership.app.attachments)
            return json_response(SessionsResponse([info]))

        limit = parse_limit(query, "limit", PAGE_SESSIONS, MAX_PAGE_SESSIONS)
        principal = get_identity(request.scope).principal
        if query.get("search"):
            text = check_search_text(query["search"])
            self._access.start_read_meter(request).charge(MAX_SEARCHED_SESSIONS * RECORD_COST_BYTES)
            summaries, position = await sessions.search(principal, text, parse_page_cursor(query), limit)
            infos = [make_session_info(*summary) for summary in summaries]
            return json_response(SessionsResponse(infos, format_page_cursor(position)))

        summaries, position = await sessions.list_summaries(principal, parse_page_cursor(query), limit)
        # An operator's pages also cover sessions that are not listed, such as streams: skip empty ones.
        for _ in range(MAX_EMPTY_PAGES):
            if summaries or position is None:
                break
            summaries, position = await sessions.list_summaries(principal, position, limit)
        infos = [make_session_info(*summary) for summary in summaries]
        return json_response(SessionsResponse(infos, format_page_cursor(position)))

    async def rename_session(self, request: Request) -> Response:
        body = await read_json_body(request, RenameBody, MAX_SMALL_BODY_BYTES)
        membership = await self._access.find_membership(request, body.session)
        if not membership.may_rename:
            raise Forbidden("only the owner of a session may rename it")
        sender = f"rename:{membership.session_id}:{membership.principal.name}"
        event_id = make_idempotent_event_id(sender, request.headers.get("idempotency-key"))
        title = check_title(body.title)
        # Members may not choose an id of the form that a key leads to.
        posted_id = event_id.replace("evt_", "evt_key_") if event_id else new_id("evt_")
        event = ClientEvent(SessionTitle.TYPE, {"title": title}, posted_id)
        [seq] = await self._access.sessions.post(membership, [event])
        return json_response(RenameResponse(seq), 202)

    async def close_session(self, request: Request) -> Response:
        body = await read_json_body(request, CloseBody, MAX_SMALL_BODY_BYTES)
        membership = await self._access.find_membership(request, body.session)
        await stop_and_close(self._access.sessions, membership, body.reason)
        return Response(status_code=204)

    async def delete_session(self, request: Request) -> Response:
        body = await read_json_body(request, DeleteBody, MAX_SMALL_BODY_BYTES)
        membership = await self._access.find_membership(request, body.session)
        await delete_session(self._access.sessions, membership)
        return Response(status_code=204)


def check_title(title: str) -> str:
    if not title.strip():
        raise BadInput("expected a title with some characters", "$.title")
    return title.strip()


def check_search_text(text: str) -> str:
    if len(text) > MAX_SEARCH_CHARS:
        raise BadInput(f"expected at most {MAX_SEARCH_CHARS} characters, got {len(text)}", "search")
    return text


def make_attachment_limits(policy: Attachments) -> AttachmentLimits:
    return AttachmentLimits(
        sorted(policy.media_types),
        policy.max_bytes,
        policy.max_image_bytes,
        policy.max_text_bytes,
        policy.max_count,
    )


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
        membership.session_rights,
        UNSET if last is None else last,
    )
