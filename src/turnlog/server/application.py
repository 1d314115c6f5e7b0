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
from turnlog.agents.runtime.executor import Describe, mask
from turnlog.app import App, Principal, Sessions
from turnlog.app.sessions import PAGE_SESSIONS, by_name
from turnlog.errors import CallerError, Forbidden, TurnlogError
from turnlog.events import Envelope, Payload, Unknown
from turnlog.log import Log, Store, open_log
from turnlog.server.access_log import Journal
from turnlog.server.auth.authentication import Entry, known_of
from turnlog.server.auth.credentials import Auth, Authenticator, Known
from turnlog.server.auth.host_check import LOOPBACK, Guard
from turnlog.server.console_files import page_routes
from turnlog.server.error_responses import NotStarted, refuse, refuse_route
from turnlog.server.limits import Budgets, Limits
from turnlog.server.metrics import Metrics
from turnlog.server.middleware import Check, Front
from turnlog.server.openapi import Operation, get, openapi, post
from turnlog.server.request_body import FORM, make_decoder
from turnlog.server.routes import agent, api, chat, invites, sign_in
from turnlog.server.routes.agent import AgentRoutes
from turnlog.server.routes.api import MAX_PAGE_DOCUMENTED, MAX_PAGE_SESSIONS, PAGE_DOCUMENTED, Routes
from turnlog.server.routes.chat import ChatRoutes
from turnlog.server.routes.invites import InviteRoutes
from turnlog.server.routes.sign_in import SignIn
from turnlog.server.streaming.event_stream import EventStream
from turnlog.wire.dialects.registry import CONVERTED, Kind, Make, plainly

STREAM = "text/event-stream"
FOLLOWING = {
    "session": "the session, or several with commas between them; the caller's own without it",
    "app": "the application whose own session is meant, if none is named",
    "after": "the cursor; the header Last-Event-ID wins",
    "types": "only these types, or first words of types, with commas between them",
    "depth": "only events of this depth and less",
    "turn": "only this turn, as a response that ends",
}
LISTING = {
    "session": "only this session",
    "limit": f"how many sessions: {PAGE_SESSIONS} without it, {MAX_PAGE_SESSIONS} at most",
    "after": "the cursor: `next` of the page before",
}
STATE = {
    "session": "the session",
    "at": "as of this seq; now without it",
    "include": "some of transcript, meters, open, roster, with commas between them",
}
DOCUMENTS = {
    "session": "only of this session; of a page of the caller's sessions without it",
    "type": "only of this type",
    "category": "only of this category",
    "limit": f"of how many sessions: {PAGE_DOCUMENTED} without it, {MAX_PAGE_DOCUMENTED} at most",
    "after": "the cursor: `next` of the page before",
}
LOG = {"session": "the session", "after": "the cursor"}
BLOB = "/api/blobs/{session}/{digest}"
POSTING = "Post events: answers, actions, the application's own."
CHATTING = "Direct events and a message, answered when the turn is over."
RUNNING = "A prompt, and its turn as a response."
GOING_ON = "Results, and how the turn goes on."
ROLES = "Change the roles of a member, or invite a person who is none."
LINKING = "Make a link that makes one person a member."
REDEEMING = "Redeem a link: become a member, as a guest with a name."
INVITING = "The caller's open invitations, or those of a session."
INVITES = {"session": "the invites of this session"}


