"""The runtime of a session that agents answer: executes the effects of the turn loop.

The loop decides; this runtime calls models, runs tools and appends events through its host. Every effect
follows from an event, so the log has what a crash interrupted, and another process can continue: `seen` of
the lease is stored before this process acts on an answer, so no answer is acted on twice. A stop cancels the
tasks of a turn and appends events that close what they left open.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from turnlog.agents.runtime.approval_timers import ApprovalTimers, next_expiry_ms
from turnlog.agents.runtime.approvals import build_approval_request
from turnlog.agents.runtime.completions import Completions
from turnlog.agents.runtime.executor import Executor
from turnlog.agents.runtime.idempotency import find_idempotency_key
from turnlog.agents.runtime.optimistic_append import AppendPlan, append_if_unchanged
from turnlog.agents.runtime.session_runtime import OnCrash
from turnlog.agents.runtime.turn_loop import (
    AppendEvents,
    CallModel,
    Effect,
    EventContext,
    RequestApproval,
    RunTool,
    StartApprovalTimer,
    StartCallTimer,
    StopTurns,
    TurnLoop,
)
from turnlog.agents.runtime.turn_timeout import Trace, running_turns, timeout_events
from turnlog.agents.tool_context import ToolContext, WaitForInput
from turnlog.agents.tools import build_awaited_call, error_result, tool_not_found
from turnlog.errors import InvalidEvent, SessionClosed
from turnlog.events import (
    ApprovalDecision,
    Envelope,
    EventDraft,
    Payload,
    Scope,
    SessionError,
    ToolAwait,
    ToolCall,
    ToolResult,
    UiAction,
    UiMessage,
    UnknownPayload,
    Vocabulary,
)
from turnlog.ids import new_id, now_ms
from turnlog.state.closing import build_closing_events, build_interruption_events
from turnlog.state.tree import Invocation, OpenCall, restrict_to_turns

if TYPE_CHECKING:
    from turnlog.agents.runtime.session_runner import SessionRunner
    from turnlog.agents.team import AgentTeam

log = logging.getLogger("turnlog.agents")

STOPPED_MESSAGE = "Stopped by the user."
CRASH_MESSAGE = "The server stopped while this was running."
SHUTDOWN_MESSAGE = "The server was stopped."
INTERRUPTED_MESSAGE = "The process that ran this has ended; it is not known whether it took effect."
WORKER_LOST_MESSAGE = "The process that ran this turn ended twice; the turn was closed."
MAX_CRASHES = 2  # of processes that ran one turn; a third one would only die, too


class AgentRuntime:
    """Runs the agents of one session."""

    def __init__(self, host: "SessionRunner", team: "AgentTeam", vocabulary: Vocabulary | None) -> None:
        self._host = host
        self._tree = host.tree
        self._turn_loop = TurnLoop(team, host.tree, host.folds.views, new_id)
        self._completions = Completions(host, self._turn_loop, vocabulary, team.channel_vocabularies)
        self._executor = Executor(
            partial(host.log.put_blob, host.session_id),
            confirm=host.confirm_ownership,
            describe=host.options.describe,
            hung=host.options.hung_tools,
        )
        self._approval_timers = ApprovalTimers(host)
        self._acted_seq = host.lease.seen  # answers up to here were acted on

    # folding

    def inspect(self, envelope: Envelope, payload: Payload | UnknownPayload) -> EventContext:
        return self._turn_loop.inspect(envelope, payload)

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload, context: EventContext) -> None:
        self._turn_loop.apply(envelope, payload, context)
        self._completions.history.apply(envelope, payload)
        self._executor.idempotency_cache.apply(envelope, payload)
        self._approval_timers.apply(envelope, payload)

    @property
    def running_turns(self) -> set[Trace]:
        return running_turns(self._tree)

    @property
    def is_quiet(self) -> bool:
        return True  # what runs has a task, and what waits is in the log

    @property
    def wake_at_ms(self) -> int | None:
        expiry_ms = next_expiry_ms(self._tree)
        expiries_ms = [] if expiry_ms is None else [expiry_ms]
        for invocation in self._tree.open.values():
            for call in invocation.calls.values():
                is_remote = call.approval_request is None and call.is_waiting
                if is_remote and self._turn_loop.start_call_timer(invocation, call.call):
                    # no timer of this process is left: the next owner starts it again
                    expiries_ms.append(now_ms())
        return min(expiries_ms, default=None)

    # after another owner, and before the next

    async def close_interrupted(self, on_crash: OnCrash) -> None:
        await self._append_stops()
        if self._host.lease.attempts >= MAX_CRASHES:
            await self._host.append_closings(self._worker_lost_events)
        elif on_crash == "close":
            await self._host.append_closings(lambda: self._crash_events(CRASH_MESSAGE))
        await self._append_interruption()

    def _crash_events(self, message: str) -> list[EventDraft]:
        """Close what runs, except agents that run only because of an answer that no owner has acted on."""
        answered = [key for key, agent in self._tree.open.items() if agent.answer_seq > self._acted_seq]
        return build_closing_events(self._tree, "error", message, keep_waiting=True, kept_agents=answered)

    def _worker_lost_events(self) -> list[EventDraft]:
        ends = self._crash_events(WORKER_LOST_MESSAGE)
        scopes = {end.scope.trace_id: end.scope for end in reversed(ends)}
        problem = SessionError(code="worker_lost", message=WORKER_LOST_MESSAGE)
        return [*(EventDraft(problem, scope, "system") for scope in scopes.values()), *ends]

    async def _append_interruption(self) -> None:
        await self._host.append_closings(
            lambda: build_interruption_events(self._tree, self._is_interrupted, INTERRUPTED_MESSAGE)
        )

    def _is_interrupted(self, invocation: Invocation, call: OpenCall) -> bool:
        """Return whether a tool may have run, and must not run again."""
        if call.is_waiting or call.is_denied or call.call.executor != "backend":
            return False
        tool = self._turn_loop.agent_of(invocation).find_tool(call.call.tool)
        if tool is None:
            return False  # an agent, a hand-off, or no tool any more: starting it again does no harm
        if call.answer_seq < 0 and tool.needs_approval(call.call.args):
            return False  # no person was asked yet
        if call.answer_seq > self._acted_seq:
            return False
        return tool.kind != "read" and find_idempotency_key(call.call) is None

    async def _append_stops(self) -> None:
        """Close the turns that members have stopped while no runner followed the log."""
        if self._tree.traces_to_stop:
            await self._host.append_closings(lambda: self._cancel_events(self._tree.traces_to_stop))

    async def resume(self) -> None:
        # a stop may have arrived while the runner was being opened
        await self._append_stops()
        await self._save_seen_if_answered()
        await self._execute(self._turn_loop.resume())

    async def _save_seen_if_answered(self) -> None:
        if any(agent.answer_seq > self._acted_seq for agent in self._tree.open.values()):
            await self._host.save_seen()

    async def stop(self, on_crash: OnCrash) -> None:
        await self._cancel_all()
        self._acted_seq = self._host.processed_seq
        with suppress(SessionClosed):  # a closed session accepts no more events
            if on_crash == "close":
                await self._host.append_closings(lambda: self._crash_events(SHUTDOWN_MESSAGE))
            await self._append_interruption()

    def hand_over(self) -> None:
        # Tools of the current step still run to their end: whether one has started is not in the log. The
        # next owner calls the models of agents that have all their results.
        self._completions.is_handing_over = True

    @property
    def is_between_steps(self) -> bool:
        return not self._host.has_tasks

    def abandon(self) -> None:
        self._approval_timers.cancel_all()

    # reacting

    async def react(
        self, envelope: Envelope, payload: Payload | UnknownPayload, context: EventContext
    ) -> None:
        effects = self._turn_loop.react(envelope, payload, context)
        if effects and is_foreign_answer(payload, context) and any(map(starts_work, effects)):
            # from here on another owner must not act on this answer again
            await self._host.save_seen()
        await self._execute(effects)

    async def on_page_end(self) -> None:
        # a client's events open a turn, unless the message that came with them is still to be read
        if not self._tree.has_event_only_turn:
            return
        if self._tree.last_seq == await self._host.log.last_seq(self._host.session_id):
            await self._execute(self._turn_loop.start_next_turn())

    async def _execute(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            await EFFECT_HANDLERS[type(effect)](self, effect)

    async def call_model(self, effect: CallModel) -> None:
        self._completions.start(effect.agent_id)

    async def append_events(self, effect: AppendEvents) -> None:
        self._host.spawn(self._host.append(effect.items), effect.items[0].scope.trace_id)

    # tools

    async def run_tool(self, effect: RunTool) -> None:
        invocation = self._tree.open[effect.agent_id]
        self._host.spawn(self._run_tool(invocation, effect), invocation.scope.trace_id)

    async def _run_tool(self, invocation: Invocation, effect: RunTool) -> None:
        call = effect.call
        scope = invocation.scope
        agent = self._turn_loop.agent_of(invocation)
        tool = agent.find_tool(call.tool)
        # an earlier process had this tool when it asked for approval or input
        if tool is None:
            result_not_found = tool_not_found(call, [spec.name for spec in agent.tool_specs])
            await self._append_result(result_not_found, call, scope)
            return

        async def append_progress(payloads: list[Payload]) -> None:
            await self._host.append([EventDraft(payload, scope, "tool") for payload in payloads])

        context = ToolContext(
            call,
            session_id=self._host.session_id,
            agent_name=invocation.start.name,
            emit=append_progress,
            values=effect.values,
            actor=self._tree.actors.get(scope.trace_id or ""),
            state=self._host.folds.app_state.state,
            catalog=self._host.folds.catalog,
            fence=self._host.lease.fence,
        )
        result = await self._executor.run(tool, call, context)
        if isinstance(result, WaitForInput):
            question = build_awaited_call(tool, call, result.questions)
            await self._host.append([EventDraft(ToolAwait(calls=(question,)), scope, "system")])
        else:
            await self._append_result(result, call, scope)

    async def _append_result(self, result: ToolResult, call: ToolCall, scope: Scope) -> None:
        try:
            await self._host.append([EventDraft(result, scope, "tool")])
        except InvalidEvent:
            log.exception("the result of %s cannot be appended", call.tool)
            message = f"the result of {call.tool} cannot be written"
            failure = error_result(call, "EXECUTION_ERROR", message)
            await self._host.append([EventDraft(failure, scope, "tool")])

    # approvals and remote calls

    async def request_approval(self, effect: RequestApproval) -> None:
        invocation = self._tree.open[effect.agent_id]
        tool = self._turn_loop.agent_of(invocation).find_tool(effect.call.tool)
        assert tool is not None
        request = build_approval_request(tool, effect.call, now_ms())
        await self._host.append([EventDraft(request, invocation.scope, "system")])
        self._approval_timers.start(effect.agent_id, request)

    async def start_approval_timer(self, effect: StartApprovalTimer) -> None:
        self._approval_timers.start(effect.agent_id, effect.request)

    async def start_call_timer(self, effect: StartCallTimer) -> None:
        scope = self._tree.open[effect.agent_id].scope
        self._host.spawn(self._time_out_call(scope, effect.call, effect.timeout_s), scope.trace_id)

    async def _time_out_call(self, scope: Scope, call: ToolCall, timeout_s: float) -> None:
        await asyncio.sleep(timeout_s)
        message = f"{call.tool} took longer than {timeout_s:g} s, or no executor has it"
        result = error_result(call, "TIMEOUT", message)
        event = self._host.writer.build_event(EventDraft(result, scope, "tool"))

        async def make_plan() -> AppendPlan | None:
            # an executor may answer at this moment: then the call is not open any more
            open_call = self._tree.find_call(scope.agent_id, call.call_id)
            if open_call is None or open_call.call != call:
                return None
            expected = {"expected_durable_count": self._host.folds.durable_count}
            return AppendPlan([event], self._tree.last_seq, expected)

        if await append_if_unchanged(self._host.writer.write, make_plan, self._host.wait_for_seq):
            log.warning("no executor answered %s of %s within %g s", call.call_id, call.tool, timeout_s)

    # stopping

    async def stop_turns(self, effect: StopTurns) -> None:
        if effect.channel is not None:
            traces = self._turn_loop.turns_to_stop(effect.channel)
            await self._end_turns(traces, lambda: self._cancel_events(traces))
            return
        await self._cancel_all()
        await self._host.append_closings(
            lambda: build_closing_events(self._tree, "cancelled", STOPPED_MESSAGE, keep_waiting=False)
        )
        await self._execute(self._turn_loop.start_next_turn())

    def _cancel_events(self, traces: Collection[Trace]) -> list[EventDraft]:
        stopped_tree = restrict_to_turns(self._tree, traces)
        return build_closing_events(stopped_tree, "cancelled", STOPPED_MESSAGE, keep_waiting=False)

    async def end_timed_out(self, trace: Trace) -> None:
        limit_s = self._host.timers.limit_s
        await self._end_turns({trace}, lambda: timeout_events(self._tree, trace, limit_s))

    async def _end_turns(self, traces: Collection[Trace], closings: Callable[[], list[EventDraft]]) -> None:
        await self._host.cancel_tasks(traces)
        await self._host.read_to_head(traces)
        for agent_id, invocation in self._tree.open.items():
            if invocation.scope.trace_id in traces:
                self._completions.active_agents.discard(agent_id)
        self._turn_loop.on_turns_stopped(traces)
        await self._host.append_closings(closings, lambda: self._host.read_to_head(traces))
        await self._execute(self._turn_loop.start_next_turn())

    async def _cancel_all(self) -> None:
        await self._host.cancel_tasks()
        self._completions.active_agents.clear()
        self._turn_loop.reset()
        await self._host.replay_to_head()


EFFECT_HANDLERS: Mapping[type, Callable[[AgentRuntime, Any], Coroutine[Any, Any, None]]] = {
    CallModel: AgentRuntime.call_model,
    RunTool: AgentRuntime.run_tool,
    RequestApproval: AgentRuntime.request_approval,
    StartApprovalTimer: AgentRuntime.start_approval_timer,
    StartCallTimer: AgentRuntime.start_call_timer,
    AppendEvents: AgentRuntime.append_events,
    StopTurns: AgentRuntime.stop_turns,
}


def is_foreign_answer(payload: Payload | UnknownPayload, context: EventContext) -> bool:
    """Return whether a member or another process answered a call, and not a tool of this process."""
    if isinstance(payload, UiMessage):
        return True
    call = context.answered_call
    if call is None:
        return False
    return isinstance(payload, UiAction | ApprovalDecision) or call.call.executor != "backend"


def starts_work(effect: Effect) -> bool:
    return isinstance(effect, CallModel | RunTool)
