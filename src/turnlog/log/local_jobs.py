"""Runs jobs inside a transaction of a store: memory and SQLite all of them, PostgreSQL those under row locks.

A job checks first and writes last, so one that is refused has written nothing and its neighbours in the group
are not touched. Damage that a check meets is recorded, and the id of a damaged event may be used again.
"""

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from turnlog.errors import (
    CallerError,
    Conflict,
    NotFound,
    SessionDamaged,
    StoreAway,
    StoreError,
    TurnlogError,
    Unavailable,
)
from turnlog.log.append import GroupPlan, plan_append, plan_close, plan_create, plan_import, plan_together
from turnlog.log.jobs import (
    AppendRequest,
    ClaimLease,
    ClaimWanted,
    CloseSession,
    CollectDerived,
    CreateSession,
    DeleteDerived,
    DropPrivateBlobs,
    DropSnapshots,
    DropUploads,
    EndOwner,
    EraseSession,
    FindEvents,
    ImportEvents,
    Job,
    JobOutcome,
    JobResult,
    KeepUploads,
    PruneSession,
    PutBlob,
    PutDocuments,
    PutSnapshot,
    PutUpload,
    QuarantineDamage,
    ReleaseLease,
    RenewOwner,
    ReplaceSnapshot,
    ResetAttempts,
    RewriteRecord,
    SaveSeen,
    SaveStates,
    Snapshot,
)
from turnlog.log.leases import Lease, LeaseRow, Owners, claimed_row, released_row, wanted_row
from turnlog.log.records import Blob, BlobInfo, Damage, Document, NewRow, Row, SessionRecord
from turnlog.log.spans import SpanEdge


class StoreTransaction(Protocol):
    """The methods of a store that jobs call inside a transaction."""

    def get_record(self, session_id: str) -> SessionRecord | None:
        """Return the record of a session, including changes of this transaction."""
        ...

    def put_record(self, record: SessionRecord) -> None:
        """Add or replace the record of a session."""
        ...

    def find(self, session_id: str, event_ids: Sequence[str]) -> dict[str, Row]:
        """Return the rows of those event ids that the session contains."""
        ...

    def insert_rows(
        self, record: SessionRecord, rows: Sequence[NewRow], edges: Sequence[SpanEdge]
    ) -> SessionRecord:
        """Append rows, index their span edges and replace the record. Return the record as it is stored."""
        ...

    def put_blob(self, name: str, blob: Blob) -> None:
        """Store a blob unless its name exists."""
        ...

    def has_blob(self, name: str) -> bool: ...

    def blob_info(self, name: str) -> BlobInfo | None:
        """Return what is known of a public blob; None if there is none of that name."""
        ...

    def drop_blobs(self, session_id: str) -> None:
        """Remove all blobs of a session, and its marks of uploads."""
        ...

    def mark_upload(self, name: str, ts_ms: int) -> None:
        """Add or replace the mark of an upload."""
        ...

    def unmark_upload(self, name: str) -> bool:
        """Remove the mark of an upload. Return whether there was one."""
        ...

    def drop_uploads(self, before_ms: int, limit: int) -> int:
        """Remove the oldest uploads with a mark before a time. Return how many."""
        ...

    def drop_private_blob(self, name: str) -> bool:
        """Remove a blob if it is private. Return whether it was removed."""
        ...

    def put_document(self, document: Document, ts_ms: int) -> None: ...

    def put_snapshot(self, snapshot: Snapshot, ts_ms: int) -> None: ...

    def snapshot(self, session_id: str, name: str, at: int, version: str) -> tuple[int, bytes] | None: ...

    def drop_snapshots(self, session_id: str, name: str, first: int, last: int, version: str) -> None: ...

    def delete_derived(self, session_id: str, version: str | None) -> None: ...

    def collect_derived(self, session_id: str, versions: Collection[str], before_ms: int) -> None: ...

    def prune(self, session_id: str, before_ms: int) -> int: ...

    def remove_events(self, session_id: str) -> int:
        """Remove all events and spans of a session. Return how many events."""
        ...

    def damages(self) -> list[Damage]: ...

    def quarantine(self, damage: Damage) -> None: ...

    def get_lease(self, session_id: str) -> LeaseRow | None: ...

    def put_lease(self, row: LeaseRow) -> None: ...


