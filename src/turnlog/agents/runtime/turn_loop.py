"""The turn loop: what follows from an event. Pure: events go in, effects come out; ids are passed in.

- A message starts an agent if nothing else is open in its channel; the start of an agent calls its model.
- The end of a completion (`agent.usage`, which follows its calls) starts the calls of that completion.
- The last result calls the model again. Backend calls of a step finish before the page is asked, and the
  page answers before a hand-off takes place.

The runtime executes the effects; most of them append other events. Events are applied one by one, so nothing
may follow from half a batch. Only the first answer to a call counts. `resume` decides from the tree alone
what a new owner of the session has to do.
"""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import structs

from turnlog.agents.agent import Agent
from turnlog.agents.client_tools import with_client_tools
from turnlog.agents.runtime.approvals import check_tool_roles
from turnlog.agents.tools import (
    build_awaited_call,
    error_info_result,
    error_result,
    ok_result,
    tool_not_found,
)
from turnlog.events import (
    AgentEnd,
    AgentHandoff,
    AgentStart,
    AgentUsage,
    ApprovalDecision,
    ApprovalRequest,
    AssistantFiles,
    BlockEnd,
    BlockStart,
    Cost,
    Envelope,
    ErrorInfo,
    EventDraft,
    File,
    Origin,
    ParseReject,
    Payload,
    Scope,
    SessionError,
    ToolAwait,
    ToolCall,
    ToolResult,
    UiAction,
    UiCommand,
    UiMessage,
    UnknownPayload,
)
from turnlog.events.agent import StopReason, strip_agent_prefix
from turnlog.events.ui import Stop
from turnlog.parse.reply import ReplyBuilder
from turnlog.state.descriptions import describe_input
from turnlog.state.tree import Invocation, OpenCall, QueuedTurn, Tree, can_stop_reach
from turnlog.state.view_actions import OpenViews

if TYPE_CHECKING:
    from turnlog.agents.team import AgentTeam

UNKNOWN_MODEL = "unknown"  # for a model that does not report its name
AGENT_ID_PATTERN = re.compile(r"agt_[A-Za-z0-9_-]{1,64}")
AGENT_ENDED_MESSAGE = "Its agent has ended."
ACTION_CONFLICT = "action_conflict"
VIEW_CHANGED_MESSAGE = (
    "What you acted on has been shown again since. Nothing was done: look at it again, and then act."
)
MAX_HANDOFFS = 25  # of one turn, as many as an agent has steps: more are a ring
HANDOFF_LIMIT = "handoff_limit"
STEP_LIMIT_PROMPT = (
    "You have reached the limit of steps. Use no more tools: say what you have found, in short."
)

CallKey = tuple[str, str]  # the id of an agent and of one of its calls


class CallModel(NamedTuple):
    """Request a completion for an agent."""

    agent_id: str


class RunTool(NamedTuple):
    """Run a backend tool. `values` is the person's answer if the tool asked for input."""

    agent_id: str
    call: ToolCall
    values: dict[str, Any] | None = None


class RequestApproval(NamedTuple):
    """Ask a person whether a call may run."""

    agent_id: str
    call: ToolCall


class StartCallTimer(NamedTuple):
    """Answer a remote call with `TIMEOUT` if no executor answers it in time."""

    agent_id: str
    call: ToolCall
    timeout_s: float


class StartApprovalTimer(NamedTuple):
    """Append that an approval has expired, when its time is over and no person has decided."""

    agent_id: str
    request: ApprovalRequest


class AppendEvents(NamedTuple):
    """Append a batch."""

    items: list[EventDraft]


class StopTurns(NamedTuple):
    """Stop the turns of a channel and those without a channel; None stops all turns of the session."""

    channel: str | None


Effect = (
    CallModel | RunTool | RequestApproval | StartCallTimer | StartApprovalTimer | AppendEvents | StopTurns
)


class EventContext(NamedTuple):
    """What the tree and the views said before an event was applied.

    `answered_call` is the open call that the event answers first. `is_view_current`: the action of the
    event's queued turn fitted its view.
    """

    answered_call: OpenCall | None = None
    is_view_current: bool = True


