"""Jobs that are repeated because the engine did not say whether their commit succeeded.

An append is recognised by its rows: the same bytes are stored under its ids, and so are the last events of a
close. A session is recognised by the epoch that its creator chose.
"""

from collections.abc import Mapping

from msgspec import structs

from turnlog.log.append import plan_create
from turnlog.log.jobs import AppendRequest, CloseSession, CreateSession, JobResult
from turnlog.log.local_jobs import append_events, close_session, create_session, require_record
from turnlog.log.postgres.transaction import EngineTransaction
from turnlog.log.records import Row


def has_stored_result(job: AppendRequest | CloseSession, result: JobResult, known: Mapping[str, Row]) -> bool:
    """Return True if the rows of an unconfirmed result are stored. `known` are the stored rows by id."""
    row_by_seq = {row.seq: row for row in result.rows}
    new_rows = {
        event.id: row_by_seq[seq]
        for event, seq in zip(job.events, result.value.seqs, strict=True)
        if seq in row_by_seq
    }
    return bool(new_rows) and all(known.get(event_id) == row for event_id, row in new_rows.items())


def append_once(transaction: EngineTransaction, job: AppendRequest) -> JobResult:
    """Append events. If an earlier try has stored them, return its result: it says that they were new."""
    return find_earlier_result(transaction, job) or append_events(transaction, job)


def close_once(transaction: EngineTransaction, job: CloseSession) -> JobResult:
    """Close a session. If an earlier try has stored the last events, return its result."""
    return find_earlier_result(transaction, job) or close_session(transaction, job)


def find_earlier_result(
    transaction: EngineTransaction, job: AppendRequest | CloseSession
) -> JobResult | None:
    """Return the result of an earlier try of the job if its rows are stored, else None."""
    earlier = transaction.unconfirmed.get(transaction.job_key)
    if earlier is None:
        return None
    record = require_record(transaction, job.session_id)
    known = transaction.find(job.session_id, [event.id for event in job.events])
    return structs.replace(earlier, records=(record,)) if has_stored_result(job, earlier, known) else None


def create_once(transaction: EngineTransaction, job: CreateSession) -> JobResult:
    """Create a session. If an earlier try has created it, return its result."""
    record = transaction.get_record(job.session_id)
    if record is None or record.epoch != job.record.epoch:
        return create_session(transaction, job)
    plan = plan_create(job)
    return JobResult(plan.result, (record,), [new.row for new in plan.rows])