class LocalStore(StoreTransaction, Protocol):
    """A store of this process. Jobs call its methods inside `transaction`."""

    owners: Owners

    def transaction(self) -> AbstractContextManager[None]:
        """Make everything inside durable when the block ends, or nothing. Other threads wait."""
        ...

    def held_leases(self) -> list[LeaseRow]:
        """Return the leases that have an owner, dead or alive."""
        ...

    def due_leases(self, now_ms: int, apps: Collection[str] | None, limit: int) -> list[LeaseRow]:
        """Return leases of open sessions that are due, the oldest first."""
        ...


def commit_jobs(store: LocalStore, jobs: Sequence[Job]) -> list[JobOutcome]:
    """Run jobs in one transaction. Return the result of each, or its exception."""
    try:
        with store.transaction():
            return run_jobs(store, jobs)
    except StoreError as error:
        return [copy_error(error) for _ in jobs]
    except Exception as error:  # noqa: BLE001  the writer must live on; the callers get the error
        if len(jobs) == 1:
            return [as_caller_error(error)]
        # One job has a value that cannot be stored, or a bug, and the transaction was rolled back: run each
        # job alone.
        return [outcome for job in jobs for outcome in commit_jobs(store, [job])]


def run_jobs(store: LocalStore, jobs: Sequence[Job]) -> list[JobOutcome]:
    """Run jobs in their order; neighbouring appends of a session together."""
    if len(jobs) == 1:
        return [run_job(store, jobs[0])]

    outcomes: dict[int, JobOutcome] = {}
    appends: dict[str, dict[int, AppendRequest]] = {}  # by session and place: not run yet
    for place, job in enumerate(jobs):
        if isinstance(job, AppendRequest):
            appends.setdefault(job.session_id, {})[place] = job
        else:
            # It may read or change any of these sessions.
            run_appends(store, appends, outcomes)
            outcomes[place] = run_job(store, job)
    run_appends(store, appends, outcomes)
    return [outcomes[place] for place in range(len(jobs))]


def run_appends(
    store: LocalStore, appends: dict[str, dict[int, AppendRequest]], outcomes: dict[int, JobOutcome]
) -> None:
    """Run appends session by session, which do not affect each other. Add their outcomes."""
    for own_appends in appends.values():
        own_outcomes = append_together(store, list(own_appends.values()))
        outcomes.update(zip(own_appends, own_outcomes, strict=True))
    appends.clear()


def append_together(store: LocalStore, jobs: Sequence[AppendRequest]) -> list[JobOutcome]:
    """Run the appends of one session, as one if they can be planned so (`plan_together`)."""
    plan = plan_new_events(store, jobs) if len(jobs) > 1 else None
    if plan is None:
        return [run_job(store, job) for job in jobs]

    stored = store.insert_rows(plan.record, plan.rows, plan.edges)
    return [*plan.job_results(stored)]


def plan_new_events(store: StoreTransaction, jobs: Sequence[AppendRequest]) -> GroupPlan | None:
    """Plan appends as one; None if an event is known or damaged: then each has its own outcome."""
    session_id = jobs[0].session_id
    try:
        record = store.get_record(session_id)
        known = store.find(session_id, [event.id for job in jobs for event in job.events]) if record else {}
    except SessionDamaged:
        return None
    if record is None or known:
        return None
    return plan_together(record, jobs)


def run_job(store: LocalStore, job: Job) -> JobOutcome:
    return run_job_with(JOB_HANDLERS, store, job)


def run_job_with(handlers: "JobHandlers", store: StoreTransaction, job: Job) -> JobOutcome:
    """Return the result of a job, or its refusal. Raise a failure of the store."""
    try:
        return handlers[type(job)](store, job)
    except TurnlogError as error:
        if is_store_failure(error):
            raise
        return error


def is_store_failure(outcome: object) -> bool:
    return isinstance(outcome, StoreError) and not isinstance(outcome, SessionDamaged)


def copy_error(error: StoreError) -> StoreError:
    # Each exception that is raised needs a traceback of its own.
    kind = type(error) if isinstance(error, StoreAway | Unavailable) else StoreError
    copy = kind(str(error))
    copy.__cause__ = error
    return copy


