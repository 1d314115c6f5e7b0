"""The state of one Claude Code process from start to end, and the filter for its output."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from msgspec import structs

from turnlog.agents.claude.process import ClaudeProcess
from turnlog.agents.runtime.turn_timeout import Trace
from turnlog.events import AgentEnd, ErrorInfo, EventDraft, ToolResult
from turnlog.events.agent import StopReason
from turnlog.parse.claude.parser import PROCESS_EXITED, CliParser

ProcessEndReason = Literal["user_ended", "inactivity_timeout", "process_crash", "server_shutdown"]


@dataclass(slots=True)
class ProcessRun:
    """One process from its start to its end.

    `current_trace`: the turn of the last prompt that was written. `reason`: why it is being terminated.
    `answered_calls`: calls whose results are in the log already. `timed_out_traces`: turns that ran too long.
    `abandoned_traces`: turns that no process will answer. `has_write_error`: a write failed, and the log has
    that error.
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
        """Terminate the process. Only the first reason is stored."""
        self.reason = self.reason or reason
        self.process.terminate()


def filter_output(process_run: ProcessRun, events: Iterable[EventDraft]) -> Iterator[EventDraft]:
    for draft in events:
        payload, scope = draft.payload, draft.scope
        if isinstance(payload, ToolResult) and payload.call_id in process_run.answered_calls:
            continue
        is_failed_end = isinstance(payload, AgentEnd) and payload.stop_reason in ("cancelled", "error")
        if is_failed_end and scope.trace_id in process_run.timed_out_traces:
            payload = structs.replace(payload, stop_reason="timeout")
        yield EventDraft(payload, scope, draft.origin)
