"""`AgentTeam`: the agents that answer in the sessions of an application, as a runtime definition."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from turnlog.agents.agent import Agent
from turnlog.agents.runtime.agent_runtime import AgentRuntime
from turnlog.agents.runtime.session_runner import SessionRunner
from turnlog.agents.runtime.session_runtime import RuntimeDefinition, SessionRuntime
from turnlog.errors import CallerError, quote
from turnlog.events import Vocabulary


class AgentTeam(NamedTuple):
    """The agents of a session: `root` is the default, `by_channel` overrides it.

    `roles` are granted to every sender. `channel_vocabularies` are the events that the models of a channel
    may emit; models of other channels may emit every event that is open to models.
    """

    root: Agent
    by_channel: Mapping[str, Agent] = {}
    roles: Collection[str] = ()
    channel_vocabularies: Mapping[str, Vocabulary] = {}

    @property
    def agent_names(self) -> tuple[str, ...]:
        return tuple(self.by_name)

    @property
    def tool_roles(self) -> frozenset[str]:
        return frozenset(
            role for agent in self.by_name.values() for tool in agent.tools for role in tool.roles
        )

    @property
    def page_tool_roles(self) -> dict[str, tuple[str, ...]]:
        tools = [tool for agent in self.by_name.values() for tool in agent.tools]
        return {tool.name: tool.roles for tool in tools if tool.executor == "frontend" and tool.roles}

    @property
    def vocabularies(self) -> tuple[Vocabulary, ...]:
        return ()

    @property
    def takes_client_tools(self) -> bool:
        return True

    @property
    def takes_commands(self) -> bool:
        return False

    @property
    def demo_mode(self) -> bool:
        return False

    def make_runtime(self, host: SessionRunner, vocabulary: Vocabulary | None) -> SessionRuntime:
        return AgentRuntime(host, self, vocabulary)

    @property
    def by_name(self) -> dict[str, Agent]:
        """Return the agents of all channels by name. Raise `CallerError` if two have the same name."""
        return index_agents(self.root, *self.by_channel.values())

    def agent_for(self, channel: str | None, name: str | None) -> Agent:
        """Return the agent that answers in a channel: the named one if it is in the channel's team."""
        root = self.by_channel.get(channel or "", self.root)
        return index_agents(root).get(name or "", root)


class Answerer(NamedTuple):
    """Who answers in the sessions of an application; `agent` is the default agent if our own agents do."""

    agent: Agent | None
    runtime: RuntimeDefinition


def define_answerer(
    root: Any,
    by_channel: Mapping[str, Agent] = {},
    roles: Collection[str] = (),
    channel_vocabularies: Mapping[str, Vocabulary] = {},
) -> Answerer:
    """Return the runtime of an agent: a team for one of ours; any other defines its own.

    The other values are those of `AgentTeam`. Raise `CallerError` for what cannot answer.
    """
    if isinstance(root, Agent):
        return Answerer(root, AgentTeam(root, by_channel, roles, channel_vocabularies))
    if not hasattr(root, "make_runtime"):
        raise CallerError(f"expected an agent, agents by channel, or a runtime, got {quote(root)}")
    return Answerer(None, root)


def index_agents(*roots: Agent) -> dict[str, Agent]:
    by_name: dict[str, Agent] = {}
    for root in roots:
        for agent in root.iter_team():
            if by_name.setdefault(agent.name, agent) is not agent:
                raise CallerError(f"expected each agent's name once in a team, got {agent.name} twice")
    return by_name
