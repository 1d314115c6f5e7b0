"""Whoever answers in a session has a driver: one that asks the models of agents, or talks to a process."""

from typing import Any, Protocol

from turnlog.agents.agent import Agent, AgentTeam
from turnlog.agents.claude.claude_code import ClaudeCode
from turnlog.agents.claude.driver import ClaudeDriver
from turnlog.agents.runtime.agent_driver import AgentDriver
from turnlog.agents.runtime.executor import DescribeError, HungTools, mask_tool_error
from turnlog.agents.runtime.session_writer import SessionWriter
from turnlog.events import Catalog, Vocabulary
from turnlog.log import Log
from turnlog.state.tree import Tree
from turnlog.state.view_actions import OpenViews

Runtime = Agent | ClaudeCode


class SessionDriver(Protocol):
    """What others use of a driver."""

    writer: SessionWriter

    @property
    def views(self) -> OpenViews:
        """The views that are open."""
        ...

    @property
    def tree(self) -> Tree:
        """What is open."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether nobody follows the session any more, though nobody closed this."""
        ...

    async def open(self, pid: int | None = None) -> None:
        """Close what a dead process left, and follow the session from now on."""
        ...

    async def close(self) -> None:
        """Stop working."""
        ...

    async def wait_for_seq(self, seq: int) -> None:
        """Wait until everything up to a seq has been taken into account."""
        ...

    async def wait_until_idle(self, trace: str) -> None:
        """Wait until a turn is over, or everyone in it waits."""
        ...

    async def wait_for_head(self) -> int:
        """Wait until everything that is in the log now has been taken into account; the last seq."""
        ...


def make_driver(
    runtime: AgentTeam | ClaudeCode,
    log: Log,
    session_id: str,
    catalog: Catalog,
    vocabulary: Vocabulary | None,
    describe: DescribeError = mask_tool_error,
    hung: HungTools | None = None,
    **options: Any,
) -> SessionDriver:
    """The driver of a session; `describe` says what members read of a tool that failed, `hung` counts those
    that did not stop."""
    if isinstance(runtime, ClaudeCode):
        return ClaudeDriver(log, session_id, runtime, catalog, vocabulary, **options)
    return AgentDriver(log, session_id, runtime, catalog, vocabulary, describe=describe, hung=hung, **options)
