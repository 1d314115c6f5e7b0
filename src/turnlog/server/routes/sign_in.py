"""Signing in and inviting: the routes that hand out and take cookies and codes (protocol section 8.1)."""

import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated
from unicodedata import category

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from turnlog.app import LOCAL, Principal, Sessions
from turnlog.app.member_changes import OwnInvite, check_redeemer
from turnlog.errors import BadInput, Forbidden, LimitReached, NotFound, SessionClosed, quote
from turnlog.events.payload import MAX_NAME_BYTES, Role
from turnlog.events.roles import SERVER_ROLES
from turnlog.ids import now_ms
from turnlog.server.auth.authentication import IDENTITY_KEY, get_identity
from turnlog.server.auth.credentials import (
    GUEST_PREFIX,
    Authenticator,
    BuiltinAuth,
    Identity,
    JoinCode,
    is_guest,
)
from turnlog.server.html_pages import (
    MAX_GUEST_NAME_CHARS,
    Invitation,
    already_member_page,
    invitation_page,
    own_link_page,
    role_taken_page,
    unusable_link_page,
)
from turnlog.server.request_body import MAX_SMALL_BODY_BYTES, read_form, read_json_body
from turnlog.server.routes.api import check_idempotency_key

NO_STORE_HEADERS = {"cache-control": "no-store", "referrer-policy": "no-referrer"}
# What changes how other text is read, or shows nothing.
SPOOFING_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
ALLOWED_JOINERS = "\u200c\u200d"  # of these, what names in some scripts are written with


class LinkBody(msgspec.Struct, forbid_unknown_fields=True):
    """A link that makes one person a member with these roles."""

    session: str
    roles: Annotated[tuple[Role, ...], msgspec.Meta(min_length=1)]


class JoinForm(msgspec.Struct):
    """What the page of an invitation sends: `name` from who is not signed in, `signed_in_as` from who is."""

    code: str
    name: Annotated[str, msgspec.Meta(max_length=MAX_GUEST_NAME_CHARS)] = ""
    signed_in_as: str = ""


class LinkResponse(msgspec.Struct):
    """Where the person who is invited goes, on this server, and the invite to revoke."""

    path: str
    invite: str


