"""Before every route: who is asking, and whether they ask too often, for too much or for too much at once.

The routes find the principal in the scope. Public routes need no sign-in; requests of peers that have not
signed in are counted together. Refusals are 401, 412, 429 and, while the server has too many connections or
such peers, 503, as JSON. A body counts as it is announced, before it is read; one that does not say how long
it is counts as the longest that is allowed.
"""

import math
import time
from collections.abc import Collection, Coroutine
from typing import Any
from urllib.parse import unquote

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from turnlog.app import Principal
from turnlog.errors import Forbidden
from turnlog.events.strict_json import MAX_JSON_BYTES
from turnlog.server.auth.credentials import Authenticator, BuiltinAuth, Identity, is_guest
from turnlog.server.connections import FULL_MESSAGE, RESERVE_KEY, ConnectionLimit
from turnlog.server.html_pages import accepts_html, error_page
from turnlog.server.limits import RateLimiter
from turnlog.server.middleware import REQUEST_CHARGE_KEY, get_route_path
from turnlog.server.request_cost import MeteredCoroutine

IDENTITY_KEY = "turnlog.known"
PRINCIPAL_KEY = "turnlog.principal"
PRINCIPAL_HEADER = b"turnlog-principal"  # whom a page was opened by: another tab may have signed in since
HEALTH_PATH = "/healthz"
RETRY_WHEN_FULL_S = 5
SIGN_IN_MESSAGE = "sign in first"
TOO_MANY_CONCURRENT_MESSAGE = "too many requests at once, wait for some of them"
HOW_TO_SIGN_IN = ": open the link the server printed, or send the header Authorization: Bearer <token>"


class AuthenticationCheck:
    """Lets in who is known and within their limits. One of the checks of the front."""

    def __init__(self, auth: Authenticator, rate_limiter: RateLimiter, public_paths: Collection[str]) -> None:
        self._auth = auth
        self._rate_limiter = rate_limiter
        self._public_paths = frozenset(public_paths)

    async def __call__(self, scope: Scope) -> Response | None:
        """Put who is asking into the scope; what to answer instead, if they may not."""
        known = await self._auth.authenticate(HTTPConnection(scope), time.time())
        if known is not None:
            scope[IDENTITY_KEY], scope[PRINCIPAL_KEY] = known, known.principal
        if (answer := refuse_in_reserve(scope, known)) is not None:
            return answer
        if get_route_path(scope) == HEALTH_PATH:
            return None
        if get_route_path(scope) in self._public_paths:
            return await self._start_request(scope, None)
        if known is None and scope["method"] == "GET" and accepts_html(scope):
            return error_page(scope, "Sign in first", 401)
        if known is None:
            headers = {"www-authenticate": "Bearer"}
            how = HOW_TO_SIGN_IN if isinstance(self._auth, BuiltinAuth) else ""
            return JSONResponse({"error": SIGN_IN_MESSAGE + how}, 401, headers)
        if not is_expected_principal(scope, known.principal):
            return JSONResponse({"error": f"you are signed in as {known.principal.name} now"}, 412)
        wait_s = self._rate_limiter.consume_request(
            known.principal, declared_body_bytes(scope), time.monotonic()
        )
        if not wait_s:
            return await self._start_request(scope, known.principal)
        return await self._refuse_over_limit(known.principal, "too many requests, wait a little", wait_s)

    async def _start_request(self, scope: Scope, principal: Principal | None) -> Response | None:
        """Count a request until it is answered; what to answer instead, if there are too many."""
        if await self._rate_limiter.start_request(principal):
            scope[REQUEST_CHARGE_KEY] = RequestCharge(self._rate_limiter, principal)
            return None
        if principal is None:
            return JSONResponse({"error": FULL_MESSAGE}, 503, {"retry-after": str(RETRY_WHEN_FULL_S)})
        return await self._refuse_over_limit(principal, TOO_MANY_CONCURRENT_MESSAGE)

    async def _refuse_over_limit(
        self, principal: Principal, problem: str, retry_after_s: float = 1.0
    ) -> Response:
        """Return the refusal of a principal that is over a limit, at once or a little later."""
        await self._rate_limiter.delay_refusal(principal, time.monotonic())
        return JSONResponse({"error": problem}, 429, {"retry-after": str(math.ceil(retry_after_s))})


class RequestCharge:
    """A request that is being answered, and who pays for it; None pays nothing."""

    __slots__ = ("_principal", "_rate_limiter")

    def __init__(self, rate_limiter: RateLimiter, principal: Principal | None) -> None:
        self._rate_limiter = rate_limiter
        self._principal = principal

    async def answer(self, work: Coroutine[Any, Any, None]) -> None:
        """Await what answers the request."""
        try:
            await MeteredCoroutine(work, self._charge)
        finally:
            self._rate_limiter.finish_request(self._principal)

    def _charge(self, busy_s: float) -> None:
        if self._principal is not None:
            self._rate_limiter.charge_busy_time(self._principal, busy_s, time.monotonic())


def refuse_in_reserve(scope: Scope, identity: Identity | None) -> Response | None:
    """Return the refusal of a request on a connection that is kept for operators and `/healthz`."""
    limit: ConnectionLimit | None = scope.get(RESERVE_KEY)
    if limit is None or get_route_path(scope) == HEALTH_PATH or (identity and identity.principal.is_operator):
        return None
    limit.record_refusal(time.monotonic())
    return JSONResponse(
        {"error": FULL_MESSAGE}, 503, {"retry-after": str(RETRY_WHEN_FULL_S), "connection": "close"}
    )


def is_expected_principal(scope: Scope, principal: Principal) -> bool:
    """Whether the caller is whom the request names, if it names one; the name is percent-encoded."""
    name = dict(scope["headers"]).get(PRINCIPAL_HEADER)
    return name is None or unquote(name.decode("latin-1")) == principal.name


def declared_body_bytes(scope: Scope) -> int:
    """Return how many bytes the body of a request has, as its headers say."""
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return MAX_JSON_BYTES
    length: bytes = headers.get(b"content-length", b"0")
    # A body over the limit is refused (413) before more of it is read.
    return min(int(length), MAX_JSON_BYTES) if length.isdigit() and len(length) < 19 else MAX_JSON_BYTES


def get_identity(scope: Scope) -> Identity:
    """Who is asking, behind the entry."""
    known: Identity = scope[IDENTITY_KEY]
    return known


def get_session_creator(scope: Scope) -> Principal:
    """Who is asking for a session of their own; guests have the one they were invited to, and no other."""
    principal = get_identity(scope).principal
    if is_guest(principal):
        raise Forbidden("guests do not make sessions: name the one you were invited to")
    return principal
