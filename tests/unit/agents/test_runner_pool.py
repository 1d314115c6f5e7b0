"""The runners of a process: one for each session that it owns, released when quiet, replaced if it fails."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.limited_session import on_clock
from tests.support.limits import HANG_S
from tests.support.manual_clock import move_on, run_on_clock
from tests.support.session_runners import agent_runtime
from tests.unit.agents.test_store_failures import FailingStore, on_fast_clock
from tests.unit.log.delegates import held, until
from turnlog.agents import Agent, Scripted, ToolUse, tool
from turnlog.agents.models.scripted import Fail
from turnlog.agents.retry import RetryPolicy
from turnlog.agents.runtime.runner_pool import CLAIM_LIMIT, RETRY_S, RunnerPool
from turnlog.agents.runtime.session_folds import SessionFolds
from turnlog.agents.runtime.session_runner import SessionRunner
from turnlog.agents.runtime.session_runtime import RunnerOptions
from turnlog.agents.team import AgentTeam
from turnlog.errors import Conflict, NotFound, SessionDamaged, StoreError
from turnlog.events import CATALOG, Scope, UiMessage
from turnlog.ids import now_ms
from turnlog.log import Lease, Log, MemoryStore, Page, SqliteStore
from turnlog.log.jobs import ClaimWanted, EndOwner, Job, JobOutcome, ReleaseLease
from turnlog.state.history import Message

QUIET_S = 3600.0  # passes only when a test moves the clock
EXPIRES_S = 24 * 3600.0


@tool(kind="write", approval=True, expires_s=EXPIRES_S)
def pay() -> str:
    """Pay."""
    return "paid"


@tool(kind="write", approval=True, expires_s=EXPIRES_S, executor="remote", timeout_s=60.0)
def ship() -> str:
    """Ship, in another process."""
    raise NotImplementedError


def script(messages: list[Message]) -> Iterator[str | ToolUse]:
    part = messages[-1].content[-1]
    if part.get("text") in ("pay", "ship"):
        yield ToolUse(part["text"], {})
    else:
        yield "Done."


def make_agent(**options: Any) -> Agent:
    return Agent("Clerk", "", Scripted(options.pop("script", script)), tools=(pay, ship), **options)


class Office:
    """A log with a session, and a pool that runs it. `made` are the runners that the pool has built."""

    def __init__(self, log: Log, session_id: str, quiet_s: float) -> None:
        self.log = log
        self.session_id = session_id
        self.agent = make_agent()
        self.made: list[SessionRunner] = []
        self.pool = RunnerPool(log, self._make_runner, quiet_s=quiet_s)
        self._sent = 0

    async def _make_runner(self, lease: Lease) -> SessionRunner:
        folds = SessionFolds(self.log, lease.session_id, CATALOG)
        team = AgentTeam(self.agent)
        runner = SessionRunner(self.log, lease, folds, team, options=RunnerOptions(pid=1))
        self.made.append(runner)
        return runner

    async def send(self, text: str) -> None:
        """Append a message that asks for work."""
        self._sent += 1
        message = CATALOG.build_event(
            UiMessage(text=text),
            id=f"evt_message-{self._sent}",
            origin="ui",
            scope=Scope(trace_id=f"tr_{self._sent}"),
        )
        await self.log.append(self.session_id, [message], wants_work=True)

    async def types(self) -> list[str]:
        rows = await self.log.read(self.session_id, -1, max_bytes=1 << 20)
        return [row.type for row in rows]

    async def wait_for(self, kind: str, times: int = 1) -> None:
        async for page in self.log.follow(self.session_id):
            times -= sum(row.type == kind for row in page)
            if times <= 0:
                return

    async def release(self) -> None:
        """Let the quiet time pass, and wait until the pool has no runner any more."""
        await until(lambda: all(runner.is_quiet for runner in self.made if not runner.has_ended))
        move_on(QUIET_S + 1)
        await until(lambda: not len(self.pool))

    async def lose(self) -> Lease:
        """Let another owner claim the session, as if this one had been taken for dead."""
        await self.log.run_job(EndOwner(self.pool.owner))
        lease = await self.log.leases.claim(self.session_id, "other")
        assert lease is not None
        return lease


@asynccontextmanager
async def opened(
    store: MemoryStore | SqliteStore | None = None,
    clock: Callable[[], int] = now_ms,
    quiet_s: float = QUIET_S,
) -> AsyncIterator[Office]:
    log = Log(store or MemoryStore(), clock)
    office = Office(log, await log.create("plain", wants_work=True), quiet_s)
    try:
        yield office
    finally:
        await office.pool.close()
        await log.close()


# claiming


@on_clock
async def test_session_that_is_opened_and_claimed_at_once_has_one_runner() -> None:
    for turns in range(12):
        async with opened() as office:
            office.pool.start()
            for _ in range(turns):
                await asyncio.sleep(0)
            await office.send("Hello")
            runners = await asyncio.gather(*[office.pool.open(office.session_id) for _ in range(3)])
            await office.wait_for("agent.end")
            assert len({id(runner) for runner in runners}) == 1
            assert office.made == [runners[0]]
            assert (await office.types()).count("agent.start") == 1
            assert (await office.log.info(office.session_id)).fence == runners[0].lease.fence


@on_clock
async def test_opening_a_session_of_another_owner_is_a_conflict_and_leaves_nothing() -> None:
    async with opened() as office:
        assert await office.log.leases.claim(office.session_id, "other")
        with pytest.raises(Conflict, match="another process owns"):
            await office.pool.open(office.session_id)
        assert (len(office.pool), office.pool.find(office.session_id)) == (0, None)
        with pytest.raises(NotFound):
            await office.pool.open("sess_unknown")
        assert len(office.pool) == 0
        assert await office.types() == []


@on_clock
async def test_sessions_of_other_applications_are_not_claimed() -> None:
    async with opened() as office:
        office.pool._apps = ("another",)
        office.pool.start()
        await office.send("Hello")
        for _ in range(20):
            await asyncio.sleep(0)
        assert office.made == []


def test_claim_that_the_store_refuses_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    async def claim() -> None:
        store = RefusingStore(ClaimWanted)
        store.refusals = 3
        async with opened(store) as office:
            office.pool.start()
            await office.send("Hello")
            await office.wait_for("agent.end")
        assert store.refusals == 0

    on_fast_clock(claim)
    assert "no session can be claimed" in caplog.text


@on_clock
async def test_more_sessions_than_one_claim_takes_are_all_claimed() -> None:
    async with opened() as office:
        others = [await office.log.create("plain", wants_work=True) for _ in range(CLAIM_LIMIT + 5)]
        office.pool.start()
        await until(lambda: len(office.made) == len(others) + 1)
        assert {runner.session_id for runner in office.made} == {office.session_id, *others}


@on_clock
async def test_pool_of_a_log_that_is_closed_claims_nothing_more() -> None:
    async with opened() as office:
        office.pool.start()
        await office.pool.open(office.session_id)
        await office.log.close()
        task = office.pool._claim_task
        assert task is not None
        office.log.leases.work_wakeup.wake()
        await task


def test_session_that_is_claimed_while_the_pool_closes_is_left_to_the_next_owner(memory_path: Path) -> None:
    async def close() -> None:
        async with opened(SqliteStore(memory_path / "log.db")) as office:
            async with held(office.log):
                office.pool.start()
                await asyncio.sleep(0)  # the claim waits for the writer
                await asyncio.sleep(0)
                closing = asyncio.create_task(office.pool.close())
                await asyncio.sleep(0)
            await closing
            assert await office.log.leases.owner_of(office.session_id) is None
            [lease] = await office.log.leases.claim_wanted("next")
            assert lease.attempts == 0

    asyncio.run(close())


# releasing


@on_clock
async def test_quiet_runner_is_released_and_claimed_again_for_the_next_message() -> None:
    async with opened() as office:
        office.pool.start()
        await office.send("Hello")
        await office.wait_for("agent.end")
        await office.release()
        last = await office.log.last_seq(office.session_id)
        assert await office.log.leases.owner_of(office.session_id) is None
        await office.send("Again")
        await office.wait_for("agent.end", 2)
        types = (await office.types())[last + 1 :]
        assert "process.start" not in types, "it is the same process"
        assert len(office.made) == 2


@pytest.mark.parametrize("kind", [MemoryStore, SqliteStore])
def test_message_that_arrives_at_any_moment_of_a_release_is_answered(
    memory_path: Path, kind: type[MemoryStore] | type[SqliteStore]
) -> None:
    async def send_after(turns: int) -> None:
        store = SqliteStore(memory_path / f"{turns}.db") if kind is SqliteStore else MemoryStore()
        async with opened(store) as office:
            office.pool.start()
            office.pool.start()
            await office.send("Hello")
            await office.wait_for("agent.end")
            await until(lambda: office.made[0].is_quiet and bool(office.pool._quiet_timers))
            move_on(QUIET_S + 1)
            for _ in range(turns):
                await asyncio.sleep(0)
            await office.send("Again")
            await office.wait_for("agent.end", 2)
            assert (await office.types()).count("agent.start") == 2

    for turns in range(25):
        run_on_clock(partial(send_after, turns))


@on_clock
async def test_runner_that_is_used_is_not_released() -> None:
    async with opened() as office:
        async with office.pool.use(office.session_id) as runner:
            move_on(2 * QUIET_S)
            for _ in range(10):
                await asyncio.sleep(0)
            assert office.pool.find(office.session_id) is runner
        await office.release()


@on_clock
async def test_runner_is_not_released_while_a_turn_runs() -> None:
    async with opened() as office:
        office.pool.start()
        await office.send("Hello")
        await office.wait_for("agent.start")
        move_on(2 * QUIET_S)
        await office.wait_for("agent.end")
        assert len(office.made) == 1


@pytest.mark.parametrize(("text", "last_event"), [("Hello", "agent.end"), ("pay", "approval.request")])
def test_released_runner_leaves_nothing_in_memory(text: str, last_event: str) -> None:
    async def release() -> None:
        async with opened() as office:
            office.pool.start()
            await office.send(text)
            await office.wait_for(last_event)
            await office.release()
            released = weakref.ref(office.made.pop())
            gc.collect()
            assert released() is None

    run_on_clock(release)


@on_clock
async def test_approval_that_expires_after_its_runner_was_released_is_expired() -> None:
    ahead_ms = 0
    async with opened(clock=lambda: now_ms() + ahead_ms) as office:
        office.pool.start()
        await office.send("pay")
        await office.wait_for("approval.request")
        await office.release()
        assert await office.log.leases.next_wake_ms() is not None

        ahead_ms = int(2 * EXPIRES_S * 1000)
        move_on(EXPIRES_S + 1)  # the pool looks at the lease, and opens a runner ...
        await until(
            lambda: len(office.made) == 2 and bool(agent_runtime(office.made[1])._approval_timers._timers)
        )
        move_on(EXPIRES_S + 1)  # ... whose timer goes by the clock of this machine
        await office.wait_for("agent.end")
        types = await office.types()
        assert types.count("approval.decision") == types.count("tool.result") == 1
        assert "session.error" not in types


@on_clock
async def test_remote_call_that_waits_for_an_approval_wakes_its_session_when_that_expires() -> None:
    async with opened() as office:
        office.pool.start()
        await office.send("ship")
        await office.wait_for("approval.request")
        await until(lambda: office.made[0].is_quiet)
        expires_ms = office.made[0].runtime.wake_at_ms
        assert expires_ms is not None
        assert expires_ms > now_ms() + EXPIRES_S * 500
        await office.release()
        for _ in range(50):
            await asyncio.sleep(0)
        assert (len(office.pool), len(office.made)) == (0, 1)


class RefusingStore(MemoryStore):
    """A store that cannot commit some jobs of a kind."""

    def __init__(self, kind: type) -> None:
        super().__init__()
        self._kind = kind
        self.refusals = 0

    def commit(self, jobs: Sequence[Job]) -> list[JobOutcome]:
        if self.refusals and any(isinstance(job, self._kind) for job in jobs):
            self.refusals -= 1
            return [StoreError("no space left on this disk") for _ in jobs]
        return super().commit(jobs)


@on_clock
async def test_pool_waits_although_a_session_of_another_application_is_due() -> None:
    async with opened() as office:
        other = await office.log.create("other")
        lease = await office.log.leases.claim(other, "earlier")
        assert lease is not None
        await office.log.leases.release(lease, seen=-1, wake_at_ms=office.log.now_ms())
        office.pool._apps = {"plain"}
        claims: list[str] = []
        claim_wanted = office.log.leases.claim_wanted

        async def count_claims(*args: Any) -> list[Lease]:
            claims.append("claim")
            return await claim_wanted(*args)

        office.log.leases.claim_wanted = count_claims  # type: ignore[assignment, method-assign]
        office.pool.start()
        await office.send("Hello")
        await office.wait_for("agent.end")
        before = len(claims)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(claims) == before


@on_clock
async def test_session_whose_release_failed_runs_the_next_message() -> None:
    store = RefusingStore(ReleaseLease)
    async with opened(store) as office:
        office.pool.start()
        await office.send("Hello")
        await office.wait_for("agent.end")
        store.refusals = 1
        await until(lambda: office.made[0].is_quiet)
        move_on(QUIET_S + 1)
        await until(lambda: office.made[0].release_failed)
        await office.send("Again")
        move_on(RETRY_S)
        async with asyncio.timeout(HANG_S):
            await office.wait_for("agent.end", 2)


@on_clock
async def test_pool_that_cannot_release_a_session_raises_when_it_closes() -> None:
    store = RefusingStore(ReleaseLease)
    log = Log(store)
    office = Office(log, await log.create("plain"), QUIET_S)
    await office.pool.open(office.session_id)
    store.refusals = 1
    with pytest.raises(StoreError):
        await office.pool.close()
    await log.close()


@on_clock
async def test_runner_of_a_session_that_is_closed_is_released() -> None:
    async with opened() as office:
        await office.pool.open(office.session_id)
        await office.log.close_session(office.session_id)
        await until(lambda: not len(office.pool))
        assert await office.log.leases.owner_of(office.session_id) is None


# failing


@on_clock
async def test_runner_that_lost_its_session_stops_and_writes_nothing() -> None:
    async with opened() as office:
        office.pool.start()
        await office.pool.open(office.session_id)
        before = await office.types()
        lease = await office.lose()
        await office.send("Hello")
        await until(lambda: not len(office.pool))
        assert await office.types() == [*before, "ui.message"]
        assert office.made[0].error is not None
        assert await office.log.leases.owner_of(office.session_id) == "other"
        assert (await office.log.info(office.session_id)).fence == lease.fence


@on_clock
async def test_runner_that_lost_its_session_closes_and_writes_nothing() -> None:
    async with opened() as office:
        runner = await office.pool.open(office.session_id)
        before = await office.types()
        await office.lose()
        await runner.close()
        assert await office.types() == before
        assert await office.log.leases.owner_of(office.session_id) == "other"


def test_runner_that_failed_is_replaced_when_the_store_works_again() -> None:
    async def fail_and_recover() -> list[str]:
        store = FailingStore(first=3, failures=float("inf"))
        async with opened(store) as office:
            office.pool.start()
            await office.send("Hello")
            await until(lambda: office.pool.has_failed(office.session_id))
            assert office.pool.find(office.session_id) is None
            store.failures = 0
            await office.wait_for("agent.end")
            assert len(office.made) > 1
            return await office.types()

    types = on_fast_clock(fail_and_recover)
    assert types.count("agent.start") == types.count("agent.end") == 1
    assert "session.error" not in types


class FatalRetry(RetryPolicy):
    """A policy with a bug."""

    def delay_s(self, failures: int, retry_after_s: float | None = None) -> float:
        raise RuntimeError("a bug")


def test_turn_that_fails_its_runner_twice_is_closed_and_the_next_turn_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fatal_script(messages: list[Message]) -> Iterator[str | Fail]:
        yield Fail() if messages[-1].content[-1]["text"] == "fail" else "Done."

    async def fail() -> list[str]:
        async with opened() as office:
            office.agent = make_agent(script=fatal_script, retry=FatalRetry())
            office.pool.start()
            await office.send("fail")
            for attempt in (1, 2):
                await until(lambda: office.pool.has_failed(office.session_id))
                assert len(office.made) == attempt
                office.pool.retry(office.session_id)
                office.pool.retry(office.session_id)
            await office.wait_for("agent.end")
            await office.send("Hello")
            await office.wait_for("agent.end", 2)
            assert len(office.made) == 3
            return await office.types()

    types = run_on_clock(fail)
    assert types.count("agent.start") == types.count("agent.end") == 2
    assert types.count("session.error") == 1
    assert "a bug" in caplog.text


def test_failures_of_a_turn_do_not_count_against_the_next_turn(caplog: pytest.LogCaptureFixture) -> None:
    def fatal_script(messages: list[Message]) -> Iterator[str | Fail]:
        yield Fail()

    async def fail() -> None:
        async with opened() as office:
            office.agent = make_agent(script=fatal_script, retry=FatalRetry())
            office.pool.start()
            await office.send("first")
            await office.send("second")  # starts in the runner that closes the first turn
            for attempt in (1, 2, 3):
                await until(lambda: office.pool.has_failed(office.session_id))
                assert len(office.made) == attempt
                office.pool.retry(office.session_id)
            await until(lambda: len(office.made) == 4)
            while not office.made[-1].has_ended:
                codes = (await office.types()).count("session.error")
                assert codes == 1, "the second turn has failed one runner so far"
                await asyncio.sleep(0)

    run_on_clock(fail)


class BrokenStore(MemoryStore):
    """A store whose next reads meet a damage."""

    damages_left = 0

    def read(self, session_id: str, after: int, replay_from: int | None, limit_bytes: int) -> Page:
        if self.damages_left:
            self.damages_left -= 1
            raise SessionDamaged(session_id, 0, 0, "broken")
        return super().read(session_id, after, replay_from, limit_bytes)


@on_clock
async def test_session_that_is_damaged_is_opened_behind_the_damage() -> None:
    store = BrokenStore()
    async with opened(store) as office:
        await office.send("Hello")
        store.damages_left = 1
        await office.pool.open(office.session_id)
        assert len(office.made) == 2
        await office.wait_for("agent.end")


def test_session_that_stays_damaged_is_opened_when_it_is_repaired(caplog: pytest.LogCaptureFixture) -> None:
    async def open_damaged() -> None:
        store = BrokenStore()
        async with opened(store) as office:
            await office.send("Hello")
            store.damages_left = 1 << 30
            with pytest.raises(SessionDamaged):
                await office.pool.open(office.session_id)
            assert office.pool.has_failed(office.session_id)
            store.damages_left = 0
            office.pool.retry(office.session_id)
            await office.wait_for("agent.end")

    run_on_clock(open_damaged)
    assert "cannot be run" in caplog.text


@on_clock
async def test_imported_session_whose_agent_runs_is_claimed_at_the_start() -> None:
    async with opened() as office:
        office.pool.start()
        await office.send("pay")
        await office.wait_for("approval.request")
        rows = await office.log.read(office.session_id, -1, max_bytes=1 << 20)
        imported = await office.log.create("plain")
        events = [row for row in rows.envelopes() if not row.type.startswith("process.")]
        await office.log.append(
            imported,
            [
                CATALOG.build_event(
                    CATALOG.decode_payload(event),  # type: ignore[arg-type]
                    id=event.id,
                    origin=event.origin,
                    scope=Scope(trace_id=event.trace_id, agent_id=event.agent_id, depth=event.depth),
                )
                for event in events
            ],
        )
        office.pool._apps = ("another",)
        await office.pool.claim_unowned()
        assert len(office.pool) == 1
        office.pool._apps = ("plain",)
        await office.pool.claim_unowned()
        assert await office.log.leases.owner_of(imported) == office.pool.owner
        assert len(office.pool) == 2
