"""Contracts of a store that several logs share, as several processes share a database.

The store factory is called once for each log. A store inside one process returns the same object each time;
a store of a server returns a new connection to the same database.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from msgspec import structs

from turnlog.errors import Conflict, Fenced, StoreError
from turnlog.log import Damage, Lease, Log, Row, Store
from turnlog.log.jobs import EndOwner, Job, JobOutcome, QuarantineDamage
from turnlog.log.leases import LeaseState
from turnlog.testing.factories import block_delta_event, durable_event, durable_events
from turnlog.testing.harness import (
    LogHarness,
    StoreFactory,
    expect_conflict,
    expect_raises,
    open_follower,
)
from turnlog.testing.leasing import claim
from turnlog.testing.sessions import member_event


@asynccontextmanager
async def open_logs(make_store: StoreFactory, count: int = 2) -> AsyncIterator[list[LogHarness]]:
    """Open logs on one store, with one session and one clock, that of the first."""
    harnesses: list[LogHarness] = []
    for _ in range(count):
        harnesses.append(LogHarness(Log(make_store(), lambda: harnesses[0].now_ms)))
    try:
        await harnesses[0].log.create("contract", harnesses[0].session)
        yield harnesses
    finally:
        for harness in harnesses:
            await harness.log.close()


class WrappedStore:
    """A store around the one under test."""

    def __init__(self, store: Store) -> None:
        self._inner = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class DeafStore(WrappedStore):
    """A store whose bell never rings."""

    reconcile_s = 0.02

    def listen(self, ring: object) -> Any:
        return lambda: None


class AwayStore(WrappedStore):
    """A store that cannot be reached for a while."""

    is_away = False

    def commit(self, jobs: Sequence[Job]) -> list[JobOutcome]:
        if self.is_away:
            return [StoreError("the store cannot be reached") for _ in jobs]
        return self._inner.commit(jobs)


async def followed(harness: LogHarness, last: int, after: int = -1) -> list[int]:
    """Return the seqs that a follower gets up to a last one."""
    return [row.seq for row in await harness.follow_until(last, after)]


async def wait_until_followed(harness: LogHarness) -> None:
    while not (tail := harness.log.tails.get(harness.session)) or not tail.is_synced:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def dense_with_several_writers(make_store: StoreFactory) -> None:
    """Seqs are dense and in the order of each log's appends, whichever log appends."""
    async with open_logs(make_store) as (one, two):
        jobs = []
        for number in range(100):
            harness = (one, two)[number % 2]
            jobs.append(harness.log.submit(harness.session, [durable_event(str(number))]))
        seqs = [result.seqs[0] for result in await asyncio.gather(*jobs)]
        assert sorted(seqs) == await one.read_seqs() == await two.read_seqs() == list(range(100))
        assert seqs[0::2] == sorted(seqs[0::2])
        assert seqs[1::2] == sorted(seqs[1::2])


async def followers_miss_nothing(make_store: StoreFactory) -> None:
    """A follower of any log gets every event once and in order, whichever log appends."""
    async with open_logs(make_store, 3) as harnesses:
        followers = [asyncio.create_task(followed(harness, 149)) for harness in harnesses for _ in range(2)]
        for number in range(50):
            appends = [
                harness.append(durable_event(f"{number}-{place}")) for place, harness in enumerate(harnesses)
            ]
            if number % 3:
                await asyncio.gather(*appends)
            else:
                for append in appends:
                    await append
        assert await asyncio.gather(*followers) == [list(range(150))] * 6


async def one_event_per_id(make_store: StoreFactory) -> None:
    """The same event appended to several logs at once is stored once; one of them is told that it is new."""
    async with open_logs(make_store, 3) as harnesses:
        for number in range(20):
            event = durable_event(str(number))
            results = await asyncio.gather(
                *[harness.log.append(harness.session, [event]) for harness in harnesses]
            )
            assert [result.seqs for result in results] == [[number]] * 3
            assert sorted(result.new for result in results) == [[False], [False], [True]]
        conflict = await expect_conflict(harnesses[1].append(durable_event("3", "another text")))
        assert conflict == 19