class Server:
    """Everything one application is made of; the sessions are there while it runs."""

    def __init__(
        self, apps: Iterable[App], log: str | Store, auth: Authenticator, limits: Limits, describe: Describe
    ) -> None:
        self._apps = list(by_name(apps).values())
        self._log = log
        self._describe = describe
        self._sessions: Sessions | None = None
        self.metrics = Metrics()
        self.budgets = Budgets(limits)
        self._auth = auth
        holds = auth.holds if isinstance(auth, Auth) else always
        self.stream = EventStream(
            self.sessions, self.metrics, self.budgets, limits, own_dialects(self._apps), holds
        )
        self.routes = Routes(self.sessions, self.budgets)
        self.agent = AgentRoutes(self.stream, self.routes)
        self.signin = SignIn(auth, self.sessions, self.stream.readers.end_signed_out)
        self.invites = InviteRoutes(self.sessions)
        self.chat = ChatRoutes(self.routes, self.stream.readers)

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
        revoke = self.stream.readers.change
        sessions = Sessions(log, self._apps, os.getpid(), self._observe, revoke, self._describe)
        await sessions.recover()
        self._sessions = sessions
        application.state.decoder = make_decoder()
        try:
            yield
        finally:
            application.state.decoder.shutdown(wait=False)
            self._sessions = None
            self.stream.stop()
            try:
                await sessions.close()
            finally:  # a log that cannot be written any more is closed too
                await log.close()

    def set_tokens(self, tokens: Mapping[str, Principal]) -> None:
        """Accept these tokens from now on, and end the streams of those whose token is not among them."""
        assert isinstance(self._auth, Auth)
        self._auth.set_tokens(tokens)
        self.stream.readers.end_signed_out()

    def _observe(self, envelope: Envelope, payload: Payload | Unknown) -> None:
        self.metrics.observe(envelope, payload)
        self.stream.observe(envelope, payload)

    async def measured(self, request: Request) -> Response:
        """What Prometheus reads; it counts every session, so it is for operators."""
        if not known_of(request.scope).principal.is_operator:
            raise Forbidden("only operators may read the metrics")
        return Response(
            self.metrics.text(self.stream.lags(), self.sessions().log.health),
            media_type="text/plain; version=0.0.4",
        )

    def operations(self) -> list[Operation]:
        """Every route but the page's."""
        return [*self._logs(), *self._people(), *self._agents(), *self._watched()]

    def _logs(self) -> list[Operation]:
        """The routes of sessions."""
        do, says = self.routes, api
        names = ", ".join(["turnlog (default)", *CONVERTED, *self.stream.dialects])
        query = {**FOLLOWING, "dialect": names}
        return [
            get("/api/events", self.stream.events, "Follow a log.", query=query, media_type=STREAM),
            post("/api/events", do.post_events, POSTING, says.EventsBody, {202: says.EventsAnswer}),
            post("/api/send", do.send, "Send a message.", says.SendBody, {202: says.SendAnswer}),
            post("/api/stop", do.stop, "Stop what runs.", says.StopBody, {202: says.StopAnswer}),
            post(
                "/api/sessions",
                do.create_session,
                "Make a session.",
                says.NewSession,
                {201: says.MadeSession},
            ),
            get(
                "/api/sessions",
                do.list_sessions,
                "A page of the caller's sessions, the last active first.",
                says.SessionsAnswer,
                query=LISTING,
            ),
            get("/api/state", do.state, "An application's state.", says.StateAnswer, query=STATE),
            get("/api/documents", do.documents, "What events made.", says.DocumentsAnswer, query=DOCUMENTS),
            get("/api/log", do.log, "A log as lines of JSON.", query=LOG, media_type="application/jsonl"),
            get(BLOB, do.blob, "Binary content, as an attachment.", media_type="application/octet-stream"),
        ]

    def _people(self) -> list[Operation]:
        """The routes about who is who."""
        do, code = self.signin, {"query": {"code": "the code"}, "answers": {303: None}, "public": True}
        return [
            get("/api/me", self.routes.me, "Who is asking.", api.Me),
            get("/api/apps", self.routes.list_apps, "The applications.", api.AppsAnswer),
            get(
                "/sign-in", do.by_code, "Exchange the code of a sign-in link, or show an invitation.", **code
            ),
            post(
                "/sign-in", do.redeem, REDEEMING, sign_in.JoinForm, {303: None}, public=True, body_type=FORM
            ),
            post("/api/sign-in", do.by_token, "Exchange a bearer token for a cookie.", None, {204: None}),
            post("/api/sign-out", do.sign_out, "Revoke the cookie, and end its streams.", None, {204: None}),
            post("/api/links", do.link, LINKING, sign_in.LinkBody, {201: sign_in.LinkAnswer}),
            *self._invites(),
        ]

    def _invites(self) -> list[Operation]:
        """The routes of members and invitations."""
        do, named, told = self.invites, invites.InviteBody, {202: invites.InviteAnswer}
        return [
            post("/api/members", do.change_member, ROLES, invites.MemberBody, {202: invites.MemberAnswer}),
            get("/api/invites", do.list_invites, INVITING, invites.InvitesAnswer, query=INVITES),
            post("/api/invites/accept", do.accept, "Become a member by an invitation.", named, told),
            post("/api/invites/decline", do.decline, "Decline an invitation.", named, told),
            post("/api/invites/revoke", do.revoke, "End a link or an invitation.", named, told),
        ]

    def _agents(self) -> list[Operation]:
        """The routes that answer with a turn."""
        do, turn = self.agent, {200: None}
        return [
            post("/api/chat/{role}", self.chat.chat, CHATTING, chat.ChatBody, {200: chat.ChatAnswer}),
            post("/agent/run", do.run, RUNNING, agent.RunBody, turn, media_type=STREAM),
            post(
                "/agent/tool_results", do.tool_results, GOING_ON, agent.ResultsBody, turn, media_type=STREAM
            ),
        ]

    def _watched(self) -> list[Operation]:
        """The routes for those who look after the server."""
        return [
            get("/metrics", self.measured, "Counters for Prometheus.", media_type="text/plain"),
            get("/healthz", self.routes.health, "Whether the server works.", api.Health, public=True),
        ]


