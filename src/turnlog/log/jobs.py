"""The jobs of a store: requests that are plain data, each with one outcome.

A store commits a group of jobs together (`EventStore.commit`). It decides every job from the session's record
and the rows it knows, so a job may be sent to another machine, written to a journal or repeated. A job that
is refused, or whose values cannot be stored, does not affect the other jobs of its group. Thousands of
appends may be under way: those are structs that the garbage collector does not visit.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from turnlog.events import Envelope, Event
from turnlog.log.records import Blob, Damage, Document, Row, SessionRecord


class ExpectedPosition(NamedTuple):
    """Where an append expects a session to be; None: anywhere.

    `last` is the last seq, `durable_count` the number of durable events, `members_seq` the seq of the last
    change of members and invites.
    """

    last: int | None = None
    durable_count: int | None = None
    members_seq: int | None = None


ANY_POSITION = ExpectedPosition()


class AppendRequest(Struct, frozen=True, gc=False):
    """Append events, all or none. The result is an `AppendResult`.

    `wants_work` marks the session as wanted (see `leases`), unless the append has a fence or no new event.
    `key` is the id of an event of the batch. If the session has it already, the batch is a repetition:
    nothing is appended, and the seq of events that the session does not have is -1.
    """

    session_id: str
    events: Sequence[Event]
    ts_ms: int
    expected: ExpectedPosition = ANY_POSITION
    fence: int | None = None
    wants_work: bool = False
    key: str | None = None


class AppendResult(Struct, frozen=True, gc=False):
    """The seq of each event, and the last seq of the session before the append."""

    seqs: list[int]
    previous_last: int

    @property
    def new(self) -> list[bool]:
        """Whether each event was new: False if the session had it already, under the same seq."""
        return [seq > self.previous_last for seq in self.seqs]


class CreateSession(NamedTuple):
    """Add a session together with its first events; refused with `Conflict` if its id exists.

    `wants_work` marks it as wanted (see `leases`).
    """

    record: SessionRecord
    events: Sequence[Event] = ()
    wants_work: bool = False

    @property
    def session_id(self) -> str:
        return self.record.session_id


class CloseSession(NamedTuple):
    """Close a session together with its last events: it accepts no more. The result is an `AppendResult`.

    `events` end with a `session.close`. Without events nothing is appended: an import restores a session that
    was closed before there was such an event. Closing a closed session changes nothing; the seq of events
    that it does not have is -1.
    """

    session_id: str
    events: Sequence[Event] = ()
    ts_ms: int = 0
    expected: ExpectedPosition = ANY_POSITION
    fence: int | None = None


class RewriteRecord(NamedTuple):
    """Write the record of a session again, to learn whether the store can write."""

    session_id: str


class FindEvents(NamedTuple):
    """Find the rows of event ids, after all jobs that were submitted before. The result maps ids to rows."""

    session_id: str
    event_ids: Sequence[str]


class EventLine(NamedTuple):
    """An event of an export: its line number, envelope and bytes."""

    number: int
    envelope: Envelope
    line: bytes

    @property
    def event_id(self) -> str:
        return self.envelope.id


class DraftLine(NamedTuple):
    """An event of another system, without a seq: its line number, and the time that it is stored with."""

    number: int
    event: Event
    ts_ms: int

    @property
    def event_id(self) -> str:
        return self.event.id


class ImportEvents(NamedTuple):
    """Add exported events with their own bytes, seqs and times. The result is an `ImportCounts`.

    Drafts get the next seqs. `record` is that of the session if the store does not have it yet.
    """

    record: SessionRecord
    lines: Sequence[EventLine | DraftLine]

    @property
    def session_id(self) -> str:
        return self.record.session_id


class ImportCounts(NamedTuple):
    """How much of an import was new."""

    new_events: int = 0
    known_events: int = 0
    new_blobs: int = 0


class PutBlob(NamedTuple):
    """Store a blob unless its name exists. A blob that exists stays as it is, private or not."""

    name: str
    blob: Blob
    session_id: str = ""


class PutUpload(NamedTuple):
    """Store a blob that no event names yet, unless its name exists. Until it is kept, it may be dropped.

    The time of an upload that is repeated counts. A blob that is kept stays kept.
    """

    name: str
    blob: Blob
    ts_ms: int
    session_id: str = ""


class KeepUploads(NamedTuple):
    """Keep uploads of a session: an event will name them. The result maps the names to their `BlobInfo`.

    Public blobs of the session that were no uploads are in the result too. Other names are not.
    """

    session_id: str
    names: Sequence[str]


class DropUploads(NamedTuple):
    """Remove at most `limit` uploads that were stored before a time and not kept. The result is how many."""

    before_ms: int
    limit: int
    session_id: str = ""


class DropPrivateBlobs(NamedTuple):
    """Remove private blobs of a session. The result is how many there were.

    Names of public blobs, of other sessions and of no blob are ignored.
    """

    session_id: str
    names: Sequence[str]


class PutDocuments(NamedTuple):
    """Add or replace documents."""

    documents: Sequence[Document]
    ts_ms: int
    session_id: str = ""


class Snapshot(NamedTuple):
    """A state as of a seq. `version` is that of the code that built it."""

    session_id: str
    name: str
    seq: int
    body: bytes
    version: str = ""


class PutSnapshot(NamedTuple):
    """Store a snapshot; it replaces one of the same session, name, version and seq."""

    snapshot: Snapshot
    ts_ms: int
    session_id: str = ""


class ReplaceSnapshot(NamedTuple):
    """Store a snapshot and documents, if the stored snapshot still has the body `expected`.

    `expected` is None if there must be none. The result is False if another task has stored one meanwhile.
    """

    snapshot: Snapshot
    expected: bytes | None
    documents: Sequence[Document]
    ts_ms: int
    session_id: str = ""


class DropSnapshots(NamedTuple):
    """Remove the snapshots of a name and version as of the seqs from `first` to `last`."""

    session_id: str
    name: str
    first: int
    last: int
    version: str = ""


class DeleteDerived(NamedTuple):
    """Remove documents and snapshots; events can derive them again.

    Without `session_id` those of all sessions, without `version` those of all versions.
    """

    session_id: str = ""
    version: str | None = None


class CollectDerived(NamedTuple):
    """Remove what other code than `versions` has derived from a session and stored before a time."""

    session_id: str
    versions: frozenset[str]
    before_ms: int


class PruneSession(NamedTuple):
    """Remove live events of finished blocks and calls older than a time. The result is how many."""

    session_id: str
    before_ms: int


class EraseSession(NamedTuple):
    """Remove all events of a session, its blobs and what was derived. The result is how many events.

    The record stays, closed and empty, so that the id and its seqs are never used again. It has no title,
    members and invites.
    """

    session_id: str


class QuarantineDamage(NamedTuple):
    """Record a damage and give the session a new epoch. The result is False if it was recorded before."""

    damage: Damage

    @property
    def session_id(self) -> str:
        return self.damage.session_id


class ClaimLease(NamedTuple):
    """Make an owner the owner of a session. The result is a `Lease`; None if another live owner has it."""

    session_id: str
    owner: str
    now_ms: int


class ClaimWanted(NamedTuple):
    """Claim sessions that need an owner, the oldest first. The result is a list of `Lease`."""

    owner: str
    apps: frozenset[str] | None
    limit: int
    now_ms: int
    session_id: str = ""


class ReleaseLease(NamedTuple):
    """End a lease. The result is False if the session was claimed again meanwhile."""

    session_id: str
    owner: str
    fence: int
    seen: int
    wake_at_ms: int | None
    state: str = ""


class SaveSeen(NamedTuple):
    """Store how far an owner has processed the sessions that it owns."""

    owner: str
    seen: Sequence[tuple[str, int]]
    session_id: str = ""


class SaveStates(NamedTuple):
    """Store what an owner says of sessions that it owns (`LeaseRow.state`), for lists of other processes."""

    owner: str
    states: Sequence[tuple[str, str]]
    session_id: str = ""


class ResetAttempts(NamedTuple):
    """Set the attempts of a lease to 0. The result is False if the session was claimed again meanwhile."""

    session_id: str
    owner: str
    fence: int


class RenewOwner(NamedTuple):
    """Record that an owner is alive. One that is draining is no longer preferred for its last sessions."""

    owner: str
    now_ms: int
    is_draining: bool = False
    session_id: str = ""


class EndOwner(NamedTuple):
    """Record that an owner is not alive any more."""

    owner: str
    session_id: str = ""


SessionJob = AppendRequest | CreateSession | CloseSession | RewriteRecord | FindEvents | ImportEvents
DerivedJob = PutDocuments | PutSnapshot | ReplaceSnapshot | DropSnapshots | DeleteDerived | CollectDerived
MaintenanceJob = PruneSession | EraseSession | QuarantineDamage
LeaseJob = (
    ClaimLease | ClaimWanted | ReleaseLease | SaveSeen | SaveStates | ResetAttempts | RenewOwner | EndOwner
)
BlobJob = PutBlob | PutUpload | KeepUploads | DropUploads | DropPrivateBlobs
Job = SessionJob | BlobJob | DerivedJob | MaintenanceJob | LeaseJob


class JobResult(Struct, frozen=True, gc=False):
    """What a job returns, the records that it changed, and the rows that it added to the first of them.

    Appends that a group ran as one have the record after the last of them.
    """

    value: Any = None
    records: Sequence[SessionRecord] = ()
    rows: Sequence[Row] = ()


JobOutcome = JobResult | Exception
