"""The moment in which a turn's time is over: what else happens then is not lost, and nothing comes twice."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.support.agent_logs import lawful
from tests.support.agent_vectors import event_of, stop
from tests.support.limited_session import LIMIT_S, PROBLEM, on_clock, opened, ring
from tests.support.manual_clock import run_on_clock
from turnlog.errors import StoreError
from turnlog.events import Event, EventDraft, Scope, UiMessage
from turnlog.log import AppendResult, Log


@on_clock
async def test_a_question_that_is_in_the_log_when_the_time_is_over_was_in_time() -> None:
    async with opened() as scene:
        await scene.send("later")
        await scene.until("tool.call")
        await scene.runner.wait_for_head()
        async with scene.runner.lock:  # nobody looks while the time runs out and the question is asked
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
        await scene.runner.wait_for_head()
        async with scene.runner.lock:
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

    def submit(
        self, session_id: str, events: Sequence[Event], **options: Any
    ) -> "asyncio.Future[AppendResult]":
        if "expected_last" in options and (more := self.before()):
            self.before = list
            self._log.submit(session_id, more)
        return self._log.submit(session_id, events, **options)


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
        message = event_of(EventDraft(UiMessage(text="end"), Scope(trace_id="tr_late"), "ui"))
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
        await scene.runner.wait_for_head()
        async with scene.runner.lock:  # nobody looks while the time runs out and the stop arrives
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

    def submit(
        self, session_id: str, events: Sequence[Event], **options: Any
    ) -> "asyncio.Future[AppendResult]":
        if not self.reached.is_set() and any(event.type == "agent.end" for event in events):
            self.held = list(events)
            self.reached.set()
            return asyncio.get_running_loop().create_future()
        held, self.held = ([], self.held) if events else (self.held, [])
        if held:
            self._log.submit(session_id, held)
        return self._log.submit(session_id, events, **options)


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

    def submit(
        self, session_id: str, events: Sequence[Event], **options: Any
    ) -> "asyncio.Future[AppendResult]":
        if self.full and "expected_last" in options:
            self.full = False
            raise StoreError("no space left")
        return self._log.submit(session_id, events, **options)


def test_a_log_that_cannot_take_the_end_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        async with opened(Full) as scene:
            await scene.send("hang")
            await scene.until("block.delta")
            await scene.passes(LIMIT_S)
            await scene.until("agent.end")
            lawful(await scene.events())
            assert await scene.ends() == [("Guide", "timeout")]

    run_on_clock(play)
    assert "no space left" in caplog.text
