"""Group commit: appends of any sessions in one statement.

Appends are planned on the records that this process knows. The statement compares epoch and revision of each
session with those of its plan, and writes rows, spans, lists and lease marks of the sessions that match. A
session that another process has changed matches nothing: its appends are planned again on fresh records, and
then under row locks (`transaction`). A refusal counts only if its record was compared or is fresh.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from functools import lru_cache
from typing import NamedTuple

from msgspec import structs

from turnlog.errors import NotFound, SessionDamaged, TurnlogError
from turnlog.log.append import is_timed_id, plan_append, plan_together
from turnlog.log.checksums import verified_row
from turnlog.log.jobs import AppendRequest, AppendResult, FindEvents, Job, JobOutcome, JobResult
from turnlog.log.local_jobs import as_caller_error
from turnlog.log.postgres.arrays import EncodeArray, bigint_array, bytea_array, text_array
from turnlog.log.postgres.connections import Connection, Query
from turnlog.log.postgres.reading import SELECT_RECORDS_BY_NAME, EngineReader
from turnlog.log.postgres.repetition import has_stored_result
from turnlog.log.postgres.rows import (
    END_ARRAYS,
    END_SOURCE,
    EVENT_ARRAYS,
    EVENT_SOURCE,
    LISTING_ARRAYS,
    LISTING_SOURCE,
    REPLACE_SPANS,
    START_ARRAYS,
    START_SOURCE,
    UPSERT_LISTING,
    EventRow,
    SpanColumns,
    encode_columns,
    event_row,
    is_listing_due,
    listing_rows,
)
from turnlog.log.postgres.schema import StoredRecord, decode_record_row, encode_record_row
from turnlog.log.records import NewRow, Row, SessionRecord
from turnlog.log.spans import SpanEdge

GroupJob = AppendRequest | FindEvents
GROUP_JOBS = (AppendRequest, FindEvents)

# `locked` takes the row locks in the order of session numbers: two groups never wait for each other. A row
# that another process has changed meanwhile is read again here, so the comparison is with its newest state.
COMPARE_AND_SET: Query = """
    with change as materialized (
        select * from unnest(%b::bigint[], %b::text[], %b::bigint[], %b::bigint[], %b::bigint[], %b::text[],
            %b::bigint[], %b::bytea[], %b::bigint[])
        as new(id, epoch, expected, revision, fence, newest, listed, record, crc)
    ), locked as (
        select id, epoch, revision from session where id = any(%b) order by id for update
    ), moved as (
        update session set revision = change.revision, fence = change.fence, newest = change.newest,
            listed = change.listed, record = change.record, crc = change.crc
        from locked join change using (id)
        where session.id = locked.id and locked.epoch = change.epoch and locked.revision = change.expected
        returning session.id, session.name
    ), event_row as (
        insert into event (session, seq, id, ts, span, type, chain, crc, meta, frame)
        select new.* from {events} where new.session in (select id from moved)
    )"""
RECORD_ARRAYS: Sequence[EncodeArray] = (
    bigint_array, text_array, bigint_array, bigint_array, bigint_array, text_array, bigint_array,
    bytea_array, bigint_array,
)  # fmt: skip
START_PART: Query = """, started as (
        insert into span (session, key, trace, first, last, agent, crc, last_crc)
        select new.* from {starts} where new.session in (select id from moved)
        {replace}
    )"""
END_PART: Query = """, ended as (
        update span set last = new.last, last_crc = new.last_crc from {ends}
        where span.session = new.session and span.key = new.key and span.last is null
            and new.session in (select id from moved)
    )"""
LISTING_PART: Query = """, listed as (
        insert into listing select new.* from {listing} where new.session in (select name from moved)
        {upsert}
    )"""
# `leases.wanted_row` as a statement.
WISH_PART: Query = """, wish as (
        insert into lease (session, wanted_at, wanted_seq)
        select new.* from unnest(%b::text[], %b::bigint[], %b::bigint[])
            as new(session, wanted_at, wanted_seq)
        where new.session in (select name from moved)
        on conflict (session) do update set wanted_seq = excluded.wanted_seq,
            wanted_at = coalesce(lease.wanted_at, excluded.wanted_at)
        returning owner is null as is_free
    )"""
WISH_ARRAYS: Sequence[EncodeArray] = (text_array, bigint_array, bigint_array)


class SessionPlan:
    """The changes of one session in a group: the record before and after, new rows, and the outcomes."""

    def __init__(self, stored: StoredRecord, *, is_fresh: bool) -> None:
        self.before = stored
        self.is_fresh = is_fresh
        self.is_stale = False  # it is known that the record has changed
        self.record = stored.record
        self.newest = stored.newest
        self.listed_ms = stored.listed_ms
        self.event_rows: list[EventRow] = []
        self.edges: list[SpanEdge] = []
        self.wanted_ms: int | None = None
        self.outcomes: dict[int, JobOutcome] = {}
        self._row_by_id: dict[str, Row] = {}

    @property
    def has_changed(self) -> bool:
        return self.record is not self.before.record

    @property
    def is_current(self) -> bool:
        return self.is_fresh and not self.is_stale

    @property
    def needs_locks(self) -> bool:
        """Members have changed: their lists are written one by one."""
        return self.record.members_seq != self.before.record.members_seq

    def known_rows(self, stored: Mapping[str, Row], event_ids: Iterable[str]) -> dict[str, Row]:
        """Return the rows of event ids that are stored, or planned before."""
        planned = self._row_by_id
        if not stored and planned.keys().isdisjoint(event_ids):
            return {}
        known = {event_id: stored[event_id] for event_id in event_ids if event_id in stored}
        return known | {event_id: planned[event_id] for event_id in event_ids if event_id in planned}

    def add(self, index: int, job: AppendRequest, known: Mapping[str, Row]) -> None:
        """Plan an append. Raise its refusal."""
        plan = plan_append(self.record, known, job)
        self.outcomes[index] = JobResult(plan.result, (plan.record,), [new.row for new in plan.rows])
        self._take_rows(plan.record, plan.rows, plan.edges)
        self._row_by_id.update((new.id, new.row) for new in plan.rows)
        if plan.rows and job.wants_work and job.fence is None and self.wanted_ms is None:
            self.wanted_ms = job.ts_ms

    def add_together(self, jobs: Mapping[int, AppendRequest]) -> bool:
        """Plan all jobs of the session as one append of new events.

        Return False if they have to be planned one by one.
        """
        plan = plan_together(self.record, list(jobs.values()))
        if plan is None:
            return False
        self.outcomes.update(zip(jobs, plan.job_results(plan.record), strict=True))
        self._take_rows(plan.record, plan.rows, plan.edges)
        return True

    def _take_rows(self, record: SessionRecord, rows: Sequence[NewRow], edges: Sequence[SpanEdge]) -> None:
        self.record = record
        self.edges += edges
        number = self.before.number
        self.event_rows += [event_row(number, new) for new in rows]
        self.newest = newest_timed_id(self.newest, [new.id for new in rows])

    def after(self) -> StoredRecord:
        return StoredRecord(self.before.number, self.record, self.newest, self.listed_ms)


class GroupResult(NamedTuple):
    """What a group has stored: the records after it, and whether a session without owner is wanted."""

    changed: list[StoredRecord]
    is_wanted: bool


class GroupCommit:
    """Plans the jobs of one group. `pending` are those without an outcome, by their place in the group.

    `unconfirmed` are results of an earlier try that may have committed. If this one fails, so are its
    `sent_results`.
    """

    def __init__(self, jobs: Mapping[int, GroupJob], unconfirmed: Mapping[int, JobResult]) -> None:
        self.pending = dict(jobs)
        self.outcomes: dict[int, JobOutcome] = {}
        self._sent_plans: list[SessionPlan] = []
        self.needs_locks: set[str] = set()  # sessions whose jobs this statement cannot run
        self._unconfirmed = unconfirmed

    def run(self, connection: Connection, cached: Mapping[str, StoredRecord]) -> GroupResult:
        """Plan the pending jobs and commit them in one statement. Jobs that lost stay pending."""
        reader = EngineReader(connection)
        plans = self._load_plans(reader, cached)
        self._plan_jobs(reader, plans)
        changes = [
            plan
            for session_id, plan in plans.items()
            if plan.has_changed and not plan.is_stale and session_id not in self.needs_locks
        ]
        winners: set[int] = set()
        is_wanted = False
        if changes:
            self._sent_plans = changes
            winners, is_wanted = compare_and_set(connection, changes)

        for session_id, plan in plans.items():
            is_valid = plan.before.number in winners if plan.has_changed else plan.is_current
            if is_valid and session_id not in self.needs_locks:
                self._settle(plan.outcomes)
        changed = [plan.after() for plan in changes if plan.before.number in winners]
        return GroupResult(changed, is_wanted)

    def sent_results(self) -> dict[int, JobResult]:
        """Return the results of the appends that were sent to the engine."""
        return {
            index: outcome
            for plan in self._sent_plans
            for index, outcome in plan.outcomes.items()
            if isinstance(outcome, JobResult) and isinstance(outcome.value, AppendResult)
        }

    def _settle(self, outcomes: Mapping[int, JobOutcome]) -> None:
        self.outcomes.update(outcomes)
        for index in outcomes:
            del self.pending[index]

    def _load_plans(self, reader: EngineReader, cached: Mapping[str, StoredRecord]) -> dict[str, SessionPlan]:
        """Return a plan for each session that exists. Settle the jobs of others."""
        session_ids = dict.fromkeys(job.session_id for job in self.pending.values())
        unknown = [session_id for session_id in session_ids if session_id not in cached]
        plans = {
            session_id: SessionPlan(cached[session_id], is_fresh=False)
            for session_id in session_ids
            if session_id in cached
        }
        if unknown:
            for row in reader.select(SELECT_RECORDS_BY_NAME, [unknown]):
                try:
                    plans[row[1]] = SessionPlan(decode_record_row(row), is_fresh=True)
                except SessionDamaged:
                    self.needs_locks.add(row[1])

        missing = {
            index: NotFound(f"no session {job.session_id[:80]}")
            for index, job in self.pending.items()
            if job.session_id not in plans and job.session_id not in self.needs_locks
        }
        self._settle(missing)
        return plans

    def _plan_jobs(self, reader: EngineReader, plans: Mapping[str, SessionPlan]) -> None:
        stored_rows = self._find_stored_rows(reader, plans)
        jobs_by_session: dict[str, dict[int, GroupJob]] = {session_id: {} for session_id in plans}
        for index, job in self.pending.items():
            if job.session_id in plans:
                jobs_by_session[job.session_id][index] = job
        for session_id, jobs in jobs_by_session.items():
            if session_id in self.needs_locks:
                continue
            plan = plans[session_id]
            stored = stored_rows[session_id]
            if stored or not self._plan_together(plan, jobs):
                self._plan_one_by_one(plan, jobs, stored)
            if plan.needs_locks:
                self.needs_locks.add(session_id)

    def _plan_together(self, plan: SessionPlan, jobs: Mapping[int, GroupJob]) -> bool:
        """Plan the jobs of a session as one append. Return False if they have to be planned one by one."""
        appends = {index: job for index, job in jobs.items() if isinstance(job, AppendRequest)}
        if len(jobs) == 1 or len(appends) < len(jobs) or not self._unconfirmed.keys().isdisjoint(jobs):
            return False
        try:
            return plan.add_together(appends)
        except Exception:  # noqa: BLE001  a value that cannot be encoded: found one by one
            return False

    def _plan_one_by_one(
        self, plan: SessionPlan, jobs: Mapping[int, GroupJob], stored: Mapping[str, Row]
    ) -> None:
        for index, job in jobs.items():
            try:
                plan_group_job(plan, index, job, stored, self._unconfirmed.get(index))
            except TurnlogError as refusal:
                plan.outcomes[index] = refusal
            except Exception as error:  # noqa: BLE001  a value that cannot be encoded fails its own job
                plan.outcomes[index] = as_caller_error(error)

    def _find_stored_rows(
        self, reader: EngineReader, plans: Mapping[str, SessionPlan]
    ) -> dict[str, dict[str, Row]]:
        """Return the stored rows of the event ids of the jobs, by session and id."""
        rows: dict[str, dict[str, Row]] = {session_id: {} for session_id in plans}
        keys = []
        for job in self.pending.values():
            plan = plans.get(job.session_id)
            if plan is not None:
                newest = plan.before.newest
                for event_id in job_event_ids(job):
                    if event_id <= newest or not is_timed_id(event_id):
                        keys.append((plan.before.number, event_id))
        if not keys:
            return rows

        by_number = {plan.before.number: plan for plan in plans.values()}
        for number, event_id, stored in reader.find_rows(dict.fromkeys(keys)):
            record = by_number[number].before.record
            if stored[0] > record.last:
                # Another process has appended since the record was read.
                by_number[number].is_stale = True
            try:
                rows[record.session_id][event_id] = verified_row(record, stored)
            except SessionDamaged:
                self.needs_locks.add(record.session_id)
        return rows


def newest_timed_id(newest: str, event_ids: Sequence[str]) -> str:
    """Return the highest timed id of some, or the newest one before them."""
    highest = max(event_ids, default="")
    if highest <= newest or is_timed_id(highest):  # most groups have timed ids only: one look at the form
        return max(highest, newest)
    return max([newest, *filter(is_timed_id, event_ids)])


def job_event_ids(job: GroupJob) -> Sequence[str]:
    return job.event_ids if isinstance(job, FindEvents) else [event.id for event in job.events]


def plan_group_job(
    plan: SessionPlan, index: int, job: GroupJob, stored: Mapping[str, Row], unconfirmed: JobResult | None
) -> None:
    """Add a job to the plan of its session. Raise its refusal."""
    known = plan.known_rows(stored, job_event_ids(job))
    if isinstance(job, FindEvents):
        plan.outcomes[index] = JobResult(known, (plan.record,))
    elif unconfirmed is not None and has_stored_result(job, unconfirmed, known):
        plan.outcomes[index] = structs.replace(unconfirmed, records=(plan.record,))
    else:
        plan.add(index, job, known)


def compare_and_set(connection: Connection, changes: Sequence[SessionPlan]) -> tuple[set[int], bool]:
    """Write the changes of the sessions that are as planned. Return their numbers.

    The second value says whether a session without an owner is wanted now.
    """
    event_rows: list[EventRow] = []
    spans = SpanColumns()
    records = []
    listed: dict[str, SessionRecord] = {}
    wishes: list[tuple[object, ...]] = []
    for plan in sorted(changes, key=lambda change: change.before.number):
        number, before, _, listed_ms = plan.before
        record = plan.record
        if is_listing_due(before, listed_ms, record):
            plan.listed_ms = record.updated_ms
            listed[record.session_id] = record
        row = encode_record_row(record, plan.newest, plan.listed_ms)
        position = (number, before.epoch, before.revision)
        records.append((*position, row.revision, row.fence, row.newest, row.listed_ms, row.body, row.crc))
        event_rows += plan.event_rows
        for edge in plan.edges:
            spans.add(number, edge)
        if plan.wanted_ms is not None:
            wishes.append((record.session_id, plan.wanted_ms, record.last))

    columns = encode_columns(records, RECORD_ARRAYS)
    values = [*columns, columns[0], *encode_columns(event_rows, EVENT_ARRAYS)]
    parts = [
        (spans.start_rows(), START_ARRAYS),
        (spans.end_rows(), END_ARRAYS),
        (listing_rows(listed), LISTING_ARRAYS),
        (wishes, WISH_ARRAYS),
    ]
    for rows, arrays in parts:
        if rows:
            values += encode_columns(rows, arrays)
    statement = group_statement(*[bool(rows) for rows, _ in parts])
    moved = connection.execute(statement, values, binary=True).fetchall()
    return {number for number, _ in moved}, any(is_free for _, is_free in moved)


@lru_cache(16)
def group_statement(has_starts: bool, has_ends: bool, has_listing: bool, has_wishes: bool) -> Query:
    """Return the statement of a group; what a group does not have costs nothing."""
    statement = COMPARE_AND_SET.replace("{events}", EVENT_SOURCE)
    if has_starts:
        statement += START_PART.replace("{starts}", START_SOURCE).replace("{replace}", REPLACE_SPANS)
    if has_ends:
        statement += END_PART.replace("{ends}", END_SOURCE)
    if has_listing:
        statement += LISTING_PART.replace("{listing}", LISTING_SOURCE).replace("{upsert}", UPSERT_LISTING)
    if has_wishes:
        statement += f"{WISH_PART} select id, coalesce((select bool_or(is_free) from wish), false) from moved"
    else:
        statement += " select id, false from moved"
    return statement


def split_group(
    jobs: Sequence[Job], contended_sessions: Set[str]
) -> tuple[dict[int, GroupJob], dict[int, Job]]:
    """Return the jobs that one statement can run, and the others, by their place in the group.

    Jobs of different sessions do not affect each other. A job whose session has an earlier job under locks
    runs under locks, too, and so do jobs of contended sessions.
    """
    grouped: dict[int, GroupJob] = {}
    locking: dict[int, Job] = {}
    locked_sessions = set(contended_sessions)
    for index, job in enumerate(jobs):
        if isinstance(job, GROUP_JOBS) and job.session_id not in locked_sessions:
            grouped[index] = job
        else:
            locking[index] = job
            locked_sessions.add(job.session_id)
    return grouped, locking
