"""`Agent`: what there is to say about an agent. Running it is the driver's work."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from turnlog.agents.models import Model
from turnlog.agents.tools import Tool


@dataclass(frozen=True, slots=True)
class Agent:
    """A name, instructions, a model, and what it may use: tools and other agents."""

    name: str
    instructions: str
    model: Model
    tools: tuple[Tool, ...] = ()
    agents: tuple["Agent", ...] = ()

    @property
    def tool_name(self) -> str:
        """The name under which its parent calls it."""
        return re.sub(r"\W+", "_", self.name).lower()

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Everything it may call."""
        return (*(tool.name for tool in self.tools), *(agent.tool_name for agent in self.agents))

    def tool(self, name: str) -> Tool | None:
        """The tool of a name."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def agent(self, tool_name: str) -> "Agent | None":
        """The agent that a call of this name starts."""
        return next((agent for agent in self.agents if agent.tool_name == tool_name), None)

    def executor(self, tool_name: str) -> Literal["backend", "frontend"]:
        """Who runs a tool of this name."""
        tool = self.tool(tool_name)
        return tool.executor if tool else "backend"

    def walk(self) -> Iterator["Agent"]:
        """This agent and every agent below it."""
        yield self
        for agent in self.agents:
            yield from agent.walk()
