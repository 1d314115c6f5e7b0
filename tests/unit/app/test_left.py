"""Sessions that nobody follows any more: the next touch opens them again."""

from pathlib import Path

import pytest

from tests.unit.app.desk import ADA, Desk, desk, make_app
from tests.unit.log.damaging import edit
from tests.unit.log.delegates import scenario
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
        driver = await at.sessions.drivers.get(seat.record)
        edit(tmp_path / "log.db", LOST)
        with pytest.raises(SessionDamaged):
            await log.read(seat.session_id, 3)
        with pytest.raises(StoreError):  # it has ended with the history it followed
            await driver.wait_for_seq(1000)
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
        await at.sessions.recover()
        assert [damage.first for damage in await log.damages()] == [4]
        await answered(at, seat, "hi")
    await log.close()


@scenario
async def test_a_session_that_was_closed_is_opened_for_looking_once() -> None:
    async with desk() as at:
        seat = await at.sessions.create(ADA)
        driver = await at.sessions.drivers.get(seat.record)
        await at.log.close_session(seat.session_id)
        with pytest.raises(StoreError):
            await driver.wait_for_seq(1000)
        last = (await at.log.info(seat.session_id)).last
        again = [await at.sessions.drivers.get(seat.record) for _ in range(2)]
        assert (again[0] is again[1], again[0].tree.last_seq) == (True, last)


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
