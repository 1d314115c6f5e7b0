"""Turns that run too long are ended, and nothing else is: waiting is not running (protocol 4.17)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.clock import move_on, run_on_clock
from tests.ledger import body, lawful
from tests.logs import log as hand_written
from tests.logs import scope
from tests.troupe import confirm, event_of, inquire, remove, stop
from turnlog import open_log
from turnlog.agents import Agent, Context, Reply, Request, WaitForInput, tool
from turnlog.agents.answers import answer_items
from turnlog.agents.driver import Driver
from turnlog.agents.limit import running, timed_out
from turnlog.agents.loop import Item
from turnlog.errors import StoreError
from turnlog.events import (
    CATALOG,
    AgentEnd,
    AgentHandoff,
    AgentStart,
    AgentUsage,
    Envelope,
    Event,
    Payload,
    Scope,
    SessionError,
    ToolAwait,
    ToolCall,
    UiMessage,
    Usage,
    decode,
)
from turnlog.events.tool import AwaitedCall
from turnlog.log import Log, line_of
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

    async def stream(self, request: Request, reply: Reply) -> AsyncIterator[list[Payload]]:
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
    async def later(context: Context) -> str:
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
        self.driver = Driver(log, session, team(self.mind, self.gate), CATALOG, None, turn_limit_s=LIMIT_S)
        self.sent = 0

    async def send(self, text: str, channel: str | None = None) -> str:
        """A message in a turn of its own."""
        self.sent += 1
        at = Scope(trace_id=f"tr_{self.sent}", channel=channel)
        await self.log.append(self.session, [event_of(Item(UiMessage(text=text, channel=channel), at, "ui"))])
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
        await self.driver.caught_up()
        await ring(seconds)
        async with self.driver._deciding:
            pass
        await self.driver.caught_up()

    async def answer(self, value: Any) -> None:
        """Answer the one call that waits."""
        await self.log.append(self.session, await self.answers(value))

    async def answers(self, value: Any) -> list[Event]:
        """What answers the one call that waits, as the log stands."""
        tree = Tree()
        for event in await self.events():
            tree.apply(event, CATALOG.payload(event))
        [waiting] = [
            call_id for agent in tree.open.values() for call_id, call in agent.calls.items() if call.waits
        ]
        return [event_of(item) for item in answer_items(tree, waiting, value)]

    async def events(self) -> list[Envelope]:
        found: list[Envelope] = []
        while page := await self.log.read(self.session, found[-1].seq if found else -1):
            found += [decode(line_of(row)) for row in page]
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
    await scene.driver.open()
    try:
        yield scene
    finally:
        await scene.driver.close()
        await log.close()


def on_clock(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        run_on_clock(test)

    run.__name__ = test.__name__
    return run


def ending(events: list[Envelope]) -> list[tuple[str, str | None]]:
    """What there is from the error on."""
    kinds = [(event.type, event.agent_name) for event in events]
    return kinds[[kind for kind, _ in kinds].index("session.error") :]


# what never ends


@on_clock
async def test_a_model_that_never_ends_is_hung_up_on() -> None:
    async with opened() as scene:
        await scene.send("hang")
        await scene.until("block.delta")
        await scene.passes(LIMIT_S - 1)
        assert scene.driver.tree.open
        await scene.passes(1)
        events = await scene.events()
        lawful(events)
        assert ending(events) == [("session.error", "Guide"), ("block.end", "Guide"), ("agent.end", "Guide")]
        assert await scene.bodies("session.error") == [PROBLEM]
        [block] = await scene.bodies("block.end")
        assert (block["status"], block["text"]) == ("aborted", "Let me")
        assert await scene.ends() == [("Guide", "timeout")]
        assert scene.mind.hung_up == ["hang"]
        assert {event.trace_id for event in events} == {"tr_1"}
        left = [scene.driver._tasks, scene.driver._asked, scene.driver._clocks._clocks]
        assert not any(left)


@on_clock
async def test_a_tool_that_never_ends_is_stopped_and_its_call_answered() -> None:
    async with opened() as scene:
        await scene.send("stall")
        await scene.until("tool.call")
        await scene.passes(LIMIT_S)
        lawful(await scene.events())
        [result] = await scene.bodies("tool.result")
        assert (result["ok"], result["error"]["code"]) == (False, "CANCELLED")
        assert result["error"]["message"] == PROBLEM["message"]
        assert await scene.ends() == [("Guide", "timeout")]
        assert not scene.driver._tasks


@on_clock
async def test_an_agent_below_that_never_ends_takes_its_callers_with_it() -> None:
    async with opened() as scene:
        await scene.send("scout")
        await scene.until("block.delta")
        await scene.passes(LIMIT_S)
        events = await scene.events()
        lawful(events)
        assert ending(events) == [
            ("session.error", "Guide"),
            ("block.end", "Scout"),
            ("agent.end", "Scout"),
            ("tool.result", "Guide"),
            ("agent.end", "Guide"),
        ]
        assert await scene.ends() == [("Scout", "timeout"), ("Guide", "timeout")]


@on_clock
async def test_the_limit_is_for_the_whole_turn_not_for_each_step() -> None:
    async with opened() as scene:
        await scene.send("scout")
        await scene.until("agent.start", 2)
        await scene.passes(LIMIT_S / 2)
        await scene.until("block.delta")
        await scene.passes(LIMIT_S / 2)
        assert await scene.ends() == [("Scout", "timeout"), ("Guide", "timeout")]


# waiting


@pytest.mark.parametrize(
    ("what", "value"), [("confirm", True), ("inquire", {"answer": "Oslo"}), ("remove", 1)]
)
def test_who_answers_takes_as_long_as_it_takes(what: str, value: Any) -> None:
    async def play() -> None:
        async with opened() as scene:
            await scene.send(what)
            await scene.until("approval.request" if what == "remove" else "tool.await")
            await scene.passes(0.9 * LIMIT_S if what == "remove" else 10 * LIMIT_S)
            await scene.answer(value)
            await scene.until("agent.end")
            assert await scene.ends() == [("Guide", "end_turn")]
            assert await scene.bodies("session.error") == []

    run_on_clock(play)


@on_clock
async def test_the_clock_starts_again_from_nothing_with_an_answer() -> None:
    async with opened() as scene:
        await scene.send("confirm hang")
        await scene.passes(LIMIT_S - 1)
        await scene.until("tool.await")
        await scene.passes(LIMIT_S)
        await scene.answer(True)
        await scene.until("block.delta")
        await scene.passes(LIMIT_S - 1)
        assert await scene.ends() == []
        await scene.passes(1)
        lawful(await scene.events())
        assert await scene.ends() == [("Guide", "timeout")]


@on_clock
async def test_who_waits_beside_one_that_runs_is_ended_with_it() -> None:
    async with opened() as scene:
        await scene.send("asker+scout")
        await scene.until("tool.await")
        await scene.until("block.delta")
        await scene.passes(LIMIT_S)
        lawful(await scene.events())
        assert sorted(await scene.ends()) == [(name, "timeout") for name in ("Asker", "Guide", "Scout")]


# what comes next, and what is beside it


@on_clock
async def test_the_next_message_in_line_has_its_turn_and_a_clock_of_its_own() -> None:
    async with opened() as scene:
        for _ in range(2):
            await scene.send("hang")
        await scene.send("end")
        await scene.until("block.delta")
        await scene.passes(LIMIT_S)
        await scene.until("block.delta", 2)
        await scene.passes(LIMIT_S - 1)
        assert await scene.ends() == [("Guide", "timeout")]
        await scene.passes(1)
        await scene.until("agent.end", 3)
        lawful(await scene.events())
        assert await scene.ends() == [("Guide", "timeout"), ("Guide", "timeout"), ("Guide", "end_turn")]


@on_clock
async def test_another_turn_that_runs_in_the_same_session_goes_on() -> None:
    async with opened() as scene:
        await scene.send("confirm hang")
        await scene.until("tool.await")
        await scene.send("hang", channel="side")
        await scene.until("block.delta")
        await scene.passes(LIMIT_S / 2)
        await scene.answer(True)
        await scene.until("block.delta", 2)
        await scene.passes(LIMIT_S / 2)
        ends = [event.trace_id for event in await scene.events() if event.type == "agent.end"]
        assert ends == ["tr_2"]
        await scene.passes(LIMIT_S / 2)
        lawful(await scene.events())
        assert await scene.ends() == [("Guide", "timeout")] * 2


@on_clock
async def test_another_session_goes_on() -> None:
    async with opened() as scene:
        other = Scene(scene.log, await scene.log.create("limit"))
        await other.driver.open()
        await scene.send("hang")
        await scene.until("block.delta")
        await scene.passes(LIMIT_S / 2)
        await other.send("hang")
        await other.until("block.delta")
        await scene.passes(LIMIT_S / 2)
        assert (await scene.ends(), await other.ends()) == ([("Guide", "timeout")], [])
        await other.driver.close()


# at the same moment


@on_clock
async def test_a_question_that_is_in_the_log_when_the_time_is_over_was_in_time() -> None:
    async with opened() as scene:
        await scene.send("later")
        await scene.until("tool.call")
        await scene.driver.caught_up()
        async with scene.driver._deciding:  # nobody looks while the time runs out and the question is asked
            await ring(LIMIT_S)
            scene.gate.set()
            await scene.until("tool.await")
        await scene.passes(LIMIT_S)
        assert await scene.ends() == []
        await scene.answer({})
        await scene.until("agent.end")
        assert await scene.ends() == [("Guide", "end_turn")]


@on_clock
async def test_an_answer_that_is_in_the_log_too_starts_the_clock_again() -> None:
    async with opened() as scene:
        await scene.send("later hang")
        await scene.until("tool.call")
        await scene.driver.caught_up()
        async with scene.driver._deciding:
            await ring(LIMIT_S)
            scene.gate.set()
            await scene.until("tool.await")
            await scene.answer({})
        await scene.until("block.delta")
        await scene.passes(LIMIT_S - 1)
        assert await scene.ends() == []
        await scene.passes(1)
        assert await scene.ends() == [("Guide", "timeout")]


class Late:
    """A log on which something happens at the moment in which a turn is about to be closed."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.before: Callable[[], list[Event]] = list

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, session_id: str, events: Sequence[Event], **options: Any) -> list[int]:
        if "expected_last" in options and (more := self.before()):
            self.before = list
            await self._log.append(session_id, more)
        return await self._log.append(session_id, events, **options)


