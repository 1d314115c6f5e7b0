"""The driver of a session that a Claude Code process answers.

It follows the session's log like the driver of agents. Pending prompts are written to stdin one turn after
the other; stops, decisions and commands are written as they arrive. One task reads stdout: the events of one
chunk are one append, and nothing more is read before it is durable. The first prompt starts the process, and
every start has its end in the log, with the true reason. A prompt that a process did not answer is written to
the next process, `MAX_ATTEMPTS` times. `_decision_lock` serialises the processing of pages.
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
from turnlog.agents.claude.process import ClaudeProcess, ProgramNotFound, find_sign_in_method
from turnlog.agents.claude.process_run import ProcessEndReason, ProcessRun, filter_output
from turnlog.agents.claude.prompts import Prompt, PromptQueue
from turnlog.agents.runtime.agent_driver import STOPPED_MESSAGE, ignore_event
from turnlog.agents.runtime.session_follower import SessionFollower
from turnlog.agents.runtime.session_writer import AppState, SessionWriter
from turnlog.agents.runtime.turn_timeout import Trace, TurnTimers, running_turns
from turnlog.agents.runtime.user_input import CANCELLED_BY_MESSAGE
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
from turnlog.state.closing import build_closing_events
from turnlog.state.tree import Tree
from turnlog.state.view_actions import OpenViews
from turnlog.team.markers import tag_and_marker_parser_factory

log = logging.getLogger("turnlog.agents")

MAX_ATTEMPTS = 3  # processes that may die of one prompt before its turn ends with an error
INTERRUPT_GRACE_S = 5.0  # from the interrupt to the end of the process, if the turn does not end
SERVER_CRASH_MESSAGE = "The server stopped while this was running."
SHUTDOWN_ERROR = ErrorInfo(code="process_exited", message="The server was stopped.")
UNWRITABLE_ERROR = ErrorInfo(code="unknown", message="The output of the process cannot be written.")
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
        app_state: AppState | None = None,
    ) -> None:
        self._log = log
        self._session_id = session_id
        self._claude_code = claude_code
        self._catalog = catalog
        self._tags = tag_and_marker_parser_factory(vocabulary)
        self._observe = observe
        self.tree = Tree()
        self.views = OpenViews()
        self.writer = SessionWriter(log, session_id, catalog, app_state)
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
        self._source_session: str | None = None  # the process's own id of the conversation
        self._demo_mode = False
        self._start_requested = False
        self._is_closing = False
        self._follower = SessionFollower(log, session_id, self.writer, self.tree, self._apply)

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
        """Read the log, close everything that a dead server left open, record this server, and follow.

        Calls that wait are closed too: no process is left that could use their answers. Without a `pid` this
        server is not recorded. A closed session is only read.
        """
        await self._replay_to_head()
        if (await self._log.info(self._session_id)).closed:
            return
        if self.tree.traces_to_stop:
            await self._close_open("cancelled", STOPPED_MESSAGE)
        await self._close_open("error", SERVER_CRASH_MESSAGE)

        notices: list[Payload] = []
        if self._model_start is not None:
            notices.append(ProcessEnd(process="model", reason="server_shutdown", pid=self._model_start.pid))
        dead_server = self.tree.server_process
        if dead_server is not None:
            notices.append(ProcessEnd(process="server", reason="process_crash", pid=dead_server.pid))
        if pid is not None:
            notices.append(ProcessStart(process="server", pid=pid, demo_mode=self._claude_code.demo_mode))
        await self._append([EventDraft(notice, Scope(), "system") for notice in notices])
        await self._replay_to_head()
        await self.writer.append_with_rules([], self._replay_to_head, "apply")
        await self._replay_to_head()
        self._follower.start(self._follow())

    async def close(self) -> None:
        self._is_closing = True
        async with self._decision_lock:
            pass  # waits for a process that is being started; from now on none is
        await self._end_process()
        await self._follower.stop()
        self._timers.update(set())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._replay_to_head()
        with suppress(SessionClosed):  # a closed session accepts no more events
            await self._close_open("error", SHUTDOWN_ERROR.message)
            if self.tree.server_process is not None:
                end = ProcessEnd(process="server", reason="server_shutdown")
                await self._append([EventDraft(end, Scope(), "system")])
        self._follower.notify()

    async def _end_process(self) -> None:
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
            if self._process_run is not None:  # the session was closed, or the driver failed
                self._process_run.terminate("server_shutdown")

    async def _process_page(self, page: Page) -> None:
        for row, envelope in zip(page, page.envelopes(), strict=True):
            if row.seq <= self.tree.last_seq:
                continue
            permissions = self._pending_permissions(envelope)
            payload = self._apply(row, envelope)
            self._observe(envelope, payload)
            if not row.live:
                self._update_timers()
                await self._react(envelope, payload, permissions)

    def _pending_permissions(self, envelope: Envelope) -> dict[str, str]:
        if envelope.type != "tool.result":
            return {}
        agent = self.tree.open.get(envelope.agent_id or "")
        if agent is None:
            return {}
        return {
            call_id: call.approval_request.args_hash
            for call_id, call in agent.calls.items()
            if call.approval_request
        }

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
        if isinstance(payload, AgentStart) and not envelope.depth:
            self._source_session = payload.source_session
        elif isinstance(payload, ProcessStart | ProcessEnd) and payload.process == "model":
            self._model_start = payload if isinstance(payload, ProcessStart) else None
        elif isinstance(payload, UiCommand) and isinstance(payload.command, EndSession):
            self._source_session = None
        elif isinstance(payload, UiCommand) and isinstance(payload.command, StartSession):
            self._demo_mode = payload.command.demo_mode

    def _update_timers(self) -> None:
        turns = running_turns(self.tree)
        if self._process_run is not None and self._process_run.current_trace in self._prompts.pending:
            turns.add(self._process_run.current_trace)
        self._timers.update(turns)

    async def _replay_to_head(self) -> int:
        return await self._follower.replay_to_head()

    async def _read_to_head(self) -> int:
        """Wait until everything in the log is folded. Fold it here if the follower does not run."""
        task = self._follower.task
        if task is None or task.done():
            return await self._replay_to_head()
        return await self.wait_for_head()

    # prompts

    async def _send_next(self) -> None:
        if self._is_closing or (self._process_run and self._process_run.reason):
            return
        if not self._prompts.pending:
            if self._start_requested and self._process_run is None:
                await self._start_process(None)
            return

        trace, prompt = next(iter(self._prompts.pending.items()))
        is_answering = any(not agent.scope.depth for agent in self.tree.open.values())
        process_run = self._process_run
        is_sent = process_run is not None and process_run.current_trace in self._prompts.pending
        if is_answering or is_sent:
            return
        # a client's events open a turn, unless the message that came with them is still to be read
        last_seq = await self._log.last_seq(self._session_id) if self.tree.has_event_only_turn else None
        if last_seq is not None and self.tree.last_seq != last_seq:
            return

        process_run = self._process_run or await self._start_process(prompt)
        if process_run is not None:
            process_run.current_trace = trace
            self._send_prompt(process_run, prompt)
            self._update_timers()

    def _send_prompt(self, process_run: ProcessRun, prompt: Prompt) -> None:
        uuid = str(uuid4())
        scope = prompt.scope
        conversation_id = self.tree.conversations.get(scope.channel or "") or prompt.conversation_id
        message = SentMessage(
            scope.trace_id or "", scope.channel, prompt.speaker, conversation_id, text=prompt.text
        )
        process_run.parser.expect(uuid, message)
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
        """Stop a process that closes its stdin before it has answered the prompt.

        The prompt is lost in the pipe then, and no write fails.
        """
        is_alive = await process_run.process.wait_stdin_closed()
        if is_alive and process_run.current_trace in self._prompts.pending:
            await self._give_up(process_run, "it closed its stdin")

    async def _give_up(self, process_run: ProcessRun, cause: str) -> None:
        is_running = process_run is self._process_run and process_run.reason is None
        if is_running and not process_run.has_write_error:
            process_run.has_write_error = True
            await self._append_error("stdin_write_failed", f"The process did not read its input: {cause}.")
        process_run.terminate(None)

    # reactions to events

    async def _react(
        self, envelope: Envelope, payload: Payload | UnknownPayload, pending_permissions: Mapping[str, str]
    ) -> None:
        if isinstance(payload, UiCommand):
            handler = COMMAND_HANDLERS.get(type(payload.command))
            if handler is not None:
                await handler(self, payload.command)
        elif isinstance(payload, ApprovalDecision):
            self._answer_permission(payload)
        elif isinstance(payload, ToolResult) and payload.call_id in pending_permissions and self._process_run:
            # a message has cancelled the call: the process must not run it
            self._process_run.answered_calls.add(payload.call_id)
            denial = ApprovalDecision(
                call_id=payload.call_id,
                args_hash=pending_permissions[payload.call_id],
                decision="deny",
                notes=CANCELLED_BY_MESSAGE,
            )
            self._answer_permission(denial)
        elif isinstance(payload, UiMessage | UiAction) and self.tree.is_running(envelope.trace_id or ""):
            prompt = self._prompts.build_prompt(envelope, payload)
            if prompt and self._process_run:
                self._send_prompt(self._process_run, prompt)

    def _answer_permission(self, decision: ApprovalDecision) -> None:
        if self._process_run is None:
            return
        line = self._process_run.parser.decide(decision)
        if line is not None:
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
            items: list[EventDraft] = []
            for prompt in self._prompts.pending.values():
                items += self._close_unanswered(prompt, "cancelled")
            await self._append(items)

    async def _stop(self, stop: Stop) -> None:
        process_run = self._process_run
        if process_run is None:
            return
        traces = self.tree.traces_to_stop
        is_unanswered = process_run.current_trace in self._prompts.pending
        is_targeted = stop.turn in (None, process_run.current_trace) and stop.agent_id is None
        if is_unanswered and is_targeted:
            traces.add(process_run.current_trace)
        if traces:
            self._interrupt(process_run, traces, "user_ended", "cancelled")

    def _interrupt(
        self, process_run: ProcessRun, traces: set[Trace], reason: ProcessEndReason, outcome: StopReason
    ) -> None:
        agents = {key for key, agent in self.tree.open.items() if agent.scope.trace_id in traces}
        outcomes = dict.fromkeys(map(str, traces), outcome)
        self._write_line(process_run, interrupt_line(str(uuid4())))
        self._spawn(self._kill_after_grace(process_run, agents, reason, outcomes))

    async def _kill_after_grace(
        self,
        process_run: ProcessRun,
        agents: set[str],
        reason: ProcessEndReason,
        outcomes: dict[str, StopReason],
    ) -> None:
        await asyncio.sleep(INTERRUPT_GRACE_S)
        await self._read_to_head()
        if process_run is not self._process_run:
            return
        unanswered = {trace: outcomes[trace] for trace in outcomes.keys() & self._prompts.pending.keys()}
        still_open = {key for key, agent in self.tree.open.items() if agent.scope.trace_id in outcomes}
        # a process may start a turn after the interrupt: then none of its agents was open before
        if agents:
            still_open &= agents
        if unanswered or still_open:
            process_run.abandoned_traces |= unanswered
            process_run.terminate(reason)

    def _on_turn_timeout(self, trace: Trace) -> None:
        self._spawn(self._time_out_turn(trace))

    async def _time_out_turn(self, trace: Trace) -> None:
        await self._read_to_head()
        process_run = self._process_run
        if process_run is None or trace in process_run.timed_out_traces:
            return
        if self._timers.is_expired(trace):
            process_run.timed_out_traces.add(trace)
            message = f"The turn took longer than {self._timers.limit_s:g} s and was ended."
            await self._append_error("turn_timeout", message, Scope(trace_id=trace))
            self._interrupt(process_run, {trace}, "process_crash", "timeout")

    # the process

    async def _start_process(self, prompt: Prompt | None) -> ProcessRun | None:
        """Start a process. If that fails, append the error, close the prompt's turn and return None."""
        self._start_requested = False
        try:
            process = await ClaudeProcess.start(
                self._claude_code.argv(self._source_session), self._claude_code.cwd, self._claude_code.env
            )
        except (OSError, ValueError) as error:  # ValueError: an argument has a null byte
            code = "setup_required" if isinstance(error, ProgramNotFound) else "unknown"
            scope = prompt.scope if prompt else Scope()
            problem = SessionError(code=code, message=f"The process cannot be started: {error.args[-1]}.")
            closings = self._close_unanswered(prompt, "error") if prompt else []
            await self._append([EventDraft(problem, scope, "system"), *closings])
            return None

        parser = CliParser(
            new_id,
            self._claude_code.name,
            self._tags,
            self._claude_code.tool_effects,
            find_sign_in_method(self._claude_code.env),
        )
        process_run = ProcessRun(process, parser, is_resumed=self._source_session is not None)
        self._process_run = process_run
        start_event = ProcessStart(
            process="model",
            pid=process.pid,
            model=self._claude_code.model,
            demo_mode=self._claude_code.demo_mode or self._demo_mode,
        )
        self._output_task = asyncio.create_task(
            self._run_process(process_run, start_event), context=Context()
        )
        self._output_task.add_done_callback(self._follower.on_task_done)
        self._spawn(self._watch_stdin(process_run))
        self._last_active_s = asyncio.get_running_loop().time()
        self._check_idle(process_run)
        return process_run

    async def _run_process(self, process_run: ProcessRun, start_event: ProcessStart) -> None:
        try:
            await self._append([EventDraft(start_event, Scope(), "system")])
            async for chunk in process_run.process.chunks():
                self._last_active_s = asyncio.get_running_loop().time()
                await self._append_output(process_run, process_run.parser.feed(chunk))
                for line in process_run.parser.take_stdin_lines():
                    self._write_line(process_run, line)
        except SessionClosed:
            process_run.terminate("server_shutdown")
        except CallerError:  # the log refuses an event of the process
            log.exception("the output of a process cannot be appended")
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
        # rules may react to events of the application (which have no TYPE) and to the ends of agents
        if any(not item.payload.TYPE or isinstance(item.payload, AgentEnd) for item in items):
            await self.writer.append_with_rules(items, self._read_to_head)
        elif items:
            await self._append(items)

    async def _record_exit(self, process_run: ProcessRun, code: int) -> None:
        await self._read_to_head()
        items = self._closing_events(process_run)
        started = {item.scope.trace_id for item in items if isinstance(item.payload, AgentStart)}
        for trace, prompt in self._prompts.pending.items():
            if trace not in started:
                items += self._handle_undelivered(process_run, trace, prompt)
        # the program could not resume the conversation: the next process starts a new one
        if process_run.is_resumed and process_run.parser.source_session is None:
            self._source_session = None
        if process_run.reason == "inactivity_timeout":
            idle_s = self._claude_code.inactivity_s
            message = f"Nothing happened for {idle_s:g} s; the next message starts a process."
            problem = SessionError(code="inactivity_timeout", message=message, retriable=True)
            items.append(EventDraft(problem, Scope(), "system"))
        end = ProcessEnd(
            process="model",
            reason=process_run.reason or "process_crash",
            pid=process_run.process.pid,
            exit_code=128 - code if code < 0 else code,
        )
        self._process_run = None
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        await self._append([*items, EventDraft(end, Scope(), "system")])

    def _closing_events(self, process_run: ProcessRun) -> list[EventDraft]:
        # the log has refused an event, so it knows less than the parser: the tree decides what is open
        if process_run.fault is UNWRITABLE_ERROR:
            problem = SessionError(code=process_run.fault.code, message=process_run.fault.message)
            ends = build_closing_events(self.tree, "error", process_run.fault.message, keep_waiting=False)
            return [
                EventDraft(problem, Scope(), "system"),
                *(EventDraft(end.payload, end.scope, "system") for end in ends),
            ]
        outcome: StopReason = "error" if process_run.reason in (None, "server_shutdown") else "cancelled"
        return list(filter_output(process_run, process_run.parser.flush(process_run.fault, outcome)))

    def _handle_undelivered(self, process_run: ProcessRun, trace: str, prompt: Prompt) -> list[EventDraft]:
        if trace in process_run.abandoned_traces:
            return self._close_unanswered(prompt, process_run.abandoned_traces[trace])
        if trace != process_run.current_trace or process_run.reason is not None:
            return []
        self._attempts[trace] += 1
        if self._attempts[trace] < MAX_ATTEMPTS:
            return []
        problem = SessionError(code="process_exited", message=PROCESS_DIED_MESSAGE)
        return [EventDraft(problem, prompt.scope, "system"), *self._close_unanswered(prompt, "error")]

    def _close_unanswered(self, prompt: Prompt, reason: StopReason) -> list[EventDraft]:
        scope = structs.replace(
            prompt.scope, agent_id=new_id("agt_"), agent_name=self._claude_code.name, depth=0
        )
        start = AgentStart(
            name=self._claude_code.name,
            via="prompt",
            prompt=prompt.text,
            source_session=self._source_session,
        )
        return [EventDraft(start, scope, "system"), EventDraft(AgentEnd(stop_reason=reason), scope, "system")]

    def _check_idle(self, process_run: ProcessRun) -> None:
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
        await self._append([EventDraft(problem, scope, "system")])

    async def _append(self, items: Iterable[EventDraft]) -> int:
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
}  # all others are prompts
