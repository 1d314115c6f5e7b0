"""Damage to events in a real file: what is told, what stays readable, and that nothing wrong is served."""

import asyncio
import logging
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.unit.log.damaging import OTHER, ROW, SESSION, edit, fill, opened, readable, seqs
from tests.unit.log.delegates import all_pages, scenario, until
from turnlog.errors import SessionDamaged, StoreError
from turnlog.log import Damage, Log, Page, Row, SqliteStore
from turnlog.log.checksums import make_row
from turnlog.testing.factories import (
    block_delta_event,
    block_end_event,
    block_start_event,
    durable_event,
    durable_events,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


# events

LAST = "where session = 1 and seq = 5"
COPY = "update event set (meta, frame, crc) = (select meta, frame, crc from event"
BROKEN_EVENTS = {
    "frame": (f"update event set frame = cast(frame || ' ' as blob) {ROW}", 2, 2),
    "one letter": (f"update event set frame = cast(replace(frame, '_2', '_3') as blob) {ROW}", 2, 2),
    "meta": (f"update event set meta = cast(replace(meta, 'a', 'b') as blob) {ROW}", 2, 2),
    "crc": (f"update event set crc = crc + 1 {ROW}", 2, 2),
    "another row": (f"{COPY} where session = 1 and seq = 3) {ROW}", 2, 2),
    "another session": (f"{COPY} where session = 2 and seq = 2) {ROW}", 2, 2),
    "no row": (f"delete from event {ROW}", 2, 2),
    "no rows": ("delete from event where session = 1 and seq in (2, 3)", 2, 3),
    "no first": ("delete from event where session = 1 and seq = 0", 0, 0),
    "last frame": (f"update event set frame = cast(frame || ' ' as blob) {LAST}", 5, 5),
    "no last": (f"delete from event {LAST}", 5, 5),
    "letters for a checksum": (f"update event set crc = 'x' {ROW}", 2, 2),
    "garbage beside": (f"update event set meta = x'ff' {ROW}", 2, 2),
    "garbage beside the last": (f"update event set meta = x'ff' {LAST}", 5, 5),
    "nothing beside": (f"update event set meta = x'' {ROW}", 2, 2),
    "text": (f"update event set frame = cast(frame as text) {ROW}", 2, 2),
    "text beside": (f"update event set meta = cast(meta as text) {ROW}", 2, 2),
    "text beside the last": (f"update event set meta = cast(meta as text) {LAST}", 5, 5),
}


@pytest.mark.parametrize("name", BROKEN_EVENTS)
@pytest.mark.parametrize("when", ["closed", "open"])
def test_a_damaged_event_is_told_and_everything_else_is_served(path: Path, name: str, when: str) -> None:
    statement, first, last = BROKEN_EVENTS[name]
    good = [seq for seq in range(6) if not first <= seq <= last]

    @scenario
    async def run() -> None:
        async with opened(path) as log:
            written = await fill(log)
            before = {head.session_id: head.epoch for head in await log.sessions()}
            if when == "open":
                edit(path, statement)
                await check(log, written, before)
        if when == "closed":
            edit(path, statement)
            async with opened(path) as log:
                await check(log, written, before)
        async with opened(path) as log:
            rows, told = await readable(log)
            assert ([row.seq for row in rows], told) == ([*good, 6], [])
            assert len(await log.damages()) == 1

    async def check(log: Log, written: dict[int, Row], before: dict[str, str]) -> None:
        followers = [asyncio.create_task(all_pages(log, session, 5)) for session in (SESSION, OTHER)]
        await until(lambda: SESSION in log.tails and OTHER in log.tails)
        verified = {(damage.first, damage.last) for damage in await log.verify()}
        known = {(damage.first, damage.last) for damage in await log.damages()}
        assert (first, last) in verified | known
        rows, told = await readable(log)
        assert {(damage.first, damage.last) for damage in told} | known == {(first, last)}
        assert [row.seq for row in rows] == good
        assert all(written[row.seq] == row for row in rows)
        after = {head.session_id: head.epoch for head in await log.sessions()}
        assert (after[SESSION] != before[SESSION], after[OTHER]) == (True, before[OTHER])
        if told:
            assert await followers[0] == []
        assert not followers[1].done()
        assert (await log.append(SESSION, durable_events("new"))).seqs == [6]
        assert await seqs(log, last) == [*range(last + 1, 6), 6]
        assert len(await log.damages()) == 1
        assert await log.verify() == []
        for follower in followers:
            follower.cancel()
        await asyncio.gather(*followers, return_exceptions=True)

    run()


@pytest.mark.parametrize("name", BROKEN_EVENTS)
@scenario
async def test_what_is_damaged_is_never_sent(path: Path, name: str) -> None:
    statement, first, _ = BROKEN_EVENTS[name]
    async with opened(path) as log:
        written, epoch = await fill(log), (await log.info(SESSION)).epoch
        edit(path, statement)
        sent, beside = b"", "beside" in name or name == "meta"  # frames are whole without what stands there
        with suppress(SessionDamaged) if beside else pytest.raises(SessionDamaged):
            async for data in log.follow_frames(SESSION, idle_s=0.01):
                sent += data
                if not data:
                    break
        good = [written[seq] for seq in range(6 if beside else first)]
        assert sent == (Page(good, epoch).frames().data if good else b"")


@scenario
async def test_a_follower_that_meets_the_damage_is_told_and_the_next_one_is_not(path: Path) -> None:
    async with opened(path) as log:
        await fill(log)
        edit(path, f"delete from event {ROW}")
        with pytest.raises(SessionDamaged) as told:
            await all_pages(log, SESSION)
        assert (told.value.session_id, told.value.first, told.value.last) == (SESSION, 2, 2)
        await log.close_session(SESSION)
        assert [row.seq for row in await all_pages(log, SESSION)] == [0, 1, 3, 4, 5]


@scenario
async def test_a_damage_is_recorded_once_however_many_meet_it(path: Path) -> None:
    async with opened(path) as log:
        await fill(log)
        edit(path, f"delete from event {ROW}")
        met = await asyncio.gather(*[log.read(SESSION, 1) for _ in range(5)], return_exceptions=True)
        assert any(isinstance(outcome, SessionDamaged) for outcome in met)
        assert len(await log.damages()) == 1


@scenario
async def test_a_second_loss_is_told_like_the_first(path: Path) -> None:
    async with opened(path) as log:
        await log.create("t", SESSION)
        await log.append(
            SESSION,
            [
                *durable_events(0, 1, 2),
                block_start_event("x"),
                block_delta_event("x"),
                block_end_event("x"),
                durable_event("3"),
            ],
        )
        assert await log.prune(SESSION, 1 << 45) == 1
        edit(path, "delete from event where seq = 0")
        assert [(damage.first, damage.last) for damage in (await readable(log))[1]] == [(0, 0)]
        edit(path, "delete from event where seq = 2")
        assert [(damage.first, damage.last) for damage in (await readable(log))[1]] == [(2, 2)]


@scenario
async def test_a_read_that_was_interrupted_is_no_damage(path: Path) -> None:
    store = SqliteStore(path)
    log = Log(store)
    await log.create("t", SESSION)
    await log.append(SESSION, durable_events(*range(2000)))
    await log.read(SESSION)
    interrupt(store, 1000)
    with suppress(StoreError):
        await seqs(log, 1000)
    interrupt(store, 0)
    assert await log.damages() == []
    assert await seqs(log) == list(range(2000))
    await log.close()


def interrupt(store: SqliteStore, steps: int) -> None:
    """Let no read go further than so many steps; 0 lets them all."""
    for connection in store._connections[1:]:
        connection.set_progress_handler((lambda: 1) if steps else None, steps)


# what was lost with the end of the write-ahead log


async def rolled_back(path: Path, change: str) -> None:
    """A log in which a change was acknowledged and then forgotten by the database."""
    async with opened(path) as log:
        await fill(log)
    image = path.read_bytes()  # noqa: ASYNC240
    async with opened(path) as log:
        match change:
            case "events":
                await log.append(SESSION, durable_events("x", "y"))
            case "session":
                await log.create("t", "sess_3")
                await log.append("sess_3", durable_events("x", "y"))
            case "closing":
                await log.close_session(SESSION)
    path.write_bytes(image)  # noqa: ASYNC240


@scenario
async def test_a_lost_end_is_noticed_by_the_mark(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await rolled_back(path, "events")
    lost = Damage(SESSION, 6, 7, "the end of the session is missing")
    with closing(SqliteStore(path, writable=False)) as reader:
        assert list(reader.verify()) == [lost]
        epoch = reader.sessions()[0].epoch
    with caplog.at_level(logging.ERROR, "turnlog.log"):
        async with opened(path) as log:
            assert await log.damages() == [lost]
            assert (await log.info(SESSION)).epoch != epoch
            assert (await log.append(SESSION, durable_events("x"))).seqs == [8]
            rows, told = await readable(log)
            assert ([row.seq for row in rows], told) == ([0, 1, 2, 3, 4, 5, 8], [])
    assert "sess_1 is damaged at seq 6 to 7: the end of the session is missing" in caplog.text


@scenario
async def test_a_lost_session_is_noticed(path: Path) -> None:
    await rolled_back(path, "session")
    async with opened(path) as log:
        assert await log.damages() != []


@scenario
async def test_a_lost_change_of_a_session_is_noticed(path: Path) -> None:
    await rolled_back(path, "closing")
    async with opened(path) as log:
        assert await log.damages() != []


# checking everything


@scenario
async def test_a_forged_event_with_a_fitting_checksum_breaks_the_chain(path: Path) -> None:
    async with opened(path) as log:
        row = (await fill(log))[2]
        forged = make_row(SESSION, row.seq, row.meta, row.frame.replace(b'"2"', b'"9"'))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(
                f"update event set frame = ?, crc = ? {ROW}",
                (forged.frame, forged.checksum),
            )
            connection.commit()
        assert await log.verify() == [Damage(SESSION, 2, 2, "the hash chain is broken")]


@scenario
async def test_pages_that_cannot_be_read_are_told(path: Path) -> None:
    async with opened(path) as log:
        await log.create("t", SESSION)
        for number in range(20):
            await log.append(SESSION, [durable_event(f"{number}-{part}", "z" * 1000) for part in range(20)])
    spoil(path)
    async with opened(path) as log:
        assert any(damage.problem.startswith("SQLite: ") for damage in await log.verify())
        with pytest.raises(StoreError):
            await all_pages(log, SESSION)


@scenario
async def test_checking_everything_beside_a_writer_invents_no_damage(path: Path) -> None:
    async with opened(path) as log:
        await fill(log)
        edit(path, f"delete from event {ROW}")
        with closing(SqliteStore(path, writable=False)) as reader:
            check = iter(reader.verify())
            assert next(check).session_id == SESSION
            await log.append(OTHER, durable_events("new"))
            assert [damage for damage in check if damage.session_id == OTHER] == []


@scenario
async def test_a_blob_that_is_not_what_was_written_is_not_served(path: Path) -> None:
    async with opened(path) as log:
        digest = await log.put_blob(SESSION, b"data", "text/plain")
        edit(path, "update blob set data = x'00'")
        with pytest.raises(StoreError, match="is not what was written"):
            await log.get_blob(digest)


def spoil(path: Path) -> None:
    """Write over some pages in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 20_000] = b"\x55" * 20_000
    path.write_bytes(data)


@scenario
async def test_text_that_cannot_be_decoded_is_damage(path: Path) -> None:
    async with opened(path) as log:
        await fill(log)
        edit(path, f"update event set crc = cast(x'ff' as text) {ROW}")
        rows, told = await readable(log)
        assert [row.seq for row in rows] == [0, 1, 3, 4, 5]
        assert [(damage.first, damage.last) for damage in told] == [(2, 2)]


@pytest.mark.parametrize("value", ["cast(replace(frame, '2', '9') as blob)", "x'00'", "cast(frame as text)"])
def test_a_retry_of_a_damaged_event_is_not_the_fault_of_its_sender(path: Path, value: str) -> None:
    @scenario
    async def run() -> None:
        async with opened(path) as log:
            await fill(log)
            edit(path, f"update event set frame = {value} {ROW}")
            with suppress(StoreError):
                assert (await log.append(SESSION, durable_events(2))).seqs in ([2], [6])
            await readable(log)
            assert (await log.append(SESSION, durable_events(2))).seqs in ([2], [6])

    run()


@scenario
async def test_a_retry_that_meets_the_damage_gets_through_by_itself(path: Path) -> None:
    async with opened(path) as log:
        await fill(log)
        edit(path, f"update event set frame = x'00' {ROW}")
        with suppress(StoreError):
            await log.append(SESSION, durable_events(2))
        assert (await log.append(SESSION, durable_events(2))).seqs == [6]


@scenario
async def test_a_row_that_is_elsewhere_explains_no_gap(path: Path) -> None:
    """A seq that was changed in place stands where the rank before a gap is looked for."""
    async with opened(path) as log:
        await log.create("t", SESSION)
        await log.append(
            SESSION,
            [
                block_start_event("x"),
                block_delta_event("x"),
                block_end_event("x"),
                *durable_events(*range(3)),
            ],
        )
        await log.prune(SESSION, 2_000_000_000_000)
        edit(path, "update event set seq = 1 where session = 1 and seq = 2")  # where a live event was
        _, told = await readable(log)
        assert any(damage.first <= 2 <= damage.last for damage in told)