@on_clock
async def test_an_answer_at_the_last_moment_counts_once_and_saves_nobody() -> None:
    async with opened(Late) as scene:
        await scene.send("asker+scout")
        await scene.until("tool.await")
        await scene.until("block.delta")
        answers = await scene.answers(True)
        scene.log.before = lambda: answers
        await scene.passes(LIMIT_S)
        lawful(await scene.events())
        results = await scene.bodies("tool.result")
        assert [result["tool"] for result in results if result["ok"]] == ["confirm"]
        assert {reason for _, reason in await scene.ends()} == {"timeout"}
        assert await scene.bodies("session.error") == [PROBLEM]


@on_clock
async def test_a_message_at_the_last_moment_has_the_next_turn() -> None:
    async with opened(Late) as scene:
        await scene.send("hang")
        await scene.until("block.delta")
        message = event_of(Item(UiMessage(text="end"), Scope(trace_id="tr_late"), "ui"))
        scene.log.before = lambda: [message]
        await scene.passes(LIMIT_S)
        await scene.until("agent.end", 2)
        lawful(await scene.events())
        assert await scene.ends() == [("Guide", "timeout"), ("Guide", "end_turn")]


@on_clock
async def test_a_stop_at_the_last_moment_is_a_stop() -> None:
    async with opened() as scene:
        await scene.send("hang")
        await scene.until("block.delta")
        await scene.driver.caught_up()
        async with scene.driver._deciding:  # nobody looks while the time runs out and the stop arrives
            await ring(LIMIT_S)
            await scene.log.append(scene.session, [event_of(stop())])
        await scene.until("agent.end")
        await scene.send("end")
        await scene.until("agent.end", 2)
        lawful(await scene.events())
        assert await scene.ends() == [("Guide", "cancelled"), ("Guide", "end_turn")]
        assert await scene.bodies("session.error") == []


