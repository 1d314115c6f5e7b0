"""Closing and deleting sessions: what the last event says, and what happens meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Container

import pytest

from tests.unit.app.desk import ADA, CASES, Desk, NoteFact, desk, make_app, play
from turnlog.app import Membership, Sessions, session_ends
from turnlog.app.session_ends import delete_session, stop_and_close
from turnlog.errors import RuleError, Unavailable
from turnlog.events import SessionClose
from turnlog.log import Page
from turnlog.state.rules import Rule

Interrupt = Callable[[], Awaitable[object]]


async def read_closes(at: Desk, membership: Membership) -> list[tuple[str, str | None]]:
    events = [event.payload async for event in at.log.events(membership.session_id)]
    return [(payload.by, payload.reason) for payload in events if isinstance(payload, SessionClose)]


def interrupt_closing(monkeypatch: pytest.MonkeyPatch, interrupt: Interrupt, looks: Container[int]) -> None:
    """Let something happen after some looks at the open turns that found none, by their number from 1."""
    has_open_work = session_ends.has_open_work
    number = 0

    async def interrupted(sessions: Sessions, membership: Membership) -> bool:
        nonlocal number
        is_open = await has_open_work(sessions, membership)
        number += not is_open
        if not is_open and number in looks:
            await interrupt()
        return is_open

    monkeypatch.setattr(session_ends, "has_open_work", interrupted)


def test_message_that_arrives_while_a_session_is_closed_gets_the_end_of_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with desk() as at:
            seat = await at.sessions.create(ADA)
            # The second look is the last one before the close.
            interrupt_closing(monkeypatch, lambda: at.say(seat, "confirm x"), looks={2})
            await stop_and_close(at.sessions, seat, "Booked.")
            types = [event.type async for event in at.log.events(seat.session_id)]
            assert types.count("ui.message") == 1
            assert types.count("agent.start") == types.count("agent.end") == 1
            assert types[-1] == "session.close"
            assert await read_closes(at, seat) == [("ada", "Booked.")]

    play(scenario)


def test_session_that_gets_events_all_the_time_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with desk() as at:
            seat = await at.sessions.create(ADA)
            interrupt_closing(monkeypatch, lambda: at.sessions.stop(seat), looks=range(1000))
            with pytest.raises(Unavailable, match="try again"):
                await stop_and_close(at.sessions, seat)
            assert not (await at.log.info(seat.session_id)).closed
            assert await read_closes(at, seat) == []

    play(scenario)


def test_closes_at_once_leave_one_event() -> None:
    async def scenario() -> None:
        async with desk() as at:
            seat = await at.sessions.create(ADA)
            await asyncio.gather(*[stop_and_close(at.sessions, seat, f"{number}") for number in range(5)])
            assert len(await read_closes(at, seat)) == 1

    play(scenario)


def test_followers_of_a_deleted_session_get_its_close_before_they_end() -> None:
    async def scenario() -> None:
        async with desk() as at:
            seat = await at.sessions.create(ADA)
            pages = at.log.follow(seat.session_id)
            await anext(pages)
            following = asyncio.create_task(read_types(pages))
            await delete_session(at.sessions, seat)
            assert await following == ["session.close"]
            record = await at.log.info(seat.session_id)
            assert (record.is_erased, record.members, record.title) == (True, {}, "")
            assert not await at.log.read(seat.session_id)

    play(scenario)


def test_rule_that_closes_the_session_fails_and_the_session_stays_open() -> None:
    def close_after_note(state: list[str]) -> list[SessionClose]:
        return [SessionClose(by="rule")]

    app = make_app(
        vocabulary=CASES,
        reducers={NoteFact: lambda state, note, _: [*state, note.text]},
        rules=[Rule("close", "apply", bool, close_after_note)],
        initial_state=list,
    )

    async def scenario() -> None:
        async with desk(app) as at:
            seat = await at.sessions.create(ADA)
            with pytest.raises(RuleError, match="close"):
                await at.post(seat, "case.note_fact", {"text": "x"})
            assert not (await at.log.info(seat.session_id)).closed
            turn = await at.say(seat, "hello")
            end = await at.until(seat, "agent.end", trace_id=turn)
            assert end["stop_reason"] == "end_turn"

    play(scenario)


async def read_types(pages: AsyncIterator[Page]) -> list[str]:
    return [row.type async for page in pages for row in page]
