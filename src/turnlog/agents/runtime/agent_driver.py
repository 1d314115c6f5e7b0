"""The driver of a session that agents answer: follows the log and executes the effects of the turn loop.

The loop decides; the driver calls models, runs tools and appends events. Every effect follows from an event,
so the log has what a crash interrupted, and another process can continue. Tasks belong to the session: a stop
cancels them and appends events that close what they left open. A turn that runs too long is ended the same
way, alone. `_decision_lock` serialises everything that reads the open tree and acts on it: the processing of
pages and turn time-outs.
"""

import asyncio
import contextvars
import logging
import math
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
)
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count
from typing import Any

from turnlog.agents.agent import Agent, AgentTeam
from turnlog.agents.models import ModelError, Request
from turnlog.agents.models.model import MODEL_FAILED, session_blob_reader
from turnlog.agents.models.prices import compute_cost
from turnlog.agents.runtime.approvals import build_approval_request
from turnlog.agents.runtime.delta_writer import DeltaWriter
from turnlog.agents.runtime.executor import DescribeError, Executor, HungTools, mask_tool_error
from turnlog.agents.runtime.optimistic_append import AppendPlan, append_if_unchanged
from turnlog.agents.runtime.session_follower import SessionFollower
from turnlog.agents.runtime.session_writer import AppState, SessionWriter
from turnlog.agents.runtime.turn_loop import (
    STEP_LIMIT_PROMPT,
    AppendEvents,
    CallModel,
    Effect,
    RequestApproval,
    RunTool,
    StartCallTimer,
    StopTurns,
    TurnLoop,
    model_events,
)
from turnlog.agents.runtime.turn_timeout import Trace, TurnTimers, running_turns, timeout_events
from turnlog.agents.tag_instructions import instructions_with_tags
from turnlog.agents.tool_context import ToolContext, WaitForInput
from turnlog.agents.tools import build_awaited_call, error_result, tool_not_found
from turnlog.errors import CallerError, InvalidEvent, SessionClosed, StoreError
from turnlog.events import (
    ApprovalDecision,
    ApprovalRequest,
    BlockRetract,
    Catalog,
    Envelope,
    EventDraft,
    Payload,
    ProcessEnd,
    ProcessStart,
    Scope,
    SessionError,
    ToolAwait,
    ToolCall,
    ToolResult,
    UnknownPayload,
    Vocabulary,
)
from turnlog.events.agent import StopReason
from turnlog.events.envelope import parse_timestamp_ms
from turnlog.ids import new_id, now_ms
from turnlog.log import Log, Page, Row
from turnlog.parse.reply import ReplyBuilder, tag_parser_factory
from turnlog.state.closing import build_closing_events
from turnlog.state.content_parts import text_part
from turnlog.state.history import History, Message
from turnlog.state.tree import Invocation, Tree, restrict_to_turns
from turnlog.state.view_actions import OpenViews

log = logging.getLogger("turnlog.agents")

INSTRUCTIONS_FAILED = "instructions_failed"
STOPPED_MESSAGE = "Stopped by the user."
YIELD_EVERY_EVENTS = 64  # folded events after which other tasks run: a page may have thousands


def ignore_event(envelope: Envelope, payload: Payload | UnknownPayload) -> None:
    """Do nothing, for drivers whose events are not observed."""


