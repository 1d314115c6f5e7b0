"""A full disk, a real one: appends fail clearly, nothing acknowledged is lost, reading and following go on,
and when there is room again appending works again, in the same process and by itself (protocol section 6)."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.faults.sample import turn
from tests.support.disks import fill, mounted_disk
from tests.support.limits import HANG_S
from turnlog.errors import StoreError
from turnlog.log import Log, Row, SqliteStore

DISK_BYTES = 3 << 20
ROOM_BYTES = 400 << 10  # what the ballast leaves: some appends fit, not many
SESSION = "sess_1"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    with mounted_disk(tmp_path / "disk", DISK_BYTES) as folder:
        yield folder


@asynccontextmanager
async def opened(disk: Path) -> AsyncIterator[Log]:
    log = Log(SqliteStore(disk / "log.db"))
    try:
        async with asyncio.timeout(HANG_S):
            yield log
    finally:
        await log.close()


async def everything(log: Log, session: str = SESSION) -> list[Row]:
    rows: list[Row] = []
    while page := await log.read(session, rows[-1].seq if rows else -1):
        rows += page
    return rows


async def append_until_full(log: Log, name: str) -> tuple[int, str]:
    """Append turns until one does not fit; the last seq that was acknowledged, and the turn that failed."""
    last = (await log.info(SESSION)).last
    for number in range(1000):
        try:
            last = (await log.append(SESSION, turn(f"{name}_{number}"))).seqs[-1]
        except StoreError:
            return last, f"{name}_{number}"
    raise AssertionError("the disk never got full")


async def healthy(log: Log, last: int, epoch: str) -> None:
    """The log ends at a seq, is dense, and nothing in it is damaged."""
    head = await log.info(SESSION)
    assert (head.last, head.epoch) == (last, epoch)
    assert [row.seq for row in await everything(log)] == list(range(last + 1))
    assert await log.verify() == []
    assert await log.damages() == []


def test_appends_fail_while_the_disk_is_full_and_work_again_after(disk: Path) -> None:
    async def run() -> None:
        async with opened(disk) as log:
            await log.create("faults", SESSION)
            epoch = (await log.info(SESSION)).epoch
            ballast = fill(disk, ROOM_BYTES)
            last, failed = await append_until_full(log, "first")
            assert last > 0, "nothing fitted: the test proves nothing"
            for _ in range(3):
                with pytest.raises(StoreError, match="full"):
                    await log.append(SESSION, turn(failed))
            await healthy(log, last, epoch)

            ballast.unlink()
            size = len(turn(failed))
            assert (await log.append(SESSION, turn(failed))).seqs == list(range(last + 1, last + 1 + size))
            await healthy(log, last + size, epoch)
        async with opened(disk) as log:
            await healthy(log, last + size, epoch)

    asyncio.run(run())


def test_a_full_disk_comes_and_goes_under_appends_in_flight(disk: Path) -> None:
    async def in_flight(log: Log, name: str, acked: dict[str, list[int]]) -> None:
        for number in range(100):
            name_now = f"{name}_{number}"
            try:
                acked[name_now] = (await log.append(SESSION, turn(name_now))).seqs
            except StoreError:
                return

    async def run() -> None:
        acked: dict[str, list[int]] = {}
        async with opened(disk) as log:
            await log.create("faults", SESSION)
            epoch = (await log.info(SESSION)).epoch
            for time in range(3):
                ballast = fill(disk, ROOM_BYTES)
                async with asyncio.TaskGroup() as tasks:
                    for writer in range(8):
                        tasks.create_task(in_flight(log, f"{time}_{writer}", acked))
                ballast.unlink()
                acked[f"after_{time}"] = (await log.append(SESSION, turn(f"after_{time}"))).seqs
            seqs = sorted(seq for seqs in acked.values() for seq in seqs)
            assert seqs == list(range(len(seqs))), "an acknowledged seq is there once, and there is no gap"
            await healthy(log, seqs[-1], epoch)
            frames = {row.seq: row.frame for row in await everything(log)}
            for name, places in acked.items():
                for event, seq in zip(turn(name), places, strict=True):
                    assert event.id.encode() in frames[seq]

    asyncio.run(run())


def test_followers_go_on_while_the_disk_is_full(disk: Path) -> None:
    async def run() -> None:
        async with opened(disk) as log:
            await log.create("faults", SESSION)
            early: list[int] = []

            async def follow(seqs: list[int]) -> None:
                async for rows in log.follow(SESSION):
                    seqs += [row.seq for row in rows]

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(follow(early))
                ballast = fill(disk, ROOM_BYTES)
                last, failed = await append_until_full(log, "first")
                late: list[int] = []
                tasks.create_task(follow(late))
                with pytest.raises(StoreError):
                    await log.append(SESSION, turn(failed))
                ballast.unlink()
                seqs = (await log.append(SESSION, turn(failed))).seqs
                await log.close_session(SESSION)
            assert early == late == list(range(seqs[-1] + 1))
            assert seqs[0] == last + 1

    asyncio.run(run())


def test_a_session_that_cannot_be_made_can_be_made_later(disk: Path) -> None:
    async def run() -> None:
        async with opened(disk) as log:
            await log.create("faults", SESSION)
            ballast = fill(disk)
            with pytest.raises(StoreError, match="full"):
                await log.create("faults", "sess_2")
            assert [head.session_id for head in await log.sessions()] == [SESSION]
            ballast.unlink()
            await log.create("faults", "sess_2")
            assert (await log.append("sess_2", turn("second"))).seqs == list(range(len(turn("second"))))
            assert await log.verify() == []

    asyncio.run(run())


def test_a_log_that_cannot_be_opened_for_want_of_room_says_so_and_is_whole_later(disk: Path) -> None:
    async def run() -> None:
        async with opened(disk) as log:
            await log.create("faults", SESSION)
            epoch = (await log.info(SESSION)).epoch
            last = (await log.append(SESSION, turn("first"))).seqs[-1]
        ballast = fill(disk)
        with pytest.raises(StoreError):
            SqliteStore(disk / "log.db")
        with pytest.raises(StoreError):
            SqliteStore(disk / "new.db")
        ballast.unlink()
        async with opened(disk) as log:
            await healthy(log, last, epoch)

    asyncio.run(run())
