"""The driver: it follows one session's log and does what the events ask for.

Every effect follows from an event: a message starts a turn, `agent.start` asks its model, `tool.call` runs
a tool or starts an agent, the last `tool.result` of a step asks the model again, `ui.command` stop cancels.
So what a crash interrupted is in the log, and an answer may reach another process. Tasks belong to the
agent they work for.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from turnlog.agents.agent import Agent
from turnlog.agents.models import Request
from turnlog.agents.speaker import Speaker
from turnlog.agents.tools import Tool, failed, succeeded
from turnlog.events import (
    AgentEnd,
    AgentStart,
    AgentUsage,
    AwaitedCall,
    Catalog,
    Envelope,
    Event,
    Origin,
    ParseReject,
    Payload,
    ProcessEnd,
    ProcessStart,
    Scope,
    SessionError,
    ToolAwait,
    ToolCall,
    ToolResult,
    UiCommand,
    UiMessage,
    Unknown,
    Vocabulary,
    decode,
)
from turnlog.events.agent import StopReason
from turnlog.events.ui import Stop
from turnlog.ids import new_id
from turnlog.log import Log, Row, line_of
from turnlog.log.wakeup import Wakeup
from turnlog.parse.reply import Reply, tags_of
from turnlog.state.history import History
from turnlog.state.tree import Invocation, Tree, closing

log = logging.getLogger("turnlog.agents")

Origins = Mapping[type[Payload], Origin]

ORIGINS: Origins = {
    AgentStart: "system",
    AgentEnd: "system",
    AgentUsage: "system",
    ParseReject: "system",
    ProcessEnd: "system",
    ProcessStart: "system",
    SessionError: "system",
    ToolAwait: "system",
    ToolResult: "tool",
}
SAID: Origins = {ParseReject: "system"}  # by a model: its provider's results are its own


class Driver:
    """Runs the agents of one session."""

    def __init__(
        self, log: Log, session_id: str, root: Agent, catalog: Catalog, vocabulary: Vocabulary | None
    ) -> None:
        self._log = log
        self._session_id = session_id
        self._root = root
        self._agents: Mapping[str, Agent] = {agent.name: agent for agent in root.walk()}
        self._catalog = catalog
        self._vocabulary = vocabulary
        self._history = History()
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: set[str] = set()
        self._starting: str | None = None
        self._follower: asyncio.Task[None] | None = None
        self._moved = Wakeup()
        self.tree = Tree()

    async def open(self, pid: int) -> None:
        """Read the log, close what a dead process left running, say that this one is here, and follow."""
        await self._catch_up()
        notices: list[Payload] = []
        if self.tree.server is not None:
            notices.append(ProcessEnd(process="server", reason="process_crash", pid=self.tree.server.pid))
        notices.append(ProcessStart(process="server", pid=pid))
        await self._close_open("error", "The server stopped while this was running.", keep_waiting=True)
        await self._append(notices, Scope())
        await self._catch_up()
        self._follower = asyncio.create_task(self._follow())
        self._follower.add_done_callback(report)

    async def close(self) -> None:
        """Stop working; what waits for the page stays open for the next process."""
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)
        await self._halt()
        await self._close_open("error", "The server was stopped.", keep_waiting=True)
        await self._append([ProcessEnd(process="server", reason="server_shutdown")], Scope())

    async def reached(self, seq: int) -> None:
        """Wait until everything up to a seq has been taken into account."""
        while self.tree.last < seq:
            await self._moved.wait()

    async def _follow(self) -> None:
        self._start_next()
        async for rows in self._log.follow(self._session_id, self.tree.last):
            for row in rows:
                if row.seq > self.tree.last:
                    await self._react(*self._apply(row))

    async def _catch_up(self) -> None:
        while rows := await self._log.read(self._session_id, self.tree.last):
            for row in rows:
                self._apply(row)

    def _apply(self, row: Row) -> tuple[Envelope, Payload | Unknown]:
        envelope = decode(line_of(row))
        payload = self._catalog.payload(envelope)
        self.tree.apply(envelope, payload)
        self._history.apply(envelope, payload)
        self._moved.wake()
        return envelope, payload

    async def _react(self, envelope: Envelope, payload: Payload | Unknown) -> None:
        match payload:
            case UiMessage():
                self._message(envelope)
            case UiCommand(command=Stop()):
                await self._stop()
            case AgentStart():
                self._starting = None
                self._ask(envelope.agent_id or "")
            case AgentEnd():
                self._start_next()
            case ToolCall():
                self._call(envelope.agent_id or "", payload)
            case ToolResult() if envelope.origin != "model":
                await self._go_on(envelope.agent_id or "", payload)
            case _:
                pass

    def _message(self, envelope: Envelope) -> None:
        """A message inside a turn wakes the agents it freed; another one waits for its turn."""
        for agent_id, invocation in self.tree.open.items():
            if invocation.scope.trace_id == envelope.trace_id and not invocation.calls:
                self._ask(agent_id)
        self._start_next()

    def _start_next(self) -> None:
        if self.tree.open or self._starting or not self.tree.queue:
            return
        self._starting, message = next(iter(self.tree.queue.items()))
        start = AgentStart(
            name=self._root.name,
            via="prompt",
            model=self._root.model.name,
            tools=self._root.tool_names,
            prompt=message.text,
        )
        scope = Scope(trace_id=self._starting, agent_id=new_id("agt_"), agent_name=self._root.name, depth=0)
        self._spawn(self._append([start], scope))

    def _ask(self, agent_id: str) -> None:
        """Ask the model, unless it is being asked."""
        if agent_id in self.tree.open and agent_id not in self._asked:
            self._asked.add(agent_id)
            self._spawn(self._step(agent_id))

    async def _step(self, agent_id: str) -> None:
        """One completion: what the model says goes to the log as it comes."""
        invocation = self.tree.open[agent_id]
        agent = self._agents.get(invocation.start.name, self._root)
        reply = Reply(new_id, tags_of(self._vocabulary), agent.executor)
        messages = list(self._history.messages(agent_id))
        request = Request(agent.instructions, messages, blob=self._log.get_blob)
        speaker = Speaker(lambda said: self._append(said, invocation.scope, SAID))
        ending: list[Payload] = []
        try:
            async for batch in agent.model.stream(request, reply):
                if reply.complete:
                    ending += batch
                else:
                    await speaker.say(batch)
            await speaker.finish()
            if reply.complete:
                await self._end_step(invocation, reply, ending)
            else:
                await self._fail_step(invocation, reply, reply.error.code if reply.error else "no end")
        except Exception as error:  # noqa: BLE001  a model is foreign code: its failure ends the agent by events
            await speaker.finish()
            await self._fail_step(invocation, reply, type(error).__name__)
        finally:
            speaker.stop()

    async def _end_step(self, invocation: Invocation, reply: Reply, ending: list[Payload]) -> None:
        """The end of the message and what follows from it, in one append: its calls start with it."""
        usage = AgentUsage(model=reply.model or invocation.start.model or "", usage=reply.usage)
        events = self._events(ending, invocation.scope, SAID) + self._events([usage], invocation.scope)
        pauses = reply.stop_reason == "pause_turn"
        if reply.calls:
            if all(map(asks_the_page, reply.calls)):
                events += self._events([awaiting(reply.calls)], invocation.scope)
        elif not pauses:
            end = AgentEnd(stop_reason=stopped(reply), steps=invocation.steps + 1, result=reply.said)
            events += self._end(invocation, end, lambda call: succeeded(call, reply.said))
        agent_id = invocation.scope.agent_id or ""
        self._asked.discard(agent_id)
        seqs = await self._log.append(self._session_id, events)
        if pauses and not reply.calls:
            await self.reached(seqs[-1])
            self._ask(agent_id)

    async def _fail_step(self, invocation: Invocation, reply: Reply, error: str) -> None:
        problem = SessionError(code="model_failed", message=f"The model failed: {error}.")
        events = self._events(reply.abort(), invocation.scope, SAID)
        events += self._events([problem], invocation.scope)
        end = AgentEnd(stop_reason="error", steps=invocation.steps)
        events += self._end(invocation, end, lambda call: failed(call, "EXECUTION_ERROR", problem.message))
        self._asked.discard(invocation.scope.agent_id or "")
        await self._log.append(self._session_id, events)

    def _end(
        self, invocation: Invocation, end: AgentEnd, answer: Callable[[ToolCall], ToolResult]
    ) -> list[Event]:
        """The end of an agent, and in the same batch the answer to the call that started it."""
        events = self._events([end], invocation.scope)
        parent = self.tree.open.get(invocation.start.parent_id or "")
        if parent and (call := parent.calls.get(invocation.start.call_id or "")):
            events += self._events([answer(call.call)], parent.scope)
        return events

    def _call(self, agent_id: str, call: ToolCall) -> None:
        """Run a tool, or start the agent that stands behind it; what others run is theirs."""
        invocation = self.tree.open.get(agent_id)
        if invocation is None or call.executor == "provider" or asks_the_page(call):
            return
        agent = self._agents.get(invocation.start.name, self._root)
        called, tool = agent.agent(call.tool), agent.tool(call.tool)
        if call.incomplete is not None:
            answer = failed(call, "VALIDATION_ERROR", "the arguments are not a JSON object")
            self._spawn(self._append([answer], invocation.scope))
        elif called is not None:
            self._spawn(self._start_called(invocation, called, call))
        elif tool is not None:
            self._spawn(self._run_tool(tool, call, invocation.scope))
        else:
            answer = failed(call, "TOOL_NOT_FOUND", f"{agent.name} has no tool {call.tool}")
            self._spawn(self._append([answer], invocation.scope))

    async def _start_called(self, parent: Invocation, agent: Agent, call: ToolCall) -> None:
        start = AgentStart(
            name=agent.name,
            via="call",
            model=agent.model.name,
            parent_id=parent.scope.agent_id,
            call_id=call.call_id,
            tools=agent.tool_names,
            prompt=str(call.args.get("prompt", "")),
        )
        depth = (parent.scope.depth or 0) + 1
        scope = Scope(
            trace_id=parent.scope.trace_id, agent_id=new_id("agt_"), agent_name=agent.name, depth=depth
        )
        await self._append([start], scope)

    async def _run_tool(self, tool: Tool, call: ToolCall, scope: Scope) -> None:
        await self._append([await tool.run(call)], scope)

    async def _go_on(self, agent_id: str, result: ToolResult) -> None:
        """After a result: ask the page for what is left, or the model when nothing is."""
        invocation = self.tree.open.get(agent_id)
        if invocation is None or (result.error and result.error.code == "CANCELLED"):
            return  # what cancelled it decides what comes next
        calls = [call for call in invocation.calls.values() if call.call.executor != "provider"]
        left = [call.call for call in calls if not call.awaited]
        if not calls:
            self._ask(agent_id)
        elif left and all(map(asks_the_page, left)):
            await self._append([awaiting(left)], invocation.scope)

    async def _stop(self) -> None:
        """Cancel every task of this session and close what they left open."""
        await self._halt()
        await self._close_open("cancelled", "Stopped by the user.")
        self._starting = None
        self._start_next()

    async def _halt(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._asked.clear()
        await self._append([], Scope())  # what the tasks had under way is in the log now
        await self._catch_up()

    async def _close_open(self, reason: StopReason, message: str, *, keep_waiting: bool = False) -> None:
        items = closing(self.tree, reason, message, keep_waiting=keep_waiting)
        events = [
            self._catalog.event(item.payload, id=item.id, origin="system", scope=item.scope) for item in items
        ]
        await self._log.append(self._session_id, events)

    def _events(self, payloads: Iterable[Payload], scope: Scope, origins: Origins = ORIGINS) -> list[Event]:
        return [
            self._catalog.event(
                payload, id=new_id("evt_"), origin=origins.get(type(payload), "model"), scope=scope
            )
            for payload in payloads
        ]

    async def _append(self, payloads: Iterable[Payload], scope: Scope, origins: Origins = ORIGINS) -> None:
        await self._log.submit(self._session_id, self._events(payloads, scope, origins))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(report)


def report(task: asyncio.Task[None]) -> None:
    """A task that could not do its work is not silent: the log itself may be what failed."""
    if not task.cancelled() and (error := task.exception()):
        log.error("a session's work failed: %s", error, exc_info=error)


def asks_the_page(call: ToolCall) -> bool:
    """Whether a page has to answer; arguments that are no JSON are answered here."""
    return call.executor == "frontend" and call.incomplete is None


def stopped(reply: Reply) -> StopReason:
    """Why an agent ends with this reply."""
    reason = reply.stop_reason
    return "end_turn" if reason is None or reason == "tool_use" or reason == "pause_turn" else reason


def awaiting(calls: Iterable[ToolCall]) -> ToolAwait:
    """What the page is asked."""
    return ToolAwait(
        calls=tuple(AwaitedCall(call_id=call.call_id, tool=call.tool, args=call.args) for call in calls)
    )
