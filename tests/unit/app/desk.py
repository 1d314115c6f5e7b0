"""Sessions of some applications in this process, and what people see happen in them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from msgspec import json

from tests.support.limits import HANG_S
from turnlog import Agent, App, tool
from turnlog.agents import Scripted, ToolUse
from turnlog.agents.runtime.session_runner import SessionRunner
from turnlog.app import ClientEvent, Membership, Principal, Sessions
from turnlog.events import Envelope, Payload, UiMessage, Vocabulary
from turnlog.events.payload import ANY_ORIGIN
from turnlog.ids import new_id, now_ms
from turnlog.log import Log, MemoryStore
from turnlog.state.history import Message

ADA, BOB, EVE = (Principal(name) for name in ("ada", "bob", "eve"))
ROOT = Principal("root", frozenset({"operator"}))


class NoteFact(Payload, frozen=True, kw_only=True):
    """A page or the model noted something."""

    ORIGINS: ClassVar = ANY_ORIGIN

    text: str = ""


class CloseCase(Payload, frozen=True, kw_only=True):
    """Only some may close a case."""

    ORIGINS: ClassVar = ANY_ORIGIN


CASES = Vocabulary("case", [NoteFact, CloseCase])


@tool(roles=("admin",))
def erase(name: str) -> str:
    """Erase something."""
    return f"{name} is gone"


@tool(approval=True, roles=("admin",))
def pay(name: str) -> str:
    """Pay somebody."""
    return f"{name} is paid"


@tool(executor="frontend")
def confirm(name: str) -> bool:
    """Ask the page."""
    raise NotImplementedError


@tool(executor="remote")
def weigh(name: str) -> int:
    """Weigh something elsewhere."""
    raise NotImplementedError


TOOLS = (erase, pay, confirm, weigh)


def script(messages: list[Message]) -> Iterator[str | ToolUse]:
    """A model that calls the tool it is told to, and says what came of it."""
    results = [part for part in messages[-1].content if part["type"] == "tool_result"]
    words = str(messages[-1].content[-1].get("text", "")).split()
    if results and not words:
        yield f"It said {results[-1]['content']}."
    elif words and words[0] in [one.name for one in TOOLS]:
        yield ToolUse(words[0], {"name": words[-1]})
    else:
        yield f"You said {' '.join(words)}."


def agent(name: str = "Clerk") -> Agent:
    return Agent(name, "", Scripted(script), tools=TOOLS)


def make_app(name: str = "plain", **more: Any) -> App:
    return App(name, more.pop("agent", agent()), **more)


class Desk:
    """Sessions, and what happens in them."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self.log = sessions.log

    async def member(self, owner: Membership, principal: Principal, *roles: str) -> Membership:
        """Return the seat of a principal with these roles in the owner's session: invited, and accepted."""
        membership = self.sessions.member_changes
        operator = await self.sessions.get_membership(ROOT, owner.session_id)
        change = await membership.change_roles(operator, principal.name, roles, now_ms())
        if change.invite_id is not None:
            await membership.accept_invite(principal, owner.session_id, change.invite_id, now_ms())
        return await self.sessions.get_membership(principal, owner.session_id)

    async def say(self, seat: Membership, text: str, **more: Any) -> str:
        """Send a message; its turn."""
        return (await self.sessions.send(seat, UiMessage(text=text, **more))).turn

    async def until(self, seat: Membership, type: str, **wanted: Any) -> Any:
        """The payload of the first event of a type whose envelope, and payload, have these values."""
        async for page in self.log.follow(seat.session_id):
            for envelope in page.envelopes():
                payload = json.decode(envelope.payload)
                fields = payload | {
                    name: getattr(envelope, name) for name in ("trace_id", "channel", "actor")
                }
                if envelope.type == type and all(fields.get(name) == value for name, value in wanted.items()):
                    return payload
        raise AssertionError(f"no {type} came")

    async def told(self, seat: Membership, *types: str) -> list[Envelope]:
        """What is in the log, of some types."""
        rows = await self.log.read(seat.session_id, -1, max_bytes=1 << 20, replay_from=-1)
        return [one for one in rows.envelopes() if not types or one.type in types]

    async def post(self, seat: Membership, type: str, payload: Any, id: str = "") -> int:
        """Post one event of a page; its seq."""
        [seq] = await self.sessions.post(seat, [ClientEvent(type, payload, id or new_id("evt_"))])
        return seq

    async def wait_for_runner(self, seat: Membership) -> SessionRunner:
        """Wait until this process owns a session, and has done what follows from all its events."""
        runner = await self.sessions.runners.open(seat.session_id)
        await runner.wait_for_head()
        async with runner.lock:
            return runner


@asynccontextmanager
async def desk(*apps: App, log: Log | None = None) -> AsyncIterator[Desk]:
    """Sessions on a log of their own, or on one that lives on."""
    own = log or Log(MemoryStore())
    sessions = Sessions(own, apps or [make_app()], 1)
    sessions.runners.start()
    try:
        yield Desk(sessions)
    finally:
        await sessions.close()
        if log is None:
            await own.close()


def play(run: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(HANG_S):
            await run()

    asyncio.run(bounded())


def bodies(envelopes: list[Envelope]) -> list[Any]:
    return [json.decode(one.payload) for one in envelopes]
