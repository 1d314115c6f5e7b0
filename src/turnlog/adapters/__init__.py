"""Agents of other frameworks as agents of an application (docs/adapters.md).

    app = App("support", adapters.pydantic_ai(agent))
    app = App("support", adapters.langgraph(graph))
    app = App("support", adapters.claude_sdk(options))
    app = App("support", adapters.openai_agents(agent))
    app = App("support", adapters.ag_ui("http://127.0.0.1:8000/agent"))

Each function imports its framework when it is called.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from turnlog.adapters.foreign_agent import ForeignAgent, ToolPolicy
from turnlog.adapters.frameworks import (
    CLAUDE_SDK,
    LANGGRAPH,
    OPENAI_AGENTS,
    PYDANTIC_AI,
    UntestedVersion,
)
from turnlog.adapters.part_output import PartOutput
from turnlog.adapters.remote.remote_agent import RemoteAgent
from turnlog.adapters.runner import (
    AgentRunner,
    Answer,
    Approved,
    Denied,
    Finished,
    Part,
    Paused,
    Question,
    Returned,
    UnreadableState,
)

if TYPE_CHECKING:
    from agents import Agent as OpenAiAgent
    from agents import RunConfig
    from claude_agent_sdk import ClaudeAgentOptions, Transport
    from pydantic_ai import Agent as PydanticAgent

    from turnlog.agents.tools import Tool

__all__ = [
    "AgentRunner",
    "Answer",
    "Approved",
    "Denied",
    "Finished",
    "ForeignAgent",
    "Part",
    "PartOutput",
    "Paused",
    "Question",
    "RemoteAgent",
    "Returned",
    "ToolPolicy",
    "UnreadableState",
    "UntestedVersion",
    "ag_ui",
    "claude_sdk",
    "langgraph",
    "openai_agents",
    "pydantic_ai",
    "watch_openai_agents",
    "watch_pydantic_ai",
]


def pydantic_ai(
    agent: "PydanticAgent[Any, Any]",
    *,
    deps: Any = None,
    policies: Mapping[str, ToolPolicy] = {},
    **run_options: Any,
) -> ForeignAgent:
    """Run an agent of Pydantic AI. `deps` is a value, or a function that gets the `Part`.

    `run_options`, such as `usage_limits`, are passed to every `Agent.run`.
    """
    PYDANTIC_AI.load()
    from turnlog.adapters.pydantic_ai_runner import PydanticAiRunner

    return ForeignAgent(PydanticAiRunner(agent, deps, run_options), policies)


def watch_pydantic_ai() -> Any:
    """Return a capability for the constructor of a sub-agent: its runs become agents in the log."""
    PYDANTIC_AI.load()
    from turnlog.adapters.pydantic_ai_runner import WatchCapability

    return WatchCapability()


def langgraph(
    graph: Any,
    *,
    name: str | None = None,
    config: Any = None,
    context: Any = None,
    make_input: Callable[[Part], Any] | None = None,
    policies: Mapping[str, ToolPolicy] = {},
) -> ForeignAgent:
    """Run a compiled graph of LangGraph, such as those of `create_agent` and `create_deep_agent`.

    `config` and `context` are values, or functions that get the `Part`. `make_input` builds the input of a
    turn if the graph's state has no `messages`. A graph without a checkpointer gets one that stores its
    threads with the session.
    """
    LANGGRAPH.load()
    from turnlog.adapters.langgraph_runner import LangGraphRunner

    return ForeignAgent(LangGraphRunner(graph, name, config, context, make_input), policies)


def claude_sdk(
    options: "ClaudeAgentOptions | Callable[[Part], ClaudeAgentOptions]",
    *,
    name: str | None = None,
    deferred_tools: Collection[str] = (),
    make_transport: "Callable[[ClaudeAgentOptions], Transport] | None" = None,
    policies: Mapping[str, ToolPolicy] = {},
) -> ForeignAgent:
    """Run the Claude Code program by the Claude Agent SDK. `options` may be a function of the `Part`.

    Every call of the `deferred_tools` asks a person. The question survives a restart if the call is the only
    one of its message and of the main agent.
    `make_transport` connects to a program that does not run on this machine; it gets the options of the turn.
    """
    CLAUDE_SDK.load()
    from turnlog.adapters.claude_sdk_runner import ClaudeSdkRunner

    return ForeignAgent(ClaudeSdkRunner(options, name, make_transport, deferred_tools), policies)


def openai_agents(
    agent: "OpenAiAgent[Any]",
    *,
    context: Any = None,
    run_config: "RunConfig | None" = None,
    policies: Mapping[str, ToolPolicy] = {},
    **run_options: Any,
) -> ForeignAgent:
    """Run an agent of the OpenAI Agents SDK. `context` is a value, or a function that gets the `Part`.

    Without a `run_config` runs are not traced: the framework would send them to its vendor. `run_options`,
    such as `max_turns`, are passed to every run.
    """
    OPENAI_AGENTS.load()
    from turnlog.adapters.openai_agents_runner import OpenAiAgentsRunner

    return ForeignAgent(OpenAiAgentsRunner(agent, context, run_config, run_options), policies)


async def watch_openai_agents(event: Any) -> None:
    """Show a sub-agent in the log: `child.as_tool(..., on_stream=adapters.watch_openai_agents)`."""
    from turnlog.adapters.openai_agents_runner import report_stream_event

    await report_stream_event(event)


def ag_ui(  # noqa: PLR0913  all but the first are options
    url: str,
    *,
    name: str = "Agent",
    token: str | Callable[[Part], str | Awaitable[str]] | None = None,
    headers: Mapping[str, str] = {},
    history: Literal["messages", "thread"] = "messages",
    tools: "Sequence[Tool]" = (),
    forwarded_props: Any = None,
    file_parts: Literal["media", "binary", "labels"] = "media",
    silence_timeout_s: float = 300.0,
    policies: Mapping[str, ToolPolicy] = {},
) -> ForeignAgent:
    """Run an agent that speaks AG-UI over HTTP, in any language.

    `token` and `forwarded_props` are values, or functions that get the `Part`. `tools` are tools of the page
    that the agent may call. Each run has the whole history; with `history="thread"` the server keeps it, and
    a run has only what is new. `file_parts` says how the files of a message are sent: as `image` and
    `document` parts of AG-UI 1.0, as `binary` parts for servers that know no others, or only as labels in the
    text. A server that is silent for `silence_timeout_s` fails the turn.
    """
    from turnlog.adapters.ag_ui_request import AgUiEndpoint
    from turnlog.adapters.ag_ui_runner import AgUiRunner

    endpoint = AgUiEndpoint(url, token, headers, silence_timeout_s)
    runner = AgUiRunner(endpoint, name, history, tools, forwarded_props, file_parts)
    return ForeignAgent(runner, policies, takes_client_tools=True)
