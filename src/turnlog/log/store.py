"""The store interface: what a log needs from its storage.

A store is synchronous. One thread writes: `transaction` brackets a group of work, and the methods of
`StoreWriter` are called inside it. The methods of `StoreReader` may be called from any thread. A store
never returns a row that fails its integrity check: it returns the good rows before it, and raises
`SessionDamaged` when the next read begins with it.

`turnlog.testing` has the numbered contracts that every store must fulfil.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from turnlog.log.records import (
    Blob,
    Damage,
    Document,
    FrameBatch,
    ListPosition,
    NewRow,
    Page,
    Row,
    SessionRecord,
    TypeQuery,
)
from turnlog.log.spans import SpanEdge


class StoreWriter(Protocol):
    """The methods that the writer thread calls, inside a transaction.

    A store that evicts old events calls `on_evict` with itself, the session and the evicted rows, inside the
    transaction. A store that keeps all events never calls it.
    """

    on_evict: "EvictCallback"

    @property
    def max_batch(self) -> int:
        """Return how many jobs may share a transaction; 1 for a store that cannot roll back."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """Make everything inside durable when the block ends, or nothing."""
        ...

    def get_record(self, session_id: str) -> SessionRecord | None:
        """Return the record of a session, including changes of this transaction."""
        ...

    def put_record(self, record: SessionRecord) -> None:
        """Add or replace the record of a session."""
        ...

    def find(self, session_id: str, event_ids: Sequence[str]) -> dict[str, Row]:
        """Return the rows of those event ids that the session contains."""
        ...

    def insert_rows(self, record: SessionRecord, rows: Sequence[NewRow], edges: Sequence[SpanEdge]) -> None:
        """Append rows, index their span edges and replace the record of the session."""
        ...

    def put_blob(self, name: str, blob: Blob) -> None:
        """Store a blob unless its name exists: the name contains the hash of the content."""
        ...

    def put_document(self, document: Document) -> None:
        """Add or replace a document."""
        ...

    def put_snapshot(self, session_id: str, name: str, seq: int, body: bytes) -> None:
        """Store a state as of a seq."""
        ...

    def drop_snapshots(self, session_id: str, name: str, first: int, last: int) -> None:
        """Remove the snapshots of a name as of the seqs from `first` to `last`."""
        ...

    def delete_derived(self, session_id: str | None = None) -> None:
        """Remove the documents and snapshots of a session, or of all sessions.

        They can be derived from the events again.
        """
        ...

    def prune(self, session_id: str, before_ms: int) -> int:
        """Remove live rows of finished spans older than a time. Return how many were removed."""
        ...

    def quarantine(self, damage: Damage) -> None:
        """Record a damaged part, exclude it from reads for good and give the session a new epoch."""
        ...


EvictCallback = Callable[["Store", SessionRecord, Sequence[Row]], None]


def ignore_eviction(store: "Store", record: SessionRecord, rows: Sequence[Row]) -> None:
    """Do nothing: this is the default eviction callback."""


class StoreReader(Protocol):
    """The methods that may be called from any thread."""

    @property
    def reader_threads(self) -> int:
        """Return how many threads may read at a time; 0 for a store whose methods never block."""
        ...

    def info(self, session_id: str) -> SessionRecord | None:
        """Return the record of a session, None if there is none. Raise `SessionDamaged` if it is damaged."""
        ...

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

    def blob(self, name: str) -> Blob | None: ...

    def blob_names(self, session_id: str) -> list[str]:
        """Return the names of the blobs of a session, sorted."""
        ...

    def documents(self, session_id: str | None, type: str | None, category: str | None) -> list[Document]:
        """Return the documents that match, sorted by session and id; None matches all values."""
        ...

    def snapshot(self, session_id: str, name: str, at: int) -> tuple[int, bytes] | None:
        """Return the newest snapshot of a name as of a seq or earlier, with its seq."""
        ...

    def commit_count(self) -> int:
        """Return a number that changes when another process has written."""
        ...

    def verify(self) -> Iterable[Damage]:
        """Check everything that is stored. Yield the damages, session by session."""
        ...

    def damages(self) -> list[Damage]:
        """Return the damages that are recorded."""
        ...

    def close(self) -> None:
        """Close every file."""
        ...


class Store(StoreWriter, StoreReader, Protocol):
    """A store of sessions."""
