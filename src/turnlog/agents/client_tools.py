"""Tools that a client brings with its message, as tools of the agent that answers it.

They are frontend tools: the model may call them, and the page answers. An agent's own tools win over a tool
of the same name, so that a page cannot replace what the application does.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

import msgspec

from turnlog.agents.agent import Agent
from turnlog.agents.tools import Tool
from turnlog.errors import CallerError
from turnlog.events.ui import ClientTool
from turnlog.state.tree import HANDOFF_PREFIX


class ClientArguments(msgspec.Struct):
    """The arguments of a client's tool: the page checks them."""


def refuse_to_run(**arguments: Any) -> NoReturn:
    raise CallerError("the page runs this tool")


def with_client_tools(agent: Agent, client_tools: Sequence[ClientTool]) -> Agent:
    """Return the agent with these tools added; the same agent if there are none to add."""
    names = {spec.name for spec in agent.tool_specs}
    added: list[Tool] = []
    for tool in client_tools:
        if tool.name in names or tool.name.startswith(HANDOFF_PREFIX):
            continue
        names.add(tool.name)
        added.append(make_frontend_tool(tool))
    return replace(agent, tools=(*agent.tools, *added)) if added else agent


def make_frontend_tool(tool: ClientTool) -> Tool:
    return Tool(
        tool.name, tool.description, tool.parameters, ClientArguments, refuse_to_run, executor="frontend"
    )
