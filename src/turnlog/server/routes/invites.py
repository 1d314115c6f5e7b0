"""The routes of members and invitations (protocol section 8.5)."""

from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnlog.app import Sessions
from turnlog.app.member_changes import ListedInvite
from turnlog.events.envelope import format_timestamp
from turnlog.events.payload import Name, Record, Role
from turnlog.ids import now_ms
from turnlog.server.auth.authentication import get_identity
from turnlog.server.request_body import MAX_SMALL_BODY_BYTES, read_json_body
from turnlog.server.routes.api import json_response
from turnlog.server.routes.sign_in import check_session_roles


class MemberBody(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The roles of a principal in a session; none: a member no more."""

    session: str
    principal: Name
    roles: tuple[Role, ...]


class MemberResponse(msgspec.Struct, rename={"event_id": "eventId"}, omit_defaults=True):
    """Where the change is; `invite` is the invitation of a person who was no member."""

    event_id: int
    invite: str | None = None


class InviteBody(msgspec.Struct, forbid_unknown_fields=True):
    """An invite of a session."""

    session: str
    invite: str


class InviteResponse(msgspec.Struct, rename={"event_id": "eventId"}):
    """Where the answer to an invite, or its end, is."""

    event_id: int


class InviteInfo(msgspec.Struct, omit_defaults=True):
    """An open invite; without a `principal` it is a link."""

    session_id: str
    invite: str
    app: str
    title: str
    roles: list[str]
    by: str
    expires: str
    principal: str | None = None


class InvitesResponse(msgspec.Struct):
    """Open invites."""

    invites: list[InviteInfo]


class InviteRoutes:
    """The routes of one server."""

    def __init__(self, sessions: Callable[[], Sessions]) -> None:
        self._sessions = sessions

    async def change_member(self, request: Request) -> Response:
        """Change the roles of a member at once; invite a person who is none."""
        asked = await read_json_body(request, MemberBody, MAX_SMALL_BODY_BYTES)
        check_session_roles(asked.roles)
        sessions = self._sessions()
        seat = await sessions.get_membership(get_identity(request.scope).principal, asked.session)
        change = await sessions.member_changes.change_roles(seat, asked.principal, asked.roles, now_ms())
        return json_response(MemberResponse(change.seq, change.invite_id), 202)

    async def list_invites(self, request: Request) -> Response:
        """List the open invitations of the caller, or with `session` the open invites of that session."""
        sessions, principal = self._sessions(), get_identity(request.scope).principal
        if "session" in request.query_params:
            seat = await sessions.get_membership(principal, request.query_params["session"])
            found = await sessions.member_changes.list_session_invites(seat, now_ms())
        else:
            found = await sessions.member_changes.list_principal_invites(principal, now_ms())
        return json_response(InvitesResponse([self._make_invite_info(one) for one in found]))

    def _make_invite_info(self, listed: ListedInvite) -> InviteInfo:
        head, invite = listed.record, listed.invite
        return InviteInfo(
            head.session_id,
            listed.invite_id,
            head.app,
            head.title or self._sessions().apps[head.app].untitled,
            list(invite.roles),
            invite.by,
            format_timestamp(invite.expires_ms),
            invite.principal,
        )

    async def accept(self, request: Request) -> Response:
        """Become a member by an invitation of one's own."""
        asked, principal = (
            await read_json_body(request, InviteBody, MAX_SMALL_BODY_BYTES),
            get_identity(request.scope).principal,
        )
        seq = await self._sessions().member_changes.accept_invite(
            principal, asked.session, asked.invite, now_ms()
        )
        return json_response(InviteResponse(seq), 202)

    async def decline(self, request: Request) -> Response:
        """Decline an invitation of one's own."""
        asked, principal = (
            await read_json_body(request, InviteBody, MAX_SMALL_BODY_BYTES),
            get_identity(request.scope).principal,
        )
        seq = await self._sessions().member_changes.decline_invite(principal, asked.session, asked.invite)
        return json_response(InviteResponse(seq), 202)

    async def revoke(self, request: Request) -> Response:
        """End an invite of a session."""
        asked, sessions = await read_json_body(request, InviteBody, MAX_SMALL_BODY_BYTES), self._sessions()
        seat = await sessions.get_membership(get_identity(request.scope).principal, asked.session)
        return json_response(
            InviteResponse(await sessions.member_changes.revoke_invite(seat, asked.invite)), 202
        )
