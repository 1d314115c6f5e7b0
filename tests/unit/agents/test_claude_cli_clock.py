"""The times of a process, on a clock that the test moves: idle, too long at it, deaf to an interrupt."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.support.claude_sessions import Room, is_there, lawful, make_app, played, room
from tests.support.manual_clock import move_on, run_on_clock
from tests.support.session_runners import claude_runtime
from turnlog import App
from turnlog.agents.claude.claude_code import INACTIVITY_S
from turnlog.agents.claude.process import TERM_GRACE_S
from turnlog.agents.claude.runtime import INTERRUPT_GRACE_S
from turnlog.log import Log, MemoryStore

LIMIT_S = 600.0
DEAF = "signal.signal(15, signal.SIG_IGN); line(); init()\nwhile line(): pass"  # it reads, and does nothing


def on_clock(app: App, test: Callable[[Room], Awaitable[None]]) -> None:
    """Play in a room whose clock the test moves; in the end everything has ended."""

    async def run() -> None:
        log = Log(MemoryStore())
        async with room(app, log) as office:
            await test(office)
        lawful(app, await office.events())
        assert not any(map(is_there, await office.pids()))
        await log.close()

    run_on_clock(run)


async def passes(office: Room, seconds: float) -> None:
    """Time goes by, when everything that happened has been dealt with."""
    runner = await office.runner()
    await runner.wait_for_head()
    async with runner.lock:
        pass
    for _ in range(3):  # whoever is to wake up then has gone to sleep
        await asyncio.sleep(0)
    move_on(seconds)


async def has_to_go(office: Room) -> None:
    """Wait until the process is asked to go, and let its time pass."""
    life = claude_runtime(await office.runner())._process_run
    while life is not None and life.process._kill_timer is None:  # noqa: ASYNC110  nobody tells of it
        await asyncio.sleep(0)
    move_on(TERM_GRACE_S)


def test_a_process_with_nothing_to_do_is_ended_and_the_next_message_starts_another(
    tmp_path: Path,
) -> None:
    async def test(office: Room) -> None:
        await office.ask("one")
        await passes(office, INACTIVITY_S - 10)
        assert await office.lives() == []
        await office.ask("two")  # something to do: the time begins anew
        await passes(office, INACTIVITY_S - 10)
        assert await office.lives() == []
        await passes(office, 11)
        await office.until("process.end", reason="inactivity_timeout")
        assert await office.lives() == [("inactivity_timeout", 143)]
        [problem] = await office.bodies("session.error")
        assert (problem["code"], problem["retriable"]) == ("inactivity_timeout", True)
        await office.ask("three")
        assert (await office.bodies("assistant.message"))[-1]["text"].endswith("our turn 3.")

    on_clock(make_app(tmp_path), test)


def test_a_process_that_waits_for_somebody_is_not_idle(tmp_path: Path) -> None:
    async def test(office: Room) -> None:
        turn = await office.ask("Delete it")
        for _ in range(3):
            await passes(office, INACTIVITY_S + 1)
        assert (await office.lives(), await office.codes()) == ([], [])
        await office.decide("deny")
        await office.rests(turn)
        assert await office.ends() == ["end_turn"]
        await passes(office, INACTIVITY_S + 1)
        await passes(office, INACTIVITY_S + 1)
        await office.until("process.end", reason="inactivity_timeout")

    on_clock(make_app(tmp_path), test)


def test_a_turn_that_runs_too_long_is_interrupted_and_the_process_goes_on(tmp_path: Path) -> None:
    async def test(office: Room) -> None:
        turn = await office.say("/wait")
        await office.until("assistant.message", text="One moment.")
        await passes(office, LIMIT_S - 1)
        assert await office.codes() == []
        await passes(office, 1)
        await office.rests(turn)
        assert (await office.codes(), await office.ends()) == (["turn_timeout"], ["timeout"])
        [problem] = await office.events("session.error")
        assert problem.trace_id == turn
        await passes(office, INTERRUPT_GRACE_S)
        await office.ask("two")
        assert (await office.ends(), await office.lives()) == (["timeout", "end_turn"], [])

    on_clock(make_app(tmp_path, turn_limit_s=LIMIT_S), test)


def test_a_turn_that_cannot_be_interrupted_takes_the_process_with_it(tmp_path: Path) -> None:
    async def test(office: Room) -> None:
        turn = await office.say("one")
        await office.until("agent.start")
        await passes(office, LIMIT_S)
        await office.until("session.error", code="turn_timeout")
        await passes(office, INTERRUPT_GRACE_S)
        await has_to_go(office)
        await office.rests(turn)
        assert (await office.codes(), await office.ends()) == (["turn_timeout"], ["timeout"])
        await office.until("process.end", reason="process_crash")
        assert await office.lives() == [("process_crash", 137)]

    on_clock(make_app(tmp_path, played(DEAF), turn_limit_s=LIMIT_S), test)


def test_a_message_that_is_never_taken_up_is_over_in_time(tmp_path: Path) -> None:
    async def test(office: Room) -> None:
        turn = await office.say("one")
        await office.until("process.start", process="model")
        await passes(office, LIMIT_S)
        await office.until("session.error", code="turn_timeout")
        await passes(office, INTERRUPT_GRACE_S)
        await office.rests(turn)
        assert await office.ends() == ["timeout"]

    on_clock(make_app(tmp_path, played("while line(): pass"), turn_limit_s=LIMIT_S), test)


def test_a_stop_that_is_not_heard_ends_the_process(tmp_path: Path) -> None:
    async def test(office: Room) -> None:
        turn = await office.say("one")
        await office.until("agent.start")
        await office.desk.sessions.stop(office.seat)
        await passes(office, INTERRUPT_GRACE_S)
        await has_to_go(office)
        await office.rests(turn)
        assert (await office.ends(), await office.codes()) == (["cancelled"], [])
        await office.until("process.end", reason="user_ended")

    on_clock(make_app(tmp_path, played(DEAF)), test)


def test_a_stop_before_the_message_is_taken_up_ends_it(tmp_path: Path) -> None:
    async def test(office: Room) -> None:
        turn = await office.say("one")
        await office.until("process.start", process="model")
        await office.desk.sessions.stop(office.seat)
        await passes(office, INTERRUPT_GRACE_S)
        await office.rests(turn)
        assert (await office.ends(), await office.codes()) == (["cancelled"], [])

    on_clock(make_app(tmp_path, played("while line(): pass")), test)


def test_turn_that_is_taken_up_after_its_limit_and_goes_on_takes_the_process_with_it(tmp_path: Path) -> None:
    async def test(office: Room) -> None:
        turn = await office.say("one")
        await office.until("process.start", process="model")
        await passes(office, LIMIT_S)
        await office.until("session.error", code="turn_timeout")
        await office.until("agent.start")
        await passes(office, INTERRUPT_GRACE_S)
        await has_to_go(office)
        await office.rests(turn)
        assert (await office.ends(), await office.codes()) == (["timeout"], ["turn_timeout"])

    late = "signal.signal(15, signal.SIG_IGN); line(); line(); init()\nwhile line(): pass"
    on_clock(make_app(tmp_path, played(late), turn_limit_s=LIMIT_S), test)
