"""`App`: an agent, the events of the application, and how they change its state."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from turnlog.agents import Agent
from turnlog.errors import CallerError
from turnlog.events import CORE, TEAM, Catalog, Payload, Vocabulary
from turnlog.state.fold import Reducers

TURN_LIMIT_S = 600.0  # as long as one request to a provider may take; turns that need more say so


class Roles(NamedTuple):
    """What members of an application's sessions may be. `creator` is what whoever makes a session is.

    `channels` are the roles that talk among themselves: what is said in one is seen by its members and the
    owner. `posts` says which of the application's events the pages of a role may post; a role that is not in
    it may post all that a page may.
    """

    creator: tuple[str, ...] = ("owner",)
    channels: tuple[str, ...] = ()
    posts: Mapping[str, Collection[type[Payload]]] = {}


class App:
    """Everything that is particular to one application. A turn that runs, not counting the time in which it
    waits, longer than `turn_limit_s` is ended with `turn_timeout`.
    """

    def __init__(
        self,
        name: str,
        agent: Agent,
        *,
        vocabulary: Vocabulary | None = None,
        reducers: Reducers | None = None,
        start: Callable[[], Any] = dict,
        turn_limit_s: float = TURN_LIMIT_S,
        roles: Roles = Roles(),  # noqa: B008
    ) -> None:
        if not turn_limit_s > 0:
            raise CallerError(f"app {name}: expected a turn_limit_s above 0, got {turn_limit_s}")
        self.name = name
        self.agent = agent
        self.vocabulary = vocabulary
        self.catalog = Catalog(CORE, TEAM, *([vocabulary] if vocabulary else []))
        self.reducers = reducers or {}
        self.start = start
        self.turn_limit_s = turn_limit_s
        self.roles = roles