class SignIn:
    """The routes of one server."""

    def __init__(
        self, auth: Authenticator, sessions: Callable[[], Sessions], end_streams: Callable[[], None]
    ) -> None:
        """`end_streams` ends the streams of who may not read any more."""
        self._auth = auth
        self._end_streams = end_streams
        self._sessions = sessions

    def _builtin_auth(self) -> BuiltinAuth:
        """The server's own sign-in; an application with its own users has other ways."""
        if not isinstance(self._auth, BuiltinAuth):
            raise NotFound("people sign in elsewhere")
        return self._auth

    async def sign_in_by_code(self, request: Request) -> Response:
        """Exchange the code of a sign-in link for a cookie, or show the page of an invitation.

        To look at an invitation changes nothing: programs fetch links before people do.
        """
        auth, now_s = self._builtin_auth(), time.time()
        if request.method == "HEAD":  # a program that looks at links does not use them up
            return Response(status_code=204, headers=NO_STORE_HEADERS)
        code = request.query_params.get("code", "")
        given = auth.redeem_code(code, now_s)
        if isinstance(given, JoinCode):
            return await self._show_invitation(request, code, given, now_s)
        if given is None:
            return unusable_link_page(request.scope)
        return self._sign_in_and_redirect(request, Identity(LOCAL), given.session, now_s)

    async def redeem_link(self, request: Request) -> Response:
        """Make a member by a link: who is signed in as themselves, others as guests with a name."""
        auth, now_s, fields = self._builtin_auth(), time.time(), await read_form(request)
        code, name = fields.get("code", ""), fields.get("name", "").strip()
        given, known = auth.verify_signed(code, now_s), get_identity_or_none(request)
        if not isinstance(given, JoinCode):
            return unusable_link_page(request.scope)
        show = partial(self._show_invitation, request, code, given, now_s)
        if fields.get("signed_in_as", "") != (known.principal.name if known else ""):
            # The page was shown to another person: a browser leaves the cookie out when a link of another
            # site brings it here, and sends it with the form.
            return await show(status=409)
        if known and not is_guest(known.principal):
            refusal = await self._redeem_invite(request, given, known.principal, now_s)
            return refusal or RedirectResponse(console_path(request, given.session), 303, NO_STORE_HEADERS)
        if problem := find_name_error(name):
            return await show(problem, 400)
        guest = Principal(GUEST_PREFIX + secrets.token_hex(8))
        if refusal := await self._redeem_invite(request, given, guest, now_s, name):
            return refusal
        await self._sign_out_guest(request, now_s)
        return self._sign_in_and_redirect(request, Identity(guest), given.session, now_s)

    async def _redeem_invite(
        self, request: Request, join: JoinCode, principal: Principal, now_s: float, name: str | None = None
    ) -> Response | None:
        """Make a principal a member by a link; return the page that says why not."""
        membership, scope = self._sessions().member_changes, request.scope
        try:
            await membership.redeem_invite(
                principal.name, join.session, join.invite, int(now_s * 1000), name=name
            )
        except OwnInvite:
            return own_link_page(scope)
        except Forbidden:
            return already_member_page(scope, join.session)
        except LimitReached as error:
            return role_taken_page(scope, str(error))
        except (NotFound, SessionClosed):
            return unusable_link_page(scope)
        return None

    async def _show_invitation(
        self, request: Request, code: str, join: JoinCode, now_s: float, problem: str = "", status: int = 200
    ) -> Response:
        """Return the page of an invite for who opens it."""
        sessions, known, scope = self._sessions(), get_identity_or_none(request), request.scope
        name = known.principal.name if known else ""
        try:
            head, invite = await sessions.member_changes.find_usable_invite(
                join.session, join.invite, int(now_s * 1000)
            )
            check_redeemer(head, invite, name)
        except OwnInvite:
            return own_link_page(scope)
        except Forbidden:
            return already_member_page(scope, join.session)
        except NotFound:
            return unusable_link_page(scope)
        by = "" if invite.by == LOCAL.name else invite.by
        guest = known is not None and is_guest(known.principal)
        invited = Invitation(code, by, head.title or head.app, invite.roles, name, guest)
        return invitation_page(scope, invited, problem, status)

    async def _sign_out_guest(self, request: Request, now_s: float) -> None:
        """Sign a guest of another session out: the browser has one cookie."""
        auth = self._builtin_auth()
        if cookie := request.cookies.get(auth.cookie_name, ""):
            await auth.revoke_cookie(cookie, now_s)
            self._end_streams()

    def _sign_in_and_redirect(
        self, request: Request, identity: Identity, session: str, now_s: float
    ) -> Response:
        """A cookie, and the way to the page."""
        answer = RedirectResponse(console_path(request, session), 303, NO_STORE_HEADERS)
        return self._set_cookie(answer, request, identity, now_s)

    async def sign_in_by_token(self, request: Request) -> Response:
        """Exchange a bearer token for a cookie, so that a page can follow without it."""
        known, now_s = get_identity(request.scope), time.time()
        self._builtin_auth()
        return self._set_cookie(Response(status_code=204, headers=NO_STORE_HEADERS), request, known, now_s)

    async def sign_out(self, request: Request) -> Response:
        """Revoke the cookie, end the streams that were opened with it, and have the browser forget it."""
        auth = self._builtin_auth()
        try:
            await auth.revoke_cookie(request.cookies.get(auth.cookie_name, ""), time.time())
        finally:
            self._end_streams()
        response = Response(status_code=204, headers=NO_STORE_HEADERS)
        response.delete_cookie(auth.cookie_name, path=cookie_path(request))
        return response

    async def create_link(self, request: Request) -> Response:
        """Make a link for one person; the owner of a session may, and who may for these roles."""
        asked, auth = await read_json_body(request, LinkBody, MAX_SMALL_BODY_BYTES), self._builtin_auth()
        check_session_roles(asked.roles)
        seat = await self._sessions().get_membership(get_identity(request.scope).principal, asked.session)
        names = seat.app.role_names
        if unknown := [role for role in asked.roles if role not in names]:
            raise BadInput(
                f"expected some of the roles {', '.join(names)}, got {quote(unknown[0])}", "$.roles"
            )
        by, key = seat.principal.name, check_idempotency_key(request.headers.get("idempotency-key"))
        invite_id = auth.make_invite_id(seat.session_id, asked.roles, by, key)
        await self._sessions().member_changes.make_link(seat, asked.roles, invite_id, now_ms())
        code = auth.make_join_code(seat.session_id, invite_id)
        path = f"{request.scope.get('root_path', '')}/sign-in?code={code}"
        return JSONResponse({"path": path, "invite": invite_id}, 201, NO_STORE_HEADERS)

    def _set_cookie(self, response: Response, request: Request, identity: Identity, now_s: float) -> Response:
        auth = self._builtin_auth()
        value, age_s = auth.make_cookie(identity, now_s)
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


def get_identity_or_none(request: Request) -> Identity | None:
    """Return who is signed in, on a route that is open to all."""
    known: Identity | None = request.scope.get(IDENTITY_KEY)
    return known


def find_name_error(name: str) -> str:
    """Why a guest cannot be called so; empty if it can."""
    if not name:
        return "Please say what others should call you."
    if len(name) > MAX_GUEST_NAME_CHARS or len(name.encode(errors="replace")) > MAX_NAME_BYTES:
        return "Please use a shorter name."
    if any(category(char) in SPOOFING_CATEGORIES and char not in ALLOWED_JOINERS for char in name):
        return "Please use letters, digits, spaces and signs."
    return ""


def console_path(request: Request, session: str) -> str:
    """Return the path of the console, with a session."""
    query = f"?session={session}" if session else ""
    return f"{request.scope.get('root_path', '')}/{query}"


def cookie_path(request: Request) -> str:
    """Cookies are for this server's part of a host."""
    return request.scope.get("root_path", "") or "/"