class TurnLoop:
    """Decides the next steps of one session. Beside folds it keeps only what this process has started.

    The session's runner folds `tree` and `views`: it calls `inspect` before an event, `apply` after it.
    """

    def __init__(self, team: "AgentTeam", tree: Tree, views: OpenViews, new_id: Callable[[Any], str]) -> None:
        self._agent_team = team
        self.agents_by_name = team.by_name
        self.tree = tree
        self.views = views
        self._new_id = new_id
        self._starting_trace: str | None = None
        self._agent_counts: dict[str, int] = {}  # by turn, with agents whose start is not in the log yet
        self._started_calls: set[CallKey] = set()
        self._awaits_sent: set[CallKey] = set()
        self._awaiting_approval: set[CallKey] = set()
        self._ending_agents: set[str] = set()
        self._unblocked_agents: dict[str, None] = {}
        self._changed_own_view: set[str] = set()  # queued turns of actions whose rules changed the view

    def agent_of(self, invocation: Invocation) -> Agent:
        """Return the agent of an invocation; the root in place of one that is no longer in the team."""
        agent = self.agents_by_name.get(invocation.start.name, self._agent_team.root)
        if invocation.start.parent_id is not None:
            return agent
        return self._with_client_tools(agent, invocation.scope)

    def _with_client_tools(self, agent: Agent, scope: Scope) -> Agent:
        """Return an agent that answers the user, with the tools that the message of its turn brought."""
        return with_client_tools(agent, self.tree.client_tools.get(scope.trace_id or "", ()))

    # state

    def inspect(self, envelope: Envelope, payload: Payload | UnknownPayload) -> EventContext:
        """Return what `apply` and `react` need to know of the time before a durable event."""
        queued_turn = self.tree.queued_turns.get(envelope.trace_id or "")
        is_view_current = queued_turn is not None and self._is_current(queued_turn)
        return EventContext(find_answered_call(self.tree, envelope, payload), is_view_current)

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload, context: EventContext) -> None:
        """Update what this process has started, after the tree and the views have the event."""
        self._note_changed_view(envelope.trace_id or "", context)

        agent_id = envelope.agent_id or ""
        if isinstance(payload, AgentStart):
            self._changed_own_view.discard(envelope.trace_id or "")
        elif isinstance(payload, AgentEnd):
            if envelope.trace_id not in self.tree.agent_counts:
                self._agent_counts.pop(envelope.trace_id or "", None)
            self._forget_agent(agent_id)
        elif isinstance(payload, ApprovalDecision):
            self._awaiting_approval.discard((agent_id, payload.call_id))
        elif isinstance(payload, ToolResult):
            # a model may use the id of a call again
            key = (agent_id, payload.call_id)
            self._awaiting_approval.discard(key)
            self._started_calls.discard(key)
            self._awaits_sent.discard(key)

    def _forget_agent(self, agent_id: str) -> None:
        self._ending_agents.discard(agent_id)
        self._unblocked_agents.pop(agent_id, None)
        self._started_calls = {key for key in self._started_calls if key[0] != agent_id}
        self._awaits_sent = {key for key in self._awaits_sent if key[0] != agent_id}
        self._awaiting_approval = {key for key in self._awaiting_approval if key[0] != agent_id}

    def _note_changed_view(self, trace: str, context: EventContext) -> None:
        queued_turn = self.tree.queued_turns.get(trace)
        if queued_turn is not None and context.is_view_current and not self._is_current(queued_turn):
            self._changed_own_view.add(trace)

    def _is_current(self, queued_turn: QueuedTurn) -> bool:
        trigger = queued_turn.trigger
        return not isinstance(trigger, UiAction) or self.views.is_current(trigger)

    def reset(self) -> None:
        self._starting_trace = None
        self._started_calls.clear()
        self._awaits_sent.clear()
        self._awaiting_approval.clear()
        self._ending_agents.clear()
        self._unblocked_agents.clear()

    # reactions

    def react(
        self, envelope: Envelope, payload: Payload | UnknownPayload, context: EventContext
    ) -> list[Effect]:
        reaction = REACTIONS.get(type(payload))
        return reaction(self, envelope, payload, context.answered_call is not None) if reaction else []

    def resume(self) -> list[Effect]:
        """Return what a new owner has to do, after the interrupted calls of the last one were cancelled.

        Agents without open calls call their models. Calls that are neither waiting nor answered start, those
        of tools that may run twice again.
        """
        effects: list[Effect] = []
        children = self.tree.children_by_call()
        for agent_id, invocation in list(self.tree.open.items()):
            if not invocation.own_calls:
                effects += self.call_model(agent_id)
                continue
            for call_id, call in invocation.own_calls.items():
                self._started_calls.add((agent_id, call_id))
                if call.is_waiting:
                    effects += self._resume_waiting(invocation, call)
                elif (agent_id, call_id) not in children:
                    effects += self._resume_call(invocation, call)
            effects += self.advance_calls(invocation)
        return effects + self.start_next_turn()

    def _resume_waiting(self, invocation: Invocation, call: OpenCall) -> list[Effect]:
        if call.approval_request is not None:
            return [StartApprovalTimer(invocation.agent_id, call.approval_request)]
        if call.call.executor == "remote" and call.answer_seq < 0:
            # the last owner may have ended before it checked the roles or asked a person
            return self._route_call(invocation, call.call)
        return self.start_call_timer(invocation, call.call)

    def _resume_call(self, invocation: Invocation, call: OpenCall) -> list[Effect]:
        if call.is_denied:
            return [append_result(error_result(call.call, "DENIED", "a person said no"), invocation.scope)]
        if call.answer_seq < 0:
            return self._route_call(invocation, call.call)
        if call.call.executor == "backend":
            values = action_values(call.input) if call.input is not None else None
            return [RunTool(invocation.agent_id, call.call, values)]
        return self.start_call_timer(invocation, call.call)

    def _on_message(self, _: Envelope, __: UiMessage, ___: bool) -> list[Effect]:
        # a message inside a turn resumes the agents whose questions it cancelled; others wait in the queue
        unblocked, self._unblocked_agents = self._unblocked_agents, {}
        effects: list[Effect] = []
        for agent_id in unblocked:
            if not self.tree.open[agent_id].own_calls:
                effects += self.call_model(agent_id)
        return effects + self.start_next_turn()

    def _on_action(self, envelope: Envelope, payload: UiAction, first_answer: bool) -> list[Effect]:
        call = self.tree.find_call(envelope.agent_id, payload.call_id)
        if call is None:
            return self.start_next_turn()
        # a tool asked for this input; a call of the page gets its result in the same batch
        if call.call.executor == "backend" and first_answer:
            return [RunTool(envelope.agent_id or "", call.call, action_values(payload))]
        return []

    def _on_command(self, envelope: Envelope, payload: UiCommand, _: bool) -> list[Effect]:
        command = payload.command
        if isinstance(command, Stop) and self.tree.is_stop_applicable(command, envelope.channel):
            return [StopTurns(envelope.channel)]
        return []

    def _on_agent_start(self, envelope: Envelope, _: AgentStart, __: bool) -> list[Effect]:
        self._starting_trace = None
        return self.call_model(envelope.agent_id or "")

    def _on_agent_end(self, _: Envelope, __: AgentEnd, ___: bool) -> list[Effect]:
        return self.start_next_turn()

    def _on_usage(self, envelope: Envelope, _: AgentUsage, __: bool) -> list[Effect]:
        invocation = self.tree.open.get(envelope.agent_id or "")
        if invocation is None:
            return []
        return [*self.start_calls(invocation), *self.start_next_turn()]

    def _on_result(self, envelope: Envelope, payload: ToolResult, first_answer: bool) -> list[Effect]:
        invocation = self.tree.open.get(envelope.agent_id or "")
        if invocation is None or payload.kind is not None or not first_answer:
            return []
        # the event that cancelled the call follows in its batch and decides what happens next
        if envelope.origin == "system":
            self._unblocked_agents[invocation.agent_id] = None
            return []
        if invocation.own_calls:
            return self.advance_calls(invocation)
        return self.call_model(invocation.agent_id)

    def _on_wait(self, _: Envelope, __: ToolAwait | ApprovalRequest, ___: bool) -> list[Effect]:
        # while one channel waits, a turn of another may run
        return self.start_next_turn()

    def _on_decision(self, envelope: Envelope, payload: ApprovalDecision, first_answer: bool) -> list[Effect]:
        invocation = self.tree.open.get(envelope.agent_id or "")
        if invocation is None or not first_answer:
            return []
        call = invocation.calls[payload.call_id].call
        if payload.decision == "approve":
            if call.executor == "backend":
                return [RunTool(invocation.agent_id, call)]
            return [*self.start_call_timer(invocation, call), *self.advance_calls(invocation)]

        if payload.decision == "expired":
            reason = "no person answered in time"
        else:
            reason = payload.notes or "a person said no"
        return [append_result(error_result(call, "DENIED", reason), invocation.scope)]

    # turns

    def turns_to_stop(self, channel: str | None) -> set[str | None]:
        traces = self.tree.traces_to_stop
        starting = self.tree.queued_turns.get(self._starting_trace or "")
        if starting is not None and can_stop_reach(channel, starting.scope):
            return traces | {self._starting_trace}
        return traces

    def on_turns_stopped(self, traces: Collection[str | None]) -> None:
        # a turn that was stopped while it started is queued still, and may start again
        if self._starting_trace in traces:
            self._starting_trace = None

    def start_next_turn(self) -> list[Effect]:
        """Start the first queued turn if nothing runs. A channel whose agent waits is skipped."""
        if not self.tree.is_all_waiting or self.tree.handoff_targets or self._starting_trace:
            return []
        waiting_channels = {invocation.scope.channel for invocation in self.tree.open.values()}
        for trace, queued_turn in self.tree.queued_turns.items():
            if queued_turn.scope.channel in waiting_channels:
                continue
            self._starting_trace = trace
            # a view that the action's own rules have changed is no conflict: the action was carried out
            if trace in self._changed_own_view or self._is_current(queued_turn):
                return [AppendEvents([self._opening_event(queued_turn)])]
            return [AppendEvents(self._conflict_events(queued_turn))]
        return []

    def open_turn(self, turn: QueuedTurn) -> list[EventDraft]:
        """Start a turn whose message is appended in the same batch. Return nothing if it has to wait."""
        tree = self.tree
        if not tree.is_all_waiting or tree.handoff_targets or tree.queued_turns or self._starting_trace:
            return []
        if any(invocation.scope.channel == turn.scope.channel for invocation in tree.open.values()):
            return []
        self._starting_trace = turn.scope.trace_id
        return [self._opening_event(turn)]

    def _conflict_events(self, queued_turn: QueuedTurn) -> list[EventDraft]:
        """Build the turn of an action whose view another turn replaced or closed while the action waited.

        The turn ends in the batch that starts it: no model is called, and no history has the action.
        """
        agent = self._agent_team.agent_for(queued_turn.scope.channel, None)
        scope = self._agent_scope(agent, queued_turn.scope, 0)
        self._ending_agents.add(scope.agent_id or "")
        conflict = SessionError(code=ACTION_CONFLICT, message=VIEW_CHANGED_MESSAGE)
        return [
            build_agent_start(agent, scope, via="prompt", conversation_id=self._conversation_id(queued_turn)),
            EventDraft(conflict, scope, "system"),
            EventDraft(AgentEnd(stop_reason="error"), scope, "system"),
        ]

    def _opening_event(self, queued_turn: QueuedTurn) -> EventDraft:
        trigger = queued_turn.trigger
        target = trigger.target if isinstance(trigger, UiMessage) else None
        agent = self._agent_team.agent_for(queued_turn.scope.channel, target)
        # the tree does not have the tools of a message that is appended together with this event
        if isinstance(trigger, UiMessage) and trigger.tools:
            agent = with_client_tools(agent, trigger.tools)
        else:
            agent = self._with_client_tools(agent, queued_turn.scope)
        scope = self._agent_scope(agent, queued_turn.scope, 0)
        return build_agent_start(
            agent,
            scope,
            via="prompt",
            prompt=describe_input("", trigger) if trigger else None,
            content=trigger.content if isinstance(trigger, UiMessage) else (),
            conversation_id=self._conversation_id(queued_turn),
        )

    def _conversation_id(self, queued_turn: QueuedTurn) -> str | None:
        """Return the id of the channel's conversation; None if the next agent's own id becomes it."""
        known = self.tree.conversations.get(queued_turn.scope.channel or "")
        if known is not None or not isinstance(queued_turn.trigger, UiMessage):
            return known
        return queued_turn.trigger.conversation_id

    def _agent_scope(self, agent: Agent, within: Scope, depth: int) -> Scope:
        return structs.replace(within, agent_id=self._new_id("agt_"), agent_name=agent.name, depth=depth)

    def call_model(self, agent_id: str) -> list[Effect]:
        if agent_id not in self.tree.open or agent_id in self._ending_agents:
            return []
        return [CallModel(agent_id)]

    # calls

    def start_calls(self, invocation: Invocation) -> list[Effect]:
        effects: list[Effect] = []
        for call in list(invocation.own_calls.values()):
            key = (invocation.agent_id, call.call.call_id)
            if key not in self._started_calls and not call.awaits_page and call.approval_request is None:
                self._started_calls.add(key)
                effects += self._route_call(invocation, call.call)
        return effects + self.advance_calls(invocation)

    def _route_call(self, invocation: Invocation, call: ToolCall) -> list[Effect]:
        """Start one call. Calls of the page and hand-offs start when nothing else of the step is open."""
        if call.incomplete is not None:
            result = error_result(call, "VALIDATION_ERROR", "the arguments are not a JSON object")
            return [append_result(result, invocation.scope)]

        agent = self.agent_of(invocation)
        called_agent = agent.find_agent(call.tool)
        if called_agent is not None:
            return [self._call_agent(invocation, called_agent, call)]
        if agent.find_handoff_target(call.tool):
            return []

        tool = agent.find_tool(call.tool)
        if tool is None:
            result = tool_not_found(call, [spec.name for spec in agent.tool_specs])
            return [append_result(result, invocation.scope)]
        roles = {*self._agent_team.roles, *self.tree.actor_roles(invocation.scope.trace_id)}
        denial = check_tool_roles(tool, roles)
        if denial is not None:
            return [append_result(error_info_result(call, denial), invocation.scope)]

        if tool.needs_approval(call.args):
            # no person is asked about a call that cannot run
            problem = tool.validate(call)
            if isinstance(problem, ErrorInfo):
                return [append_result(error_info_result(call, problem), invocation.scope)]
            self._awaiting_approval.add((invocation.agent_id, call.call_id))
            return [RequestApproval(invocation.agent_id, call)]

        if tool.executor == "backend":
            return [RunTool(invocation.agent_id, call)]
        return self.start_call_timer(invocation, call)

    def start_call_timer(self, invocation: Invocation, call: ToolCall) -> list[Effect]:
        tool = self.agent_of(invocation).find_tool(call.tool)
        if call.executor != "remote" or tool is None or tool.timeout_s is None:
            return []
        return [StartCallTimer(invocation.agent_id, call, tool.timeout_s)]

    def _call_agent(self, parent: Invocation, agent: Agent, call: ToolCall) -> Effect:
        problem = check_call_prompt(call)
        if problem is not None:
            return append_result(error_info_result(call, problem), parent.scope)

        trace = parent.scope.trace_id or ""
        limit = self._agent_team.agent_for(parent.scope.channel, None).max_agents
        count = max(self.tree.agent_counts.get(trace, 0), self._agent_counts.get(trace, 0))
        if count >= limit:
            message = f"the turn has {limit} agents, which is its limit"
            return append_result(error_result(call, "EXECUTION_ERROR", message), parent.scope)
        self._agent_counts[trace] = count + 1

        resumes = call.args.get("resume_agent_id")
        conversation_id = None
        if isinstance(resumes, str) and AGENT_ID_PATTERN.fullmatch(resumes):
            conversation_id = self.tree.resumed_conversations.get(resumes) or strip_agent_prefix(resumes)
        start = build_agent_start(
            agent,
            self._agent_scope(agent, parent.scope, (parent.scope.depth or 0) + 1),
            via="call",
            prompt=call.args["prompt"],
            parent_id=parent.agent_id,
            call_id=call.call_id,
            resumes=resumes if conversation_id else None,
            conversation_id=conversation_id,
        )
        return AppendEvents([start])

    def advance_calls(self, invocation: Invocation) -> list[Effect]:
        """Ask the page if no other call runs. Hand over if only hand-offs are left."""
        if invocation.agent_id in self._ending_agents:
            return []
        page_calls: list[ToolCall] = []
        handoff_calls: list[ToolCall] = []
        for call in invocation.own_calls.values():
            if call.is_waiting or (invocation.agent_id, call.call.call_id) in self._awaiting_approval:
                continue
            if is_frontend_call(call.call):
                page_calls.append(call.call)
            elif self._is_handoff(invocation, call.call):
                handoff_calls.append(call.call)
            else:
                return []  # this call is running

        if page_calls:
            return self._request_page_input(invocation, page_calls)
        if handoff_calls and len(handoff_calls) == len(invocation.own_calls):
            return [AppendEvents(self._handoff_events(invocation, handoff_calls))]
        return []

    def _request_page_input(self, invocation: Invocation, calls: list[ToolCall]) -> list[Effect]:
        # once: an answer from elsewhere may arrive before the question is in the log
        keys = {(invocation.agent_id, call.call_id) for call in calls}
        if keys <= self._awaits_sent:
            return []
        self._awaits_sent |= keys
        agent = self.agent_of(invocation)
        questions = tuple(build_awaited_call(agent.find_tool(call.tool), call, call.args) for call in calls)
        return [AppendEvents([EventDraft(ToolAwait(calls=questions), invocation.scope, "system")])]

    # hand-offs

    def _is_handoff(self, invocation: Invocation, call: ToolCall) -> bool:
        agent = self.agent_of(invocation)
        return call.incomplete is None and agent.find_handoff_target(call.tool) is not None

    def _handoff_events(self, invocation: Invocation, calls: list[ToolCall]) -> list[EventDraft]:
        if self.tree.handoff_counts.get(invocation.scope.trace_id or "", 0) >= MAX_HANDOFFS:
            return self._handoff_limit_events(invocation, calls)
        first, *others = calls
        successor = self.agent_of(invocation).find_handoff_target(first.tool)
        assert successor is not None
        self._ending_agents.add(invocation.agent_id)

        scope = self._agent_scope(successor, invocation.scope, invocation.scope.depth or 0)
        results = [ok_result(first, f"Handed over to {successor.name}.")]
        results += [error_result(call, "CANCELLED", "another agent has taken over") for call in others]
        handoff = AgentHandoff(to=successor.name, to_agent_id=scope.agent_id or "")
        # only the successor of a root agent goes on with its conversation
        conversation_id = None
        if invocation.start.parent_id is None:
            conversation_id = invocation.start.conversation_id or strip_agent_prefix(invocation.agent_id)
            successor = self._with_client_tools(successor, invocation.scope)
        start = build_agent_start(
            successor,
            scope,
            via="handoff",
            prompt=str(first.args.get("prompt", "")),
            parent_id=invocation.start.parent_id,
            call_id=invocation.start.call_id,
            conversation_id=conversation_id,
        )
        return [
            *[EventDraft(result, invocation.scope, "tool") for result in results],
            *cancelled_results(provider_calls(invocation), invocation.scope, AGENT_ENDED_MESSAGE),
            EventDraft(handoff, invocation.scope, "system"),
            EventDraft(invocation.build_end("handoff"), invocation.scope, "system"),
            start,
        ]

    def _handoff_limit_events(self, invocation: Invocation, calls: list[ToolCall]) -> list[EventDraft]:
        self._ending_agents.add(invocation.agent_id)
        message = f"The work of this turn was handed over {MAX_HANDOFFS} times, which is the limit."
        results = [error_result(call, "EXECUTION_ERROR", message) for call in calls]
        end_events = self._end_events(
            invocation,
            invocation.build_end("error"),
            lambda call: error_result(call, "EXECUTION_ERROR", message),
        )
        return [
            *[EventDraft(result, invocation.scope, "tool") for result in results],
            *cancelled_results(provider_calls(invocation), invocation.scope, AGENT_ENDED_MESSAGE),
            EventDraft(SessionError(code=HANDOFF_LIMIT, message=message), invocation.scope, "system"),
            *end_events,
        ]

    # the ends of completions

    def completion_events(
        self, invocation: Invocation, reply: ReplyBuilder, ending: list[Payload], cost: Cost | None
    ) -> list[EventDraft]:
        scope = invocation.scope
        model = reply.model or invocation.start.model or UNKNOWN_MODEL
        usage = AgentUsage(model=model, usage=reply.usage, cost=cost)
        items = model_events(ending, scope)

        is_last_step = invocation.steps >= self.agent_of(invocation).max_steps
        continues = bool(reply.calls) or reply.stop_reason == "pause_turn"
        if continues and not is_last_step:
            return [*items, EventDraft(usage, scope, "system")]

        reason = "The limit of steps was reached." if is_last_step else AGENT_ENDED_MESSAGE
        items += cancelled_results(open_calls_after(invocation, ending), scope, reason)
        # the end is computed on a copy: the tree learns of usage and files from the log
        ended = replace(invocation, files=invocation.files + collect_files(ending))
        ended.add_usage(reply.usage, cost)
        stop_reason: StopReason = "max_steps" if is_last_step else stop_reason_of(reply)
        end = ended.build_end(stop_reason, reply.text_so_far)
        end_events = self._end_events(invocation, end, lambda call: ok_result(call, reply.text_so_far))
        return [*items, EventDraft(usage, scope, "system"), *end_events]

    def failure_events(
        self, invocation: Invocation, reply: ReplyBuilder, problem: SessionError
    ) -> list[EventDraft]:
        ending = without_unknown_ends(reply.abort(), invocation.blocks.keys())
        closed_blocks = {payload.block_id for payload in ending if isinstance(payload, BlockEnd)}
        for block_id, pieces in invocation.blocks.items():
            if block_id not in closed_blocks:
                ending.append(BlockEnd(block_id=block_id, status="aborted", text="".join(pieces)))

        items = model_events(ending, invocation.scope)
        open_calls = open_calls_after(invocation, ending)
        items += cancelled_results(open_calls, invocation.scope, AGENT_ENDED_MESSAGE)
        items.append(EventDraft(problem, invocation.scope, "system"))
        end = replace(invocation, files=invocation.files + collect_files(ending)).build_end("error")
        items += self._end_events(
            invocation, end, lambda call: error_result(call, "EXECUTION_ERROR", problem.message)
        )
        return items

    def _end_events(
        self, invocation: Invocation, end: AgentEnd, build_result: Callable[[ToolCall], ToolResult]
    ) -> list[EventDraft]:
        items = [EventDraft(end, invocation.scope, "system")]
        parent = self.tree.open.get(invocation.start.parent_id or "")
        call = parent.calls.get(invocation.start.call_id or "") if parent else None
        if parent is not None and call is not None:
            items.append(EventDraft(build_result(call.call), parent.scope, "tool"))
        return items


