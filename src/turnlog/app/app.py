"""`App`: the definition of an application: its agents, its events, and how they change its state."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from turnlog.adapters.remote.remote_agent import RemoteAgent
from turnlog.agents import Agent
from turnlog.agents.runtime.session_runtime import OnCrash, RuntimeDefinition
from turnlog.agents.team import define_answerer
from turnlog.app.attachments import ATTACHABLE_TYPES, Attachments
from turnlog.errors import CallerError, quote
from turnlog.events import Catalog, Payload, Vocabulary
from turnlog.events.roles import OWNER, SERVER_ROLES
from turnlog.state.fold import Reducers
from turnlog.state.rules import Phase, Rule
from turnlog.vocabularies import DIALECTS, VOCABULARIES
from turnlog.wire.dialects.base import DEFAULT_OPTIONS, DialectFactory, DialectOptions
from turnlog.wire.dialects.registry import TURNLOG, DialectDefinition, DialectRegistry

GUEST = "guest"  # the role of invited members if an application has no channels
TURN_LIMIT_S = 600.0  # as long as one request to a provider may take


class RoleView(NamedTuple):
    """What members of a role see of the log. Without `internals` they see the conversation alone.

    `events` are the application's events that the role sees; None means all of them.
    """

    events: Collection[type[Payload]] | None = ()
    internals: bool = False


EVERYTHING = RoleView(events=None, internals=True)
CONVERSATION = RoleView()


class Roles(NamedTuple):
    """The roles of an application's sessions. `creator` are the roles of the member who creates one.

    `joiner` are the roles of those who join a shared session after its creator: without any, the creator's.

    `postable_events`: the application's events that pages of a role may post. `emits`: those that the model
    of the role's channel may emit. `state_views`: what a role sees of the state. An empty table limits no
    role; in any other, a role without an entry gets nothing. `invitable_roles`: the roles for which a role
    may make links, beside the roles that the member has. `unique`: roles of at most one person in a session.

    `event_views`: what a role sees of the log. A role without an entry sees everything, but the role `guest`,
    and guests with any role, see the conversation. Owners see everything.
    """

    creator: tuple[str, ...] = (OWNER,)
    joiner: tuple[str, ...] = ()
    postable_events: Mapping[str, Collection[type[Payload]]] = {}
    emits: Mapping[str, Collection[type[Payload]]] = {}
    state_views: Mapping[str, Callable[[Any], Any]] = {}
    invitable_roles: Mapping[str, Collection[str]] = {}
    unique: frozenset[str] = frozenset()
    event_views: Mapping[str, RoleView] = {}


class App:
    """The definition of one application.

    One agent or one process answers all members; or there is an agent for each channel, which answers the
    members of that role, and only they and owners see the channel. A turn that runs longer than
    `turn_limit_s`, without the time in which it waits, ends with `turn_timeout`. If the process that runs a
    turn ends, the next one continues the turn; with `on_crash="close"` it ends the turn with an error.

    The console shows `title`, `guide` (Markdown) and `suggestions`: messages to try, in the first channel if
    there are channels. Clients may request the `dialects` by name, beside those of Turnlog. A reader who
    names no dialect gets `dialect`; a reader who does not name an option gets that of `dialect_options`.
    `untitled` is the title of sessions without one. A `guide` that is a `Path` is read once, when the
    application is made.

    With `shared_session`, requests that name no session mean one session of all principals who may create
    sessions. Each becomes a member with its first request.

    `title_of` is a pure function of the application's state. When it returns another title, the server
    appends a `session.title` with the events that changed the state. An empty title changes nothing, and a
    title that a member gave stays.

    `attachments` says which files members may attach to their messages.
    """

    def __init__(  # noqa: PLR0913  all but the first two are options
        self,
        name: str,
        agent: Agent | Mapping[str, Agent] | RuntimeDefinition,
        *,
        vocabulary: Vocabulary | None = None,
        reducers: Reducers | None = None,
        rules: Sequence[Rule] = (),
        title_of: Callable[[Any], str] | None = None,
        initial_state: Callable[[], Any] = dict,
        turn_limit_s: float = TURN_LIMIT_S,
        on_crash: OnCrash = "continue",
        roles: Roles = Roles(),  # noqa: B008
        title: str = "",
        guide: str | Path = "",
        suggestions: Sequence[str] = (),
        dialects: Mapping[str, DialectFactory | DialectDefinition] = {},
        dialect: str = TURNLOG,
        dialect_options: DialectOptions = DEFAULT_OPTIONS,
        untitled: str = "",
        shared_session: bool = False,
        attachments: Attachments = Attachments(),  # noqa: B008
    ) -> None:
        if not turn_limit_s > 0:
            raise CallerError(f"app {name}: expected a turn_limit_s above 0, got {turn_limit_s}")
        self.name = name
        if on_crash not in get_args(OnCrash):
            raise CallerError(f"app {name}: expected on_crash to be continue or close, got {quote(on_crash)}")
        self.on_crash = on_crash
        self.agents = dict(agent) if isinstance(agent, Mapping) else {}
        self.channels = tuple(self.agents)
        if reserved := SERVER_ROLES & role_names(self.channels, roles):
            raise CallerError(f"app {name}: {min(reserved)} is a role of the server, expected another")
        self.rules = tuple(rules)
        self.title_of = title_of
        self.vocabulary = vocabulary
        self.roles = roles
        root = first_agent(name, self.agents) if isinstance(agent, Mapping) else agent
        try:
            answerer = define_answerer(root, self.agents, channel_vocabularies=self._channel_vocabularies())
        except CallerError as error:
            raise CallerError(f"app {name}: {error}") from None
        self._root_agent, self.runtime = answerer
        # who lets workers answer, if workers do
        self.remote_agent = self.runtime if isinstance(self.runtime, RemoteAgent) else None
        vocabularies = [*VOCABULARIES, *self.runtime.vocabularies]
        if vocabulary is not None:
            vocabularies.append(vocabulary)
        self.catalog = Catalog(*vocabularies)
        self.reducers = check_reducers(name, self.catalog, reducers or {})
        check_rules(name, self.rules)
        check_roles(name, vocabulary, self.channels, roles)
        check_event_views(name, self.catalog, roles)
        check_shared_roles(name, roles, shared_session)
        self.shared_session = shared_session
        self.initial_state = initial_state
        self.turn_limit_s = turn_limit_s
        self.title = title or name
        self.guide = read_guide(name, guide)
        self.suggestions = tuple(suggestions)
        self.dialects = DIALECTS.extend(dialects)
        self.dialect = check_dialect(name, self.dialects, dialect)
        self.dialect_options = dialect_options
        self.untitled = untitled
        if unknown := set(attachments.media_types) - ATTACHABLE_TYPES:
            names = ", ".join(sorted(ATTACHABLE_TYPES))
            raise CallerError(f"app {name}: attachments: expected some of {names}, got {min(unknown)}")
        self.attachments = attachments

    @property
    def agent(self) -> Agent:
        """Return the agent, or that of the first channel. Raise `CallerError` if another runtime answers."""
        if self._root_agent is None:
            names = ", ".join(self.runtime.agent_names)
            raise CallerError(f"app {self.name}: {names} is a process, not an agent")
        return self._root_agent

    @property
    def has_agents(self) -> bool:
        """Return whether our own agents answer, and no other runtime."""
        return self._root_agent is not None

    def _channel_vocabularies(self) -> dict[str, Vocabulary]:
        """Return the events that the model of each channel may emit; empty if roles do not limit them."""
        if self.vocabulary is None or not self.roles.emits:
            return {}
        emits = self.roles.emits
        return {
            channel: Vocabulary(self.vocabulary.name, emits.get(channel, ())) for channel in self.channels
        }

    @property
    def agent_names(self) -> tuple[str, ...]:
        """Return the names that a message may have as its target."""
        return tuple(self.runtime.agent_names)

    @property
    def role_names(self) -> tuple[str, ...]:
        """Return all roles of the application, sorted. Links can be made for these roles only."""
        names = {OWNER, *role_names((), self.roles), *self.runtime.tool_roles}
        names.update(self.channels or (GUEST,))
        return tuple(sorted(names - SERVER_ROLES))

    @property
    def has_rules(self) -> bool:
        """Return whether events may follow from the state."""
        return bool(self.rules) or self.title_of is not None

    @property
    def event_types(self) -> tuple[str, ...]:
        """Return the types of the application's own events."""
        return tuple(kind.name for kind in self.catalog if not kind.payload_class.TYPE)


