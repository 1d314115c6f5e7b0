"""`Agent`: the definition of an agent, and the agents that it can reach.

An agent may call tools and other agents, and hand its work over to agents that take its place. To its model
all of them are tools: an agent is called by its name in lower case, a hand-off by `handoff_to_` and the name.
"""

import re
import unicodedata
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from turnlog.agents.models import Model, ToolSpec, make_model
from turnlog.agents.retry import RetryPolicy
from turnlog.agents.tools import Tool
from turnlog.errors import CallerError, quote
from turnlog.events import CATALOG, Entry
from turnlog.events.tool import ExecutorKind
from turnlog.ids import new_process_id
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
Instructions = str | Callable[[Any], str]  # a function gets the application's state
MAX_TOOL_NAME_CHARS = 64 - len(HANDOFF_PREFIX)  # providers accept tool names of 64 characters


@dataclass(frozen=True, slots=True)
class Agent:
    """A name, instructions, a model, and what it may use: tools, agents it calls, agents it hands over to.

    `instructions` may be a function of the application's state. It is called before each request to the
    model, with None if there is no application. It gets the whole state, not what a role sees of it.
    `model` may be given as a string like `anthropic:<model>`; the attribute is always a `Model`. `max_steps`
    limits the completions of one invocation. `max_agents` limits the agents of a turn that this agent, or one
    of its team, answers.
    """

    name: str
    instructions: Instructions
    model: Model
    tools: Sequence[Tool] = ()
    agents: Sequence["Agent"] = ()
    handoffs: Sequence["Agent"] = ()
    description: str = ""
    max_steps: int = MAX_STEPS
    max_agents: int = MAX_AGENTS
    retry: RetryPolicy = DEFAULT_RETRY
    run_owner: str = field(default_factory=new_process_id, init=False, repr=False, compare=False)
    run_pools: dict[tuple[int, str], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    if TYPE_CHECKING:

        def __init__(  # noqa: PLR0913  the dataclass makes it; only the type of `model` differs
            self,
            name: str,
            instructions: Instructions,
            model: Model | str,
            tools: Sequence[Tool] = (),
            agents: Sequence["Agent"] = (),
            handoffs: Sequence["Agent"] = (),
            description: str = "",
            max_steps: int = MAX_STEPS,
            max_agents: int = MAX_AGENTS,
            retry: RetryPolicy = DEFAULT_RETRY,
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", make_model(self.model))
        if self.max_steps < 1:
            raise CallerError(f"agent {self.name}: expected max_steps of at least 1, got {self.max_steps}")
        if self.max_agents < 1:
            raise CallerError(f"agent {self.name}: expected max_agents of at least 1, got {self.max_agents}")
        self._check_types()
        self._check_tool_names()

        names = [spec.name for spec in self.tool_specs]
        CATALOG.validate_definition(
            f"agent {quote(self.name)}",
            "agent.start",
            name=self.name,
            via="prompt",
            model=self.model.name,
            tools=names,
        )

    def _check_types(self) -> None:
        for tool in self.tools:
            if not isinstance(tool, Tool):
                raise CallerError(f"agent {self.name}: expected tools made by @tool, got {quote(tool)}")
        for agent in (*self.agents, *self.handoffs):
            if not isinstance(agent, Agent):
                raise CallerError(f"agent {self.name}: expected agents, got {quote(agent)}")

    def _check_tool_names(self) -> None:
        for tool in self.tools:
            if tool.name.startswith(HANDOFF_PREFIX):
                raise CallerError(f"agent {self.name}: {tool.name} is the name of a hand-off, not of a tool")
        names = [spec.name for spec in self.tool_specs]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise CallerError(f"agent {self.name}: expected each tool once, got {', '.join(repeated)} twice")

    @property
    def tool_name(self) -> str:
        """Return the name under which the models of other agents call this agent."""
        ascii_name = unicodedata.normalize("NFKD", self.name).encode("ascii", "ignore").decode()
        tool_name = re.sub(r"\W+", "_", ascii_name).strip("_").lower()
        return tool_name[:MAX_TOOL_NAME_CHARS] or "agent"

    @property
    def tool_specs(self) -> tuple[ToolSpec, ...]:
        """Return all that the model of this agent may call: tools, agents and hand-offs."""
        specs = [ToolSpec(tool.name, tool.description, tool.schema) for tool in self.tools]
        for agent in self.agents:
            properties = {"prompt": CALL_PROMPT_SCHEMA, "resume_agent_id": RESUME_ID_SCHEMA}
            specs.append(agent.as_tool_spec(agent.tool_name, properties))
        for agent in self.handoffs:
            name = HANDOFF_PREFIX + agent.tool_name
            specs.append(agent.as_tool_spec(name, {"prompt": HANDOFF_PROMPT_SCHEMA}))
        return tuple(specs)

    def as_tool_spec(self, name: str, properties: dict[str, Any]) -> ToolSpec:
        schema = {"type": "object", "properties": properties, "required": ["prompt"]}
        return ToolSpec(name, self.description or f"The agent {self.name}.", schema)

    def instructions_for(self, state: Any) -> str:
        """Return the instructions. Raise `CallerError` if their function returns no text."""
        if isinstance(self.instructions, str):
            return self.instructions
        text = self.instructions(state)
        if not isinstance(text, str):
            raise CallerError(f"agent {self.name}: expected instructions to return text, got {quote(text)}")
        return text

    def find_tool(self, name: str) -> Tool | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    def find_agent(self, tool_name: str) -> "Agent | None":
        return next((agent for agent in self.agents if agent.tool_name == tool_name), None)

    def find_handoff_target(self, tool_name: str) -> "Agent | None":
        return next((agent for agent in self.handoffs if HANDOFF_PREFIX + agent.tool_name == tool_name), None)

    def executor_of(self, tool_name: str) -> ExecutorKind:
        """Return the executor of a tool; `backend` for agents and unknown tools."""
        tool = self.find_tool(tool_name)
        return tool.executor if tool else "backend"

    def run(self, prompt: str | None = None, **options: Any) -> AsyncGenerator[Entry, None]:
        """Yield every event of one turn as it happens. See `turnlog.agents.run`."""
        from turnlog.agents.run import run  # that module imports this one

        return run(self, prompt, **options)

    async def ask(self, prompt: str, **options: Any) -> str:
        """Return the text of the answer to a prompt. See `turnlog.agents.run`."""
        from turnlog.agents.run import ask

        return await ask(self, prompt, **options)

    def iter_team(self) -> Iterator["Agent"]:
        """Yield this agent and every agent it can reach, each once: agents may hand work back."""
        seen: list[Agent] = []
        stack = [self]
        while stack:
            agent = stack.pop()
            if any(agent is other for other in seen):
                continue
            seen.append(agent)
            yield agent
            stack += reversed([*agent.agents, *agent.handoffs])
