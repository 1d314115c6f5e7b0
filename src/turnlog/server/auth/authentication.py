"""Authentication and rate limits, checked before every route.

Input: an ASGI scope. Output: the caller's `Identity` in the scope, or a refusal as JSON: 401, 412, 429, or
503 while the server has too many connections or too many callers that are not signed in.

Public routes need no sign-in; callers that are not signed in share one limit. The body counts with the size
that the headers declare, before it is read; one without a size counts as the largest that is allowed.
"""

import math
import time
from collections.abc import Collection, Coroutine
from functools import partial
from typing import Any
from urllib.parse import unquote

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Scope

from turnlog.app import Principal
from turnlog.app.membership import is_guest
from turnlog.errors import Forbidden
from turnlog.events.strict_json import MAX_JSON_BYTES
from turnlog.server.auth.credentials import Authenticator, BuiltinAuth, Identity
from turnlog.server.html_pages import accepts_html, error_page
from turnlog.server.limits.connections import FULL_MESSAGE, ConnectionLimit
from turnlog.server.limits.rate_limiter import RateLimiter
from turnlog.server.limits.request_cost import MeteredCoroutine
from turnlog.server.middleware import get_route_path
from turnlog.server.responses import json_error
from turnlog.server.scope_keys import IDENTITY_KEY, PRINCIPAL_KEY, REQUEST_CHARGE_KEY, RESERVE_KEY

# The principal that a page was opened by: another tab may have signed in since.
PRINCIPAL_HEADER = b"turnlog-principal"
HEALTH_PATH = "/healthz"
RETRY_WHEN_FULL_S = 5
MAX_LENGTH_DIGITS = 18  # of Content-Length; int() of a very long text is slow
SIGN_IN_MESSAGE = "sign in first"
HOW_TO_SIGN_IN = ": open the link the server printed, or send the header Authorization: Bearer <token>"
TOO_MANY_REQUESTS_MESSAGE = "too many requests, wait a little"
TOO_MANY_CONCURRENT_MESSAGE = "too many requests at once, wait for some of them"


class AuthenticationCheck:
    """Authenticates a request and takes it from its principal's limits."""

    def __init__(self, auth: Authenticator, rate_limiter: RateLimiter, public_paths: Collection[str]) -> None:
        self._auth = auth
        self._rate_limiter = rate_limiter
        self._public_paths = frozenset(path for path in public_paths if "{" not in path)
        self._public_patterns = [compile_path(path)[0] for path in public_paths if "{" in path]

    async def __call__(self, scope: Scope) -> Response | None:
        """Put the caller's identity into the scope. Return None, or the response that refuses the request."""
        identity = await self._auth.authenticate(HTTPConnection(scope), time.time())
        if identity is not None:
            scope[IDENTITY_KEY] = identity
            scope[PRINCIPAL_KEY] = identity.principal

        refusal = refuse_in_reserve(scope, identity)
        if refusal is not None:
            return refusal

        path = get_route_path(scope)
        if path == HEALTH_PATH:
            return None
        if self._is_public(path):
            return await self._start_request(scope, None)
        if identity is None:
            return self._refuse_anonymous(scope)
        if not is_expected_principal(scope, identity.principal):
            return json_error(f"you are signed in as {identity.principal.name} now", 412)

        principal = identity.principal
        wait_s = self._rate_limiter.consume_request(principal, declared_body_bytes(scope), time.monotonic())
        if wait_s:
            return await self._refuse_over_limit(principal, TOO_MANY_REQUESTS_MESSAGE, wait_s)
        return await self._start_request(scope, principal)

    def _is_public(self, path: str) -> bool:
        return path in self._public_paths or any(item.match(path) for item in self._public_patterns)

    def _refuse_anonymous(self, scope: Scope) -> Response:
        if scope["method"] == "GET" and accepts_html(scope):
            return error_page(scope, "Sign in first", 401)
        how = HOW_TO_SIGN_IN if isinstance(self._auth, BuiltinAuth) else ""
        return json_error(SIGN_IN_MESSAGE + how, 401, {"www-authenticate": "Bearer"})

    async def _start_request(self, scope: Scope, principal: Principal | None) -> Response | None:
        """Count the request as running until its response has ended, or return the refusal.

        None is a caller that is not signed in.
        """
        if await self._rate_limiter.start_request(principal):
            scope[REQUEST_CHARGE_KEY] = RequestCharge(self._rate_limiter, principal)
            return None
        if principal is None:
            return json_error(FULL_MESSAGE, 503, {"retry-after": str(RETRY_WHEN_FULL_S)})
        return await self._refuse_over_limit(principal, TOO_MANY_CONCURRENT_MESSAGE)

    async def _refuse_over_limit(
        self, principal: Principal, message: str, retry_after_s: float = 1.0
    ) -> Response:
        await self._rate_limiter.delay_refusal(principal, time.monotonic())
        return json_error(message, 429, {"retry-after": str(math.ceil(retry_after_s))})


class RequestCharge:
    """A running request and the principal that its processor time is charged to; None is not charged."""

    __slots__ = ("_principal", "_rate_limiter")

    def __init__(self, rate_limiter: RateLimiter, principal: Principal | None) -> None:
        self._rate_limiter = rate_limiter
        self._principal = principal

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        principal = self._principal
        try:
            if principal is not None and self._rate_limiter.has_busy_limit(principal):
                await MeteredCoroutine(work, partial(self._charge, principal))
            else:
                await work
        finally:
            self._rate_limiter.finish_request(principal)

    def _charge(self, principal: Principal, busy_s: float) -> None:
        self._rate_limiter.charge_busy_time(principal, busy_s, time.monotonic())


def refuse_in_reserve(scope: Scope, identity: Identity | None) -> Response | None:
    limit: ConnectionLimit | None = scope.get(RESERVE_KEY)
    if limit is None or get_route_path(scope) == HEALTH_PATH:
        return None
    if identity is not None and identity.principal.is_operator:
        return None
    limit.record_refusal(time.monotonic())
    return json_error(FULL_MESSAGE, 503, {"retry-after": str(RETRY_WHEN_FULL_S), "connection": "close"})


def is_expected_principal(scope: Scope, principal: Principal) -> bool:
    name = dict(scope["headers"]).get(PRINCIPAL_HEADER)
    return name is None or unquote(name.decode("latin-1")) == principal.name


def declared_body_bytes(scope: Scope) -> int:
    """Return the size of the body by its headers; `MAX_JSON_BYTES` if they do not declare one."""
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return MAX_JSON_BYTES
    length: bytes = headers.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > MAX_LENGTH_DIGITS:
        return MAX_JSON_BYTES
    # A larger body is refused (413) before more of it is read.
    return min(int(length), MAX_JSON_BYTES)


def get_identity(scope: Scope) -> Identity:
    identity: Identity = scope[IDENTITY_KEY]
    return identity


def get_identity_or_none(scope: Scope) -> Identity | None:
    identity: Identity | None = scope.get(IDENTITY_KEY)
    return identity


def get_session_creator(scope: Scope) -> Principal:
    """Return the caller. Raise `Forbidden` for a guest, who has only the session it was invited to."""
    principal = get_identity(scope).principal
    if is_guest(principal):
        raise Forbidden("guests do not make sessions: name the one you were invited to")
    return principal
