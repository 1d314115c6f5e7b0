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

from turnlog.agents.claude_cli import ClaudeCli
from turnlog.agents.cli_life import Life, Reason, judged
from turnlog.agents.cli_outbox import Letter, Outbox
from turnlog.agents.cli_process import CliProcess, Missing
from turnlog.agents.driver import STOPPED, unobserved
from turnlog.agents.follower import Follower
from turnlog.agents.limit import Clocks, Trace, running
from turnlog.agents.loop import Item
from turnlog.agents.pen import Ledger, Pen
from turnlog.errors import CallerError, Closed, StoreError
from turnlog.events import (
    AgentEnd,
    AgentStart,
    ApprovalDecision,
    Catalog,
    Envelope,
    Fault,
    Payload,
    ProcessEnd,
    ProcessStart,
    Scope,
    SessionError,
    ToolResult,
    UiAction,
    UiCommand,
    UiMessage,
    Unknown,
    Vocabulary,
)
from turnlog.events.agent import StopReason
from turnlog.events.ui import EndSession, StartSession, Stop
from turnlog.ids import new_id
from turnlog.log import Log, Page, Row
from turnlog.parse.claude_cli import CliParser
from turnlog.parse.cli_agents import Said
from turnlog.parse.cli_lines import interrupt_line, message_line
from turnlog.parse.cli_turns import Asked
from turnlog.parse.reply import tags_and_markers_of
from turnlog.state.tree import Tree, closing
from turnlog.state.views import Views

log = logging.getLogger("turnlog.agents")

TRIES = 3  # processes that may die of one message before anything comes of it
STOP_S = 5.0  # from the interrupt to the end of the process, if the turn does not end
GONE = "The server stopped while this was running."
SHUTDOWN = Fault(code="process_exited", message="The server was stopped.")
UNWRITABLE = Fault(code="unknown", message="What the process said cannot be written.")
WENT_ON = "The user went on with a message."
DIED = "The process ended before it took up the message."


