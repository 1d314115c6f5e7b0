"""What a principal may do in a session (protocol section 8.2). Pure.

`membership_of` builds a `Membership` from a principal's server roles and its roles in the session, or returns
None if it has neither. Every route and every stream asks the membership; no other code checks roles. A table
of an application that limits roles (`Roles.postable_events`, `Roles.state_views`) is closed: a role that it
does not name may post, or sees, nothing of what the table is about. `Roles.event_views` is open: a role that
it does not name has the default view (`default_role_view`).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from turnlog.app.app import CONVERSATION, EVERYTHING, GUEST, App, RoleView
from turnlog.errors import Forbidden
from turnlog.events.roles import EXECUTOR, OPERATOR, OWNER, SERVER_ROLES, SOURCE, add_implied_roles
from turnlog.log import SessionRecord
from turnlog.state.tree import OpenCall
from turnlog.state.visible_events import EventView

GUEST_PREFIX = "guest_"  # of the names of principals who came by a link without signing in


class Principal(NamedTuple):
    """A person or a program that has signed in."""

    name: str
    server_roles: frozenset[str] = frozenset()

    @property
    def is_operator(self) -> bool:
        return OPERATOR in self.server_roles


LOCAL = Principal("local", frozenset({OPERATOR}))  # the person who starts the server on their own machine


@dataclass(frozen=True, slots=True)
class Membership:
    """A principal in a session. `roles` are its session roles: none if only a server role brings it here."""

    record: SessionRecord
    app: App
    principal: Principal
    roles: frozenset[str]

    @property
    def session_id(self) -> str:
        return self.record.session_id

    @property
    def is_owner(self) -> bool:
        return OWNER in self.roles or self.principal.is_operator

    @property
    def is_member(self) -> bool:
        """Return whether the principal may send and act. Executors and sources need a session role for it."""
        return bool(self.roles) or self.principal.is_operator

    @property
    def effective_roles(self) -> frozenset[str]:
        """Return the roles that count for tools and approvals."""
        return add_implied_roles(self.roles | self.principal.server_roles)

    # reading

    @property
    def visible_channels(self) -> frozenset[str] | None:
        """Return the channels that the principal sees; None means all. Executors and sources see all."""
        sees_all = self.is_owner or not self.principal.server_roles.isdisjoint({EXECUTOR, SOURCE})
        if sees_all or not self.app.channels:
            return None
        return self.roles

    def may_see(self, channel: str | None) -> bool:
        return channel is None or self.visible_channels is None or channel in self.visible_channels

    @property
    def event_view(self) -> EventView:
        """Return which events the principal sees of its channels: what any of its roles sees."""
        sees_all = self.is_owner or not self.principal.server_roles.isdisjoint({EXECUTOR, SOURCE})
        if sees_all:
            return EventView()
        own_views = self.app.roles.event_views
        views = [own_views.get(role) or default_role_view(self.principal, role) for role in self.roles]
        roles = self.effective_roles
        hidden_tools = frozenset(
            name for name, own in self.app.runtime.page_tool_roles.items() if roles.isdisjoint(own)
        )
        return EventView(
            any(view.internals for view in views), visible_app_types(self.app, views), roles, hidden_tools
        )

    def visible_state(self, state: Any) -> Any:
        """Return what the principal sees of the application's state; None for nothing."""
        if self.is_owner:
            return state
        if not self.app.roles.state_views:
            return state if self.is_member and self.event_view.shows_internals else None
        for role, view in self.app.roles.state_views.items():
            if role in self.roles:
                return view(state)
        return None

    # acting

    @property
    def channel(self) -> str | None:
        """Return the channel of messages that name none; None if the member has no channel."""
        return next((name for name in self.app.channels if name in self.roles), None)

    @property
    def stoppable_channels(self) -> tuple[str | None, ...]:
        """Return the channels that a stop of the member applies to; None means the whole session.

        A stop in a channel also stops agents without a channel. A member without a channel gets the name of a
        role: its stop reaches agents without a channel only.
        """
        if self.visible_channels is None:
            return (None,)
        own_channels = tuple(name for name in self.app.channels if name in self.roles)
        return own_channels or (min(self.roles),)

    def require_member(self) -> None:
        """Raise `Forbidden` for a principal that may only read or answer."""
        if not self.is_member:
            raise Forbidden("only members of the session may do this")

    def may_speak_as(self, role: str) -> bool:
        """Return whether the member may send for a role: its own roles, and every channel for an owner."""
        return role in self.roles or (self.is_owner and role in {OWNER, *self.app.channels})

    def may_post(self, payload: type) -> bool:
        """Return whether the member's pages may post the application's events of this class."""
        postable = self.app.roles.postable_events
        if self.is_owner or not postable:
            return self.is_member
        return any(payload in postable.get(role, ()) for role in self.roles)

    @property
    def may_rename(self) -> bool:
        """Return whether the member may change the title: owners, and members with a role of the creator."""
        return self.is_owner or not self.roles.isdisjoint(self.app.roles.creator)

    @property
    def may_close(self) -> bool:
        """Return whether the member may close the session: those who may rename it."""
        return self.may_rename

    @property
    def may_delete(self) -> bool:
        """Return whether the member may delete the session: owners, and the creator while it is a member."""
        is_creator = bool(self.roles) and self.principal.name == self.record.creator
        return self.is_owner or is_creator

    @property
    def session_rights(self) -> list[str]:
        """Return what the member may do with the session as a whole, for pages that offer exactly this."""
        rights = {"rename": self.may_rename, "close": self.may_close, "delete": self.may_delete}
        return [name for name, is_given in rights.items() if is_given]

    def may_answer(self, call: OpenCall) -> bool:
        """Return whether the principal may answer a waiting call.

        Members answer calls of pages. Executors, owners and the roles of an approval request answer
        remote calls.
        """
        if call.call.executor != "remote":
            return self.is_member
        answering_roles = {EXECUTOR, OWNER}
        if call.approval_request is not None:
            answering_roles.update(call.approval_request.roles)
        return not self.effective_roles.isdisjoint(answering_roles)

    # members

    def may_invite(self, roles: Collection[str]) -> bool:
        """Return whether the member may make a link for these roles."""
        allowed = {role for own in self.roles for role in self.app.roles.invitable_roles.get(own, ())}
        return set(roles) <= allowed or self._may_grant(roles)

    def may_change_roles(self, roles: Iterable[str], principal: str) -> bool:
        """Return whether the member may give these roles to a principal, or take from it those that it has.

        Owners may do both. Members with a role of the creator may give and take the roles they have.
        """
        if self.is_protected(principal):
            return False
        return self._may_grant([*roles, *self.record.members.get(principal, ())])

    def is_protected(self, principal: str) -> bool:
        """Return whether only an operator may remove a principal or change its roles: it is the creator."""
        is_creator = principal == self.record.creator and principal in self.record.members
        return is_creator and not self.principal.is_operator

    def _may_grant(self, roles: Iterable[str]) -> bool:
        if self.is_owner:
            return True
        return not self.roles.isdisjoint(self.app.roles.creator) and set(roles) - SERVER_ROLES <= self.roles

    @property
    def invitable_roles(self) -> list[str]:
        """Return the roles that the member may make links for, without unique roles that a member has."""
        member_roles = {role for roles in self.record.members.values() for role in roles}
        taken = member_roles & self.app.roles.unique
        return [role for role in self.app.role_names if role not in taken and self.may_invite([role])]


def is_guest(principal: Principal) -> bool:
    return principal.name.startswith(GUEST_PREFIX)


def default_role_view(principal: Principal, role: str) -> RoleView:
    return CONVERSATION if role == GUEST or is_guest(principal) else EVERYTHING


def visible_app_types(app: App, views: Iterable[RoleView]) -> frozenset[str] | None:
    """Return the types of the application's events that one of these views has; None for all types."""
    classes: set[type] = set()
    for view in views:
        if view.events is None:
            return None
        classes.update(view.events)
    return frozenset(kind.name for kind in app.catalog if kind.payload_class in classes)


def membership_of(principal: Principal, record: SessionRecord, app: App) -> Membership | None:
    """Return the membership of a principal; None if it has neither a session role nor a server role.

    A session that was deleted has no members, and no server role reaches it. Server roles in the log do not
    count: only the principal's current ones do.
    """
    roles = frozenset(record.members.get(principal.name, ())) - SERVER_ROLES
    if record.is_erased or (not roles and not principal.server_roles):
        return None
    return Membership(record, app, principal, roles)
