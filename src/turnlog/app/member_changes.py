"""Changes of members and invites: each is decided from the session's record and appended.

If members or invites have changed since the record was read, the append fails and the decision is made
again: of two people who redeem a link at once, or of a redemption and a revocation, only one succeeds. A
principal that loses a right loses the invites that depend on it with the same append, and its streams when
the log reports the change (`Log.on_members_changed`).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

from turnlog.agents.runtime.optimistic_append import AppendPlan, append_if_unchanged
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
from turnlog.errors import CallerError, Forbidden, LimitReached, NotFound
from turnlog.events import (
    CATALOG,
    Event,
    EventDraft,
    Payload,
    Scope,
    SessionInvite,
    SessionInviteEnd,
    SessionMember,
    decode_envelope,
)
from turnlog.events.roles import SERVER_ROLES
from turnlog.ids import new_id
from turnlog.log import Log, OpenInvite, SessionRecord, envelope_json
from turnlog.log.append import apply_to_record

EndReason = Literal["revoked", "declined", "expired"]
MAX_LISTED_INVITES = 100  # invitations of one person in an answer


class OwnInvite(Forbidden):
    """The maker of an invite may not use it."""


class Decision(NamedTuple):
    """Events to append. `main` is the index of the one whose seq is returned; `refusal` is raised after."""

    events: Sequence[Event]
    main: int = 0
    refusal: CallerError | None = None


@dataclass(slots=True)
class DecisionPlan(AppendPlan):
    """The events of a decision, and the decision."""

    decision: Decision = field(kw_only=True)


class MemberChange(NamedTuple):
    """The seq of a change of members; `invite_id` names the invitation that was made in its place."""

    seq: int
    invite_id: str | None = None


class ListedInvite(NamedTuple):
    """An open invite and its session."""

    record: SessionRecord
    invite_id: str
    invite: OpenInvite


async def allow(record: SessionRecord) -> None:
    """For decisions that need nothing but the record."""


class MemberChanges:
    """The members and invites of all sessions."""

    def __init__(
        self,
        log: Log,
        apps: Mapping[str, App],
    ) -> None:
        self._log = log
        self._apps = apps

    # members

    async def change_roles(
        self, membership: Membership, principal: str, roles: Sequence[str], now_ms: int
    ) -> MemberChange:
        """Set the roles of a principal. No roles remove it. A principal that is no member is invited."""
        invite_id = new_id("inv_")

        def decide(record: SessionRecord, app: App) -> Decision:
            current = current_membership(membership, record, app)
            if current.is_protected(principal):
                raise Forbidden("only an operator may change the roles of the session's creator")
            if not current.may_change_roles(roles, principal):
                raise Forbidden("only the owner of a session may do this")
            is_self = principal == membership.principal.name
            if roles and not session_roles(record, principal) and not is_self:
                return invite_decision(membership, record, app, invite_id, roles, principal, now_ms)
            return role_change_decision(membership, record, app, principal, roles)

        events, seq = await self._append(membership.session_id, decide)
        is_invite = any(isinstance(event.payload, SessionInvite) for event in events)
        return MemberChange(seq, invite_id if is_invite else None)

    async def join_shared_session(self, principal: str, session_id: str) -> None:
        """Make a principal a member of its application's shared session.

        Raise `Forbidden` if it was a member before: it left, or was removed. `memory:` does not know this any
        more when it has evicted the events.
        """

        async def check(record: SessionRecord) -> None:
            if not session_roles(record, principal) and await self._was_member(record, principal):
                raise Forbidden("you are no longer a member of the shared session; its owner can invite you")

        def decide(record: SessionRecord, app: App) -> Decision:
            return shared_join_decision(record, app, principal)

        await self._append(session_id, decide, check)

    async def _was_member(self, record: SessionRecord, principal: str) -> bool:
        """Return whether the log has a change of the principal's session roles."""
        seq = -1
        while seq < record.last:
            page = await self._log.read_types(record.session_id, (SessionMember.TYPE,), seq)
            for envelope in page.envelopes():
                change = CATALOG.decode_payload(envelope)
                if not isinstance(change, SessionMember) or change.principal != principal:
                    continue
                # A server role in the log is only the record of an operator's act.
                if not change.roles or not SERVER_ROLES.issuperset(change.roles):
                    return True
            if page.upto is None:
                break
            seq = page.upto
        return False

    # making and ending invites

    async def make_link(
        self,
        membership: Membership,
        roles: Sequence[str],
        invite_id: str,
        now_ms: int,
        name: str | None = None,
    ) -> None:
        """Open an invite that any principal may redeem, once. The same id again changes nothing.

        `name` is what the inviter calls it.
        """
        if await self._log.find_events(membership.session_id, [invite_event_id("made", invite_id)]):
            return

        def decide(record: SessionRecord, app: App) -> Decision:
            if not current_membership(membership, record, app).may_invite(roles):
                raise Forbidden("you may not make links for these roles in this session")
            return invite_decision(membership, record, app, invite_id, roles, None, now_ms, name)

        await self._append(membership.session_id, decide)

    async def revoke_invite(self, membership: Membership, invite_id: str) -> int:
        """End an invite. Its maker and owners may do this."""
        name = membership.principal.name

        def decide(record: SessionRecord, app: App) -> Decision:
            invite = get_open_invite(record, invite_id)
            if invite.by != name and not current_membership(membership, record, app).is_owner:
                raise Forbidden("only the maker of an invite, or an owner, may revoke it")
            return Decision([invite_end_event(app, invite_id, "revoked", name)])

        return await self._end_invite(membership.session_id, invite_id, name, decide)

    async def decline_invite(self, principal: Principal, session_id: str, invite_id: str) -> int:
        def decide(record: SessionRecord, app: App) -> Decision:
            if get_open_invite(record, invite_id).principal != principal.name:
                raise invite_not_found()
            return Decision([invite_end_event(app, invite_id, "declined", principal.name)])

        return await self._end_invite(session_id, invite_id, principal.name, decide)

    async def _end_invite(
        self, session_id: str, invite_id: str, actor: str, decide: Callable[[SessionRecord, App], Decision]
    ) -> int:
        """Append the end of an invite and return its seq, also if this actor has ended it before."""
        try:
            return (await self._append(session_id, decide))[1]
        except NotFound:
            seq = await self._seq_of(session_id, invite_event_id("ended", invite_id), actor)
            if seq is None:
                raise
            return seq

    # using invites

    async def accept_invite(self, principal: Principal, session_id: str, invite_id: str, now_ms: int) -> int:
        """Make a principal a member by its invitation. Return the seq, also if it was accepted before."""
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
        """Make a principal a member by an open invite, which is then used up. `name` is a display name.

        Raise `NotFound` if the invite is not open or not for this principal. The end of an expired invite is
        appended, so that it does not open again if the clock is set back.
        """
        invited = None if is_link else principal

        def decide(record: SessionRecord, app: App) -> Decision:
            invite = get_open_invite(record, invite_id)
            if invite.principal != invited:
                raise invite_not_found()
            reason = end_reason(record, app, invite, now_ms)
            if reason is not None:
                end = invite_end_event(app, invite_id, reason, None)
                return Decision([end], refusal=invite_not_found())
            check_redeemer(record, invite, principal)
            return join_decision(record, app, invite_id, invite, principal, name)

        return (await self._append(session_id, decide))[1]

    # reading

    async def find_usable_invite(
        self, session_id: str, invite_id: str, now_ms: int
    ) -> tuple[SessionRecord, OpenInvite]:
        """Return an invite that can be used now, and its session. Raise `NotFound` if it cannot."""
        record = await self._log.info(session_id)
        app = self._apps.get(record.app)
        invite = get_open_invite(record, invite_id)
        if record.closed or app is None or end_reason(record, app, invite, now_ms):
            raise invite_not_found()
        return record, invite

    async def list_session_invites(self, membership: Membership, now_ms: int) -> list[ListedInvite]:
        """Return the open invites of a session. Raise `Forbidden` for a member who may not invite."""
        record = membership.record
        if not membership.invitable_roles and not membership.is_owner:
            raise Forbidden("you may not invite to this session")
        expired = expired_invites(record, now_ms)
        return [
            ListedInvite(record, invite_id, invite)
            for invite_id, invite in record.invites.items()
            if invite_id not in expired
        ]

    async def list_principal_invites(self, principal: Principal, now_ms: int) -> list[ListedInvite]:
        listed: list[ListedInvite] = []
        for record in await self._log.invitations(principal.name, MAX_LISTED_INVITES):
            app = self._apps.get(record.app)
            if app is None or record.closed:
                continue
            for invite_id in invites_for_principal(record, principal.name):
                invite = record.invites[invite_id]
                if end_reason(record, app, invite, now_ms) is None:
                    listed.append(ListedInvite(record, invite_id, invite))
        return sorted(listed, key=lambda item: item.invite.expires_ms, reverse=True)

    # appending

    async def _append(
        self,
        session_id: str,
        decide: Callable[[SessionRecord, App], Decision],
        check: Callable[[SessionRecord], Awaitable[None]] = allow,
    ) -> tuple[Sequence[Event], int]:
        """Append a decision. If members or invites have changed meanwhile, check and decide again.

        Return the events and the seq of the main one. Raise the decision's refusal after the append.
        """

        async def make_plan() -> DecisionPlan:
            record = await self._log.info(session_id)
            app = self._apps.get(record.app)
            if app is None:
                raise NotFound(f"no session {session_id[:80]}")
            await check(record)
            decision = decide(record, app)
            expected = {"expected_members_seq": record.members_seq}
            return DecisionPlan(decision.events, record.last, expected, decision=decision)

        appended = await append_if_unchanged(partial(self._log.append, session_id), make_plan)
        assert appended is not None
        plan, result = appended
        if plan.decision.refusal is not None:
            raise plan.decision.refusal
        return plan.events, result.seqs[plan.decision.main]

    async def _seq_of(self, session_id: str, event_id: str, actor: str) -> int | None:
        """Return the seq of an event, or None if the log has it not, or from another actor."""
        row = (await self._log.find_events(session_id, [event_id])).get(event_id)
        if row is None or decode_envelope(envelope_json(row)).actor != actor:
            return None
        return row.seq


