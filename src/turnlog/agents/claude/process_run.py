"""One life of a process: what its driver knows of it, and what is made of what it says."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from msgspec import structs

from turnlog.agents.claude.process import ClaudeProcess
from turnlog.agents.runtime.turn_loop import TurnEvent
from turnlog.agents.runtime.turn_timeout import Trace
from turnlog.events import AgentEnd, ErrorInfo, EventDraft, ToolResult
from turnlog.events.agent import StopReason
from turnlog.parse.claude.parser import PROCESS_EXITED, CliParser

ProcessEndReason = Literal["user_ended", "inactivity_timeout", "process_crash", "server_shutdown"]


@dataclass(slots=True)
class ProcessRun:
    """One process from its start to its end. `sent` is the turn that went down last; `reason` is why it has
    to go. Results of `freed` calls are known, turns that are `late` ran too long, those `dropped` are over.
    `is_deaf` says that a write to it failed, and that this is in the log.
    """

    process: ClaudeProcess
    parser: CliParser
    is_resumed: bool
    current_trace: str = ""
    reason: ProcessEndReason | None = None
    fault: ErrorInfo = PROCESS_EXITED
    has_write_error: bool = False
    answered_calls: set[str] = field(default_factory=set)
    timed_out_traces: set[Trace] = field(default_factory=set)
    abandoned_traces: dict[str, StopReason] = field(default_factory=dict)

    def terminate(self, reason: ProcessEndReason | None) -> None:
        """Let it go; the first reason counts."""
        self.reason = self.reason or reason
        self.process.terminate()


def filter_output(process_run: ProcessRun, events: Iterable[EventDraft]) -> Iterator[TurnEvent]:
    """What a process said, without results that are known, and with the true end of what ran too long."""
    for draft in events:
        payload, scope = draft.payload, draft.scope
        if isinstance(payload, ToolResult) and payload.call_id in process_run.answered_calls:
            continue
        broken = isinstance(payload, AgentEnd) and payload.stop_reason in ("cancelled", "error")
        if broken and scope.trace_id in process_run.timed_out_traces:
            payload = structs.replace(payload, stop_reason="timeout")
        yield TurnEvent(payload, scope, draft.origin)
