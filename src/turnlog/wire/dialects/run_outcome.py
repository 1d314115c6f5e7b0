"""What runs in a session, and how a run ended: for dialects whose responses are runs.

A run goes on while another process works on a remote call. It ends when all agents have ended, or wait for a
person: for an answer of the page, an input or an approval.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from turnlog.events import (
    AgentEnd,
    AgentHandoff,
    AgentStart,
    AgentUsage,
    BlockDelta,
    Envelope,
    Payload,
    SessionError,
    ToolProgress,
    UnknownPayload,
    Usage,
)
from turnlog.state.tree import Invocation, OpenCall, Tree

LIVE_PAYLOADS = (BlockDelta, ToolProgress)
SERVER_RESTART = "server_restart"
# The roles of the member who reads; None for a stream of a whole session, which asks every reader.
ReaderRoles = frozenset[str] | None
FAILED_STOPS = frozenset({"error", "timeout", "cancelled"})


class RunFailure(NamedTuple):
    message: str
    code: str


@dataclass(slots=True)
class RunOutcome:
    """What has happened in a run: the end of the agent that answered, the last error, tokens by model."""

    end: AgentEnd | None = None
    error: SessionError | None = None
    usage: dict[str, Usage] = field(default_factory=dict)

    def begin_turn(self) -> None:
        """Forget how an earlier turn ended: another agent answers."""
        self.end = None
        self.error = None

    def end_turn(self, end: AgentEnd) -> None:
        """Record how the agent that answered ended. After a hand-off another one answers."""
        if end.stop_reason != "handoff":
            self.end = end

    def add_usage(self, payload: AgentUsage) -> None:
        earlier = self.usage.get(payload.model)
        self.usage[payload.model] = payload.usage if earlier is None else earlier + payload.usage

    @property
    def is_cancelled(self) -> bool:
        return self.end is not None and self.end.stop_reason == "cancelled"

    @property
    def failure(self) -> RunFailure | None:
        """Return why the run failed; None if it did not."""
        end = self.end
        if end is None or end.stop_reason not in ("error", "timeout"):
            return None
        if end.reason == "interrupted":
            return RunFailure("The server stopped during this run.", SERVER_RESTART)
        if self.error is None:
            return RunFailure("The run failed.", end.stop_reason)
        return RunFailure(self.error.message, self.error.code)


class RunProgress:
    """The open agents and calls of the events so far, and whether anything runs."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.hands_over = False  # an agent hands over, and its successor has not started

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        # Live events open and close nothing.
        if isinstance(payload, LIVE_PAYLOADS):
            return
        self.tree.apply(envelope, payload)
        if isinstance(payload, AgentHandoff):
            self.hands_over = True
        elif isinstance(payload, AgentStart):
            self.hands_over = False

    @property
    def is_running(self) -> bool:
        return self.hands_over or is_running(self.tree)

    @property
    def is_finished(self) -> bool:
        """Return whether nothing runs, and no turn waits for its start: a response ends here."""
        return not self.tree.queued_turns and not self.is_running


def is_running(tree: Tree) -> bool:
    """Return whether an agent works, here or through another process. A person may have to do something."""
    if not tree.is_all_waiting:
        return True
    # a stop ends agents that wait, a moment later
    if tree.traces_to_stop:
        return True
    calls = [call for invocation in tree.open.values() for call in invocation.own_calls.values()]
    return any(is_remote_work(call) for call in calls)


def is_remote_work(call: OpenCall) -> bool:
    is_question = call.awaits_page or call.approval_request is not None
    return call.is_waiting and not is_question


def list_page_calls(tree: Tree, roles: ReaderRoles = None) -> list[str]:
    """Return the calls that wait for the page of a reader, by id."""
    return [
        call_id
        for invocation in tree.open.values()
        for call_id, call in invocation.calls.items()
        if call.awaits_page and call.call.executor == "frontend" and is_asked(answering_roles(call), roles)
    ]


def answering_roles(call: OpenCall) -> tuple[str, ...]:
    """Return the roles of those who may answer a call that waits; none for every member."""
    return call.roles if call.approval_request is None else call.approval_request.roles


def is_asked(answering: tuple[str, ...], roles: ReaderRoles) -> bool:
    """Return whether a reader with these roles may answer what is for the roles `answering`."""
    return not answering or roles is None or not roles.isdisjoint(answering)


def is_subagent(invocation: Invocation) -> bool:
    return invocation.start.parent_id is not None
