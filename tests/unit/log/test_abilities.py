"""A store that can only append and read, and logs that share a store."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.log.damaging import edit
from tests.unit.log.delegates import Counting, held, scenario
from turnlog.errors import CallerError, StoreError
from turnlog.log import EventStore, Log, MemoryStore, SqliteStore
from turnlog.log.jobs import Job, JobOutcome
from turnlog.testing.factories import durable_event, durable_events
from turnlog.testing.harness import open_follower

SESSION = "sess_1"
REQUIRED = ("listen", "info", "read", "read_types", "read_frames", "has_event", "close")


class Plain:
    """A store without abilities."""

    max_batch = 1
    reader_threads = 0
    reconcile_s = None

    def __init__(self) -> None:
        self._inner = MemoryStore()
        for name in REQUIRED:
            setattr(self, name, getattr(self._inner, name))

    def commit(self, jobs: Sequence[Job]) -> list[JobOutcome]:
        return self._inner.commit(jobs)


@scenario
async def test_log_on_a_store_without_abilities_appends_reads_and_follows() -> None:
    log = Log(cast(EventStore, Plain()))
    await log.create("t", SESSION, durable_events("a"))
    async with open_follower(log, SESSION) as pages:
        assert [row.seq for row in await anext(cast(Any, pages))] == [0]
        await log.append(SESSION, durable_events("b"))
        assert [row.seq for row in await anext(cast(Any, pages))] == [1]
    assert (await log.info(SESSION)).last == 1
    log.set_evict_callback(lambda *_: None)
    await log.close()


@pytest.mark.parametrize(
    ("ask", "problem"),
    [
        (lambda log: log.sessions(), "this store lists no sessions"),
        (lambda log: log.listing("ada"), "this store lists no sessions"),
        (lambda log: log.turn_bounds(SESSION, "tr_1"), "this store finds no turns, agents and calls"),
        (lambda log: log.get_blob("x"), "this store has no blobs"),
        (lambda log: log.documents(), "this store has no documents and snapshots"),
        (lambda log: log.verify(), "this store cannot be verified"),
        (lambda log: log.leases.owner_of(SESSION), "this store has no leases"),
    ],
)
def test_call_that_needs_an_ability_is_refused_without_it(
    ask: Callable[[Log], Coroutine[Any, Any, object]], problem: str
) -> None:
    @scenario
    async def run() -> None:
        log = Log(cast(EventStore, Plain()))
        with pytest.raises(CallerError, match=problem):
            await ask(log)
        await log.close()

    run()


@scenario
async def test_info_of_a_followed_session_costs_no_read(tmp_path: Path) -> None:
    store = Counting(SqliteStore(tmp_path / "log.db"))
    log = Log(store.store)
    await log.create("t", SESSION)
    async with open_follower(log, SESSION, idle_s=0.01) as pages:
        assert not await anext(cast(Any, pages))
        reads = store.reads
        for number in range(10):
            await log.append(SESSION, [durable_event(str(number))])
            assert (await log.info(SESSION)).last == number
        assert store.reads == reads
        async with held(log):
            appending = log.submit(SESSION, durable_events("more"))
            assert (await log.info(SESSION)).last == 9
            assert store.reads == reads + 1, "an append is under way: the store is asked"
        await appending
    await log.close()


@scenario
async def test_store_that_two_logs_share_is_closed_by_the_last(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "log.db")
    one, two = Log(store), Log(store)
    await one.create("t", SESSION)
    await one.close()
    assert (await two.append(SESSION, durable_events("a"))).seqs == [0]
    await two.close()
    SqliteStore(tmp_path / "log.db").close()  # the lock is free


@scenario
async def test_value_that_is_too_large_for_sqlite_fails_alone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "log.db")
    store._writer_connection.setlimit(0, 100_000)  # SQLITE_LIMIT_LENGTH
    log = Log(store)
    await log.create("t", SESSION)
    async with held(log):
        good = [log.submit(SESSION, [durable_event(str(number))]) for number in range(3)]
        large = asyncio.create_task(log.put_blob(SESSION, bytes(200_000), "text/plain"))
        await asyncio.sleep(0)
        late = log.submit(SESSION, [durable_event("late")])
    with pytest.raises(CallerError, match="cannot be stored"):
        await large
    assert [(await one).seqs for one in [*good, late]] == [[0], [1], [2], [3]]
    assert not log.health.is_failing
    await log.close()


@scenario
async def test_lease_that_is_not_what_was_written_is_claimed_anew(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    log = Log(SqliteStore(path))
    await log.create("t", SESSION)
    first = await log.leases.claim(SESSION, "one")
    assert first is not None
    await log.close()
    edit(path, "update lease set fence = 70, seen = 7")
    log = Log(SqliteStore(path))
    assert [damage.problem for damage in await log.verify()] == ["a lease is not what was written"]
    [lease] = await log.leases.claim_wanted("two")
    assert (lease.fence, lease.seen) == (first.fence + 1, -1)
    assert await log.verify() == []
    await log.close()


@scenario
async def test_leases_of_a_log_that_is_only_read_are_refused(tmp_path: Path) -> None:
    writing = Log(SqliteStore(tmp_path / "log.db"))
    await writing.create("t", SESSION)
    assert await writing.leases.claim(SESSION, "one")
    reading = Log(SqliteStore(tmp_path / "log.db", writable=False), writable=False)
    with pytest.raises(StoreError, match="reading only"):
        await reading.leases.claim(SESSION, "two")
    await reading.close()
    await writing.close()


DIES = """
import asyncio, os, sys
from pathlib import Path
from turnlog.log import Log, SqliteStore

async def run():
    log = Log(SqliteStore(Path(sys.argv[1])))
    await log.create("t", "sess_1")
    await log.leases.claim("sess_1", "one")
    await log.leases.save_seen("one", {"sess_1": 7})
    os.kill(os.getpid(), 9)

asyncio.run(run())
"""


@scenario
async def test_lease_of_a_process_that_was_killed_is_claimed_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    command = [sys.executable, "-c", DIES, str(path)]
    assert (await asyncio.to_thread(subprocess.run, command, check=False)).returncode == -signal.SIGKILL
    log = Log(SqliteStore(path))
    await log.leases.renew("one")  # an owner of the same name is another one
    assert await log.leases.owner_of(SESSION) is None
    [lease] = await log.leases.claim_wanted("one")
    assert (lease.fence, lease.seen, lease.attempts) == (2, 7, 1)
    await log.close()
