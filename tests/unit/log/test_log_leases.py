"""When a lease is certain without a read, on a store whose owners have to renew."""

import pytest

from tests.support.limited_session import on_clock
from tests.support.manual_clock import move_on
from turnlog.errors import Fenced
from turnlog.log import Lease, Log, MemoryStore
from turnlog.log.jobs import EndOwner
from turnlog.log.log_leases import CERTAIN_PART

LEASE_S = 10.0
LATE_S = LEASE_S * CERTAIN_PART + 0.1
IN_TIME_S = LEASE_S * CERTAIN_PART / 2


class CountingStore(MemoryStore):
    """A store in memory that says its leases end, and counts the reads of them."""

    def __init__(self) -> None:
        super().__init__()
        self.lease_s = LEASE_S
        self.reads = 0
        self.seconds_per_read = 0.0

    def holds_lease(self, session_id: str, owner: str, fence: int) -> bool:
        self.reads += 1
        move_on(self.seconds_per_read)
        return super().holds_lease(session_id, owner, fence)


async def open_claimed() -> tuple[Log, CountingStore, Lease]:
    store = CountingStore()
    log = Log(store)
    lease = await log.leases.claim(await log.create("plain"), "one")
    assert lease is not None
    return log, store, lease


async def lose(log: Log, lease: Lease) -> None:
    """Let another owner claim the session, as if this one had been taken for dead."""
    await log.run_job(EndOwner(lease.owner))
    assert await log.leases.claim(lease.session_id, "two") is not None


@on_clock
async def test_a_lease_whose_owner_renews_in_time_is_not_read() -> None:
    log, store, lease = await open_claimed()
    for _ in range(5):
        await log.leases.confirm(lease)
        move_on(IN_TIME_S)
        await log.leases.renew("one")
    await log.leases.confirm(lease)
    assert store.reads == 0
    await log.close()


@on_clock
async def test_a_lease_is_read_once_after_a_pause() -> None:
    log, store, lease = await open_claimed()
    move_on(LATE_S)
    await log.leases.confirm(lease)
    await log.leases.confirm(lease)
    assert store.reads == 1
    await log.close()


@on_clock
async def test_a_lease_that_was_lost_in_a_pause_is_refused_also_after_a_renewal() -> None:
    """The pool renews as soon as the process goes on: that must not make its old leases certain."""
    log, store, lease = await open_claimed()
    await lose(log, lease)
    move_on(LATE_S)
    await log.leases.renew("one")
    for _ in range(2):
        with pytest.raises(Fenced, match="another process owns"):
            await log.leases.confirm(lease)
    assert store.reads == 2
    await log.close()


@on_clock
async def test_an_answer_that_took_too_long_is_asked_for_again() -> None:
    log, store, lease = await open_claimed()
    move_on(LATE_S)
    store.seconds_per_read = LATE_S

    def answer_in_time() -> None:
        store.seconds_per_read = 0.0

    holds_lease = store.holds_lease

    def holds_later(session_id: str, owner: str, fence: int) -> bool:
        is_held = holds_lease(session_id, owner, fence)
        if store.reads == 3:
            answer_in_time()
        return is_held

    store.holds_lease = holds_later  # type: ignore[method-assign]
    await log.leases.confirm(lease)
    assert store.reads == 4
    await log.close()


@on_clock
async def test_a_lease_of_another_fence_is_read() -> None:
    log, store, lease = await open_claimed()
    with pytest.raises(Fenced):
        await log.leases.confirm(lease._replace(fence=lease.fence + 1))
    again = await log.leases.claim(lease.session_id, "one")
    assert again is not None
    await log.leases.confirm(again)
    with pytest.raises(Fenced):
        await log.leases.confirm(lease)
    assert store.reads == 2
    await log.close()


@on_clock
async def test_a_released_lease_is_not_certain() -> None:
    log, _, lease = await open_claimed()
    assert await log.leases.release(lease, -1)
    with pytest.raises(Fenced):
        await log.leases.confirm(lease)
    await log.close()
