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
from turnlog.events.strict_json import LIMIT_BYTES
from turnlog.server.auth.credentials import Auth, Authenticator, Known, is_guest
from turnlog.server.connections import CROWDED, FULL, ConnectionLimit
from turnlog.server.html_pages import problem_page, wants_page
from turnlog.server.limits import Budgets
from turnlog.server.middleware import ACCOUNT, inner_path
from turnlog.server.request_cost import Metered

KNOWN = "turnlog.known"
PRINCIPAL = "turnlog.principal"
EXPECTED = b"turnlog-principal"  # whom a page was opened by: another tab may have signed in since
HEALTH = "/healthz"
FULL_RETRY_S = 5
SIGN_IN = "sign in first"
AT_ONCE = "too many requests at once, wait for some of them"
HOW = ": open the link the server printed, or send the header Authorization: Bearer <token>"


class Entry:
    """Lets in who is known and within their limits. One of the checks of the front."""

    def __init__(self, auth: Authenticator, budgets: Budgets, public: Collection[str]) -> None:
        self._auth = auth
        self._budgets = budgets
        self._public = frozenset(public)

    async def __call__(self, scope: Scope) -> Response | None:
        """Put who is asking into the scope; what to answer instead, if they may not."""
        known = await self._auth.who(HTTPConnection(scope), time.time())
        if known is not None:
            scope[KNOWN], scope[PRINCIPAL] = known, known.principal
        if (answer := refuse_in_reserve(scope, known)) is not None:
            return answer
        if inner_path(scope) == HEALTH:
            return None
        if inner_path(scope) in self._public:
            return await self._begin(scope, None)
        if known is None and scope["method"] == "GET" and wants_page(scope):
            return problem_page(scope, "Sign in first", 401)
        if known is None:
            headers = {"www-authenticate": "Bearer"}
            how = HOW if isinstance(self._auth, Auth) else ""
            return JSONResponse({"error": SIGN_IN + how}, 401, headers)
        if not is_expected(scope, known.principal):
            return JSONResponse({"error": f"you are signed in as {known.principal.name} now"}, 412)
        wait_s = self._budgets.request(known.principal, announced_bytes(scope), time.monotonic())
        if not wait_s:
            return await self._begin(scope, known.principal)
        return await self._too_many(known.principal, "too many requests, wait a little", wait_s)

    async def _begin(self, scope: Scope, principal: Principal | None) -> Response | None:
        """Count a request until it is answered; what to answer instead, if there are too many."""
        if await self._budgets.begin(principal):
            scope[ACCOUNT] = Account(self._budgets, principal)
            return None
        if principal is None:
            return JSONResponse({"error": FULL}, 503, {"retry-after": str(FULL_RETRY_S)})
        return await self._too_many(principal, AT_ONCE)

    async def _too_many(self, principal: Principal, problem: str, wait_s: float = 1.0) -> Response:
        """Return the refusal of a principal that is over a limit, at once or a little later."""
        await self._budgets.delay_refusal(principal, time.monotonic())
        return JSONResponse({"error": problem}, 429, {"retry-after": str(math.ceil(wait_s))})


class Account:
    """A request that is being answered, and who pays for it; None pays nothing."""

    __slots__ = ("_budgets", "_principal")

    def __init__(self, budgets: Budgets, principal: Principal | None) -> None:
        self._budgets = budgets
        self._principal = principal

    async def answer(self, work: Coroutine[Any, Any, None]) -> None:
        """Await what answers the request."""
        try:
            await Metered(work, self._spend)
        finally:
            self._budgets.end(self._principal)

    def _spend(self, busy_s: float) -> None:
        if self._principal is not None:
            self._budgets.spend(self._principal, busy_s, time.monotonic())


def refuse_in_reserve(scope: Scope, known: Known | None) -> Response | None:
    """Return the refusal of a request on a connection that is kept for operators and `/healthz`."""
    limit: ConnectionLimit | None = scope.get(CROWDED)
    if limit is None or inner_path(scope) == HEALTH or (known and known.principal.is_operator):
        return None
    limit.note_refusal(time.monotonic())
    return JSONResponse({"error": FULL}, 503, {"retry-after": str(FULL_RETRY_S), "connection": "close"})


def is_expected(scope: Scope, principal: Principal) -> bool:
    """Whether the caller is whom the request names, if it names one; the name is percent-encoded."""
    name = dict(scope["headers"]).get(EXPECTED)
    return name is None or unquote(name.decode("latin-1")) == principal.name


def announced_bytes(scope: Scope) -> int:
    """Return how many bytes the body of a request has, as its headers say."""
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return LIMIT_BYTES
    length: bytes = headers.get(b"content-length", b"0")
    # A body over the limit is refused (413) before more of it is read.
    return min(int(length), LIMIT_BYTES) if length.isdigit() and len(length) < 19 else LIMIT_BYTES


def known_of(scope: Scope) -> Known:
    """Who is asking, behind the entry."""
    known: Known = scope[KNOWN]
    return known


def maker_of(scope: Scope) -> Principal:
    """Who is asking for a session of their own; guests have the one they were invited to, and no other."""
    principal = known_of(scope).principal
    if is_guest(principal):
        raise Forbidden("guests do not make sessions: name the one you were invited to")
    return principal