class ProcessDriver:
    """Runs the process of one session."""

    def __init__(
        self,
        log: Log,
        session_id: str,
        cli: ClaudeCli,
        catalog: Catalog,
        vocabulary: Vocabulary | None,
        observe: Callable[[Envelope, Payload | Unknown], None] = unobserved,
        turn_limit_s: float = math.inf,
        ledger: Ledger | None = None,
    ) -> None:
        self._log, self._session_id, self._cli, self._catalog = log, session_id, cli, catalog
        self._tags = tags_and_markers_of(vocabulary)
        self._observe = observe
        self.tree, self.views = Tree(), Views()
        self.pen = Pen(log, session_id, catalog, ledger)
        self._outbox = Outbox(self.tree)
        self._clocks = Clocks(turn_limit_s, self._ring)
        self._tasks: set[asyncio.Task[None]] = set()
        self._deciding = asyncio.Lock()
        self._tries: Counter[str] = Counter()
        self._life: Life | None = None
        self._listener: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._active_s = 0.0
        self._model: ProcessStart | None = None
        self._source: str | None = None  # what the process calls its conversation
        self._demo = self._wanted = self._closing = False
        self._follower = Follower(log, session_id, self.pen, self.tree, self._apply)
        self.reached, self.rested = self._follower.reached, self._follower.rested
        self.caught_up, self._catch_up = self._follower.caught_up, self._follower.catch_up

    @property
    def left(self) -> bool:
        """Whether nobody follows the session any more."""
        return self._follower.left

    # life

    async def open(self, pid: int | None = None) -> None:
        """Read the log, close what a dead server left, waiting or not, say that this one is here, follow."""
        await self._catch_up()
        if (await self._log.info(self._session_id)).closed:
            return  # nothing more happens in it; it can be looked at
        if self.tree.stopped:
            await self._close_open("cancelled", STOPPED)
        await self._close_open("error", GONE)
        notices: list[Payload] = []
        if self._model is not None:
            notices.append(ProcessEnd(process="model", reason="server_shutdown", pid=self._model.pid))
        if self.tree.server is not None:
            notices.append(ProcessEnd(process="server", reason="process_crash", pid=self.tree.server.pid))
        if pid is not None:
            notices.append(ProcessStart(process="server", pid=pid, demo_mode=self._cli.demo_mode))
        await self._append([Item(notice, Scope(), "system") for notice in notices])
        await self._catch_up()
        await self.pen.conclude([], self._catch_up, "apply")
        await self._catch_up()
        self._follower.start(self._follow())

    async def close(self) -> None:
        """End the process, and what it had under way."""
        self._closing = True
        async with self._deciding:
            pass  # no process is being started now, and none will be
        await self._finish()
        await self._follower.stop()
        self._clocks.watch(set())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._catch_up()
        with suppress(Closed):  # what was open when the session was closed stays so
            await self._close_open("error", SHUTDOWN.message)
            if self.tree.server is not None:
                end = ProcessEnd(process="server", reason="server_shutdown")
                await self._append([Item(end, Scope(), "system")])
        self._follower.moved()

    async def _finish(self) -> None:
        """End the process and wait until its end is in the log."""
        if self._life is not None:
            self._life.fault = SHUTDOWN
            self._life.end("server_shutdown")
        if self._listener is not None:
            await asyncio.gather(self._listener, return_exceptions=True)

    async def _close_open(self, reason: StopReason, message: str) -> None:
        await self._follower.close(
            lambda: closing(self.tree, reason, message, keep_waiting=False), self._catch_up
        )

    # following

    async def _follow(self) -> None:
        try:
            async with self._deciding:
                await self._pump()
            async for page in self._log.follow(self._session_id, self.tree.last):
                async with self._deciding:
                    await self._see(page)
                    await self._pump()
        finally:
            if self._life is not None:  # the session was closed, or nobody can follow it
                self._life.end("server_shutdown")

    async def _see(self, page: Page) -> None:
        for row, envelope in zip(page, page.envelopes(), strict=True):
            if row.seq > self.tree.last:
                asked = self._asked(envelope)
                payload = self._apply(row, envelope)
                self._observe(envelope, payload)
                if not row.live:
                    self._watch()
                    await self._react(envelope, payload, asked)

    def _asked(self, envelope: Envelope) -> dict[str, str]:
        """The permissions that an agent waits for, by call, before something happens to it."""
        agent = self.tree.open.get(envelope.agent_id or "")
        calls = agent.calls.items() if agent and envelope.type == "tool.result" else ()
        return {key: call.asked.args_hash for key, call in calls if call.asked}

    def _apply(self, row: Row, envelope: Envelope) -> Payload | Unknown:
        payload = self._catalog.payload(envelope)
        self.pen.rank = row.rank
        self.tree.apply(envelope, payload)
        if not row.live:
            self.pen.ledger.apply(envelope, payload)
            self.views.apply(envelope, payload)
            self._outbox.apply(envelope, payload)
            self._remember(envelope, payload)
        if isinstance(payload, AgentStart):  # a process has taken up the turn
            self._tries.pop(envelope.trace_id or "", None)
        self._follower.moved()
        return payload

    def _remember(self, envelope: Envelope, payload: Payload | Unknown) -> None:
        """What the log says of the process itself."""
        if isinstance(payload, AgentStart) and not envelope.depth:
            self._source = payload.source_session
        elif isinstance(payload, ProcessStart | ProcessEnd) and payload.process == "model":
            self._model = payload if isinstance(payload, ProcessStart) else None
        elif isinstance(payload, UiCommand) and isinstance(payload.command, EndSession):
            self._source = None
        elif isinstance(payload, UiCommand) and isinstance(payload.command, StartSession):
            self._demo = payload.command.demo_mode

    def _watch(self) -> None:
        """Time what runs, and what went down and was not taken up."""
        sent = self._life.sent if self._life else ""
        self._clocks.watch(running(self.tree) | ({sent} & self._outbox.pending.keys()))

    async def _look(self) -> int:
        """Know everything that is in the log now; the last seq."""
        task = self._follower.task
        return await (self._catch_up() if task is None or task.done() else self.caught_up())

    # telling

    async def _pump(self) -> None:
        """Tell the process what is next, when nobody speaks; it is started for that."""
        if self._closing or (self._life and self._life.reason):
            return
        trace, letter = next(iter(self._outbox.pending.items()), ("", None))
        if letter is None:
            if self._wanted and self._life is None:
                await self._start(None)
            return
        speaking = any(not agent.scope.depth for agent in self.tree.open.values())
        sent = self._life is not None and self._life.sent in self._outbox.pending
        whole = not self.tree.wordless or self.tree.last == await self._log.last_seq(self._session_id)
        if speaking or sent or not whole:
            return
        life = self._life or await self._start(letter)
        if life is not None:
            life.sent = trace
            self._send(life, letter)
            self._watch()

    def _send(self, life: Life, letter: Letter) -> None:
        uuid = str(uuid4())
        scope = letter.scope
        life.parser.expect(uuid, Asked(scope.trace_id or "", scope.channel, letter.speaker))
        self._tell(life, message_line(self._outbox.text(letter), uuid))

    def _tell(self, life: Life, line: bytes) -> None:
        self._active_s = asyncio.get_running_loop().time()
        life.process.write(line)
        self._spawn(self._told(life))

    async def _told(self, life: Life) -> None:
        try:
            await life.process.written()
        except OSError as error:
            await self._give_up(life, type(error).__name__)

    async def _watch_stdin(self, life: Life) -> None:
        """End a process that closes its stdin before it has taken up what it was told.

        What it was told is lost in the pipe then, and no write fails.
        """
        if await life.process.stops_reading() and life.sent in self._outbox.pending:
            await self._give_up(life, "it closed its stdin")

    async def _give_up(self, life: Life, why: str) -> None:
        """End a process that does not read what it is told, and say so once."""
        if life.reason is None and life is self._life and not life.is_deaf:
            life.is_deaf = True
            await self._complain("stdin_write_failed", f"The process did not take what it was told: {why}.")
        life.end(None)

    # what follows from an event

    async def _react(self, envelope: Envelope, payload: Payload | Unknown, asked: Mapping[str, str]) -> None:
        if isinstance(payload, UiCommand):
            if command := COMMANDS.get(type(payload.command)):
                await command(self, payload.command)
        elif isinstance(payload, ApprovalDecision):
            self._decide(payload)
        elif isinstance(payload, ToolResult) and payload.call_id in asked and self._life:
            self._life.freed.add(payload.call_id)
            hashed = asked[payload.call_id]
            self._decide(
                ApprovalDecision(call_id=payload.call_id, args_hash=hashed, decision="deny", notes=WENT_ON)
            )
        elif isinstance(payload, UiMessage | UiAction) and self.tree.runs(envelope.trace_id or ""):
            letter = self._outbox.letter(envelope, payload)
            if letter and self._life:
                self._send(self._life, letter)

    def _decide(self, decision: ApprovalDecision) -> None:
        """Answer a permission that the process waits for."""
        if self._life and (line := self._life.parser.decide(decision)):
            self._tell(self._life, line)

    async def _start_session(self, _: StartSession) -> None:
        if self._life is not None and self._life.reason is None:
            await self._complain("session_conflict", "The process is running already.")
        else:
            self._wanted = True

    async def _end_session(self, _: EndSession) -> None:
        self._wanted = False
        if self._life is not None:
            self._life.dropped |= dict.fromkeys(self._outbox.pending, "cancelled")
            self._life.end("user_ended")
        else:
            letters = list(self._outbox.pending.values())
            await self._append([item for letter in letters for item in self._skip(letter, "cancelled")])

    async def _stop(self, stop: Stop) -> None:
        """End what runs, and what was just told."""
        life = self._life
        if life is None:
            return
        traces = self.tree.stopped
        if life.sent in self._outbox.pending and stop.turn in (None, life.sent) and stop.agent_id is None:
            traces.add(life.sent)
        if traces:
            self._interrupt(life, traces, "user_ended", "cancelled")

    def _interrupt(self, life: Life, traces: set[Trace], reason: Reason, outcome: StopReason) -> None:
        agents = {key for key, agent in self.tree.open.items() if agent.scope.trace_id in traces}
        self._tell(life, interrupt_line(str(uuid4())))
        self._spawn(self._insist(life, agents, reason, dict.fromkeys(map(str, traces), outcome)))

    async def _insist(
        self, life: Life, agents: set[str], reason: Reason, outcomes: dict[str, StopReason]
    ) -> None:
        """End the process if an interrupt has not ended these agents, or a turn was not even taken up."""
        await asyncio.sleep(STOP_S)
        await self._look()
        pending = {trace: outcomes[trace] for trace in outcomes.keys() & self._outbox.pending.keys()}
        # A process may take up a turn after the interrupt: then its agents were not open yet.
        inside = {key for key, agent in self.tree.open.items() if agent.scope.trace_id in outcomes}
        if life is self._life and (pending or (inside & agents if agents else inside)):
            life.dropped |= pending
            life.end(reason)

    def _ring(self, trace: Trace) -> None:
        self._spawn(self._time_out(trace))

    async def _time_out(self, trace: Trace) -> None:
        """End a turn that ran too long; one that is over by now, or waits, is left alone."""
        await self._look()
        life = self._life
        if life is not None and trace not in life.late and self._clocks.over(trace):
            life.late.add(trace)
            message = f"The turn took longer than {self._clocks.limit_s:g} s and was ended."
            await self._complain("turn_timeout", message, Scope(trace_id=trace))
            self._interrupt(life, {trace}, "process_crash", "timeout")

    # the process

    async def _start(self, letter: Letter | None) -> Life | None:
        """Start a process; if there is none to be had, the turn it was for is over."""
        self._wanted = False
        try:
            process = await CliProcess.start(self._cli.line(self._source), self._cli.cwd, self._cli.env)
        except (OSError, ValueError) as error:  # there is none, or no system could start such a command
            code = "setup_required" if isinstance(error, Missing) else "unknown"
            scope = letter.scope if letter else Scope()
            problem = SessionError(code=code, message=f"The process cannot be started: {error.args[-1]}.")
            over = self._skip(letter, "error") if letter else []
            await self._append([Item(problem, scope, "system"), *over])
            return None
        parser = CliParser(new_id, self._cli.name, self._tags, self._cli.deeds)
        life = self._life = Life(process, parser, resumed=self._source is not None)
        demo_mode = self._cli.demo_mode or self._demo
        begun = ProcessStart(process="model", pid=process.pid, model=self._cli.model, demo_mode=demo_mode)
        self._listener = asyncio.create_task(self._live(life, begun), context=Context())
        self._listener.add_done_callback(self._follower.ended)
        self._spawn(self._watch_stdin(life))
        self._active_s = asyncio.get_running_loop().time()
        self._rest(life)
        return life

    async def _live(self, life: Life, begun: ProcessStart) -> None:
        """Everything a process says goes to the log, from its start to its end."""
        try:
            await self._append([Item(begun, Scope(), "system")])
            async for piece in life.process.pieces():
                self._active_s = asyncio.get_running_loop().time()
                await self._say(life, life.parser.feed(piece))
                for line in life.parser.take_replies():
                    self._tell(life, line)
        except Closed:
            life.end("server_shutdown")
        except CallerError:  # the log's own rules: an event that nobody may write
            log.exception("what a process said cannot be written")
            life.fault = UNWRITABLE
            life.end(None)
        except StoreError:
            life.end(None)
            raise
        finally:
            code = await life.process.ended()
            with suppress(Closed):
                await self._bury(life, code)

    async def _say(self, life: Life, said: Sequence[Said]) -> None:
        items = list(judged(life, said))
        if any(not item.payload.TYPE or isinstance(item.payload, AgentEnd) for item in items):
            await self.pen.conclude(items, self._look)  # the rules may have something to say
        elif items:
            await self._append(items)

    async def _bury(self, life: Life, code: int) -> None:
        """A process is gone: close what it left open, and say why it went."""
        await self._look()
        items = self._left_open(life)
        begun = {item.scope.trace_id for item in items if isinstance(item.payload, AgentStart)}
        for trace, letter in self._outbox.pending.items():
            if trace not in begun:
                items += self._undelivered(life, trace, letter)
        if life.resumed and life.parser.source_session is None:
            self._source = None  # nobody knows that conversation any more
        if life.reason == "inactivity_timeout":
            message = f"Nothing happened for {self._cli.inactivity_s:g} s; the next message starts a process."
            problem = SessionError(code="inactivity_timeout", message=message, retriable=True)
            items.append(Item(problem, Scope(), "system"))
        end = ProcessEnd(
            process="model",
            reason=life.reason or "process_crash",
            pid=life.process.pid,
            exit_code=128 - code if code < 0 else code,
        )
        self._life = None
        if self._idle is not None:
            self._idle.cancel()
        await self._append([*items, Item(end, Scope(), "system")])

    def _left_open(self, life: Life) -> list[Item]:
        """The ends of what a process had begun: the log knows of everything, unless it refused something."""
        if life.fault is UNWRITABLE:
            problem = SessionError(code=life.fault.code, message=life.fault.message)
            ends = closing(self.tree, "error", life.fault.message, keep_waiting=False)
            return [
                Item(problem, Scope(), "system"),
                *(Item(end.payload, end.scope, "system") for end in ends),
            ]
        outcome: StopReason = "error" if life.reason in (None, "server_shutdown") else "cancelled"
        return list(judged(life, life.parser.flush(life.fault, outcome)))

    def _undelivered(self, life: Life, trace: str, letter: Letter) -> list[Item]:
        """What becomes of a turn that a process did not take up."""
        if trace in life.dropped:
            return self._skip(letter, life.dropped[trace])
        if trace != life.sent or life.reason is not None:
            return []
        self._tries[trace] += 1
        if self._tries[trace] < TRIES:
            return []
        problem = SessionError(code="process_exited", message=DIED)
        return [Item(problem, letter.scope, "system"), *self._skip(letter, "error")]

    def _skip(self, letter: Letter, reason: StopReason) -> list[Item]:
        """A turn that nobody will answer is over all the same."""
        scope = structs.replace(letter.scope, agent_id=new_id("agt_"), agent_name=self._cli.name, depth=0)
        start = AgentStart(name=self._cli.name, via="prompt", source_session=self._source)
        return [Item(start, scope, "system"), Item(AgentEnd(stop_reason=reason), scope, "system")]

    def _rest(self, life: Life) -> None:
        """End a process that has nothing to do; one that works, or waits for somebody, has."""
        loop = asyncio.get_running_loop()
        if self.tree.open or self._outbox.pending:
            self._active_s = loop.time()
        left_s = self._active_s + self._cli.inactivity_s - loop.time()
        if left_s <= 0:
            life.end("inactivity_timeout")
        else:
            self._idle = loop.call_later(left_s, self._rest, life)

    # appending

    async def _complain(self, code: str, message: str, scope: Scope = Scope()) -> None:  # noqa: B008
        problem = SessionError(code=code, message=message, retriable=code == "turn_timeout")
        await self._append([Item(problem, scope, "system")])

    async def _append(self, items: Iterable[Item]) -> int:
        return await self.pen.append(items, self.tree.last)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._follower.ended)


COMMANDS: Mapping[type, Callable[[ProcessDriver, Any], Coroutine[Any, Any, None]]] = {
    StartSession: ProcessDriver._start_session,
    EndSession: ProcessDriver._end_session,
    Stop: ProcessDriver._stop,
}  # all others are words
