"""`App`: an agent, the events of the application, and how they change its state."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from turnlog.agents import Agent
from turnlog.agents.agent import AgentTeam
from turnlog.agents.claude.claude_code import ClaudeCode
from turnlog.errors import CallerError, quote
from turnlog.events import CORE, TEAM, Catalog, Payload, Vocabulary
from turnlog.events.roles import OWNER, SERVER_ROLES
from turnlog.parse.claude.lines import CLAUDE_CLI
from turnlog.state.fold import Reducers
from turnlog.state.rules import Phase, Rule
from turnlog.wire.dialects.base import DialectFactory
from turnlog.wire.dialects.registry import check_dialect_names

GUEST = "guest"  # takes part, where an application has no channels
TURN_LIMIT_S = 600.0  # as long as one request to a provider may take; turns that need more say so


class Roles(NamedTuple):
    """What members of an application's sessions may be. `creator` is what whoever makes a session is.

    `posts` says which of the application's events the pages of a role may post, `emits` which the model that
    answers in the role's channel may emit, and `sees` what a role sees of the state. Where one of them is
    empty it limits no role; else a role that is not in it gets nothing.
    `links` says for guests of which roles a role may make links, beside the roles it has itself.
    A role in `unique` is held by at most one person in a session.
    """

    creator: tuple[str, ...] = ("owner",)
    postable_events: Mapping[str, Collection[type[Payload]]] = {}
    emits: Mapping[str, Collection[type[Payload]]] = {}
    state_views: Mapping[str, Callable[[Any], Any]] = {}
    invitable_roles: Mapping[str, Collection[str]] = {}
    unique: frozenset[str] = frozenset()


class App:
    """Everything that is particular to one application.

    Its agent answers everybody, or a process does; or there is an agent for each channel: it talks to the
    members of that role, and nobody else listens but the owner. A turn that runs, not counting the time in
    which it waits, longer than `turn_limit_s` is ended with `turn_timeout`. Pages show people its `title`, a
    `guide` in Markdown, and `suggestions`: messages worth sending, in the first channel if there are some. A
    `guide` that is a `Path` is read once, when the application is made.
    Readers may ask for its `dialects` by their names, beside those of Turnlog. A session without a title is
    listed as `untitled`. `title_of` is a pure function of the application's state. When it returns another
    title, the server appends a `session.title` with the events that changed the state. An empty title changes
    nothing, and a title that a member gave stays.
    """

    def __init__(  # noqa: PLR0913  what an application is made of, each by its name
        self,
        name: str,
        agent: Agent | Mapping[str, Agent] | ClaudeCode,
        *,
        vocabulary: Vocabulary | None = None,
        reducers: Reducers | None = None,
        rules: Sequence[Rule] = (),
        title_of: Callable[[Any], str] | None = None,
        initial_state: Callable[[], Any] = dict,
        turn_limit_s: float = TURN_LIMIT_S,
        roles: Roles = Roles(),  # noqa: B008
        title: str = "",
        guide: str | Path = "",
        suggestions: Sequence[str] = (),
        dialects: Mapping[str, DialectFactory] = {},
        untitled: str = "",
    ) -> None:
        if not turn_limit_s > 0:
            raise CallerError(f"app {name}: expected a turn_limit_s above 0, got {turn_limit_s}")
        self.name = name
        self.claude_code = agent if isinstance(agent, ClaudeCode) else None
        self.agents = {} if isinstance(agent, Agent | ClaudeCode) else dict(agent)
        self._agent = agent if isinstance(agent, Agent | ClaudeCode) else first_agent(name, self.agents)
        self.channels = tuple(self.agents)
        if reserved := SERVER_ROLES & role_names(self.channels, roles):
            raise CallerError(f"app {name}: {min(reserved)} is a role of the server's own, expected another")
        self.rules = tuple(rules)
        self.title_of = title_of
        self.vocabulary = vocabulary
        own = [CLAUDE_CLI] if self.claude_code else []
        self.catalog = Catalog(CORE, TEAM, *own, *([vocabulary] if vocabulary else []))
        self.reducers = check_reducers(name, self.catalog, reducers or {})
        check_rules(name, self.rules)
        check_roles(name, vocabulary, self.channels, roles)
        self.initial_state = initial_state
        self.turn_limit_s = turn_limit_s
        self.roles = roles
        self.title = title or name
        self.guide = read_guide(name, guide)
        self.suggestions = tuple(suggestions)
        self.dialects = check_dialect_names(dialects)
        self.untitled = untitled

    @property
    def agent(self) -> Agent:
        """The agent that answers, in the first channel if there are some; a process is none."""
        if not isinstance(self._agent, Agent):
            raise CallerError(f"app {self.name}: {self._agent.name} is a process, and no agent")
        return self._agent

    @property
    def runtime(self) -> AgentTeam | ClaudeCode:
        """Who plays in a session."""
        return self.claude_code or AgentTeam(
            self.agent, self.agents, vocabularies=self._channel_vocabularies()
        )

    def _channel_vocabularies(self) -> dict[str, Vocabulary]:
        """What the model of each channel may emit, if roles limit it."""
        if self.vocabulary is None or not self.roles.emits:
            return {}
        name, emits = self.vocabulary.name, self.roles.emits
        return {channel: Vocabulary(name, emits.get(channel, ())) for channel in self.channels}

    @property
    def agent_names(self) -> tuple[str, ...]:
        """Everybody who can be spoken to."""
        return (
            (self.claude_code.name,)
            if self.claude_code
            else tuple(AgentTeam(self.agent, self.agents).by_name)
        )

    @property
    def role_names(self) -> tuple[str, ...]:
        """Every role that means something here, sorted: links are made for these and no others."""
        roles, tools = (
            self.roles,
            [] if self.claude_code else AgentTeam(self.agent, self.agents).by_name.values(),
        )
        names = {OWNER, *roles.creator, *roles.postable_events, *roles.state_views, *roles.invitable_roles}
        names.update(*roles.invitable_roles.values())
        names.update(*(tool.roles for agent in tools for tool in agent.tools))
        names.update(self.channels or (GUEST,))
        return tuple(sorted(names - SERVER_ROLES))

    @property
    def has_rules(self) -> bool:
        """Whether events may follow from the state."""
        return bool(self.rules) or self.title_of is not None

    @property
    def event_types(self) -> tuple[str, ...]:
        """The types of its own events: those that the folds take for the application's."""
        return tuple(kind.name for kind in self.catalog if not kind.payload_class.TYPE)


