"""One session in memory, as its caller sees it: what the tests of the statements share."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import turnlog
from turnlog import Agent, App, Catalog, open_log
from turnlog.agents import Model, Scripted, ToolUse
from turnlog.app import LOCAL, ClientEvent, Membership, Sessions
from turnlog.events import Envelope, UiMessage, decode_envelope
from turnlog.log import Log, envelope_json
from turnlog.state.fold import fold
from turnlog.state.history import Message
from turnlog.testing.harness import open_follower
from turnlog_examples.broker.events import BROKER
from turnlog_examples.tour import make_app

Script = Callable[[list[Message]], Iterable[str | ToolUse]]

TOUR = make_app()
BROKERS = Catalog(BROKER)


def tag(name: str, data: object) -> str:
    return f"<agent-event type=\"{name}\" data='{json.dumps(data)}' />"


def trip(city: str) -> str:
    return tag("note_trip", {"city": city, "weather": "rain"})


def touring(model: Model) -> App:
    """The tour with another guide."""
    guide = Agent("Guide", "", model)
    return App(
        "tour", guide, vocabulary=TOUR.vocabulary, reducers=TOUR.reducers, initial_state=TOUR.initial_state
    )


def saying(script: Script) -> App:
    return touring(Scripted(script))


@dataclass
class Room:
    """One session in memory, as its caller sees it."""

    log: Log
    sessions: Sessions
    session: str
    events: list[Envelope] = field(default_factory=list)

    async def send(self, text: str) -> None:
        """Send a message; take what comes until the top agent ends or waits."""
        await self.sessions.send(await self.seat(), UiMessage(text=text))
        await self._take()

    async def seat(self) -> Membership:
        return await self.sessions.get_membership(LOCAL, self.session)

    async def answer(self, result: bool) -> None:
        """Answer the question that waits, like a page."""
        await self.sessions.tree(await self.seat())
        [call] = body(self.events[-1])["calls"]
        payload = {"call_id": call["call_id"], "tool": call["tool"], "ok": True, "result": result}
        await self.sessions.post(
            await self.seat(), [ClientEvent("tool.result", payload, turnlog.new_id("evt_"))]
        )
        await self._take()

    async def _take(self) -> None:
        async with open_follower(self.log, self.session, self.events[-1].seq if self.events else -1) as pages:
            async for page in pages:
                new = [decode_envelope(envelope_json(row)) for row in page]
                self.events += new
                if any(event.type in ("agent.end", "tool.await") and not event.depth for event in new):
                    return


@asynccontextmanager
async def opened(app: App) -> AsyncIterator[Room]:
    log = await open_log("memory:")
    sessions = Sessions(log, [app], 1)
    room = Room(log, sessions, (await sessions.create(LOCAL)).session_id)
    try:
        yield room
    finally:
        await room.sessions.close()
        await log.close()


def talk(app: App, *moves: str | bool) -> list[Envelope]:
    """Everything that happens in a session: a text is sent, a truth value answers what waits."""

    async def play() -> list[Envelope]:
        async with opened(app) as room:
            for move in moves:
                await (room.send(move) if isinstance(move, str) else room.answer(move))
            return room.events

    return asyncio.run(play())


def body(event: Envelope) -> Any:
    return json.loads(bytes(event.payload))


def of_type(happened: list[Envelope], name: str) -> list[Any]:
    return [body(event) for event in happened if event.type == name]


def cities(app: App, happened: list[Envelope]) -> list[str]:
    """The trips in the state that these events make."""
    items = ((event, app.catalog.decode_payload(event)) for event in happened)
    state = fold(app.reducers, items, app.initial_state())
    return [noted["city"] for noted in state["trips"]]


def result_count(messages: list[Message]) -> int:
    return sum(part["type"] == "tool_result" for message in messages for part in message.content)
