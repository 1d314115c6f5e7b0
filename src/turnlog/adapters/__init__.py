"""Agents of other frameworks as agents of an application (docs/adapters.md).

    app = App("support", adapters.pydantic_ai(agent))
    app = App("support", adapters.langgraph(graph))

Each function imports its framework when it is called.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from turnlog.adapters.foreign_agent import ForeignAgent, ToolPolicy
from turnlog.adapters.frameworks import LANGGRAPH, PYDANTIC_AI, UntestedVersion
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
    from pydantic_ai import Agent as PydanticAgent

__all__ = [
    "AgentRunner",
    "Answer",
    "Approved",
    "Denied",
    "Finished",
    "ForeignAgent",
    "Part",
    "Paused",
    "Question",
    "Returned",
    "ToolPolicy",
    "UnreadableState",
    "UntestedVersion",
    "langgraph",
    "pydantic_ai",
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
