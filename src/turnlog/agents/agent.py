"""`Agent`: what there is to say about an agent, and the team it leads. Running it is the driver's work.

An agent may call tools and other agents, and hand its work over to agents that take its place. All of them
are tools to its model: an agent is called by its name in lower case, a hand-off is `handoff_to_` and that.
"""

import asyncio
import re
import unicodedata
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from turnlog.agents.definition import validate_definition
from turnlog.agents.models import Model, ToolSpec, make_model
from turnlog.agents.retry import RetryPolicy
from turnlog.agents.tools import Tool
from turnlog.errors import CallerError, quote
from turnlog.events import Entry, Vocabulary
from turnlog.events.tool import ExecutorKind
from turnlog.state.tree import HANDOFF_PREFIX

DEFAULT_RETRY = RetryPolicy()
MAX_STEPS = 25  # completions of one invocation; real work needs fewer, a model that goes in circles more
MAX_AGENTS = 100  # agents of one turn; a model that starts more has lost its way, and each costs money
CALL_PROMPT_SCHEMA = {"type": "string", "description": "What it should do; it knows nothing else."}
HANDOFF_PROMPT_SCHEMA = {
    "type": "string",
    "description": "What it should do next; it has read this conversation.",
}
RESUME_ID_SCHEMA = {"type": "string", "description": "The agent_id of an earlier call, to go on from there."}
MAX_TOOL_NAME_CHARS = 64 - len(HANDOFF_PREFIX)  # providers take tool names of 64 characters


@dataclass(frozen=True, slots=True)
class Agent:
    """A name, instructions, a model, and what it may use: tools, agents it calls, agents it hands over to.

    `max_steps` bounds the completions of one invocation. `max_agents` bounds the agents of a turn that this
    agent, or one of its team, answers.
    """

    name: str
    instructions: str
    model: Model | str
    tools: Sequence[Tool] = ()
    agents: Sequence["Agent"] = ()
    handoffs: Sequence["Agent"] = ()
    description: str = ""
    max_steps: int = MAX_STEPS
    max_agents: int = MAX_AGENTS
    retry: RetryPolicy = DEFAULT_RETRY
    session_handles: dict[tuple[int, str], Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    release_tasks: set[asyncio.Future[None]] = field(
        default_factory=set, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", make_model(self.model))
        if self.max_steps < 1:
            raise CallerError(f"agent {self.name}: expected max_steps of at least 1, got {self.max_steps}")
        if self.max_agents < 1:
            raise CallerError(f"agent {self.name}: expected max_agents of at least 1, got {self.max_agents}")
        self._check_types()
        if reserved := [tool.name for tool in self.tools if tool.name.startswith(HANDOFF_PREFIX)]:
            raise CallerError(f"agent {self.name}: {reserved[0]} is a hand-off by its name, and not a tool")
        names = [spec.name for spec in self.tool_specs]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise CallerError(f"agent {self.name}: expected each tool once, got {', '.join(twice)} twice")
        whose = f"agent {quote(self.name)}"
        validate_definition(
            whose, "agent.start", name=self.name, via="prompt", model=self.mind.name, tools=names
        )

    def _check_types(self) -> None:
        for wanted, given in ((Tool, self.tools), (Agent, self.agents), (Agent, self.handoffs)):
            if wrong := [one for one in given if not isinstance(one, wanted)]:
                kind = "tools made by @tool" if wanted is Tool else "agents"
                raise CallerError(f"agent {self.name}: expected {kind}, got {quote(wrong[0])}")

    @property
    def mind(self) -> Model:
        """The model, made."""
        assert not isinstance(self.model, str)
        return self.model

    @property
    def tool_name(self) -> str:
        """The name under which others call it."""
        plain = unicodedata.normalize("NFKD", self.name).encode("ascii", "ignore").decode()
        return re.sub(r"\W+", "_", plain).strip("_").lower()[:MAX_TOOL_NAME_CHARS] or "agent"

    @property
    def tool_specs(self) -> tuple[ToolSpec, ...]:
        """Everything its model may call."""
        tools = [ToolSpec(tool.name, tool.description, tool.schema) for tool in self.tools]
        fields = {"prompt": CALL_PROMPT_SCHEMA, "resume_agent_id": RESUME_ID_SCHEMA}
        called = [agent.as_tool_spec(agent.tool_name, fields) for agent in self.agents]
        passed = [
            agent.as_tool_spec(HANDOFF_PREFIX + agent.tool_name, {"prompt": HANDOFF_PROMPT_SCHEMA})
            for agent in self.handoffs
        ]
        return (*tools, *called, *passed)

    def as_tool_spec(self, name: str, properties: dict[str, Any]) -> ToolSpec:
        """How another agent's model sees this agent."""
        schema = {"type": "object", "properties": properties, "required": ["prompt"]}
        return ToolSpec(name, self.description or f"The agent {self.name}.", schema)

    def find_tool(self, name: str) -> Tool | None:
        """The tool of a name."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def find_agent(self, tool_name: str) -> "Agent | None":
        """The agent that a call of this name starts."""
        return next((agent for agent in self.agents if agent.tool_name == tool_name), None)

    def find_handoff_target(self, tool_name: str) -> "Agent | None":
        """The agent that takes over when this is called."""
        return next((agent for agent in self.handoffs if HANDOFF_PREFIX + agent.tool_name == tool_name), None)

    def executor_of(self, tool_name: str) -> ExecutorKind:
        """Who runs a tool of this name."""
        tool = self.find_tool(tool_name)
        return tool.executor if tool else "backend"

    def run(self, prompt: str | None = None, **options: Any) -> AsyncGenerator[Entry, None]:
        """Every event of one turn as it happens; see `turnlog.agents.run`."""
        from turnlog.agents.run import run  # running knows agents, agents do not know running

        return run(self, prompt, **options)

    async def ask(self, prompt: str, **options: Any) -> str:
        """The answer to a prompt."""
        from turnlog.agents.run import ask

        return await ask(self, prompt, **options)

    def iter_team(self) -> Iterator["Agent"]:
        """This agent and every agent it can reach."""
        seen: list[Agent] = []
        coming = [self]
        while coming:
            agent = coming.pop()
            if not any(agent is other for other in seen):  # agents may hand work back to one another
                seen.append(agent)
                yield agent
                coming += reversed([*agent.agents, *agent.handoffs])


class AgentTeam(NamedTuple):
    """Who plays in a session: `root` answers whoever speaks, `by_channel` those of a channel.

    `roles` are what everybody has who speaks. `vocabularies` are what the models of a channel may emit; those
    of a channel that is not in it may emit everything that a model may.
    """

    root: Agent
    by_channel: Mapping[str, Agent] = {}
    roles: Collection[str] = ()
    vocabularies: Mapping[str, Vocabulary] = {}

    @property
    def by_name(self) -> dict[str, Agent]:
        """Everyone, by name."""
        return index_agents(self.root, *self.by_channel.values())

    def agent_for(self, channel: str | None, name: str | None) -> Agent:
        """Who answers in a channel: the one who is named, if it is of that team."""
        root = self.by_channel.get(channel or "", self.root)
        return index_agents(root).get(name or "", root)


def index_agents(*roots: Agent) -> dict[str, Agent]:
    """Everyone some agents can reach, by name."""
    team: dict[str, Agent] = {}
    for agent in (agent for root in roots for agent in root.iter_team()):
        if team.setdefault(agent.name, agent) is not agent:
            raise CallerError(f"expected each agent's name once in a team, got {agent.name} twice")
    return team
