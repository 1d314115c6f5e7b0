"""Contracts of a store: leases, fences and sessions that need an owner."""

from turnlog.errors import Fenced, NotFound
from turnlog.log import Lease
from turnlog.log.jobs import EndOwner
from turnlog.log.leases import LeaseState
from turnlog.testing.factories import durable_event
from turnlog.testing.harness import LogHarness, StoreFactory, expect_raises, open_harness


async def claim(harness: LogHarness, owner: str, session: str = "") -> Lease:
    """Claim a session that no other live owner has."""
    lease = await harness.log.leases.claim(session or harness.session, owner)
    assert lease is not None
    return lease


async def claim_raises_fence(make_store: StoreFactory) -> None:
    """A claim raises the fence of the session: an append of an earlier owner is refused at once."""
    async with open_harness(make_store) as harness:
        leases = harness.log.leases
        first = await claim(harness, "one")
        assert first == Lease(harness.session, "one", fence=1)
        assert await harness.append(durable_event("a"), fence=first.fence) == [0]
        assert await leases.release(first, seen=0)
        second = await claim(harness, "two")
        assert second.fence == (await harness.info()).fence == 2
        await expect_raises(Fenced, harness.append(durable_event("b"), fence=first.fence))
        assert await harness.append(durable_event("b"), fence=second.fence) == [1]
        assert await harness.append(durable_event("c")) == [2]  # a client has no fence
        await expect_raises(NotFound, leases.claim("sess_unknown", "one"))


async def live_owner_keeps_session(make_store: StoreFactory) -> None:
    """No other owner can claim a session while its owner is alive; the owner itself gets a new fence."""
    async with open_harness(make_store) as harness:
        leases = harness.log.leases
        assert await leases.owner_of(harness.session) is None
        first = await claim(harness, "one")
        assert await leases.owner_of(harness.session) == "one"
        assert await leases.claim(harness.session, "two") is None
        await harness.append(durable_event("a"), wants_work=True)
        assert await leases.claim_wanted("two") == []
        assert (await harness.info()).fence == first.fence
        again = await claim(harness, "one")
        assert (again.fence, again.attempts) == (first.fence + 1, 0)
        assert not await leases.release(first, seen=0)
        assert await leases.owner_of(harness.session) == "one"


async def release_keeps_seen(make_store: StoreFactory) -> None:
    """A release ends the ownership; the next owner gets the seq that was seen."""
    async with open_harness(make_store) as harness:
        lease = await claim(harness, "one")
        await harness.append(durable_event("a"), durable_event("b"), fence=lease.fence)
        assert await harness.log.leases.release(lease, seen=1)
        assert not await harness.log.leases.release(lease, seen=0)
        assert await harness.log.leases.owner_of(harness.session) is None
        assert await harness.log.leases.claim_wanted("two") == []
        assert (await claim(harness, "two")).seen == 1


async def wake_time(make_store: StoreFactory) -> None:
    """A session that was released with a time to wake needs an owner from that time on, and once."""
    async with open_harness(make_store) as harness:
        leases = harness.log.leases
        await leases.release(await claim(harness, "one"), seen=-1, wake_at_ms=harness.now_ms + 1000)
        harness.now_ms += 999
        assert await leases.claim_wanted("two") == []
        harness.now_ms += 1
        [lease] = await leases.claim_wanted("two")
        assert (lease.session_id, lease.owner, lease.attempts) == (harness.session, "two", 0)
        await leases.release(lease, seen=-1)
        assert await leases.claim_wanted("two") == []


async def wanted_sessions(make_store: StoreFactory) -> None:
    """Appends that ask for work mark sessions as wanted; owners claim them, the oldest first."""
    async with open_harness(make_store) as harness:
        leases = harness.log.leases
        others = [await harness.log.create("other") for _ in range(3)]
        for session in [*others, harness.session]:
            harness.now_ms += 1000
            await harness.append(durable_event(f"a-{session[-4:]}"), session=session, wants_work=True)
        await harness.append(durable_event("b"), session=others[0], wants_work=True)  # as old as before
        await harness.log.close_session(others[1])
        await harness.log.create("other")  # not wanted

        assert [lease.session_id for lease in await leases.claim_wanted("one", ["other"], 1)] == [others[0]]
        assert await leases.claim_wanted("one", []) == []
        claimed = await leases.claim_wanted("one", None, 10)
        assert [lease.session_id for lease in claimed] == [others[2], harness.session]
        assert await leases.claim_wanted("one", None, 10) == []


