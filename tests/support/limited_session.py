"""A session whose turns are limited, on a clock that a test moves: its model does what the prompt says."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.agent_logs import body
from tests.support.agent_vectors import confirm, event_of, inquire, remove
from tests.support.manual_clock import move_on, run_on_clock
from tests.support.session_runners import open_runner
from turnlog import open_log
from turnlog.agents import Agent, ReplyBuilder, Request, ToolContext, WaitForInput, tool
from turnlog.agents.runtime.session_runner import SessionRunner
from turnlog.agents.runtime.user_input import answer_events
from turnlog.agents.team import AgentTeam
from turnlog.events import CATALOG, Envelope, Event, EventDraft, Payload, Scope, UiMessage, decode_envelope
from turnlog.log import Log, envelope_json
from turnlog.state.history import Message
from turnlog.state.tree import Tree

LIMIT_S = 600.0
PROBLEM = {
    "code": "turn_timeout",
    "message": "The turn took longer than 600 s and was ended.",
    "retriable": True,
}


@dataclass
class Mind:
    """A model that follows its prompt word by word: it makes the calls of a word, ends, or hangs for ever."""

    name: str = "mind"
    hung_up: list[str] = field(default_factory=list)

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        word = word_of(request.messages)
        if word == "hang":
            yield reply.text("Let me")
            try:
                await asyncio.Event().wait()
            finally:
                self.hung_up.append(word)
        for name in [] if word == "end" else word.split("+"):
            yield reply.call(name, ARGS[name])
        yield [*reply.text("Done."), *reply.done("end_turn")]


def word_of(messages: list[Message]) -> str:
    """What the prompt says next: one word for each reply since."""
    texts = [
        (place, part["text"])
        for place, message in enumerate(messages)
        for part in message.content
        if message.role == "user" and part["type"] == "text"
    ]
    place, prompt = texts[-1]
    words = [*prompt.split(), "end"]
    return str(words[sum(message.role == "assistant" for message in messages[place:])])


ARGS: dict[str, dict[str, Any]] = {
    "stall": {},
    "later": {},
    "confirm": {"question": "Go?"},
    "inquire": {"question": "Where?"},
    "remove": {"what": "weed"},
    "scout": {"prompt": "hang"},
    "asker": {"prompt": "confirm"},
}


@tool
async def stall() -> str:
    """Never come back."""
    await asyncio.Event().wait()
    raise AssertionError


def team(mind: Mind, gate: asyncio.Event) -> Agent:
    @tool
    async def later(context: ToolContext) -> str:
        """Ask the person when the gate is open."""
        await gate.wait()
        if context.values is None:
            raise WaitForInput({"question": "Where?"})
        return "there"

    scout = Agent("Scout", "", mind)
    asker = Agent("Asker", "", mind, tools=[confirm])
    return Agent("Guide", "", mind, tools=[stall, later, confirm, inquire, remove], agents=[scout, asker])


class Scene:
    """A session whose turns are limited, on a clock that the test moves."""

    def __init__(self, log: Any, session: str) -> None:
        self.log, self.session, self.mind, self.gate = log, session, Mind(), asyncio.Event()
        self.runner: SessionRunner
        self.sent = 0

    async def open(self) -> None:
        guide = AgentTeam(team(self.mind, self.gate))
        self.runner = await open_runner(self.log, self.session, guide, turn_limit_s=LIMIT_S)

    async def send(self, text: str, channel: str | None = None) -> str:
        """A message in a turn of its own."""
        self.sent += 1
        at = Scope(trace_id=f"tr_{self.sent}", channel=channel)
        await self.log.append(
            self.session, [event_of(EventDraft(UiMessage(text=text, channel=channel), at, "ui"))]
        )
        return f"tr_{self.sent}"

    async def until(self, kind: str, times: int = 1) -> None:
        """Wait until this happened so many times, and the driver knows."""
        seen = 0
        async with aclosing(self.log.follow(self.session)) as pages:
            async for page in pages:
                seen += sum(row.type == kind for row in page)
                if seen >= times:
                    return

    async def passes(self, seconds: float) -> None:
        """Time goes by; whatever rings now has been heard, and what follows from it is known."""
        await self.runner.wait_for_head()
        await ring(seconds)
        async with self.runner.lock:
            pass
        await self.runner.wait_for_head()

    async def answer(self, value: Any) -> None:
        """Answer the one call that waits."""
        await self.log.append(self.session, await self.answers(value))

    async def answers(self, value: Any) -> list[Event]:
        """What answers the one call that waits, as the log stands."""
        tree = Tree()
        for event in await self.events():
            tree.apply(event, CATALOG.decode_payload(event))
        [waiting] = [
            call_id
            for agent in tree.open.values()
            for call_id, call in agent.calls.items()
            if call.is_waiting
        ]
        return [event_of(item) for item in answer_events(tree, waiting, value)]

    async def events(self) -> list[Envelope]:
        found: list[Envelope] = []
        while page := await self.log.read(self.session, found[-1].seq if found else -1):
            found += [decode_envelope(envelope_json(row)) for row in page]
        return found

    async def bodies(self, kind: str) -> list[Any]:
        return [body(event) for event in await self.events() if event.type == kind]

    async def ends(self) -> list[tuple[str | None, str]]:
        """Who ended how."""
        ends = [event for event in await self.events() if event.type == "agent.end"]
        return [(event.agent_name, body(event)["stop_reason"]) for event in ends]


async def ring(seconds: float) -> None:
    """Time goes by: clocks that are due ring, and who ends a turn for it stands in line."""
    move_on(seconds)
    for _ in range(3):
        await asyncio.sleep(0)


@asynccontextmanager
async def opened(wrap: Callable[[Log], Any] = lambda log: log) -> AsyncIterator[Scene]:
    log = await open_log("memory:")
    scene = Scene(wrap(log), await log.create("limit"))
    await scene.open()
    try:
        yield scene
    finally:
        await scene.runner.close()
        await log.close()


def on_clock(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        run_on_clock(test)

    run.__name__ = test.__name__
    return run
