"""A reading process beside the one that writes: how it notices news, and how a log closes."""

import asyncio
import queue
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
from turnlog.log.bell import Bell
from turnlog.log.sqlite import commit_poller
from turnlog.log.sqlite.commit_poller import CommitPoller
from turnlog.testing.factories import durable_event
from turnlog.testing.harness import open_follower

SESSION = "sess_1"


class Deaf(Counting):
    """A store whose bell never rings."""

    reconciles_s: float | None = 0.01

    @property
    def reconcile_s(self) -> float | None:
        return self.reconciles_s

    def _call(self, name: str, *args: Any) -> Any:
        return (lambda: None) if name == "listen" else super()._call(name, *args)


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


async def follows(writing: Log, reading: Log) -> None:
    """A follower beside gets what is appended."""
    async with open_follower(reading, SESSION) as pages:
        page = asyncio.ensure_future(anext(pages))
        await until(lambda: SESSION in reading.tails and reading.tails[SESSION].is_synced)
        await writing.append(SESSION, [durable_event("a")])
        assert [row.seq for row in await page] == [0]


@scenario
async def test_follower_in_a_reading_process_gets_what_is_appended_by_the_bell(tmp_path: Path) -> None:
    async with both(tmp_path / "log.db", Counting) as (writing, reading, _):
        await follows(writing, reading)


@scenario
async def test_follower_of_a_bell_that_never_rings_gets_what_is_appended(tmp_path: Path) -> None:
    async with both(tmp_path / "log.db", Deaf) as (writing, reading, _):
        await follows(writing, reading)


@scenario
async def test_control_without_bell_and_reconciliation_a_follower_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Deaf, "reconciles_s", None)
    async with both(tmp_path / "log.db", Deaf) as (writing, reading, _):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await follows(writing, reading)


def test_poller_after_an_error_rings_again_when_the_count_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_poller, "ERROR_PAUSE_S", 0.001)
    monkeypatch.setattr(commit_poller, "POLL_INTERVAL_S", 0.001)
    counts: list[int | None] = [1, None, 1, 2]
    rings: queue.SimpleQueue[int] = queue.SimpleQueue()

    def read_count() -> int:
        count = counts.pop(0) if len(counts) > 1 else counts[0]
        if count is None:
            raise StoreError("the counter cannot be read")
        return count

    bell = Bell()
    bell.listen(lambda moved, _: rings.put(len(moved)))
    poller = CommitPoller(read_count, bell)
    assert [rings.get(timeout=HANG_S) for _ in range(2)] == [0, 0]
    poller.close()
    assert (counts, rings.empty()) == ([2], True)


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
