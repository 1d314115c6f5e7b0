"""Leases: one owner per session, and the list of sessions that need an owner.

The owner of a session runs its agents. A claim raises the fence in the lease and in the session's record in
one transaction, so the store refuses every later append of an earlier owner. An append that asks for work
marks its session as wanted in its own transaction. `claim_wanted` returns sessions that are wanted, whose
time to wake has come, or whose owner has died. The functions below decide from a stored row alone.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from turnlog.ids import new_process_id


class Lease(NamedTuple):
    """The right to run a session. Appends of its owner carry `fence`.

    `seen` is the last seq that an owner has processed. `attempts` counts the claims since the last release
    or progress whose previous owner died while it had the session.
    """

    session_id: str
    owner: str
    fence: int
    seen: int = -1
    wake_at_ms: int | None = None
    attempts: int = 0


class LeaseState(NamedTuple):
    """What a list of sessions needs of a lease. `is_unclaimed`: work waits, and no owner has claimed it."""

    text: str = ""
    is_unclaimed: bool = False


class LeaseRow(NamedTuple):
    """A lease as it is stored; `owner` is None while the session has none.

    `process` is the process of the owner: an owner of the same name in another process is another one.
    `wanted_seq` is the last event that asked for work: a release that has seen it ends the wish. `state` is
    what the last owner wrote about the session, for lists; the store does not read it.
    """

    session_id: str
    owner: str | None = None
    process: str = ""
    fence: int = 0
    seen: int = -1
    wake_at_ms: int | None = None
    wanted_at_ms: int | None = None
    wanted_seq: int = -1
    attempts: int = 0
    claimed_at_ms: int = 0
    state: str = ""

    @property
    def due_ms(self) -> int:
        """Since when the session needs an owner; the oldest is claimed first."""
        if self.owner is not None:
            return self.claimed_at_ms
        times = [time_ms for time_ms in (self.wanted_at_ms, self.wake_at_ms) if time_ms is not None]
        return min(times, default=0)

    def is_due(self, now_ms: int) -> bool:
        """Return True if a session without an owner is wanted, or its time to wake has come."""
        is_awake = self.wake_at_ms is not None and self.wake_at_ms <= now_ms
        return self.owner is None and (self.wanted_at_ms is not None or is_awake)

    def is_held(self, owner: str, fence: int) -> bool:
        return self.owner == owner and self.fence == fence

    @property
    def summary(self) -> LeaseState:
        return LeaseState(self.state, self.owner is None and self.wanted_at_ms is not None)

    def lease(self) -> Lease:
        """Return the lease of the owner."""
        assert self.owner is not None
        return Lease(self.session_id, self.owner, self.fence, self.seen, self.wake_at_ms, self.attempts)


class Owners:
    """The live owners of this process. A store that belongs to one process has them in memory."""

    def __init__(self) -> None:
        self.process = new_process_id()
        self._names: set[str] = set()

    def restart(self) -> None:
        """Treat all owners so far as those of an earlier process: they are dead."""
        self.process = new_process_id()
        self._names.clear()

    def add(self, owner: str) -> None:
        self._names.add(owner)

    def remove(self, owner: str) -> None:
        self._names.discard(owner)

    def is_alive(self, row: LeaseRow) -> bool:
        return row.process == self.process and row.owner in self._names


def claimed_row(row: LeaseRow, owner: str, process: str, record_fence: int, now_ms: int) -> LeaseRow:
    """Return the row after a claim. The caller has checked that no other live owner has the session.

    An owner that claims its own session again gets a higher fence: what it began before is refused.
    """
    is_own = row.owner == owner and row.process == process
    has_died = row.owner is not None and not is_own
    return row._replace(
        owner=owner,
        process=process,
        fence=max(row.fence, record_fence) + 1,
        attempts=row.attempts + has_died,
        wake_at_ms=None,
        claimed_at_ms=now_ms,
    )


def released_row(row: LeaseRow, seen: int, wake_at_ms: int | None, state: str) -> LeaseRow:
    """Return the row after a release. The session stays wanted if an event after `seen` asked for work."""
    is_wanted = row.wanted_at_ms is not None and row.wanted_seq > seen
    return row._replace(
        owner=None,
        process="",
        seen=seen,
        wake_at_ms=wake_at_ms,
        wanted_at_ms=row.wanted_at_ms if is_wanted else None,
        attempts=0,
        state=state,
    )


def wanted_row(row: LeaseRow, seq: int, now_ms: int) -> LeaseRow:
    """Return the row after an append that asks for work.

    A session that has an owner is marked, too: its owner may be about to release it.
    """
    wanted_at_ms = now_ms if row.wanted_at_ms is None else row.wanted_at_ms
    return row._replace(wanted_at_ms=wanted_at_ms, wanted_seq=seq)


class Leases(Protocol):
    """The leases of a log's sessions (`Log.leases`)."""

    async def claim(self, session_id: str, owner: str) -> Lease | None:
        """Claim a session; None if another live owner has it. Raise `NotFound` if there is none."""
        ...

    async def claim_wanted(
        self, owner: str, apps: Collection[str] | None = None, limit: int = 1
    ) -> list[Lease]:
        """Claim at most `limit` sessions of some applications that need an owner, the oldest first.

        None means all applications. Closed sessions need no owner.
        """
        ...

    async def release(self, lease: Lease, seen: int, wake_at_ms: int | None = None, state: str = "") -> bool:
        """End a lease. Return False if the session was claimed again meanwhile: nothing changes then."""
        ...

    async def renew(self, owner: str, *, is_draining: bool = False) -> None:
        """Record that an owner is alive: one heartbeat for all its sessions.

        The sessions that an owner releases while it is draining need not wait for it to come back.
        """
        ...

    async def confirm(self, lease: Lease) -> None:
        """Return when it is certain that no other owner has the session. Raise `Fenced` if one has.

        This costs nothing while the owner renews in time. While the store is out of reach it waits.
        """
        ...

    async def is_held(self, lease: Lease) -> bool:
        """Read whether an owner has a session under the fence of this lease."""
        ...

    async def end(self, owner: str) -> None:
        """Record that an owner has ended. Its leases that were not released count as unclean ends."""
        ...

    async def save_seen(self, owner: str, seen: Mapping[str, int]) -> None:
        """Store the last processed seq of sessions; those that the owner does not own are ignored."""
        ...

    async def save_states(self, owner: str, states: Mapping[str, str]) -> None:
        """Store what an owner says of sessions; those that it does not own are ignored."""
        ...

    async def reset_attempts(self, lease: Lease) -> bool:
        """Record progress: `attempts` is 0 again. Return False if the session was claimed again."""
        ...

    async def owner_of(self, session_id: str) -> str | None:
        """Return the live owner of a session; None if it has none."""
        ...

    async def states(self, session_ids: Collection[str]) -> dict[str, LeaseState]:
        """Return the states of sessions that have a lease; the text is that of the last owner."""
        ...

    async def next_wake_ms(self, after_ms: int = -1) -> int | None:
        """Return the earliest time to wake after a time, of sessions without an owner; None without one."""
        ...

    @property
    def wanted_count(self) -> int:
        """Return how often this log was told that a session is wanted."""
        ...

    async def wait_for_wanted(self, known_count: int, timeout_s: float | None = None) -> bool:
        """Wait until `wanted_count` is not `known_count` any more; return False after the timeout.

        Times to wake are not watched: claim after each return.
        """
        ...
