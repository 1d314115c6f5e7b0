"""The routes, as one ASGI application (protocol section 8).

Bodies are JSON of a declared shape and pass the gate. Every refusal is JSON with an `error` that a person can
read; which status it has is a table. The event stream is raw ASGI; a plain page is served at `/`.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from importlib.resources import files
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

import turnlog
from turnlog.agents.tools import PICTURES
from turnlog.app import App, Sessions
from turnlog.app.sessions import Posted
from turnlog.errors import (
    BadInput,
    Closed,
    Conflict,
    InvalidEvent,
    NotFound,
    StoreError,
    TurnlogError,
    UnknownType,
)
from turnlog.events import UiMessage
from turnlog.ids import new_id
from turnlog.log import open_log
from turnlog.log.transfer import export_session
from turnlog.server.agent import AgentRoutes
from turnlog.server.body import OversizedBody, UnsupportedBody, body, checked_text
from turnlog.server.guard import LOOPBACK, Guard
from turnlog.server.metrics import Metrics
from turnlog.server.stream import EventStream

STATUS = {
    UnsupportedBody: 415,
    OversizedBody: 413,
    BadInput: 400,
    InvalidEvent: 400,
    UnknownType: 400,
    NotFound: 404,
    Conflict: 409,
    Closed: 409,
    StoreError: 507,
}
KEY_CHARS = 256
BLOB_HEADERS = {
    "content-disposition": "attachment",
    "content-security-policy": "default-src 'none'; sandbox",
    "x-content-type-options": "nosniff",
    "cache-control": "private, max-age=31536000, immutable",
}
PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


class SendBody(msgspec.Struct, forbid_unknown_fields=True):
    session: str
    message: str
    target_agent: str | None = msgspec.field(default=None, name="targetAgent")


class EventBody(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    payload: dict[str, Any] = {}
    id: str | None = None


class EventsBody(msgspec.Struct, forbid_unknown_fields=True):
    session: str
    events: list[EventBody]


class SessionBody(msgspec.Struct, forbid_unknown_fields=True):
    session: str


class Routes:
    """What the server can be asked."""

    def __init__(self) -> None:
        self.sessions: Sessions | None = None
        self.metrics = Metrics()
        self.stream = EventStream(self.opened, self.metrics)
        self.agent = AgentRoutes(self.stream)

    def opened(self) -> Sessions:
        """The sessions, once the server has started."""
        if self.sessions is None:
            raise StoreError("the server is not ready yet")
        return self.sessions

    async def create_session(self, request: Request) -> Response:
        await body(request, dict[str, Any])
        return JSONResponse({"session_id": await self.opened().create()}, 201)

    async def send(self, request: Request) -> Response:
        sent = await body(request, SendBody)
        message = UiMessage(text=checked_text(sent.message, "$.message"), target=sent.target_agent)
        event_id = keyed_id(sent.session, request.headers.get("idempotency-key"))
        seq, event_id, turn = await self.opened().send(sent.session, message, event_id)
        return JSONResponse({"eventId": seq, "id": event_id, "turn": turn}, 202)

    async def post_events(self, request: Request) -> Response:
        sent = await body(request, EventsBody)
        posted = [Posted(item.type, item.payload, item.id or new_id("evt_")) for item in sent.events]
        return JSONResponse({"seqs": await self.opened().post(sent.session, posted)}, 202)

    async def stop(self, request: Request) -> Response:
        sent = await body(request, SessionBody)
        return JSONResponse({"eventId": await self.opened().stop(sent.session)}, 202)

    async def state(self, request: Request) -> Response:
        seq, state = await self.opened().state(request.query_params.get("session", ""))
        return Response(msgspec.json.encode({"seq": seq, "state": state}), media_type="application/json")

    async def blob(self, request: Request) -> Response:
        """Binary content, as an attachment: whatever it is, it is not a page of this server."""
        blob = await self.opened().log.get_blob(request.path_params["digest"])
        media_type = blob.media_type if blob.media_type in PICTURES else "application/octet-stream"
        return Response(blob.data, media_type=media_type, headers=BLOB_HEADERS)

    async def log(self, request: Request) -> Response:
        """A session's log as lines of JSON, as `turnlog export` writes it."""
        session_id = request.query_params.get("session", "")
        await self.opened().log.info(session_id)  # one that is not there is refused before anything is said
        lines = (line + b"\n" async for line in export_session(self.opened().log, session_id))
        name = f'attachment; filename="{session_id}.jsonl"'
        headers = {"content-disposition": name, "x-content-type-options": "nosniff"}
        return StreamingResponse(lines, media_type="application/jsonl", headers=headers)

    async def measured(self, _: Request) -> Response:
        """What Prometheus reads."""
        return Response(self.metrics.text(self.stream.lags()), media_type="text/plain; version=0.0.4")

    async def health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok" if self.sessions else "starting", "version": turnlog.__version__})


