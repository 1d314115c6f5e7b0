"""One life of a process: what its driver knows of it, and what is made of what it says."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from msgspec import structs

from turnlog.agents.claude.process import CliProcess
from turnlog.agents.runtime.turn_loop import Item
from turnlog.agents.runtime.turn_timeout import Trace
from turnlog.events import AgentEnd, Fault, ToolResult
from turnlog.events.agent import StopReason
from turnlog.parse.claude.agents import Said
from turnlog.parse.claude.parser import EXITED, CliParser

Reason = Literal["user_ended", "inactivity_timeout", "process_crash", "server_shutdown"]


@dataclass(slots=True)
class Life:
    """One process from its start to its end. `sent` is the turn that went down last; `reason` is why it has
    to go. Results of `freed` calls are known, turns that are `late` ran too long, those `dropped` are over.
    `is_deaf` says that a write to it failed, and that this is in the log.
    """

    process: CliProcess
    parser: CliParser
    resumed: bool
    sent: str = ""
    reason: Reason | None = None
    fault: Fault = EXITED
    is_deaf: bool = False
    freed: set[str] = field(default_factory=set)
    late: set[Trace] = field(default_factory=set)
    dropped: dict[str, StopReason] = field(default_factory=dict)

    def end(self, reason: Reason | None) -> None:
        """Let it go; the first reason counts."""
        self.reason = self.reason or reason
        self.process.end()


def judged(life: Life, said: Iterable[Said]) -> Iterator[Item]:
    """What a process said, without results that are known, and with the true end of what ran too long."""
    for payload, scope, origin in said:
        if isinstance(payload, ToolResult) and payload.call_id in life.freed:
            continue
        broken = isinstance(payload, AgentEnd) and payload.stop_reason in ("cancelled", "error")
        if broken and scope.trace_id in life.late:
            payload = structs.replace(payload, stop_reason="timeout")
        yield Item(payload, scope, origin)
