"""Signing in and inviting: the routes that hand out and take cookies and codes (protocol section 8.1)."""

import asyncio
import time
from collections.abc import Callable
from typing import Annotated
from unicodedata import category

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from turnlog.app import LOCAL, Principal, Sessions
from turnlog.errors import BadInput, Closed, Conflict, Forbidden, NotFound, quote
from turnlog.events.base import NAME_BYTES, Name, Record, Role
from turnlog.events.roles import SERVER_ROLES
from turnlog.log import Head
from turnlog.server.auth import Auth, Authenticator, JoinCode, Known
from turnlog.server.body import body, form
from turnlog.server.entry import known_of
from turnlog.server.pages import NAME_CHARS, Invitation, invitation_page, used_page
from turnlog.server.routes import checked_key

FIRST = "evt_00-"  # such an id is below all that rise with time, whose place is found at once
NO_STORE = {"cache-control": "no-store", "referrer-policy": "no-referrer"}
# What changes how other text is read, or shows nothing.
SPOOFING = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
JOINERS = "\u200c\u200d"  # of these, what names in some scripts are written with


class LinkBody(msgspec.Struct, forbid_unknown_fields=True):
    """A link that makes one guest a member with these roles."""

    session: str
    roles: Annotated[tuple[Role, ...], msgspec.Meta(min_length=1)]


class MemberBody(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Somebody's roles in a session; none: a member no more."""

    session: str
    principal: Name
    roles: tuple[Role, ...]


class JoinForm(msgspec.Struct):
    """What the page of an invitation sends."""

    code: str
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS)]


class LinkAnswer(msgspec.Struct):
    """Where the guest goes, on this server."""

    path: str


class SignIn:
    """The routes of one server."""

    def __init__(
        self, auth: Authenticator, sessions: Callable[[], Sessions], end_streams: Callable[[], None]
    ) -> None:
        """`end_streams` ends the streams of who may not read any more."""
        self._auth = auth
        self._end_streams = end_streams
        self._sessions = sessions
        self._joining = asyncio.Lock()

    def _own(self) -> Auth:
        """The server's own sign-in; an application with its own users has other ways."""
        if not isinstance(self._auth, Auth):
            raise NotFound("people sign in elsewhere")
        return self._auth

    async def by_code(self, request: Request) -> Response:
        """Exchange the code of a sign-in link for a cookie, or show the page of an invitation.

        To look at an invitation changes nothing: programs fetch links before people do.
        """
        auth, now_s = self._own(), time.time()
        if request.method == "HEAD":  # a program that looks at links does not use them up
            return Response(status_code=204, headers=NO_STORE)
        code = request.query_params.get("code", "")
        given = auth.exchange(code, now_s)
        if isinstance(given, JoinCode):
            head = await self._open_to(given)
            return (
                invitation_page(request.scope, invitation(code, given, head))
                if head
                else used_page(request.scope)
            )
        if given is None:
            return used_page(request.scope)
        return self._let_in(request, Known(LOCAL), given.session, now_s)

    async def redeem(self, request: Request) -> Response:
        """Make a guest a member, with the name that it gives, and sign it in."""
        auth, now_s, fields = self._own(), time.time(), await form(request)
        code, name = fields.get("code", ""), fields.get("name", "").strip()
        given = auth.read(code, now_s)
        head = await self._open_to(given) if isinstance(given, JoinCode) else None
        if not isinstance(given, JoinCode) or head is None:
            return used_page(request.scope)
        if problem := name_problem(name):
            return invitation_page(request.scope, invitation(code, given, head), problem)
        known = await self._join(given, name)
        return self._let_in(request, known, given.session, now_s) if known else used_page(request.scope)

    def _let_in(self, request: Request, known: Known, session: str, now_s: float) -> Response:
        """A cookie, and the way to the page."""
        query = f"?session={session}" if session else ""
        target = f"{request.scope.get('root_path', '')}/{query}"
        return self._with_cookie(RedirectResponse(target, 303, NO_STORE), request, known, now_s)

    async def _open_to(self, code: JoinCode) -> Head | None:
        """The session that a guest may still join; None if it is closed or gone, or the link was redeemed."""
        sessions = self._sessions()
        try:
            head = await sessions.log.info(code.session)
        except NotFound:
            return None
        redeemed = await sessions.log.known(code.session, [FIRST + code.guest])
        return None if head.closed or redeemed or head.app not in sessions.apps else head

    async def _join(self, code: JoinCode, name: str) -> Known | None:
        """A guest takes its place, once: its event in the log says that the link was redeemed, also when the
        guest has been sent away since. None if another request was faster."""
        sessions, event_id = self._sessions(), FIRST + code.guest
        async with self._joining:
            try:
                head = await sessions.log.info(code.session)
                seq = await sessions.enrol(
                    head, code.guest, code.roles, by=code.guest, event_id=event_id, name=name
                )
            except (NotFound, Closed, Conflict):
                return None
        return Known(Principal(code.guest)) if seq > head.last else None

    async def by_token(self, request: Request) -> Response:
        """Exchange a bearer token for a cookie, so that a page can follow without it."""
        known, now_s = known_of(request.scope), time.time()
        self._own()
        return self._with_cookie(Response(status_code=204, headers=NO_STORE), request, known, now_s)

    async def sign_out(self, request: Request) -> Response:
        """Revoke the cookie, end the streams that were opened with it, and have the browser forget it."""
        auth = self._own()
        try:
            await auth.revoke(request.cookies.get(auth.cookie_name, ""), time.time())
        finally:
            self._end_streams()
        response = Response(status_code=204, headers=NO_STORE)
        response.delete_cookie(auth.cookie_name, path=cookie_path(request))
        return response

    async def link(self, request: Request) -> Response:
        """A link for one guest; the owner of a session may make it, and who may for these roles."""
        asked, auth = await body(request, LinkBody), self._own()
        check_session_roles(asked.roles)
        seat = await self._sessions().seat(known_of(request.scope).principal, asked.session)
        names = seat.app.role_names
        if unknown := [role for role in asked.roles if role not in names]:
            raise BadInput(
                f"expected some of the roles {', '.join(names)}, got {quote(unknown[0])}", "$.roles"
            )
        if not seat.may_invite(asked.roles):
            raise Forbidden("you may not make links for these roles in this session")
        by, key = seat.principal.name, checked_key(request.headers.get("idempotency-key"))
        code = auth.join_code(seat.session_id, asked.roles, time.time(), by, key)
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


def invitation(code: str, join: JoinCode, head: Head) -> Invitation:
    """What the page of an invitation says."""
    by = "" if join.by == LOCAL.name else join.by
    return Invitation(code, by, head.title or head.app, join.roles)


def name_problem(name: str) -> str:
    """Why a guest cannot be called so; empty if it can."""
    if not name:
        return "Please say what others should call you."
    if len(name) > NAME_CHARS or len(name.encode(errors="replace")) > NAME_BYTES:
        return "Please use a shorter name."
    if any(category(char) in SPOOFING and char not in JOINERS for char in name):
        return "Please use letters, digits, spaces and signs."
    return ""


def cookie_path(request: Request) -> str:
    """Cookies are for this server's part of a host."""
    return request.scope.get("root_path", "") or "/"