def as_caller_error(error: Exception) -> Exception:
    """Return a `CallerError` for a value that no column can hold. Return any other exception as it is."""
    if isinstance(error, OverflowError | UnicodeEncodeError | sqlite3.DataError):
        return CallerError(f"this cannot be stored: {error}")
    return error


# sessions


def append_events(store: StoreTransaction, job: AppendRequest) -> JobResult:
    session_id = job.session_id
    record = require_record(store, session_id)
    event_ids = [event.id for event in job.events]
    try:
        known = store.find(session_id, event_ids)
    except SessionDamaged as damage:
        record_damage(store, damage)
        known = find_rows(store, session_id, event_ids)
        record = require_record(store, session_id)
    plan = plan_append(record, known, job)
    if plan.rows:
        stored = store.insert_rows(plan.record, plan.rows, plan.edges)
        if job.wants_work and job.fence is None:
            row = store.get_lease(session_id) or LeaseRow(session_id)
            store.put_lease(wanted_row(row, stored.last, job.ts_ms))
        return JobResult(plan.result, (stored,), [new.row for new in plan.rows])

    if plan.record is not record:
        store.put_record(plan.record)
    return JobResult(plan.result, (plan.record,))


def create_session(store: StoreTransaction, job: CreateSession) -> JobResult:
    if store.get_record(job.session_id) is not None:
        raise Conflict(f"session {job.session_id[:80]} already exists", -1)
    plan = plan_create(job)
    store.put_record(job.record)
    stored = store.insert_rows(plan.record, plan.rows, plan.edges)
    if job.wants_work:
        store.put_lease(wanted_row(LeaseRow(job.session_id), stored.last, stored.created_ms))
    return JobResult(plan.result, (stored,), [new.row for new in plan.rows])


def close_session(store: StoreTransaction, job: CloseSession) -> JobResult:
    require_record(store, job.session_id)
    known = find_rows(store, job.session_id, [event.id for event in job.events])
    # Not earlier: a damaged row gives the record a new epoch.
    record = require_record(store, job.session_id)
    plan = plan_close(record, known, job)
    if plan.rows:
        stored = store.insert_rows(plan.record, plan.rows, plan.edges)
        return JobResult(plan.result, (stored,), [new.row for new in plan.rows])

    if plan.record is not record:
        store.put_record(plan.record)
    return JobResult(plan.result, (plan.record,))


def rewrite_record(store: StoreTransaction, job: RewriteRecord) -> JobResult:
    record = require_record(store, job.session_id)
    record = record.replace(revision=record.revision + 1)
    store.put_record(record)
    return JobResult(None, (record,))


def find_events(store: StoreTransaction, job: FindEvents) -> JobResult:
    require_record(store, job.session_id)
    rows = find_rows(store, job.session_id, job.event_ids)
    return JobResult(rows, (require_record(store, job.session_id),))


def import_events(store: StoreTransaction, job: ImportEvents) -> JobResult:
    known_record = store.get_record(job.session_id)
    record = known_record or job.record
    ids = [item.event_id for item in job.lines]
    known = store.find(job.session_id, ids) if known_record else {}
    plan = plan_import(record, known, job)
    if known_record is None:
        store.put_record(record)
    stored = store.insert_rows(plan.record, plan.rows, plan.edges) if plan.rows else record
    return JobResult(plan.counts, (stored,), [new.row for new in plan.rows])


def require_record(store: StoreTransaction, session_id: str) -> SessionRecord:
    """Return the record of a session, repaired if it is damaged. Raise `NotFound` if there is none."""
    try:
        record = store.get_record(session_id)
    except SessionDamaged as damage:
        record_damage(store, damage)
        record = store.get_record(session_id)
    if record is None:
        raise NotFound(f"no session {session_id[:80]}")
    return record


def find_rows(store: StoreTransaction, session_id: str, event_ids: Sequence[str]) -> dict[str, Row]:
    """Return the rows of event ids. Damage is recorded on the way, and the damaged ids are left out."""
    while True:
        try:
            return store.find(session_id, event_ids)
        except SessionDamaged as damage:
            record_damage(store, damage)


# blobs and derived data


def put_blob(store: StoreTransaction, job: PutBlob) -> JobResult:
    store.put_blob(job.name, job.blob)
    # An event will name it, also if a member has uploaded the same content.
    store.unmark_upload(job.name)
    return JobResult()


