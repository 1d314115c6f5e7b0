"""What drivers close and what they find open: time that is over, late answers, logs that are lost."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from tests.support.agent_logs import body, lawful
from tests.support.agent_vectors import VECTORS, Stage, Trouble, event_of
from tests.support.limits import HANG_S
from tests.support.session_runners import open_runner
from turnlog import open_log
from turnlog.agents import Agent, Scripted, ToolUse, tool
from turnlog.agents.runtime.session_runner import SessionRunner
from turnlog.agents.runtime.user_input import answer_events
from turnlog.agents.team import AgentTeam
from turnlog.errors import StoreError, Unavailable
from turnlog.events import CATALOG, Event, Scope, UiMessage
from turnlog.log import AppendResult, Log, Page

CASES = {case["name"]: case for case in VECTORS}


def run_now(work: Callable[[Log], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        log = await open_log("memory:")
        async with asyncio.timeout(HANG_S):
            await work(log)
        await log.close()

    asyncio.run(bounded())


@tool(approval=True, expires_s=0.02)
def remove(what: str) -> str:
    """Remove something."""
    raise AssertionError("nobody agreed")


def keeper() -> Agent:
    def script(messages: Any) -> list[Any]:
        over = messages[-1].content[0]["type"] == "tool_result"
        return ["Then not."] if over else [ToolUse("remove", {"what": "weed"})]

    return Agent("Keeper", "", Scripted(script), tools=[remove])


async def until(log: Log, session: str, kind: str) -> None:
    async with aclosing(log.follow(session)) as pages:
        async for page in pages:
            if any(row.type == kind for row in page):
                return


async def asked(log: Log, session: str) -> SessionRunner:
    runner = await open_runner(log, session, AgentTeam(keeper()))
    message = CATALOG.build_event(
        UiMessage(text="Go"), id="evt_go", origin="ui", scope=Scope(trace_id="tr_1")
    )
    await log.append(session, [message])
    await until(log, session, "approval.request")
    return runner


def test_an_approval_that_nobody_gives_is_over_when_its_time_is() -> None:
    async def wait(log: Log) -> None:
        session = await log.create("keeper")
        runner = await asked(log, session)
        await until(log, session, "agent.end")
        await runner.close()
        stage = Stage(log, {}, Trouble())
        stage.session = session
        events = await stage.events()
        lawful(events)
        [decision] = [body(event) for event in events if event.type == "approval.decision"]
        [result] = [body(event) for event in events if event.type == "tool.result"]
        assert (decision["decision"], result["error"]["code"]) == ("expired", "DENIED")

    run_now(wait)


def test_time_goes_on_although_the_process_that_asked_is_gone() -> None:
    async def wait(log: Log) -> None:
        session = await log.create("keeper")
        await (await asked(log, session)).close()
        runner = await open_runner(log, session, AgentTeam(keeper()))
        await until(log, session, "agent.end")
        await runner.close()

    run_now(wait)


class Late:
    """A log on which somebody answers at the moment in which what waits is about to be closed."""

    def __init__(self, log: Log, answer: Callable[[], list[Event]]) -> None:
        self._log, self._answer = log, answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def submit(
        self, session_id: str, events: Sequence[Event], **options: Any
    ) -> "asyncio.Future[AppendResult]":
        if "expected_last" in options and (answer := self._answer()):
            self._log.submit(session_id, answer)
        return self._log.submit(session_id, events, **options)


def test_an_answer_at_the_last_moment_is_not_answered_twice() -> None:
    async def stop(log: Log) -> None:
        stage = Stage(log, CASES["frontend tool"]["team"], Trouble())
        await stage.open()
        await stage.move({"prompt": "Go."})
        [call_id] = stage.waiting("confirm")
        answers = [event_of(item) for item in answer_events(stage.tree, call_id, True)]

        def once() -> list[Event]:
            taken, answers[:] = answers[:], []
            return taken

        assert stage.runner is not None
        late: Any = Late(log, once)
        stage.runner.writer._log = late
        await stage.move({"stop": True})
        await stage.close()
        events = await stage.events()
        lawful(events)
        assert [body(event)["ok"] for event in events if event.type == "tool.result"] == [True, True]
        assert body(events[-1])["stop_reason"] == "cancelled"

    run_now(stop)


class Deaf:
    """A log that cannot be followed any more."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def follow(self, session_id: str, after: int = -1) -> AsyncIterator[Page]:
        async for page in self._log.follow(session_id, after):
            yield page
            raise StoreError("the disk is gone")


def test_who_waits_for_a_runner_that_lost_its_log_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def lose(log: Log) -> None:
        session = await log.create("keeper")
        deaf: Any = Deaf(log)
        runner = await open_runner(deaf, session, AgentTeam(keeper()))
        waits = asyncio.create_task(runner.wait_for_seq(1_000))
        message = CATALOG.build_event(
            UiMessage(text="Go"), id="evt_go", origin="ui", scope=Scope(trace_id="tr_1")
        )
        await log.append(session, [message])
        with pytest.raises(StoreError, match="runner has stopped"):
            await waits
        await runner.close()

    run_now(lose)
    assert "the disk is gone" in caplog.text


def test_a_task_that_waits_for_the_next_event_ends_when_its_runner_stops_to_follow() -> None:
    async def wait(log: Log) -> None:
        runner = await open_runner(log, await log.create("keeper"), AgentTeam(keeper()))
        last = await runner.wait_for_head()
        waiting = asyncio.create_task(runner.wait_for_seq(last + 1))
        await asyncio.sleep(0)
        await runner.abandon()
        with pytest.raises(Unavailable):
            await waiting

    run_now(wait)
