"""Pages of other origins that may use this server: `--allow-origin` (CORS).

An origin is allowed by its exact text, never by a pattern. Such a page gets the headers that let it read the
responses, with credentials; a preflight request is answered before anybody signs in, because browsers send
it without credentials. Every other origin gets no header, and `HostOriginCheck` refuses it.
"""

import re
from collections.abc import Iterable

from starlette.responses import Response
from starlette.types import Scope

from turnlog.errors import CallerError, quote
from turnlog.wire.durable_streams import requests as durable_streams

ORIGIN_PATTERN = re.compile(r"https?://(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
DEFAULT_PORTS = {"http": "80", "https": "443"}
ALLOWED_METHODS = "GET, HEAD, POST, PUT, DELETE"
OWN_REQUEST_HEADERS = (
    "authorization",
    "content-type",
    "idempotency-key",
    "last-event-id",
    "turnlog-principal",
    "turnlog-ai-sdk",
)
OWN_RESPONSE_HEADERS = ("turnlog-session", "turnlog-turn", "retry-after")
ALLOWED_HEADERS = ", ".join(dict.fromkeys((*OWN_REQUEST_HEADERS, *durable_streams.REQUEST_HEADERS)))
EXPOSED_HEADERS = ", ".join((*OWN_RESPONSE_HEADERS, *durable_streams.RESPONSE_HEADERS))
PREFLIGHT_AGE_S = 600  # as long as Chromium remembers an answer at most
HeaderList = tuple[tuple[bytes, bytes], ...]


class AllowedOrigins:
    """The origins, the headers for them, and the check that answers their preflight requests."""

    def __init__(self, origins: Iterable[str] = ()) -> None:
        self._origins = frozenset(origins)
        for origin in self._origins:
            if not ORIGIN_PATTERN.fullmatch(origin):
                form = "an origin such as https://app.example.org, in lower case and without a path"
                raise CallerError(f"expected {form}, got {quote(origin)}")
            # Browsers leave this port out, so such an origin would never match.
            scheme, _, host = origin.partition("://")
            if host.endswith(f":{DEFAULT_PORTS[scheme]}"):
                raise CallerError(f"expected an origin without the port of {scheme}, got {quote(origin)}")

    def __contains__(self, origin: str) -> bool:
        return origin in self._origins

    def response_headers(self, scope: Scope) -> HeaderList:
        """Return the headers that let the page of a request read its response."""
        origin = read_origin(scope)
        if not self._origins:
            return ()
        # A cache must not give the response for one origin to another.
        vary = (b"vary", b"origin")
        if origin not in self:
            return (vary,)
        return (
            vary,
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-allow-credentials", b"true"),
            (b"access-control-expose-headers", EXPOSED_HEADERS.encode()),
            (b"cross-origin-resource-policy", b"cross-origin"),
        )

    async def answer_preflight(self, scope: Scope) -> Response | None:
        """Return the answer to a preflight request of an allowed origin; None lets other requests pass."""
        names = {name for name, _ in scope["headers"]}
        is_preflight = scope["method"] == "OPTIONS" and b"access-control-request-method" in names
        if not is_preflight or read_origin(scope) not in self:
            return None
        headers = {
            "access-control-allow-methods": ALLOWED_METHODS,
            "access-control-allow-headers": ALLOWED_HEADERS,
            "access-control-max-age": str(PREFLIGHT_AGE_S),
        }
        return Response(status_code=204, headers=headers)


def read_origin(scope: Scope) -> str:
    """Return the origin of a request; an empty text without one, or with several."""
    origins: list[str] = [value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"]
    return origins[0] if len(origins) == 1 else ""
