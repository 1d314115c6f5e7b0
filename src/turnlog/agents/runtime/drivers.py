"""Whoever answers in a session has a driver: one that asks the models of agents, or talks to a process."""

from typing import Any, Protocol

from turnlog.agents.agent import Agent, Cast
from turnlog.agents.claude.claude_code import ClaudeCli
from turnlog.agents.claude.driver import ProcessDriver
from turnlog.agents.runtime.agent_driver import Driver
from turnlog.agents.runtime.executor import Describe, HungTools, mask
from turnlog.agents.runtime.session_writer import Pen
from turnlog.events import Catalog, Vocabulary
from turnlog.log import Log
from turnlog.state.tree import Tree
from turnlog.state.view_actions import Views

Who = Agent | ClaudeCli


class SessionDriver(Protocol):
    """What others use of a driver."""

    pen: Pen

    @property
    def views(self) -> Views:
        """The views that are open."""
        ...

    @property
    def tree(self) -> Tree:
        """What is open."""
        ...

    @property
    def left(self) -> bool:
        """Whether nobody follows the session any more, though nobody closed this."""
        ...

    async def open(self, pid: int | None = None) -> None:
        """Close what a dead process left, and follow the session from now on."""
        ...

    async def close(self) -> None:
        """Stop working."""
        ...

    async def reached(self, seq: int) -> None:
        """Wait until everything up to a seq has been taken into account."""
        ...

    async def rested(self, trace: str) -> None:
        """Wait until a turn is over, or everyone in it waits."""
        ...

    async def caught_up(self) -> int:
        """Wait until everything that is in the log now has been taken into account; the last seq."""
        ...


def driver_of(
    who: Cast | ClaudeCli,
    log: Log,
    session_id: str,
    catalog: Catalog,
    vocabulary: Vocabulary | None,
    describe: Describe = mask,
    hung: HungTools | None = None,
    **options: Any,
) -> SessionDriver:
    """The driver of a session; `describe` says what members read of a tool that failed, `hung` counts those
    that did not stop."""
    if isinstance(who, ClaudeCli):
        return ProcessDriver(log, session_id, who, catalog, vocabulary, **options)
    return Driver(log, session_id, who, catalog, vocabulary, describe=describe, hung=hung, **options)
