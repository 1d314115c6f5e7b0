"""Sessions in a PostgreSQL: any number of processes append to them, read them and own them.

Appends of one process are committed in groups, each in one statement (`group_commit`); other jobs, and
appends that lost to another process twice, run under row locks (`transaction`). While the engine is away the
same jobs are repeated: an append that was committed without an answer is recognised by its ids. A commit is
never cancelled. Other processes hear of changes by a bell beside the commit (`notify_bell`).
"""

import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from turnlog.errors import SessionDamaged, StoreError
from turnlog.ids import new_process_id
from turnlog.log.bell import Bell, RingListener, StopListening
from turnlog.log.jobs import (
    AppendRequest,
    ClaimWanted,
    CloseSession,
    CreateSession,
    Job,
    JobOutcome,
    JobResult,
)
from turnlog.log.leases import LeaseState
from turnlog.log.listing import invitations_name, list_name
from turnlog.log.local_jobs import (
    SESSION_JOB_HANDLERS,
    JobHandlers,
    as_caller_error,
    copy_error,
    run_job_with,
)
from turnlog.log.postgres.claims import OwnerClaims, forget_old_owners
from turnlog.log.postgres.connections import (
    PATIENCE_S,
    Connection,
    EngineAway,
    EngineLink,
    LostRace,
    Patience,
    open_connection,
    translate_engine_errors,
)
from turnlog.log.postgres.contention import Contention
from turnlog.log.postgres.failover import resolve_doubt
from turnlog.log.postgres.group_commit import GroupCommit, GroupJob, split_group
from turnlog.log.postgres.notify_bell import NotifyBell
from turnlog.log.postgres.reading import EngineReader
from turnlog.log.postgres.repetition import append_once, close_once, create_once
from turnlog.log.postgres.schema import StoredRecord, check_version, migrate
from turnlog.log.postgres.transaction import EngineTransaction
from turnlog.log.postgres.verify import verify_engine
from turnlog.log.records import (
    Blob,
    Damage,
    Document,
    FrameBatch,
    ListPosition,
    News,
    Page,
    SessionRecord,
    TypeQuery,
)

T = TypeVar("T")

LEASE_S = 10.0  # how long an owner is alive after its last renewal; owners renew every 3 s
RECONCILE_S = 3.0  # how often a log reads its followed sessions: a lost ring delays an event at most so long
MAX_CACHED_SESSIONS = 10_000  # records that the writer keeps in memory
MAX_GROUP_BYTES = 1 << 26  # of the events in one statement: PostgreSQL takes no value of 1 GiB
OPTIMISTIC_TRIES = 2  # on cached records, then on fresh ones; after that under row locks
CLOSE_CHECK_S = 1.0  # how often a log that is being closed asks whether the engine answers
MAX_CONTENDED_JOBS = (
    8  # of a group whose contended sessions are locked at once: each job is a few round trips
)