async def expectations_hold_across_logs(make_store: StoreFactory) -> None:
    """Expected positions are those of the session, whichever log has moved it."""
    async with open_logs(make_store) as (one, two):
        assert await one.append(durable_event("a"), expected_last=-1) == [0]
        assert await expect_conflict(two.append(durable_event("b"), expected_last=-1)) == 0
        assert await two.append(durable_event("b"), expected_last=0, expected_durable_count=1) == [1]
        assert await expect_conflict(one.append(durable_event("c"), expected_durable_count=1)) == 1
        both = await asyncio.gather(
            one.append(durable_event("c"), expected_last=1),
            two.append(durable_event("d"), expected_last=1),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in both if isinstance(outcome, Exception)] == [Conflict]
        assert await one.read_seqs() == [0, 1, 2]


async def fence_refuses_at_once(make_store: StoreFactory) -> None:
    """After a claim in one log the earlier owner is refused in another, before the new one has written."""
    async with open_logs(make_store) as (one, two):
        lease = await claim(one, "one")
        await one.append(durable_event("a"), fence=lease.fence)
        await one.log.leases.release(lease, seen=0)
        await claim(two, "two")
        await expect_raises(Fenced, one.append(durable_event("b"), fence=lease.fence))
        assert await two.read_seqs() == [0]


async def closing_ends_followers_elsewhere(make_store: StoreFactory) -> None:
    """Followers of every log end when one log closes the session."""
    async with open_logs(make_store, 3) as harnesses:
        followers = [asyncio.create_task(followed(harness, 99)) for harness in harnesses]
        for harness in harnesses:
            await wait_until_followed(harness)
        await harnesses[1].append(durable_event("a"))
        await harnesses[2].close_session()
        assert await asyncio.gather(*followers) == [[0]] * 3
        assert all([(await harness.info()).closed for harness in harnesses])


async def epoch_ends_followers_elsewhere(make_store: StoreFactory) -> None:
    """Followers of every log end when one log records a damage of the session."""
    async with open_logs(make_store, 3) as harnesses:
        await harnesses[0].append(*durable_events("a", "b"))
        followers = [asyncio.create_task(followed(harness, 99, after=1)) for harness in harnesses]
        for harness in harnesses:
            await wait_until_followed(harness)
        epoch = (await harnesses[1].info()).epoch
        await harnesses[0].log.run_job(QuarantineDamage(Damage(harnesses[0].session, 0, 0, "contract")))
        assert await asyncio.gather(*followers) == [[], [], []]
        epochs = {(await harness.info()).epoch for harness in harnesses}
        assert len(epochs) == 1
        assert epoch not in epochs


async def members_change_elsewhere(make_store: StoreFactory) -> None:
    """A change of members in one log is in the record that another log returns, followed or not."""
    async with open_logs(make_store) as (one, two):
        async with open_follower(two.log, two.session) as pages:
            page = asyncio.create_task(anext(cast(Any, pages)))
            await wait_until_followed(two)
            await one.append(member_event("ada", "owner"))
            assert [row.seq for row in cast(list[Row], await page)] == [0]
            assert (await two.info()).members == {"ada": ("owner",)}
            for number in range(20):
                await one.append(member_event("bob", f"role-{number}"))
                assert (await two.info()).members["bob"] == (f"role-{number}",)
        await one.append(member_event("ada"))
        assert "ada" not in (await two.info()).members


async def deaf_bell(make_store: StoreFactory) -> None:
    """A follower whose log hears no bell gets the events of another log by reconciliation."""

    def make_deaf() -> Store:
        return cast(Store, DeafStore(make_store()))

    async with open_logs(make_store, 1) as [one], open_deaf_log(make_deaf, one) as two:
        follower = asyncio.create_task(followed(two, 4))
        await wait_until_followed(two)
        for number in range(5):
            await one.append(durable_event(str(number)))
        assert await follower == [0, 1, 2, 3, 4]


@asynccontextmanager
async def open_deaf_log(make_store: StoreFactory, first: LogHarness) -> AsyncIterator[LogHarness]:
    harness = LogHarness(Log(make_store(), lambda: first.now_ms))
    try:
        yield harness
    finally:
        await harness.log.close()


async def create_at_once(make_store: StoreFactory) -> None:
    """Of several logs that create a session at once one succeeds; the others find it with its events."""
    async with open_logs(make_store, 3) as harnesses:
        for number in range(10):
            session = f"sess_new-{number}"
            outcomes = await asyncio.gather(
                *[
                    harness.log.create("contract", session, [member_event(f"p{place}", "owner")])
                    for place, harness in enumerate(harnesses)
                ],
                return_exceptions=True,
            )
            assert sorted(isinstance(outcome, Conflict) for outcome in outcomes) == [False, True, True]
            winner = next(place for place, outcome in enumerate(outcomes) if outcome == session)
            for harness in harnesses:
                assert (await harness.log.info(session)).members == {f"p{winner}": ("owner",)}


