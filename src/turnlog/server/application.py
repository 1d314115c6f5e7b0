"""The routes, as one ASGI application (protocol section 8).

Bodies are JSON of a declared shape and pass the gate. Every refusal is JSON with an `error` that a person can
read. The routes are a table; what each request passes before them is the front's. The console is served at
`/`. Mounted into another application it needs that application to run its lifespan:
`FastAPI(lifespan=turnlog_app.router.lifespan_context)`, or from the host's own lifespan.
"""

import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import turnlog
from turnlog.agents.runtime.executor import DescribeError, mask_tool_error
from turnlog.app import App, Principal, Sessions
from turnlog.app.sessions import PAGE_SESSIONS, index_apps
from turnlog.errors import CallerError, Forbidden, TurnlogError
from turnlog.events import Envelope, Payload, UnknownPayload
from turnlog.log import Log, Store, open_log
from turnlog.server.access_log import AccessLogMiddleware
from turnlog.server.auth.authentication import AuthenticationCheck, get_identity
from turnlog.server.auth.credentials import Authenticator, BuiltinAuth, Identity
from turnlog.server.auth.host_check import LOOPBACK, HostOriginCheck
from turnlog.server.console_files import console_routes
from turnlog.server.error_responses import NotStarted, handle_error, handle_http_exception
from turnlog.server.limits import Limits, RateLimiter
from turnlog.server.metrics import Metrics
from turnlog.server.middleware import RequestCheck, RequestChecksMiddleware
from turnlog.server.openapi import Operation, build_openapi, get_route, post_route
from turnlog.server.request_body import FORM_MEDIA_TYPE, make_decoder_executor
from turnlog.server.routes import agent, api, chat, invites, sign_in
from turnlog.server.routes.agent import AgentRoutes
from turnlog.server.routes.api import (
    MAX_PAGE_DOCUMENT_SESSIONS,
    MAX_PAGE_SESSIONS,
    PAGE_DOCUMENT_SESSIONS,
    ApiRoutes,
)
from turnlog.server.routes.chat import ChatRoutes
from turnlog.server.routes.invites import InviteRoutes
from turnlog.server.routes.sign_in import SignIn
from turnlog.server.streaming.event_stream import EventStreamRoute
from turnlog.wire.dialects.base import DialectFactory
from turnlog.wire.dialects.registry import DIALECT_FACTORIES

SSE_MEDIA_TYPE = "text/event-stream"
EVENTS_QUERY = {
    "session": "the session, or several with commas between them; the caller's own without it",
    "app": "the application whose own session is meant, if none is named",
    "after": "the cursor; the header Last-Event-ID wins",
    "types": "only these types, or first words of types, with commas between them",
    "depth": "only events of this depth and less",
    "turn": "only this turn, as a response that ends",
}
SESSIONS_QUERY = {
    "session": "only this session",
    "limit": f"how many sessions: {PAGE_SESSIONS} without it, {MAX_PAGE_SESSIONS} at most",
    "after": "the cursor: `next` of the page before",
}
STATE_QUERY = {
    "session": "the session",
    "at": "as of this seq; now without it",
    "include": "some of transcript, meters, open, roster, with commas between them",
}
DOCUMENTS_QUERY = {
    "session": "only of this session; of a page of the caller's sessions without it",
    "type": "only of this type",
    "category": "only of this category",
    "limit": (
        f"of how many sessions: {PAGE_DOCUMENT_SESSIONS} without it, {MAX_PAGE_DOCUMENT_SESSIONS} at most"
    ),
    "after": "the cursor: `next` of the page before",
}
LOG_QUERY = {"session": "the session", "after": "the cursor"}
BLOB_PATH = "/api/blobs/{session}/{digest}"
POST_EVENTS_SUMMARY = "Post events: answers, actions, the application's own."
CHAT_SUMMARY = "Direct events and a message, answered when the turn is over."
RUN_SUMMARY = "A prompt, and its turn as a response."
TOOL_RESULTS_SUMMARY = "Results, and how the turn goes on."
CHANGE_MEMBER_SUMMARY = "Change the roles of a member, or invite a person who is none."
CREATE_LINK_SUMMARY = "Make a link that makes one person a member."
REDEEM_LINK_SUMMARY = "Redeem a link: become a member, as a guest with a name."
LIST_INVITES_SUMMARY = "The caller's open invitations, or those of a session."
INVITES_QUERY = {"session": "the invites of this session"}


