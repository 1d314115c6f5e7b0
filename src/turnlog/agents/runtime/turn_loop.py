"""The turn loop: what follows from an event. Pure: an event and the open tree in, effects out; ids come in.

A message starts an agent when nothing else is open; a start asks its model; the end of a completion
(`agent.usage`, behind its calls) starts the calls in it; the last result asks the model again. Backend calls
of a step finish before the page is asked, and the page before a hand-off takes place. `Ask` and `Run` are for
the driver; everything else an event causes is a batch of other events. Events come one by one: nothing here
follows from half a batch, and only the first answer to a call counts.
"""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from msgspec import structs

from turnlog.agents.agent import Agent, AgentTeam
from turnlog.agents.runtime.approvals import check_tool_roles
from turnlog.agents.runtime.loop_inputs import (
    action_values,
    build_awaited_call,
    check_call_prompt,
    collect_files,
    is_frontend_call,
    open_calls_after,
    stop_reason_of,
)
from turnlog.agents.tools import error_info_result, error_result, ok_result, tool_not_found
from turnlog.events import (
    AgentEnd,
    AgentHandoff,
    AgentStart,
    AgentUsage,
    ApprovalDecision,
    ApprovalRequest,
    BlockEnd,
    Cost,
    Envelope,
    ErrorInfo,
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
from turnlog.events.ui import Stop
from turnlog.parse.reply import ReplyBuilder
from turnlog.state.closing import build_cancelled_result
from turnlog.state.descriptions import describe_input
from turnlog.state.tree import Invocation, OpenCall, QueuedTurn, Tree, can_stop_reach
from turnlog.state.view_actions import OpenViews

UNKNOWN_MODEL = "unknown"  # a model that does not say what it is
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


class TurnEvent(NamedTuple):
    """An event before it is built."""

    payload: Payload
    scope: Scope
    origin: Origin


class CallModel(NamedTuple):
    """Ask the model of an agent."""

    agent_id: str


class RunTool(NamedTuple):
    """Run a tool; `values` is the input it asked for."""

    agent_id: str
    call: ToolCall
    values: dict[str, Any] | None = None


class RequestApproval(NamedTuple):
    """Ask a person whether a call may run."""

    agent_id: str
    call: ToolCall


class StartCallTimer(NamedTuple):
    """Answer a call with `TIMEOUT` when another process has not answered it in time."""

    agent_id: str
    call: ToolCall
    timeout_s: float


class AppendEvents(NamedTuple):
    """Append a batch."""

    items: list[TurnEvent]


class StopTurns(NamedTuple):
    """Stop what is in a channel and in none; without a channel everything in this session."""

    channel: str | None


Effect = CallModel | RunTool | RequestApproval | StartCallTimer | AppendEvents | StopTurns


class TurnLoop:
    """What one process does in one session; only what it has begun itself is remembered here."""

    def __init__(self, team: AgentTeam, new_id: Callable[[Any], str]) -> None:
        self._agent_team = team
        self.agents_by_name = team.by_name
        self.tree = Tree()
        self.views = OpenViews()
        self._new_id = new_id
        self._starting_trace: str | None = None
        self._agent_counts: dict[str, int] = {}  # by turn: with those whose start is not in the log yet
        self._started_calls: set[tuple[str, str]] = set()
        self._awaits_sent: set[tuple[str, str]] = set()
        self._awaiting_approval: set[tuple[str, str]] = set()
        self._ending_agents: set[str] = set()
        self._unblocked_agents: dict[str, None] = {}
        self._changed_own_view: set[str] = set()  # queued turns of actions whose rules changed the view
        self._is_first_answer = False

    def agent_of(self, invocation: Invocation) -> Agent:
        """Who is invoked; one that is no longer in the team is played by the first."""
        return self.agents_by_name.get(invocation.start.name, self._agent_team.root)

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        """Take an event into account."""
        self._is_first_answer = is_first_answer(self.tree, envelope, payload)
        self.tree.apply(envelope, payload)
        self._apply_to_views(envelope, payload)
        if isinstance(payload, AgentStart):
            self._changed_own_view.discard(envelope.trace_id or "")
        elif isinstance(payload, AgentEnd):
            agent_id = envelope.agent_id or ""
            if envelope.trace_id not in self.tree.agent_counts:
                self._agent_counts.pop(envelope.trace_id or "", None)
            self._ending_agents.discard(agent_id)
            self._unblocked_agents.pop(agent_id, None)
            self._started_calls = {key for key in self._started_calls if key[0] != agent_id}
            self._awaits_sent = {key for key in self._awaits_sent if key[0] != agent_id}
            self._awaiting_approval = {key for key in self._awaiting_approval if key[0] != agent_id}
        elif isinstance(payload, ApprovalDecision | ToolResult):
            self._awaiting_approval.discard((envelope.agent_id or "", payload.call_id))
        if isinstance(payload, ToolResult):  # a model may use the id of a call again
            self._started_calls.discard((envelope.agent_id or "", payload.call_id))
            self._awaits_sent.discard((envelope.agent_id or "", payload.call_id))

    def _apply_to_views(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        trace = envelope.trace_id or ""
        opening = self.tree.queued_turns.get(trace)
        was_current = opening is not None and self._is_current(opening)
        self.views.apply(envelope, payload)
        if opening is not None and was_current and not self._is_current(opening):
            self._changed_own_view.add(trace)

    def _is_current(self, opening: QueuedTurn) -> bool:
        """Whether the view of a queued action is open as the person saw it; True for any other opening."""
        return not isinstance(opening.trigger, UiAction) or self.views.is_current(opening.trigger)

    def react(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[Effect]:
        """What follows from an event that was applied."""
        reaction = REACTIONS.get(type(payload))
        return reaction(self, envelope, payload) if reaction else []

    def reset(self) -> None:
        """What was begun is stopped."""
        self._starting_trace = None
        self._started_calls.clear()
        self._awaits_sent.clear()
        self._awaiting_approval.clear()
        self._ending_agents.clear()
        self._unblocked_agents.clear()

    # turns

    def turns_to_stop(self, channel: str | None) -> set[str | None]:
        """The turns that a stop in a channel ends, the one that is just being started too."""
        opening = self.tree.queued_turns.get(self._starting_trace or "")
        starting = opening is not None and can_stop_reach(channel, opening.scope)
        return self.tree.traces_to_stop | ({self._starting_trace} if starting else set())

    def on_turns_stopped(self, traces: Collection[str | None]) -> None:
        """Some turns are over, also one that had not begun: it may begin anew."""
        if self._starting_trace in traces:
            self._starting_trace = None

    def start_next_turn(self) -> list[Effect]:
        """The next message in line, when nothing runs; a channel whose agent waits is left to it."""
        if not self.tree.is_all_waiting or self.tree.handoff_targets or self._starting_trace:
            return []
        waiting = {invocation.scope.channel for invocation in self.tree.open.values()}
        for trace, opening in self.tree.queued_turns.items():
            if opening.scope.channel not in waiting:
                self._starting_trace = trace
                # a view that the action's own rules have changed is no conflict: the action was carried out
                if trace not in self._changed_own_view and not self._is_current(opening):
                    return [AppendEvents(self._conflict_events(opening))]
                return [AppendEvents([self._opening_event(opening)])]
        return []

    def _conflict_events(self, opening: QueuedTurn) -> list[TurnEvent]:
        """The turn of an action whose view another turn showed again, or closed, while the action waited.

        The turn ends where it begins. No model is asked, and the action is in no model's history.
        """
        agent = self._agent_team.agent_for(opening.scope.channel, None)
        scope = self._agent_scope(agent, opening.scope, 0)
        self._ending_agents.add(scope.agent_id or "")
        conflict = SessionError(code=ACTION_CONFLICT, message=VIEW_CHANGED_MESSAGE)
        return [
            build_agent_start(agent, scope, via="prompt", prompt=None),
            TurnEvent(conflict, scope, "system"),
            TurnEvent(AgentEnd(stop_reason="error"), scope, "system"),
        ]

    def _opening_event(self, opening: QueuedTurn) -> TurnEvent:
        named = opening.trigger.target if isinstance(opening.trigger, UiMessage) else None
        agent = self._agent_team.agent_for(opening.scope.channel, named)
        prompt = describe_input("", opening.trigger) if opening.trigger else None
        return build_agent_start(
            agent, self._agent_scope(agent, opening.scope, 0), via="prompt", prompt=prompt
        )

    def _agent_scope(self, agent: Agent, within: Scope, depth: int) -> Scope:
        """The scope of an agent in the turn and the channel of another scope."""
        return structs.replace(within, agent_id=self._new_id("agt_"), agent_name=agent.name, depth=depth)

    def call_model(self, agent_id: str) -> list[Effect]:
        """Ask the model, unless its agent is about to leave."""
        return (
            [CallModel(agent_id)]
            if agent_id in self.tree.open and agent_id not in self._ending_agents
            else []
        )

    # calls

    def start_calls(self, invocation: Invocation) -> list[Effect]:
        """Start the calls of a completion, then see what is left."""
        effects: list[Effect] = []
        for call in list(invocation.own_calls.values()):
            key = invocation.agent_id, call.call.call_id
            if key not in self._started_calls and not call.awaits_page and call.approval_request is None:
                self._started_calls.add(key)
                effects += self._route_call(invocation, call.call)
        return effects + self.advance_calls(invocation)

    def _route_call(self, invocation: Invocation, call: ToolCall) -> list[Effect]:
        """Who a call is for; calls for the page, for others and hand-offs come when they are alone."""
        agent = self.agent_of(invocation)
        tool, called = agent.find_tool(call.tool), agent.find_agent(call.tool)
        if call.incomplete is not None:
            answer = error_result(call, "VALIDATION_ERROR", "the arguments are not a JSON object")
            return [AppendEvents([TurnEvent(answer, invocation.scope, "tool")])]
        if called is not None and (fault := check_call_prompt(call)):
            return [AppendEvents([TurnEvent(error_info_result(call, fault), invocation.scope, "tool")])]
        if called is not None:
            return [AppendEvents([self._call_agent(invocation, called, call)])]
        if agent.find_handoff_target(call.tool):
            return []
        if tool is None:
            answer = tool_not_found(call, [spec.name for spec in agent.tool_specs])
            return [AppendEvents([TurnEvent(answer, invocation.scope, "tool")])]
        if fault := check_tool_roles(
            tool, {*self._agent_team.roles, *self.tree.actor_roles(invocation.scope.trace_id)}
        ):
            return [AppendEvents([TurnEvent(error_info_result(call, fault), invocation.scope, "tool")])]
        if tool.needs_approval(call.args):
            problem = tool.validate(call)  # nobody is asked about a call that cannot run
            if isinstance(problem, ErrorInfo):
                return [AppendEvents([TurnEvent(error_info_result(call, problem), invocation.scope, "tool")])]
            self._awaiting_approval.add((invocation.agent_id, call.call_id))
            return [RequestApproval(invocation.agent_id, call)]
        return (
            [RunTool(invocation.agent_id, call)]
            if tool.executor == "backend"
            else self.start_call_timer(invocation, call)
        )

    def start_call_timer(self, invocation: Invocation, call: ToolCall) -> list[Effect]:
        """Start the clock of a call that another process answers, if its tool has a limit."""
        tool = self.agent_of(invocation).find_tool(call.tool)
        if call.executor != "remote" or tool is None or tool.timeout_s is None:
            return []
        return [StartCallTimer(invocation.agent_id, call, tool.timeout_s)]

    def _call_agent(self, parent: Invocation, agent: Agent, call: ToolCall) -> TurnEvent:
        """Start the agent that a call names; refuse the call when the turn has as many agents as it may."""
        trace, most = (
            parent.scope.trace_id or "",
            self._agent_team.agent_for(parent.scope.channel, None).max_agents,
        )
        number = max(self.tree.agent_counts.get(trace, 0), self._agent_counts.get(trace, 0))
        if number >= most:
            answer = error_result(call, "EXECUTION_ERROR", f"the turn has {most} agents, which is its limit")
            return TurnEvent(answer, parent.scope, "tool")
        self._agent_counts[trace] = number + 1
        return self._start_called_agent(parent, agent, call)

    def _start_called_agent(self, parent: Invocation, agent: Agent, call: ToolCall) -> TurnEvent:
        scope = self._agent_scope(agent, parent.scope, (parent.scope.depth or 0) + 1)
        resumes = call.args.get("resume_agent_id")
        return build_agent_start(
            agent,
            scope,
            via="call",
            prompt=call.args["prompt"],
            parent_id=parent.agent_id,
            call_id=call.call_id,
            resumes=resumes if isinstance(resumes, str) and AGENT_ID_PATTERN.fullmatch(resumes) else None,
        )

    def advance_calls(self, invocation: Invocation) -> list[Effect]:
        """With nothing running: ask the page for what is left for it, then hand over."""
        if invocation.agent_id in self._ending_agents:
            return []
        calls = invocation.own_calls.values()
        page: list[ToolCall] = []
        passes: list[ToolCall] = []
        for call in calls:
            if call.is_waiting or self._is_awaiting_approval(invocation, call):
                continue
            if is_frontend_call(call.call):
                page.append(call.call)
            elif self._is_handoff(invocation, call):
                passes.append(call.call)
            else:
                return []  # it runs
        if page:
            return self._request_page_input(invocation, page)
        return (
            [AppendEvents(self._handoff_events(invocation, passes))]
            if passes and len(passes) == len(calls)
            else []
        )

    def _is_awaiting_approval(self, invocation: Invocation, call: OpenCall) -> bool:
        """Whether a person has yet to agree, though the question may not be in the log."""
        return (invocation.agent_id, call.call.call_id) in self._awaiting_approval

    def _request_page_input(self, invocation: Invocation, calls: list[ToolCall]) -> list[Effect]:
        """Ask the page, once: an answer from elsewhere may come before the question is in the log."""
        keys = {(invocation.agent_id, call.call_id) for call in calls}
        if keys <= self._awaits_sent:
            return []
        self._awaits_sent |= keys
        agent = self.agent_of(invocation)
        questions = tuple(build_awaited_call(agent.find_tool(call.tool), call, call.args) for call in calls)
        return [AppendEvents([TurnEvent(ToolAwait(calls=questions), invocation.scope, "system")])]

    def _is_handoff(self, invocation: Invocation, call: OpenCall) -> bool:
        return (
            call.call.incomplete is None
            and self.agent_of(invocation).find_handoff_target(call.call.tool) is not None
        )

    def _handoff_events(self, invocation: Invocation, calls: list[ToolCall]) -> list[TurnEvent]:
        """One batch: the result, the hand-off, the end, and the start of whoever takes the place."""
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
        provided = [call.call for call in invocation.calls.values() if call.call.executor == "provider"]
        return [
            *[TurnEvent(result, invocation.scope, "tool") for result in results],
            *cancelled_results(provided, invocation.scope, AGENT_ENDED_MESSAGE),
            TurnEvent(handoff, invocation.scope, "system"),
            TurnEvent(invocation.build_end("handoff"), invocation.scope, "system"),
            build_agent_start(
                successor,
                scope,
                via="handoff",
                prompt=str(first.args.get("prompt", "")),
                parent_id=invocation.start.parent_id,
                call_id=invocation.start.call_id,
            ),
        ]

    def _handoff_limit_events(self, invocation: Invocation, calls: list[ToolCall]) -> list[TurnEvent]:
        """End an agent that would hand over once too often in its turn, in one batch."""
        self._ending_agents.add(invocation.agent_id)
        message = f"The work of this turn was handed over {MAX_HANDOFFS} times, which is the limit."
        results = [error_result(call, "EXECUTION_ERROR", message) for call in calls]
        provided = [call.call for call in invocation.calls.values() if call.call.executor == "provider"]
        return [
            *[TurnEvent(result, invocation.scope, "tool") for result in results],
            *cancelled_results(provided, invocation.scope, AGENT_ENDED_MESSAGE),
            TurnEvent(SessionError(code=HANDOFF_LIMIT, message=message), invocation.scope, "system"),
            *self._end_events(
                invocation,
                invocation.build_end("error"),
                lambda call: error_result(call, "EXECUTION_ERROR", message),
            ),
        ]

    # the ends of completions

    def completion_events(
        self, invocation: Invocation, reply: ReplyBuilder, ending: list[Payload], cost: Cost | None
    ) -> list[TurnEvent]:
        """The end of a reply and what follows from it, in one append: its calls start with it."""
        usage = AgentUsage(
            model=reply.model or invocation.start.model or UNKNOWN_MODEL, usage=reply.usage, cost=cost
        )
        items, spent = model_events(ending, invocation.scope), TurnEvent(usage, invocation.scope, "system")
        last = invocation.steps >= self.agent_of(invocation).max_steps
        if not last and (reply.calls or reply.stop_reason == "pause_turn"):
            return [*items, spent]
        why = "The limit of steps was reached." if last else AGENT_ENDED_MESSAGE
        items += cancelled_results(open_calls_after(invocation, ending), invocation.scope, why)
        ended = replace(invocation, files=invocation.files + collect_files(ending))
        ended.add_usage(reply.usage, cost)  # a copy: the tree learns of it from the log
        end = ended.build_end("max_steps" if last else stop_reason_of(reply), reply.text_so_far)
        return [
            *items,
            spent,
            *self._end_events(invocation, end, lambda call: ok_result(call, reply.text_so_far)),
        ]

    def failure_events(
        self, invocation: Invocation, reply: ReplyBuilder, problem: SessionError
    ) -> list[TurnEvent]:
        """The end of an agent whose model failed, or said what cannot be written."""
        ending = reply.abort()
        closed = {payload.block_id for payload in ending if isinstance(payload, BlockEnd)}
        ending += [
            BlockEnd(block_id=block_id, status="aborted", text="".join(pieces))
            for block_id, pieces in invocation.blocks.items()
            if block_id not in closed
        ]
        items = model_events(ending, invocation.scope)
        items += cancelled_results(
            open_calls_after(invocation, ending), invocation.scope, AGENT_ENDED_MESSAGE
        )
        items.append(TurnEvent(problem, invocation.scope, "system"))
        end = replace(invocation, files=invocation.files + collect_files(ending)).build_end("error")
        return items + self._end_events(
            invocation, end, lambda call: error_result(call, "EXECUTION_ERROR", problem.message)
        )

    def _end_events(
        self, invocation: Invocation, end: AgentEnd, answer: Callable[[ToolCall], ToolResult]
    ) -> list[TurnEvent]:
        """The end of an agent, and in the same batch the answer to the call that started it."""
        items = [TurnEvent(end, invocation.scope, "system")]
        parent = self.tree.open.get(invocation.start.parent_id or "")
        if parent and (call := parent.calls.get(invocation.start.call_id or "")):
            items.append(TurnEvent(answer(call.call), parent.scope, "tool"))
        return items


def _on_message(loop: TurnLoop, envelope: Envelope, _: UiMessage) -> list[Effect]:
    """A message inside a turn wakes the agents it freed; another one waits for its turn."""
    freed, loop._unblocked_agents = loop._unblocked_agents, {}
    awake = [agent_id for agent_id in freed if not loop.tree.open[agent_id].own_calls]
    return [effect for agent_id in awake for effect in loop.call_model(agent_id)] + loop.start_next_turn()


def _on_action(loop: TurnLoop, envelope: Envelope, payload: UiAction) -> list[Effect]:
    """An input that a tool asked for; for the page's own calls the result comes with it."""
    call = loop.tree.find_call(envelope.agent_id, payload.call_id)
    if call is None:
        return loop.start_next_turn()
    if call.call.executor != "backend" or not loop._is_first_answer:
        return []
    return [RunTool(envelope.agent_id or "", call.call, action_values(payload))]


def _on_command(loop: TurnLoop, envelope: Envelope, payload: UiCommand) -> list[Effect]:
    channel = envelope.channel
    stops = isinstance(payload.command, Stop) and loop.tree.is_stop_applicable(payload.command, channel)
    return [StopTurns(channel)] if stops else []


def _on_agent_start(loop: TurnLoop, envelope: Envelope, _: AgentStart) -> list[Effect]:
    loop._starting_trace = None
    return loop.call_model(envelope.agent_id or "")


def _on_agent_end(loop: TurnLoop, _: Envelope, __: AgentEnd) -> list[Effect]:
    return loop.start_next_turn()


def _on_usage(loop: TurnLoop, envelope: Envelope, _: AgentUsage) -> list[Effect]:
    invocation = loop.tree.open.get(envelope.agent_id or "")
    return [*loop.start_calls(invocation), *loop.start_next_turn()] if invocation else []


def _on_result(loop: TurnLoop, envelope: Envelope, payload: ToolResult) -> list[Effect]:
    """The model goes on when nothing is open; who cancelled a call decides what comes next."""
    invocation = loop.tree.open.get(envelope.agent_id or "")
    if invocation is None or payload.kind is not None or not loop._is_first_answer:
        return []
    if envelope.origin == "system":
        loop._unblocked_agents[invocation.agent_id] = None
        return []
    return loop.advance_calls(invocation) if invocation.own_calls else loop.call_model(invocation.agent_id)


def _on_wait(loop: TurnLoop, _: Envelope, __: ToolAwait | ApprovalRequest) -> list[Effect]:
    """While one channel waits, another may have its turn."""
    return loop.start_next_turn()


def _on_decision(loop: TurnLoop, envelope: Envelope, payload: ApprovalDecision) -> list[Effect]:
    invocation = loop.tree.open.get(envelope.agent_id or "")
    if invocation is None or not loop._is_first_answer:
        return []
    call = invocation.calls[payload.call_id]
    if payload.decision == "approve":
        here = call.call.executor == "backend"
        if here:
            return [RunTool(invocation.agent_id, call.call)]
        return [*loop.start_call_timer(invocation, call.call), *loop.advance_calls(invocation)]
    why = "nobody answered in time" if payload.decision == "expired" else payload.notes or "a person said no"
    return [AppendEvents([TurnEvent(error_result(call.call, "DENIED", why), invocation.scope, "tool")])]


REACTIONS: dict[type, Callable[[TurnLoop, Envelope, Any], list[Effect]]] = {
    UiMessage: _on_message,
    UiAction: _on_action,
    UiCommand: _on_command,
    AgentStart: _on_agent_start,
    AgentEnd: _on_agent_end,
    AgentUsage: _on_usage,
    ToolAwait: _on_wait,
    ApprovalRequest: _on_wait,
    ToolResult: _on_result,
    ApprovalDecision: _on_decision,
}


ANSWER_MATCHERS: dict[type, Callable[[OpenCall], bool]] = {
    ToolResult: lambda call: True,
    UiAction: lambda call: call.awaits_page,
    ApprovalDecision: lambda call: call.approval_request is not None,
}


def is_first_answer(tree: Tree, envelope: Envelope, payload: Any) -> bool:
    """Whether an answer is the first one to its call; asked before the tree has it."""
    fits = ANSWER_MATCHERS.get(type(payload))
    call = tree.find_call(envelope.agent_id, payload.call_id) if fits else None
    return fits is not None and call is not None and fits(call)


def build_agent_start(agent: Agent, scope: Scope, **fields: Any) -> TurnEvent:
    """The start of an agent."""
    names = tuple(spec.name for spec in agent.tool_specs)
    return TurnEvent(
        AgentStart(name=agent.name, model=agent.mind.name, tools=names, **fields), scope, "system"
    )


def model_events(payloads: Iterable[Payload], scope: Scope) -> list[TurnEvent]:
    """What a model said; its refused tags are the system's to tell."""
    return [
        TurnEvent(payload, scope, "system" if isinstance(payload, ParseReject) else "model")
        for payload in payloads
    ]


def cancelled_results(calls: Iterable[ToolCall], scope: Scope, why: str) -> list[TurnEvent]:
    """The results of calls that nobody will answer any more."""
    return [TurnEvent(build_cancelled_result(call, why), scope, "system") for call in calls]
