"""The leases of a log's sessions, with the times of the log's clock (see `leases`).

A store that several processes share ends the rights of an owner that does not renew them. So this process
remembers when it began its last renewal that succeeded: for a lease time after that no other owner can have
claimed its sessions. After a longer pause each lease has to be read again: another owner may have claimed the
session, and a renewal does not bring it back.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from turnlog.errors import CallerError, Fenced, StoreError
from turnlog.log.jobs import (
    ClaimLease,
    ClaimWanted,
    EndOwner,
    Job,
    ReleaseLease,
    RenewOwner,
    ResetAttempts,
    SaveSeen,
    SaveStates,
)
from turnlog.log.leases import Lease, LeaseState
from turnlog.log.store import EventStore, LeaseStore
from turnlog.log.wakeup import Wakeup

CERTAIN_PART = 0.8  # of a lease time: the clocks of two machines do not run equally fast


@dataclass(slots=True)
class OwnerRenewals:
    """When the last renewal of an owner began, by the loop's clock, and the leases that are certain since.

    `fences` has the fence of each session that was claimed or confirmed while no renewal was late.
    """

    began_s: float = -math.inf
    fences: dict[str, int] = field(default_factory=dict)
    is_draining: bool = False


class LogLeases:
    """The leases of a log's sessions (`leases.Leases`)."""

    def __init__(
        self,
        store: EventStore,
        run_job: Callable[[Job], Awaitable[Any]],
        run_read: Callable[..., Awaitable[Any]],
        clock: Callable[[], int],
    ) -> None:
        self._event_store = store
        self._run = run_job
        self._run_read = run_read
        self._clock = clock
        self._owners: dict[str, OwnerRenewals] = {}
        self.work_wakeup = Wakeup()

    @property
    def lease_s(self) -> float | None:
        """Return how long an owner counts as alive without a renewal; None: as long as its process."""
        return self._store.lease_s

    async def claim(self, session_id: str, owner: str) -> Lease | None:
        renewals = self._renewals_of(owner)
        job = ClaimLease(session_id, owner, self._clock())
        lease: Lease | None = await self._run_as_owner(job, renewals)
        if lease is not None:
            renewals.fences[session_id] = lease.fence
        return lease

    async def claim_wanted(
        self, owner: str, apps: Collection[str] | None = None, limit: int = 1
    ) -> list[Lease]:
        names = None if apps is None else frozenset(apps)
        job = ClaimWanted(owner, names, limit, self._clock())
        renewals = self._renewals_of(owner)
        leases: list[Lease] = await self._run_as_owner(job, renewals)
        renewals.fences.update({lease.session_id: lease.fence for lease in leases})
        return leases

    async def release(self, lease: Lease, seen: int, wake_at_ms: int | None = None, state: str = "") -> bool:
        job = ReleaseLease(lease.session_id, lease.owner, lease.fence, seen, wake_at_ms, state)
        is_released: bool = await self._run(job)
        renewals = self._renewals_of(lease.owner)
        if renewals.fences.get(lease.session_id) == lease.fence:
            del renewals.fences[lease.session_id]
        if wake_at_ms is not None:
            self.work_wakeup.wake()  # those who wait for work have to look at the new time
        return is_released

    async def renew(self, owner: str, *, is_draining: bool = False) -> None:
        renewals = self._renewals_of(owner)
        renewals.is_draining = is_draining
        await self._run_as_owner(RenewOwner(owner, self._clock(), is_draining), renewals)

    async def end(self, owner: str) -> None:
        self._owners.pop(owner, None)
        await self._run(EndOwner(owner))

    async def confirm(self, lease: Lease) -> None:
        # This process was paused, or the store was out of reach: another owner may have claimed the session.
        # If the store takes as long as that to answer, its answer is too old, and it is asked again.
        while not self._is_certain(lease):
            renewals = self._renewals_of(lease.owner)
            await self.renew(lease.owner, is_draining=renewals.is_draining)
            fences = renewals.fences
            if not await self.is_held(lease):
                raise Fenced(f"another process owns {lease.session_id} now")
            fences[lease.session_id] = lease.fence  # without effect if a renewal was late meanwhile

    async def is_held(self, lease: Lease) -> bool:
        is_held: bool = await self._run_read(
            self._store.holds_lease, lease.session_id, lease.owner, lease.fence
        )
        return is_held

    def _is_certain(self, lease: Lease) -> bool:
        if self._store.lease_s is None:
            return True
        renewals = self._renewals_of(lease.owner)
        return renewals.fences.get(lease.session_id) == lease.fence and self._is_in_time(renewals)

    def _renewals_of(self, owner: str) -> OwnerRenewals:
        return self._owners.setdefault(owner, OwnerRenewals())

    def _is_in_time(self, renewals: OwnerRenewals) -> bool:
        """Return whether no other owner can count this one as dead yet."""
        lease_s = self._store.lease_s
        return (
            lease_s is None or asyncio.get_running_loop().time() - renewals.began_s < lease_s * CERTAIN_PART
        )

    async def save_seen(self, owner: str, seen: Mapping[str, int]) -> None:
        await self._run(SaveSeen(owner, tuple(seen.items())))

    async def save_states(self, owner: str, states: Mapping[str, str]) -> None:
        await self._run(SaveStates(owner, tuple(states.items())))

    async def reset_attempts(self, lease: Lease) -> bool:
        is_reset: bool = await self._run(ResetAttempts(lease.session_id, lease.owner, lease.fence))
        return is_reset

    async def owner_of(self, session_id: str) -> str | None:
        owner: str | None = await self._run_read(self._store.owner_of, session_id)
        return owner

    async def states(self, session_ids: Collection[str]) -> dict[str, LeaseState]:
        states: dict[str, LeaseState] = await self._run_read(self._store.lease_states, list(session_ids))
        return states

    async def next_wake_ms(self, after_ms: int = -1) -> int | None:
        wake_at_ms: int | None = await self._run_read(self._store.next_wake_ms, after_ms)
        return wake_at_ms

    @property
    def wanted_count(self) -> int:
        return self.work_wakeup.count

    async def wait_for_wanted(self, known_count: int, timeout_s: float | None = None) -> bool:
        return self.work_wakeup.count != known_count or await self.work_wakeup.wait(timeout_s)

    @cached_property
    def _store(self) -> LeaseStore:
        if not isinstance(self._event_store, LeaseStore):
            raise CallerError("this store has no leases")
        return self._event_store

    async def _run_as_owner(self, job: Job, renewals: OwnerRenewals) -> Any:
        """Commit a job that renews its owner. The owner is alive from now on."""
        began_s = asyncio.get_running_loop().time()
        result = await self._run(job)
        if not self._is_in_time(renewals):
            renewals.fences = {}  # a new one: who confirms a lease at this moment has the old one
        renewals.began_s = max(renewals.began_s, began_s)
        return result

    async def close(self) -> None:
        """End the owners of this log. Their leases that were not released count as unclean ends."""
        while self._owners:
            owner, _ = self._owners.popitem()
            with suppress(StoreError):  # a store that cannot be written to is closed all the same
                await self._run(EndOwner(owner))
