"""The sessions of an application: what people send to them, and the drivers that run them.

A session's driver starts when the session is first touched in this process, and closes what a dead process
left running. Sending, answering and stopping only append; the driver sees it in the log like everyone else.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from turnlog.agents.answers import answered, call_of, message_batch, waiting_call
from turnlog.agents.driver import Driver, unobserved
from turnlog.agents.loop import Item
from turnlog.app.app import App
from turnlog.errors import Conflict, InvalidEvent, NotFound, TurnlogError
from turnlog.events import Envelope, Event, Payload, Scope, UiAction, UiCommand, UiMessage, Unknown, decode
from turnlog.events.ui import Stop
from turnlog.ids import new_id, now_ms
from turnlog.log import Log, Row, line_of
from turnlog.log.append import known_event
from turnlog.state.fold import fold
from turnlog.state.tree import Tree

Observe = Callable[[Envelope, Payload | Unknown], None]


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

    def __init__(self, log: Log, app: App, pid: int, observe: Observe = unobserved) -> None:
        self.log = log
        self.app = app
        self._pid = pid
        self._clock = now_ms
        self._observe = observe
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
        app = self.app
        driver = Driver(
            self.log,
            session_id,
            app.agent,
            app.catalog,
            app.vocabulary,
            observe=self._observe,
            turn_limit_s=app.turn_limit_s,
        )
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
        """Append a message: it opens a turn, or goes to the agents that wait and frees them.

        A message whose id is in the log already is not sent again; another message under its id is refused.
        """
        key, event_id, trace = event_id, event_id or new_id("evt_"), new_id("tr_")
        async with self._settled(session_id) as driver:
            if key and (row := await self._known(session_id, key)):
                return self._sent_before(message, row)

            async def batch() -> list[Event]:
                items = message_batch(driver.tree, message, trace)
                freed = [self._event(item, new_id("evt_")) for item in items[:-1]]
                return [*freed, self._event(items[-1], event_id)]

            events, seqs = await self._append(driver, session_id, batch)
            return Sent(seqs[-1], event_id, events[-1].scope.trace_id or "")

    async def _append(
        self, driver: Driver, session_id: str, batch: Callable[[], Awaitable[list[Event]]]
    ) -> tuple[list[Event], list[int]]:
        """Append a batch that was made for what is open; when that has changed meanwhile, make it again."""
        while True:
            last, events = driver.tree.last, await batch()
            alone = all(event.scope.agent_id is None for event in events)  # it depends on nothing
            try:
                seqs = await self.log.append(session_id, events, expected_last=None if alone else last)
            except Conflict as conflict:
                if conflict.last == last:
                    raise
                await driver.reached(conflict.last)
            else:
                return events, seqs

    async def _known(self, session_id: str, event_id: str) -> Row | None:
        """The row of an event id."""
        return await self.log.work(lambda store: known_event(store, session_id, event_id))

    def _sent_before(self, message: UiMessage, row: Row) -> Sent:
        envelope = decode(line_of(row))
        if self.app.catalog.payload(envelope) != message:
            raise Conflict(f"{envelope.id} is the id of another message", row.seq)
        return Sent(row.seq, envelope.id, row.trace or "")

    async def post(self, session_id: str, posted: Sequence[Posted]) -> list[int]:
        """Append events of a page: answers to what waits, actions, events of the application."""
        places: list[int] = []
        async with self._settled(session_id) as driver:

            async def batch() -> list[Event]:
                events: list[Event] = []
                places.clear()
                for item in posted:
                    event = self.app.catalog.event(item.type, item.payload, id=item.id, origin="ui")
                    placed = await self._place(driver, session_id, event)
                    places.append(placed if isinstance(placed, int) else ~len(events))
                    events += [] if isinstance(placed, int) else placed
                return events

            _, seqs = await self._append(driver, session_id, batch)
            return [place if place >= 0 else seqs[~place] for place in places]

    async def _place(self, driver: Driver, session_id: str, event: Event) -> list[Event] | int:
        """An event of a page with the scope of what it answers; the old seq of an answer given before."""
        if isinstance(event.payload, UiMessage):
            raise InvalidEvent("expected a message on the send route", "$.events")
        call_id = call_of(event.payload)
        if call_id is None or isinstance(event.payload, Unknown):
            return [self._opening(event)]
        try:
            scope, call = waiting_call(driver.tree, call_id)
        except NotFound:
            return await self._given(session_id, event.payload, call_id)
        items = answered(event.payload, scope, call, (), self._clock())
        return [
            self._event(item, new_id("evt_") if number else event.id) for number, item in enumerate(items)
        ]

    def _opening(self, event: Event) -> Event:
        """An action that answers nothing opens a turn."""
        if not isinstance(event.payload, UiAction):
            return event
        return self._event(Item(event.payload, Scope(trace_id=new_id("tr_")), "ui"), event.id)

    async def _given(self, session_id: str, answer: Payload, call_id: str) -> int:
        """The seq of the same answer, given before; another one is a conflict."""
        row = await self.log.ended(session_id, call_id)
        if row is None:
            raise NotFound(f"no call {call_id} waits for an answer")
        given = self.app.catalog.payload(decode(line_of(row)))
        if given != answer:
            raise Conflict(f"{call_id} has another answer already", row.seq)
        return row.seq

    async def tree(self, session_id: str) -> Tree:
        """What is open, when everything in the log has been taken into account."""
        async with self._settled(session_id) as driver:
            return driver.tree

    async def awaited(self, session_id: str) -> dict[str, tuple[str, str]]:
        """The calls that wait for the page, each with its tool and its turn."""
        async with self._settled(session_id) as driver:
            return {
                call_id: (call.call.tool, invocation.scope.trace_id or "")
                for invocation in driver.tree.open.values()
                for call_id, call in invocation.calls.items()
                if call.awaited and call.call.executor == "frontend"
            }

    async def stop(self, session_id: str) -> int:
        """Stop what runs; the stop is an event like any other."""
        await self.driver(session_id)
        event = self._event(Item(UiCommand(command=Stop()), Scope(), "ui"), new_id("evt_"))
        return (await self.log.append(session_id, [event]))[0]

    def _event(self, item: Item, event_id: str) -> Event:
        return self.app.catalog.event(item.payload, id=event_id, origin=item.origin, scope=item.scope)

    async def state(self, session_id: str) -> tuple[int, Any]:
        """The application's state and the seq it is of."""
        await self.log.info(session_id)
        state, seq = self.app.start(), -1
        while rows := await self.log.read(session_id, seq, origin=-1):
            envelopes = [decode(line_of(row)) for row in rows]
            items = ((envelope, self.app.catalog.payload(envelope)) for envelope in envelopes)
            state = fold(self.app.reducers, items, state)
            seq = rows[-1].seq
        return seq, state
