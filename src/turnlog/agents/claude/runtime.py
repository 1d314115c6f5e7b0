"""The runtime of a session that a Claude Code process answers.

Pending prompts are written to stdin one turn after the other; stops, decisions and commands are written as
they arrive. One task reads stdout: the events of one chunk are one append, and nothing more is read before it
is durable. The first prompt starts the process, and every start has its end in the log, with the true reason.
A prompt that a process did not answer is written to the next process, `MAX_ATTEMPTS` times. A turn that a
process was answering when the server ended is closed: no other process knows how far it had come.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from msgspec import structs, to_builtins

from turnlog.agents.claude.process import ClaudeProcess, ProgramNotFound, find_sign_in_method
from turnlog.agents.claude.process_run import ProcessEndReason, ProcessRun, filter_output
from turnlog.agents.claude.prompts import Prompt, PromptQueue
from turnlog.agents.models.messages import to_api_part
from turnlog.agents.models.model import session_blob_reader
from turnlog.agents.runtime.agent_runtime import CRASH_MESSAGE, STOPPED_MESSAGE
from turnlog.agents.runtime.session_runtime import OnCrash
from turnlog.agents.runtime.turn_timeout import Trace, running_turns
from turnlog.agents.runtime.user_input import CANCELLED_BY_MESSAGE
from turnlog.errors import CallerError, SessionClosed, StoreError, Unavailable
from turnlog.events import (
    AgentEnd,
    AgentStart,
    ApprovalDecision,
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
from turnlog.parse.claude.lines import interrupt_line, message_line
from turnlog.parse.claude.parser import CliParser
from turnlog.parse.claude.turns import SentMessage
from turnlog.state.closing import build_closing_events
from turnlog.team.markers import tag_and_marker_parser_factory

if TYPE_CHECKING:
    from turnlog.agents.claude.claude_code import ClaudeCode
    from turnlog.agents.runtime.session_runner import SessionRunner

log = logging.getLogger("turnlog.agents")

NO_PERMISSIONS: Mapping[str, str] = {}
SESSION_CONFLICT = "session_conflict"

MAX_ATTEMPTS = 3  # processes that may die of one prompt before its turn ends with an error
INTERRUPT_GRACE_S = 5.0  # from the interrupt to the end of the process, if the turn does not end
SHUTDOWN_ERROR = ErrorInfo(code="process_exited", message="The server was stopped.")
UNWRITABLE_ERROR = ErrorInfo(code="unknown", message="The output of the process cannot be written.")
CONVERSATION_LOST_MESSAGE = (
    "The process did not find its earlier conversation, which may be on another machine. It begins a new one."
)
PROCESS_DIED_MESSAGE = "The process ended before it took up the message."


class ClaudeRuntime:
    """Runs the process of one session."""

    def __init__(
        self, host: "SessionRunner", claude_code: "ClaudeCode", vocabulary: Vocabulary | None
    ) -> None:
        self._host = host
        self._claude_code = claude_code
        self._tags = tag_and_marker_parser_factory(vocabulary)
        self._tree = host.tree
        self._prompts = PromptQueue(host.tree)
        self._attempts: Counter[str] = Counter()
        self._process_run: ProcessRun | None = None
        self._output_task: asyncio.Task[None] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._last_active_s = 0.0
        self._model_start: ProcessStart | None = None
        self._source_session: str | None = None  # the process's own id of the conversation
        self._demo_mode = False
        self._start_requested = False
        self._ended_traces: set[str] = set()  # turns that were pending when a `session.end` arrived
        self._is_closing = False
        self._is_handing_over = False

    # after another owner, and before the next

    async def close_interrupted(self, on_crash: OnCrash) -> None:
        """Close everything that an earlier server left open.

        Calls that wait are closed too: no process is left that could use their answers.
        """
        if self._tree.traces_to_stop:
            await self._close_open("cancelled", STOPPED_MESSAGE)
        await self._close_open("error", CRASH_MESSAGE)
        items: list[EventDraft] = []
        for trace in self._ended_traces & self._prompts.pending.keys():
            items += self._close_unanswered(self._prompts.pending[trace], "cancelled")
        if self._model_start is not None:
            end = ProcessEnd(process="model", reason="server_shutdown", pid=self._model_start.pid)
            items.append(EventDraft(end, Scope(), "system"))
        await self._host.append(items)
        await self._host.replay_to_head()

    async def resume(self) -> None:
        await self.on_page_end()

    async def stop(self, on_crash: OnCrash) -> None:
        self._is_closing = True
        async with self._host.lock:
            pass  # waits for a process that is being started; from now on none is
        await self._end_process()
        await self._host.cancel_tasks()
        await self._host.replay_to_head()
        with suppress(SessionClosed):  # a closed session accepts no more events
            await self._close_open("error", SHUTDOWN_ERROR.message)

    def hand_over(self) -> None:
        # The turn that the process answers is finished here: no other process knows how far it has come.
        self._is_handing_over = True

    @property
    def is_between_steps(self) -> bool:
        process_run = self._process_run
        is_sent = process_run is not None and process_run.current_trace in self._prompts.pending
        return not self._tree.open and not is_sent

    def abandon(self) -> None:
        if self._process_run is not None:
            self._process_run.terminate("server_shutdown")

    @property
    def is_quiet(self) -> bool:
        return self._process_run is None and not self._prompts.pending and not self._start_requested

    @property
    def wake_at_ms(self) -> int | None:
        return None

    async def _end_process(self) -> None:
        if self._process_run is not None:
            self._process_run.fault = SHUTDOWN_ERROR
            self._process_run.terminate("server_shutdown")
        if self._output_task is not None:
            await asyncio.gather(self._output_task, return_exceptions=True)

    async def _close_open(self, reason: StopReason, message: str) -> None:
        await self._host.append_closings(
            lambda: build_closing_events(self._tree, reason, message, keep_waiting=False)
        )

    # folding

    def inspect(self, envelope: Envelope, payload: Payload | UnknownPayload) -> Mapping[str, str]:
        """Return the permissions that the agent of a result waits for: argument hashes by call."""
        if envelope.type != "tool.result":
            return NO_PERMISSIONS
        agent = self._tree.open.get(envelope.agent_id or "")
        if agent is None:
            return NO_PERMISSIONS
        return {
            call_id: call.approval_request.args_hash
            for call_id, call in agent.calls.items()
            if call.approval_request
        }

    def apply(
        self, envelope: Envelope, payload: Payload | UnknownPayload, context: Mapping[str, str]
    ) -> None:
        self._prompts.apply(envelope, payload)
        self._track_process(envelope, payload)
        if isinstance(payload, AgentStart):  # a process has taken up the turn
            self._attempts.pop(envelope.trace_id or "", None)

    def _track_process(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        if isinstance(payload, AgentStart) and not envelope.depth:
            self._source_session = payload.source_session
        elif isinstance(payload, ProcessStart | ProcessEnd) and payload.process == "model":
            self._model_start = payload if isinstance(payload, ProcessStart) else None
            if isinstance(payload, ProcessStart):
                self._start_requested = False
        elif isinstance(payload, UiCommand) and isinstance(payload.command, EndSession):
            self._source_session = None
            self._start_requested = False
            self._ended_traces = set(self._prompts.pending)
        elif isinstance(payload, UiCommand) and isinstance(payload.command, StartSession):
            self._demo_mode = payload.command.demo_mode
            # a process that runs already is a conflict, and no reason to start another one later; one of an
            # earlier server has ended with it, also if the log does not say so yet
            self._start_requested = self._process_run is None
        elif isinstance(payload, SessionError) and payload.code == SESSION_CONFLICT:
            self._start_requested = False

    @property
    def running_turns(self) -> set[Trace]:
        turns = running_turns(self._tree)
        if self._process_run is not None and self._process_run.current_trace in self._prompts.pending:
            turns.add(self._process_run.current_trace)
        return turns

    async def _read_to_head(self) -> int:
        """Wait until everything in the log is folded. Fold it here if the runner has stopped to follow."""
        if not self._is_closing and not self._host.has_ended:
            with suppress(Unavailable):  # the runner stopped while this waited
                return await self._host.wait_for_head()
        return await self._host.replay_to_head()

    def open_turn(self, message: UiMessage, scope: Scope) -> list[EventDraft]:
        return []  # the process starts its agents itself

    async def withdraw_turn(self, trace: Trace) -> None:
        pass

    async def on_page_end(self) -> None:
        await self._send_next()

    # prompts

    async def _send_next(self) -> None:
        if self._is_closing or self._is_handing_over or (self._process_run and self._process_run.reason):
            return
        if not self._prompts.pending:
            if self._start_requested and self._process_run is None:
                await self._host.confirm_ownership()
                await self._start_process(None)
            return

        trace, prompt = next(iter(self._prompts.pending.items()))
        is_answering = any(not agent.scope.depth for agent in self._tree.open.values())
        process_run = self._process_run
        is_sent = process_run is not None and process_run.current_trace in self._prompts.pending
        if is_answering or is_sent:
            return
        # a client's events open a turn, unless the message that came with them is still to be read
        if self._tree.has_event_only_turn:
            last_seq = await self._host.log.last_seq(self._host.session_id)
            if self._tree.last_seq != last_seq:
                return

        await self._host.confirm_ownership()  # what a process does cannot be taken back
        process_run = self._process_run or await self._start_process(prompt)
        if process_run is not None:
            process_run.current_trace = trace
            await self._send_prompt(process_run, prompt)
            self._host.timers.update(self.running_turns)

    async def _send_prompt(self, process_run: ProcessRun, prompt: Prompt) -> None:
        uuid = str(uuid4())
        scope = prompt.scope
        conversation_id = self._tree.conversations.get(scope.channel or "") or prompt.conversation_id
        message = SentMessage(
            scope.trace_id or "", scope.channel, prompt.speaker, conversation_id, text=prompt.text
        )
        # Before the message is expected: reading blobs lets other tasks run.
        read_blob = session_blob_reader(self._host.session_id, self._host.log.get_blob)
        files = [await to_api_part(to_builtins(part), read_blob) for part in prompt.files]
        process_run.parser.expect(uuid, message)
        self._write_line(process_run, message_line(self._prompts.render(prompt), uuid, files))

    def _write_line(self, process_run: ProcessRun, line: bytes) -> None:
        self._last_active_s = asyncio.get_running_loop().time()
        process_run.process.write(line)
        self._host.spawn(self._drain(process_run), None)

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

    async def react(
        self, envelope: Envelope, payload: Payload | UnknownPayload, context: Mapping[str, str]
    ) -> None:
        if isinstance(payload, UiCommand):
            handler = COMMAND_HANDLERS.get(type(payload.command))
            if handler is not None:
                await handler(self, payload.command)
        elif isinstance(payload, ApprovalDecision):
            self._answer_permission(payload)
        elif isinstance(payload, ToolResult) and payload.call_id in context and self._process_run:
            # a message has cancelled the call: the process must not run it
            self._process_run.answered_calls.add(payload.call_id)
            denial = ApprovalDecision(
                call_id=payload.call_id,
                args_hash=context[payload.call_id],
                decision="deny",
                notes=CANCELLED_BY_MESSAGE,
            )
            self._answer_permission(denial)
        elif isinstance(payload, UiMessage | UiAction) and self._tree.is_running(envelope.trace_id or ""):
            prompt = self._prompts.build_prompt(envelope, payload)
            if prompt and self._process_run:
                await self._send_prompt(self._process_run, prompt)

    def _answer_permission(self, decision: ApprovalDecision) -> None:
        if self._process_run is None:
            return
        line = self._process_run.parser.decide(decision)
        if line is not None:
            self._write_line(self._process_run, line)

    async def _start_session(self, _: StartSession) -> None:
        if self._process_run is not None and self._process_run.reason is None:
            await self._append_error(SESSION_CONFLICT, "The process is running already.")
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
            await self._host.append(items)

    async def _stop(self, stop: Stop) -> None:
        process_run = self._process_run
        if process_run is None:
            return
        traces = self._tree.traces_to_stop
        is_unanswered = process_run.current_trace in self._prompts.pending
        is_targeted = stop.turn in (None, process_run.current_trace) and stop.agent_id is None
        if is_unanswered and is_targeted:
            traces.add(process_run.current_trace)
        if traces:
            self._interrupt(process_run, traces, "user_ended", "cancelled")

    def _interrupt(
        self, process_run: ProcessRun, traces: set[Trace], reason: ProcessEndReason, outcome: StopReason
    ) -> None:
        agents = {key for key, agent in self._tree.open.items() if agent.scope.trace_id in traces}
        outcomes = dict.fromkeys(map(str, traces), outcome)
        self._write_line(process_run, interrupt_line(str(uuid4())))
        self._host.spawn(self._kill_after_grace(process_run, agents, reason, outcomes), None)

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
        still_open = {key for key, agent in self._tree.open.items() if agent.scope.trace_id in outcomes}
        # a process may start a turn after the interrupt: then none of its agents was open before
        if agents:
            still_open &= agents
        if unanswered or still_open:
            process_run.abandoned_traces |= unanswered
            process_run.terminate(reason)

    async def end_timed_out(self, trace: Trace) -> None:
        process_run = self._process_run
        if process_run is None or trace in process_run.timed_out_traces:
            return
        process_run.timed_out_traces.add(trace)
        message = f"The turn took longer than {self._host.timers.limit_s:g} s and was ended."
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
            await self._host.append([EventDraft(problem, scope, "system"), *closings])
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
        self._output_task = self._host.spawn(self._run_process(process_run, start_event), None)
        self._host.spawn(self._watch_stdin(process_run), None)
        self._last_active_s = asyncio.get_running_loop().time()
        self._check_idle(process_run)
        return process_run

    async def _run_process(self, process_run: ProcessRun, start_event: ProcessStart) -> None:
        try:
            await self._host.append([EventDraft(start_event, Scope(), "system")])
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
            await self._host.writer.append_with_rules(items, self._read_to_head)
        elif items:
            await self._host.append(items)

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
            lost = SessionError(code="conversation_lost", message=CONVERSATION_LOST_MESSAGE)
            items.append(EventDraft(lost, Scope(), "system"))
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
        await self._host.append([*items, EventDraft(end, Scope(), "system")])

    def _closing_events(self, process_run: ProcessRun) -> list[EventDraft]:
        # the log has refused an event, so it knows less than the parser: the tree decides what is open
        if process_run.fault is UNWRITABLE_ERROR:
            problem = SessionError(code=process_run.fault.code, message=process_run.fault.message)
            ends = build_closing_events(self._tree, "error", process_run.fault.message, keep_waiting=False)
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
        if self._tree.open or self._prompts.pending:
            self._last_active_s = loop.time()
        left_s = self._last_active_s + self._claude_code.inactivity_s - loop.time()
        if left_s <= 0:
            process_run.terminate("inactivity_timeout")
        else:
            self._idle_timer = loop.call_later(left_s, self._check_idle, process_run)

    # appending

    async def _append_error(self, code: str, message: str, scope: Scope = Scope()) -> None:  # noqa: B008
        problem = SessionError(code=code, message=message, retriable=code == "turn_timeout")
        await self._host.append([EventDraft(problem, scope, "system")])


COMMAND_HANDLERS: Mapping[type, Callable[[ClaudeRuntime, Any], Coroutine[Any, Any, None]]] = {
    StartSession: ClaudeRuntime._start_session,
    EndSession: ClaudeRuntime._end_session,
    Stop: ClaudeRuntime._stop,
}  # all others are prompts
