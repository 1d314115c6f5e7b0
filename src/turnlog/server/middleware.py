"""The front: what every request passes, in this order, whatever it asks for. One ASGI middleware.

First the checks; the first one that refuses answers. Then the routes. Those that are named in `direct` are
answered from here, without the layers of a router: an event stream lasts, and each layer around it costs
memory for as long. Every answer says how browsers must treat it.
"""

from collections.abc import Awaitable, Callable, Iterable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnlog.errors import TurnlogError
from turnlog.server.error_responses import error_response

SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),  # an answer belongs to who asked, unless its route says otherwise
]

REQUEST_CHARGE_KEY = "turnlog.account"  # where a check says who pays for a request

RequestCheck = Callable[[Scope], Awaitable[Response | None]]
"""Lets a request pass, or says what is answered instead."""


class RequestChecksMiddleware:
    """The one way in. `headers` are those of every answer that does not say them itself."""

    def __init__(
        self,
        app: ASGIApp,
        checks: Iterable[RequestCheck],
        bypass_router: Iterable[Route] = (),
        headers: Iterable[tuple[bytes, bytes]] = SECURITY_HEADERS,
    ) -> None:
        self._app = app
        self._checks = tuple(checks)
        self._bypass_routes = {
            (method, route.path): route for route in bypass_router for method in route.methods or ()
        }
        self._headers = tuple(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told = HeaderSend(send, self._headers)
        if refused := await self._run_checks(scope):
            await refused(scope, receive, told)
            return
        work = self._respond(scope, receive, told)
        await (scope[REQUEST_CHARGE_KEY].answer(work) if REQUEST_CHARGE_KEY in scope else work)

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._call_bypass_route(scope, receive) or self._app
        await answer(scope, receive, send)

    async def _run_checks(self, scope: Scope) -> Response | None:
        for check in self._checks:
            if answer := await check(scope):
                return answer
        return None

    async def _call_bypass_route(self, scope: Scope, receive: Receive) -> ASGIApp | None:
        """What a route that is answered from here answers."""
        route = self._bypass_routes.get((scope["method"], get_route_path(scope)))
        if route is None:
            return None
        scope["route"] = route
        endpoint: Callable[[Request], Awaitable[ASGIApp]] = route.endpoint
        try:
            return await endpoint(Request(scope, receive))
        except TurnlogError as error:
            return error_response(error)


class HeaderSend:
    """A `send` that adds headers."""

    __slots__ = ("_headers", "_send")

    def __init__(self, send: Send, headers: tuple[tuple[bytes, bytes], ...]) -> None:
        self._send = send
        self._headers = headers

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            said = {name for name, _ in message["headers"]}
            more = [header for header in self._headers if header[0] not in said]
            message = {**message, "headers": [*message["headers"], *more]}
        await self._send(message)


def get_route_path(scope: Scope) -> str:
    """The path of a request, without what the application is mounted at."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))