def put_upload(store: StoreTransaction, job: PutUpload) -> JobResult:
    is_upload = store.unmark_upload(job.name)
    if not is_upload and store.has_blob(job.name):
        return JobResult()
    store.put_blob(job.name, job.blob)
    store.mark_upload(job.name, job.ts_ms)
    return JobResult()


def keep_uploads(store: StoreTransaction, job: KeepUploads) -> JobResult:
    own_names = [name for name in dict.fromkeys(job.names) if name.startswith(f"{job.session_id}/")]
    kept: dict[str, BlobInfo] = {}
    for name in own_names:
        # First the mark: another process may be dropping the upload.
        store.unmark_upload(name)
        info = store.blob_info(name)
        if info is not None:
            kept[name] = info
    return JobResult(kept)


def drop_uploads(store: StoreTransaction, job: DropUploads) -> JobResult:
    return JobResult(store.drop_uploads(job.before_ms, job.limit))


def drop_private_blobs(store: StoreTransaction, job: DropPrivateBlobs) -> JobResult:
    own_names = [name for name in dict.fromkeys(job.names) if name.startswith(f"{job.session_id}/")]
    return JobResult(sum(store.drop_private_blob(name) for name in own_names))


def put_documents(store: StoreTransaction, job: PutDocuments) -> JobResult:
    for document in job.documents:
        store.put_document(document, job.ts_ms)
    return JobResult()


def put_snapshot(store: StoreTransaction, job: PutSnapshot) -> JobResult:
    store.put_snapshot(job.snapshot, job.ts_ms)
    return JobResult()


def replace_snapshot(store: StoreTransaction, job: ReplaceSnapshot) -> JobResult:
    session_id, name, seq, _, version = job.snapshot
    stored = store.snapshot(session_id, name, seq, version)
    if (stored[1] if stored else None) != job.expected:
        return JobResult(False)
    for document in job.documents:
        store.put_document(document, job.ts_ms)
    store.put_snapshot(job.snapshot, job.ts_ms)
    return JobResult(True)


def drop_snapshots(store: StoreTransaction, job: DropSnapshots) -> JobResult:
    store.drop_snapshots(job.session_id, job.name, job.first, job.last, job.version)
    return JobResult()


def delete_derived(store: StoreTransaction, job: DeleteDerived) -> JobResult:
    store.delete_derived(job.session_id, job.version)
    return JobResult()


def collect_derived(store: StoreTransaction, job: CollectDerived) -> JobResult:
    store.collect_derived(job.session_id, job.versions, job.before_ms)
    return JobResult()


# maintenance


def prune_session(store: StoreTransaction, job: PruneSession) -> JobResult:
    require_record(store, job.session_id)
    count = store.prune(job.session_id, job.before_ms)
    return JobResult(count, (require_record(store, job.session_id),))


def erase_session(store: StoreTransaction, job: EraseSession) -> JobResult:
    record = require_record(store, job.session_id)
    count = store.remove_events(job.session_id)
    store.delete_derived(job.session_id, None)
    store.drop_blobs(job.session_id)
    erased = record.erase()
    store.put_record(erased)
    return JobResult(count, (erased,))


def quarantine_damage(store: StoreTransaction, job: QuarantineDamage) -> JobResult:
    damage = job.damage
    is_new = record_damage(store, SessionDamaged(*damage))
    record = store.get_record(damage.session_id)
    return JobResult(is_new, (record,) if record else ())


def record_damage(store: StoreTransaction, damage: SessionDamaged) -> bool:
    """Record a damage. Return True if it was not recorded before: then the session has a new epoch."""
    lost = Damage(damage.session_id, damage.first, damage.last, damage.problem)
    if damage.first >= 0 and lost in store.damages():
        return False
    store.quarantine(lost)
    return True


# leases


def claim_lease(store: LocalStore, job: ClaimLease) -> JobResult:
    record = require_record(store, job.session_id)
    store.owners.add(job.owner)
    row = store.get_lease(job.session_id) or LeaseRow(job.session_id)
    if row.owner != job.owner and store.owners.is_alive(row):
        return JobResult(None, (record,))
    lease, updated = claim_row(store, row, record, job.owner, job.now_ms)
    return JobResult(lease, (updated,))


