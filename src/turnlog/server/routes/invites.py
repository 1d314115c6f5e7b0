"""The routes of members and invitations (protocol section 8.5)."""

from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnlog.app import Sessions
from turnlog.app.member_changes import Listed
from turnlog.events.envelope import timestamp
from turnlog.events.payload import Name, Record, Role
from turnlog.ids import now_ms
from turnlog.server.auth.authentication import known_of
from turnlog.server.request_body import SMALL_BYTES, body
from turnlog.server.routes.api import answer
from turnlog.server.routes.sign_in import check_session_roles


class MemberBody(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The roles of a principal in a session; none: a member no more."""

    session: str
    principal: Name
    roles: tuple[Role, ...]


class MemberAnswer(msgspec.Struct, rename={"event_id": "eventId"}, omit_defaults=True):
    """Where the change is; `invite` is the invitation of a person who was no member."""

    event_id: int
    invite: str | None = None


class InviteBody(msgspec.Struct, forbid_unknown_fields=True):
    """An invite of a session."""

    session: str
    invite: str


class InviteAnswer(msgspec.Struct, rename={"event_id": "eventId"}):
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


class InvitesAnswer(msgspec.Struct):
    """Open invites."""

    invites: list[InviteInfo]


class InviteRoutes:
    """The routes of one server."""

    def __init__(self, sessions: Callable[[], Sessions]) -> None:
        self._sessions = sessions

    async def change_member(self, request: Request) -> Response:
        """Change the roles of a member at once; invite a person who is none."""
        asked = await body(request, MemberBody, SMALL_BYTES)
        check_session_roles(asked.roles)
        sessions = self._sessions()
        seat = await sessions.seat(known_of(request.scope).principal, asked.session)
        change = await sessions.membership.change(seat, asked.principal, asked.roles, now_ms())
        return answer(MemberAnswer(change.seq, change.invite_id), 202)

    async def list_invites(self, request: Request) -> Response:
        """List the open invitations of the caller, or with `session` the open invites of that session."""
        sessions, principal = self._sessions(), known_of(request.scope).principal
        if "session" in request.query_params:
            seat = await sessions.seat(principal, request.query_params["session"])
            found = await sessions.membership.of_session(seat, now_ms())
        else:
            found = await sessions.membership.of_principal(principal, now_ms())
        return answer(InvitesAnswer([self._described(one) for one in found]))

    def _described(self, listed: Listed) -> InviteInfo:
        head, invite = listed.head, listed.invite
        return InviteInfo(
            head.session_id,
            listed.invite_id,
            head.app,
            head.title or self._sessions().apps[head.app].untitled,
            list(invite.roles),
            invite.by,
            timestamp(invite.expires_ms),
            invite.principal,
        )

    async def accept(self, request: Request) -> Response:
        """Become a member by an invitation of one's own."""
        asked, principal = await body(request, InviteBody, SMALL_BYTES), known_of(request.scope).principal
        seq = await self._sessions().membership.accept(principal, asked.session, asked.invite, now_ms())
        return answer(InviteAnswer(seq), 202)

    async def decline(self, request: Request) -> Response:
        """Decline an invitation of one's own."""
        asked, principal = await body(request, InviteBody, SMALL_BYTES), known_of(request.scope).principal
        seq = await self._sessions().membership.decline(principal, asked.session, asked.invite)
        return answer(InviteAnswer(seq), 202)

    async def revoke(self, request: Request) -> Response:
        """End an invite of a session."""
        asked, sessions = await body(request, InviteBody, SMALL_BYTES), self._sessions()
        seat = await sessions.seat(known_of(request.scope).principal, asked.session)
        return answer(InviteAnswer(await sessions.membership.revoke(seat, asked.invite)), 202)
