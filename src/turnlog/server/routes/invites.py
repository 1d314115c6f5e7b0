"""`/api/members` and `/api/invites`: members and invitations (protocol section 8.5)."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnlog.app.member_changes import ListedInvite
from turnlog.events.envelope import format_timestamp
from turnlog.events.payload import Name, Record, Role
from turnlog.ids import now_ms
from turnlog.server.auth.authentication import get_identity
from turnlog.server.openapi import Operation, get_route, post_route
from turnlog.server.request_body import MAX_SMALL_BODY_BYTES, read_json_body
from turnlog.server.responses import json_response
from turnlog.server.routes.sign_in import check_session_roles
from turnlog.server.session_access import SessionAccess

INVITES_QUERY = {"session": "the invites of this session"}


class MemberBody(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The roles of a principal in a session; without roles it leaves the session."""

    session: str
    principal: Name
    roles: tuple[Role, ...]


class MemberResponse(msgspec.Struct, rename={"event_id": "eventId"}, omit_defaults=True):
    """The seq of the change; `invite` is the id of the invitation if the person was not a member."""

    event_id: int
    invite: str | None = None


class InviteBody(msgspec.Struct, forbid_unknown_fields=True):
    """An invite of a session."""

    session: str
    invite: str


class InviteResponse(msgspec.Struct, rename={"event_id": "eventId"}):
    """The seq of the event that answered or ended the invite."""

    event_id: int


class InviteInfo(msgspec.Struct, omit_defaults=True):
    """An open invite; without a `principal` it is a link. `name` is what its maker calls it."""

    session_id: str
    invite: str
    app: str
    title: str
    roles: list[str]
    by: str
    expires: str
    principal: str | None = None
    name: str | None = None


class InvitesResponse(msgspec.Struct):
    """Open invites."""

    invites: list[InviteInfo]


class InviteRoutes:
    """The routes of members and invitations."""

    def __init__(self, access: SessionAccess) -> None:
        self._access = access

    def operations(self) -> list[Operation]:
        return [
            post_route(
                "/api/members",
                self.change_member,
                "Change the roles of a member, or invite a person who is not a member.",
                MemberBody,
                {202: MemberResponse},
            ),
            get_route(
                "/api/invites",
                self.list_invites,
                "The caller's open invitations, or those of a session.",
                InvitesResponse,
                query=INVITES_QUERY,
            ),
            post_route(
                "/api/invites/accept",
                self.accept,
                "Become a member by an invitation.",
                InviteBody,
                {202: InviteResponse},
            ),
            post_route(
                "/api/invites/decline",
                self.decline,
                "Decline an invitation.",
                InviteBody,
                {202: InviteResponse},
            ),
            post_route(
                "/api/invites/revoke",
                self.revoke,
                "End a link or an invitation.",
                InviteBody,
                {202: InviteResponse},
            ),
        ]

    async def change_member(self, request: Request) -> Response:
        body = await read_json_body(request, MemberBody, MAX_SMALL_BODY_BYTES)
        check_session_roles(body.roles)
        membership = await self._access.find_membership(request, body.session)
        changes = self._access.sessions.member_changes
        change = await changes.change_roles(membership, body.principal, body.roles, now_ms())
        return json_response(MemberResponse(change.seq, change.invite_id), 202)

    async def list_invites(self, request: Request) -> Response:
        changes = self._access.sessions.member_changes
        if "session" in request.query_params:
            membership = await self._access.find_membership(request, request.query_params["session"])
            invites = await changes.list_session_invites(membership, now_ms())
        else:
            principal = get_identity(request.scope).principal
            invites = await changes.list_principal_invites(principal, now_ms())
        return json_response(InvitesResponse([self._make_invite_info(invite) for invite in invites]))

    async def accept(self, request: Request) -> Response:
        body = await read_json_body(request, InviteBody, MAX_SMALL_BODY_BYTES)
        principal = get_identity(request.scope).principal
        changes = self._access.sessions.member_changes
        seq = await changes.accept_invite(principal, body.session, body.invite, now_ms())
        return json_response(InviteResponse(seq), 202)

    async def decline(self, request: Request) -> Response:
        body = await read_json_body(request, InviteBody, MAX_SMALL_BODY_BYTES)
        principal = get_identity(request.scope).principal
        changes = self._access.sessions.member_changes
        seq = await changes.decline_invite(principal, body.session, body.invite)
        return json_response(InviteResponse(seq), 202)

    async def revoke(self, request: Request) -> Response:
        body = await read_json_body(request, InviteBody, MAX_SMALL_BODY_BYTES)
        membership = await self._access.find_membership(request, body.session)
        seq = await self._access.sessions.member_changes.revoke_invite(membership, body.invite)
        return json_response(InviteResponse(seq), 202)

    def _make_invite_info(self, listed: ListedInvite) -> InviteInfo:
        record = listed.record
        invite = listed.invite
        return InviteInfo(
            record.session_id,
            listed.invite_id,
            record.app,
            record.title or self._access.sessions.apps[record.app].untitled,
            list(invite.roles),
            invite.by,
            format_timestamp(invite.expires_ms),
            invite.principal,
            invite.name,
        )