async def opposite_orders(make_store: StoreFactory) -> None:
    """Logs that write to the same sessions in opposite orders do not wait for each other for ever."""
    async with open_logs(make_store) as (one, two):
        sessions = [await one.log.create("contract") for _ in range(10)]
        jobs = []
        for number in range(20):
            for first, second in zip(sessions, reversed(sessions), strict=True):
                jobs.append(one.log.submit(first, [durable_event(f"one-{number}")]))
                jobs.append(two.log.submit(second, [durable_event(f"two-{number}")]))
        await asyncio.gather(*jobs)
        for session in sessions:
            assert await two.read_seqs(session=session) == list(range(40))


async def dead_owner_is_replaced_once(make_store: StoreFactory) -> None:
    """The session of a dead owner is claimed by one other owner; that of a live owner by none."""
    async with open_logs(make_store, 3) as (one, two, three):
        other = await one.log.create("contract")
        await claim(one, "one")
        await claim(two, "two", other)
        await two.log.leases.renew("two")
        await one.log.close()
        claims: list[list[Lease]] = []
        while not any(claims):
            claims = await asyncio.gather(
                *[two.log.leases.claim_wanted("two"), three.log.leases.claim_wanted("three")]
            )
        [lease] = [lease for leases in claims for lease in leases]
        assert (lease.session_id, lease.fence, lease.attempts) == (one.session, 2, 1)
        assert await three.log.leases.owner_of(other) == "two"


async def owners_survive_an_outage(make_store: StoreFactory) -> None:
    """After an outage of the store nothing is claimed from owners that are still alive."""
    stores: list[AwayStore] = []

    def make_away() -> Store:
        stores.append(AwayStore(make_store()))
        return cast(Store, stores[-1])

    async with open_logs(make_away) as (one, two):
        lease = await claim(one, "one")
        for store in stores:
            store.is_away = True
        await expect_raises(StoreError, one.append(durable_event("a"), fence=lease.fence))
        await expect_raises(StoreError, two.log.leases.claim(two.session, "two"))
        for store in stores:
            store.is_away = False
        assert await two.log.leases.claim_wanted("two", limit=5) == []
        assert await two.log.leases.claim(two.session, "two") is None
        assert await one.append(durable_event("a"), fence=lease.fence) == [0]


async def lost_lease_is_not_held(make_store: StoreFactory) -> None:
    """A lease that another owner has claimed is not held any more, also if its owner renews again."""
    async with open_logs(make_store) as (one, two):
        lost = await claim(one, "one")
        assert await one.log.leases.is_held(lost)
        await one.log.run_job(EndOwner("one"))
        [lease] = await two.log.leases.claim_wanted("two")
        await one.log.leases.renew("one")
        assert not await one.log.leases.is_held(lost)
        assert await two.log.leases.is_held(lease)
        await one.log.leases.save_states("one", {one.session: "busy"})
        assert await two.log.leases.states([one.session]) == {one.session: LeaseState()}


async def lease_data_reaches_other_logs(make_store: StoreFactory) -> None:
    """What one owner has seen, and when the session shall wake, reaches an owner in another log."""
    async with open_logs(make_store) as (one, two):
        lease = await claim(one, "one")
        await one.append(durable_event("a"), fence=lease.fence)
        await one.log.leases.release(lease, seen=0, wake_at_ms=one.now_ms + 1000)
        assert await two.log.leases.claim_wanted("two") == []
        one.now_ms += 1000
        [lease] = await two.log.leases.claim_wanted("two")
        assert (lease.seen, lease.fence) == (0, 2)


async def wanted_reaches_other_logs(make_store: StoreFactory) -> None:
    """An append that asks for work wakes the owners of other logs, and one of them claims the session."""
    async with open_logs(make_store) as (one, two):
        waiting = asyncio.create_task(two.log.leases.wait_for_wanted(two.log.leases.wanted_count, 10.0))
        await asyncio.sleep(0)
        await one.append(durable_event("a"), wants_work=True)
        assert await waiting
        [lease] = await two.log.leases.claim_wanted("two")
        assert lease.session_id == one.session
        assert await one.log.leases.claim_wanted("one") == []


