"""Snapshots beside a ring that lets go of old events, and those that no code can use any more."""

import gc
from typing import Any

import msgspec

from tests.support.coverage_pause import without_coverage
from tests.unit.app.test_derived import APP, NAME, filled, keep_snapshot, kept_snapshot, said, spoiled
from tests.unit.log.delegates import Counting, scenario
from turnlog.app.read_models import READ_MODEL_NAMES, SNAPSHOT_EVERY_EVENTS, STATE, ReadModelStore
from turnlog.log import Log, MemoryStore, SqliteStore


@without_coverage()
@scenario
async def test_panels_after_the_ring_has_passed_a_snapshot_are_made_from_the_cut() -> None:
    log = Log(MemoryStore(ring_events=1500))
    derived = ReadModelStore(log, {"counter": APP})
    await filled(log, 1400)
    await derived.load_read_models(APP, NAME)
    found = await kept_snapshot(log, STATE, SNAPSHOT_EVERY_EVENTS)
    assert found is not None
    for first in range(1400, 4000, 100):
        await log.append(NAME, [said(number) for number in range(first, first + 100)])
    await keep_snapshot(log, STATE, *found)  # as a question does that was asked before, and is slow
    assert (await derived.load_read_models(APP, NAME)).state["said"] == 4000
    await log.close()


@without_coverage()
@scenario
async def test_ring_that_lets_go_of_events_removes_their_snapshots() -> None:
    log = Log(MemoryStore(ring_events=1500))
    derived = ReadModelStore(log, {"counter": APP})
    await filled(log, 0)
    for first in range(0, 6 * SNAPSHOT_EVERY_EVENTS, 100):
        await log.append(NAME, [said(number) for number in range(first, first + 100)])
        await derived.load_read_models(APP, NAME)
    head = await log.info(NAME)
    assert await kept_snapshot(log, STATE, head.first - 1) is None
    await log.close()


@scenario
async def test_snapshot_of_another_history_is_removed_by_who_meets_it() -> None:
    log = await filled(Log(MemoryStore()), SNAPSHOT_EVERY_EVENTS + 5)
    await ReadModelStore(log).load_read_models(APP, NAME)
    found = await kept_snapshot(log, STATE, SNAPSHOT_EVERY_EVENTS)
    assert found is not None
    stale = msgspec.json.encode(msgspec.json.decode(found[1]) | {"epoch": "x"})
    await keep_snapshot(log, STATE, 500, stale)
    await spoiled(log, lambda kept: kept | {"epoch": "other"})
    await ReadModelStore(log).load_read_models(APP, NAME, 600)
    assert await kept_snapshot(log, STATE, 600) is None
    await log.close()


@scenario
async def test_stale_snapshots_are_read_once(tmp_path: Any) -> None:
    store = Counting(SqliteStore(tmp_path / "log.db"))
    log = await filled(Log(store.store), SNAPSHOT_EVERY_EVENTS)
    await ReadModelStore(log).load_read_models(APP, NAME)
    for seq in range(20):
        await keep_snapshot(log, STATE, seq, b"{}")
    await ReadModelStore(log).load_read_models(APP, NAME, 50)
    before = store.calls["snapshot"]
    await ReadModelStore(log).load_read_models(APP, NAME, 50)
    assert store.calls["snapshot"] == before + len(READ_MODEL_NAMES)
    await log.close()


@scenario
async def test_locks_of_documents_are_gone_when_they_are_written() -> None:
    log = Log(MemoryStore())
    derived = ReadModelStore(log)
    for number in range(20):
        session = await log.create("counter", f"sess_{number}")
        await log.append(session, [said(number)])
        await derived.write_documents(session)
    gc.collect()
    assert len(derived._locks) == 0
    await log.close()
