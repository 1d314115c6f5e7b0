"""The writer: one thread that commits jobs of all sessions in groups.

The thread commits at once when it is idle, and gives all jobs that arrived during an fsync to the store as
one group. Outcomes reach the event loop after the commit, in one call per group.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from turnlog.errors import Unavailable
from turnlog.log.jobs import (
    AppendRequest,
    ClaimWanted,
    EndOwner,
    FindEvents,
    Job,
    JobOutcome,
    JobResult,
    RenewOwner,
    SaveSeen,
    SaveStates,
)
from turnlog.log.local_jobs import is_store_failure
from turnlog.log.store import EventStore


class PendingJob(Struct, frozen=True):
    """A job that is not committed yet. The value of its result goes to `future`."""

    job: Job
    future: asyncio.Future[Any]


OnOutcome = Callable[[Job, JobOutcome], None]
"""Is called on the event loop with each outcome, before its future resolves."""


class WriteHealth:
    """Whether the last write was stored, and the time of the last one that was (seconds since 1970).

    `on_failure` is called when writes begin to fail, `on_recovery` when one is stored again.
    """

    def __init__(self, on_failure: Callable[[], None] = lambda: None) -> None:
        self.is_failing = False
        self.last_stored_s: float | None = None
        self._on_failure = on_failure
        self.on_recovery: Callable[[], None] = lambda: None

    def record_outcomes(self, jobs: Sequence[PendingJob], outcomes: Sequence[JobOutcome]) -> None:
        """Update the health after a group. Jobs that were refused or only read do not count."""
        has_stored = False
        for pending, outcome in zip(jobs, outcomes, strict=True):
            if isinstance(outcome, JobResult):
                has_stored = has_stored or has_written(pending.job, outcome)
            elif is_store_failure(outcome):
                self._record_failure()
                return

        if has_stored:
            was_failing = self.is_failing
            self.is_failing = False
            self.last_stored_s = time.time()
            if was_failing:
                self.on_recovery()

    def _record_failure(self) -> None:
        if not self.is_failing:
            self.is_failing = True
            self._on_failure()


# Jobs that may succeed without a write: they say nothing about the disk.
NEUTRAL_JOBS = (FindEvents, ClaimWanted, SaveSeen, SaveStates, RenewOwner, EndOwner)


def has_written(job: Job, result: JobResult) -> bool:
    if isinstance(job, AppendRequest):
        return bool(result.rows)
    return not isinstance(job, NEUTRAL_JOBS)


class WriterThread:
    """Commits jobs in a thread, in order and in groups."""

    def __init__(self, store: EventStore, health: WriteHealth, on_outcome: OnOutcome) -> None:
        self._store = store
        self._health = health
        self._on_outcome = on_outcome
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[PendingJob | None] = queue.SimpleQueue()  # None ends the thread
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="turnlog-writer", daemon=True)
        self._thread.start()

    @property
    def is_committing_here(self) -> bool:
        """Whether the caller runs inside a commit of this writer."""
        return threading.current_thread() is self._thread

    def submit(self, job: Job) -> asyncio.Future[Any]:
        """Queue a job. Raise `Unavailable` after `close`."""
        if self._closed:
            raise Unavailable("the log is closed")
        future: asyncio.Future[Any] = self._loop.create_future()
        self._jobs.put(PendingJob(job, future))
        return future

    async def close(self) -> None:
        """Finish all submitted jobs and end the thread."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)  # a second caller must wait, too

    def _run(self) -> None:
        is_open = True
        while is_open:
            group = self._take_group()
            is_open = group[-1] is not None
            jobs = [pending for pending in group if pending is not None]
            outcomes = self._store.commit([pending.job for pending in jobs]) if jobs else []
            self._loop.call_soon_threadsafe(resolve_futures, jobs, outcomes, self._health, self._on_outcome)

    def _take_group(self) -> list[PendingJob | None]:
        """Wait for a job and return it with those that are queued behind it."""
        take = self._jobs.get
        first = take()
        # Only this thread takes jobs, so none of these has to be waited for.
        count = min(self._jobs.qsize(), self._store.max_batch - 1)
        return [first, *[take() for _ in range(count)]]


class InlineWriter:
    """Commits jobs at once on the event loop, for a store whose methods never block."""

    def __init__(self, store: EventStore, health: WriteHealth, on_outcome: OnOutcome) -> None:
        self._store = store
        self._health = health
        self._on_outcome = on_outcome
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._committing_thread: int | None = None

    @property
    def is_committing_here(self) -> bool:
        """Whether the caller runs inside a commit of this writer."""
        return self._committing_thread == threading.get_ident()

    def submit(self, job: Job) -> asyncio.Future[Any]:
        """Commit a job now. Its future resolves in the next turn of the loop. See `WriterThread.submit`."""
        if self._closed:
            raise Unavailable("the log is closed")
        pending = PendingJob(job, self._loop.create_future())
        self._committing_thread = threading.get_ident()
        try:
            outcomes = self._store.commit([job])
        finally:
            self._committing_thread = None
        self._loop.call_soon(resolve_futures, [pending], outcomes, self._health, self._on_outcome)
        return pending.future

    async def close(self) -> None:
        self._closed = True
        await asyncio.sleep(0)


def resolve_futures(
    jobs: Sequence[PendingJob], outcomes: Sequence[JobOutcome], health: WriteHealth, on_outcome: OnOutcome
) -> None:
    """Deliver outcomes on the event loop. `on_outcome` runs even if the caller has stopped waiting."""
    health.record_outcomes(jobs, outcomes)
    for pending, outcome in zip(jobs, outcomes, strict=True):
        on_outcome(pending.job, outcome)
        future = pending.future
        if future.cancelled():
            continue
        if isinstance(outcome, JobResult):
            future.set_result(outcome.value)
        else:
            future.set_exception(outcome)
