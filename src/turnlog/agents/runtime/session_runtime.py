"""The runtime protocol: who answers in a session. Our turn loop is one, a Claude Code process another.

A `RuntimeDefinition` is what an application names (`AgentTeam`, `ClaudeCode`). It makes a `SessionRuntime`
for each session that this process owns. The session's runner (`session_runner.SessionRunner`, the `host`)
follows the log and folds it; it calls the runtime for every durable event, and the runtime appends what it
does through the host. The runner calls one method at a time.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from turnlog.agents.runtime.executor import DescribeError, HungTools, mask_tool_error
from turnlog.agents.runtime.turn_timeout import Trace
from turnlog.events import Envelope, EventDraft, Payload, Scope, UiMessage, UnknownPayload, Vocabulary
from turnlog.log import Row

if TYPE_CHECKING:
    from turnlog.agents.runtime.session_runner import SessionRunner

OnCrash = Literal["continue", "close"]


class SessionRuntime(Protocol):
    """Answers in one session, as long as this process owns it."""

    def inspect(self, envelope: Envelope, payload: Payload | UnknownPayload) -> Any:
        """Return what `react` needs to know of the time before a durable event was folded."""
        ...

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload, context: Any) -> None:
        """Fold a durable event into what only this runtime needs. The host's folds have it already."""
        ...

    async def close_interrupted(self, on_crash: OnCrash) -> None:
        """Append what ends the work of an earlier owner, or lets this one continue it."""
        ...

    async def resume(self) -> None:
        """Continue what is open, and start what is queued."""
        ...

    async def react(self, envelope: Envelope, payload: Payload | UnknownPayload, context: Any) -> None:
        """Do what follows from a durable event."""
        ...

    def open_turn(self, message: UiMessage, scope: Scope) -> list[EventDraft]:
        """Return the events that start the turn of a message, which is appended together with them now.

        Return nothing if the turn has to wait, or if this runtime starts turns when it reads the message.
        """
        ...

    async def withdraw_turn(self, trace: Trace) -> None:
        """Forget a turn that `open_turn` has opened: its batch was refused."""
        ...

    async def on_page_end(self) -> None:
        """Do what follows from all events of a page together."""
        ...

    async def end_timed_out(self, trace: Trace) -> None:
        """End a turn that ran too long."""
        ...

    async def stop(self, on_crash: OnCrash) -> None:
        """End all work of this process. With `continue`, leave the turns open for the next owner."""
        ...

    def hand_over(self) -> None:
        """Begin no further step: another process continues the turns. May be called again."""
        ...

    @property
    def is_between_steps(self) -> bool:
        """Return whether, after `hand_over`, nothing of this process is interrupted by a release."""
        ...

    def abandon(self) -> None:
        """End timers and processes at once, and append nothing: the runner has failed, or lost its lease."""
        ...

    @property
    def running_turns(self) -> set[Trace]:
        """Return the turns whose time is limited now."""
        ...

    @property
    def is_quiet(self) -> bool:
        """Return whether nothing would be lost if this process released the session."""
        ...

    @property
    def wake_at_ms(self) -> int | None:
        """Return when a session that is quiet needs an owner again; None if only events can wake it."""
        ...


class RuntimeDefinition(Protocol):
    """Who answers in the sessions of an application.

    `vocabularies` are the events that it adds to the core. `takes_commands`: the commands of a team's page
    (summon, wake) open turns, and a message may name its agent in a prefix. `takes_client_tools`: its agents
    may call tools that a client brings with its message. `page_tool_roles`: who answers a tool of the page,
    by the tool's name, for tools that not every member answers.
    """

    @property
    def agent_names(self) -> Collection[str]: ...

    @property
    def tool_roles(self) -> Collection[str]: ...

    @property
    def page_tool_roles(self) -> Mapping[str, Collection[str]]: ...

    @property
    def vocabularies(self) -> Sequence[Vocabulary]: ...

    @property
    def takes_commands(self) -> bool: ...

    @property
    def takes_client_tools(self) -> bool: ...

    @property
    def demo_mode(self) -> bool: ...

    def make_runtime(self, host: "SessionRunner", vocabulary: Vocabulary | None) -> SessionRuntime: ...


class EventObserver(Protocol):
    """Counts what the owner of a session reads from its log, each event once."""

    def observe(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None: ...

    def observe_live(self, row: Row) -> None: ...


class NoObserver:
    """Null object for sessions that are not observed."""

    def observe(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        pass

    def observe_live(self, row: Row) -> None:
        pass


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """How sessions are run.

    `pid` is recorded in the log of each session; None records no process. `describe` builds the message of a
    tool that failed, `hung_tools` counts tools that do not stop.
    """

    pid: int | None = None
    turn_limit_s: float = math.inf
    on_crash: OnCrash = "continue"
    observer: EventObserver = field(default_factory=NoObserver)
    describe: DescribeError = mask_tool_error
    hung_tools: HungTools = field(default_factory=HungTools)
    describe_state: Callable[["SessionRunner"], str] = lambda _: ""