def role_names(channels: Sequence[str], roles: Roles) -> frozenset[str]:
    names = {*channels, *roles.creator, *roles.joiner}
    names.update(roles.postable_events, roles.state_views, roles.invitable_roles, roles.event_views)
    names.update(*roles.invitable_roles.values())
    return frozenset(names)


def first_agent(name: str, agents: Mapping[str, Agent]) -> Agent:
    if not agents:
        raise CallerError(f"app {name}: expected an agent, got none")
    return next(iter(agents.values()))


def read_guide(name: str, guide: str | Path) -> str:
    if isinstance(guide, str):
        return guide

    try:
        return guide.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise CallerError(f"app {name}: cannot read the guide {guide}: {problem}") from error


def check_dialect(name: str, dialects: DialectRegistry, dialect: str) -> str:
    """Return the name of a dialect. Raise `CallerError` if there is none of this name."""
    try:
        dialects.check_name(dialect)
    except CallerError as error:
        raise CallerError(f"app {name}: {error}") from None
    return dialect


def check_reducers(name: str, catalog: Catalog, reducers: Reducers) -> Reducers:
    """Return the reducers. Raise `CallerError` for one of an undeclared or live event."""
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
    """Raise `CallerError` for an unknown phase: its rule would never run."""
    for rule in rules:
        if rule.phase not in get_args(Phase):
            phases = " or ".join(get_args(Phase))
            problem = f"rule {rule.name}: expected the phase {phases}, got {quote(rule.phase)}"
            raise CallerError(f"app {name}: {problem}")