async def appends_that_want_nothing(make_store: StoreFactory) -> None:
    """An append of an owner, a retry and an append that does not ask for work mark no session."""
    async with open_harness(make_store) as harness:
        leases = harness.log.leases
        await harness.append(durable_event("a"))
        assert await leases.claim_wanted("one") == []
        await harness.append(durable_event("a"), wants_work=True)
        assert await leases.claim_wanted("one") == []
        lease = await claim(harness, "one")
        await harness.append(durable_event("b"), fence=lease.fence, wants_work=True)
        await leases.release(lease, seen=1)
        assert await leases.claim_wanted("one") == []


async def wish_survives_release(make_store: StoreFactory) -> None:
    """What asks for work after the seq that an owner has seen is not lost by its release."""
    async with open_harness(make_store) as harness:
        leases = harness.log.leases
        lease = await claim(harness, "one")
        await harness.append(durable_event("a"), wants_work=True)
        await harness.append(durable_event("b"), wants_work=True)
        await leases.release(lease, seen=0)
        [lease] = await leases.claim_wanted("two")
        assert lease.seen == 0
        await leases.release(lease, seen=1)
        assert await leases.claim_wanted("two") == []


async def new_session_wants_work(make_store: StoreFactory) -> None:
    """A session that is created with a wish for work is wanted; one without it is not."""
    async with open_harness(make_store) as harness:
        leases = harness.log.leases
        known_count = leases.wanted_count
        await harness.log.create("contract")
        assert await leases.claim_wanted("one", limit=5) == []
        session = await harness.log.create("contract", wants_work=True)
        assert await leases.wait_for_wanted(known_count)
        assert await leases.states([session]) == {session: LeaseState(is_unclaimed=True)}
        assert [lease.session_id for lease in await leases.claim_wanted("one", limit=5)] == [session]
        assert await leases.states([session]) == {session: LeaseState()}


async def state_is_written_by_release(make_store: StoreFactory) -> None:
    """Lists read what the last owners wrote, and the pool of runners the earliest time to wake."""
    async with open_harness(make_store) as harness:
        leases = harness.log.leases
        other = await harness.log.create("contract")
        assert await leases.states([harness.session, other]) == {}
        assert await leases.next_wake_ms() is None
        await leases.release(await claim(harness, "one"), seen=-1, wake_at_ms=7_000, state="waiting")
        await leases.release(await claim(harness, "one", other), seen=-1, wake_at_ms=9_000)
        states = await leases.states([harness.session, other, "sess_unknown"])
        assert states == {harness.session: LeaseState("waiting"), other: LeaseState()}
        assert await leases.next_wake_ms() == 7_000
        assert [await leases.next_wake_ms(after) for after in (7_000, 9_000)] == [9_000, None]
        await claim(harness, "two")
        assert await leases.next_wake_ms() == 9_000
        assert await leases.states([harness.session]) == {harness.session: LeaseState("waiting")}


async def attempts_count_unclean_ends(make_store: StoreFactory) -> None:
    """The session of a dead owner is claimed; `attempts` counts such claims until a release or progress."""
    async with open_harness(make_store) as harness:
        log = harness.log
        await claim(harness, "one")
        await log.run_job(EndOwner("one"))
        assert await log.leases.owner_of(harness.session) is None
        [lease] = await log.leases.claim_wanted("two")
        assert (lease.fence, lease.attempts) == (2, 1)
        await log.run_job(EndOwner("two"))
        lease = await claim(harness, "three")
        assert lease.attempts == 2

        assert await log.leases.reset_attempts(lease)
        await log.run_job(EndOwner("three"))
        lease = await claim(harness, "four")
        assert lease.attempts == 1
        assert await log.leases.release(lease, seen=-1)
        assert (await claim(harness, "five")).attempts == 0
        assert not await log.leases.reset_attempts(lease)


