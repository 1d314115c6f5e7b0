"""ASGI middleware before the routes: run the checks, add security headers, serve streams without the router.

1. The checks run in order; the response of the first one that refuses is sent.
2. Routes in `bypass_router` are called from here: a stream stays open for long, and each layer of Starlette's
   router around it would keep its frames and memory alive. So are those that are called very often.
3. Every other request goes to the application.
"""

from collections.abc import Awaitable, Callable, Iterable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnlog.errors import TurnlogError
from turnlog.server.error_responses import error_response
from turnlog.server.scope_keys import REQUEST_CHARGE_KEY

SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),  # a response is for its caller only, unless its route sets another value
]

ANY_PATH = "{path:path}"

RequestCheck = Callable[[Scope], Awaitable[Response | None]]
"""Returns None to let a request pass, or the response that refuses it."""


class RequestChecksMiddleware:
    """Runs the checks. `headers` are added to every response that does not have them.

    `headers_for` returns more of them for a request, in place of those of the same name.
    """

    def __init__(
        self,
        app: ASGIApp,
        checks: Iterable[RequestCheck],
        bypass_router: Iterable[Route] = (),
        headers: Iterable[tuple[bytes, bytes]] = SECURITY_HEADERS,
        headers_for: Callable[[Scope], Iterable[tuple[bytes, bytes]]] = lambda _: (),
    ) -> None:
        self._app = app
        self._checks = tuple(checks)
        self._bypass_routes: dict[tuple[str, str], Route] = {}
        self._bypass_prefixes: dict[tuple[str, str], Route] = {}  # of routes whose last part is any path
        for route in bypass_router:
            prefix, separator, _ = route.path.partition(ANY_PATH)
            routes = self._bypass_prefixes if separator else self._bypass_routes
            for method in route.methods or ():
                routes.setdefault((method, prefix), route)
        self._prefixes = tuple({prefix for _, prefix in self._bypass_prefixes})
        self._headers = tuple(headers)
        self._headers_for = headers_for

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        send_with_headers = HeaderSend(send, self._all_headers(scope))
        refusal = await self._run_checks(scope)
        if refusal is not None:
            await refusal(scope, receive, send_with_headers)
            return

        work = self._respond(scope, receive, send_with_headers)
        charge = scope.get(REQUEST_CHARGE_KEY)
        if charge is not None:
            work = charge.run(work)
        await work

    def _all_headers(self, scope: Scope) -> tuple[tuple[bytes, bytes], ...]:
        more = dict(self._headers_for(scope))
        # A stream keeps its headers: most share one tuple.
        return tuple((dict(self._headers) | more).items()) if more else self._headers

    async def _run_checks(self, scope: Scope) -> Response | None:
        for check in self._checks:
            refusal = await check(scope)
            if refusal is not None:
                return refusal
        return None

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._call_bypass_route(scope, receive) or self._app
        await response(scope, receive, send)

    async def _call_bypass_route(self, scope: Scope, receive: Receive) -> ASGIApp | None:
        route = self._find_bypass_route(scope)
        if route is None:
            return None
        scope["route"] = route
        endpoint: Callable[[Request], Awaitable[ASGIApp]] = route.endpoint
        try:
            return await endpoint(Request(scope, receive))
        except TurnlogError as error:
            return error_response(error)

    def _find_bypass_route(self, scope: Scope) -> Route | None:
        """Return the route of a request; None if the router serves it. Sets the parameter `path`."""
        path = get_route_path(scope)
        method = scope["method"]
        route = self._bypass_routes.get((method, path))
        if route is not None or not path.startswith(self._prefixes):
            return route
        for prefix in self._prefixes:
            if path.startswith(prefix):
                scope["path_params"] = {"path": path[len(prefix) :]}
                return self._bypass_prefixes.get((method, prefix))
        return None


class HeaderSend:
    """A `send` that adds headers to a response that does not have them."""

    __slots__ = ("_headers", "_send")

    def __init__(self, send: Send, headers: tuple[tuple[bytes, bytes], ...]) -> None:
        self._send = send
        self._headers = headers

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            names = {name for name, _ in message["headers"]}
            missing = [header for header in self._headers if header[0] not in names]
            message = {**message, "headers": [*message["headers"], *missing]}
        await self._send(message)


def get_route_path(scope: Scope) -> str:
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))