def check_roles(name: str, vocabulary: Vocabulary | None, channels: Collection[str], roles: Roles) -> None:
    """Raise `CallerError` for tables with events of other vocabularies or with unknown roles."""
    known = {kind.payload_class for kind in vocabulary or ()}
    for table, by_role in (("postable_events", roles.postable_events), ("emits", roles.emits)):
        for role, payloads in by_role.items():
            for payload in payloads:
                if payload not in known:
                    problem = f"{table} of {role}: expected events of the vocabulary, got {payload.__name__}"
                    raise CallerError(f"app {name}: {problem}")

    own_roles = {
        *channels,
        *roles.creator,
        *roles.joiner,
        *roles.postable_events,
        *roles.state_views,
        *roles.invitable_roles,
        *roles.event_views,
    }
    for role in roles.emits:
        if role not in own_roles:
            raise CallerError(f"app {name}: emits: expected roles of the application, got {role}")
    for role in sorted(roles.unique):
        if role != OWNER and role not in role_names(tuple(channels), roles):
            raise CallerError(f"app {name}: unique: expected roles of the application, got {role}")


def check_event_views(name: str, catalog: Catalog, roles: Roles) -> None:
    """Raise `CallerError` for a view with events that the application does not declare."""
    known = {kind.payload_class for kind in catalog if not kind.payload_class.TYPE}
    for role, view in roles.event_views.items():
        for payload in view.events or ():
            if payload not in known:
                problem = f"event_views of {role}: expected events of the vocabulary, got {payload.__name__}"
                raise CallerError(f"app {name}: {problem}")


def check_shared_roles(name: str, roles: Roles, is_shared: bool) -> None:
    """Raise `CallerError` for roles that the members of a shared session cannot all have."""
    if roles.joiner and not is_shared:
        raise CallerError(f"app {name}: joiner: expected shared_session=True, which has members who join")
    if is_shared and (unique := roles.unique.intersection(roles.joiner or roles.creator)):
        raise CallerError(f"app {name}: {min(unique)} is unique, expected roles that all members can share")
