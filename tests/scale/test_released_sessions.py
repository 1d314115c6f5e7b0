"""Sessions that were looked at or worked in, and left: runners, watches, tasks and memory are given back.

`tests/soak/test_released_sessions.py` has 10,000 sessions.
"""

import asyncio
import gc
import math
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from tests.support.manual_clock import move_on, run_on_clock
from tests.unit.app.desk import ADA, Desk
from tests.unit.log.delegates import until
from turnlog import Agent, App, tool
from turnlog.agents import Scripted, ToolUse
from turnlog.agents.runtime.runner_pool import RunnerPool
from turnlog.app import Sessions
from turnlog.app.session_creation import make_session
from turnlog.events import AgentEnd, AgentStart, AssistantMessage, Event, EventDraft, Scope, UiMessage
from turnlog.log import Log, SqliteStore
from turnlog.state.history import Message

T = TypeVar("T")

QUIET_S = 3600.0  # passes only when a test moves the clock
SESSIONS = 1_000
WARM_UP = 100  # sessions after which caches have their size
WORKED_IN = 60
PAGE = 100
TOGETHER = 100  # sessions that are made at once, so that they share the commits


@tool(kind="write", approval=True, expires_s=math.inf)
def pay() -> str:
    """Pay."""
    return "paid"


def script(messages: list[Message]) -> Iterator[str | ToolUse]:
    part = messages[-1].content[-1]
    if part.get("text") == "Pay":
        yield ToolUse("pay", {})
    else:
        yield f"You said {part.get('text')}."


def make_app() -> App:
    return App("plain", Agent("Clerk", "", Scripted(script), tools=(pay,)))


def finished_turn(number: int) -> list[Event]:
    """Build the events of a turn that is over."""
    turn = Scope(trace_id=f"tr_{number}")
    agent = Scope(trace_id=turn.trace_id, agent_id=f"agt_{number}", agent_name="Clerk", depth=0)
    drafts = [
        EventDraft(UiMessage(text="Hello"), turn, "ui"),
        EventDraft(AgentStart(name="Clerk", via="prompt", prompt="Hello"), agent, "system"),
        EventDraft(AssistantMessage(text="You said Hello."), agent, "model"),
        EventDraft(AgentEnd(stop_reason="end_turn"), agent, "system"),
    ]
    catalog = make_app().catalog
    return [draft.build(catalog, f"evt_{number}_{place}") for place, draft in enumerate(drafts)]


async def fill(path: Path, count: int) -> list[str]:
    """Store sessions with one turn each, which no server has opened; return their ids."""
    log = Log(SqliteStore(path))
    app = make_app()

    async def make(number: int) -> str:
        session_id = await make_session(log, app, ADA)
        await log.append(session_id, finished_turn(number))
        lease = await log.leases.claim(session_id, "earlier")
        assert lease is not None
        await log.leases.release(lease, seen=await log.last_seq(session_id))
        return session_id

    session_ids: list[str] = []
    while len(session_ids) < count:
        numbers = range(len(session_ids), min(count, len(session_ids) + TOGETHER))
        session_ids += await asyncio.gather(*map(make, numbers))
    await log.close()
    return session_ids


class Usage(NamedTuple):
    """What a process has in memory for its sessions."""

    runners: int
    watches: int
    tails: int
    tasks: int
    memory_bytes: int


def measure_usage(sessions: Sessions) -> Usage:
    gc.collect()
    return Usage(
        len(sessions.runners),
        len(sessions.watches),
        len(sessions.log.tails),
        len(asyncio.all_tasks()),
        tracemalloc.get_traced_memory()[0],
    )


async def look(sessions: Sessions, session_id: str) -> None:
    """Read a session in every way that a member has, and leave."""
    seat = await sessions.get_membership(ADA, session_id)
    await sessions.tree(seat)
    await sessions.state(seat)
    await sessions.load_read_models(seat)
    await sessions.documents(seat, None, None)
    await sessions.summarize(seat)
    async with aclosing(sessions.log.follow(session_id)) as pages:
        await anext(pages)


async def list_order(sessions: Sessions) -> list[tuple[str, int | None]]:
    """Return all sessions in the order of the list, with their last seqs."""
    listed: list[tuple[str, int | None]] = []
    position = None
    while True:
        summaries, position = await sessions.list_summaries(ADA, position, PAGE)
        listed += [(summary.membership.session_id, summary.last) for summary in summaries]
        if position is None:
            return listed


