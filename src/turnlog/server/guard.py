"""Host and Origin, checked before every route: a page of another site must not reach this server.

A name that was rebound to loopback shows in `Host`, a foreign page in `Origin`. Absent Origin is fine (not a
page); `null` is not. Refusals say which header and which names are allowed.
"""

from collections.abc import Iterable

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class Guard:
    """ASGI middleware that refuses foreign hosts and origins."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refusal := self._refusal(scope)):
            await JSONResponse({"error": refusal}, 421)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> str | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        origin = headers.get(b"origin", b"").decode("latin-1")
        allowed = ", ".join(sorted(self._hosts))
        if host_name(host) not in self._hosts:
            return f"this server does not answer for Host {host[:80]!r}; it answers for {allowed}"
        if origin and (not origin.startswith(("http://", "https://")) or not same_host(origin, host)):
            return f"this server does not answer pages of Origin {origin[:80]!r}"
        return None


def host_name(host: str) -> str:
    """A Host header without its port."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isascii() and port.isdigit() else host


def same_host(origin: str, host: str) -> bool:
    """Whether a page's origin is this very server."""
    return origin.partition("://")[2] == host
