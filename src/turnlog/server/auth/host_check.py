"""Host and Origin, checked before every route: a page of another site must not reach this server.

A name that was rebound to loopback shows in `Host`, a foreign page in `Origin` or, where browsers send none,
in `Sec-Fetch-Site`; only a link from elsewhere may lead here. Absent headers are fine (not a page); `null` is
not. A foreign `Host` is 421: the request was sent to the wrong server. A foreign page is 403: browsers send a
request that got 421 a second time. Refusals say which header and which names are allowed.
"""

from collections.abc import Iterable

from starlette.responses import JSONResponse, Response
from starlette.types import Scope

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
ALLOWED_FETCH_SITES = (
    b"",
    b"same-origin",
    b"none",
)  # where a request may come from: this server's page, or a person


class HostOriginCheck:
    """Refuses foreign hosts and origins. One of the checks of the front."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope) -> Response | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if strip_port(host) not in self._hosts:
            allowed = ", ".join(sorted(self._hosts))
            problem = f"this server does not answer for Host {host[:80]!r}; it answers for {allowed}"
            return JSONResponse({"error": problem}, 421)
        if foreign := find_origin_error(scope["method"], headers, host):
            return JSONResponse({"error": foreign}, 403)
        return None


def find_origin_error(method: str, headers: dict[bytes, bytes], host: str) -> str | None:
    """Return why the page that sent a request is not one of this server's, or None."""
    origin = headers.get(b"origin", b"").decode("latin-1")
    if origin and (not origin.startswith(("http://", "https://")) or not is_same_host(origin, host)):
        return f"this server does not answer pages of Origin {origin[:80]!r}"
    link = method == "GET" and headers.get(b"sec-fetch-mode") == b"navigate"
    if headers.get(b"sec-fetch-site", b"") not in ALLOWED_FETCH_SITES and not link:
        return "this server does not answer pages of other sites"
    return None


def strip_port(host: str) -> str:
    """A Host header without its port."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isascii() and port.isdigit() else host


def is_same_host(origin: str, host: str) -> bool:
    """Whether a page's origin is this very server."""
    return origin.partition("://")[2] == host