async def bad_value_fails_alone(make_store: StoreFactory) -> None:
    """A value that cannot be stored fails its own append, not those of other sessions or logs."""
    async with open_logs(make_store) as (one, two):
        bad = structs.replace(durable_event("x"), id="evt_\ud800")
        jobs = []
        for number in range(20):
            for harness in (one, two):
                name = f"{number}-{harness is one}"
                jobs.append(harness.log.submit(harness.session, [durable_event(name)]))
                jobs.append(harness.log.submit(harness.session, [durable_event(f"{name}-bad"), bad]))
        outcomes = await asyncio.gather(*jobs, return_exceptions=True)
        assert not any(isinstance(outcome, BaseException) for outcome in outcomes[0::2])
        assert all(isinstance(outcome, Exception) for outcome in outcomes[1::2])
        assert await two.read_seqs() == list(range(40))


async def stopped_caller_blocks_no_writer(make_store: StoreFactory) -> None:
    """A caller that stops in the middle of an append holds up no append of another log."""
    async with open_logs(make_store) as (one, two):
        for number in range(20):
            waiting = asyncio.create_task(one.append(durable_event(f"one-{number}")))
            await asyncio.sleep(0)
            waiting.cancel()
            await two.append(durable_event(f"two-{number}"))
        await one.append(durable_event("last"))
        assert await two.read_seqs() == list(range(41))


async def wanted_is_claimed_once(make_store: StoreFactory) -> None:
    """A wanted session is claimed by one owner, however many claim at the same time."""
    async with open_logs(make_store, 3) as harnesses:
        sessions = [await harnesses[0].log.create("contract", wants_work=True) for _ in range(40)]
        claims: list[str] = []

        async def claim_all(log: Log, owner: str) -> None:
            while len(claims) < len(sessions):
                claims.extend(lease.session_id for lease in await log.leases.claim_wanted(owner, limit=4))

        await asyncio.gather(
            *[claim_all(harness.log, f"owner-{number}") for number, harness in enumerate(harnesses)]
        )
        assert sorted(claims) == sorted(sessions)


async def reading_changes_nothing(make_store: StoreFactory) -> None:
    """Reading a session in any way, in other logs, while its owner appends changes nothing in the store."""
    async with open_logs(make_store, 3) as (owner, *readers):
        other = await owner.log.create("contract")
        lease = await claim(owner, "owner")
        followers = [asyncio.create_task(followed(reader, 59)) for reader in readers]
        rows: list[Row] = []
        for number in range(20):
            events = [
                durable_event(f"{number}-a"),
                block_delta_event("b", number),
                durable_event(f"{number}-c"),
            ]
            owner.now_ms += 1000
            await asyncio.gather(
                owner.append(*events, fence=lease.fence), *[read_everything(reader) for reader in readers]
            )
            stored = await owner.read_rows()
            assert stored[: len(rows)] == rows
            assert len(stored) == len(rows) + len(events)
            rows = stored

        assert await asyncio.gather(*followers) == [list(range(60))] * 2
        for harness in (owner, *readers):
            record = await harness.info()
            assert (record.last, record.durable_count, record.fence) == (59, 40, lease.fence)
            listed = await harness.log.listing(None)
            assert [entry.session_id for _, entry in listed] == [owner.session, other]
            assert await harness.snapshot("contract", 59) is None
            assert await harness.log.leases.owner_of(owner.session) == "owner"
            assert await harness.log.leases.claim_wanted("reader", limit=5) == []
        await owner.expect_undamaged()


async def read_everything(harness: LogHarness) -> None:
    """Use each way to read a session once."""
    log = harness.log
    last = (await harness.info()).last
    await harness.read_rows(replay_from=-1)
    async with open_follower(log, harness.session, last - 1) as pages:
        if last >= 0:
            await anext(pages)
    await log.sessions()
    await log.listing(None, limit=5)
    await log.sessions_with_open_agents()
    await log.find_events(harness.session, ["evt_0-a"])
    await log.documents(harness.session)
    await harness.snapshot("contract", last)
    await harness.turn_bounds("tr_1")
    await log.leases.owner_of(harness.session)
    await log.leases.states([harness.session])
    await log.leases.next_wake_ms()