def claim_wanted(store: LocalStore, job: ClaimWanted) -> JobResult:
    store.owners.add(job.owner)
    dead = [row for row in store.held_leases() if not store.owners.is_alive(row)]
    rows = sorted([*dead, *store.due_leases(job.now_ms, job.apps, job.limit)], key=lambda row: row.due_ms)
    leases: list[Lease] = []
    records: list[SessionRecord] = []
    for row in rows:
        if len(leases) == job.limit:
            break
        record = undamaged_record(store, row.session_id)
        if record is None or record.closed or (job.apps is not None and record.app not in job.apps):
            continue
        lease, updated = claim_row(store, row, record, job.owner, job.now_ms)
        leases.append(lease)
        records.append(updated)
    return JobResult(leases, records)


def undamaged_record(store: StoreTransaction, session_id: str) -> SessionRecord | None:
    try:
        return store.get_record(session_id)
    except SessionDamaged:
        return None


def claim_row(
    store: LocalStore, row: LeaseRow, record: SessionRecord, owner: str, now_ms: int
) -> tuple[Lease, SessionRecord]:
    """Store a claim in the lease and raise the fence of the session's record."""
    claimed = claimed_row(row, owner, store.owners.process, record.fence, now_ms)
    store.put_lease(claimed)
    updated = record.replace(fence=claimed.fence, revision=record.revision + 1)
    store.put_record(updated)
    return claimed.lease(), updated


def release_lease(store: StoreTransaction, job: ReleaseLease) -> JobResult:
    row = store.get_lease(job.session_id)
    if row is None or not row.is_held(job.owner, job.fence):
        return JobResult(False)
    store.put_lease(released_row(row, job.seen, job.wake_at_ms, job.state))
    return JobResult(True)


def save_seen(store: LocalStore, job: SaveSeen) -> JobResult:
    for session_id, seen in job.seen:
        row = store.get_lease(session_id)
        if row is not None and row.owner == job.owner and row.process == store.owners.process:
            store.put_lease(row._replace(seen=seen))
    return JobResult()


def save_states(store: LocalStore, job: SaveStates) -> JobResult:
    for session_id, state in job.states:
        row = store.get_lease(session_id)
        if row is not None and row.owner == job.owner and row.process == store.owners.process:
            store.put_lease(row._replace(state=state))
    return JobResult()


def reset_attempts(store: StoreTransaction, job: ResetAttempts) -> JobResult:
    row = store.get_lease(job.session_id)
    if row is None or not row.is_held(job.owner, job.fence):
        return JobResult(False)
    store.put_lease(row._replace(attempts=0))
    return JobResult(True)


def renew_owner(store: LocalStore, job: RenewOwner) -> JobResult:
    store.owners.add(job.owner)
    return JobResult()


def end_owner(store: LocalStore, job: EndOwner) -> JobResult:
    store.owners.remove(job.owner)
    return JobResult()


JobHandlers = Mapping[type, Callable[[Any, Any], JobResult]]

# Jobs that a store with transactions runs as they are: all but those that ask which owners are alive.
SESSION_JOB_HANDLERS: JobHandlers = {
    AppendRequest: append_events,
    CreateSession: create_session,
    CloseSession: close_session,
    RewriteRecord: rewrite_record,
    FindEvents: find_events,
    ImportEvents: import_events,
    PutBlob: put_blob,
    PutUpload: put_upload,
    KeepUploads: keep_uploads,
    DropUploads: drop_uploads,
    DropPrivateBlobs: drop_private_blobs,
    PutDocuments: put_documents,
    PutSnapshot: put_snapshot,
    ReplaceSnapshot: replace_snapshot,
    DropSnapshots: drop_snapshots,
    DeleteDerived: delete_derived,
    CollectDerived: collect_derived,
    PruneSession: prune_session,
    EraseSession: erase_session,
    QuarantineDamage: quarantine_damage,
    ReleaseLease: release_lease,
    ResetAttempts: reset_attempts,
}
JOB_HANDLERS: dict[type, Callable[[Any, Any], JobResult]] = {
    **SESSION_JOB_HANDLERS,
    ClaimLease: claim_lease,
    ClaimWanted: claim_wanted,
    SaveSeen: save_seen,
    SaveStates: save_states,
    RenewOwner: renew_owner,
    EndOwner: end_owner,
}
