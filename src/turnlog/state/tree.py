"""The invocations of a session that are open, and the messages that wait for one (protocol section 4).

A fold over the log, in order. It answers: which agents run, which wait, what is open inside them, which
message is next; and, when something died or was stopped, `closing` lists the events that close it.
Closing events derive their ids from what they close, so two recoveries write one.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Literal, NamedTuple

from msgspec import structs

from turnlog.events import (
    AgentEnd,
    AgentHandoff,
    AgentStart,
    AgentUsage,
    ApprovalDecision,
    ApprovalRequest,
    AssistantFiles,
    BlockDelta,
    BlockEnd,
    BlockRetract,
    BlockStart,
    Cost,
    Envelope,
    ErrorInfo,
    File,
    Payload,
    ProcessEnd,
    ProcessStart,
    Scope,
    SessionMember,
    ToolAwait,
    ToolCall,
    ToolResult,
    UiAction,
    UiCommand,
    UiMessage,
    UnknownPayload,
    Usage,
)
from turnlog.events.agent import StopReason
from turnlog.events.ui import Stop
from turnlog.state.descriptions import is_page_event

HANDOFF_PREFIX = "handoff_to_"  # how a call begins that passes an agent's work on; no tool has such a name


@dataclass(slots=True)
class OpenCall:
    """A call without a result; `asked` is an approval that nobody has given yet. Members with one of `roles`
    may answer it; if there are none, every member may.

    `told` says that its message is complete: until then others may follow, and nobody waits for it alone.
    """

    call: ToolCall
    is_message_complete: bool = False
    awaits_page: bool = False
    approval_request: ApprovalRequest | None = None
    is_denied: bool = False
    roles: tuple[str, ...] = ()

    @property
    def is_waiting(self) -> bool:
        """Whether somebody outside has to act: the page, a person, another process."""
        elsewhere = self.is_message_complete and self.call.executor == "remote" and not self.is_denied
        return self.awaits_page or self.approval_request is not None or elsewhere

    @property
    def is_pending_handoff(self) -> bool:
        """Whether it takes place when the others are answered: a hand-off."""
        return self.is_message_complete and self.call.tool.startswith(HANDOFF_PREFIX)


@dataclass(slots=True)
class Invocation:
    """An agent that has started and not ended; `stopped` says that somebody wants it to."""

    start: AgentStart
    scope: Scope
    calls: dict[str, OpenCall] = field(default_factory=dict)
    blocks: dict[str, list[str]] = field(default_factory=dict)
    steps: int = 0
    usage: Usage | None = None
    cost: Cost | None = None
    has_known_cost: bool = True
    files: tuple[File, ...] = ()
    stop_requested: bool = False

    @property
    def agent_id(self) -> str:
        """Which invocation it is."""
        return self.scope.agent_id or ""

    @property
    def own_calls(self) -> dict[str, OpenCall]:
        """The open calls that are answered on this side."""
        return {key: call for key, call in self.calls.items() if call.call.executor != "provider"}

    def add_usage(self, usage: Usage, cost: Cost | None) -> None:
        """One completion more; a sum with an unknown price in it is unknown."""
        self.steps += 1
        self.usage = self.usage + usage if self.usage else usage
        self.has_known_cost = self.has_known_cost and cost is not None
        if cost is None or not self.has_known_cost:
            self.cost = None
        else:
            self.cost = self.cost + cost if self.cost else cost

    def build_end(self, reason: StopReason, result: str | None = None) -> AgentEnd:
        """The event that ends it."""
        return AgentEnd(
            stop_reason=reason,
            steps=self.steps,
            usage=self.usage,
            cost=self.cost,
            result=result,
            files=self.files,
        )


@dataclass(slots=True)
class ClosingEvent:
    """An event that closes something, before it is built."""

    payload: Payload
    scope: Scope
    id: str


class QueuedTurn(NamedTuple):
    """What opens a turn and waits for its agent; events of the application alone are nothing to answer."""

    trigger: UiMessage | UiAction | None
    scope: Scope


@dataclass(slots=True)
class Tree:
    """Everything that is open in a session, and its members with their roles. `actors` are the people who
    spoke last in the turns that are open; `agent_counts` and `handoff_counts` are how many agents started in
    each of these turns, and how many of them by a hand-off."""

    last_seq: int = -1
    open: dict[str, Invocation] = field(default_factory=dict)
    queued_turns: dict[str, QueuedTurn] = field(default_factory=dict)
    handoff_targets: dict[str, str | None] = field(default_factory=dict)
    server_process: ProcessStart | None = None
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)
    actors: dict[str, str] = field(default_factory=dict)
    agent_counts: dict[str, int] = field(default_factory=dict)
    handoff_counts: dict[str, int] = field(default_factory=dict)

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        """Take one event into account."""
        self.last_seq = envelope.seq
        step = REDUCERS.get(type(payload))
        if step is not None:
            step(self, envelope, payload)
        elif is_page_event(envelope, payload):
            _page_event(self, envelope)

    def find_call(self, agent_id: str | None, call_id: str | None) -> OpenCall | None:
        """An open call of an open agent."""
        invocation = self.open.get(agent_id or "")
        return invocation.calls.get(call_id or "") if invocation else None

    def children_by_call(self) -> dict[tuple[str | None, str | None], str]:
        """The open agents by who called them, and with which call."""
        return {(agent.start.parent_id, agent.start.call_id): key for key, agent in self.open.items()}

    def waiting_agents(self) -> set[str]:
        """The agents that can do nothing but wait for the page, themselves or through their children."""
        children, found = self.children_by_call(), set[str]()
        for agent_id, invocation in reversed(self.open.items()):  # a child starts after its parent
            own = invocation.own_calls.items()
            waiting = [call.is_waiting or children.get((agent_id, key)) in found for key, call in own]
            if any(waiting) and all(
                w or call.is_pending_handoff for w, (_, call) in zip(waiting, own, strict=True)
            ):
                found.add(agent_id)
        return found

    @property
    def is_all_waiting(self) -> bool:
        """Whether nobody runs: every agent that is open waits."""
        return self.waiting_agents() == self.open.keys()

    @property
    def traces_to_stop(self) -> set[str | None]:
        """The turns with a stop that has not been carried out."""
        return {invocation.scope.trace_id for invocation in self.open.values() if invocation.stop_requested}

    def invocations_in(self, channel: str | None) -> list[Invocation]:
        """What a stop in a channel reaches: what is open there and in none; without a channel everything."""
        return [agent for agent in self.open.values() if can_stop_reach(channel, agent.scope)]

    def is_stop_applicable(self, stop: Stop, channel: str | None) -> bool:
        """Whether a stop is for what is open: one that names a turn or an agent may come too late."""
        scopes = [invocation.scope for invocation in self.invocations_in(channel)]
        traces, agents = [scope.trace_id for scope in scopes], [scope.agent_id for scope in scopes]
        return stop.turn in (None, *traces) and stop.agent_id in (None, *agents)

    def actor_roles(self, trace: str | None) -> tuple[str, ...]:
        """The roles of whoever spoke last in a turn."""
        return self.members.get(self.actors.get(trace or "", ""), ())

    def is_running(self, trace: str) -> bool:
        """Whether an agent of a turn is open."""
        return any(invocation.scope.trace_id == trace for invocation in self.open.values())

    def is_settled(self, trace: str) -> bool:
        """Whether a turn is over, or everyone in it waits."""
        if trace in self.queued_turns or trace in self.handoff_targets.values():
            return False
        inside = {agent_id for agent_id, agent in self.open.items() if agent.scope.trace_id == trace}
        return not inside or inside <= self.waiting_agents()

    @property
    def has_event_only_turn(self) -> bool:
        """Whether a turn is asked for by events of a page alone."""
        return any(opening.trigger is None for opening in self.queued_turns.values())

    def agents_asking_page(self) -> list[str]:
        """The agents that have asked the page something."""
        waiters = self.waiting_agents()
        return [
            agent_id
            for agent_id, invocation in self.open.items()
            if agent_id in waiters and any(call.is_waiting for call in invocation.calls.values())
        ]


def _message(tree: Tree, envelope: Envelope, payload: UiMessage | UiAction) -> None:
    trace = envelope.trace_id
    if trace and envelope.actor:
        tree.actors[trace] = envelope.actor
    if trace and not tree.is_running(trace):
        tree.queued_turns[trace] = QueuedTurn(payload, scope_without_actor(envelope))


def _page_event(tree: Tree, envelope: Envelope) -> None:
    """An event that a page sent with a trace asks for a turn, unless something else with it does."""
    trace = envelope.trace_id
    if trace and trace not in tree.queued_turns and not tree.is_running(trace):
        tree.queued_turns[trace] = QueuedTurn(None, scope_without_actor(envelope))
        if envelope.actor:
            tree.actors[trace] = envelope.actor


def _start(tree: Tree, envelope: Envelope, payload: AgentStart) -> None:
    if envelope.agent_id:
        tree.queued_turns.pop(envelope.trace_id or "", None)
        tree.handoff_targets.pop(envelope.agent_id, None)
        trace = envelope.trace_id or ""
        tree.agent_counts[trace] = tree.agent_counts.get(trace, 0) + 1
        if payload.via == "handoff":
            tree.handoff_counts[trace] = tree.handoff_counts.get(trace, 0) + 1
        tree.open[envelope.agent_id] = Invocation(payload, scope_without_actor(envelope))


def _end(tree: Tree, envelope: Envelope, _: AgentEnd) -> None:
    tree.open.pop(envelope.agent_id or "", None)
    traces = {invocation.scope.trace_id for invocation in tree.open.values()}
    if envelope.trace_id not in traces | set(tree.handoff_targets.values()):
        for by_turn in (tree.actors, tree.agent_counts, tree.handoff_counts):
            by_turn.pop(envelope.trace_id or "", None)


def _handoff(tree: Tree, envelope: Envelope, payload: AgentHandoff) -> None:
    tree.handoff_targets[payload.to_agent_id] = envelope.trace_id


def _files(tree: Tree, envelope: Envelope, payload: AssistantFiles) -> None:
    if invocation := tree.open.get(envelope.agent_id or ""):
        invocation.files += payload.files


def _usage(tree: Tree, envelope: Envelope, payload: AgentUsage) -> None:
    if invocation := tree.open.get(envelope.agent_id or ""):
        invocation.add_usage(payload.usage, payload.cost)
        for call in invocation.calls.values():
            call.is_message_complete = True


def _block_start(tree: Tree, envelope: Envelope, payload: BlockStart) -> None:
    if invocation := tree.open.get(envelope.agent_id or ""):
        invocation.blocks[payload.block_id] = []


def _block_delta(tree: Tree, envelope: Envelope, payload: BlockDelta) -> None:
    if invocation := tree.open.get(envelope.agent_id or ""):
        invocation.blocks.setdefault(payload.block_id, []).append(payload.text)


def _block_end(tree: Tree, envelope: Envelope, payload: BlockEnd) -> None:
    if invocation := tree.open.get(envelope.agent_id or ""):
        invocation.blocks.pop(payload.block_id, None)


def _call(tree: Tree, envelope: Envelope, payload: ToolCall) -> None:
    if invocation := tree.open.get(envelope.agent_id or ""):
        invocation.calls[payload.call_id] = OpenCall(payload)


def _result(tree: Tree, envelope: Envelope, payload: ToolResult) -> None:
    if invocation := tree.open.get(envelope.agent_id or ""):
        invocation.calls.pop(payload.call_id, None)


def _await(tree: Tree, envelope: Envelope, payload: ToolAwait) -> None:
    for awaited in payload.calls:
        if call := tree.find_call(envelope.agent_id, awaited.call_id):
            call.awaits_page, call.roles = True, awaited.roles


def _retract(tree: Tree, envelope: Envelope, payload: BlockRetract) -> None:
    if invocation := tree.open.get(envelope.agent_id or ""):
        void = [key for key, call in invocation.calls.items() if call.call.block_id in payload.block_ids]
        for key in void:
            del invocation.calls[key]


def _request(tree: Tree, envelope: Envelope, payload: ApprovalRequest) -> None:
    if call := tree.find_call(envelope.agent_id, payload.call_id):
        call.approval_request = payload


def _decision(tree: Tree, envelope: Envelope, payload: ApprovalDecision) -> None:
    if call := tree.find_call(envelope.agent_id, payload.call_id):
        call.approval_request, call.is_denied = None, payload.decision != "approve"


def _action(tree: Tree, envelope: Envelope, payload: UiAction) -> None:
    """An input that a call asked for: the call goes on, if it has no answer yet. Any other opens a turn."""
    if call := tree.find_call(envelope.agent_id, payload.call_id):
        call.awaits_page = False
    elif payload.call_id is None:
        _message(tree, envelope, payload)


def _command(tree: Tree, envelope: Envelope, payload: UiCommand) -> None:
    if isinstance(payload.command, Stop) and tree.is_stop_applicable(payload.command, envelope.channel):
        for invocation in tree.invocations_in(envelope.channel):
            invocation.stop_requested = True


def _process_start(tree: Tree, _: Envelope, payload: ProcessStart) -> None:
    if payload.process == "server":
        tree.server_process = payload


def _process_end(tree: Tree, _: Envelope, payload: ProcessEnd) -> None:
    if payload.process == "server":
        tree.server_process = None


def _member(tree: Tree, _: Envelope, payload: SessionMember) -> None:
    tree.members[payload.principal] = payload.roles


REDUCERS: dict[type, Callable[[Tree, Envelope, Any], None]] = {
    SessionMember: _member,
    UiMessage: _message,
    AgentStart: _start,
    AgentEnd: _end,
    AgentHandoff: _handoff,
    AssistantFiles: _files,
    AgentUsage: _usage,
    BlockStart: _block_start,
    BlockDelta: _block_delta,
    BlockEnd: _block_end,
    ToolCall: _call,
    ToolResult: _result,
    ToolAwait: _await,
    BlockRetract: _retract,
    ApprovalRequest: _request,
    ApprovalDecision: _decision,
    UiAction: _action,
    UiCommand: _command,
    ProcessStart: _process_start,
    ProcessEnd: _process_end,
}


def scope_without_actor(envelope: Envelope) -> Scope:
    """The scope an envelope was stamped with."""
    return Scope(
        trace_id=envelope.trace_id,
        agent_id=envelope.agent_id,
        agent_name=envelope.agent_name,
        depth=envelope.depth,
        channel=envelope.channel,
    )


def closing_id(what: str, key: str) -> str:
    """The id of the event that closes something: the same for everyone who closes it."""
    return "evt_" + sha256(f"{what}:{key}".encode()).hexdigest()[:40]


def build_cancelled_result(call: ToolCall, message: str) -> ToolResult:
    """The result of a call that nobody will answer any more."""
    fault = ErrorInfo(code="CANCELLED", message=message)
    return ToolResult(call_id=call.call_id, tool=call.tool, ok=False, error=fault)


def can_stop_reach(channel: str | None, scope: Scope) -> bool:
    """Whether a stop in a channel is for what is there: nobody stops what is not for them to see."""
    return channel is None or scope.channel in (None, channel)


def restrict_to_turns(tree: Tree, traces: Collection[str | None]) -> Tree:
    """A tree in which nothing but some turns is open."""
    return replace(tree, open={key: one for key, one in tree.open.items() if one.scope.trace_id in traces})


# What closes something from outside, as people are told: `error` here is a process that ended, never a model.
INTERRUPTION_REASONS: dict[StopReason, Literal["stopped", "timeout", "interrupted"]] = {
    "cancelled": "stopped",
    "timeout": "timeout",
    "error": "interrupted",
}


def restrict_to_channels(tree: Tree, may_see: Callable[[str | None], bool]) -> Tree:
    """A tree in which nothing is open or in line but what is in some channels."""
    seen = {key: one for key, one in tree.open.items() if may_see(one.scope.channel)}
    queue = {key: one for key, one in tree.queued_turns.items() if may_see(one.scope.channel)}
    return replace(tree, open=seen, queued_turns=queue)


def build_closing_events(
    tree: Tree, reason: StopReason, message: str, *, keep_waiting: bool
) -> list[ClosingEvent]:
    """The events that close what is open, children first; with `keep_waiting` agents that wait stay open.

    A caller that only waits for agents that stay open stays open too; its other open calls are answered.
    """
    closed: list[ClosingEvent] = []
    kept: set[str] = set()
    children = tree.children_by_call()
    for agent_id in reversed(list(tree.open)):  # a child starts after its parent
        invocation = tree.open[agent_id]
        lasting = {
            call_id
            for call_id, call in invocation.calls.items()
            if keep_waiting and (call.is_waiting or children.get((agent_id, call_id)) in kept)
        }
        if lasting:
            kept.add(agent_id)
            lasting |= {
                call_id
                for call_id, call in invocation.calls.items()
                if call.is_pending_handoff or call.call.executor == "provider"
            }
        closed += _close_parts(invocation, lasting, reason, message)
        if not lasting:
            closed += _close_agent(tree, agent_id, reason, message)
    return _unique_by_id(closed)


def _close_parts(
    invocation: Invocation, lasting: set[str], reason: StopReason, message: str
) -> Iterator[ClosingEvent]:
    for block_id, pieces in invocation.blocks.items():
        end = BlockEnd(
            block_id=block_id, status="aborted", text="".join(pieces), reason=INTERRUPTION_REASONS.get(reason)
        )
        yield ClosingEvent(
            end, invocation.scope, closing_id("block", f"{invocation.scope.agent_id}:{block_id}")
        )
    for call_id, call in invocation.calls.items():
        if call_id not in lasting:
            yield _cancel(invocation, call.call, message)


def _close_agent(tree: Tree, agent_id: str, reason: StopReason, message: str) -> Iterator[ClosingEvent]:
    invocation = tree.open[agent_id]
    end = structs.replace(invocation.build_end(reason), reason=INTERRUPTION_REASONS.get(reason))
    yield ClosingEvent(end, invocation.scope, closing_id("agent", agent_id))
    parent = tree.open.get(invocation.start.parent_id or "")
    call = parent.calls.get(invocation.start.call_id or "") if parent else None
    if parent and call:
        yield _cancel(parent, call.call, message)


def _cancel(invocation: Invocation, call: ToolCall, message: str) -> ClosingEvent:
    key = f"{invocation.scope.agent_id}:{call.call_id}"
    return ClosingEvent(build_cancelled_result(call, message), invocation.scope, closing_id("call", key))


def _unique_by_id(closings: list[ClosingEvent]) -> list[ClosingEvent]:
    return list({item.id: item for item in closings}.values())
