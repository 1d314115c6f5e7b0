"""Sign-in, sign-out and links: the routes that issue and accept cookies and codes (protocol section 8.1)."""

import secrets
import time
from collections.abc import Callable
from typing import Annotated, NamedTuple
from unicodedata import category

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from turnlog.app import LOCAL, Principal
from turnlog.app.member_changes import OwnInvite, check_redeemer
from turnlog.app.membership import GUEST_PREFIX, is_guest
from turnlog.errors import BadInput, Forbidden, LimitReached, NotFound, SessionClosed, quote
from turnlog.events.payload import MAX_NAME_BYTES, Name, Role
from turnlog.events.roles import SERVER_ROLES
from turnlog.ids import now_ms
from turnlog.server.auth.authentication import get_identity, get_identity_or_none
from turnlog.server.auth.credentials import (
    Authenticator,
    BuiltinAuth,
    Identity,
    JoinCode,
)
from turnlog.server.html_pages import (
    MAX_GUEST_NAME_CHARS,
    Invitation,
    already_member_page,
    ended_invitation_page,
    get_root_path,
    invitation_page,
    own_link_page,
    page_texts,
    role_taken_page,
    unusable_link_page,
)
from turnlog.server.openapi import Operation, get_route, post_route
from turnlog.server.page_texts import PageTexts
from turnlog.server.request_body import FORM_MEDIA_TYPE, MAX_SMALL_BODY_BYTES, read_form, read_json_body
from turnlog.server.responses import json_response
from turnlog.server.routes.idempotency import check_idempotency_key
from turnlog.server.session_access import SessionAccess

NO_STORE_HEADERS = {"cache-control": "no-store", "referrer-policy": "no-referrer"}
# Characters that show nothing, or change how the text around them is read.
SPOOFING_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
ALLOWED_JOINERS = "\u200c\u200d"  # names in some scripts need these two


class LinkBody(msgspec.Struct, forbid_unknown_fields=True):
    """A link that makes one person a member with these roles. `name` is for the list of links."""

    session: str
    roles: Annotated[tuple[Role, ...], msgspec.Meta(min_length=1)]
    name: Name | None = None


class LinkResponse(msgspec.Struct):
    """The path of the link on this server, and the id of its invite, which revokes it."""

    path: str
    invite: str


class JoinForm(msgspec.Struct):
    """The form of an invitation page: the `name` of a guest, or the principal that is signed in."""

    code: str
    name: Annotated[str, msgspec.Meta(max_length=MAX_GUEST_NAME_CHARS)] = ""
    signed_in_as: str = ""


class OpenedLink(NamedTuple):
    """A valid link as a request opens it; `identity` is None if the browser is not signed in."""

    request: Request
    code: str
    join: JoinCode
    identity: Identity | None
    now_s: float