def without_unknown_ends(payloads: Iterable[Payload], open_blocks: Collection[str]) -> list[Payload]:
    """Leave out the ends of blocks that are not open: the log refused the batch with their start."""
    known_blocks = set(open_blocks)
    kept_payloads: list[Payload] = []
    for payload in payloads:
        if isinstance(payload, BlockStart):
            known_blocks.add(payload.block_id)
        if not isinstance(payload, BlockEnd) or payload.block_id in known_blocks:
            kept_payloads.append(payload)
    return kept_payloads


REACTIONS: dict[type, Callable[[TurnLoop, Envelope, Any, bool], list[Effect]]] = {
    UiMessage: TurnLoop._on_message,
    UiAction: TurnLoop._on_action,
    UiCommand: TurnLoop._on_command,
    AgentStart: TurnLoop._on_agent_start,
    AgentEnd: TurnLoop._on_agent_end,
    AgentUsage: TurnLoop._on_usage,
    ToolAwait: TurnLoop._on_wait,
    ApprovalRequest: TurnLoop._on_wait,
    ToolResult: TurnLoop._on_result,
    ApprovalDecision: TurnLoop._on_decision,
}


def find_answered_call(tree: Tree, envelope: Envelope, payload: Payload | UnknownPayload) -> OpenCall | None:
    """Return the open call that an event is the first answer to. Call it before the tree has the event."""
    if not isinstance(payload, ToolResult | UiAction | ApprovalDecision):
        return None
    call = tree.find_call(envelope.agent_id, payload.call_id)
    if isinstance(payload, UiAction) and call is not None and not call.awaits_page:
        return None
    if isinstance(payload, ApprovalDecision) and call is not None and call.approval_request is None:
        return None
    return call


