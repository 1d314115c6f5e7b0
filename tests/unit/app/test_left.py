"""Runners that have ended: the next message starts another one."""

from pathlib import Path

import pytest

from tests.unit.app.desk import ADA, Desk, desk, make_app
from tests.unit.log.damaging import edit
from tests.unit.log.delegates import scenario, until
from turnlog.app import Membership
from turnlog.errors import SessionDamaged, StoreError
from turnlog.log import Log, SqliteStore

LOST = "update event set frame = x'00' where seq = 4"  # the start of a block


async def answered(at: Desk, seat: Membership, text: str) -> None:
    turn = await at.say(seat, text)
    assert await at.until(seat, "agent.end", trace_id=turn)


@scenario
async def test_a_session_whose_history_changed_goes_on(tmp_path: Path) -> None:
    log = Log(SqliteStore(tmp_path / "log.db"))
    async with desk(log=log) as at:
        seat = await at.sessions.create(ADA)
        await answered(at, seat, "hi")
        runner = await at.wait_for_runner(seat)
        edit(tmp_path / "log.db", LOST)
        with pytest.raises(SessionDamaged):
            await log.read(seat.session_id, 3)
        with pytest.raises(StoreError):  # it has ended with the history it followed
            await runner.wait_for_seq(1000)
        await answered(at, seat, "again")
        assert (await at.sessions.state(seat))[0] == (await log.info(seat.session_id)).last
    await log.close()


@scenario
async def test_a_session_that_is_damaged_is_recovered_all_the_same(tmp_path: Path) -> None:
    log = Log(SqliteStore(tmp_path / "log.db"))
    async with desk(log=log) as at:
        seat = await at.sessions.create(ADA)
        await at.say(seat, "confirm it")
        await at.until(seat, "tool.await")
    edit(tmp_path / "log.db", LOST)
    async with desk(log=log) as at:
        assert len((await at.sessions.tree(seat)).open) == 1
        assert [damage.first for damage in await log.damages()] == [4]
        await answered(at, seat, "hi")
    await log.close()


@scenario
async def test_a_session_that_was_closed_is_released_and_can_be_read() -> None:
    async with desk() as at:
        seat = await at.sessions.create(ADA)
        runner = await at.wait_for_runner(seat)
        await at.log.close_session(seat.session_id)
        with pytest.raises(StoreError):
            await runner.wait_for_seq(1000)
        await until(lambda: not len(at.sessions.runners))
        last = (await at.log.info(seat.session_id)).last
        assert [(await at.sessions.state(seat))[0] for _ in range(2)] == [last, last]
        assert (len(at.sessions.runners), len(at.sessions.watches)) == (0, 1)


@scenario
async def test_what_fails_to_open_is_tried_again() -> None:
    starts: list[Exception | None] = [None, ValueError("not today")]

    def start() -> dict[str, int]:
        if fault := starts.pop() if starts else None:
            raise fault
        return {}

    async with desk(make_app(initial_state=start)) as at:
        with pytest.raises(ValueError, match="not today"):
            await at.sessions.create(ADA)
        [head] = await at.log.sessions()
        await answered(at, await at.sessions.get_membership(ADA, head.session_id), "hi")