def role_names(channels: Sequence[str], roles: Roles) -> frozenset[str]:
    """Every role that an application speaks of."""
    guests = [role for links in roles.invitable_roles.values() for role in links]
    return frozenset(
        [
            *channels,
            *roles.creator,
            *roles.postable_events,
            *roles.state_views,
            *roles.invitable_roles,
            *guests,
        ]
    )


def first_agent(name: str, agents: Mapping[str, Agent]) -> Agent:
    """The agent of the first channel."""
    if not agents:
        raise CallerError(f"app {name}: expected an agent, got none")
    return next(iter(agents.values()))


def read_guide(name: str, guide: str | Path) -> str:
    """Return Markdown as it is, and the text of a file for a path."""
    if isinstance(guide, str):
        return guide

    try:
        return guide.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise CallerError(f"app {name}: cannot read the guide {guide}: {problem}") from error


def check_reducers(name: str, catalog: Catalog, reducers: Reducers) -> Reducers:
    """Check that reducers are for declared events that stay: live ones only matter while they happen."""
    known = {kind.payload_class for kind in catalog}
    for payload in reducers:
        if payload not in known:
            problem = f"expected reducers of declared events, got one of {payload.__name__}"
            raise CallerError(f"app {name}: {problem}; add it to the vocabulary")
        if payload.LIVE:
            problem = f"expected no reducer of {payload.__name__}, which is live"
            raise CallerError(f"app {name}: {problem}")
    return reducers


def check_rules(name: str, rules: Sequence[Rule]) -> None:
    """Refuse a phase that no batch has: its rule would never be asked."""
    for rule in rules:
        if rule.phase not in get_args(Phase):
            phases = " or ".join(get_args(Phase))
            problem = f"rule {rule.name}: expected the phase {phases}, got {quote(rule.phase)}"
            raise CallerError(f"app {name}: {problem}")


def check_roles(name: str, vocabulary: Vocabulary | None, channels: Collection[str], roles: Roles) -> None:
    """Refuse limits that name other events than the application's, and limits of unknown roles."""
    known = {kind.payload_class for kind in vocabulary or ()}
    for limit, by_role in (("posts", roles.postable_events), ("emits", roles.emits)):
        for role, payloads in by_role.items():
            if others := [payload for payload in payloads if payload not in known]:
                problem = f"{limit} of {role}: expected events of the vocabulary, got {others[0].__name__}"
                raise CallerError(f"app {name}: {problem}")
    named = {*channels, *roles.creator, *roles.postable_events, *roles.state_views, *roles.invitable_roles}
    if strangers := [role for role in roles.emits if role not in named]:
        raise CallerError(f"app {name}: emits: expected roles of the application, got {strangers[0]}")
    known_roles = {OWNER, *named, *(role for links in roles.invitable_roles.values() for role in links)}
    if unknown := sorted(roles.unique - known_roles):
        raise CallerError(f"app {name}: unique: expected roles of the application, got {unknown[0]}")
