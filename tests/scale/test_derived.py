"""What is kept beside the log takes time and room like a line: 25,000 events, then 100,000."""

import asyncio
from collections.abc import Callable
from time import process_time
from typing import Any

from tests.unit.app.test_derived import APP, NAME, filled
from tests.unit.log.delegates import scenario
from turnlog.app.derived import EVERY, PANELS, Derived
from turnlog.log import Log, MemoryStore


def took(events: int, derive: Callable[[Log], Any]) -> float:
    async def run() -> float:
        log = await filled(Log(MemoryStore(ring_events=1 << 20)), events)
        begun = process_time()
        await derive(log)
        spent = process_time() - begun
        await log.close()
        return spent

    return asyncio.run(run())


async def all_derived(log: Log) -> None:
    made = Derived(log)
    assert (await made.panels(APP, NAME)).seq == (await log.info(NAME)).last
    assert await made.documents(NAME)


async def one_after_the_other(log: Log) -> None:
    """As it would be without snapshots: every question from the beginning."""
    for at in range(0, (await log.info(NAME)).last, 50):
        await log.forget_derived()
        await Derived(log).panels(APP, NAME, at)


def test_a_hundred_thousand_events_take_time_like_a_line() -> None:
    assert took(100_000, all_derived) < 2.5 * 4 * took(25_000, all_derived)


def test_time_that_grows_faster_is_seen() -> None:
    assert not took(6_000, one_after_the_other) < 2.5 * 6 * took(1_000, one_after_the_other)


@scenario
async def test_snapshots_together_take_no_more_than_the_events() -> None:
    log = await filled(Log(MemoryStore(ring_events=1 << 20)), 40 * EVERY)
    await Derived(log).panels(APP, NAME)
    sizes, at = [], 40 * EVERY
    while found := await log.snapshot(NAME, PANELS, at):
        sizes.append(len(found[1]))
        at = found[0] - 1
    events = 0
    after = -1
    while page := await log.read(NAME, after):
        events, after = events + sum(len(row.frame) for row in page), page.last
    assert len(sizes) > 4
    assert sum(sizes) <= events + sizes[0]
    assert 40 * sizes[0] > 10 * events  # one each time would have been many times the events
    await log.close()