async def seen_is_saved_by_its_owner(make_store: StoreFactory) -> None:
    """An owner saves how far it has come, for all its sessions at once; those of others do not change."""
    async with open_harness(make_store) as harness:
        leases = harness.log.leases
        other = await harness.log.create("contract")
        lease = await claim(harness, "one")
        await claim(harness, "two", other)
        await leases.renew("one")
        await leases.save_seen("one", {harness.session: 7, other: 9, "sess_unknown": 1})
        await harness.log.run_job(EndOwner("one"))
        await harness.log.run_job(EndOwner("two"))
        seen = {lease.session_id: lease.seen for lease in await leases.claim_wanted("three", limit=5)}
        assert seen == {harness.session: 7, other: -1}
        assert not await leases.release(lease, seen=8)


async def states_are_saved_by_their_owner(make_store: StoreFactory) -> None:
    """An owner saves what it says of its sessions, all at once; those of others do not change."""
    async with open_harness(make_store) as harness:
        leases = harness.log.leases
        other = await harness.log.create("contract")
        lease = await claim(harness, "one")
        await claim(harness, "two", other)
        await leases.save_states("one", {harness.session: "busy", other: "busy", "sess_unknown": "busy"})
        states = await leases.states([harness.session, other])
        assert states == {harness.session: LeaseState("busy"), other: LeaseState()}
        await leases.save_states("one", {})
        await leases.save_states("one", {harness.session: ""})
        assert await leases.states([harness.session]) == {harness.session: LeaseState()}
        await leases.save_states("one", {harness.session: "waiting"})
        assert await leases.release(lease, seen=-1, state="resting")
        await leases.save_states("one", {harness.session: "busy"})  # it is not the owner any more
        assert await leases.states([harness.session]) == {harness.session: LeaseState("resting")}


async def owner_confirms_its_lease(make_store: StoreFactory) -> None:
    """A lease is held by the owner that claimed it last, under the fence of that claim."""
    async with open_harness(make_store) as harness:
        leases = harness.log.leases
        first = await claim(harness, "one")
        await leases.confirm(first)
        assert await leases.is_held(first)
        second = await claim(harness, "one")
        await leases.confirm(second)
        assert [await leases.is_held(lease) for lease in (first, second)] == [False, True]
        assert not await leases.is_held(second._replace(owner="two"))
        assert not await leases.is_held(second._replace(session_id="sess_unknown"))
        await leases.release(second, seen=-1)
        assert not await leases.is_held(second)


async def draining_owner_keeps_its_sessions(make_store: StoreFactory) -> None:
    """An owner that drains is alive: its sessions are its own until it releases them."""
    async with open_harness(make_store) as harness:
        leases = harness.log.leases
        lease = await claim(harness, "one")
        await harness.append(durable_event("a"), wants_work=True)
        await leases.renew("one", is_draining=True)
        assert await leases.owner_of(harness.session) == "one"
        assert await leases.claim_wanted("two") == []
        await leases.confirm(lease)
        assert await leases.release(lease, seen=-1)
        [taken] = await leases.claim_wanted("two")
        assert (taken.session_id, taken.attempts) == (harness.session, 0)


async def leases_survive_reopen(make_store: StoreFactory) -> None:
    """Leases outlive the process: its owners are dead, what was seen, wanted and due stays."""
    async with open_harness(make_store) as harness:
        wanted, waking = [await harness.log.create("contract") for _ in range(2)]
        await claim(harness, "one")
        await harness.log.leases.save_seen("one", {harness.session: 5})
        harness.now_ms += 1000
        await harness.append(durable_event("a"), session=wanted, wants_work=True)
        lease = await claim(harness, "one", waking)
        await harness.log.leases.release(lease, seen=3, wake_at_ms=harness.now_ms + 1000)

    async with open_harness(make_store) as harness:
        harness.now_ms += 1500
        assert await harness.log.leases.owner_of(harness.session) is None
        await harness.log.leases.renew("one")  # another owner of the same name
        assert await harness.log.leases.owner_of(harness.session) is None
        harness.now_ms += 1000
        assert await harness.log.leases.claim_wanted("one", limit=5) == [
            Lease(harness.session, "one", fence=2, seen=5, attempts=1),
            Lease(wanted, "one", fence=1),
            Lease(waking, "one", fence=2, seen=3),
        ]
