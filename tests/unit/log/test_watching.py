"""A reading process beside the one that writes: how it notices news, and how a log closes."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.limits import HANG_S
from tests.unit.log.delegates import Counting, Gated, scenario, until
from turnlog.errors import StoreError
from turnlog.log import Log, SqliteStore
from turnlog.testing.factories import durable_event
from turnlog.testing.harness import open_follower

SESSION = "sess_1"


class BrokenCounter(Counting):
    """A store whose counter fails a number of times."""

    faults = 0

    def _call(self, name: str, *args: Any) -> Any:
        if name == "commit_count" and self.faults:
            self.faults -= 1
            raise StoreError("the counter cannot be read")
        return super()._call(name, *args)


class StuckCounter(Counting):
    """A store whose counter never moves."""

    def _call(self, name: str, *args: Any) -> Any:
        return 0 if name == "commit_count" else super()._call(name, *args)


@asynccontextmanager
async def both(path: Path, beside: type[Counting]) -> AsyncIterator[tuple[Log, Log, Counting]]:
    """The log of the process that writes, that of one that reads, and the store of the latter."""
    writing = Log(SqliteStore(path))
    await writing.create("t", SESSION)
    store = beside(SqliteStore(path, writable=False))
    reading = Log(store.store, writable=False)
    try:
        yield writing, reading, store
    finally:
        await reading.close()
        await writing.close()


@scenario
async def test_follower_after_an_error_of_the_counter_gets_what_is_appended(tmp_path: Path) -> None:
    async with both(tmp_path / "log.db", BrokenCounter) as (writing, reading, store):
        assert isinstance(store, BrokenCounter)
        async with open_follower(reading, SESSION) as pages:
            page = asyncio.ensure_future(anext(pages))
            await until(lambda: SESSION in reading.tails)
            store.faults = 1
            await until(lambda: store.faults == 0)
            await writing.append(SESSION, [durable_event("a")])
            assert [row.seq for row in await page] == [0]


@scenario
async def test_follower_of_a_counter_that_fails_for_good_gets_what_is_appended(tmp_path: Path) -> None:
    async with both(tmp_path / "log.db", BrokenCounter) as (writing, reading, store):
        assert isinstance(store, BrokenCounter)
        store.faults = 1 << 30
        async with open_follower(reading, SESSION) as pages:
            page = asyncio.ensure_future(anext(pages))
            await until(lambda: SESSION in reading.tails)
            await writing.append(SESSION, [durable_event("a")])
            assert [row.seq for row in await page] == [0]


@scenario
async def test_follower_of_a_counter_that_never_moves_gets_what_is_appended(tmp_path: Path) -> None:
    async with (
        both(tmp_path / "log.db", StuckCounter) as (writing, reading, _),
        open_follower(reading, SESSION) as pages,
    ):
        page = asyncio.ensure_future(anext(pages))
        await until(lambda: SESSION in reading.tails and reading.tails[SESSION].is_synced)
        await writing.append(SESSION, [durable_event("a")])
        assert [row.seq for row in await page] == [0]


async def read_for_ever(log: Log) -> None:
    while True:
        await log.damages()


@scenario
async def test_closing_while_a_read_waits_lets_the_loop_go_on(tmp_path: Path) -> None:
    store = Gated(SqliteStore(tmp_path / "log.db"))
    log = Log(store.store)
    await log.create("t", SESSION)
    gate = store.gate("info")
    read = asyncio.create_task(log.info(SESSION))
    await gate.reached()
    # the loop itself opens the gate below; the timer ends a close that blocks the loop
    timer = threading.Timer(HANG_S / 2, gate.open)
    timer.start()
    closing = asyncio.create_task(log.close())
    with pytest.raises(StoreError, match="the log is closed"):
        await read_for_ever(log)
    assert not closing.done()
    gate.open()
    await closing
    timer.cancel()
    assert (await read).session_id == SESSION
