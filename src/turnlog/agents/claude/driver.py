"""The driver of a session that a process answers: what people say goes down to it, what it says comes up.

It follows the session's log like the driver of agents. What is pending goes down on stdin, one turn after the
other; stops, decisions and commands go down as they come. One task reads stdout: what one piece of bytes says
is one append, and nothing more is read before that is durable. The process is started when something is to be
told, and every start has its end in the log, with the true reason. A turn that went down and was not taken up
goes down again to the next process, `TRIES` times.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any
from uuid import uuid4

from msgspec import structs

from turnlog.agents.claude.claude_code import ClaudeCode
from turnlog.agents.claude.process import ClaudeProcess, ProgramNotFound
from turnlog.agents.claude.process_run import ProcessEndReason, ProcessRun, filter_output
from turnlog.agents.claude.prompts import Prompt, PromptQueue
from turnlog.agents.runtime.agent_driver import STOPPED_MESSAGE, ignore_event
from turnlog.agents.runtime.session_follower import SessionFollower
from turnlog.agents.runtime.session_writer import AppState, SessionWriter
from turnlog.agents.runtime.turn_loop import TurnEvent
from turnlog.agents.runtime.turn_timeout import Trace, TurnTimers, running_turns
from turnlog.errors import CallerError, SessionClosed, StoreError
from turnlog.events import (
    AgentEnd,
    AgentStart,
    ApprovalDecision,
    Catalog,
    Envelope,
    ErrorInfo,
    EventDraft,
    Payload,
    ProcessEnd,
    ProcessStart,
    Scope,
    SessionError,
    ToolResult,
    UiAction,
    UiCommand,
    UiMessage,
    UnknownPayload,
    Vocabulary,
)
from turnlog.events.agent import StopReason
from turnlog.events.ui import EndSession, StartSession, Stop
from turnlog.ids import new_id
from turnlog.log import Log, Page, Row
from turnlog.parse.claude.lines import interrupt_line, message_line
from turnlog.parse.claude.parser import CliParser
from turnlog.parse.claude.turns import SentMessage
from turnlog.state.tree import Tree, build_closing_events
from turnlog.state.view_actions import OpenViews
from turnlog.team.markers import tag_and_marker_parser_factory

log = logging.getLogger("turnlog.agents")

MAX_ATTEMPTS = 3  # processes that may die of one message before anything comes of it
INTERRUPT_GRACE_S = 5.0  # from the interrupt to the end of the process, if the turn does not end
SERVER_CRASH_MESSAGE = "The server stopped while this was running."
SHUTDOWN_ERROR = ErrorInfo(code="process_exited", message="The server was stopped.")
UNWRITABLE_ERROR = ErrorInfo(code="unknown", message="What the process said cannot be written.")
CANCELLED_BY_MESSAGE = "The user went on with a message."
PROCESS_DIED_MESSAGE = "The process ended before it took up the message."


class ClaudeDriver:
    """Runs the process of one session."""

    def __init__(
        self,
        log: Log,
        session_id: str,
        claude_code: ClaudeCode,
        catalog: Catalog,
        vocabulary: Vocabulary | None,
        observe: Callable[[Envelope, Payload | UnknownPayload], None] = ignore_event,
        turn_limit_s: float = math.inf,
        ledger: AppState | None = None,
    ) -> None:
        self._log, self._session_id, self._claude_code, self._catalog = log, session_id, claude_code, catalog
        self._tags = tag_and_marker_parser_factory(vocabulary)
        self._observe = observe
        self.tree, self.views = Tree(), OpenViews()
        self.writer = SessionWriter(log, session_id, catalog, ledger)
        self._prompts = PromptQueue(self.tree)
        self._timers = TurnTimers(turn_limit_s, self._on_turn_timeout)
        self._tasks: set[asyncio.Task[None]] = set()
        self._decision_lock = asyncio.Lock()
        self._attempts: Counter[str] = Counter()
        self._process_run: ProcessRun | None = None
        self._output_task: asyncio.Task[None] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._last_active_s = 0.0
        self._model_start: ProcessStart | None = None
        self._source_session: str | None = None  # what the process calls its conversation
        self._demo_mode = self._start_requested = self._is_closing = False
        self._follower = SessionFollower(log, session_id, self.writer, self.tree, self._apply)
        self.wait_for_seq, self.wait_until_idle = self._follower.wait_for_seq, self._follower.wait_until_idle
        self.wait_for_head, self._replay_to_head = self._follower.wait_for_head, self._follower.replay_to_head

    @property
    def has_ended(self) -> bool:
        """Whether nobody follows the session any more."""
        return self._follower.has_ended

    # life

    async def open(self, pid: int | None = None) -> None:
        """Read the log, close what a dead server left, waiting or not, say that this one is here, follow."""
        await self._replay_to_head()
        if (await self._log.info(self._session_id)).closed:
            return  # nothing more happens in it; it can be looked at
        if self.tree.traces_to_stop:
            await self._close_open("cancelled", STOPPED_MESSAGE)
        await self._close_open("error", SERVER_CRASH_MESSAGE)
        notices: list[Payload] = []
        if self._model_start is not None:
            notices.append(ProcessEnd(process="model", reason="server_shutdown", pid=self._model_start.pid))
        if self.tree.server_process is not None:
            notices.append(
                ProcessEnd(process="server", reason="process_crash", pid=self.tree.server_process.pid)
            )
        if pid is not None:
            notices.append(ProcessStart(process="server", pid=pid, demo_mode=self._claude_code.demo_mode))
        await self._append([TurnEvent(notice, Scope(), "system") for notice in notices])
        await self._replay_to_head()
        await self.writer.append_with_rules([], self._replay_to_head, "apply")
        await self._replay_to_head()
        self._follower.start(self._follow())

    async def close(self) -> None:
        """End the process, and what it had under way."""
        self._is_closing = True
        async with self._decision_lock:
            pass  # no process is being started now, and none will be
        await self._end_process()
        await self._follower.stop()
        self._timers.update(set())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._replay_to_head()
        with suppress(SessionClosed):  # what was open when the session was closed stays so
            await self._close_open("error", SHUTDOWN_ERROR.message)
            if self.tree.server_process is not None:
                end = ProcessEnd(process="server", reason="server_shutdown")
                await self._append([TurnEvent(end, Scope(), "system")])
        self._follower.notify()

    async def _end_process(self) -> None:
        """End the process and wait until its end is in the log."""
        if self._process_run is not None:
            self._process_run.fault = SHUTDOWN_ERROR
            self._process_run.terminate("server_shutdown")
        if self._output_task is not None:
            await asyncio.gather(self._output_task, return_exceptions=True)

    async def _close_open(self, reason: StopReason, message: str) -> None:
        await self._follower.append_closings(
            lambda: build_closing_events(self.tree, reason, message, keep_waiting=False), self._replay_to_head
        )

    # following

    async def _follow(self) -> None:
        try:
            async with self._decision_lock:
                await self._send_next()
            async for page in self._log.follow(self._session_id, self.tree.last_seq):
                async with self._decision_lock:
                    await self._process_page(page)
                    await self._send_next()
        finally:
            if self._process_run is not None:  # the session was closed, or nobody can follow it
                self._process_run.terminate("server_shutdown")

    async def _process_page(self, page: Page) -> None:
        for row, envelope in zip(page, page.envelopes(), strict=True):
            if row.seq > self.tree.last_seq:
                asked = self._pending_permissions(envelope)
                payload = self._apply(row, envelope)
                self._observe(envelope, payload)
                if not row.live:
                    self._update_timers()
                    await self._react(envelope, payload, asked)

    def _pending_permissions(self, envelope: Envelope) -> dict[str, str]:
        """The permissions that an agent waits for, by call, before something happens to it."""
        agent = self.tree.open.get(envelope.agent_id or "")
        calls = agent.calls.items() if agent and envelope.type == "tool.result" else ()
        return {key: call.approval_request.args_hash for key, call in calls if call.approval_request}

    def _apply(self, row: Row, envelope: Envelope) -> Payload | UnknownPayload:
        payload = self._catalog.decode_payload(envelope)
        self.writer.durable_count = row.durable_count
        self.tree.apply(envelope, payload)
        if not row.live:
            self.writer.app_state.apply(envelope, payload)
            self.views.apply(envelope, payload)
            self._prompts.apply(envelope, payload)
            self._track_process(envelope, payload)
        if isinstance(payload, AgentStart):  # a process has taken up the turn
            self._attempts.pop(envelope.trace_id or "", None)
        self._follower.notify()
        return payload

    def _track_process(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        """What the log says of the process itself."""
        if isinstance(payload, AgentStart) and not envelope.depth:
            self._source_session = payload.source_session
        elif isinstance(payload, ProcessStart | ProcessEnd) and payload.process == "model":
            self._model_start = payload if isinstance(payload, ProcessStart) else None
        elif isinstance(payload, UiCommand) and isinstance(payload.command, EndSession):
            self._source_session = None
        elif isinstance(payload, UiCommand) and isinstance(payload.command, StartSession):
            self._demo_mode = payload.command.demo_mode

    def _update_timers(self) -> None:
        """Time what runs, and what went down and was not taken up."""
        sent = self._process_run.current_trace if self._process_run else ""
        self._timers.update(running_turns(self.tree) | ({sent} & self._prompts.pending.keys()))

    async def _read_to_head(self) -> int:
        """Know everything that is in the log now; the last seq."""
        task = self._follower.task
        return await (self._replay_to_head() if task is None or task.done() else self.wait_for_head())

    # telling

    async def _send_next(self) -> None:
        """Tell the process what is next, when nobody speaks; it is started for that."""
        if self._is_closing or (self._process_run and self._process_run.reason):
            return
        trace, letter = next(iter(self._prompts.pending.items()), ("", None))
        if letter is None:
            if self._start_requested and self._process_run is None:
                await self._start_process(None)
            return
        speaking = any(not agent.scope.depth for agent in self.tree.open.values())
        sent = self._process_run is not None and self._process_run.current_trace in self._prompts.pending
        whole = (
            not self.tree.has_event_only_turn
            or self.tree.last_seq == (await self._log.info(self._session_id)).last
        )
        if speaking or sent or not whole:
            return
        life = self._process_run or await self._start_process(letter)
        if life is not None:
            life.current_trace = trace
            self._send_prompt(life, letter)
            self._update_timers()

    def _send_prompt(self, process_run: ProcessRun, prompt: Prompt) -> None:
        uuid = str(uuid4())
        scope = prompt.scope
        process_run.parser.expect(uuid, SentMessage(scope.trace_id or "", scope.channel, prompt.speaker))
        self._write_line(process_run, message_line(self._prompts.render(prompt), uuid))

    def _write_line(self, process_run: ProcessRun, line: bytes) -> None:
        self._last_active_s = asyncio.get_running_loop().time()
        process_run.process.write(line)
        self._spawn(self._drain(process_run))

    async def _drain(self, process_run: ProcessRun) -> None:
        try:
            await process_run.process.drain()
        except OSError as error:
            await self._give_up(process_run, type(error).__name__)

    async def _watch_stdin(self, process_run: ProcessRun) -> None:
        """End a process that closes its stdin before it has taken up what it was told.

        What it was told is lost in the pipe then, and no write fails.
        """
        if (
            await process_run.process.wait_stdin_closed()
            and process_run.current_trace in self._prompts.pending
        ):
            await self._give_up(process_run, "it closed its stdin")

    async def _give_up(self, process_run: ProcessRun, why: str) -> None:
        """End a process that does not read what it is told, and say so once."""
        if (
            process_run.reason is None
            and process_run is self._process_run
            and not process_run.has_write_error
        ):
            process_run.has_write_error = True
            await self._append_error(
                "stdin_write_failed", f"The process did not take what it was told: {why}."
            )
        process_run.terminate(None)

    # what follows from an event

    async def _react(
        self, envelope: Envelope, payload: Payload | UnknownPayload, pending_permissions: Mapping[str, str]
    ) -> None:
        if isinstance(payload, UiCommand):
            if command := COMMAND_HANDLERS.get(type(payload.command)):
                await command(self, payload.command)
        elif isinstance(payload, ApprovalDecision):
            self._answer_permission(payload)
        elif isinstance(payload, ToolResult) and payload.call_id in pending_permissions and self._process_run:
            self._process_run.answered_calls.add(payload.call_id)
            hashed = pending_permissions[payload.call_id]
            self._answer_permission(
                ApprovalDecision(
                    call_id=payload.call_id, args_hash=hashed, decision="deny", notes=CANCELLED_BY_MESSAGE
                )
            )
        elif isinstance(payload, UiMessage | UiAction) and self.tree.is_running(envelope.trace_id or ""):
            letter = self._prompts.build_prompt(envelope, payload)
            if letter and self._process_run:
                self._send_prompt(self._process_run, letter)

    def _answer_permission(self, decision: ApprovalDecision) -> None:
        """Answer a permission that the process waits for."""
        if self._process_run and (line := self._process_run.parser.decide(decision)):
            self._write_line(self._process_run, line)

    async def _start_session(self, _: StartSession) -> None:
        if self._process_run is not None and self._process_run.reason is None:
            await self._append_error("session_conflict", "The process is running already.")
        else:
            self._start_requested = True

    async def _end_session(self, _: EndSession) -> None:
        self._start_requested = False
        if self._process_run is not None:
            self._process_run.abandoned_traces |= dict.fromkeys(self._prompts.pending, "cancelled")
            self._process_run.terminate("user_ended")
        else:
            letters = list(self._prompts.pending.values())
            await self._append(
                [item for letter in letters for item in self._close_unanswered(letter, "cancelled")]
            )

    async def _stop(self, stop: Stop) -> None:
        """End what runs, and what was just told."""
        life = self._process_run
        if life is None:
            return
        traces = self.tree.traces_to_stop
        if (
            life.current_trace in self._prompts.pending
            and stop.turn in (None, life.current_trace)
            and stop.agent_id is None
        ):
            traces.add(life.current_trace)
        if traces:
            self._interrupt(life, traces, "user_ended", "cancelled")

    def _interrupt(
        self, process_run: ProcessRun, traces: set[Trace], reason: ProcessEndReason, outcome: StopReason
    ) -> None:
        agents = {key for key, agent in self.tree.open.items() if agent.scope.trace_id in traces}
        self._write_line(process_run, interrupt_line(str(uuid4())))
        self._spawn(
            self._kill_after_grace(process_run, agents, reason, dict.fromkeys(map(str, traces), outcome))
        )

    async def _kill_after_grace(
        self,
        process_run: ProcessRun,
        agents: set[str],
        reason: ProcessEndReason,
        outcomes: dict[str, StopReason],
    ) -> None:
        """End the process if an interrupt has not ended these agents, or a turn was not even taken up."""
        await asyncio.sleep(INTERRUPT_GRACE_S)
        await self._read_to_head()
        pending = {trace: outcomes[trace] for trace in outcomes.keys() & self._prompts.pending.keys()}
        # A process may take up a turn after the interrupt: then its agents were not open yet.
        inside = {key for key, agent in self.tree.open.items() if agent.scope.trace_id in outcomes}
        if process_run is self._process_run and (pending or (inside & agents if agents else inside)):
            process_run.abandoned_traces |= pending
            process_run.terminate(reason)

    def _on_turn_timeout(self, trace: Trace) -> None:
        self._spawn(self._time_out_turn(trace))

    async def _time_out_turn(self, trace: Trace) -> None:
        """End a turn that ran too long; one that is over by now, or waits, is left alone."""
        await self._read_to_head()
        life = self._process_run
        if life is not None and trace not in life.timed_out_traces and self._timers.is_expired(trace):
            life.timed_out_traces.add(trace)
            message = f"The turn took longer than {self._timers.limit_s:g} s and was ended."
            await self._append_error("turn_timeout", message, Scope(trace_id=trace))
            self._interrupt(life, {trace}, "process_crash", "timeout")

    # the process

    async def _start_process(self, prompt: Prompt | None) -> ProcessRun | None:
        """Start a process; if there is none to be had, the turn it was for is over."""
        self._start_requested = False
        try:
            process = await ClaudeProcess.start(
                self._claude_code.argv(self._source_session), self._claude_code.cwd, self._claude_code.env
            )
        except (OSError, ValueError) as error:  # there is none, or no system could start such a command
            code = "setup_required" if isinstance(error, ProgramNotFound) else "unknown"
            scope = prompt.scope if prompt else Scope()
            problem = SessionError(code=code, message=f"The process cannot be started: {error.args[-1]}.")
            over = self._close_unanswered(prompt, "error") if prompt else []
            await self._append([TurnEvent(problem, scope, "system"), *over])
            return None
        parser = CliParser(new_id, self._claude_code.name, self._tags, self._claude_code.tool_effects)
        life = self._process_run = ProcessRun(process, parser, is_resumed=self._source_session is not None)
        demo_mode = self._claude_code.demo_mode or self._demo_mode
        begun = ProcessStart(
            process="model", pid=process.pid, model=self._claude_code.model, demo_mode=demo_mode
        )
        self._output_task = asyncio.create_task(self._run_process(life, begun), context=Context())
        self._output_task.add_done_callback(self._follower.on_task_done)
        self._spawn(self._watch_stdin(life))
        self._last_active_s = asyncio.get_running_loop().time()
        self._check_idle(life)
        return life

    async def _run_process(self, process_run: ProcessRun, start_event: ProcessStart) -> None:
        """Everything a process says goes to the log, from its start to its end."""
        try:
            await self._append([TurnEvent(start_event, Scope(), "system")])
            async for piece in process_run.process.chunks():
                self._last_active_s = asyncio.get_running_loop().time()
                await self._append_output(process_run, process_run.parser.feed(piece))
                for line in process_run.parser.take_stdin_lines():
                    self._write_line(process_run, line)
        except SessionClosed:
            process_run.terminate("server_shutdown")
        except CallerError:  # the log's own rules: an event that nobody may write
            log.exception("what a process said cannot be written")
            process_run.fault = UNWRITABLE_ERROR
            process_run.terminate(None)
        except StoreError:
            process_run.terminate(None)
            raise
        finally:
            code = await process_run.process.wait()
            with suppress(SessionClosed):
                await self._record_exit(process_run, code)

    async def _append_output(self, process_run: ProcessRun, events: Sequence[EventDraft]) -> None:
        items = list(filter_output(process_run, events))
        if any(not item.payload.TYPE or isinstance(item.payload, AgentEnd) for item in items):
            await self.writer.append_with_rules(
                items, self._read_to_head
            )  # the rules may have something to say
        elif items:
            await self._append(items)

    async def _record_exit(self, process_run: ProcessRun, code: int) -> None:
        """A process is gone: close what it left open, and say why it went."""
        await self._read_to_head()
        items = self._closing_events(process_run)
        begun = {item.scope.trace_id for item in items if isinstance(item.payload, AgentStart)}
        for trace, letter in self._prompts.pending.items():
            if trace not in begun:
                items += self._handle_undelivered(process_run, trace, letter)
        if process_run.is_resumed and process_run.parser.source_session is None:
            self._source_session = None  # nobody knows that conversation any more
        if process_run.reason == "inactivity_timeout":
            idle_s = self._claude_code.inactivity_s
            message = f"Nothing happened for {idle_s:g} s; the next message starts a process."
            problem = SessionError(code="inactivity_timeout", message=message, retriable=True)
            items.append(TurnEvent(problem, Scope(), "system"))
        end = ProcessEnd(
            process="model",
            reason=process_run.reason or "process_crash",
            pid=process_run.process.pid,
            exit_code=128 - code if code < 0 else code,
        )
        self._process_run = None
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        await self._append([*items, TurnEvent(end, Scope(), "system")])

    def _closing_events(self, process_run: ProcessRun) -> list[TurnEvent]:
        """The ends of what a process had begun: the log knows of everything, unless it refused something."""
        if process_run.fault is UNWRITABLE_ERROR:
            problem = SessionError(code=process_run.fault.code, message=process_run.fault.message)
            ends = build_closing_events(self.tree, "error", process_run.fault.message, keep_waiting=False)
            return [
                TurnEvent(problem, Scope(), "system"),
                *(TurnEvent(end.payload, end.scope, "system") for end in ends),
            ]
        outcome: StopReason = "error" if process_run.reason in (None, "server_shutdown") else "cancelled"
        return list(filter_output(process_run, process_run.parser.flush(process_run.fault, outcome)))

    def _handle_undelivered(self, process_run: ProcessRun, trace: str, prompt: Prompt) -> list[TurnEvent]:
        """What becomes of a turn that a process did not take up."""
        if trace in process_run.abandoned_traces:
            return self._close_unanswered(prompt, process_run.abandoned_traces[trace])
        if trace != process_run.current_trace or process_run.reason is not None:
            return []
        self._attempts[trace] += 1
        if self._attempts[trace] < MAX_ATTEMPTS:
            return []
        problem = SessionError(code="process_exited", message=PROCESS_DIED_MESSAGE)
        return [TurnEvent(problem, prompt.scope, "system"), *self._close_unanswered(prompt, "error")]

    def _close_unanswered(self, prompt: Prompt, reason: StopReason) -> list[TurnEvent]:
        """A turn that nobody will answer is over all the same."""
        scope = structs.replace(
            prompt.scope, agent_id=new_id("agt_"), agent_name=self._claude_code.name, depth=0
        )
        start = AgentStart(name=self._claude_code.name, via="prompt", source_session=self._source_session)
        return [TurnEvent(start, scope, "system"), TurnEvent(AgentEnd(stop_reason=reason), scope, "system")]

    def _check_idle(self, process_run: ProcessRun) -> None:
        """End a process that has nothing to do; one that works, or waits for somebody, has."""
        loop = asyncio.get_running_loop()
        if self.tree.open or self._prompts.pending:
            self._last_active_s = loop.time()
        left_s = self._last_active_s + self._claude_code.inactivity_s - loop.time()
        if left_s <= 0:
            process_run.terminate("inactivity_timeout")
        else:
            self._idle_timer = loop.call_later(left_s, self._check_idle, process_run)

    # appending

    async def _append_error(self, code: str, message: str, scope: Scope = Scope()) -> None:  # noqa: B008
        problem = SessionError(code=code, message=message, retriable=code == "turn_timeout")
        await self._append([TurnEvent(problem, scope, "system")])

    async def _append(self, items: Iterable[TurnEvent]) -> int:
        return await self.writer.append(items, self.tree.last_seq)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._follower.on_task_done)


COMMAND_HANDLERS: Mapping[type, Callable[[ClaudeDriver, Any], Coroutine[Any, Any, None]]] = {
    StartSession: ClaudeDriver._start_session,
    EndSession: ClaudeDriver._end_session,
    Stop: ClaudeDriver._stop,
}  # all others are words
