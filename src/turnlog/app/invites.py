"""Which invites are good, and what a change of members does to them (protocol section 8.5). Pure.

An invite is a link for one person, or an invitation of a principal. It is open in the head of its session
from `session.invite` until it is used or ends. It dies with the right of its maker to invite to its roles.
"""

from collections.abc import Collection, Iterable
from typing import Literal

from turnlog.app.app import App
from turnlog.app.membership import Principal, membership_of
from turnlog.errors import LimitReached
from turnlog.events.roles import SERVER_ROLES
from turnlog.log import OpenInvite, SessionRecord

MAX_OPEN_INVITES = 32  # of one session
INVITE_MS = 7 * 24 * 3600 * 1000


def session_roles(head: SessionRecord, principal: str) -> frozenset[str]:
    """Return the roles of a principal in a session; none for who is no member."""
    return frozenset(head.members.get(principal, ())) - SERVER_ROLES


def may_maker_invite(head: SessionRecord, app: App, invite: OpenInvite) -> bool:
    """Whether the maker of an invite may invite to its roles now.

    The right of a server role is not in the log: an invite that was made by it stands until it ends.
    """
    if invite.as_operator:
        return True
    seat = membership_of(Principal(invite.by), head, app)
    return seat is not None and seat.may_invite(invite.roles)


def end_reason(
    head: SessionRecord, app: App, invite: OpenInvite, now_ms: int
) -> Literal["expired", "revoked"] | None:
    """Return why an open invite can be used no more; None if it can."""
    if invite.expires_ms <= now_ms:
        return "expired"
    return None if may_maker_invite(head, app, invite) else "revoked"


def invites_without_right(head: SessionRecord, app: App) -> list[str]:
    """Return the open invites whose maker may not invite to their roles any more."""
    return [name for name, invite in head.invites.items() if not may_maker_invite(head, app, invite)]


def expired_invites(head: SessionRecord, now_ms: int) -> list[str]:
    """Return the open invites whose time is over."""
    return [name for name, invite in head.invites.items() if invite.expires_ms <= now_ms]


def invites_for_principal(head: SessionRecord, principal: str) -> list[str]:
    """Return the open invites of a principal; those of a session have one for each at most."""
    return [name for name, invite in head.invites.items() if invite.principal == principal]


def check_roles_are_free(
    head: SessionRecord,
    app: App,
    roles: Iterable[str],
    principal: str | None,
    ignored_invites: Collection[str] = (),
) -> None:
    """Raise `LimitReached` if a role that one person may have would get a second one.

    An open invite for the role counts as a person, unless it is `passed_over`.
    """
    for role in sorted(app.roles.unique.intersection(roles)):
        holders = [name for name, own in head.members.items() if role in own and name != principal]
        if holders:
            raise LimitReached(f"one person can be {role} here, and {holders[0]} is")
        open_ = [
            name for name, one in head.invites.items() if role in one.roles and name not in ignored_invites
        ]
        if open_:
            raise LimitReached(f"one person can be {role} here, and an invite is open; revoke it first")
