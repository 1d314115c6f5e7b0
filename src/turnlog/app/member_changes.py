"""Changes of members and invites: each is decided from the head of a session and appended.

An append is refused if members or invites have changed since the head was read, and the decision is made
again: two people who redeem a link at once, or a redemption and a revocation, cannot cross. Whoever loses a
right by a change of members loses the streams and the invites that it gave, with the same append.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from turnlog.agents.runtime.turn_loop import TurnEvent
from turnlog.app.app import App
from turnlog.app.invites import (
    INVITE_MS,
    MAX_OPEN_INVITES,
    check_roles_are_free,
    end_reason,
    expired_invites,
    invites_for_principal,
    invites_without_right,
    session_roles,
)
from turnlog.app.membership import Membership, Principal, membership_of
from turnlog.app.messages import build_event
from turnlog.errors import CallerError, Conflict, Forbidden, LimitReached, NotFound
from turnlog.events import (
    Event,
    Payload,
    Scope,
    SessionInvite,
    SessionInviteEnd,
    SessionMember,
    decode_envelope,
)
from turnlog.ids import new_id
from turnlog.log import Log, OpenInvite, SessionRecord, envelope_json
from turnlog.log.append import apply_to_record

EndReason = Literal["revoked", "declined", "expired"]
RevokeStreams = Callable[[str, SessionMember], None]
"""Ends what a change of members took the right to, in a session, as soon as the change is durable."""
MAX_LISTED_INVITES = 100  # invitations of one person in an answer


class OwnInvite(Forbidden):
    """Who made an invite wants to use it."""


class Decision(NamedTuple):
    """Events to append. `main` is the one whose seq is the answer; `refusal` is raised after the append."""

    events: Sequence[Event]
    main: int = 0
    refusal: CallerError | None = None


class MemberChange(NamedTuple):
    """Where a change of members is; `invite_id` names the invitation that was made in its place."""

    seq: int
    invite_id: str | None = None


class ListedInvite(NamedTuple):
    """An open invite and its session."""

    head: SessionRecord
    invite_id: str
    invite: OpenInvite


class MemberChanges:
    """The members and invites of all sessions."""

    def __init__(
        self,
        log: Log,
        apps: Mapping[str, App],
        revoke_streams: RevokeStreams,
        open_session: Callable[[SessionRecord], Awaitable[object]],
    ) -> None:
        """`touch` opens a session in this process: who follows it hears of the change."""
        self._log = log
        self._apps = apps
        self._revoke_streams = revoke_streams
        self._open_session = open_session

    # members

    async def change_roles(
        self, membership: Membership, principal: str, roles: Sequence[str], now_ms: int
    ) -> MemberChange:
        """Give a principal roles, or with none take them all. A person who is no member is invited."""
        invite_id = new_id("inv_")

        def decide(head: SessionRecord, app: App) -> Decision:
            now = current_membership(membership, head, app)
            if now.is_protected(principal):
                raise Forbidden("only an operator may change the roles of who made the session")
            if not now.may_change_roles(roles, principal):
                raise Forbidden("only the owner of a session may do this")
            if roles and not session_roles(head, principal) and principal != membership.principal.name:
                return invite_decision(membership, head, app, invite_id, roles, principal, now_ms)
            return role_change_decision(membership, head, app, principal, roles)

        events, seq = await self._append(membership.session_id, decide)
        is_invite = any(isinstance(event.payload, SessionInvite) for event in events)
        return MemberChange(seq, invite_id if is_invite else None)

    # making and ending invites

    async def make_link(
        self, membership: Membership, roles: Sequence[str], invite_id: str, now_ms: int
    ) -> None:
        """Open an invite for whoever redeems it; the same id again changes nothing."""
        if await self._log.find_events(membership.session_id, [invite_event_id("made", invite_id)]):
            return

        def decide(head: SessionRecord, app: App) -> Decision:
            if not current_membership(membership, head, app).may_invite(roles):
                raise Forbidden("you may not make links for these roles in this session")
            return invite_decision(membership, head, app, invite_id, roles, None, now_ms)

        await self._append(membership.session_id, decide)

    async def revoke_invite(self, membership: Membership, invite_id: str) -> int:
        """End an invite; its maker may, and an owner."""

        def decide(head: SessionRecord, app: App) -> Decision:
            invite = get_open_invite(head, invite_id)
            if (
                invite.by != membership.principal.name
                and not current_membership(membership, head, app).is_owner
            ):
                raise Forbidden("only who made an invite, or an owner, may revoke it")
            return Decision([invite_end_event(app, invite_id, "revoked", membership.principal.name)])

        return await self._end_invite(membership.session_id, invite_id, membership.principal.name, decide)

    async def decline_invite(self, principal: Principal, session_id: str, invite_id: str) -> int:
        """End an invitation of the principal's own."""

        def decide(head: SessionRecord, app: App) -> Decision:
            if get_open_invite(head, invite_id).principal != principal.name:
                raise invite_not_found()
            return Decision([invite_end_event(app, invite_id, "declined", principal.name)])

        return await self._end_invite(session_id, invite_id, principal.name, decide)

    async def _end_invite(
        self, session_id: str, invite_id: str, actor: str, decide: Callable[[SessionRecord, App], Decision]
    ) -> int:
        """Append the end of an invite; where this actor has ended it before, return where."""
        try:
            return (await self._append(session_id, decide))[1]
        except NotFound:
            seq = await self._seq_of(session_id, invite_event_id("ended", invite_id), actor)
            if seq is None:
                raise
            return seq

    # using invites

    async def accept_invite(self, principal: Principal, session_id: str, invite_id: str, now_ms: int) -> int:
        """Make a principal a member by an invitation of its own; again, return where that is."""
        try:
            return await self.redeem_invite(principal.name, session_id, invite_id, now_ms, is_link=False)
        except NotFound:
            seq = await self._seq_of(session_id, invite_event_id("used", invite_id), principal.name)
            if seq is None:
                raise
            return seq

    async def redeem_invite(
        self,
        principal: str,
        session_id: str,
        invite_id: str,
        now_ms: int,
        *,
        is_link: bool = True,
        name: str | None = None,
    ) -> int:
        """Make a principal a member by an open invite, which is used up; `name` is what people call it.

        Raise `NotFound` if the invite is not open or not for this principal. An invite that is found expired
        ends with that: a clock that goes back does not open it again.
        """

        def decide(head: SessionRecord, app: App) -> Decision:
            invite = get_open_invite(head, invite_id)
            if invite.principal != (None if is_link else principal):
                raise invite_not_found()
            if reason := end_reason(head, app, invite, now_ms):
                return Decision([invite_end_event(app, invite_id, reason, None)], refusal=invite_not_found())
            check_redeemer(head, invite, principal)
            return join_decision(head, app, invite_id, invite, principal, name)

        return (await self._append(session_id, decide))[1]

    # looking

    async def find_usable_invite(
        self, session_id: str, invite_id: str, now_ms: int
    ) -> tuple[SessionRecord, OpenInvite]:
        """Return an invite that can be used now, and its session; raise `NotFound` if it cannot."""
        head = await self._log.info(session_id)
        app, invite = self._apps.get(head.app), get_open_invite(head, invite_id)
        if head.closed or app is None or end_reason(head, app, invite, now_ms):
            raise invite_not_found()
        return head, invite

    async def list_session_invites(self, membership: Membership, now_ms: int) -> list[ListedInvite]:
        """Return the open invites of a session; who may invite there sees them."""
        head = membership.head
        if not membership.invitable_roles and not membership.is_owner:
            raise Forbidden("you may not invite to this session")
        gone = expired_invites(head, now_ms)
        return [ListedInvite(head, name, one) for name, one in head.invites.items() if name not in gone]

    async def list_principal_invites(self, principal: Principal, now_ms: int) -> list[ListedInvite]:
        """Return the open invitations of a principal, to those sessions that were active last."""
        found = [
            ListedInvite(head, name, head.invites[name])
            for head in await self._log.invitations(principal.name, MAX_LISTED_INVITES)
            if head.app in self._apps and not head.closed
            for name in invites_for_principal(head, principal.name)
            if end_reason(head, self._apps[head.app], head.invites[name], now_ms) is None
        ]
        return sorted(found, key=lambda one: one.invite.expires_ms, reverse=True)

    # appending

    async def _append(
        self, session_id: str, decide: Callable[[SessionRecord, App], Decision]
    ) -> tuple[Sequence[Event], int]:
        """Append what is decided; when members or invites have changed meanwhile, decide again."""
        while True:
            head = await self._log.info(session_id)
            if head.app not in self._apps:
                raise NotFound(f"no session {session_id[:80]}")
            events, main, refusal = decide(head, self._apps[head.app])
            changes = [event.payload for event in events if isinstance(event.payload, SessionMember)]
            if changes:
                await self._open_session(head)
            try:
                seqs = await self._log.append(session_id, events, expected_members_seq=head.members_seq)
            except Conflict as conflict:
                if conflict.last == head.last:
                    raise
                continue
            for change in changes:
                self._revoke_streams(session_id, change)  # from here: a driver that is busy looks later
            if refusal is not None:
                raise refusal
            return events, seqs[main]

    async def _seq_of(self, session_id: str, event_id: str, actor: str) -> int | None:
        """Return where an event of an actor is."""
        row = (await self._log.find_events(session_id, [event_id])).get(event_id)
        return row.seq if row and decode_envelope(envelope_json(row)).actor == actor else None


