"""Host and Origin, checked before every route: a page of another site must not reach this server.

A DNS name that was rebound to loopback shows in `Host`. A page of another site shows in `Origin` or, where
browsers send none, in `Sec-Fetch-Site`; such a page may only link here. Requests without these headers pass,
since they do not come from a page; `Origin: null` does not pass. Allowed origins pass. A foreign `Host` gets
421 (RFC 9110: the request was sent to the wrong server). A foreign page gets 403: browsers repeat a request
that got 421.
"""

from collections.abc import Iterable

from starlette.responses import Response
from starlette.types import Scope

from turnlog.server.auth.allowed_origins import AllowedOrigins, read_origin
from turnlog.server.responses import json_error

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
NO_ORIGINS = AllowedOrigins()
# Sec-Fetch-Site of requests that may pass: not a browser, a page of this server, a person (address bar).
ALLOWED_FETCH_SITES = (b"", b"same-origin", b"none")


class HostOriginCheck:
    """Refuses requests for other hosts and from pages of other sites."""

    def __init__(self, hosts: Iterable[str], origins: AllowedOrigins = NO_ORIGINS) -> None:
        self._hosts = frozenset(hosts)
        self._origins = origins

    async def __call__(self, scope: Scope) -> Response | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if strip_port(host) not in self._hosts:
            allowed = ", ".join(sorted(self._hosts))
            message = f"this server does not answer for Host {host[:80]!r}; it answers for {allowed}"
            return json_error(message, 421)

        # The browser checks what such a page may read, by the headers that it gets.
        if read_origin(scope) in self._origins:
            return None
        origin_error = find_origin_error(scope["method"], headers, host)
        if origin_error is not None:
            return json_error(origin_error, 403)
        return None


def find_origin_error(method: str, headers: dict[bytes, bytes], host: str) -> str | None:
    origin = headers.get(b"origin", b"").decode("latin-1")
    is_web_origin = origin.startswith(("http://", "https://"))
    if origin and not (is_web_origin and is_same_host(origin, host)):
        return f"this server does not answer pages of Origin {origin[:80]!r}"

    is_link = method == "GET" and headers.get(b"sec-fetch-mode") == b"navigate"
    if headers.get(b"sec-fetch-site", b"") not in ALLOWED_FETCH_SITES and not is_link:
        return "this server does not answer pages of other sites"
    return None


def strip_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isascii() and port.isdigit() else host


def is_same_host(origin: str, host: str) -> bool:
    return origin.partition("://")[2] == host
