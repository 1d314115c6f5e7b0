"""The driver: it follows one session's log and carries out what the loop makes of it.

Every effect follows from an event, so what a crash interrupted is in the log, and an answer may reach another
process. The driver asks models, runs tools and appends; the loop decides. Tasks belong to the session: a stop
ends them all, and what they left open is closed by events. A turn that runs too long is ended the same way,
alone. Whoever decides by what is open does so alone too: the follower, page by page, or the end of a turn.
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

from turnlog.agents.agent import Cast
from turnlog.agents.approvals import request
from turnlog.agents.context import Context, WaitForInput
from turnlog.agents.executor import Describe, Executor, HungTools, mask
from turnlog.agents.follower import Follower
from turnlog.agents.limit import Clocks, Trace, running, timed_out
from turnlog.agents.loop import (
    LIMIT_REACHED,
    Approve,
    Ask,
    Effect,
    Halt,
    Item,
    Loop,
    Run,
    Say,
    Time,
    said,
)
from turnlog.agents.models import ModelFault, Request
from turnlog.agents.models.model import MODEL_FAILED, blobs_of
from turnlog.agents.models.prices import cost
from turnlog.agents.pen import Ledger, Pen
from turnlog.agents.prompt import instructions_with_tags
from turnlog.agents.reading import awaited
from turnlog.agents.speaker import Speaker
from turnlog.agents.tools import failed, not_found
from turnlog.errors import CallerError, Closed, Conflict, InvalidEvent, StoreError
from turnlog.events import (
    ApprovalDecision,
    ApprovalRequest,
    BlockRetract,
    Catalog,
    Envelope,
    Payload,
    ProcessEnd,
    ProcessStart,
    Scope,
    SessionError,
    ToolAwait,
    ToolCall,
    ToolResult,
    Unknown,
    Vocabulary,
)
from turnlog.events.agent import StopReason
from turnlog.events.envelope import milliseconds
from turnlog.ids import new_id, now_ms
from turnlog.log import Log, Page, Row
from turnlog.parse.reply import Reply, tags_of
from turnlog.state.history import History, Message, text_part
from turnlog.state.tree import Closing, Invocation, Tree, closing, only
from turnlog.state.views import Views

log = logging.getLogger("turnlog.agents")

STOPPED = "Stopped by the user."
SEEN_AT_ONCE = 64  # events that are taken into account before other tasks run


def unobserved(envelope: Envelope, payload: Payload | Unknown) -> None:
    """Nobody counts."""


class Driver:
    """Runs the agents of one session."""

    def __init__(  # noqa: PLR0913  what a driver is made of, each by its name
        self,
        log: Log,
        session_id: str,
        cast: Cast,
        catalog: Catalog,
        vocabulary: Vocabulary | None,
        observe: Callable[[Envelope, Payload | Unknown], None] = unobserved,
        turn_limit_s: float = math.inf,
        ledger: Ledger | None = None,
        describe: Describe = mask,
        hung: HungTools | None = None,
    ) -> None:
        self._log = log
        self._session_id = session_id
        self._catalog = catalog
        self._vocabulary = vocabulary
        self._vocabularies = cast.vocabularies
        self._loop = Loop(cast, new_id)
        self.pen = Pen(log, session_id, catalog, ledger)
        self._observe = observe
        self._history = History()
        self._executor = Executor(partial(log.put_blob, session_id), describe=describe, hung=hung)
        self._tasks: dict[asyncio.Task[None], Trace] = {}
        self._clocks = Clocks(turn_limit_s, self._ring)
        self._deciding = asyncio.Lock()
        self._asked: set[str] = set()
        self._follower = Follower(log, session_id, self.pen, self.tree, self._apply)
        self.reached, self.rested = self._follower.reached, self._follower.rested
        self.caught_up, self._catch_up = self._follower.caught_up, self._follower.catch_up

    @property
    def tree(self) -> Tree:
        """What is open."""
        return self._loop.tree

    @property
    def views(self) -> Views:
        """The views that are open."""
        return self._loop.views

    @property
    def left(self) -> bool:
        """Whether nobody follows the session any more."""
        return self._follower.left

    # life

    async def open(self, pid: int | None = None) -> None:
        """Read the log, close what a dead process left running, say that this one is here, and follow."""
        await self._catch_up()
        if (await self._log.info(self._session_id)).closed:
            return  # nothing more happens in it; it can be looked at
        notices: list[Payload] = []
        if self.tree.server is not None:
            notices.append(ProcessEnd(process="server", reason="process_crash", pid=self.tree.server.pid))
        if pid is not None:
            notices.append(ProcessStart(process="server", pid=pid))
        stopped = self.tree.stopped
        await self._follower.close(lambda: self._cut(stopped), self._catch_up)
        await self._close_open("error", "The server stopped while this was running.", keep_waiting=True)
        await self._append([Item(notice, Scope(), "system") for notice in notices])
        await self._catch_up()
        await self.pen.conclude([], self._catch_up, "apply")
        await self._catch_up()
        for invocation in self.tree.open.values():
            for call in invocation.calls.values():
                if call.asked is not None:  # what a process before this one asked expires all the same
                    self._spawn(self._expire(invocation.scope, call.asked), invocation.scope.trace_id)
                elif call.waits:
                    await self._carry_out(self._loop.time(invocation, call.call))
        self._follower.start(self._follow())

    async def close(self) -> None:
        """Stop working; what waits for the page stays open for the next process."""
        await self._follower.stop()
        self._clocks.watch(set())
        await self._halt()
        with suppress(Closed):  # what was open when the session was closed stays so
            await self._close_open("error", "The server was stopped.", keep_waiting=True)
            if self.tree.server is not None:
                end = ProcessEnd(process="server", reason="server_shutdown")
                await self._append([Item(end, Scope(), "system")])
        self._follower.moved()

    async def _follow(self) -> None:
        await self._carry_out(self._loop.start_next())
        async for page in self._log.follow(self._session_id, self.tree.last):
            async with self._deciding:
                await self._see(page)

    async def _see(self, page: Page, ending: Collection[Trace] = ()) -> None:
        """Take a page into account and do what follows from it, but for turns that are being ended."""
        for number, (row, envelope) in enumerate(zip(page, page.envelopes(), strict=True), 1):
            if number % SEEN_AT_ONCE == 0:
                await asyncio.sleep(0)  # a page may have thousands, and other sessions go on meanwhile
            if row.seq > self.tree.last:
                payload = self._apply(row, envelope)
                self._observe(envelope, payload)
                if not row.live:  # pieces open and close nothing
                    self._clocks.watch(running(self.tree))
                if envelope.trace_id not in ending and (effects := self._loop.react(envelope, payload)):
                    await self._carry_out(effects)
        # events of a page open a turn, unless a message that came with them is still to be read
        if self.tree.wordless and self.tree.last == await self._log.last_seq(self._session_id):
            await self._carry_out(self._loop.start_next())

    async def _look(self, ending: Collection[Trace] = ()) -> None:
        """See everything that is in the log now."""
        while page := await self._log.read(self._session_id, self.tree.last):
            await self._see(page, ending)

    def _apply(self, row: Row, envelope: Envelope) -> Payload | Unknown:
        payload = self._catalog.payload(envelope)
        self.pen.rank = row.rank
        self._loop.apply(envelope, payload)
        if not row.live:  # what is only live is in no conversation
            self._history.apply(envelope, payload)
            self.pen.ledger.apply(envelope, payload)
            self._executor.calls.apply(envelope, payload)
        self._follower.moved()
        return payload

    async def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            await EFFECTS[type(effect)](self, effect)

    # asking

    async def ask(self, effect: Ask) -> None:
        """Ask the model, unless it is being asked."""
        if effect.agent_id not in self._asked:
            self._asked.add(effect.agent_id)
            invocation = self.tree.open[effect.agent_id]
            self._spawn(self._step(invocation), invocation.scope.trace_id)

    async def _step(self, invocation: Invocation) -> None:
        """One completion, asked for again while that makes sense; what was shown is retracted first."""
        patience = self._loop.agent(invocation).patience
        for failures in count(1):
            reply = self._reply(invocation)
            fault = await self._attempt(invocation, reply)
            if fault is None:
                return
            if not fault.retriable or failures >= patience.tries:
                await self._fail(invocation, reply, fault)
                return
            await self._retract(invocation, reply, fault.code)
            await asyncio.sleep(patience.pause_s(failures, fault.retry_after_s))

    async def _attempt(self, invocation: Invocation, reply: Reply) -> ModelFault | None:
        """One attempt at a completion, and why it failed."""
        try:
            await self._finish(invocation, reply, await self._listen(invocation, reply))
        except ModelFault as fault:
            return fault
        except Closed:
            raise  # the session takes no more events: there is nothing to fail
        except (CallerError, ValueError) as error:  # the log's own rules: an event that nobody may write
            log.exception("what a model said cannot be written")
            return ModelFault("refused_event", f"{type(error).__name__} in what the model said")
        return None

    def _reply(self, invocation: Invocation) -> Reply:
        agent = self._loop.agent(invocation)
        return Reply(new_id, tags_of(self._vocabulary_of(invocation)), agent.executor)

    def _vocabulary_of(self, invocation: Invocation) -> Vocabulary | None:
        """What the model of an agent may emit, in the channel that it speaks in."""
        return self._vocabularies.get(invocation.scope.channel or "", self._vocabulary)

    async def _listen(self, invocation: Invocation, reply: Reply) -> list[Payload]:
        """What the model says goes to the log as it comes, but for its end, which goes with what follows."""
        ending: list[Payload] = []
        speaker = Speaker(lambda batch: asyncio.ensure_future(self._append(said(batch, invocation.scope))))
        try:
            async with self._stream(invocation, reply) as batches:
                async for batch in batches:
                    if reply.complete:
                        ending += batch
                    else:
                        await speaker.say(batch)
        except (ModelFault, InvalidEvent, Closed, StoreError):
            raise
        except (Exception, asyncio.CancelledError) as error:  # foreign code: its failure ends the agent
            if is_stopped(error):
                raise
            log.exception("a model failed")
            raise ModelFault(MODEL_FAILED, f"{type(error).__name__} in the model") from error
        finally:
            await speaker.finish()
        if not reply.complete:
            code = reply.error.code if reply.error else "no_end"
            raise ModelFault(code, "The model's answer broke off.", retriable=True)
        return ending

    @asynccontextmanager
    async def _stream(
        self, invocation: Invocation, reply: Reply
    ) -> AsyncIterator[AsyncIterator[list[Payload]]]:
        """The model's words; whoever stops listening hangs up."""
        batches = self._loop.agent(invocation).mind.stream(self._request(invocation), reply)
        try:
            yield batches
        finally:
            if isinstance(batches, AsyncGenerator):
                await batches.aclose()

    def _request(self, invocation: Invocation) -> Request:
        agent = self._loop.agent(invocation)
        messages = list(self._history.messages(invocation.agent_id, invocation.scope.channel))
        tools = agent.specs
        if invocation.steps >= agent.max_steps:
            messages, tools = [*messages, Message("user", [text_part(LIMIT_REACHED)])], ()
        instructions = instructions_with_tags(agent.instructions, self._vocabulary_of(invocation))
        blob = blobs_of(self._session_id, self._log.get_blob)
        put_blob = partial(self._log.put_blob, self._session_id)
        return Request(instructions, messages, tools, blob, put_blob=put_blob)

    async def _finish(self, invocation: Invocation, reply: Reply, ending: list[Payload]) -> None:
        await self.caught_up()  # the end tells of everything that was said on the way
        price = cost(reply.model or invocation.start.model or "", reply.usage)
        items = self._loop.finished(invocation, reply, ending, price)
        self._asked.discard(invocation.agent_id)
        last = await self.pen.conclude(items, self.caught_up)
        if reply.stop_reason == "pause_turn" and not reply.calls:
            await self.reached(last)
            await self._carry_out(self._loop.ask(invocation.agent_id))

    async def _fail(self, invocation: Invocation, reply: Reply, fault: ModelFault) -> None:
        await self.caught_up()
        problem = SessionError(code=fault.code, message=fault.message, retriable=fault.retriable)
        self._asked.discard(invocation.agent_id)
        await self._append(self._loop.broken(invocation, reply, problem))

    async def _retract(self, invocation: Invocation, reply: Reply, reason: str) -> None:
        """Void what a failed attempt has shown."""
        batch = reply.abort()
        if reply.block_ids:
            batch.append(BlockRetract(block_ids=reply.block_ids, reason=reason))
        await self._append(said(batch, invocation.scope))

    # tools

    async def run(self, effect: Run) -> None:
        """Run a tool."""
        invocation = self.tree.open[effect.agent_id]
        self._spawn(self._run(invocation, effect), invocation.scope.trace_id)

    async def _run(self, invocation: Invocation, effect: Run) -> None:
        call, scope = effect.call, invocation.scope
        agent = self._loop.agent(invocation)
        tool = agent.tool(call.tool)
        if tool is None:  # the process that asked a person about it had one
            await self._answer(not_found(call, [spec.name for spec in agent.specs]), call, scope)
            return

        async def progress(said: list[Payload]) -> None:
            await self._append([Item(payload, scope, "tool") for payload in said])

        context = Context(
            call,
            session_id=self._session_id,
            agent_name=invocation.start.name,
            say=progress,
            values=effect.values,
            actor=self.tree.actors.get(scope.trace_id or ""),
        )
        result = await self._executor.run(tool, call, context)
        if isinstance(result, WaitForInput):
            question = awaited(tool, call, result.questions)
            await self._append([Item(ToolAwait(calls=(question,)), scope, "system")])
        else:
            await self._answer(result, call, scope)

    async def _answer(self, result: ToolResult, call: ToolCall, scope: Scope) -> None:
        try:
            await self._append([Item(result, scope, "tool")])
        except InvalidEvent:
            log.exception("the result of %s cannot be written", call.tool)
            refused = failed(call, "EXECUTION_ERROR", f"the result of {call.tool} cannot be written")
            await self._append([Item(refused, scope, "tool")])

    async def approve(self, effect: Approve) -> None:
        """Ask a person whether a call may run."""
        invocation = self.tree.open[effect.agent_id]
        tool = self._loop.agent(invocation).tool(effect.call.tool)
        assert tool is not None
        asked = request(tool, effect.call, now_ms())
        await self._append([Item(asked, invocation.scope, "system")])
        self._spawn(self._expire(invocation.scope, asked), invocation.scope.trace_id)

    async def _expire(self, scope: Scope, asked: ApprovalRequest) -> None:
        """Decide for a person who did not, when the time is over."""
        if asked.expires_at is None:
            return
        await asyncio.sleep(max(0.0, milliseconds(asked.expires_at) - now_ms()) / 1000)
        call = self.tree.call(scope.agent_id, asked.call_id)
        if call is not None and call.asked == asked:
            over = ApprovalDecision(call_id=asked.call_id, args_hash=asked.args_hash, decision="expired")
            await self._append([Item(over, scope, "system")])

    async def time(self, effect: Time) -> None:
        """Answer a call for another process when its time is over."""
        scope = self.tree.open[effect.agent_id].scope
        self._spawn(self._time(scope, effect.call, effect.timeout_s), scope.trace_id)

    async def _time(self, scope: Scope, call: ToolCall, timeout_s: float) -> None:
        await asyncio.sleep(timeout_s)
        message = f"{call.tool} took longer than {timeout_s:g} s, or no executor has it"
        late = self.pen.event(Item(failed(call, "TIMEOUT", message), scope, "tool"))
        while (waiting := self.tree.call(scope.agent_id, call.call_id)) and waiting.call == call:
            try:
                await self.pen.write([late], expected_rank=self.pen.rank)
            except Conflict:  # the answer may have come at this moment
                await self.caught_up()
            else:
                log.warning("no executor answered %s of %s within %g s", call.call_id, call.tool, timeout_s)
                return

    async def say(self, effect: Say) -> None:
        """Append a batch."""
        self._spawn(self._append(effect.items), effect.items[0].scope.trace_id)

    # stopping

    async def halt(self, effect: Halt) -> None:
        """Cancel the tasks of this session, or of what a channel's stop reaches, and close what they left."""
        if effect.channel is not None:
            traces = self._loop.ending(effect.channel)
            await self._end(traces, lambda: self._cut(traces))
            return
        await self._halt()
        await self._close_open("cancelled", STOPPED)
        await self._carry_out(self._loop.start_next())

    def _cut(self, traces: Collection[Trace]) -> list[Closing]:
        """What closes turns that somebody stopped."""
        return closing(only(self.tree, traces), "cancelled", STOPPED, keep_waiting=False)

    async def _end(self, traces: Collection[Trace], closings: Callable[[], list[Closing]]) -> None:
        """Cancel the tasks of some turns and close what they left open; other turns go on."""
        await self._cancel([task for task, turn in self._tasks.items() if turn in traces])
        await self._look(traces)
        self._asked -= {key for key, agent in self.tree.open.items() if agent.scope.trace_id in traces}
        self._loop.ended(traces)
        await self._follower.close(closings, lambda: self._look(traces))
        await self._carry_out(self._loop.start_next())

    async def _halt(self) -> None:
        await self._cancel(self._tasks)
        self._asked.clear()
        self._loop.forget()
        await self._catch_up()

    async def _cancel(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """Cancel tasks, but for the one that wants it; what they had under way is in the log afterwards."""
        others = [task for task in tasks if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._append([])

    def _ring(self, trace: Trace) -> None:
        self._spawn(self._time_out(trace), trace)

    async def _time_out(self, trace: Trace) -> None:
        """End a turn that ran too long; one that is over by now, or waits, is left alone."""
        async with self._deciding:
            await self._look()
            if not self._clocks.over(trace):
                return
            await self._end({trace}, lambda: timed_out(self.tree, trace, self._clocks.limit_s))

    async def _close_open(self, reason: StopReason, message: str, *, keep_waiting: bool = False) -> None:
        """Close what is open, unless somebody answers it at the same moment: then look again."""
        await self._follower.close(
            lambda: closing(self.tree, reason, message, keep_waiting=keep_waiting), self._catch_up
        )

    # appending

    async def _append(self, items: Iterable[Item]) -> int:
        """Append a batch; the seq of its last event."""
        return await self.pen.append(items, self.tree.last)

    def _spawn(self, work: Coroutine[Any, Any, Any], trace: Trace) -> None:
        """Begin work of a turn."""
        # a turn is not part of the request that happened to come first: it gets none of its context
        task = asyncio.create_task(work, context=contextvars.Context())
        self._tasks[task] = trace
        task.add_done_callback(self._tasks.pop)
        task.add_done_callback(self._follower.ended)


def is_stopped(error: BaseException) -> bool:
    """Whether this task is to stop; a model may also have cancelled itself."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


EFFECTS: Mapping[type, Callable[[Driver, Any], Coroutine[Any, Any, None]]] = {
    Ask: Driver.ask,
    Run: Driver.run,
    Approve: Driver.approve,
    Time: Driver.time,
    Say: Driver.say,
    Halt: Driver.halt,
}