def current_membership(membership: Membership, record: SessionRecord, app: App) -> Membership:
    """Return the membership of the same principal as of this record. Raise `NotFound` without one."""
    current = membership_of(membership.principal, record, app)
    if current is None:
        raise NotFound(f"no session {record.session_id}")
    return current


def get_open_invite(record: SessionRecord, invite_id: str) -> OpenInvite:
    """Return an open invite. Raise `NotFound` if there is none."""
    invite = record.invites.get(invite_id)
    if invite is None:
        raise invite_not_found()
    return invite


def invite_not_found() -> NotFound:
    return NotFound("no such invite is open: it was used or revoked, or it has expired")


def check_redeemer(record: SessionRecord, invite: OpenInvite, principal: str) -> None:
    """Raise `Forbidden` for the maker of the invite, and for a member."""
    if principal == invite.by:
        raise OwnInvite("you made this link; send it to the person you invite")
    if session_roles(record, principal):
        raise Forbidden("you are a member of this session already")


def join_decision(
    record: SessionRecord, app: App, invite_id: str, invite: OpenInvite, principal: str, name: str | None
) -> Decision:
    others = [other for other in invites_for_principal(record, principal) if other != invite_id]
    check_roles_are_free(record, app, invite.roles, principal, [invite_id, *others])
    member = SessionMember(principal=principal, roles=invite.roles, name=name, invite_id=invite_id)
    join_event = system_event(app, member, principal, invite_event_id("used", invite_id))
    ends = [invite_end_event(app, other, "revoked", principal) for other in others]
    return Decision([join_event, *ends])