class SignIn:
    """The routes of sign-in and links."""

    def __init__(self, auth: Authenticator, access: SessionAccess, end_streams: Callable[[], None]) -> None:
        """Call `end_streams` when a sign-in ends: it ends the streams of readers without a valid one."""
        self._auth = auth
        self._access = access
        self._end_streams = end_streams

    def operations(self) -> list[Operation]:
        return [
            get_route(
                "/sign-in",
                self.sign_in_by_code,
                "Exchange the code of a sign-in link, or show an invitation.",
                query={"code": "the code"},
                responses={303: None},
                public=True,
            ),
            post_route(
                "/sign-in",
                self.redeem_link,
                "Redeem a link: become a member, as a guest with a name.",
                JoinForm,
                {303: None},
                public=True,
                body_type=FORM_MEDIA_TYPE,
            ),
            post_route(
                "/api/sign-in",
                self.sign_in_by_token,
                "Exchange a bearer token for a cookie.",
                None,
                {204: None},
            ),
            post_route(
                "/api/sign-out", self.sign_out, "Revoke the cookie, and end its streams.", None, {204: None}
            ),
            post_route(
                "/api/links",
                self.create_link,
                "Make a link that makes one person a member.",
                LinkBody,
                {201: LinkResponse},
            ),
        ]

    async def sign_in_by_code(self, request: Request) -> Response:
        """Exchange the code of a sign-in link for a cookie, or show the page of an invitation.

        Showing an invitation changes nothing: programs fetch links before people do.
        """
        auth = self._builtin_auth()
        now_s = time.time()
        # Programs check links with HEAD: that must not use up a code.
        if request.method == "HEAD":
            return Response(status_code=204, headers=NO_STORE_HEADERS)

        code = request.query_params.get("code", "")
        redeemed = auth.redeem_code(code, now_s)
        if redeemed is None:
            return unusable_link_page(request.scope)
        if isinstance(redeemed, JoinCode):
            link = OpenedLink(request, code, redeemed, get_identity_or_none(request.scope), now_s)
            return await self._show_invitation(link)
        if not await auth.use_code(redeemed.number, redeemed.until):
            return unusable_link_page(request.scope)
        return self._sign_in_and_redirect(request, Identity(LOCAL), redeemed.session, now_s)

    async def redeem_link(self, request: Request) -> Response:
        """Make the caller a member by a link: a signed-in user as such, others as a guest with a name."""
        auth = self._builtin_auth()
        now_s = time.time()
        fields = await read_form(request)
        code = fields.get("code", "")
        join = auth.verify_signed(code, now_s)
        if not isinstance(join, JoinCode):
            return unusable_link_page(request.scope)

        identity = get_identity_or_none(request.scope)
        link = OpenedLink(request, code, join, identity, now_s)
        # The page was shown to another person: a browser leaves the cookie out when a link of another site
        # opens the page, and sends it with the form.
        signed_in_as = identity.principal.name if identity else ""
        if fields.get("signed_in_as", "") != signed_in_as:
            return await self._show_invitation(link, status=409)

        if identity and not is_guest(identity.principal):
            refusal = await self._redeem_invite(link, identity.principal)
            if refusal is not None:
                return refusal
            path = landing_path(request, identity.principal, join.session)
            return RedirectResponse(path, 303, NO_STORE_HEADERS)

        name = fields.get("name", "").strip()
        problem = find_name_error(name, page_texts(request.scope))
        if problem:
            return await self._show_invitation(link, problem, 400)
        guest = Principal(GUEST_PREFIX + secrets.token_hex(8))
        refusal = await self._redeem_invite(link, guest, name)
        if refusal is not None:
            return refusal
        await self._sign_out_guest(request, now_s)
        return self._sign_in_and_redirect(request, Identity(guest), join.session, now_s)

    async def sign_in_by_token(self, request: Request) -> Response:
        """Exchange a bearer token for a cookie, so that a page can follow streams without the token."""
        self._builtin_auth()
        response = Response(status_code=204, headers=NO_STORE_HEADERS)
        return self._set_cookie(response, request, get_identity(request.scope), time.time())

    async def sign_out(self, request: Request) -> Response:
        auth = self._builtin_auth()
        try:
            await auth.revoke_cookie(request.cookies.get(auth.cookie_name, ""), time.time())
        finally:
            self._end_streams()
        response = Response(status_code=204, headers=NO_STORE_HEADERS)
        response.delete_cookie(auth.cookie_name, path=cookie_path(request))
        return response

    async def create_link(self, request: Request) -> Response:
        """Make a link for one person. The member must own the session or may invite for these roles."""
        body = await read_json_body(request, LinkBody, MAX_SMALL_BODY_BYTES)
        auth = self._builtin_auth()
        check_session_roles(body.roles)
        membership = await self._access.find_membership(request, body.session)
        role_names = membership.app.role_names
        unknown = [role for role in body.roles if role not in role_names]
        if unknown:
            raise BadInput(
                f"expected some of the roles {', '.join(role_names)}, got {quote(unknown[0])}", "$.roles"
            )

        session_id = membership.session_id
        key = check_idempotency_key(request.headers.get("idempotency-key"))
        invite_id = auth.make_invite_id(session_id, body.roles, membership.principal.name, key)
        changes = self._access.sessions.member_changes
        await changes.make_link(membership, body.roles, invite_id, now_ms(), body.name)

        code = auth.make_join_code(session_id, invite_id)
        path = f"{get_root_path(request.scope)}/sign-in?code={code}"
        return json_response(LinkResponse(path, invite_id), 201, NO_STORE_HEADERS)

    def _builtin_auth(self) -> BuiltinAuth:
        """Return the server's own sign-in. Raise `NotFound` if the host application has another one."""
        if not isinstance(self._auth, BuiltinAuth):
            raise NotFound("this server uses an external sign-in")
        return self._auth

    async def _redeem_invite(
        self, link: OpenedLink, principal: Principal, name: str | None = None
    ) -> Response | None:
        """Make a principal a member by a link. Return None, or the page that explains why not."""
        scope = link.request.scope
        session_id, invite_id = link.join.session, link.join.invite
        try:
            await self._access.sessions.member_changes.redeem_invite(
                principal.name, session_id, invite_id, int(link.now_s * 1000), name=name
            )
        except OwnInvite:
            return own_link_page(scope)
        except Forbidden:
            return already_member_page(scope, landing_path(link.request, principal, session_id))
        except LimitReached as error:
            return role_taken_page(scope, str(error))
        except (NotFound, SessionClosed):
            return ended_invitation_page(scope, session_id)
        return None

    async def _show_invitation(self, link: OpenedLink, problem: str = "", status: int = 200) -> Response:
        scope = link.request.scope
        session_id, invite_id = link.join.session, link.join.invite
        changes = self._access.sessions.member_changes
        signed_in_as = link.identity.principal.name if link.identity else ""
        try:
            record, invite = await changes.find_usable_invite(session_id, invite_id, int(link.now_s * 1000))
            check_redeemer(record, invite, signed_in_as)
        except OwnInvite:
            return own_link_page(scope)
        except Forbidden:
            principal = link.identity.principal if link.identity else LOCAL
            return already_member_page(scope, landing_path(link.request, principal, session_id))
        except NotFound:
            return ended_invitation_page(scope, session_id)

        invitation = Invitation(
            link.code,
            "" if invite.by == LOCAL.name else invite.by,
            record.title or record.app,
            invite.roles,
            signed_in_as,
            link.identity is not None and is_guest(link.identity.principal),
        )
        return invitation_page(scope, invitation, problem, status)

    async def _sign_out_guest(self, request: Request, now_s: float) -> None:
        """Sign a guest of another session out: the browser has one cookie."""
        auth = self._builtin_auth()
        cookie = request.cookies.get(auth.cookie_name, "")
        if cookie:
            await auth.revoke_cookie(cookie, now_s)
            self._end_streams()

    def _sign_in_and_redirect(
        self, request: Request, identity: Identity, session_id: str, now_s: float
    ) -> Response:
        path = landing_path(request, identity.principal, session_id)
        response = RedirectResponse(path, 303, NO_STORE_HEADERS)
        return self._set_cookie(response, request, identity, now_s)

    def _set_cookie(self, response: Response, request: Request, identity: Identity, now_s: float) -> Response:
        auth = self._builtin_auth()
        value, max_age_s = auth.make_cookie(identity, now_s)
        response.set_cookie(
            auth.cookie_name,
            value,
            max_age=max_age_s,
            path=cookie_path(request),
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return response


def check_session_roles(roles: tuple[str, ...]) -> None:
    """Raise `BadInput` for a server role: the server's configuration grants these, a member does not."""
    server_roles = SERVER_ROLES.intersection(roles)
    if server_roles:
        raise BadInput(f"expected roles of the session, got the server role {min(server_roles)}", "$.roles")


def find_name_error(name: str, texts: PageTexts) -> str:
    if not name:
        return texts.name_missing
    if len(name) > MAX_GUEST_NAME_CHARS or len(name.encode(errors="replace")) > MAX_NAME_BYTES:
        return texts.name_too_long
    if any(category(char) in SPOOFING_CATEGORIES and char not in ALLOWED_JOINERS for char in name):
        return texts.name_characters
    return ""


def landing_path(request: Request, principal: Principal, session_id: str) -> str:
    """Return the page that a sign-in leads to: the conversation for a guest, the console for others."""
    root_path = get_root_path(request.scope)
    if is_guest(principal):
        return f"{root_path}/talk/{session_id}"
    query = f"?session={session_id}" if session_id else ""
    return f"{root_path}/{query}"


def cookie_path(request: Request) -> str:
    """Return the path that cookies are for: other applications of the host must not get them."""
    return get_root_path(request.scope) or "/"