class Held:
    """A log that writes the end of an agent only when everything under way is waited for."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.held: list[Event] = []
        self.reached = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def submit(self, session_id: str, events: Sequence[Event]) -> "asyncio.Future[list[int]]":
        if not self.reached.is_set() and any(event.type == "agent.end" for event in events):
            self.held = list(events)
            self.reached.set()
            return asyncio.get_running_loop().create_future()
        held, self.held = ([], self.held) if events else (self.held, [])
        if held:
            self._log.submit(session_id, held)
        return self._log.submit(session_id, events)


@on_clock
async def test_a_turn_whose_end_was_under_way_has_ended_by_itself() -> None:
    async with opened(Held) as scene:
        await scene.send("end")
        await scene.log.reached.wait()
        await scene.send("end")
        await scene.passes(LIMIT_S)
        await scene.until("agent.end", 2)
        lawful(await scene.events())
        assert await scene.ends() == [("Guide", "end_turn")] * 2
        assert await scene.bodies("session.error") == []


class Full:
    """A log that is full when the first turn is to be closed."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.full = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, session_id: str, events: Sequence[Event], **options: Any) -> list[int]:
        if self.full and options:
            self.full = False
            raise StoreError("no space left")
        return await self._log.append(session_id, events, **options)


def test_a_log_that_cannot_take_the_end_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        async with opened(Full) as scene:
            await scene.send("hang")
            await scene.until("block.delta")
            await scene.passes(LIMIT_S)
            assert await scene.ends() == []
            await scene.passes(LIMIT_S)
            lawful(await scene.events())
            assert await scene.ends() == [("Guide", "timeout")]

    run_on_clock(play)
    assert "no space left" in caplog.text


