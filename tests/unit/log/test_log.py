"""The log over its store: opening, the shared tail, joining and leaving, and what happens in between."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from msgspec import structs

from tests.support.coverage_pause import without_coverage
from tests.support.transact import transact
from tests.unit.log.delegates import (
    Counting,
    Gated,
    all_pages,
    held,
    scenario,
    soon,
    until,
)
from turnlog.errors import NotFound, SessionDamaged, StoreError
from turnlog.events import encode_envelope
from turnlog.log import AppendResult, Damage, Log, MemoryStore, Page, SqliteStore
from turnlog.log.jobs import ImportCounts
from turnlog.log.tail import MAX_TAIL_BYTES, MAX_TAIL_ROWS
from turnlog.log.transfer import import_lines
from turnlog.testing.factories import (
    block_delta_event,
    block_end_event,
    block_start_event,
    durable_event,
    durable_events,
)
from turnlog.testing.harness import open_follower

SESSION, OTHER = "sess_1", "sess_2"


@asynccontextmanager
async def opened(store: Counting) -> AsyncIterator[Log]:
    log = Log(store.store)
    for session in (SESSION, OTHER):
        await log.create("t", session)
    try:
        yield log
    finally:
        await log.close()


def wakes(log: Log, session: str = SESSION) -> int:
    return log.tails[session].wakeup.count


async def asleep(log: Log, count: int, session: str = SESSION) -> list[asyncio.Task[Page]]:
    """So many followers at the head of a session, all of them asleep."""
    after = (await log.info(session)).last
    followers = [asyncio.create_task(first_page(log, session, after)) for _ in range(count)]
    await until(lambda: session in log.tails and log.tails[session].follower_count == count)
    await log.info(session)  # whoever joined first looks twice
    return followers


async def first_page(log: Log, session: str, after: int) -> Page:
    async with open_follower(log, session, after) as pages:
        return await anext(pages)


# counted, not timed


@scenario
async def test_idle_followers_cost_no_read_and_no_wake_up() -> None:
    store = Counting(MemoryStore())
    async with opened(store) as log:
        followers = await asleep(log, 1000)
        reads, woken = store.reads, wakes(log)
        for number in range(200):
            await log.append(OTHER, [durable_event(str(number))])
        assert (store.reads - reads, wakes(log) - woken) == (0, 0)
        assert not any(follower.done() for follower in followers)
        await log.append(SESSION, durable_events("a"))
        assert {len(page) for page in await asyncio.gather(*followers)} == {1}


@without_coverage()
@scenario
async def test_idle_followers_of_many_sessions_cost_nothing_either(tmp_path: Path) -> None:
    store = Counting(SqliteStore(tmp_path / "log.db"))
    async with opened(store) as log:
        sessions = [await log.create("t") for _ in range(50)]
        followers = [await asleep(log, 20, session) for session in sessions]
        reads, woken = store.reads, [wakes(log, session) for session in sessions]
        for number in range(200):
            await log.append(OTHER, [durable_event(str(number))])
        assert store.reads == reads
        assert [wakes(log, session) for session in sessions] == woken
        for session in sessions:
            await log.close_session(session)
        with pytest.raises(StopAsyncIteration):
            await followers[0][0]
        await asyncio.gather(*[one for group in followers for one in group], return_exceptions=True)


@scenario
async def test_an_append_wakes_all_its_followers_once_and_they_share_its_rows() -> None:
    store = Counting(MemoryStore())
    async with opened(store) as log:
        followers = await asleep(log, 1000)
        reads, woken = store.reads, wakes(log)
        tail = log.tails[SESSION]
        await log.append(SESSION, durable_events("a", "b", "c"))
        pages = await asyncio.gather(*followers)
        assert tail.wakeup.count - woken == 1
        assert store.reads == reads
        assert [row.seq for row in pages[0]] == [0, 1, 2]
        assert all(page is pages[0] for page in pages)
        assert pages[0].frames() is pages[0].frames()


@without_coverage()
@scenario
async def test_a_follower_that_keeps_up_never_reads_the_store() -> None:
    store = Counting(MemoryStore())
    async with opened(store) as log, open_follower(log, SESSION, idle_s=0.01) as pages:
        assert not await anext(pages)
        reads = store.reads
        for number in range(2 * MAX_TAIL_ROWS):
            await log.append(SESSION, [durable_event(str(number))])
            assert [row.seq for row in await anext(pages)] == [number]
        assert store.reads == reads


@scenario
async def test_last_seq_of_a_session_that_is_followed_costs_no_read() -> None:
    store = Counting(MemoryStore())
    async with opened(store) as log, open_follower(log, SESSION, idle_s=0.01) as pages:
        assert not await anext(pages)
        reads = store.reads
        for number in range(10):
            await log.append(SESSION, [durable_event(str(number))])
            assert await log.last_seq(SESSION) == number
        assert store.reads == reads


@scenario
async def test_last_seq_is_never_behind_what_the_store_gives_to_readers(tmp_path: Path) -> None:
    for store in (MemoryStore(), SqliteStore(tmp_path / "log.db")):
        async with opened(Counting(store)) as log, open_follower(log, SESSION, idle_s=0.01) as pages:
            assert not await anext(pages)
            for number in range(50):
                appending = log.submit(SESSION, [durable_event(str(number))])
                appending.cancel()  # it is stored all the same
                refused = log.submit(SESSION, [durable_event(str(number), "another text")])
                while not await log.read(SESSION, number - 1):
                    pass
                assert await log.last_seq(SESSION) == number
                await asyncio.gather(refused, return_exceptions=True)
            assert not log._running_jobs
            with pytest.raises(NotFound):
                await log.last_seq("sess_unknown")


@scenario
async def test_the_shared_tail_is_bounded_in_rows_and_bytes() -> None:
    store = Counting(MemoryStore())
    async with opened(store) as log, open_follower(log, SESSION, idle_s=0.01) as pages:
        assert not await anext(pages)
        await log.append(SESSION, durable_events(*range(MAX_TAIL_ROWS)))
        reads = store.reads
        assert len(await anext(pages)) == MAX_TAIL_ROWS
        assert store.reads == reads
        await log.append(SESSION, durable_events(*[f"b{number}" for number in range(MAX_TAIL_ROWS + 1)]))
        page = await anext(pages)
        assert (page[0].seq, store.reads) == (MAX_TAIL_ROWS, reads + 1)
        while page[-1].seq < 2 * MAX_TAIL_ROWS:
            page = await anext(pages)
        reads = store.reads
        for part in range(3):
            await log.append(SESSION, [durable_event(f"c{part}", "z" * (MAX_TAIL_BYTES // 2))])
        assert (await anext(pages))[0].seq == 2 * MAX_TAIL_ROWS + 1
        assert store.reads == reads + 1


@scenario
async def test_an_event_larger_than_the_tail_is_shared_all_the_same() -> None:
    store = Counting(MemoryStore())
    async with opened(store) as log, open_follower(log, SESSION, idle_s=0.01) as pages:
        assert not await anext(pages)
        reads = store.reads
        for number in range(3):
            await log.append(SESSION, [durable_event(str(number), "z" * (2 * MAX_TAIL_BYTES))])
            assert [row.seq for row in await anext(pages)] == [number]
        assert store.reads == reads


# joining and leaving


@scenario
async def test_nothing_is_left_of_a_session_nobody_follows() -> None:
    async with opened(Counting(MemoryStore())) as log:
        async with AsyncExitStack() as stack:
            for _ in range(10):
                pages = await stack.enter_async_context(open_follower(log, SESSION, idle_s=0.001))
                assert not await anext(pages)
            assert log.tails[SESSION].follower_count == 10
        assert log.tails == {}
        with pytest.raises(NotFound):
            await all_pages(log, "sess_x")
        assert log.tails == {}


@pytest.mark.parametrize("looks", [0, 1])
def test_nothing_is_left_of_a_follower_that_is_cancelled_while_it_joins(looks: int) -> None:
    @scenario
    async def run() -> None:
        store = Gated(MemoryStore())
        async with opened(store) as log:
            gate = store.gate("info", skip=looks)
            follower = asyncio.create_task(all_pages(log, SESSION))
            await gate.reached()
            follower.cancel()
            await asyncio.gather(follower, return_exceptions=True)
            assert log.tails == {}
            gate.open()

    run()


@scenario
async def test_an_append_during_the_join_reaches_whoever_joins_and_whoever_joined_meanwhile() -> None:
    store = Gated(MemoryStore())
    async with opened(store) as log:
        first, second = store.gate("info"), store.gate("info")
        one = asyncio.create_task(first_page(log, SESSION, -1))
        await first.reached()
        await log.append(SESSION, durable_events("a"))
        first.open()
        await second.reached()
        two = asyncio.create_task(first_page(log, SESSION, -1))
        await until(lambda: log.tails[SESSION].follower_count == 2)
        second.open()
        assert [[row.seq for row in await soon(page)] for page in (one, two)] == [[0], [0]]


@scenario
async def test_whoever_joined_meanwhile_misses_nothing_though_the_first_one_is_cancelled() -> None:
    store = Gated(MemoryStore())
    async with opened(store) as log:
        first, second = store.gate("info"), store.gate("info")
        one = asyncio.create_task(first_page(log, SESSION, -1))
        await first.reached()
        await log.append(SESSION, durable_events("a"))
        first.open()
        await second.reached()
        two = asyncio.create_task(first_page(log, SESSION, -1))
        await until(lambda: log.tails[SESSION].follower_count == 2)
        one.cancel()
        await asyncio.gather(one, return_exceptions=True)
        second.open()
        assert [row.seq for row in await soon(two)] == [0]


@scenario
async def test_a_session_that_closes_during_the_join_ends_the_follower() -> None:
    store = Gated(MemoryStore())
    async with opened(store) as log:
        await log.append(SESSION, durable_events("a"))
        gate = store.gate("info")
        follower = asyncio.create_task(all_pages(log, SESSION))
        await gate.reached()
        await log.close_session(SESSION)
        gate.open()
        assert [row.seq for row in await soon(follower)] == [0]


@scenario
async def test_a_session_that_closes_during_the_second_look_ends_the_follower() -> None:
    store = Gated(MemoryStore())
    async with opened(store) as log:
        await log.append(SESSION, durable_events("a"))
        gate = store.gate("info", skip=1)
        follower = asyncio.create_task(all_pages(log, SESSION))
        await gate.reached()
        await log.close_session(SESSION)
        gate.open()
        assert [row.seq for row in await soon(follower)] == [0]


@pytest.mark.parametrize("look", [0, pytest.param(1)])
def test_an_epoch_that_changes_during_the_join_is_not_missed(tmp_path: Path, look: int) -> None:
    @scenario
    async def run() -> None:
        store = Gated(SqliteStore(tmp_path / "log.db"))
        async with opened(store) as log:
            await log.append(SESSION, durable_events("a"))
            gate = store.gate("info", skip=look)
            follower = asyncio.create_task(all_pages(log, SESSION, 0))
            await gate.reached()
            await log._quarantine(SessionDamaged(SESSION, 0, 0, "for the test"))
            gate.open()
            await log.append(SESSION, durable_events("b"))
            await log.close_session(SESSION)
            assert [row.seq for row in await soon(follower)] in ([], [1])

    run()


@scenario
async def test_what_comes_while_only_skipped_events_are_read_is_not_skipped() -> None:
    store = Gated(MemoryStore())
    async with opened(store) as log:
        await log.append(SESSION, [block_start_event("x"), block_end_event("x"), block_delta_event("x")])
        gate = store.gate("read", skip=1)
        async with open_follower(log, SESSION, replay_from=-1) as pages:
            assert [row.seq for row in await anext(pages)] == [0, 1]
            second = asyncio.ensure_future(anext(pages))
            await gate.reached()
            await log.append(SESSION, durable_events("a"))
            gate.open()
            await log.append(SESSION, durable_events("b"))
            assert (await soon(second))[0].seq == 3


@scenario
async def test_what_is_imported_into_a_session_reaches_its_followers() -> None:
    async with opened(Counting(MemoryStore())) as log, open_follower(log, SESSION, idle_s=0.01) as pages:
        assert not await anext(pages)
        await log.append(SESSION, durable_events("a"))
        assert [row.seq for row in await anext(pages)] == [0]
        lines = [b'{"type":"session","session_id":"sess_1"}']
        lines.append(encode_envelope(durable_event("b"), session_id=SESSION, seq=1, ts_ms=0))
        assert [counts async for counts in import_lines(log, lines)] == [ImportCounts(1)]
        await log.append(SESSION, durable_events("c"))
        assert [row.seq for row in await anext(pages)] == [1, 2]


# leaving in the middle


@scenario
async def test_followers_end_though_whoever_closed_the_session_did_not_wait() -> None:
    async with opened(Counting(MemoryStore())) as log:
        follower = asyncio.create_task(all_pages(log, SESSION))
        await until(lambda: SESSION in log.tails)
        async with held(log):
            closing = asyncio.create_task(log.close_session(SESSION))
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)
        await transact(log, lambda store: None)  # whatever was submitted before is done now
        assert (await log.info(SESSION)).closed
        assert await soon(follower) == []


@scenario
async def test_followers_are_told_of_damage_though_whoever_met_it_did_not_wait(tmp_path: Path) -> None:
    store = Gated(SqliteStore(tmp_path / "log.db"))
    async with opened(store) as log:
        await log.append(SESSION, durable_events("a"))
        follower = asyncio.create_task(all_pages(log, SESSION, 0))
        await until(lambda: SESSION in log.tails)
        async with held(log):
            met = asyncio.create_task(log._quarantine(SessionDamaged(SESSION, 0, 0, "for the test")))
            await asyncio.sleep(0)
            met.cancel()
            await asyncio.gather(met, return_exceptions=True)
        await transact(log, lambda store: None)  # whatever was submitted before is done now
        assert await log.damages() == [Damage(SESSION, 0, 0, "for the test")]
        assert await soon(follower) == []


@scenario
async def test_followers_are_told_of_damage(tmp_path: Path) -> None:
    async with opened(Counting(SqliteStore(tmp_path / "log.db"))) as log:
        await log.append(SESSION, durable_events("a"))
        epoch = (await log.info(SESSION)).epoch
        followers = [asyncio.create_task(all_pages(log, SESSION, 0)) for _ in range(5)]
        await until(lambda: SESSION in log.tails and log.tails[SESSION].follower_count == 5)
        await log._quarantine(SessionDamaged(SESSION, 0, 0, "for the test"))
        assert await asyncio.gather(*followers) == [[]] * 5
        assert (await log.info(SESSION)).epoch != epoch
        assert (await log.append(SESSION, durable_events("b"))).seqs == [1]
        assert [row.seq for row in await first_page(log, SESSION, 0)] == [1]


@pytest.mark.parametrize("way", ["follow", "follow_frames"])
def test_history_that_changes_while_it_is_read_ends_the_follower_before_it_is_told(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @scenario
    async def run() -> None:
        async with opened(Counting(SqliteStore(tmp_path / "log.db"))) as log:
            await log.append(SESSION, durable_events(*range(400)))
            monkeypatch.setattr(log._tail_registry, "publish", lambda *_: None)
            pages = getattr(log, way)(SESSION)
            assert await anext(pages)
            await log._quarantine(SessionDamaged(SESSION, 300, 300, "for the test"))
            assert [page async for page in pages] == []

    run()


@scenario
async def test_a_follower_that_is_cancelled_takes_no_other_with_it() -> None:
    async with opened(Counting(MemoryStore())) as log:
        followers = [asyncio.create_task(all_pages(log, SESSION)) for _ in range(100)]
        await until(lambda: SESSION in log.tails and log.tails[SESSION].follower_count == 100)
        for number, follower in enumerate(followers):
            if number % 2:
                follower.cancel()
            await log.append(SESSION, [durable_event(str(number))])
        await log.close_session(SESSION)
        outcomes = await asyncio.gather(*followers, return_exceptions=True)
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes[1::2])
        assert all([row.seq for row in rows] == list(range(100)) for rows in outcomes[0::2])  # type: ignore[union-attr]
        assert log.tails == {}


@scenario
async def test_seqs_that_an_import_left_out_do_not_shift_the_tail() -> None:
    async with opened(Counting(MemoryStore())) as log, open_follower(log, SESSION, idle_s=0.01) as pages:
        assert not await anext(pages)
        await log.append(SESSION, durable_events("a"))
        assert [row.seq for row in await anext(pages)] == [0]
        lines = [b'{"type":"session","session_id":"sess_1"}']
        lines += [
            encode_envelope(durable_event(f"b{seq}"), session_id=SESSION, seq=seq, ts_ms=0) for seq in (3, 4)
        ]
        assert [counts async for counts in import_lines(log, lines)] == [ImportCounts(2)]
        assert [row.seq for row in await anext(pages)] == [3, 4]
        await log.append(SESSION, durable_events("c", "d", "e", "f"))
        assert [row.seq for row in await anext(pages)] == [5, 6, 7, 8]


@scenario
async def test_what_shares_its_group_with_a_bug_reaches_the_followers() -> None:
    async with opened(Counting(MemoryStore())) as log, open_follower(log, SESSION, idle_s=0.01) as pages:
        assert not await anext(pages)
        await log.append(SESSION, durable_events("a"))
        assert [row.seq for row in await anext(pages)] == [0]
        other, broken = await log.create("t"), structs.replace(durable_event("b"), id="evt_\ud800")
        async with held(log):
            jobs = [log.submit(SESSION, durable_events("b")), log.submit(other, [broken])]
        outcomes = await asyncio.gather(*jobs, return_exceptions=True)
        assert outcomes[0] == AppendResult([1], 0)
        assert [row.seq for row in await anext(pages)] == [1]


@scenario
async def test_followers_end_with_the_log() -> None:
    async with opened(Counting(MemoryStore())) as log:
        follower = asyncio.create_task(all_pages(log, SESSION))
        await until(lambda: SESSION in log.tails)
        await log.close()
        assert await soon(follower) == []


@scenario
async def test_followers_get_what_was_submitted_before_the_log_is_closed() -> None:
    async with opened(Counting(MemoryStore())) as log:
        follower = asyncio.create_task(all_pages(log, SESSION))
        await until(lambda: SESSION in log.tails and log.tails[SESSION].is_synced)
        async with held(log):
            log.submit(SESSION, durable_events("a"))
            closing = asyncio.create_task(log.close())
            await asyncio.sleep(0)
        await soon(closing)
        assert [row.seq for row in await soon(follower)] == [0]


@scenario
async def test_a_follower_that_lags_when_the_log_is_closed_ends_or_is_told() -> None:
    async with opened(Counting(MemoryStore())) as log, open_follower(log, SESSION) as pages:
        await log.append(SESSION, durable_events(*range(2000)))
        await anext(pages)
        await log.close()
        with pytest.raises((StopAsyncIteration, StoreError)):
            await anext(pages)