def current_membership(membership: Membership, head: SessionRecord, app: App) -> Membership:
    """Return the seat of the same principal as the head has it now."""
    found = membership_of(membership.principal, head, app)
    if found is None:
        raise NotFound(f"no session {head.session_id}")
    return found


def get_open_invite(head: SessionRecord, invite_id: str) -> OpenInvite:
    """Return an open invite; raise `NotFound` if there is none."""
    invite = head.invites.get(invite_id)
    if invite is None:
        raise invite_not_found()
    return invite


def invite_not_found() -> NotFound:
    return NotFound("no such invite is open: it was used or revoked, or it has expired")


def check_redeemer(head: SessionRecord, invite: OpenInvite, principal: str) -> None:
    """Raise Forbidden for who made the invite, and for who is a member already."""
    if principal == invite.by:
        raise OwnInvite("you made this link; send it to the person you invite")
    if session_roles(head, principal):
        raise Forbidden("you are a member of this session already")


def join_decision(
    head: SessionRecord, app: App, invite_id: str, invite: OpenInvite, principal: str, name: str | None
) -> Decision:
    """Make a principal a member by an invite; other invitations of the same principal end."""
    others = [one for one in invites_for_principal(head, principal) if one != invite_id]
    check_roles_are_free(head, app, invite.roles, principal, [invite_id, *others])
    member = SessionMember(principal=principal, roles=invite.roles, name=name, invite_id=invite_id)
    joined = system_event(app, member, principal, invite_event_id("used", invite_id))
    return Decision([joined, *[invite_end_event(app, one, "revoked", principal) for one in others]])


