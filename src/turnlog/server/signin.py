"""Signing in and inviting: the routes that hand out and take cookies and codes (protocol section 8.1)."""

import asyncio
import time
from collections.abc import Callable
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from turnlog.app import LOCAL, Principal, Sessions
from turnlog.errors import BadInput, Closed, Forbidden, NotFound
from turnlog.events.base import Name, Record, Role
from turnlog.events.roles import SERVER_ROLES
from turnlog.server.auth import Auth, Authenticator, JoinCode, Known, SignInCode
from turnlog.server.body import body
from turnlog.server.entry import known_of

FIRST = "evt_00-"  # such an id is below all that rise with time, whose place is found at once
NO_STORE = {"cache-control": "no-store", "referrer-policy": "no-referrer"}
USED = (
    "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    "<title>Turnlog</title>"
    "<p>This link was used before, or it is too old. Ask for a new one; on the machine of the server, "
    "<code>turnlog link</code> prints one.</p>"
    "<p>Whoever it has signed in goes on <a href='./'>to the console</a>.</p>"
)


class LinkBody(msgspec.Struct, forbid_unknown_fields=True):
    """A link that makes one guest a member with these roles."""

    session: str
    roles: Annotated[tuple[Role, ...], msgspec.Meta(min_length=1)]


class MemberBody(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Somebody's roles in a session; none: a member no more."""

    session: str
    principal: Name
    roles: tuple[Role, ...]


class LinkAnswer(msgspec.Struct):
    """Where the guest goes, on this server."""

    path: str


class SignIn:
    """The routes of one server."""

    def __init__(self, auth: Authenticator, sessions: Callable[[], Sessions]) -> None:
        self._auth = auth
        self._sessions = sessions
        self._joining = asyncio.Lock()

    def _own(self) -> Auth:
        """The server's own sign-in; an application with its own users has other ways."""
        if not isinstance(self._auth, Auth):
            raise NotFound("people sign in elsewhere")
        return self._auth

    async def by_code(self, request: Request) -> Response:
        """Exchange the code of a link for a cookie, and go to the page."""
        auth, now_s = self._own(), time.time()
        if request.method == "HEAD":  # a program that looks at links does not use them up
            return Response(status_code=204, headers=NO_STORE)
        given = auth.exchange(request.query_params.get("code", ""), now_s)
        known = await self._known(given)
        if given is None or known is None:
            return Response(USED, 403, NO_STORE, "text/html; charset=utf-8")
        session = f"?session={given.session}" if given.session else ""
        target = f"{request.scope.get('root_path', '')}/{session}"
        return self._with_cookie(RedirectResponse(target, 303, NO_STORE), request, known, now_s)

    async def _known(self, code: SignInCode | JoinCode | None) -> Known | None:
        """Who a code lets in."""
        if isinstance(code, JoinCode):
            return await self._join(code)
        return Known(LOCAL) if code else None

    async def _join(self, code: JoinCode) -> Known | None:
        """A guest takes its place, once: who finds its event in the log comes too late, also when the guest
        has been sent away since."""
        sessions = self._sessions()
        async with self._joining:
            try:
                head = await sessions.log.info(code.session)
                seq = await sessions.enrol(
                    head, code.guest, code.roles, by=code.guest, event_id=FIRST + code.guest
                )
            except (NotFound, Closed):
                return None
        return Known(Principal(code.guest)) if seq > head.last else None

    async def by_token(self, request: Request) -> Response:
        """Exchange a bearer token for a cookie, so that a page can follow without it."""
        known, now_s = known_of(request.scope), time.time()
        self._own()
        return self._with_cookie(Response(status_code=204, headers=NO_STORE), request, known, now_s)

    async def sign_out(self, request: Request) -> Response:
        """Forget the cookie."""
        response = Response(status_code=204, headers=NO_STORE)
        response.delete_cookie(self._own().cookie_name, path=cookie_path(request))
        return response

    async def link(self, request: Request) -> Response:
        """A link for one guest; the owner of a session may make it, and who may for these roles."""
        asked, auth = await body(request, LinkBody), self._own()
        check_session_roles(asked.roles)
        seat = await self._sessions().seat(known_of(request.scope).principal, asked.session)
        if not seat.may_invite(asked.roles):
            raise Forbidden("you may not make links for these roles in this session")
        code = auth.join_code(seat.session_id, asked.roles, time.time())
        path = f"{request.scope.get('root_path', '')}/sign-in?code={code}"
        return JSONResponse({"path": path}, 201, NO_STORE)

    async def change_member(self, request: Request) -> Response:
        """Change who is a member; the owner of a session may."""
        asked = await body(request, MemberBody)
        check_session_roles(asked.roles)
        seat = await self._sessions().seat(known_of(request.scope).principal, asked.session)
        if not seat.may_change(asked.roles, asked.principal):
            raise Forbidden("only the owner of a session may do this")
        seq = await self._sessions().enrol(seat.head, asked.principal, asked.roles, by=seat.principal.name)
        return JSONResponse({"eventId": seq}, 202)

    def _with_cookie(self, response: Response, request: Request, known: Known, now_s: float) -> Response:
        auth = self._own()
        value, age_s = auth.cookie(known, now_s)
        response.set_cookie(
            auth.cookie_name,
            value,
            max_age=age_s,
            path=cookie_path(request),
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return response


def check_session_roles(roles: tuple[str, ...]) -> None:
    """Refuse server roles: the server's configuration grants them, no member does."""
    if found := SERVER_ROLES.intersection(roles):
        raise BadInput(f"expected roles of the session, got the server role {min(found)}", "$.roles")


def cookie_path(request: Request) -> str:
    """Cookies are for this server's part of a host."""
    return request.scope.get("root_path", "") or "/"