async def pass_quiet_time(sessions: Sessions) -> None:
    """Let the quiet time pass, and wait until what is due then has happened."""
    timers = 2  # a sweep that finds a younger watch is followed by another one
    for _ in range(timers):
        move_on(QUIET_S + 1)
        for _ in range(3):
            await asyncio.sleep(0)
    runners = sessions.runners
    assert isinstance(runners, RunnerPool)
    await until(lambda: not runners._releases)


class Visit(NamedTuple):
    """What a process used before it looked at sessions, when it had looked, and after the quiet time."""

    before: Usage
    held: Usage
    after: Usage


def look_and_leave(path: Path, count: int) -> Visit:
    """Look at sessions and leave them. Check that nothing was written and that the list has its order."""

    async def run() -> Visit:
        session_ids = await fill(path, count + WARM_UP)
        log = Log(SqliteStore(path))
        sessions = Sessions(log, [make_app()], 1, quiet_s=QUIET_S)
        await sessions.start()
        for session_id in session_ids[count:]:
            await look(sessions, session_id)
        order = await list_order(sessions)
        await pass_quiet_time(sessions)

        before = measure_usage(sessions)
        for session_id in session_ids[:count]:
            await look(sessions, session_id)
        held = measure_usage(sessions)
        await pass_quiet_time(sessions)
        after = measure_usage(sessions)

        assert await list_order(sessions) == order
        await sessions.close()
        await log.close()
        return Visit(before, held, after)

    return run_traced(run)


def run_traced(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run something on a clock that it moves, while the memory of Python is counted."""
    tracemalloc.start()
    try:
        return run_on_clock(work)
    finally:
        tracemalloc.stop()


def check_released(before: Usage, held: Usage, after: Usage) -> None:
    """Check that a process has given back what it used for sessions, and nine tenths of their memory.

    A tenth may stay: tables that have grown, and caches of a fixed size.
    """
    assert (after.runners, after.watches, after.tails) == (0, 0, 0)
    assert after.tasks == before.tasks
    assert after.memory_bytes - before.memory_bytes <= 0.1 * (held.memory_bytes - before.memory_bytes)


def check_visit(visit: Visit, count: int) -> None:
    """Check a visit, and that the check would see watches that are not released."""
    assert visit.held.watches == count
    check_released(*visit)
    with pytest.raises(AssertionError):
        check_released(visit.before, visit.held, visit.held)
    with pytest.raises(AssertionError):
        check_released(visit.before, visit.held, visit.after._replace(memory_bytes=visit.held.memory_bytes))


def test_sessions_that_were_looked_at_and_left_cost_nothing(memory_path: Path) -> None:
    check_visit(look_and_leave(memory_path / "log.db", SESSIONS), SESSIONS)


def work_and_leave(path: Path, count: int) -> tuple[Usage, Usage]:
    """Run a turn in each session and leave it: every other one waits for an approval.

    Check that the list says which ones wait, and that the next message runs in each.
    """

    async def run() -> tuple[Usage, Usage]:
        session_ids = await fill(path, count)
        log = Log(SqliteStore(path))
        desk = Desk(Sessions(log, [make_app()], 1, quiet_s=QUIET_S))
        sessions = desk.sessions
        await sessions.start()
        before = measure_usage(sessions)
        for number, session_id in enumerate(session_ids):
            seat = await sessions.get_membership(ADA, session_id)
            trace = await desk.say(seat, "Pay" if number % 2 else "Hello")
            await desk.until(seat, "approval.request" if number % 2 else "agent.end", trace_id=trace)
        await until(lambda: all(runner_is_quiet(sessions, session_id) for session_id in session_ids))
        await pass_quiet_time(sessions)
        after = measure_usage(sessions)

        states = {}
        for number, session_id in enumerate(session_ids):
            seat = await sessions.get_membership(ADA, session_id)
            states[number] = (await sessions.summarize(seat)).state
        assert states == {number: "waiting" if number % 2 else "idle" for number in range(count)}

        for session_id in session_ids:
            seat = await sessions.get_membership(ADA, session_id)
            trace = await desk.say(seat, "And now?")
            end = await desk.until(seat, "agent.end", trace_id=trace)
            assert end["stop_reason"] == "end_turn"
        await sessions.close()
        await log.close()
        return before, after

    return run_traced(run)


def runner_is_quiet(sessions: Sessions, session_id: str) -> bool:
    runner = sessions.runners.find(session_id)
    return runner is None or runner.is_quiet


def test_sessions_that_were_worked_in_are_released_and_the_next_message_runs(memory_path: Path) -> None:
    before, after = work_and_leave(memory_path / "log.db", WORKED_IN)
    assert (after.runners, after.watches, after.tails, after.tasks) == (0, 0, 0, before.tasks)
