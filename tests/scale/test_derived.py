"""What is kept beside the log takes reads and room in proportion to the events."""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.support.work import is_linear
from tests.unit.app.test_derived import APP, NAME, Rows, filled, kept_snapshot
from tests.unit.log.delegates import scenario
from turnlog.app.read_models import SNAPSHOT_EVERY_EVENTS, ReadModelStore
from turnlog.log import Log, MemoryStore

Derive = Callable[[Log], Any]
SNAPSHOTS = 12


def rows_read(events: int, derive: Derive) -> int:
    """How many rows of a log of so many events are read."""

    async def run() -> int:
        store = Rows(MemoryStore(ring_events=1 << 20))
        log = await filled(Log(store.store), events)
        store.rows = 0
        await derive(log)
        await log.close()
        return store.rows

    return asyncio.run(run())


async def all_derived(log: Log) -> None:
    made = ReadModelStore(log)
    assert (await made.load_read_models(APP, NAME)).seq == (await log.info(NAME)).last
    assert await made.documents(NAME)


async def one_after_the_other(log: Log) -> None:
    """As it would be without snapshots: every question from the beginning."""
    for at in range(0, (await log.info(NAME)).last, 50):
        await log.delete_derived()
        await ReadModelStore(log).load_read_models(APP, NAME, at)


def test_four_times_the_events_are_derived_from_four_times_the_rows() -> None:
    assert is_linear(lambda events: rows_read(events, all_derived), 2 * SNAPSHOT_EVERY_EVENTS)


def test_control_reading_from_the_beginning_each_time_is_seen() -> None:
    assert not is_linear(lambda events: rows_read(events, one_after_the_other), 500)


@scenario
async def test_snapshots_together_take_no_more_than_the_events() -> None:
    log = await filled(Log(MemoryStore(ring_events=1 << 20)), SNAPSHOTS * SNAPSHOT_EVERY_EVENTS)
    await ReadModelStore(log).load_read_models(APP, NAME)
    sizes, at = [], SNAPSHOTS * SNAPSHOT_EVERY_EVENTS
    while found := await kept_snapshot(log, "transcript", at):
        sizes.append(len(found[1]))
        at = found[0] - 1
    events = 0
    after = -1
    while page := await log.read(NAME, after):
        events, after = events + sum(len(row.frame) for row in page), page.last
    assert len(sizes) > 4
    assert sum(sizes) <= events + sizes[0]
    assert SNAPSHOTS * sizes[0] > 3 * events  # one each time would have been many times the events
    await log.close()
