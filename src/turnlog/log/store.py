"""The store interface: what a log needs from its storage.

`EventStore` is required. The other protocols are abilities that a store may have: an index of spans, a
directory of sessions, blobs, derived data, maintenance, leases. A log on a store without an ability refuses
the calls that need it.

A store is synchronous. `commit` may be called from any thread, and so may all reads. All changes are jobs
(`jobs`): no function of the caller runs inside a transaction. A store never returns a row that fails its
integrity check: it returns the good rows before it, and raises `SessionDamaged` when the next read begins
with it. `turnlog.testing` has the numbered contracts that every store must fulfil.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from turnlog.log.bell import RingListener, StopListening
from turnlog.log.jobs import Job, JobOutcome
from turnlog.log.leases import LeaseState
from turnlog.log.records import (
    Blob,
    Damage,
    Document,
    FrameBatch,
    ListPosition,
    News,
    Page,
    Row,
    SessionRecord,
    TypeQuery,
)


class EventStore(Protocol):
    """Sessions of events: commit jobs, read rows, hear of changes."""

    @property
    def max_batch(self) -> int:
        """Return how many jobs `commit` takes; 1 for a store that cannot roll back."""
        ...

    @property
    def reader_threads(self) -> int:
        """Return how many threads may read at a time; 0 for a store whose methods never block."""
        ...

    @property
    def reconcile_s(self) -> float | None:
        """How often a log reads its followed sessions again, in case a ring is lost; None: none is."""
        ...

    def commit(self, jobs: Sequence[Job]) -> list[JobOutcome]:
        """Decide jobs in their order and make them durable. Return one outcome for each; never raise.

        A job that is refused, or has a value that cannot be stored, does not affect the others. A failure of
        the store (`StoreError`) is the outcome of all jobs. A job of an ability that the store does not have
        is refused.
        """
        ...

    def listen(self, ring: RingListener) -> StopListening:
        """Call `ring` after every commit, also of other processes. Return a function that ends it."""
        ...

    def info(self, session_id: str) -> SessionRecord | None:
        """Return the record of a session, None if there is none. Raise `SessionDamaged` if it is damaged."""
        ...

    def read(self, session_id: str, after: int, replay_from: int | None, limit_bytes: int) -> Page:
        """Return rows after a seq: about `limit_bytes`, at least one row unless there are none.

        With `replay_from`, live rows of spans that began after that seq and have ended are left out. The
        epoch of the page is empty if there is no such session.
        """
        ...

    def read_types(self, session_id: str, type_query: TypeQuery) -> Page:
        """Return durable rows of some types. `upto` of the page is the last seq that was searched.

        The store reads no rows of other types. Live rows are never included.
        """
        ...

    def read_frames(
        self, session_id: str, after: int, replay_from: int | None, limit_bytes: int
    ) -> FrameBatch | None:
        """Return the same rows as `read`, as they are sent; None if there are none."""
        ...

    def has_event(self, session_id: str, seq: int) -> bool: ...

    def close(self) -> None:
        """Close every file, unless another log listens: the last one closes them."""
        ...


@runtime_checkable
class RemoteStore(Protocol):
    """A store on another machine, for which jobs and reads wait while it is away."""

    def stop_waiting(self) -> None:
        """Raise `Unavailable` at once if the store is away, from now on: the log is about to be closed."""
        ...


@runtime_checkable
class SpanIndex(Protocol):
    """Ability: find the spans (turns, agents, blocks, calls) of a session by key, trace or seq."""

    def oldest_open_turn_start(self, session_id: str, at: int) -> int:
        """Return the first seq of the oldest turn that was open at a seq, or `at + 1` if none was."""
        ...

    def turn_bounds(self, session_id: str, trace: str) -> tuple[int, int | None] | None:
        """Return the first seq of the agents of a turn and the last, None while one is open.

        Return None if the turn has no agents.
        """
        ...

    def agent_starts(self, key: str) -> list[tuple[str, int]]:
        """Return (session, seq) of each start of an agent, at most `MAX_SAME_AGENTS`."""
        ...

    def span_end(self, session_id: str, key: str) -> int | None:
        """Return the seq that ended a span; None while it is open or unknown."""
        ...

    def sessions_with_open_agents(self) -> list[str]: ...


@runtime_checkable
class SessionDirectory(Protocol):
    """Ability: list sessions, by member and by invitation."""

    def sessions(self) -> list[SessionRecord]:
        """Return all sessions with an undamaged record, the oldest first."""
        ...

    def listing(
        self, principal: str | None, after: ListPosition | None, limit: int
    ) -> list[tuple[ListPosition, SessionRecord]]:
        """Return at most `limit` sessions of a principal after a position, the last active first.

        None lists the sessions of all principals. The order is exact to `LISTING_STEP_MS`. The store reads no
        record outside the page. Raise `SessionDamaged` for a damaged record.
        """
        ...

    def invitations(self, principal: str, limit: int) -> list[SessionRecord]:
        """Return at most `limit` sessions with an open invite for a principal, the last active first.

        The store reads no other record. Raise `SessionDamaged` for a damaged record.
        """
        ...

    def damaged_sessions(self) -> list[str]:
        """Return the sessions whose record is damaged. `info` of one raises `SessionDamaged`."""
        ...


@runtime_checkable
class BlobStore(Protocol):
    """Ability: binary content. Its jobs are `jobs.BlobJob`."""

    def blob(self, name: str) -> Blob | None:
        """Return a blob, private or not: the log refuses private ones."""
        ...

    def blob_names(self, session_id: str, is_private: bool) -> list[str]:
        """Return the names of the private or of the other blobs of a session, sorted."""
        ...


@runtime_checkable
class DerivedStore(Protocol):
    """Ability: documents and snapshots, which events can derive again. Its jobs are `jobs.DerivedJob`.

    Each has the version of the code that stored it. Those of two versions do not affect each other.
    """

    def documents(
        self, session_id: str | None, type: str | None, category: str | None, version: str
    ) -> list[Document]:
        """Return the documents that match, sorted by session and id; None matches all values."""
        ...

    def snapshot(self, session_id: str, name: str, at: int, version: str) -> tuple[int, bytes] | None:
        """Return the newest snapshot of a name and version as of a seq or earlier, with its seq."""
        ...


@runtime_checkable
class Maintenance(Protocol):
    """Ability: check what is stored. Its jobs are `PruneSession`, `EraseSession`, `QuarantineDamage`."""

    def verify(self) -> Iterable[Damage]:
        """Check everything that is stored. Yield the damages, session by session."""
        ...

    def damages(self) -> list[Damage]:
        """Return the damages that are recorded."""
        ...


@runtime_checkable
class NewsReader(Protocol):
    """Ability: read what is new in many sessions with one query."""

    def read_news(self, positions: Mapping[str, int]) -> dict[str, News]:
        """Return the records of sessions and their next rows after a seq each.

        A session without a good record is left out. One whose next rows are damaged has no rows here.
        """
        ...


@runtime_checkable
class LeaseStore(Protocol):
    """Ability: one owner per session. Its jobs are `jobs.LeaseJob` (see `leases`)."""

    @property
    def lease_s(self) -> float | None:
        """Return how long an owner counts as alive without a renewal; None: as long as its process."""
        ...

    def owner_of(self, session_id: str) -> str | None:
        """Return the live owner of a session; None if it has none."""
        ...

    def holds_lease(self, session_id: str, owner: str, fence: int) -> bool:
        """Return whether an owner of this process still has the session under this fence."""
        ...

    def lease_states(self, session_ids: Sequence[str]) -> dict[str, LeaseState]:
        """Return `LeaseRow.summary` of those sessions that have a lease."""
        ...

    def next_wake_ms(self, after_ms: int) -> int | None:
        """Return the earliest `LeaseRow.wake_at_ms` after a time, of sessions without an owner."""
        ...


class DerivedWriter(Protocol):
    """The derived data of a store inside a transaction: what an eviction callback may use."""

    def snapshot(self, session_id: str, name: str, at: int, version: str) -> tuple[int, bytes] | None: ...

    def put_derived(self, job: Job) -> None:
        """Run a job that stores or removes derived data, in this transaction."""
        ...


EvictCallback = Callable[[DerivedWriter, SessionRecord, Sequence[Row]], None]


def ignore_eviction(store: DerivedWriter, record: SessionRecord, rows: Sequence[Row]) -> None:
    """Do nothing: this is the default eviction callback."""


@runtime_checkable
class EvictingStore(Protocol):
    """Ability: keep a bounded number of events.

    The store calls `on_evict` with the session and the evicted rows, inside the transaction that evicts them.
    """

    on_evict: EvictCallback


class Store(
    EventStore, SpanIndex, SessionDirectory, BlobStore, DerivedStore, Maintenance, LeaseStore, Protocol
):
    """A store with every ability that the server needs."""
