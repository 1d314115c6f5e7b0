"""`App`: an agent, the events of the application, and how they change its state."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from turnlog.agents import Agent
from turnlog.agents.agent import Cast
from turnlog.agents.claude_cli import ClaudeCli
from turnlog.errors import CallerError
from turnlog.events import CORE, TEAM, Catalog, Payload, Vocabulary
from turnlog.events.roles import SERVER_ROLES
from turnlog.parse.cli_lines import CLI
from turnlog.state.fold import Reducers
from turnlog.state.rules import Rule
from turnlog.wire.telling import Kind, well_named

TURN_LIMIT_S = 600.0  # as long as one request to a provider may take; turns that need more say so


class Roles(NamedTuple):
    """What members of an application's sessions may be. `creator` is what whoever makes a session is.

    `posts` says which of the application's events the pages of a role may post, and `sees` what a role sees
    of the state. Where one of them is empty it limits no role; else a role that is not in it gets nothing.
    `links` says for guests of which roles a role may make links, beside the roles it has itself.
    """

    creator: tuple[str, ...] = ("owner",)
    posts: Mapping[str, Collection[type[Payload]]] = {}
    sees: Mapping[str, Callable[[Any], Any]] = {}
    links: Mapping[str, Collection[str]] = {}


class App:
    """Everything that is particular to one application.

    Its agent answers everybody, or a process does; or there is an agent for each channel: it talks to the
    members of that role, and nobody else listens but the owner. A turn that runs, not counting the time in
    which it waits, longer than `turn_limit_s` is ended with `turn_timeout`. Pages show people its `title`, a
    `guide` in Markdown, and `tries`: messages worth sending, in the first channel if there are some.
    Readers may ask for its `dialects` by their names, beside those of Turnlog.
    """

    def __init__(  # noqa: PLR0913  what an application is made of, each by its name
        self,
        name: str,
        agent: Agent | Mapping[str, Agent] | ClaudeCli,
        *,
        vocabulary: Vocabulary | None = None,
        reducers: Reducers | None = None,
        rules: Sequence[Rule] = (),
        start: Callable[[], Any] = dict,
        turn_limit_s: float = TURN_LIMIT_S,
        roles: Roles = Roles(),  # noqa: B008
        title: str = "",
        guide: str = "",
        tries: Sequence[str] = (),
        dialects: Mapping[str, Kind] = {},
    ) -> None:
        if not turn_limit_s > 0:
            raise CallerError(f"app {name}: expected a turn_limit_s above 0, got {turn_limit_s}")
        self.name = name
        self.cli = agent if isinstance(agent, ClaudeCli) else None
        self.agents = {} if isinstance(agent, Agent | ClaudeCli) else dict(agent)
        self._agent = agent if isinstance(agent, Agent | ClaudeCli) else first_of(name, self.agents)
        self.channels = tuple(self.agents)
        if reserved := SERVER_ROLES & role_names(self.channels, roles):
            raise CallerError(f"app {name}: {min(reserved)} is a role of the server's own, expected another")
        self.rules = tuple(rules)
        self.vocabulary = vocabulary
        own = [CLI] if self.cli else []
        self.catalog = Catalog(CORE, TEAM, *own, *([vocabulary] if vocabulary else []))
        self.reducers = durable(name, reducers or {})
        self.start = start
        self.turn_limit_s = turn_limit_s
        self.roles = roles
        self.title = title or name
        self.guide = guide
        self.tries = tuple(tries)
        self.dialects = well_named(dialects)

    @property
    def agent(self) -> Agent:
        """The agent that answers, in the first channel if there are some; a process is none."""
        if not isinstance(self._agent, Agent):
            raise CallerError(f"app {self.name}: {self._agent.name} is a process, and no agent")
        return self._agent

    @property
    def who(self) -> Cast | ClaudeCli:
        """Who plays in a session."""
        return self.cli or Cast(self.agent, self.agents)

    @property
    def names(self) -> tuple[str, ...]:
        """Everybody who can be spoken to."""
        return (self.cli.name,) if self.cli else tuple(Cast(self.agent, self.agents).team)

    @property
    def types(self) -> tuple[str, ...]:
        """The types of its own events: those that the folds take for the application's."""
        return tuple(kind.name for kind in self.catalog if not kind.payload.TYPE)


def role_names(channels: Sequence[str], roles: Roles) -> frozenset[str]:
    """Every role that an application speaks of."""
    guests = [role for links in roles.links.values() for role in links]
    return frozenset([*channels, *roles.creator, *roles.posts, *roles.sees, *roles.links, *guests])


def first_of(name: str, agents: Mapping[str, Agent]) -> Agent:
    """The agent of the first channel."""
    if not agents:
        raise CallerError(f"app {name}: expected an agent, got none")
    return next(iter(agents.values()))


def durable(name: str, reducers: Reducers) -> Reducers:
    """Reducers of events that stay: a state must not depend on those that only matter while they happen."""
    for payload in reducers:
        if payload.LIVE:
            problem = f"expected no reducer of {payload.__name__}, which is live"
            raise CallerError(f"app {name}: {problem}")
    return reducers