def check_call_prompt(call: ToolCall) -> ErrorInfo | None:
    prompt = call.args.get("prompt")
    if isinstance(prompt, str) and prompt.strip():
        return None
    message = "expected a prompt that says what to do"
    return ErrorInfo(code="VALIDATION_ERROR", message=message, details={"path": ["prompt"]})


def is_frontend_call(call: ToolCall) -> bool:
    return call.executor == "frontend" and call.incomplete is None


def provider_calls(invocation: Invocation) -> list[ToolCall]:
    return [call.call for call in invocation.calls.values() if call.call.executor == "provider"]


def open_calls_after(invocation: Invocation, ending: Iterable[Payload]) -> list[ToolCall]:
    calls = {key: call.call for key, call in invocation.calls.items()}
    for payload in ending:
        if isinstance(payload, ToolCall):
            calls[payload.call_id] = payload
        elif isinstance(payload, ToolResult):
            calls.pop(payload.call_id, None)
    return list(calls.values())


def collect_files(ending: Iterable[Payload]) -> tuple[File, ...]:
    return tuple(file for payload in ending if isinstance(payload, AssistantFiles) for file in payload.files)


def stop_reason_of(reply: ReplyBuilder) -> StopReason:
    reason = reply.stop_reason
    if reason is None or reason == "tool_use" or reason == "pause_turn":
        return "end_turn"
    return reason


def action_values(action: UiAction) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(action.action)
    values: dict[str, Any] = fields.get("values", fields)
    return values


def build_agent_start(agent: Agent, scope: Scope, **fields: Any) -> EventDraft:
    names = tuple(spec.name for spec in agent.tool_specs)
    start = AgentStart(name=agent.name, model=agent.model.name, tools=names, **fields)
    return EventDraft(start, scope, "system")


def append_result(result: ToolResult, scope: Scope) -> AppendEvents:
    return AppendEvents([EventDraft(result, scope, "tool")])


def model_events(payloads: Iterable[Payload], scope: Scope) -> list[EventDraft]:
    items: list[EventDraft] = []
    for payload in payloads:
        origin: Origin = "system" if isinstance(payload, ParseReject) else "model"
        items.append(EventDraft(payload, scope, origin))
    return items


def cancelled_results(calls: Iterable[ToolCall], scope: Scope, reason: str) -> list[EventDraft]:
    return [EventDraft(ToolResult.cancelled(call, reason), scope, "system") for call in calls]