def keyed_id(session_id: str, key: str | None) -> str | None:
    """The event id of a request that names itself, so that sending it again is sending it once."""
    if key is None:
        return None
    if not 0 < len(key) <= KEY_CHARS:
        raise BadInput(f"expected an Idempotency-Key of 1 to {KEY_CHARS} characters, got {len(key)}")
    return "evt_" + sha256(f"{session_id}:{key}".encode()).hexdigest()[:40]


async def refuse(_: Request, error: Exception) -> Response:
    """A refusal as JSON; the table says which status."""
    status = next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)
    return JSONResponse({"error": str(error)}, status)


class Raw:
    """A method as an ASGI endpoint: Starlette takes functions for something else."""

    def __init__(self, endpoint: ASGIApp) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._endpoint(scope, receive, send)


def page_file(name: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    """A route for a file of the page."""

    async def route(_: Request) -> Response:
        text = files("turnlog.server").joinpath("page", name).read_text(encoding="utf-8")
        return Response(text, media_type=media_type, headers=PAGE_HEADERS)

    return route


def create_app(app: App, log_url: str, hosts: tuple[str, ...] = LOOPBACK) -> Starlette:
    """The ASGI application of an app and a log; `state.stop_streams()` ends its open streams."""
    routes = Routes()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        log = await open_log(log_url)
        sessions = Sessions(log, app, os.getpid(), routes.metrics.observe)
        await sessions.recover()
        routes.sessions = sessions
        try:
            yield
        finally:
            await sessions.close()
            await log.close()

    application = Starlette(
        routes=[
            Route("/api/events", routes.stream, methods=["GET"]),
            Route("/api/events", routes.post_events, methods=["POST"]),
            Route("/api/send", routes.send, methods=["POST"]),
            Route("/api/stop", routes.stop, methods=["POST"]),
            Route("/api/sessions", routes.create_session, methods=["POST"]),
            Route("/api/state", routes.state, methods=["GET"]),
            Route("/api/blobs/{digest}", routes.blob, methods=["GET"]),
            Route("/api/log", routes.log, methods=["GET"]),
            Route("/agent/run", Raw(routes.agent.run), methods=["POST"]),
            Route("/agent/tool_results", Raw(routes.agent.tool_results), methods=["POST"]),
            Route("/metrics", routes.measured, methods=["GET"]),
            Route("/healthz", routes.health, methods=["GET"]),
            Route("/", page_file("index.html", "text/html"), methods=["GET"]),
            Route("/page.js", page_file("page.js", "text/javascript"), methods=["GET"]),
            Route("/page.css", page_file("page.css", "text/css"), methods=["GET"]),
        ],
        middleware=[Middleware(Guard, hosts=hosts)],
        exception_handlers={TurnlogError: refuse},
        lifespan=lifespan,
    )
    application.state.stop_streams = routes.stream.stop
    return application
