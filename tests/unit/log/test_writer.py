"""The one thread that writes."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.coverage_pause import without_coverage
from tests.support.transact import transact, work_job
from tests.unit.log.delegates import THREAD_DIES, Counting, held, scenario, soon, until
from turnlog.errors import Conflict, NotFound, StoreError
from turnlog.log import Log, MemoryStore, SqliteStore, Store
from turnlog.log.jobs import Job, JobOutcome, JobResult
from turnlog.log.records import SessionRecord
from turnlog.log.writer import WriteHealth, WriterThread
from turnlog.testing.factories import durable_event, durable_events


class Failing(MemoryStore):
    """A store whose transactions can be made to fail at their end."""

    reader_threads = 1  # so its work goes to the thread
    fault: Exception | None = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with super().transaction():
            yield
            if self.fault:
                raise self.fault


def ignore_outcome(job: Job, outcome: JobOutcome) -> None:
    pass


def value_of(outcome: JobOutcome) -> object:
    """The value of a result, or the class of a refusal."""
    return outcome.value if isinstance(outcome, JobResult) else type(outcome)


@scenario
async def test_what_arrives_during_a_commit_is_one_group(tmp_path: Path) -> None:
    counting = Counting(SqliteStore(tmp_path / "log.db"))
    log = Log(counting.store)
    session = await log.create("t")
    async with held(log):
        before = counting.calls["commit"]
        jobs = [log.submit(session, [durable_event(str(number))]) for number in range(100)]
    assert [result.seqs for result in await asyncio.gather(*jobs)] == [[seq] for seq in range(100)]
    assert counting.calls["commit"] == before + 1
    await log.close()


@scenario
async def test_a_batch_is_what_it_was_when_it_was_submitted(tmp_path: Path) -> None:
    log = Log(SqliteStore(tmp_path / "log.db"))
    session, batch = await log.create("t"), durable_events("a", "b")
    async with held(log):
        job = log.submit(session, batch)
        batch.clear()
    assert (await job).seqs == [0, 1]
    await log.close()


@scenario
async def test_a_group_is_bounded(tmp_path: Path) -> None:
    counting = Counting(SqliteStore(tmp_path / "log.db"))
    log = Log(counting.store)
    async with held(log):
        before = counting.calls["commit"]
        jobs = [asyncio.create_task(transact(log, lambda _: None)) for _ in range(1025)]
        await asyncio.sleep(0)
    await asyncio.gather(*jobs)
    assert counting.calls["commit"] == before + 3
    await log.close()


@scenario
async def test_an_idle_writer_commits_at_once() -> None:
    counting = Counting(MemoryStore())
    log = Log(counting.store)
    for _ in range(5):
        await transact(log, lambda _: None)
    assert counting.calls["commit"] == 5
    await log.close()


@scenario
async def test_outcomes_come_in_order_after_the_commit_and_to_the_right_one() -> None:
    order = list[object]()
    writer = WriterThread(MemoryStore(), WriteHealth(), lambda _, outcome: order.append(value_of(outcome)))
    jobs = [writer.submit(work_job(lambda _, n=n: n)) for n in range(50)]  # type: ignore[misc]
    await asyncio.gather(*jobs)
    assert order == list(range(50))
    await writer.close()


@scenario
async def test_a_refusal_reaches_who_asked_and_nobody_else() -> None:
    def refuse(_: Store) -> None:
        raise NotFound("no")

    writer = WriterThread(MemoryStore(), WriteHealth(), ignore_outcome)
    jobs = [writer.submit(work_job(work)) for work in (lambda _: 1, refuse, lambda _: 2)]
    outcomes = await asyncio.gather(*jobs, return_exceptions=True)
    assert outcomes[0::2] == [1, 2]
    assert isinstance(outcomes[1], NotFound)
    await writer.close()


@scenario
async def test_nobody_has_to_wait_for_an_outcome_good_or_bad() -> None:
    def refuse(_: Store) -> None:
        raise Conflict("no", 0)

    done = list[object]()
    writer = WriterThread(MemoryStore(), WriteHealth(), lambda _, outcome: done.append(value_of(outcome)))
    for work in (lambda _: 1, refuse):
        writer.submit(work_job(work)).cancel()
    assert await writer.submit(work_job(lambda _: 2)) == 2
    assert done == [1, Conflict, 2]
    await writer.close()


@scenario
async def test_a_group_that_cannot_be_committed_fails_as_a_whole_and_the_next_one_works() -> None:
    store = Failing()
    store.max_batch = 512
    log = Log(store)
    await log.create("t", "sess_1")
    async with held(log):
        full = StoreError("the disk is full")
        works = [lambda _: None, lambda _: setattr(store, "fault", full), lambda _: None]
        jobs = [asyncio.create_task(transact(log, work)) for work in works]
        await asyncio.sleep(0)
    outcomes = await asyncio.gather(*jobs, return_exceptions=True)
    assert {str(outcome) for outcome in outcomes} == {"the disk is full"}
    store.fault = None
    assert (await log.append("sess_1", durable_events("a"))).seqs == [0]
    await log.close()


@scenario
async def test_failed_group_gives_each_job_an_error_of_its_own() -> None:
    store = Failing()
    store.max_batch = 512
    log = Log(store)
    async with held(log):
        full = StoreError("the disk is full")
        works = [lambda _: None, lambda _: setattr(store, "fault", full), lambda _: None]
        jobs = [asyncio.create_task(transact(log, work)) for work in works]
        await asyncio.sleep(0)
    outcomes = await asyncio.gather(*jobs, return_exceptions=True)
    assert len(set(map(id, outcomes))) == 3
    assert all(isinstance(outcome, StoreError) and outcome.__cause__ is full for outcome in outcomes)
    store.fault = None
    await log.close()


@without_coverage()
@scenario
async def test_closing_finishes_what_was_submitted() -> None:
    log = Log(Counting(MemoryStore()).store)
    session = await log.create("t")
    jobs = [log.submit(session, [durable_event(str(number))]) for number in range(2000)]
    await log.close()
    assert [job.result().seqs for job in jobs] == [[seq] for seq in range(2000)]


@scenario
async def test_whoever_closes_too_waits_for_what_was_submitted() -> None:
    log = Log(Counting(MemoryStore()).store)
    session = await log.create("t")
    async with held(log):
        job = log.submit(session, [durable_event("a")])
        closings = [asyncio.create_task(log.close()) for _ in range(2)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert not any(closing.done() for closing in closings), "the store went from under the writer"
    await soon(asyncio.gather(*closings))
    assert job.result().seqs == [0]


@scenario
async def test_closing_ends_though_something_is_submitted_meanwhile() -> None:
    log = Log(Counting(MemoryStore()).store)
    session = await log.create("t")
    async with held(log):
        closing = asyncio.create_task(log.close())
        await asyncio.sleep(0)
        with pytest.raises(StoreError):
            log.submit(session, [durable_event("a")])
    await soon(closing)


@scenario
async def test_appending_to_a_log_that_was_closed_is_refused() -> None:
    log = Log(Counting(MemoryStore()).store)
    session = await log.create("t")
    await log.close()
    with pytest.raises(StoreError):
        await soon(log.append(session, [durable_event("a")]))


@THREAD_DIES
@scenario
async def test_work_with_a_bug_fails_and_what_comes_after_it_works() -> None:
    def broken(_: Store) -> None:
        raise KeyError("a bug")

    log = Log(Counting(MemoryStore()).store)
    session = await log.create("t")
    async with held(log):
        bad = asyncio.create_task(transact(log, broken))
        neighbour = asyncio.create_task(log.append(session, [durable_event("a")]))
        await asyncio.sleep(0)
    outcomes = await soon(asyncio.gather(bad, neighbour, return_exceptions=True))
    assert isinstance(outcomes[0], Exception)
    assert (await soon(log.append(session, [durable_event("a")]))).seqs == [0]
    await log.close()


@THREAD_DIES
@scenario
async def test_a_commit_with_a_bug_fails_and_the_next_one_works() -> None:
    store = Failing()
    log = Log(store)
    store.fault = OverflowError("a bug")
    with pytest.raises(Exception, match="a bug"):
        await soon(transact(log, lambda store: store.put_record(SessionRecord("sess_1", epoch="e", app="t"))))
    store.fault = None
    await soon(log.create("t"))
    await log.close()


# whether it works


def is_failing(log: Log) -> bool:
    return log.health.is_failing


@scenario
async def test_health_after_a_write_says_when_it_was_stored() -> None:
    log = Log(Failing())
    assert (log.health.is_failing, log.health.last_stored_s) == (False, None)
    await log.create("t")
    assert not is_failing(log)
    assert log.health.last_stored_s is not None
    await log.close()


@scenario
async def test_health_after_a_write_that_failed_is_failing_until_one_is_stored() -> None:
    store = Failing()
    log = Log(store)
    session = await log.create("t")
    stored_s = log.health.last_stored_s
    store.fault = StoreError("no room")
    with pytest.raises(StoreError):
        await log.append(session, durable_events("a"))
    assert is_failing(log)
    assert log.health.last_stored_s == stored_s
    store.fault = None
    await log.append(session, durable_events("b"))
    assert not is_failing(log)
    await log.close()


@scenario
async def test_health_while_writes_fail_is_not_mended_by_a_look_or_a_refusal() -> None:
    store = Failing()
    log = Log(store)
    session = await log.create("t")
    store.fault = StoreError("no room")
    with pytest.raises(StoreError):
        await log.append(session, durable_events("a"))
    store.fault = None
    await log.find_events(session, ["evt_1"])
    with pytest.raises(NotFound):
        await log.append("sess_none", durable_events("a"))
    assert is_failing(log)
    await log.close()


@scenario
async def test_health_comes_back_without_a_request_when_writes_work_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("turnlog.log.write_probe.PROBE_INTERVAL_S", 0.001)
    store = Failing()
    log = Log(store)
    session = await log.create("t")
    store.fault = StoreError("no room")
    with pytest.raises(StoreError):
        await log.append(session, durable_events("a"))
    store.fault = None
    await until(lambda: not log.health.is_failing)
    await log.close()
