"""`create_app`: Turnlog as one ASGI application (protocol section 8).

Bodies are strict JSON of a declared type. Every refusal is JSON with an `error` that a person can read. The
routes are in `routes/` and `streaming/event_stream.py`, each with its `Operation`; `middleware` runs before
them. The console is at `/`. An application that mounts this one must run its lifespan:
`FastAPI(lifespan=turnlog_app.router.lifespan_context)`, or enter it in its own lifespan.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import turnlog
from turnlog.adapters.remote.remote_agent import RemoteAgent
from turnlog.agents.runtime.executor import DescribeError, mask_tool_error
from turnlog.app import App, Principal, Sessions
from turnlog.app.sessions import Role, index_apps
from turnlog.errors import CallerError, TurnlogError
from turnlog.log import Log, Store, open_log
from turnlog.server.access_log import AccessLogMiddleware
from turnlog.server.auth.allowed_origins import AllowedOrigins
from turnlog.server.auth.authentication import AuthenticationCheck
from turnlog.server.auth.credentials import Authenticator, BuiltinAuth, Identity
from turnlog.server.auth.host_check import LOOPBACK, HostOriginCheck
from turnlog.server.auth.revocation import Revocation
from turnlog.server.auth.sign_in_journal import SERVER_APP, SignInJournal
from turnlog.server.console_files import console_routes
from turnlog.server.error_responses import handle_error, handle_http_exception
from turnlog.server.html_pages import get_root_path
from turnlog.server.limits.policy import Limits
from turnlog.server.limits.rate_limiter import RateLimiter
from turnlog.server.metrics import Metrics
from turnlog.server.middleware import RequestCheck, RequestChecksMiddleware
from turnlog.server.openapi import Operation, build_openapi
from turnlog.server.protocols.base import ProtocolServer, ServerProtocol, index_protocols
from turnlog.server.request_body import make_decoder_executor
from turnlog.server.responses import json_response
from turnlog.server.routes.agent import AgentRoutes
from turnlog.server.routes.blobs import BlobRoutes
from turnlog.server.routes.chat import ChatRoutes
from turnlog.server.routes.documents import DocumentRoutes
from turnlog.server.routes.invites import InviteRoutes
from turnlog.server.routes.messages import MessageRoutes
from turnlog.server.routes.parts import PartRoutes
from turnlog.server.routes.record import RecordRoutes
from turnlog.server.routes.server_info import ServerInfoRoutes
from turnlog.server.routes.sessions import SessionRoutes
from turnlog.server.routes.sign_in import SignIn
from turnlog.server.routes.state import StateRoutes
from turnlog.server.session_access import SessionAccess
from turnlog.server.streaming.event_stream import EventStreamRoute
from turnlog.vocabularies import DIALECTS
from turnlog.wire.dialects.registry import DialectRegistry
from turnlog.wire.durable_streams.events import STREAM_APP

REACH_CHECK_S = 1.0
RESERVED_APP_NAMES = frozenset({SERVER_APP, STREAM_APP})


def create_app(  # noqa: PLR0913  all but the first two are options
    apps: App | Iterable[App],
    log: str | Store,
    *,
    auth: Authenticator | None = None,
    hosts: Iterable[str] = LOOPBACK,
    limits: Limits = Limits(),  # noqa: B008
    describe: DescribeError = mask_tool_error,
    dialect: str | None = None,
    protocols: Iterable[ServerProtocol] = (),
    origins: Iterable[str] = (),
    role: Role = "both",
) -> Starlette:
    """Build the ASGI application of some apps and a log, given by its address or its store.

    `state.stop_streams()` ends its open streams. `await state.drain(seconds)` prepares its end: it hands the
    sessions over, and ends the streams spread over the time. `state.set_tokens(tokens)` replaces the accepted
    tokens. `state.session_access.sessions` are its sessions while it runs.
    Without `auth` people can only sign in with links of the server: `state.auth.make_sign_in_code`.
    `describe` returns the text that members read about a failed tool; `executor.explain_tool_error` is for
    development. `dialect` replaces the default dialects of the apps. `protocols` are those of other projects
    that it also serves (`turnlog.server.protocols`). Pages of `origins` may use it beside its own: exact
    origins such as `https://app.example.org`. `role` is for a log that several processes share: a `web` node
    serves clients and runs no sessions, a `worker` runs sessions and serves its health and metrics only.
    """
    auth = auth or BuiltinAuth(secrets.token_bytes(32))
    server = Server([apps] if isinstance(apps, App) else apps, log, auth, limits, describe, dialect, role)
    server.protocols = index_protocols(protocols)

    operations = server.operations()
    api_routes = [Route(item.path, item.endpoint, methods=[item.method]) for item in operations]
    openapi_route = Route("/openapi.json", make_openapi_endpoint(operations))
    file_routes = console_routes() if role != "worker" else []

    public_paths = [item.path for item in operations if item.public] + [file.path for file in file_routes]
    allowed_origins = AllowedOrigins(origins)
    checks: list[RequestCheck] = [
        HostOriginCheck(hosts, allowed_origins),
        allowed_origins.answer_preflight,
        AuthenticationCheck(auth, server.rate_limiter, public_paths),
    ]
    bypass_routes = [
        route for route, item in zip(api_routes, operations, strict=True) if item.bypasses_router
    ]

    application = Starlette(
        routes=[*api_routes, openapi_route, *file_routes],
        middleware=[
            Middleware(AccessLogMiddleware),
            Middleware(
                RequestChecksMiddleware,
                checks=checks,
                bypass_router=bypass_routes,
                headers_for=allowed_origins.response_headers,
            ),
        ],
        exception_handlers={TurnlogError: handle_error, HTTPException: handle_http_exception},
        lifespan=server.lifespan,
    )
    application.router.redirect_slashes = False  # a wrong path is 404, not a redirect
    application.state.stop_streams = server.stop_streams
    application.state.drain = server.drain
    application.state.set_tokens = server.set_tokens
    application.state.session_access = server.access
    application.state.auth = auth
    return application


class Server:
    """The parts of one application. Its sessions exist while the lifespan runs."""

    def __init__(
        self,
        apps: Iterable[App],
        log: str | Store,
        auth: Authenticator,
        limits: Limits,
        describe: DescribeError,
        dialect: str | None,
        role: Role,
    ) -> None:
        self._role = role
        self._is_draining = False
        self._apps = list(index_apps(apps).values())
        check_app_names(self._apps)
        self._log = log
        self._auth = auth
        self._describe = describe
        self._limits = limits
        self._metrics = Metrics()
        self.protocols: dict[str, ServerProtocol] = {}
        self.rate_limiter = RateLimiter(limits)
        self.access = SessionAccess(self.rate_limiter)

        is_still_valid = auth.is_still_valid if isinstance(auth, BuiltinAuth) else is_always_valid
        dialects = merge_app_dialects(self._apps)
        if dialect is not None:
            dialects.check_name(dialect)
        self.event_stream = EventStreamRoute(
            self.access, self._metrics, limits, dialects, dialect, is_still_valid
        )

    def operations(self) -> list[Operation]:
        access = self.access
        streams = self.event_stream.streams
        server_info = ServerInfoRoutes(access, self._metrics, self.event_stream, lambda: self._is_draining)
        # parts are held by the process that runs their sessions
        parts = PartRoutes(access, streams).operations() if self._role != "web" else []
        if self._role == "worker":
            return [*server_info.worker_operations(), *parts]
        return [
            *self.event_stream.operations(),
            *MessageRoutes(access).operations(),
            *RecordRoutes(access).operations(),
            *parts,
            *SessionRoutes(access).operations(),
            *StateRoutes(access).operations(),
            *DocumentRoutes(access).operations(),
            *BlobRoutes(access).operations(),
            *SignIn(self._auth, access, streams.end_signed_out).operations(),
            *InviteRoutes(access).operations(),
            *ChatRoutes(access, streams).operations(),
            *AgentRoutes(access, self.event_stream).operations(),
            *server_info.operations(),
            *self._protocol_operations(),
        ]

    def _protocol_operations(self) -> list[Operation]:
        server = ProtocolServer(self.access, self.event_stream, self._limits)
        operations: list[Operation] = []
        for protocol in self.protocols.values():
            operations += protocol.operations(server)
        return operations

    @asynccontextmanager
    async def lifespan(self, application: Starlette) -> AsyncIterator[None]:
        log = await open_log(self._log) if isinstance(self._log, str) else Log(self._log)
        try:
            if self._role != "both" and not log.is_shared:
                raise CallerError(
                    f"a {self._role} needs a log that several processes share, postgresql://..."
                )
            async with self._shared_sign_ins(log), self._watched_reach(log), self._running_sessions(log):
                application.state.decoder = make_decoder_executor()
                try:
                    yield
                finally:
                    application.state.decoder.shutdown(wait=False)
        finally:
            await log.close()

    @asynccontextmanager
    async def _running_sessions(self, log: Log) -> AsyncIterator[None]:
        log.on_members_changed = self.event_stream.streams.on_members_changed
        sessions = Sessions(log, self._apps, os.getpid(), self._metrics, self._describe, role=self._role)
        for agent in self._remote_agents:
            agent.offered_parts.open()
        await sessions.start()
        self.access.set_sessions(sessions)
        try:
            yield
        finally:
            self.access.set_sessions(None)
            self.stop_streams()
            log.stop_waiting()
            await sessions.close()

    @property
    def _remote_agents(self) -> list[RemoteAgent]:
        return [app.remote_agent for app in self._apps if app.remote_agent is not None]

    def stop_streams(self) -> None:
        """End the open streams, and the requests of workers that wait."""
        self.event_stream.stop()
        for agent in self._remote_agents:
            agent.offered_parts.close()

    @asynccontextmanager
    async def _shared_sign_ins(self, log: Log) -> AsyncIterator[None]:
        """Use codes and end sign-ins over all servers of a shared log."""
        auth = self._auth
        if not log.is_shared or not isinstance(auth, BuiltinAuth):
            yield
            return

        def on_sign_out(record: Revocation) -> None:
            auth.revoked_cookies.apply(record)
            self.event_stream.streams.end_signed_out()

        journal = SignInJournal(log, on_sign_out)
        await journal.open()
        auth.use_code = journal.use_code
        auth.revoked_cookies.publish = journal.revoke
        try:
            yield
        finally:
            await journal.close()

    @asynccontextmanager
    async def _watched_reach(self, log: Log) -> AsyncIterator[None]:
        """End the streams while the store is out of reach: their readers go to another server."""
        if not log.is_shared:
            yield
            return

        async def watch() -> None:
            while True:
                if log.reach.is_lost:
                    self.event_stream.stop()
                await asyncio.sleep(REACH_CHECK_S)

        task = asyncio.create_task(watch())
        try:
            yield
        finally:
            task.cancel()

    async def drain(self, timeout_s: float) -> None:
        """Prepare the end of this server: other servers continue its sessions, and get its readers.

        From now on `/healthz` answers 503, so that a load balancer sends no new clients.
        """
        self._is_draining = True
        streams = self.event_stream.streams
        await asyncio.gather(self.access.sessions.drain(timeout_s), streams.drain(timeout_s))

    def set_tokens(self, tokens: Mapping[str, Principal]) -> None:
        """Accept these tokens and no others, and end the streams of readers with another token."""
        assert isinstance(self._auth, BuiltinAuth)
        self._auth.set_tokens(tokens)
        self.event_stream.streams.end_signed_out()


def check_app_names(apps: Iterable[App]) -> None:
    """Raise `CallerError` for a name under which the server keeps sessions of its own."""
    for app in apps:
        if app.name in RESERVED_APP_NAMES:
            raise CallerError(f"{app.name} is a name of the server: choose another one for the application")


def is_always_valid(identity: Identity) -> bool:
    """Return True: a host's own users stay valid until `expires_at_s`."""
    return True


def merge_app_dialects(apps: Iterable[App]) -> DialectRegistry:
    """Return the dialects of all applications. Raise `CallerError` if two give one name to different ones."""
    definitions = dict(DIALECTS.definitions)
    for app in apps:
        for name, definition in app.dialects.definitions.items():
            if definitions.setdefault(name, definition) != definition:
                raise CallerError(f"expected one dialect of the name {name}, got another from app {app.name}")
    return DialectRegistry(definitions)


def make_openapi_endpoint(operations: list[Operation]) -> Callable[[Request], Awaitable[Response]]:
    document = build_openapi(operations, turnlog.__version__)

    async def get_openapi(request: Request) -> Response:
        servers = [{"url": get_root_path(request.scope) or "/"}]
        return json_response({**document, "servers": servers})

    return get_openapi