def shared_join_decision(record: SessionRecord, app: App, principal: str) -> Decision:
    """Make a principal a member of a shared session; its invitations end. A member keeps its roles."""
    # An import may have made the session: it has no creator before its first member.
    joiner_roles = app.roles.joiner if record.creator else ()
    roles = tuple(sorted(session_roles(record, principal))) or joiner_roles or app.roles.creator
    join_event = system_event(app, SessionMember(principal=principal, roles=roles), principal)
    invites = invites_for_principal(record, principal)
    return Decision([join_event, *[invite_end_event(app, item, "revoked", principal) for item in invites]])


def invite_decision(
    membership: Membership,
    record: SessionRecord,
    app: App,
    invite_id: str,
    roles: Sequence[str],
    principal: str | None,
    now_ms: int,
    name: str | None = None,
) -> Decision:
    ending: dict[str, EndReason] = dict.fromkeys(expired_invites(record, now_ms), "expired")
    if principal is not None:
        for earlier in invites_for_principal(record, principal):
            ending.setdefault(earlier, "revoked")
    if len(record.invites) - len(ending) >= MAX_OPEN_INVITES:
        raise LimitReached(f"the session has {MAX_OPEN_INVITES} open invites; revoke some first")
    check_roles_are_free(record, app, roles, principal, ending)

    by = membership.principal.name
    as_member = membership_of(Principal(by), record, app)
    invite = SessionInvite(
        invite_id=invite_id,
        roles=tuple(roles),
        principal=principal,
        expires_ms=now_ms + INVITE_MS,
        as_operator=as_member is None or not as_member.may_invite(roles),
        name=name,
    )
    events: list[Event] = []
    for ending_id, reason in ending.items():
        events.append(invite_end_event(app, ending_id, reason, None if reason == "expired" else by))
    events.append(system_event(app, invite, by, invite_event_id("made", invite_id)))
    return Decision(events, main=len(events) - 1)


def role_change_decision(
    membership: Membership, record: SessionRecord, app: App, principal: str, roles: Sequence[str]
) -> Decision:
    """Change the roles of a principal, and end invites whose maker loses the right to make them."""
    own_invites = invites_for_principal(record, principal)
    check_roles_are_free(record, app, roles, principal, own_invites)
    change = SessionMember(principal=principal, roles=tuple(roles))
    by = membership.principal.name
    changed_record = apply_to_record(record, change, by, record.last + 1)
    ended = dict.fromkeys([*own_invites, *invites_without_right(changed_record, app)])
    ends = [invite_end_event(app, invite_id, "revoked", by) for invite_id in ended]
    return Decision([system_event(app, change, by), *ends])


def invite_end_event(app: App, invite_id: str, reason: EndReason, actor: str | None) -> Event:
    payload = SessionInviteEnd(invite_id=invite_id, reason=reason)
    return system_event(app, payload, actor, invite_event_id("ended", invite_id))


def system_event(app: App, payload: Payload, actor: str | None, event_id: str | None = None) -> Event:
    return EventDraft(payload, Scope(actor=actor), "system").build(app.catalog, event_id or new_id("evt_"))


def invite_event_id(step: Literal["made", "used", "ended"], invite_id: str) -> str:
    """Return the id of an event about an invite: each step happens once. Pages cannot post such ids."""
    return f"evt_00-{step}-{invite_id}"
