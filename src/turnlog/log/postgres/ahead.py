"""Plan appends when they are submitted, while the engine is busy with the group before.

An append is planned on the record that the appends before it leave, although those are not committed yet. The
group commit takes a plan only if the record that it begins with is the very object that the plan was made for
(`base`): the cached record, or that of the plan before. So a plan needs no other check. When a session loses
to another process, its records are read again: they are other objects, and its appends are planned anew.

Only appends are planned here whose ids are new for certain (higher than the newest of the session).
"""

import threading
from collections.abc import Mapping, Sequence

from turnlog.errors import TurnlogError
from turnlog.log.append import RowPlan, is_timed_id, plan_append
from turnlog.log.jobs import AppendRequest, FindEvents, Job, JobResult
from turnlog.log.postgres.rows import EventRow, event_row
from turnlog.log.postgres.schema import StoredRecord
from turnlog.log.records import Row, SessionRecord

NO_ROWS: Mapping[str, Row] = {}


class PlannedAppend(AppendRequest, frozen=True, gc=False, kw_only=True):
    """An append with its plan, which is valid for a session whose record is `base`."""

    base: SessionRecord
    plan: RowPlan
    result: JobResult
    event_rows: list[EventRow]
    newest: str  # the highest timed event id of the session after it


class SessionHead:
    """The record of a session after its last planned append; None if that is not known.

    `job_count` is how many jobs of the session are not committed yet.
    """

    __slots__ = ("job_count", "newest", "number", "record")

    def __init__(self, stored: StoredRecord | None) -> None:
        self.job_count = 0
        self.record: SessionRecord | None = None
        self.number = 0
        self.newest = ""
        if stored is not None:
            self.number, self.record, self.newest, _ = stored


class AheadPlanner:
    """Plans appends in the order in which they are committed. `cached` are the records after the commits."""

    def __init__(self, cached: Mapping[str, StoredRecord]) -> None:
        self._cached = cached
        self._heads: dict[str, SessionHead] = {}  # of sessions with jobs that are not committed
        self._lock = threading.Lock()

    def plan(self, job: Job) -> Job:
        """Return an append with its plan, any other job as it is."""
        session_id = job.session_id
        with self._lock:
            head = self._heads.get(session_id)
            if head is None:
                head = self._heads[session_id] = SessionHead(self._cached.get(session_id))
            head.job_count += 1
            if head.record is None or isinstance(job, FindEvents):
                return job

            planned = plan_on_head(head, job) if isinstance(job, AppendRequest) else None
            if planned is None:
                # What this job leaves is known after its commit.
                head.record = None
                return job
            head.record = planned.plan.record
            head.newest = planned.newest
            return planned

    def finish(self, jobs: Sequence[Job]) -> None:
        """Forget jobs that are committed, or have failed. Jobs that `plan` did not get are ignored."""
        with self._lock:
            for job in jobs:
                head = self._heads.get(job.session_id)
                if head is not None:
                    head.job_count -= 1
                    if not head.job_count:
                        del self._heads[job.session_id]

            for session_id, record in last_planned_records(jobs).items():
                stored = self._cached.get(session_id)
                if session_id in self._heads and (stored is None or stored.record is not record):
                    # The append was not stored as planned: nor will be the ones after it.
                    self._heads[session_id].record = None


def plan_on_head(head: SessionHead, job: AppendRequest) -> PlannedAppend | None:
    """Plan an append on the record of a head; None if it is refused, or an id has to be looked up."""
    base = head.record
    assert base is not None
    newest = head.newest
    for event in job.events:
        if event.id <= newest or not is_timed_id(event.id):
            return None
        newest = event.id
    try:
        plan = plan_append(base, NO_ROWS, job)
    except (
        TurnlogError,
        ValueError,
    ):  # it is refused, or a value cannot be encoded: the commit tells the caller
        return None

    number = head.number
    return PlannedAppend(
        job.session_id,
        job.events,
        job.ts_ms,
        job.expected,
        job.fence,
        job.wants_work,
        base=base,
        plan=plan,
        result=JobResult(plan.result, (plan.record,), [new.row for new in plan.rows]),
        event_rows=[event_row(number, new) for new in plan.rows],
        newest=newest,
    )


def last_planned_records(jobs: Sequence[Job]) -> dict[str, SessionRecord]:
    return {job.session_id: job.plan.record for job in jobs if isinstance(job, PlannedAppend)}