def always(known: Known) -> bool:
    """Users of the host's own: a stream ends with what `who` said, not before."""
    return True


def own_dialects(apps: Iterable[App]) -> dict[str, Make]:
    """The dialects of all applications; several may have the same one."""
    kinds: dict[str, Kind] = {}
    for app in apps:
        for name, kind in app.dialects.items():
            if kinds.setdefault(name, kind) is not kind:
                raise CallerError(f"expected one dialect of the name {name}, got another from app {app.name}")
    return {name: plainly(kind) for name, kind in kinds.items()}


def described(operations: list[Operation]) -> Callable[[Request], Awaitable[Response]]:
    """A route for the description of all others."""
    description = openapi(operations, turnlog.__version__)

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
    describe: Describe = mask,
) -> Starlette:
    """The ASGI application of some apps and a log, by its address or its store.

    `state.stop_streams()` ends its open streams; `state.set_tokens(tokens)` changes whose tokens count.
    Without `auth` only its own sign-in links let anybody in: `state.auth.sign_in_code`.
    `describe` says what members read of a tool that failed; `executor.explain` is for development.
    """
    auth = auth or Auth(secrets.token_bytes(32))
    server = Server([apps] if isinstance(apps, App) else apps, log, auth, limits, describe)
    operations = server.operations()
    page = page_routes()
    public = [one.path for one in operations if one.public] + [file.path for file in page]
    told = [Route(one.path, one.endpoint, methods=[one.method]) for one in operations]
    checks: list[Check] = [Guard(hosts), Entry(auth, server.budgets, public)]
    application = Starlette(
        routes=[
            *told,
            Route("/openapi.json", described(operations)),
            *page,
        ],
        middleware=[
            Middleware(Journal),
            Middleware(
                Front, checks=checks, direct=[one for one in told if one.endpoint == server.stream.events]
            ),
        ],
        exception_handlers={TurnlogError: refuse, HTTPException: refuse_route},
        lifespan=server.lifespan,
    )
    application.router.redirect_slashes = False  # a path is right, or it is 404
    application.state.stop_streams = server.stream.stop
    application.state.set_tokens = server.set_tokens
    application.state.auth = auth
    return application
