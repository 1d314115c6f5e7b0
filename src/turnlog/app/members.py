"""Who somebody is, and what they are in a session (protocol section 8.2). Pure.

A `Principal` has signed in; a `Seat` is a principal in one session, with its roles there. Whatever a person
or a program does in a session, it does from a seat, and there is none for who is no member. The role `owner`
sees every channel and changes the members; `executor` answers the calls for another process.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from turnlog.app.app import App
from turnlog.log import Head

OWNER = "owner"
EXECUTOR = "executor"


class Principal(NamedTuple):
    """A person or a program; `roles` are those it has in every session."""

    name: str
    roles: frozenset[str] = frozenset()


LOCAL = Principal("local", frozenset({OWNER}))  # who started the server on their own machine


@dataclass(frozen=True, slots=True)
class Seat:
    """A principal in a session."""

    head: Head
    app: App
    principal: Principal
    roles: frozenset[str]

    @property
    def session_id(self) -> str:
        """The session."""
        return self.head.session_id

    @property
    def sees(self) -> frozenset[str] | None:
        """The channels it may see; None: all of them."""
        return None if not self.app.channels or OWNER in self.roles else self.roles

    @property
    def channel(self) -> str | None:
        """The channel it speaks in, unless it says another."""
        return next((name for name in self.app.channels if name in self.roles), None)

    @property
    def stops(self) -> tuple[str | None, ...]:
        """The channels that a stop of its goes to: it reaches what is there or in none; None is everything.

        Who is in no channel stops what is in none.
        """
        if self.sees is None:
            return (None,)
        return tuple(name for name in self.app.channels if name in self.roles) or (min(self.roles),)

    def seen(self, state: Any) -> Any:
        """What it sees of the application's state."""
        if OWNER in self.roles:
            return state
        views = [sees for role, sees in self.app.roles.sees.items() if role in self.roles]
        return views[0](state) if views else state

    def may_invite(self, roles: Iterable[str]) -> bool:
        """Whether its application lets it make links for guests with these roles."""
        allowed = [self.app.roles.links.get(role, ()) for role in self.roles]
        return all(any(role in some for some in allowed) for role in roles)

    def may_see(self, channel: str | None) -> bool:
        """Whether something in a channel is for it."""
        return channel is None or self.sees is None or channel in self.sees


def seat_of(principal: Principal, head: Head, app: App) -> Seat | None:
    """The seat of a principal in a session; None for who is no member."""
    roles = principal.roles | frozenset(head.members.get(principal.name, ()))
    return Seat(head, app, principal, roles) if roles else None
