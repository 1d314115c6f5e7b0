"""The state of a long session: how many bytes are read for it, and for what else is asked for."""

from typing import Any

import pytest

from tests.support.coverage_pause import without_coverage
from tests.unit.app.test_derived import APP, NAME, filled
from tests.unit.log.delegates import Counting, scenario
from turnlog.app.read_models import READ_MODEL_NAMES, SNAPSHOT_EVERY_EVENTS, STATE, ReadModelStore
from turnlog.log import Log, MemoryStore, Page


class Bytes(Counting):
    """A store that counts the bytes it gives."""

    given_bytes = 0

    def _call(self, name: str, *args: Any) -> Any:
        given = super()._call(name, *args)
        if isinstance(given, Page):
            self.given_bytes += given.size_bytes
        elif name == "snapshot" and given is not None:
            self.given_bytes += len(given[1])
        return given


async def read_bytes(events: int, parts: tuple[str, ...]) -> tuple[int, int]:
    """Return what is read, and what is charged, for parts of a session that was asked for before."""
    store = Bytes(MemoryStore(ring_events=1 << 20))
    log = await filled(Log(store.store), events)
    await ReadModelStore(log).load_read_models(APP, NAME)  # stores the snapshots
    store.given_bytes, charged = 0, list[int]()
    panels = await ReadModelStore(log).load_read_models(APP, NAME, events - 3, parts, charged.append)
    assert (panels.seq, panels.state["said"]) == (events - 3, events - 2)
    await log.close()
    return store.given_bytes, sum(charged)


@without_coverage()
@scenario
async def test_state_of_a_long_session_reads_no_more_than_that_of_a_short_one() -> None:
    short, long = [await read_bytes(times * SNAPSHOT_EVERY_EVENTS, (STATE,)) for times in (2, 8)]
    assert long[0] < 1.1 * short[0]


@without_coverage()
@scenario
async def test_control_with_the_transcript_it_reads_all_of_it() -> None:
    short, long = [await read_bytes(times * SNAPSHOT_EVERY_EVENTS, READ_MODEL_NAMES) for times in (2, 8)]
    assert long[0] > 3 * short[0]


@without_coverage()
@pytest.mark.parametrize("parts", [(STATE,), (STATE, "tree"), READ_MODEL_NAMES])
@scenario
async def test_what_is_read_is_charged(parts: tuple[str, ...]) -> None:
    read, charged = await read_bytes(2 * SNAPSHOT_EVERY_EVENTS, parts)
    assert charged == read
