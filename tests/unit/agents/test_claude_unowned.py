"""Commands and messages for a Claude Code process that arrive while no server owns the session."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.claude_sessions import Room, body, events_of, is_there, lawful, make_app
from tests.unit.app.desk import ADA, desk, play
from turnlog import App
from turnlog.events import (
    Envelope,
    Event,
    EventDraft,
    Origin,
    Payload,
    ProcessStart,
    Scope,
    UiCommand,
    UiMessage,
)
from turnlog.events.ui import EndSession, StartSession
from turnlog.ids import new_id
from turnlog.log import Log, MemoryStore

LOST_PID = 4_000_000_000  # of no process
START = UiCommand(command=StartSession())
END = UiCommand(command=EndSession())


def message(text: str) -> UiMessage:
    return UiMessage(text=text)


def build(app: App, payload: Payload) -> Event:
    scope = Scope(trace_id=new_id("tr_")) if isinstance(payload, UiMessage) else Scope()
    origin: Origin = "system" if isinstance(payload, ProcessStart) else "ui"
    return EventDraft(payload, scope, origin).build(app.catalog, new_id("evt_"))


async def run_next_owner(
    app: App, log: Log, session_id: str, payloads: list[Payload], done: Callable[[Room], Awaitable[bool]]
) -> list[Envelope]:
    """Append input while no server runs, let one start, and return the log when it is done and closed."""
    await log.append(session_id, [build(app, payload) for payload in payloads], wants_work=True)
    async with desk(app, log=log) as served:
        room = Room(served, await served.sessions.get_membership(ADA, session_id))
        runner = await served.wait_for_runner(room.seat)
        while not await done(room):
            await runner.wait_for_seq(runner.tree.last_seq + 1)
    return await events_of(log, session_id)


def after_release(
    app: App, payloads: list[Payload], done: Callable[[Room], Awaitable[bool]]
) -> tuple[list[Envelope], list[int]]:
    """Let a server create the session and stop. Return the log of the next one, and the processes in it."""
    found: list[Envelope] = []
    pids: list[int] = []

    async def run() -> None:
        log = Log(MemoryStore())
        async with desk(app, log=log) as served:
            seat = await served.sessions.create(ADA)
        found.extend(await run_next_owner(app, log, seat.session_id, payloads, done))
        pids.extend(await Room(served, seat).pids())
        await log.close()

    play(run)
    lawful(app, found)
    return found, pids


def ended(count: int) -> Callable[[Room], Awaitable[bool]]:
    async def has_ended(room: Room) -> bool:
        return len(await room.ends()) >= count

    return has_ended


async def has_started(room: Room) -> bool:
    return bool(await room.pids())


async def is_quiet(room: Room) -> bool:
    return (await room.runner()).is_quiet


def reasons(events: list[Envelope]) -> list[Any]:
    return [body(event)["stop_reason"] for event in events if event.type == "agent.end"]


def test_start_of_the_session_starts_a_process_of_the_next_owner(tmp_path: Path) -> None:
    events, pids = after_release(make_app(tmp_path), [START], has_started)
    assert (len(pids), reasons(events)) == (1, [])
    assert not is_there(pids[0])


def test_start_and_end_of_the_session_start_nothing(tmp_path: Path) -> None:
    events, pids = after_release(make_app(tmp_path), [START, END], is_quiet)
    assert (pids, reasons(events)) == ([], [])


def test_end_of_the_session_cancels_the_messages_before_it(tmp_path: Path) -> None:
    payloads = [message("one"), message("two"), END]
    events, pids = after_release(make_app(tmp_path), payloads, ended(2))
    assert (pids, reasons(events)) == ([], ["cancelled", "cancelled"])


def test_end_of_the_session_does_not_cancel_the_messages_after_it(tmp_path: Path) -> None:
    payloads = [message("one"), END, message("two")]
    events, pids = after_release(make_app(tmp_path), payloads, ended(2))
    assert (len(pids), reasons(events)) == (1, ["cancelled", "end_turn"])


@pytest.mark.parametrize("payload", [START, message("one")], ids=["start", "message"])
def test_input_after_a_server_was_killed_with_its_process_starts_another(
    tmp_path: Path, payload: Payload
) -> None:
    lost = ProcessStart(process="model", pid=LOST_PID, model="m1")

    async def is_done(room: Room) -> bool:
        has_replaced = len(await room.pids()) == 2 and not (await room.runner()).tree.queued_turns
        return has_replaced or await is_quiet(room)

    events, pids = after_release(make_app(tmp_path), [lost, payload], is_done)
    assert pids[0] == LOST_PID
    assert len(pids) == 2
    process_ends = [body(event) for event in events if event.type == "process.end"]
    assert [end["pid"] for end in process_ends if end["process"] == "model"] == pids