# by hand

CALL = ToolCall(call_id="c", tool="confirm", args={}, executor="frontend")
USAGE = AgentUsage(model="m", usage=Usage(input_tokens=1, output_tokens=1))
AWAIT = ToolAwait(calls=(AwaitedCall(call_id="c", tool="confirm", args={}),))


def tree(*entries: tuple[Payload, Scope]) -> Tree:
    made = Tree()
    for envelope, payload in hand_written(*entries):
        made.apply(envelope, payload)
    return made


def test_turns_that_run_are_those_in_which_somebody_does_not_wait() -> None:
    one, two = scope("agt_1"), scope("agt_2", trace_id="tr_2")
    start = AgentStart(name="A", via="prompt")
    waits = [(start, one), (CALL, one), (USAGE, one), (AWAIT, one)]
    assert running(tree()) == set()
    assert running(tree(*waits)) == set()
    assert running(tree(*waits, (start, two))) == {"tr_2"}
    handed = [(AgentHandoff(to="B", to_agent_id="agt_3"), two), (AgentEnd(stop_reason="handoff"), two)]
    assert running(tree((start, two), *handed)) == {"tr_2"}


def test_the_events_that_end_a_turn_are_about_that_turn() -> None:
    one, two = scope("agt_1"), scope("agt_2", trace_id="tr_2")
    start = AgentStart(name="A", via="prompt")
    closings = timed_out(tree((start, one), (start, two)), "tr_2", 1.5)
    problem, end = [item.payload for item in closings]
    assert isinstance(problem, SessionError)
    assert problem.message == "The turn took longer than 1.5 s and was ended."
    assert end == AgentEnd(stop_reason="timeout")
    assert {item.scope for item in closings} == {two}
    assert timed_out(tree((start, one)), "tr_2", 1.5) == []
