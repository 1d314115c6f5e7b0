"""Changes of members and invites: each is decided from the head of a session and appended.

An append is refused if members or invites have changed since the head was read, and the decision is made
again: two people who redeem a link at once, or a redemption and a revocation, cannot cross. The
append that takes a right from a member also ends its streams and the invites that the right gave.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from turnlog.agents.loop import Item
from turnlog.app.app import App
from turnlog.app.invites import (
    INVITE_MS,
    MAX_OPEN_INVITES,
    addressed_to,
    check_roles_are_free,
    end_reason,
    expired,
    session_roles,
    without_right,
)
from turnlog.app.members import Principal, Seat, seat_of
from turnlog.app.sending import made
from turnlog.errors import CallerError, Conflict, Forbidden, LimitReached, NotFound
from turnlog.events import (
    Event,
    Payload,
    Scope,
    SessionInvite,
    SessionInviteEnd,
    SessionMember,
    decode,
)
from turnlog.ids import new_id
from turnlog.log import Head, Log, OpenInvite, line_of
from turnlog.log.append import told

EndReason = Literal["revoked", "declined", "expired"]
Revoke = Callable[[str, SessionMember], None]
"""Ends what a change of members took the right to, in a session, as soon as the change is durable."""
MAX_LISTED = 100  # invitations of one person in an answer


class OwnInvite(Forbidden):
    """Who made an invite wants to use it."""


class Decision(NamedTuple):
    """Events to append. `main` is the one whose seq is the answer; `refusal` is raised after the append."""

    events: Sequence[Event]
    main: int = 0
    refusal: CallerError | None = None


class Change(NamedTuple):
    """Where a change of members is; `invite_id` names the invitation that was made in its place."""

    seq: int
    invite_id: str | None = None


class Listed(NamedTuple):
    """An open invite and its session."""

    head: Head
    invite_id: str
    invite: OpenInvite


class Membership:
    """The members and invites of all sessions."""

    def __init__(
        self,
        log: Log,
        apps: Mapping[str, App],
        revoke: Revoke,
        touch: Callable[[Head], Awaitable[object]],
    ) -> None:
        """`touch` opens a session in this process: who follows it hears of the change."""
        self._log = log
        self._apps = apps
        self._revoke = revoke
        self._touch = touch

    # members

    async def change(self, seat: Seat, principal: str, roles: Sequence[str], now_ms: int) -> Change:
        """Give a principal roles, or with none take them all. A person who is no member is invited."""
        invite_id = new_id("inv_")

        def decide(head: Head, app: App) -> Decision:
            now = current(seat, head, app)
            if now.is_protected(principal):
                raise Forbidden("only an operator may change the roles of who made the session")
            if not now.may_change(roles, principal):
                raise Forbidden("only the owner of a session may do this")
            if roles and not session_roles(head, principal) and principal != seat.principal.name:
                return invitation(seat, head, app, invite_id, roles, principal, now_ms)
            return change_of_roles(seat, head, app, principal, roles)

        events, seq = await self._append(seat.session_id, decide)
        is_invite = any(isinstance(event.payload, SessionInvite) for event in events)
        return Change(seq, invite_id if is_invite else None)

    # making and ending invites

    async def make_link(self, seat: Seat, roles: Sequence[str], invite_id: str, now_ms: int) -> None:
        """Open an invite that any person may redeem; the same id again changes nothing."""
        if await self._log.known(seat.session_id, [invite_event_id("made", invite_id)]):
            return

        def decide(head: Head, app: App) -> Decision:
            if not current(seat, head, app).may_invite(roles):
                raise Forbidden("you may not make links for these roles in this session")
            return invitation(seat, head, app, invite_id, roles, None, now_ms)

        await self._append(seat.session_id, decide)

    async def revoke(self, seat: Seat, invite_id: str) -> int:
        """End an invite; its maker may, and an owner."""

        def decide(head: Head, app: App) -> Decision:
            invite = open_invite(head, invite_id)
            if invite.by != seat.principal.name and not current(seat, head, app).is_owner:
                raise Forbidden("only who made an invite, or an owner, may revoke it")
            return Decision([end_of(app, invite_id, "revoked", seat.principal.name)])

        return await self._end(seat.session_id, invite_id, seat.principal.name, decide)

    async def decline(self, principal: Principal, session_id: str, invite_id: str) -> int:
        """End an invitation of the principal's own."""

        def decide(head: Head, app: App) -> Decision:
            if open_invite(head, invite_id).principal != principal.name:
                raise no_invite()
            return Decision([end_of(app, invite_id, "declined", principal.name)])

        return await self._end(session_id, invite_id, principal.name, decide)

    async def _end(
        self, session_id: str, invite_id: str, actor: str, decide: Callable[[Head, App], Decision]
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

    async def accept(self, principal: Principal, session_id: str, invite_id: str, now_ms: int) -> int:
        """Make a principal a member by an invitation of its own; again, return where that is."""
        try:
            return await self.redeem(principal.name, session_id, invite_id, now_ms, is_link=False)
        except NotFound:
            seq = await self._seq_of(session_id, invite_event_id("used", invite_id), principal.name)
            if seq is None:
                raise
            return seq

    async def redeem(
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

        def decide(head: Head, app: App) -> Decision:
            invite = open_invite(head, invite_id)
            if invite.principal != (None if is_link else principal):
                raise no_invite()
            if reason := end_reason(head, app, invite, now_ms):
                return Decision([end_of(app, invite_id, reason, None)], refusal=no_invite())
            check_redeemer(head, invite, principal)
            return entry(head, app, invite_id, invite, principal, name)

        return (await self._append(session_id, decide))[1]

    # looking

    async def usable(self, session_id: str, invite_id: str, now_ms: int) -> tuple[Head, OpenInvite]:
        """Return an invite that can be used now, and its session; raise `NotFound` if it cannot."""
        head = await self._log.info(session_id)
        app, invite = self._apps.get(head.app), open_invite(head, invite_id)
        if head.closed or app is None or end_reason(head, app, invite, now_ms):
            raise no_invite()
        return head, invite

    async def of_session(self, seat: Seat, now_ms: int) -> list[Listed]:
        """Return the open invites of a session; who may invite there sees them."""
        head = seat.head
        if not seat.invites and not seat.is_owner:
            raise Forbidden("you may not invite to this session")
        gone = expired(head, now_ms)
        return [Listed(head, name, one) for name, one in head.invites.items() if name not in gone]

    async def of_principal(self, principal: Principal, now_ms: int) -> list[Listed]:
        """Return the open invitations of a principal, to those sessions that were active last."""
        found = [
            Listed(head, name, head.invites[name])
            for head in await self._log.invitations(principal.name, MAX_LISTED)
            if head.app in self._apps and not head.closed
            for name in addressed_to(head, principal.name)
            if end_reason(head, self._apps[head.app], head.invites[name], now_ms) is None
        ]
        return sorted(found, key=lambda one: one.invite.expires_ms, reverse=True)

    # appending

    async def _append(
        self, session_id: str, decide: Callable[[Head, App], Decision]
    ) -> tuple[Sequence[Event], int]:
        """Append what is decided; when members or invites have changed meanwhile, decide again."""
        while True:
            head = await self._log.info(session_id)
            if head.app not in self._apps:
                raise NotFound(f"no session {session_id[:80]}")
            events, main, refusal = decide(head, self._apps[head.app])
            changes = [event.payload for event in events if isinstance(event.payload, SessionMember)]
            if changes:
                await self._touch(head)
            try:
                seqs = await self._log.append(session_id, events, expected_members_seq=head.members_seq)
            except Conflict as conflict:
                if conflict.last == head.last:
                    raise
                continue
            for change in changes:
                self._revoke(session_id, change)  # from here: a driver that is busy looks later
            if refusal is not None:
                raise refusal
            return events, seqs[main]

    async def _seq_of(self, session_id: str, event_id: str, actor: str) -> int | None:
        """Return where an event of an actor is."""
        row = (await self._log.known(session_id, [event_id])).get(event_id)
        return row.seq if row and decode(line_of(row)).actor == actor else None


def current(seat: Seat, head: Head, app: App) -> Seat:
    """Return the seat of the same principal as the head has it now."""
    found = seat_of(seat.principal, head, app)
    if found is None:
        raise NotFound(f"no session {head.session_id}")
    return found


def open_invite(head: Head, invite_id: str) -> OpenInvite:
    """Return an open invite; raise `NotFound` if there is none."""
    invite = head.invites.get(invite_id)
    if invite is None:
        raise no_invite()
    return invite


def no_invite() -> NotFound:
    return NotFound("no such invite is open: it was used or revoked, or it has expired")


def check_redeemer(head: Head, invite: OpenInvite, principal: str) -> None:
    """Raise Forbidden for who made the invite, and for who is a member already."""
    if principal == invite.by:
        raise OwnInvite("you made this link; send it to the person you invite")
    if session_roles(head, principal):
        raise Forbidden("you are a member of this session already")


def entry(
    head: Head, app: App, invite_id: str, invite: OpenInvite, principal: str, name: str | None
) -> Decision:
    """Make a principal a member by an invite; other invitations of the same principal end."""
    others = [one for one in addressed_to(head, principal) if one != invite_id]
    check_roles_are_free(head, app, invite.roles, principal, [invite_id, *others])
    member = SessionMember(principal=principal, roles=invite.roles, name=name, invite_id=invite_id)
    joined = system_event(app, member, principal, invite_event_id("used", invite_id))
    return Decision([joined, *[end_of(app, one, "revoked", principal) for one in others]])


def invitation(
    seat: Seat,
    head: Head,
    app: App,
    invite_id: str,
    roles: Sequence[str],
    principal: str | None,
    now_ms: int,
) -> Decision:
    """Open an invite. Invites that have expired end with it, and the earlier one of the same principal."""
    gone: dict[str, EndReason] = dict.fromkeys(expired(head, now_ms), "expired")
    for earlier in addressed_to(head, principal) if principal else ():
        gone.setdefault(earlier, "revoked")
    if len(head.invites) - len(gone) >= MAX_OPEN_INVITES:
        raise LimitReached(f"the session has {MAX_OPEN_INVITES} open invites; revoke some first")
    check_roles_are_free(head, app, roles, principal, gone)

    by = seat.principal.name
    as_member = seat_of(Principal(by), head, app)
    invite = SessionInvite(
        invite_id=invite_id,
        roles=tuple(roles),
        principal=principal,
        expires_ms=now_ms + INVITE_MS,
        as_operator=as_member is None or not as_member.may_invite(roles),
    )
    opened = system_event(app, invite, by, invite_event_id("made", invite_id))
    ends = [end_of(app, one, reason, None if reason == "expired" else by) for one, reason in gone.items()]
    return Decision([*ends, opened], main=len(ends))


def change_of_roles(seat: Seat, head: Head, app: App, principal: str, roles: Sequence[str]) -> Decision:
    """Change the roles of a principal at once; invites whose maker loses the right to them end with it."""
    own = addressed_to(head, principal)
    check_roles_are_free(head, app, roles, principal, own)
    change, by = SessionMember(principal=principal, roles=tuple(roles)), seat.principal.name
    after = told(head, change, by, head.last + 1)
    ended = dict.fromkeys([*own, *without_right(after, app)])
    event = system_event(app, change, by)
    return Decision([event, *[end_of(app, one, "revoked", by) for one in ended]])


def end_of(app: App, invite_id: str, reason: EndReason, actor: str | None) -> Event:
    payload = SessionInviteEnd(invite_id=invite_id, reason=reason)
    return system_event(app, payload, actor, invite_event_id("ended", invite_id))


def system_event(app: App, payload: Payload, actor: str | None, event_id: str | None = None) -> Event:
    return made(app, Item(payload, Scope(actor=actor), "system"), event_id)


def invite_event_id(what: Literal["made", "used", "ended"], invite_id: str) -> str:
    """Return the id of an event about an invite: each happens once. Pages cannot take ids of this form."""
    return f"evt_00-{what}-{invite_id}"
