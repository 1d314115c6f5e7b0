"""The interface of session drivers, and `make_driver`: one driver calls models, the other runs a process."""

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
    """Runs one session: follows its log and appends what its agents do."""

    writer: SessionWriter

    @property
    def views(self) -> OpenViews: ...

    @property
    def tree(self) -> Tree:
        """Return the open agents and calls, as far as the log has been folded."""
        ...

    @property
    def has_ended(self) -> bool:
        """Return whether the driver has stopped following without a `close`: it must be opened again."""
        ...

    async def open(self, pid: int | None = None) -> None:
        """Close what a dead process left open, and start to follow. `pid` is recorded in the log."""
        ...

    async def close(self) -> None:
        """Stop all work and append the ends of what was running."""
        ...

    async def wait_for_seq(self, seq: int) -> None:
        """Wait until a seq has been folded. Raise `Unavailable` if the driver ends before."""
        ...

    async def wait_until_idle(self, trace: str) -> None:
        """Wait until a turn has ended, or all its agents wait for an answer."""
        ...

    async def wait_for_head(self) -> int:
        """Wait until everything that is in the log now has been folded. Return the last seq."""
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
    """Build the driver of a session.

    `describe` builds the message of a tool that failed. `hung` counts tools that do not stop. A process runs
    its tools itself, so both are for agents only.
    """
    if isinstance(runtime, ClaudeCode):
        return ClaudeDriver(log, session_id, runtime, catalog, vocabulary, **options)
    return AgentDriver(log, session_id, runtime, catalog, vocabulary, describe=describe, hung=hung, **options)
