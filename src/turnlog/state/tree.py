"""The open invocations of a session, and the turns that wait for one (protocol section 4).

Input: the events of the log, in order. Output: which agents run, which wait, what is open inside them, and
which turn is next. `closing.py` builds the events that close what is open.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from turnlog.events import (
    AgentCheckpoint,
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
from turnlog.events.agent import CompletionTotals, StopReason, add_counts, strip_agent_prefix
from turnlog.events.ui import ClientTool, Stop
from turnlog.state.channels import ChannelFilter, is_channel_visible
from turnlog.state.descriptions import is_page_event

HANDOFF_PREFIX = "handoff_to_"  # prefix of a call that passes an agent's work on; no tool has such a name


@dataclass(slots=True)
class OpenCall:
    """A call without a result.

    `is_message_complete` is False while the model may still add calls to the same message. Members with one
    of `roles` may answer the call; without roles every member may. `answer_seq` is the event that let a
    backend tool run: an approval, or the `input` that the tool asked for. It is -1 if there was none.
    """

    call: ToolCall
    is_message_complete: bool = False
    awaits_page: bool = False
    approval_request: ApprovalRequest | None = None
    is_denied: bool = False
    roles: tuple[str, ...] = ()
    answer_seq: int = -1
    input: UiAction | None = None

    @property
    def is_waiting(self) -> bool:
        """Return whether the page, a person or another process must act."""
        if self.awaits_page or self.approval_request is not None:
            return True
        return self.is_message_complete and self.call.executor == "remote" and not self.is_denied

    @property
    def is_pending_handoff(self) -> bool:
        return self.is_message_complete and self.call.tool.startswith(HANDOFF_PREFIX)


@dataclass(slots=True)
class Invocation:
    """An agent that has started and not ended.

    `step_blocks` are the blocks of a completion that is not complete yet, open or ended. `answer_seq` is the
    last event that answered a call which waited; -1 without one.
    `steps` are the completions with a usage, `messages` those that have blocks: some models report no usage.
    `is_paused` says that its runtime has stored a checkpoint and stopped: its calls, and those of the agents
    that it started, are held until the runtime goes on.
    """

    start: AgentStart
    scope: Scope
    calls: dict[str, OpenCall] = field(default_factory=dict)
    blocks: dict[str, list[str]] = field(default_factory=dict)
    step_blocks: list[str] = field(default_factory=list)
    messages: int = 0
    is_message_open: bool = False
    answer_seq: int = -1
    steps: int = 0
    usage: Usage | None = None
    cost: Cost | None = None
    has_known_cost: bool = True
    files: tuple[File, ...] = ()
    stop_requested: bool = False
    is_paused: bool = False

    @property
    def agent_id(self) -> str:
        return self.scope.agent_id or ""

    @property
    def own_calls(self) -> dict[str, OpenCall]:
        """Return the open calls that the provider does not answer itself."""
        return {key: call for key, call in self.calls.items() if call.call.executor != "provider"}

    @property
    def has_waiting_call(self) -> bool:
        return any(call.is_waiting for call in self.calls.values())

    @property
    def totals(self) -> CompletionTotals:
        return CompletionTotals(
            steps=max(self.steps, self.messages),
            usage=self.usage,
            cost=self.cost,
            has_known_cost=self.has_known_cost,
        )

    def add_usage(self, usage: Usage, cost: Cost | None) -> None:
        """Add one completion. The total cost is None once the cost of one completion is unknown."""
        totals = self.totals.add(usage, cost)
        self.steps = add_counts(self.steps, 1)
        self.usage = totals.usage
        self.cost = totals.cost
        self.has_known_cost = totals.has_known_cost

    def build_end(self, reason: StopReason, result: str | None = None) -> AgentEnd:
        return AgentEnd(
            stop_reason=reason,
            steps=self.steps,
            usage=self.usage,
            cost=self.cost,
            result=result,
            files=self.files,
        )


class QueuedTurn(NamedTuple):
    """A turn that no agent has started yet. `trigger` is None if only application events opened it."""

    trigger: UiMessage | UiAction | None
    scope: Scope


@dataclass(slots=True)
class Tree:
    """Everything that is open in a session, and the roles of its members by principal.

    `actors` has the last person who acted in each open turn, `client_tools` the tools that the last message
    of a turn brought. `agent_counts` has the number of agents that
    started in each open turn, `handoff_counts` how many of them a hand-off started. `conversations` has the
    id of each channel's conversation, `resumed_conversations` those of called agents that resumed another.
    """

    last_seq: int = -1
    open: dict[str, Invocation] = field(default_factory=dict)
    queued_turns: dict[str, QueuedTurn] = field(default_factory=dict)
    handoff_targets: dict[str, str | None] = field(default_factory=dict)
    server_process: ProcessStart | None = None
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)
    actors: dict[str, str] = field(default_factory=dict)
    client_tools: dict[str, tuple[ClientTool, ...]] = field(default_factory=dict)
    agent_counts: dict[str, int] = field(default_factory=dict)
    handoff_counts: dict[str, int] = field(default_factory=dict)
    conversations: dict[str, str] = field(default_factory=dict)  # "" is no channel
    resumed_conversations: dict[str, str] = field(default_factory=dict)

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        self.last_seq = envelope.seq

        reduce_invocation = INVOCATION_REDUCERS.get(type(payload))
        if reduce_invocation is not None:
            invocation = self.open.get(envelope.agent_id or "")
            if invocation is not None:
                reduce_invocation(invocation, payload, envelope.seq)
            return

        reduce_tree = REDUCERS.get(type(payload))
        if reduce_tree is not None:
            reduce_tree(self, envelope, payload)
        elif is_page_event(envelope, payload):
            _page_event(self, envelope)

    def find_call(self, agent_id: str | None, call_id: str | None) -> OpenCall | None:
        invocation = self.open.get(agent_id or "")
        return invocation.calls.get(call_id or "") if invocation else None

    def children_by_call(self) -> dict[tuple[str | None, str | None], str]:
        """Return the open agents by the caller's id and the call's id."""
        return {(agent.start.parent_id, agent.start.call_id): key for key, agent in self.open.items()}

    def paused_teams(self) -> dict[str, list[Invocation]]:
        """Return the agents whose runtime has stored a checkpoint and stopped, by the paused one.

        Its team is itself and the agents that it started.
        """
        teams: dict[str, list[Invocation]] = {}
        root_by_agent: dict[str, str] = {}
        for agent_id, invocation in self.open.items():
            root = root_by_agent.get(invocation.start.parent_id or "")
            if root is None and invocation.is_paused:
                root = agent_id
            if root is not None:
                root_by_agent[agent_id] = root
                teams.setdefault(root, []).append(invocation)
        return teams

    def paused_agents(self) -> set[str]:
        """Return the agents whose runtime is paused because a call of one of them waits.

        A runtime goes on when all calls are answered that it waited for.
        """
        paused: set[str] = set()
        for team in self.paused_teams().values():
            if any(invocation.has_waiting_call for invocation in team):
                paused.update(invocation.agent_id for invocation in team)
        return paused

    def waiting_agents(self) -> set[str]:
        """Return the agents that can only wait for the page, themselves or through their children."""
        # Asked for after every event: an agent without calls does not wait.
        if not any(invocation.calls for invocation in self.open.values()):
            return set()
        children = self.children_by_call()
        waiting = self.paused_agents()

        # A child starts after its parent, so the reverse order decides children first.
        for agent_id, invocation in reversed(self.open.items()):
            has_waiting_call = False
            has_running_call = False
            for call_id, call in invocation.own_calls.items():
                if call.is_waiting or children.get((agent_id, call_id)) in waiting:
                    has_waiting_call = True
                elif not call.is_pending_handoff:
                    has_running_call = True
            if has_waiting_call and not has_running_call:
                waiting.add(agent_id)
        return waiting

    @property
    def is_all_waiting(self) -> bool:
        return self.waiting_agents() == self.open.keys()

    @property
    def traces_to_stop(self) -> set[str | None]:
        return {invocation.scope.trace_id for invocation in self.open.values() if invocation.stop_requested}

    def invocations_in(self, channel: str | None) -> list[Invocation]:
        """Return the invocations that a stop in this channel reaches."""
        return [agent for agent in self.open.values() if can_stop_reach(channel, agent.scope)]

    def is_stop_applicable(self, stop: Stop, channel: str | None) -> bool:
        scopes = [invocation.scope for invocation in self.invocations_in(channel)]
        if stop.turn is not None and all(scope.trace_id != stop.turn for scope in scopes):
            return False
        return stop.agent_id is None or any(scope.agent_id == stop.agent_id for scope in scopes)

    def actor_roles(self, trace: str | None) -> tuple[str, ...]:
        return self.members.get(self.actors.get(trace or "", ""), ())

    def is_running(self, trace: str) -> bool:
        return any(invocation.scope.trace_id == trace for invocation in self.open.values())

    def is_settled(self, trace: str) -> bool:
        """Return whether a turn is over, or all its agents wait."""
        if trace in self.queued_turns or trace in self.handoff_targets.values():
            return False
        agents = {agent_id for agent_id, agent in self.open.items() if agent.scope.trace_id == trace}
        return not agents or agents <= self.waiting_agents()

    @property
    def has_event_only_turn(self) -> bool:
        return any(turn.trigger is None for turn in self.queued_turns.values())

    def agents_asking_page(self) -> list[str]:
        asking = []
        waiting = self.waiting_agents()
        for agent_id, invocation in self.open.items():
            if agent_id in waiting and invocation.has_waiting_call:
                asking.append(agent_id)
        return asking


# Reducers of the tree


def _message(tree: Tree, envelope: Envelope, payload: UiMessage | UiAction) -> None:
    trace = envelope.trace_id
    if trace and envelope.actor:
        tree.actors[trace] = envelope.actor
    if trace and isinstance(payload, UiMessage) and payload.tools:
        tree.client_tools[trace] = payload.tools
    if trace and not tree.is_running(trace):
        tree.queued_turns[trace] = QueuedTurn(payload, scope_without_actor(envelope))


def _page_event(tree: Tree, envelope: Envelope) -> None:
    trace = envelope.trace_id
    if trace and trace not in tree.queued_turns and not tree.is_running(trace):
        tree.queued_turns[trace] = QueuedTurn(None, scope_without_actor(envelope))
        if envelope.actor:
            tree.actors[trace] = envelope.actor


def _action(tree: Tree, envelope: Envelope, payload: UiAction) -> None:
    call = tree.find_call(envelope.agent_id, payload.call_id)
    if call is not None:
        if call.awaits_page:
            tree.open[envelope.agent_id or ""].answer_seq = envelope.seq
            call.answer_seq = envelope.seq
            call.input = payload
        call.awaits_page = False
    elif payload.call_id is None:
        _message(tree, envelope, payload)


def _start(tree: Tree, envelope: Envelope, payload: AgentStart) -> None:
    if not envelope.agent_id:
        return
    trace = envelope.trace_id or ""
    tree.queued_turns.pop(trace, None)
    tree.handoff_targets.pop(envelope.agent_id, None)
    tree.agent_counts[trace] = tree.agent_counts.get(trace, 0) + 1
    if payload.via == "handoff":
        tree.handoff_counts[trace] = tree.handoff_counts.get(trace, 0) + 1
    tree.open[envelope.agent_id] = Invocation(payload, scope_without_actor(envelope))
    if payload.parent_id is None:
        conversation_id = payload.conversation_id or strip_agent_prefix(envelope.agent_id)
        tree.conversations.setdefault(envelope.channel or "", conversation_id)
    elif payload.conversation_id is not None:
        tree.resumed_conversations[envelope.agent_id] = payload.conversation_id


def _end(tree: Tree, envelope: Envelope, _: AgentEnd) -> None:
    tree.open.pop(envelope.agent_id or "", None)
    open_traces = {invocation.scope.trace_id for invocation in tree.open.values()}
    open_traces.update(tree.handoff_targets.values())
    if envelope.trace_id not in open_traces:
        trace = envelope.trace_id or ""
        tree.actors.pop(trace, None)
        tree.client_tools.pop(trace, None)
        tree.agent_counts.pop(trace, None)
        tree.handoff_counts.pop(trace, None)


def _handoff(tree: Tree, envelope: Envelope, payload: AgentHandoff) -> None:
    tree.handoff_targets[payload.to_agent_id] = envelope.trace_id


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
    UiAction: _action,
    UiCommand: _command,
    AgentStart: _start,
    AgentEnd: _end,
    AgentHandoff: _handoff,
    ProcessStart: _process_start,
    ProcessEnd: _process_end,
}


# Reducers of one open invocation


def _files(invocation: Invocation, payload: AssistantFiles, _: int) -> None:
    invocation.files += payload.files


def _usage(invocation: Invocation, payload: AgentUsage, _: int) -> None:
    invocation.add_usage(payload.usage, payload.cost)
    invocation.is_message_open = False
    invocation.step_blocks.clear()
    for call in invocation.calls.values():
        call.is_message_complete = True


def _checkpoint(invocation: Invocation, payload: AgentCheckpoint, _: int) -> None:
    invocation.is_paused = payload.paused
    invocation.is_message_open = False


def _block_start(invocation: Invocation, payload: BlockStart, _: int) -> None:
    invocation.blocks[payload.block_id] = []
    invocation.step_blocks.append(payload.block_id)
    if not invocation.is_message_open:
        invocation.is_message_open = True
        invocation.messages = add_counts(invocation.messages, 1)


def _block_delta(invocation: Invocation, payload: BlockDelta, _: int) -> None:
    invocation.blocks.setdefault(payload.block_id, []).append(payload.text)


def _block_end(invocation: Invocation, payload: BlockEnd, _: int) -> None:
    invocation.blocks.pop(payload.block_id, None)


def _call(invocation: Invocation, payload: ToolCall, _: int) -> None:
    invocation.calls[payload.call_id] = OpenCall(payload)


def _result(invocation: Invocation, payload: ToolResult, seq: int) -> None:
    call = invocation.calls.pop(payload.call_id, None)
    if call is not None and call.is_waiting:
        invocation.answer_seq = seq
    # The provider answers its calls inside the message.
    if call is not None and call.call.executor != "provider":
        invocation.is_message_open = False


def _retract(invocation: Invocation, payload: BlockRetract, _: int) -> None:
    invocation.step_blocks = [key for key in invocation.step_blocks if key not in payload.block_ids]
    for call_id, call in list(invocation.calls.items()):
        if call.call.block_id in payload.block_ids:
            del invocation.calls[call_id]


def _await(invocation: Invocation, payload: ToolAwait, _: int) -> None:
    for awaited in payload.calls:
        call = invocation.calls.get(awaited.call_id)
        if call is not None:
            call.awaits_page = True
            call.roles = awaited.roles


def _approval_request(invocation: Invocation, payload: ApprovalRequest, _: int) -> None:
    call = invocation.calls.get(payload.call_id)
    if call is not None:
        call.approval_request = payload


def _approval_decision(invocation: Invocation, payload: ApprovalDecision, seq: int) -> None:
    call = invocation.calls.get(payload.call_id)
    if call is not None:
        if call.approval_request is not None:
            invocation.answer_seq = seq
            call.answer_seq = seq
        call.approval_request = None
        call.is_denied = payload.decision != "approve"


INVOCATION_REDUCERS: dict[type, Callable[[Invocation, Any, int], None]] = {  # the int is the event's seq
    AssistantFiles: _files,
    AgentUsage: _usage,
    AgentCheckpoint: _checkpoint,
    BlockStart: _block_start,
    BlockDelta: _block_delta,
    BlockEnd: _block_end,
    BlockRetract: _retract,
    ToolCall: _call,
    ToolResult: _result,
    ToolAwait: _await,
    ApprovalRequest: _approval_request,
    ApprovalDecision: _approval_decision,
}


def scope_without_actor(envelope: Envelope) -> Scope:
    return Scope(
        trace_id=envelope.trace_id,
        agent_id=envelope.agent_id,
        agent_name=envelope.agent_name,
        depth=envelope.depth,
        channel=envelope.channel,
    )


def can_stop_reach(channel: str | None, scope: Scope) -> bool:
    return channel is None or is_channel_visible(scope.channel, (channel,))


def restrict_to_turns(tree: Tree, traces: Collection[str | None]) -> Tree:
    agents = {key: agent for key, agent in tree.open.items() if agent.scope.trace_id in traces}
    return replace(tree, open=agents)


def restrict_to_channels(tree: Tree, may_see: ChannelFilter) -> Tree:
    agents = {key: agent for key, agent in tree.open.items() if may_see(agent.scope.channel)}
    turns = {key: turn for key, turn in tree.queued_turns.items() if may_see(turn.scope.channel)}
    return replace(tree, open=agents, queued_turns=turns)