def invite_decision(
    membership: Membership,
    head: SessionRecord,
    app: App,
    invite_id: str,
    roles: Sequence[str],
    principal: str | None,
    now_ms: int,
) -> Decision:
    """Open an invite. Invites that have expired end with it, and the earlier one of the same principal."""
    gone: dict[str, EndReason] = dict.fromkeys(expired_invites(head, now_ms), "expired")
    for earlier in invites_for_principal(head, principal) if principal else ():
        gone.setdefault(earlier, "revoked")
    if len(head.invites) - len(gone) >= MAX_OPEN_INVITES:
        raise LimitReached(f"the session has {MAX_OPEN_INVITES} open invites; revoke some first")
    check_roles_are_free(head, app, roles, principal, gone)

    by = membership.principal.name
    as_member = membership_of(Principal(by), head, app)
    invite = SessionInvite(
        invite_id=invite_id,
        roles=tuple(roles),
        principal=principal,
        expires_ms=now_ms + INVITE_MS,
        as_operator=as_member is None or not as_member.may_invite(roles),
    )
    opened = system_event(app, invite, by, invite_event_id("made", invite_id))
    ends = [
        invite_end_event(app, one, reason, None if reason == "expired" else by)
        for one, reason in gone.items()
    ]
    return Decision([*ends, opened], main=len(ends))


def role_change_decision(
    membership: Membership, head: SessionRecord, app: App, principal: str, roles: Sequence[str]
) -> Decision:
    """Change the roles of a principal at once; invites whose maker loses the right to them end with it."""
    own = invites_for_principal(head, principal)
    check_roles_are_free(head, app, roles, principal, own)
    change, by = SessionMember(principal=principal, roles=tuple(roles)), membership.principal.name
    after = apply_to_record(head, change, by, head.last + 1)
    ended = dict.fromkeys([*own, *invites_without_right(after, app)])
    event = system_event(app, change, by)
    return Decision([event, *[invite_end_event(app, one, "revoked", by) for one in ended]])


def invite_end_event(app: App, invite_id: str, reason: EndReason, actor: str | None) -> Event:
    payload = SessionInviteEnd(invite_id=invite_id, reason=reason)
    return system_event(app, payload, actor, invite_event_id("ended", invite_id))


def system_event(app: App, payload: Payload, actor: str | None, event_id: str | None = None) -> Event:
    return build_event(app, TurnEvent(payload, Scope(actor=actor), "system"), event_id)


def invite_event_id(what: Literal["made", "used", "ended"], invite_id: str) -> str:
    """Return the id of an event about an invite: each happens once. Pages cannot take ids of this form."""
    return f"evt_00-{what}-{invite_id}"
