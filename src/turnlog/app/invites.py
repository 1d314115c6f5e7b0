"""Which invites can be used, and how a change of members affects them (protocol section 8.5). Pure.

An invite is a link for one person, or an invitation of a principal. The session's record has it from
`session.invite` until it is used or ends. It ends when its maker loses the right to invite to its roles.
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


def session_roles(record: SessionRecord, principal: str) -> frozenset[str]:
    return frozenset(record.members.get(principal, ())) - SERVER_ROLES


def may_maker_invite(record: SessionRecord, app: App, invite: OpenInvite) -> bool:
    """Return whether the maker of an invite may invite to its roles now.

    The log has no server roles, so an invite that was made by an operator stays valid until it ends.
    """
    if invite.as_operator:
        return True
    membership = membership_of(Principal(invite.by), record, app)
    return membership is not None and membership.may_invite(invite.roles)


def end_reason(
    record: SessionRecord, app: App, invite: OpenInvite, now_ms: int
) -> Literal["expired", "revoked"] | None:
    """Return why an open invite cannot be used any more; None if it can."""
    if invite.expires_ms <= now_ms:
        return "expired"
    return None if may_maker_invite(record, app, invite) else "revoked"


def invites_without_right(record: SessionRecord, app: App) -> list[str]:
    return [name for name, invite in record.invites.items() if not may_maker_invite(record, app, invite)]


def expired_invites(record: SessionRecord, now_ms: int) -> list[str]:
    return [name for name, invite in record.invites.items() if invite.expires_ms <= now_ms]


def invites_for_principal(record: SessionRecord, principal: str) -> list[str]:
    return [name for name, invite in record.invites.items() if invite.principal == principal]


def check_roles_are_free(
    record: SessionRecord,
    app: App,
    roles: Iterable[str],
    principal: str | None,
    ignored_invites: Collection[str] = (),
) -> None:
    """Raise `LimitReached` if a unique role would get a second person.

    An open invite for the role counts as a person, unless it is in `ignored_invites`.
    """
    for role in sorted(app.roles.unique.intersection(roles)):
        for name, member_roles in record.members.items():
            if role in member_roles and name != principal:
                raise LimitReached(f"one person can be {role} here, and {name} is")
        for invite_id, invite in record.invites.items():
            if role in invite.roles and invite_id not in ignored_invites:
                raise LimitReached(f"one person can be {role} here, and an invite is open; revoke it first")