class Server:
    """Everything one application is made of; the sessions are there while it runs."""

    def __init__(
        self,
        apps: Iterable[App],
        log: str | Store,
        auth: Authenticator,
        limits: Limits,
        describe: DescribeError,
    ) -> None:
        self._apps = list(index_apps(apps).values())
        self._log = log
        self._describe = describe
        self._sessions: Sessions | None = None
        self.metrics = Metrics()
        self.rate_limiter = RateLimiter(limits)
        self._auth = auth
        holds = auth.is_still_valid if isinstance(auth, BuiltinAuth) else is_always_valid
        self.event_stream = EventStreamRoute(
            self.sessions, self.metrics, self.rate_limiter, limits, merge_app_dialects(self._apps), holds
        )
        self.routes = ApiRoutes(self.sessions, self.rate_limiter)
        self.agent = AgentRoutes(self.event_stream, self.routes)
        self.sign_in = SignIn(auth, self.sessions, self.event_stream.streams.end_signed_out)
        self.invites = InviteRoutes(self.sessions)
        self.chat = ChatRoutes(self.routes, self.event_stream.streams)

    def sessions(self) -> Sessions:
        """The sessions, once the server has started."""
        if self._sessions is None:
            raise NotStarted(
                "Turnlog has not started: the application it is mounted in must run its lifespan, "
                "`async with turnlog_app.router.lifespan_context(turnlog_app)`"
            )
        return self._sessions

    @asynccontextmanager
    async def lifespan(self, application: Starlette) -> AsyncIterator[None]:
        """The log is open and the sessions run."""
        log = await open_log(self._log) if isinstance(self._log, str) else Log(self._log)
        revoke = self.event_stream.streams.on_roles_changed
        sessions = Sessions(log, self._apps, os.getpid(), self._observe, revoke, self._describe)
        await sessions.recover()
        self._sessions = sessions
        application.state.decoder = make_decoder_executor()
        try:
            yield
        finally:
            application.state.decoder.shutdown(wait=False)
            self._sessions = None
            self.event_stream.stop()
            try:
                await sessions.close()
            finally:  # a log that cannot be written any more is closed too
                await log.close()

    def set_tokens(self, tokens: Mapping[str, Principal]) -> None:
        """Accept these tokens from now on, and end the streams of those whose token is not among them."""
        assert isinstance(self._auth, BuiltinAuth)
        self._auth.set_tokens(tokens)
        self.event_stream.streams.end_signed_out()

    def _observe(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        self.metrics.observe(envelope, payload)
        self.event_stream.observe(envelope, payload)

    async def get_metrics(self, request: Request) -> Response:
        """What Prometheus reads; it counts every session, so it is for operators."""
        if not get_identity(request.scope).principal.is_operator:
            raise Forbidden("only operators may read the metrics")
        return Response(
            self.metrics.render(self.event_stream.projection_lags(), self.sessions().log.health),
            media_type="text/plain; version=0.0.4",
        )

    def list_operations(self) -> list[Operation]:
        """Every route but the page's."""
        return [
            *self._session_operations(),
            *self._auth_operations(),
            *self._turn_operations(),
            *self._monitoring_operations(),
        ]

    def _session_operations(self) -> list[Operation]:
        """The routes of sessions."""
        do, says = self.routes, api
        names = ", ".join(["turnlog (default)", *DIALECT_FACTORIES, *self.event_stream.dialects])
        query = {**EVENTS_QUERY, "dialect": names}
        return [
            get_route(
                "/api/events",
                self.event_stream.follow_events,
                "Follow a log.",
                query=query,
                media_type=SSE_MEDIA_TYPE,
            ),
            post_route(
                "/api/events",
                do.post_events,
                POST_EVENTS_SUMMARY,
                says.PostEventsBody,
                {202: says.PostEventsResponse},
            ),
            post_route("/api/send", do.send, "Send a message.", says.SendBody, {202: says.SendResponse}),
            post_route("/api/stop", do.stop, "Stop what runs.", says.StopBody, {202: says.StopResponse}),
            post_route(
                "/api/sessions",
                do.create_session,
                "Make a session.",
                says.CreateSessionBody,
                {201: says.CreateSessionResponse},
            ),
            get_route(
                "/api/sessions",
                do.list_sessions,
                "A page of the caller's sessions, the last active first.",
                says.SessionsResponse,
                query=SESSIONS_QUERY,
            ),
            get_route(
                "/api/state", do.get_state, "An application's state.", says.StateResponse, query=STATE_QUERY
            ),
            get_route(
                "/api/documents",
                do.list_documents,
                "What events made.",
                says.DocumentsResponse,
                query=DOCUMENTS_QUERY,
            ),
            get_route(
                "/api/log",
                do.export_log,
                "A log as lines of JSON.",
                query=LOG_QUERY,
                media_type="application/jsonl",
            ),
            get_route(
                BLOB_PATH,
                do.get_blob,
                "Binary content, as an attachment.",
                media_type="application/octet-stream",
            ),
        ]

    def _auth_operations(self) -> list[Operation]:
        """The routes about who is who."""
        do, code = self.sign_in, {"query": {"code": "the code"}, "responses": {303: None}, "public": True}
        return [
            get_route("/api/me", self.routes.get_me, "Who is asking.", api.MeResponse),
            get_route("/api/apps", self.routes.list_apps, "The applications.", api.AppsResponse),
            get_route(
                "/sign-in",
                do.sign_in_by_code,
                "Exchange the code of a sign-in link, or show an invitation.",
                **code,
            ),
            post_route(
                "/sign-in",
                do.redeem_link,
                REDEEM_LINK_SUMMARY,
                sign_in.JoinForm,
                {303: None},
                public=True,
                body_type=FORM_MEDIA_TYPE,
            ),
            post_route(
                "/api/sign-in",
                do.sign_in_by_token,
                "Exchange a bearer token for a cookie.",
                None,
                {204: None},
            ),
            post_route(
                "/api/sign-out", do.sign_out, "Revoke the cookie, and end its streams.", None, {204: None}
            ),
            post_route(
                "/api/links",
                do.create_link,
                CREATE_LINK_SUMMARY,
                sign_in.LinkBody,
                {201: sign_in.LinkResponse},
            ),
            *self._invite_operations(),
        ]

    def _invite_operations(self) -> list[Operation]:
        """The routes of members and invitations."""
        do, named, told = self.invites, invites.InviteBody, {202: invites.InviteResponse}
        return [
            post_route(
                "/api/members",
                do.change_member,
                CHANGE_MEMBER_SUMMARY,
                invites.MemberBody,
                {202: invites.MemberResponse},
            ),
            get_route(
                "/api/invites",
                do.list_invites,
                LIST_INVITES_SUMMARY,
                invites.InvitesResponse,
                query=INVITES_QUERY,
            ),
            post_route("/api/invites/accept", do.accept, "Become a member by an invitation.", named, told),
            post_route("/api/invites/decline", do.decline, "Decline an invitation.", named, told),
            post_route("/api/invites/revoke", do.revoke, "End a link or an invitation.", named, told),
        ]

    def _turn_operations(self) -> list[Operation]:
        """The routes that answer with a turn."""
        do, turn = self.agent, {200: None}
        return [
            post_route(
                "/api/chat/{role}", self.chat.chat, CHAT_SUMMARY, chat.ChatBody, {200: chat.ChatResponse}
            ),
            post_route("/agent/run", do.run, RUN_SUMMARY, agent.RunBody, turn, media_type=SSE_MEDIA_TYPE),
            post_route(
                "/agent/tool_results",
                do.post_tool_results,
                TOOL_RESULTS_SUMMARY,
                agent.ToolResultsBody,
                turn,
                media_type=SSE_MEDIA_TYPE,
            ),
        ]

    def _monitoring_operations(self) -> list[Operation]:
        """The routes for those who look after the server."""
        return [
            get_route("/metrics", self.get_metrics, "Counters for Prometheus.", media_type="text/plain"),
            get_route(
                "/healthz",
                self.routes.check_health,
                "Whether the server works.",
                api.HealthResponse,
                public=True,
            ),
        ]


def is_always_valid(identity: Identity) -> bool:
    """Users of the host's own: a stream ends with what `who` said, not before."""
    return True


def merge_app_dialects(apps: Iterable[App]) -> dict[str, DialectFactory]:
    """The dialects of all applications; several may have the same one."""
    kinds: dict[str, DialectFactory] = {}
    for app in apps:
        for name, kind in app.dialects.items():
            if kinds.setdefault(name, kind) is not kind:
                raise CallerError(f"expected one dialect of the name {name}, got another from app {app.name}")
    return kinds


def make_openapi_endpoint(operations: list[Operation]) -> Callable[[Request], Awaitable[Response]]:
    """A route for the description of all others."""
    description = build_openapi(operations, turnlog.__version__)

    async def route(request: Request) -> Response:
        return JSONResponse({**description, "servers": [{"url": request.scope.get("root_path") or "/"}]})

    return route


def create_app(
    apps: App | Iterable[App],
    log: str | Store,
    *,
    auth: Authenticator | None = None,
    hosts: Iterable[str] = LOOPBACK,
    limits: Limits = Limits(),  # noqa: B008
    describe: DescribeError = mask_tool_error,
) -> Starlette:
    """The ASGI application of some apps and a log, by its address or its store.

    `state.stop_streams()` ends its open streams; `state.set_tokens(tokens)` changes whose tokens count.
    Without `auth` only its own sign-in links let anybody in: `state.auth.sign_in_code`.
    `describe` says what members read of a tool that failed; `executor.explain` is for development.
    """
    auth = auth or BuiltinAuth(secrets.token_bytes(32))
    server = Server([apps] if isinstance(apps, App) else apps, log, auth, limits, describe)
    operations = server.list_operations()
    page = console_routes()
    public = [one.path for one in operations if one.public] + [file.path for file in page]
    told = [Route(one.path, one.endpoint, methods=[one.method]) for one in operations]
    checks: list[RequestCheck] = [
        HostOriginCheck(hosts),
        AuthenticationCheck(auth, server.rate_limiter, public),
    ]
    application = Starlette(
        routes=[
            *told,
            Route("/openapi.json", make_openapi_endpoint(operations)),
            *page,
        ],
        middleware=[
            Middleware(AccessLogMiddleware),
            Middleware(
                RequestChecksMiddleware,
                checks=checks,
                bypass_router=[one for one in told if one.endpoint == server.event_stream.follow_events],
            ),
        ],
        exception_handlers={TurnlogError: handle_error, HTTPException: handle_http_exception},
        lifespan=server.lifespan,
    )
    application.router.redirect_slashes = False  # a path is right, or it is 404
    application.state.stop_streams = server.event_stream.stop
    application.state.set_tokens = server.set_tokens
    application.state.auth = auth
    return application