class PostgresStore:
    """The store behind `postgresql://`."""

    max_batch = 512  # jobs that share a commit: bounds how long the first one waits
    reader_threads = 2
    reconcile_s: float | None = RECONCILE_S

    def __init__(
        self,
        url: str,
        *,
        writable: bool = True,
        patience_s: float = PATIENCE_S,
        lease_s: float = LEASE_S,
        node: str | None = None,
    ) -> None:
        """`node` names this machine; the default is its host name."""
        self._url = url
        self.lease_s: float | None = lease_s
        self._process = new_process_id()
        self._stop = threading.Event()
        self._closed = threading.Event()
        self._patience = Patience(patience_s, self._stop)
        self._lost_claims: set[str] = set()
        claims = OwnerClaims(self._process, lease_s, node or socket.gethostname(), self._lost_claims)
        self._handlers: JobHandlers = {
            **SESSION_JOB_HANDLERS,
            **claims.handlers(),
            AppendRequest: append_once,
            CloseSession: close_once,
            CreateSession: create_once,
        }
        self._cache: dict[str, StoredRecord] = {}
        self._contention = Contention()
        self._commit_lock = threading.Lock()
        self._commit_count = 0
        self._is_unconfirmed = False  # a commit has failed since the last one that is known to be durable
        self._writer = EngineLink(url, self._on_writer_connect)
        self._local = threading.local()
        self._links: list[EngineLink] = [self._writer]
        self._bell = Bell()
        self._notify_bell: NotifyBell | None = None
        with open_connection(url) as connection, translate_engine_errors():
            if writable:
                migrate(connection)
            else:
                check_version(connection)

    def listen(self, ring: RingListener) -> StopListening:
        if self._notify_bell is None:
            self._notify_bell = NotifyBell(self._url, self._process, self._on_foreign_ring)
        return self._bell.listen(ring)

    def _on_foreign_ring(self, moved: Mapping[str, int], is_wanted: bool) -> None:
        """Forget records that another process has changed, and ring for the logs of this one."""
        self._contention.note_rings(moved)
        for session_id, last in moved.items():
            stored = self._cache.get(session_id)
            if stored is not None and stored.record.last < last:
                self._cache.pop(session_id, None)
        self._bell.ring(moved, is_wanted)

    def stop_waiting(self) -> None:
        if self._bell.listener_count > 1 or self._stop.is_set():  # another log may use this store
            return
        self._stop.set()
        threading.Thread(target=self._cut_if_silent, name="turnlog-closing", daemon=True).start()

    def _cut_if_silent(self) -> None:
        """Cut the connections when the engine accepts no other one: it may be frozen, or out of reach.

        An engine that only takes long to answer is waited for.
        """
        while not self._closed.wait(CLOSE_CHECK_S):
            try:
                open_connection(self._url).close()
            except EngineAway:
                self._patience.end()
                for link in self._links:
                    link.cut()
                if self._notify_bell is not None:
                    self._notify_bell.cut()

    def close(self) -> None:
        if self._bell.has_listeners:
            return
        self._stop.set()
        if self._notify_bell is not None:
            self._notify_bell.close()
            self._notify_bell = None
        for link in self._links:
            link.drop()
        self._closed.set()

    # writing

    def commit(self, jobs: Sequence[Job]) -> list[JobOutcome]:
        with self._commit_lock:
            return [outcome for part in split_by_size(jobs) for outcome in self._commit_part(part)]

    def _commit_part(self, jobs: Sequence[Job]) -> list[JobOutcome]:
        self._commit_count += 1
        outcomes: dict[int, JobOutcome] = {}
        unconfirmed: dict[int, JobResult] = {}
        contended_sessions = set()
        if len(jobs) <= MAX_CONTENDED_JOBS:
            contended_sessions = self._contention.find_contended([job.session_id for job in jobs])
        grouped, locking = split_group(jobs, contended_sessions)
        try:
            locking |= self._commit_group(grouped, outcomes, unconfirmed)
            self._commit_under_locks(dict(sorted(locking.items())), outcomes, unconfirmed)
            if self._is_unconfirmed:
                self._repeat(self._confirm)
        except StoreError as error:
            outcomes = {index: copy_error(error) for index in range(len(jobs))}
        self._note_claims(jobs, outcomes, unconfirmed)
        return [outcomes[index] for index in range(len(jobs))]

    def _note_claims(
        self, jobs: Sequence[Job], outcomes: Mapping[int, JobOutcome], unconfirmed: Mapping[int, JobResult]
    ) -> None:
        """Remember claims that may be committed although their caller got an error: its next one has them."""
        for index, job in enumerate(jobs):
            if not isinstance(job, ClaimWanted):
                continue
            if isinstance(outcomes[index], JobResult):
                self._lost_claims.clear()
            elif index in unconfirmed:
                self._lost_claims.add(self._job_key(index))

    def _commit_group(
        self, jobs: Mapping[int, GroupJob], outcomes: dict[int, JobOutcome], unconfirmed: dict[int, JobResult]
    ) -> dict[int, Job]:
        """Commit jobs in one statement each time. Return those that need row locks."""
        pending = dict(jobs)
        locking: dict[int, Job] = {}

        def run_group(*, use_cache: bool) -> None:
            nonlocal pending
            group = GroupCommit(pending, unconfirmed)
            try:
                connection = self._writer.open()
                # Not earlier: a new connection empties the cache.
                cached = self._cached_records(pending.values()) if use_cache else {}
                with translate_engine_errors():
                    result = group.run(connection, cached)
                self._writer.check_quorum()
            except EngineAway:
                unconfirmed.update(group.sent_results())
                raise
            self._publish(result.changed, result.is_wanted)
            outcomes.update(group.outcomes)
            pending = {}
            for index, job in group.pending.items():
                (locking if job.session_id in group.needs_locks else pending)[index] = job

        for attempt in range(OPTIMISTIC_TRIES):
            if not pending:
                break
            try:
                self._repeat(partial(run_group, use_cache=attempt == 0))
            except StoreError:
                raise
            except Exception:  # noqa: BLE001  a value that cannot be stored: found job by job under locks
                break
        return {**locking, **pending}

    def _cached_records(self, jobs: Iterable[Job]) -> dict[str, StoredRecord]:
        records = {}
        for session_id in {job.session_id for job in jobs}:
            stored = self._cache.get(session_id)
            if stored is not None:
                records[session_id] = stored
        return records

    def _commit_under_locks(
        self, jobs: Mapping[int, Job], outcomes: dict[int, JobOutcome], unconfirmed: dict[int, JobResult]
    ) -> None:
        """Commit jobs in one transaction under row locks. A value that cannot be stored fails its own job."""
        if not jobs:
            return

        def run_jobs() -> None:
            results: dict[int, JobOutcome] = {}
            earlier = {self._job_key(index): result for index, result in unconfirmed.items()}
            try:
                transaction = EngineTransaction(self._writer.open(), earlier)
                with translate_engine_errors(), transaction.connection.transaction():
                    transaction.lock_sessions(job.session_id for job in jobs.values())
                    for index, job in jobs.items():
                        transaction.job_key = self._job_key(index)
                        results[index] = run_job_with(self._handlers, transaction, job)
                    transaction.flush()
                self._writer.check_quorum()
            except EngineAway:
                unconfirmed.update(unconfirmed_results(results))
                raise
            self._publish(transaction.changed_records(), transaction.is_wanted)
            outcomes.update(results)

        try:
            self._repeat(run_jobs)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  the writer must live on; the callers get the error
            if len(jobs) == 1:
                outcomes.update(dict.fromkeys(jobs, as_caller_error(error)))
                return
            for index, job in jobs.items():
                self._commit_under_locks({index: job}, outcomes, unconfirmed)

    def _confirm(self) -> None:
        """Commit a change. Whatever was committed before it is as durable as the change then.

        A repeated job may have found that its first try is stored, but not that it is replicated: the engine
        shows a commit when its wait for a standby was cut off.
        """
        with translate_engine_errors():
            self._writer.open().execute("update engine set quorum = quorum")
        self._writer.check_quorum()
        self._is_unconfirmed = False

    def _job_key(self, index: int) -> str:
        """Return a name for a job of this commit that no other job has."""
        return f"{self._process}-{self._commit_count}-{index}"

    def _repeat(self, work: Callable[[], T]) -> T:
        return self._patience.repeat(work, self._on_commit_failure)

    def _on_commit_failure(self, error: EngineAway) -> None:
        if not isinstance(error, LostRace):
            self._is_unconfirmed = True
            self._writer.drop()

    def _on_writer_connect(self, connection: Connection) -> None:
        with translate_engine_errors():
            doubtful = resolve_doubt(connection, list(self._cache.values()))
            forget_old_owners(connection)
        self._cache.clear()
        if doubtful:
            self._ring(dict.fromkeys(doubtful, -1), False)

    def _publish(self, changed: Sequence[StoredRecord], is_wanted: bool) -> None:
        """Keep the records after a commit and tell all listeners."""
        if len(self._cache) > MAX_CACHED_SESSIONS:
            self._cache.clear()
        for stored in changed:
            self._cache[stored.record.session_id] = stored
        moved = {stored.record.session_id: stored.record.last for stored in changed}
        if moved or is_wanted:
            self._ring(moved, is_wanted)

    def _ring(self, moved: Mapping[str, int], is_wanted: bool) -> None:
        self._bell.ring(moved, is_wanted)
        if self._notify_bell is not None:
            self._notify_bell.ring(moved, is_wanted)

    # reading

    def _read(self, work: Callable[[EngineReader], T]) -> T:
        """Run reads on the connection of this thread, again while the engine is away."""
        link: EngineLink | None = getattr(self._local, "link", None)
        if link is None:
            link = self._local.link = EngineLink(self._url)
            self._links.append(link)

        def read_once() -> T:
            with translate_engine_errors():
                return work(EngineReader(link.open()))

        return self._patience.repeat(read_once, lambda _: link.drop())

    def info(self, session_id: str) -> SessionRecord | None:
        stored = self._read(lambda reader: reader.load_record(session_id))
        return stored.record if stored else None

    def sessions(self) -> list[SessionRecord]:
        items = self._read(lambda reader: list(reader.records()))
        return [item.record for item in items if isinstance(item, StoredRecord)]

    def damaged_sessions(self) -> list[str]:
        items = self._read(lambda reader: list(reader.records()))
        return [item.session_id for item in items if isinstance(item, SessionDamaged)]

    def listing(
        self, principal: str | None, after: ListPosition | None, limit: int
    ) -> list[tuple[ListPosition, SessionRecord]]:
        return self._read(lambda reader: reader.listing(list_name(principal), after, limit))

    def invitations(self, principal: str, limit: int) -> list[SessionRecord]:
        items = self._read(lambda reader: reader.listing(invitations_name(principal), None, limit))
        return [record for _, record in items]

    def read(self, session_id: str, after: int, replay_from: int | None, limit_bytes: int) -> Page:
        return self._read(lambda reader: reader.read(session_id, after, replay_from, limit_bytes))

    def read_news(self, positions: Mapping[str, int]) -> dict[str, News]:
        return self._read(lambda reader: reader.read_news(positions))

    def read_types(self, session_id: str, type_query: TypeQuery) -> Page:
        return self._read(lambda reader: reader.read_types(session_id, type_query))

    def read_frames(
        self, session_id: str, after: int, replay_from: int | None, limit_bytes: int
    ) -> FrameBatch | None:
        page = self.read(session_id, after, replay_from, limit_bytes)
        return page.frames() if page else None

    def has_event(self, session_id: str, seq: int) -> bool:
        return self._read(lambda reader: reader.has_event(session_id, seq))

    def oldest_open_turn_start(self, session_id: str, at: int) -> int:
        return self._read(lambda reader: reader.oldest_open_turn_start(session_id, at))

    def turn_bounds(self, session_id: str, trace: str) -> tuple[int, int | None] | None:
        return self._read(lambda reader: reader.turn_bounds(session_id, trace))

    def agent_starts(self, key: str) -> list[tuple[str, int]]:
        return self._read(lambda reader: reader.agent_starts(key))

    def span_end(self, session_id: str, key: str) -> int | None:
        return self._read(lambda reader: reader.span_end(session_id, key))

    def sessions_with_open_agents(self) -> list[str]:
        return self._read(lambda reader: reader.sessions_with_open_agents())

    def blob(self, name: str) -> Blob | None:
        return self._read(lambda reader: reader.blob(name))

    def blob_names(self, session_id: str, is_private: bool) -> list[str]:
        return self._read(lambda reader: reader.blob_names(session_id, is_private))

    def documents(
        self, session_id: str | None, type: str | None, category: str | None, version: str
    ) -> list[Document]:
        return self._read(lambda reader: reader.documents(session_id, type, category, version))

    def snapshot(self, session_id: str, name: str, at: int, version: str = "") -> tuple[int, bytes] | None:
        return self._read(lambda reader: reader.snapshot(session_id, name, at, version))

    def owner_of(self, session_id: str) -> str | None:
        return self._read(lambda reader: reader.owner_of(session_id))

    def holds_lease(self, session_id: str, owner: str, fence: int) -> bool:
        return self._read(lambda reader: reader.holds_lease(session_id, owner, self._process, fence))

    def lease_states(self, session_ids: Sequence[str]) -> dict[str, LeaseState]:
        return self._read(lambda reader: reader.lease_states(session_ids))

    def next_wake_ms(self, after_ms: int) -> int | None:
        return self._read(lambda reader: reader.next_wake_ms(after_ms))

    def damages(self) -> list[Damage]:
        return self._read(lambda reader: reader.damages())

    def verify(self) -> Iterator[Damage]:
        yield from self._read(lambda reader: list(verify_engine(reader)))


def split_by_size(jobs: Sequence[Job]) -> Iterator[Sequence[Job]]:
    """Yield the jobs in parts whose events fit one statement."""
    start = 0
    size_bytes = 0
    for index, job in enumerate(jobs):
        job_bytes = sum([len(event.body) for event in job.events]) if isinstance(job, AppendRequest) else 0
        if size_bytes + job_bytes > MAX_GROUP_BYTES and index > start:
            yield jobs[start:index]
            start = index
            size_bytes = 0
        size_bytes += job_bytes
    yield jobs[start:]


def unconfirmed_results(results: Mapping[int, JobOutcome]) -> dict[int, JobResult]:
    return {index: result for index, result in results.items() if isinstance(result, JobResult)}