class AgentDriver:
    """Runs the agents of one session."""

    def __init__(  # noqa: PLR0913  all but the first five are options
        self,
        log: Log,
        session_id: str,
        team: AgentTeam,
        catalog: Catalog,
        vocabulary: Vocabulary | None,
        observe: Callable[[Envelope, Payload | UnknownPayload], None] = ignore_event,
        turn_limit_s: float = math.inf,
        app_state: AppState | None = None,
        describe: DescribeError = mask_tool_error,
        hung: HungTools | None = None,
    ) -> None:
        self._log = log
        self._session_id = session_id
        self._catalog = catalog
        self._vocabulary = vocabulary
        self._vocabularies = team.vocabularies
        self._turn_loop = TurnLoop(team, new_id)
        self.writer = SessionWriter(log, session_id, catalog, app_state)
        self._observe = observe
        self._history = History()
        self._executor = Executor(partial(log.put_blob, session_id), describe=describe, hung=hung)
        self._tasks: dict[asyncio.Task[None], Trace] = {}
        self._timers = TurnTimers(turn_limit_s, self._on_turn_timeout)
        self._decision_lock = asyncio.Lock()
        self._active_steps: set[str] = set()
        self._follower = SessionFollower(log, session_id, self.writer, self.tree, self._apply)

    @property
    def tree(self) -> Tree:
        return self._turn_loop.tree

    @property
    def views(self) -> OpenViews:
        return self._turn_loop.views

    @property
    def has_ended(self) -> bool:
        return self._follower.has_ended

    async def wait_for_seq(self, seq: int) -> None:
        await self._follower.wait_for_seq(seq)

    async def wait_until_idle(self, trace: str) -> None:
        await self._follower.wait_until_idle(trace)

    async def wait_for_head(self) -> int:
        return await self._follower.wait_for_head()

    # opening and closing

    async def open(self, pid: int | None = None) -> None:
        """Read the log, close what a dead process left running, record this process, and follow the log.

        Without a `pid` this process is not recorded. A closed session is only read.
        """
        await self._replay_to_head()
        if (await self._log.info(self._session_id)).closed:
            return
        notices: list[Payload] = []
        dead_server = self.tree.server_process
        if dead_server is not None:
            notices.append(ProcessEnd(process="server", reason="process_crash", pid=dead_server.pid))
        if pid is not None:
            notices.append(ProcessStart(process="server", pid=pid))

        stopped = self.tree.traces_to_stop
        await self._follower.append_closings(lambda: self._cancel_events(stopped), self._replay_to_head)
        await self._close_open("error", "The server stopped while this was running.", keep_waiting=True)
        await self._append([EventDraft(notice, Scope(), "system") for notice in notices])
        await self._replay_to_head()
        await self.writer.append_with_rules([], self._replay_to_head, "apply")
        await self._replay_to_head()

        await self._restart_call_timers()
        self._follower.start(self._follow())

    async def _restart_call_timers(self) -> None:
        for invocation in self.tree.open.values():
            for call in invocation.calls.values():
                if call.approval_request is not None:
                    expiry = self._expire_approval(invocation.scope, call.approval_request)
                    self._spawn(expiry, invocation.scope.trace_id)
                elif call.is_waiting:
                    await self._execute(self._turn_loop.start_call_timer(invocation, call.call))

    async def close(self) -> None:
        """Stop all tasks and close what runs. Calls that wait stay open for the next process."""
        await self._follower.stop()
        self._timers.update(set())
        await self._cancel_all()
        with suppress(SessionClosed):  # a closed session accepts no more events
            await self._close_open("error", "The server was stopped.", keep_waiting=True)
            if self.tree.server_process is not None:
                end = ProcessEnd(process="server", reason="server_shutdown")
                await self._append([EventDraft(end, Scope(), "system")])
        self._follower.notify()

    # following

    async def _follow(self) -> None:
        await self._execute(self._turn_loop.start_next_turn())
        async for page in self._log.follow(self._session_id, self.tree.last_seq):
            async with self._decision_lock:
                await self._process_page(page)

    async def _process_page(self, page: Page, ending: Collection[Trace] = ()) -> None:
        for number, (row, envelope) in enumerate(zip(page, page.envelopes(), strict=True), 1):
            if number % YIELD_EVERY_EVENTS == 0:
                await asyncio.sleep(0)
            if row.seq <= self.tree.last_seq:
                continue
            payload, first_answer = self._apply(row, envelope)
            self._observe(envelope, payload)
            if not row.live:  # live events open and close nothing
                self._timers.update(running_turns(self.tree))
            if envelope.trace_id not in ending:
                await self._execute(self._turn_loop.react(envelope, payload, first_answer))

        # a client's events open a turn, unless the message that came with them is still to be read
        if not self.tree.has_event_only_turn:
            return
        if self.tree.last_seq == await self._log.last_seq(self._session_id):
            await self._execute(self._turn_loop.start_next_turn())

    async def _read_to_head(self, ending: Collection[Trace] = ()) -> None:
        while page := await self._log.read(self._session_id, self.tree.last_seq):
            await self._process_page(page, ending)

    async def _replay_to_head(self) -> int:
        return await self._follower.replay_to_head()

    def _apply(self, row: Row, envelope: Envelope) -> tuple[Payload | UnknownPayload, bool]:
        payload = self._catalog.decode_payload(envelope)
        self.writer.durable_count = row.durable_count
        first_answer = self._turn_loop.apply(envelope, payload)
        if not row.live:  # live events are in no conversation
            self._history.apply(envelope, payload)
            self.writer.app_state.apply(envelope, payload)
            self._executor.idempotency_cache.apply(envelope, payload)
        self._follower.notify()
        return payload, first_answer

    async def _execute(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            await EFFECT_HANDLERS[type(effect)](self, effect)

    # completions

    async def call_model(self, effect: CallModel) -> None:
        if effect.agent_id in self._active_steps:
            return
        self._active_steps.add(effect.agent_id)
        invocation = self.tree.open[effect.agent_id]
        self._spawn(self._run_step(invocation), invocation.scope.trace_id)

    async def _run_step(self, invocation: Invocation) -> None:
        """Run one completion, with retries. The output of a failed attempt is retracted before the next."""
        retry = self._turn_loop.agent_of(invocation).retry
        for failures in count(1):
            reply = self._make_reply(invocation)
            error = await self._attempt(invocation, reply)
            if error is None:
                return
            if not error.retriable or failures >= retry.max_attempts:
                await self._fail_step(invocation, reply, error)
                return
            await self._retract(invocation, reply, error.code)
            await asyncio.sleep(retry.delay_s(failures, error.retry_after_s))

    async def _attempt(self, invocation: Invocation, reply: ReplyBuilder) -> ModelError | None:
        """Run one attempt at a completion. Return None if it succeeded, else its error."""
        try:
            ending = await self._stream_reply(invocation, reply)
            await self._complete_step(invocation, reply, ending)
        except ModelError as error:
            return error
        except SessionClosed:
            raise  # the session accepts no events, not even the failure of this agent
        except (CallerError, ValueError) as error:  # the log refuses an event of the model
            log.exception("the output of a model cannot be appended")
            return ModelError("refused_event", f"{type(error).__name__} in the output of the model")
        return None

    def _make_reply(self, invocation: Invocation) -> ReplyBuilder:
        agent = self._turn_loop.agent_of(invocation)
        return ReplyBuilder(new_id, tag_parser_factory(self._vocabulary_of(invocation)), agent.executor_of)

    def _vocabulary_of(self, invocation: Invocation) -> Vocabulary | None:
        return self._vocabularies.get(invocation.scope.channel or "", self._vocabulary)

    async def _stream_reply(self, invocation: Invocation, reply: ReplyBuilder) -> list[Payload]:
        """Append the model's output as it arrives. Return the last batch: it is appended with the usage."""
        ending: list[Payload] = []
        writer = DeltaWriter(
            lambda batch: asyncio.ensure_future(self._append(model_events(batch, invocation.scope)))
        )
        try:
            async with self._open_stream(invocation, reply) as batches:
                async for batch in batches:
                    if reply.complete:
                        ending += batch
                    else:
                        await writer.write(batch)
        except (ModelError, InvalidEvent, SessionClosed, StoreError):
            raise
        except (Exception, asyncio.CancelledError) as error:  # a model is foreign code: it may raise anything
            if is_being_cancelled(error):
                raise
            log.exception("a model failed")
            raise ModelError(MODEL_FAILED, f"{type(error).__name__} in the model") from error
        finally:
            await writer.flush()
        if not reply.complete:
            code = reply.error.code if reply.error else "no_end"
            raise ModelError(code, "The model's answer broke off.", retriable=True)
        return ending

    @asynccontextmanager
    async def _open_stream(
        self, invocation: Invocation, reply: ReplyBuilder
    ) -> AsyncIterator[AsyncIterator[list[Payload]]]:
        model = self._turn_loop.agent_of(invocation).model
        batches = model.stream(self._build_request(invocation), reply)
        try:
            yield batches
        finally:
            if isinstance(batches, AsyncGenerator):
                await batches.aclose()

    def _build_request(self, invocation: Invocation) -> Request:
        agent = self._turn_loop.agent_of(invocation)
        messages = list(self._history.messages(invocation.agent_id, invocation.scope.channel))
        tools = agent.tool_specs
        if invocation.steps >= agent.max_steps:
            messages.append(Message("user", [text_part(STEP_LIMIT_PROMPT)]))
            tools = ()
        instructions = instructions_with_tags(self._instructions_of(agent), self._vocabulary_of(invocation))
        get_blob = session_blob_reader(self._session_id, self._log.get_blob)
        put_blob = partial(self._log.put_blob, self._session_id)
        return Request(instructions, messages, tools, get_blob, put_blob=put_blob)

    def _instructions_of(self, agent: Agent) -> str:
        try:
            return agent.instructions_for(self.writer.app_state.state)
        except Exception as error:  # the application's function may raise anything
            log.exception("the instructions of %s failed", agent.name)
            message = f"{type(error).__name__} in the instructions of {agent.name}"
            raise ModelError(INSTRUCTIONS_FAILED, message) from error

    async def _complete_step(
        self, invocation: Invocation, reply: ReplyBuilder, ending: list[Payload]
    ) -> None:
        # the end of the agent needs all its blocks and calls in the tree
        await self.wait_for_head()
        price = compute_cost(reply.model or invocation.start.model or "", reply.usage)
        items = self._turn_loop.completion_events(invocation, reply, ending, price)
        self._active_steps.discard(invocation.agent_id)
        last = await self.writer.append_with_rules(items, self.wait_for_head)
        if reply.stop_reason == "pause_turn" and not reply.calls:
            await self.wait_for_seq(last)
            await self._execute(self._turn_loop.call_model(invocation.agent_id))

    async def _fail_step(self, invocation: Invocation, reply: ReplyBuilder, error: ModelError) -> None:
        await self.wait_for_head()
        problem = SessionError(
            code=error.code,
            message=error.message,
            provider_message=error.provider_message,
            retriable=error.retriable,
        )
        self._active_steps.discard(invocation.agent_id)
        await self._append(self._turn_loop.failure_events(invocation, reply, problem))

    async def _retract(self, invocation: Invocation, reply: ReplyBuilder, reason: str) -> None:
        batch = reply.abort()
        if reply.block_ids:
            batch.append(BlockRetract(block_ids=reply.block_ids, reason=reason))
        await self._append(model_events(batch, invocation.scope))

    # tools

    async def run_tool(self, effect: RunTool) -> None:
        invocation = self.tree.open[effect.agent_id]
        self._spawn(self._run_tool(invocation, effect), invocation.scope.trace_id)

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
            await self._append([EventDraft(payload, scope, "tool") for payload in payloads])

        context = ToolContext(
            call,
            session_id=self._session_id,
            agent_name=invocation.start.name,
            emit=append_progress,
            values=effect.values,
            actor=self.tree.actors.get(scope.trace_id or ""),
            state=self.writer.app_state.state,
            catalog=self._catalog,
        )
        result = await self._executor.run(tool, call, context)
        if isinstance(result, WaitForInput):
            question = build_awaited_call(tool, call, result.questions)
            await self._append([EventDraft(ToolAwait(calls=(question,)), scope, "system")])
        else:
            await self._append_result(result, call, scope)

    async def _append_result(self, result: ToolResult, call: ToolCall, scope: Scope) -> None:
        try:
            await self._append([EventDraft(result, scope, "tool")])
        except InvalidEvent:
            log.exception("the result of %s cannot be appended", call.tool)
            message = f"the result of {call.tool} cannot be written"
            await self._append([EventDraft(error_result(call, "EXECUTION_ERROR", message), scope, "tool")])

    async def request_approval(self, effect: RequestApproval) -> None:
        invocation = self.tree.open[effect.agent_id]
        tool = self._turn_loop.agent_of(invocation).find_tool(effect.call.tool)
        assert tool is not None
        request = build_approval_request(tool, effect.call, now_ms())
        await self._append([EventDraft(request, invocation.scope, "system")])
        self._spawn(self._expire_approval(invocation.scope, request), invocation.scope.trace_id)

    async def _expire_approval(self, scope: Scope, request: ApprovalRequest) -> None:
        if request.expires_at is None:
            return
        left_ms = parse_timestamp_ms(request.expires_at) - now_ms()
        await asyncio.sleep(max(0.0, left_ms) / 1000)
        call = self.tree.find_call(scope.agent_id, request.call_id)
        if call is not None and call.approval_request == request:
            decision = ApprovalDecision(
                call_id=request.call_id, args_hash=request.args_hash, decision="expired"
            )
            await self._append([EventDraft(decision, scope, "system")])

    async def start_call_timer(self, effect: StartCallTimer) -> None:
        scope = self.tree.open[effect.agent_id].scope
        self._spawn(self._time_out_call(scope, effect.call, effect.timeout_s), scope.trace_id)

    async def _time_out_call(self, scope: Scope, call: ToolCall, timeout_s: float) -> None:
        await asyncio.sleep(timeout_s)
        message = f"{call.tool} took longer than {timeout_s:g} s, or no executor has it"
        result = error_result(call, "TIMEOUT", message)
        event = self.writer.build_event(EventDraft(result, scope, "tool"))

        async def make_plan() -> AppendPlan | None:
            # an executor may answer at this moment: then the call is not open any more
            open_call = self.tree.find_call(scope.agent_id, call.call_id)
            if open_call is None or open_call.call != call:
                return None
            expected = {"expected_durable_count": self.writer.durable_count}
            return AppendPlan([event], self.tree.last_seq, expected)

        if await append_if_unchanged(self.writer.write, make_plan, self.wait_for_seq):
            log.warning("no executor answered %s of %s within %g s", call.call_id, call.tool, timeout_s)

    async def append_events(self, effect: AppendEvents) -> None:
        self._spawn(self._append(effect.items), effect.items[0].scope.trace_id)

    # stopping

    async def stop_turns(self, effect: StopTurns) -> None:
        if effect.channel is not None:
            traces = self._turn_loop.turns_to_stop(effect.channel)
            await self._end_turns(traces, lambda: self._cancel_events(traces))
            return
        await self._cancel_all()
        await self._close_open("cancelled", STOPPED_MESSAGE)
        await self._execute(self._turn_loop.start_next_turn())

    def _cancel_events(self, traces: Collection[Trace]) -> list[EventDraft]:
        stopped_tree = restrict_to_turns(self.tree, traces)
        return build_closing_events(stopped_tree, "cancelled", STOPPED_MESSAGE, keep_waiting=False)

    async def _end_turns(self, traces: Collection[Trace], closings: Callable[[], list[EventDraft]]) -> None:
        await self._cancel_tasks([task for task, trace in self._tasks.items() if trace in traces])
        await self._read_to_head(traces)
        for agent_id, invocation in self.tree.open.items():
            if invocation.scope.trace_id in traces:
                self._active_steps.discard(agent_id)
        self._turn_loop.on_turns_stopped(traces)
        await self._follower.append_closings(closings, lambda: self._read_to_head(traces))
        await self._execute(self._turn_loop.start_next_turn())

    async def _cancel_all(self) -> None:
        await self._cancel_tasks(self._tasks)
        self._active_steps.clear()
        self._turn_loop.reset()
        await self._replay_to_head()

    async def _cancel_tasks(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """Cancel tasks, except the current one, and wait until their writes are in the log."""
        others = [task for task in tasks if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._append([])  # an empty append is queued behind theirs

    def _on_turn_timeout(self, trace: Trace) -> None:
        self._spawn(self._time_out_turn(trace), trace)

    async def _time_out_turn(self, trace: Trace) -> None:
        async with self._decision_lock:
            await self._read_to_head()
            if not self._timers.is_expired(trace):
                return
            await self._end_turns({trace}, lambda: timeout_events(self.tree, trace, self._timers.limit_s))

    async def _close_open(self, reason: StopReason, message: str, *, keep_waiting: bool = False) -> None:
        await self._follower.append_closings(
            lambda: build_closing_events(self.tree, reason, message, keep_waiting=keep_waiting),
            self._replay_to_head,
        )

    # appending

    async def _append(self, items: Iterable[EventDraft]) -> int:
        return await self.writer.append(items, self.tree.last_seq)

    def _spawn(self, work: Coroutine[Any, Any, Any], trace: Trace) -> None:
        # an empty context: a turn is not part of the request that happened to start it
        task = asyncio.create_task(work, context=contextvars.Context())
        self._tasks[task] = trace
        task.add_done_callback(self._tasks.pop)
        task.add_done_callback(self._follower.on_task_done)


def is_being_cancelled(error: BaseException) -> bool:
    """Return whether this task is being cancelled. A model may also raise `CancelledError` by itself."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


EFFECT_HANDLERS: Mapping[type, Callable[[AgentDriver, Any], Coroutine[Any, Any, None]]] = {
    CallModel: AgentDriver.call_model,
    RunTool: AgentDriver.run_tool,
    RequestApproval: AgentDriver.request_approval,
    StartCallTimer: AgentDriver.start_call_timer,
    AppendEvents: AgentDriver.append_events,
    StopTurns: AgentDriver.stop_turns,
}
