"""The sessions of an application: what people send to them, and the drivers that run them.

A session's driver starts when the session is first touched in this process, and closes what a dead process
left running. Sending, answering and stopping only append; the driver sees it in the log like everyone else.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from turnlog.agents.driver import Driver
from turnlog.app.app import App
from turnlog.errors import Conflict, InvalidEvent, NotFound, TurnlogError
from turnlog.events import Event, Scope, ToolResult, UiCommand, UiMessage, decode
from turnlog.events.ui import Stop
from turnlog.ids import new_id
from turnlog.log import Log, line_of
from turnlog.state.fold import fold
from turnlog.state.tree import Invocation, cancelled


class Sent(NamedTuple):
    """What became of a message."""

    seq: int
    id: str
    turn: str


class Posted(NamedTuple):
    """An event a page wants to append."""

    type: str
    payload: Mapping[str, Any]
    id: str


class Sessions:
    """The sessions of one application in this process."""

    def __init__(self, log: Log, app: App, pid: int) -> None:
        self.log = log
        self.app = app
        self._pid = pid
        self._drivers: dict[str, asyncio.Task[Driver]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def recover(self) -> None:
        """Close what a dead process left running, in every session it worked on."""
        for session_id in await self.log.unfinished():
            await self.driver(session_id)

    async def close(self) -> None:
        """Stop every driver; what waits stays open."""
        for task in self._drivers.values():
            await (await task).close()

    async def create(self) -> str:
        """A new session."""
        session_id = await self.log.create(self.app.name)
        await self.driver(session_id)
        return session_id

    async def driver(self, session_id: str) -> Driver:
        """The driver of a session; the first touch opens it."""
        if session_id not in self._drivers:
            await self.log.info(session_id)
        if session_id not in self._drivers:  # nobody else opened it meanwhile
            self._drivers[session_id] = asyncio.create_task(self._open(session_id))
        try:
            return await asyncio.shield(self._drivers[session_id])
        except TurnlogError:
            self._drivers.pop(session_id, None)  # the next touch tries again
            raise

    async def _open(self, session_id: str) -> Driver:
        driver = Driver(self.log, session_id, self.app.agent, self.app.catalog, self.app.vocabulary)
        await driver.open(self._pid)
        return driver

    @asynccontextmanager
    async def _settled(self, session_id: str) -> AsyncIterator[Driver]:
        """The driver when it has seen everything in the log; who decides by what is open decides alone."""
        driver = await self.driver(session_id)
        async with self._locks.setdefault(session_id, asyncio.Lock()):
            await driver.reached((await self.log.info(session_id)).last)
            yield driver

    async def send(self, session_id: str, message: UiMessage, event_id: str | None = None) -> Sent:
        """Append a message: it opens a turn, or goes to the agents that wait and frees them."""
        event_id = event_id or new_id("evt_")
        async with self._settled(session_id) as driver:
            tree = driver.tree
            waiting = [tree.open[agent_id] for agent_id in tree.waiting()]
            scope = waiting[-1].scope if waiting else Scope(trace_id=new_id("tr_"))
            events = [event for invocation in waiting for event in self._cancel(invocation)]
            events.append(self._event(message, scope, event_id))
            seqs = await self.log.append(session_id, events)
            return Sent(seqs[-1], event_id, scope.trace_id or "")

    def _cancel(self, invocation: Invocation) -> list[Event]:
        calls = [call.call for call in invocation.calls.values() if call.awaited]
        return [
            self.app.catalog.event(
                cancelled(call, "The user went on with a message."),
                id=new_id("evt_"),
                origin="system",
                scope=invocation.scope,
            )
            for call in calls
        ]

    async def post(self, session_id: str, posted: Sequence[Posted]) -> list[int]:
        """Append events of a page: answers to what waits, actions, events of the application."""
        async with self._settled(session_id) as driver:
            seqs: list[int] = []
            events: list[Event] = []
            for item in posted:
                event = self.app.catalog.event(item.type, item.payload, id=item.id, origin="ui")
                placed = await self._place(driver, session_id, event)
                if isinstance(placed, int):
                    seqs.append(placed)
                else:
                    events.append(placed)
            return seqs + await self.log.append(session_id, events)

    async def _place(self, driver: Driver, session_id: str, event: Event) -> Event | int:
        """An event of a page with the scope of what it answers; the old seq of an answer given before."""
        if isinstance(event.payload, UiMessage):
            raise InvalidEvent("expected a message on the send route", "$.events")
        if not isinstance(event.payload, ToolResult):
            return event
        if event.payload.kind is not None:
            raise InvalidEvent("expected no kind: that is for results of the provider", "$.payload.kind")
        scope = await self._answer_scope(driver, session_id, event.payload)
        return scope if isinstance(scope, int) else self._event(event.payload, scope, event.id)

    async def _answer_scope(self, driver: Driver, session_id: str, answer: ToolResult) -> Scope | int:
        """Whose call an answer answers; the old seq if the same answer was given before."""
        for invocation in driver.tree.open.values():
            call = invocation.calls.get(answer.call_id)
            if call and call.awaited and call.call.tool == answer.tool:
                return invocation.scope
        row = await self.log.ended(session_id, answer.call_id)
        if row is None:
            raise NotFound(f"no call {answer.call_id} waits for an answer")
        given = self.app.catalog.payload(decode(line_of(row)))
        if given != answer:
            raise Conflict(f"{answer.call_id} has another answer already", driver.tree.last)
        return row.seq

    async def stop(self, session_id: str) -> int:
        """Stop what runs; the stop is an event like any other."""
        await self.driver(session_id)
        event = self._event(UiCommand(command=Stop()), Scope(), new_id("evt_"))
        return (await self.log.append(session_id, [event]))[0]

    def _event(self, payload: UiMessage | UiCommand | ToolResult, scope: Scope, event_id: str) -> Event:
        return self.app.catalog.event(payload, id=event_id, origin="ui", scope=scope)

    async def state(self, session_id: str) -> tuple[int, Any]:
        """The application's state and the seq it is of."""
        await self.log.info(session_id)
        state, seq = self.app.start(), -1
        while rows := await self.log.read(session_id, seq, origin=-1):
            envelopes = [decode(line_of(row)) for row in rows]
            state = fold(self.app.reducers, map(self.app.catalog.payload, envelopes), state)
            seq = rows[-1].seq
        return seq, state
