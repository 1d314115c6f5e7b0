"""Who may do what in a session (protocol section 8.2). Pure.

`seat_of` is the one function that decides: from a principal's server roles and from its membership in the
session it makes a `Seat`, or None for who is no member. Every route and every stream asks the seat; nothing
else looks at roles. A table of an application that limits roles (`Roles.posts`, `Roles.sees`) is closed: a
role that it does not name may do, or sees, nothing of what the table is about.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from turnlog.app.app import App
from turnlog.errors import Forbidden
from turnlog.events.roles import EXECUTOR, OPERATOR, OWNER, SERVER_ROLES, add_implied_roles
from turnlog.log import SessionRecord
from turnlog.state.tree import OpenCall


class Principal(NamedTuple):
    """A person or a program that has signed in."""

    name: str
    server_roles: frozenset[str] = frozenset()

    @property
    def is_operator(self) -> bool:
        return OPERATOR in self.server_roles


LOCAL = Principal("local", frozenset({OPERATOR}))  # who started the server on their own machine


@dataclass(frozen=True, slots=True)
class Membership:
    """A principal in a session. `roles` are its session roles: none if only a server role brings it here."""

    head: SessionRecord
    app: App
    principal: Principal
    roles: frozenset[str]

    @property
    def session_id(self) -> str:
        return self.head.session_id

    @property
    def is_owner(self) -> bool:
        return OWNER in self.roles or self.principal.is_operator

    @property
    def is_member(self) -> bool:
        """Whether it may speak and act here; executors and sources that are no members may not."""
        return bool(self.roles) or self.principal.is_operator

    @property
    def effective_roles(self) -> frozenset[str]:
        """Every role that counts when tools and approvals ask who acted."""
        return add_implied_roles(self.roles | self.principal.server_roles)

    # seeing

    @property
    def visible_channels(self) -> frozenset[str] | None:
        """The channels it may see; None: all of them. Executors answer the calls of every channel."""
        is_unlimited = self.is_owner or EXECUTOR in self.principal.server_roles
        return None if not self.app.channels or is_unlimited else self.roles

    def may_see(self, channel: str | None) -> bool:
        """Whether something in a channel is for it."""
        return channel is None or self.visible_channels is None or channel in self.visible_channels

    def visible_state(self, state: Any) -> Any:
        """What it sees of the application's state; None for who sees nothing of it."""
        if self.is_owner:
            return state
        if not self.app.roles.state_views:
            return state if self.is_member else None
        views: list[Callable[[Any], Any]] = [
            view for role, view in self.app.roles.state_views.items() if role in self.roles
        ]
        return views[0](state) if views else None

    # acting

    @property
    def channel(self) -> str | None:
        """The channel it speaks in, unless it says another."""
        return next((name for name in self.app.channels if name in self.roles), None)

    @property
    def stoppable_channels(self) -> tuple[str | None, ...]:
        """The channels that a stop of its goes to: it reaches what is there or in none; None is everything.

        Who is in no channel stops what is in none.
        """
        if self.visible_channels is None:
            return (None,)
        return tuple(name for name in self.app.channels if name in self.roles) or (min(self.roles),)

    def require_member(self) -> None:
        """Raise Forbidden for who may only read or answer."""
        if not self.is_member:
            raise Forbidden("only members of the session may do this")

    def may_speak_as(self, role: str) -> bool:
        """Whether it may speak for a role: its own ones, an owner for every channel."""
        return role in self.roles or (self.is_owner and role in {OWNER, *self.app.channels})

    def may_post(self, payload: type) -> bool:
        """Whether its pages may post events of the application's own of this class."""
        posts = self.app.roles.postable_events
        if self.is_owner or not posts:
            return self.is_member
        return any(payload in posts.get(role, ()) for role in self.roles)

    @property
    def may_rename(self) -> bool:
        """Whether it may give the session another title: owners and who has the role of its maker."""
        return self.is_owner or not self.roles.isdisjoint(self.app.roles.creator)

    def may_answer(self, call: OpenCall) -> bool:
        """Whether it may answer a call that waits: members those of pages and approvals, executors those for
        another process."""
        if call.call.executor != "remote":
            return self.is_member
        entitled = {EXECUTOR, OWNER, *(call.approval_request.roles if call.approval_request else ())}
        return not self.effective_roles.isdisjoint(entitled)

    # members

    def may_invite(self, roles: Collection[str]) -> bool:
        """Whether it may make a link for guests with these roles."""
        allowed = {role for own in self.roles for role in self.app.roles.invitable_roles.get(own, ())}
        return set(roles) <= allowed or self._may_grant(roles)

    def may_change_roles(self, roles: Iterable[str], principal: str) -> bool:
        """Whether it may give these roles to a principal, or take from it those that it has.

        Owners may do both. Who has the role of the session's maker may give and take the roles it has itself.
        """
        if self.is_protected(principal):
            return False
        return self._may_grant([*roles, *self.head.members.get(principal, ())])

    def is_protected(self, principal: str) -> bool:
        """Whether a principal made the session: none but an operator removes it or changes its roles."""
        is_creator = principal == self.head.creator and principal in self.head.members
        return is_creator and not self.principal.is_operator

    def _may_grant(self, roles: Iterable[str]) -> bool:
        if self.is_owner:
            return True
        return not self.roles.isdisjoint(self.app.roles.creator) and set(roles) - SERVER_ROLES <= self.roles

    @property
    def invitable_roles(self) -> list[str]:
        """The roles that it may make links for; not one for one person that a member has."""
        held = {role for own in self.head.members.values() for role in own} & self.app.roles.unique
        return [role for role in self.app.role_names if role not in held and self.may_invite([role])]


def membership_of(principal: Principal, head: SessionRecord, app: App) -> Membership | None:
    """Return the seat of a principal in a session; None for who has no business there.

    A server role that is in the log counts for nothing: the principal has it now, or it does not.
    """
    roles = frozenset(head.members.get(principal.name, ())) - SERVER_ROLES
    return Membership(head, app, principal, roles) if roles or principal.server_roles else None
