"""The writer: one thread that commits jobs of all sessions in groups.

A job is a function of the store. The thread commits at once when it is idle, and takes all jobs that arrived
during an fsync into the next transaction. A job checks first and writes last, so one that raises has written
nothing and its neighbours in the group are not touched. Results reach the event loop after the commit, in
one call per group.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from turnlog.errors import CallerError, SessionDamaged, StoreError, TurnlogError, Unavailable
from turnlog.log.store import Store


class Job(NamedTuple):
    """Work for the store. `on_commit` gets its result on the event loop; its own result goes to `future`.

    `on_settled` is called after success and after failure, before `on_commit`.
    """

    work: Callable[[Store], Any]
    on_commit: Callable[[Any], Any]
    future: asyncio.Future[Any]
    writes: bool = True
    on_settled: Callable[[], None] | None = None


class WriteHealth:
    """Whether the last write was stored, and the time of the last one that was (seconds since 1970).

    `on_failure` is called when writes begin to fail, `on_recovery` when one is stored again.
    """

    def __init__(self, on_failure: Callable[[], None] = lambda: None) -> None:
        self.is_failing = False
        self.last_stored_s: float | None = None
        self._on_failure = on_failure
        self.on_recovery: Callable[[], None] = lambda: None

    def record_outcomes(self, jobs: list[Job], outcomes: list[Any]) -> None:
        """Update the health after a group. Jobs that were refused or only read do not count."""
        has_stored = False
        for job, outcome in zip(jobs, outcomes, strict=True):
            if is_store_failure(outcome):
                self._record_failure()
                return
            if job.writes and not isinstance(outcome, Exception):
                has_stored = True

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


class WriterThread:
    """Runs jobs on the store in a thread, in order and in groups."""

    def __init__(self, store: Store, health: WriteHealth) -> None:
        self._store = store
        self._health = health
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()  # None ends the thread
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="turnlog-writer", daemon=True)
        self._thread.start()

    def submit(
        self,
        work: Callable[[Store], Any],
        on_commit: Callable[[Any], Any],
        writes: bool = True,
        on_settled: Callable[[], None] | None = None,
    ) -> asyncio.Future[Any]:
        """Queue a job. Raise `Unavailable` after `close`."""
        if self._closed:
            raise Unavailable("the log is closed")
        future: asyncio.Future[Any] = self._loop.create_future()
        self._jobs.put(Job(work, on_commit, future, writes, on_settled))
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
            group = [self._jobs.get()]
            while len(group) < self._store.max_batch and group[-1] is not None and not self._jobs.empty():
                group.append(self._jobs.get())

            is_open = group[-1] is not None
            jobs = [job for job in group if job is not None]
            outcomes = commit_jobs(self._store, jobs)
            self._loop.call_soon_threadsafe(resolve_futures, jobs, outcomes, self._health)


class InlineWriter:
    """Runs jobs at once on the event loop, for a store whose methods never block."""

    def __init__(self, store: Store, health: WriteHealth) -> None:
        self._store = store
        self._health = health
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def submit(
        self,
        work: Callable[[Store], Any],
        on_commit: Callable[[Any], Any],
        writes: bool = True,
        on_settled: Callable[[], None] | None = None,
    ) -> asyncio.Future[Any]:
        """Run a job now. Its future resolves in the next turn of the loop. Raise `Unavailable` if closed."""
        if self._closed:
            raise Unavailable("the log is closed")
        job = Job(work, on_commit, self._loop.create_future(), writes, on_settled)
        self._loop.call_soon(resolve_futures, [job], commit_jobs(self._store, [job]), self._health)
        return job.future

    async def close(self) -> None:
        self._closed = True
        await asyncio.sleep(0)


def commit_jobs(store: Store, jobs: list[Job]) -> list[Any]:
    """Run jobs in one transaction. Return the result of each, or its exception."""
    try:
        with store.transaction():
            return [run_job(job.work, store) for job in jobs]
    except StoreError as error:
        return [copy_error(error) for _ in jobs]
    except Exception as error:  # noqa: BLE001  the thread must live on; the callers get the error
        if len(jobs) == 1:
            return [as_caller_error(error)]
        # One job has a bug, and the transaction was rolled back: run each job alone.
        return [outcome for job in jobs for outcome in commit_jobs(store, [job])]


def copy_error(error: StoreError) -> StoreError:
    # Each exception that is raised needs a traceback of its own.
    copy = StoreError(str(error))
    copy.__cause__ = error
    return copy


def as_caller_error(error: Exception) -> Exception:
    """Return a `CallerError` for a value that no column can hold. Return any other exception as it is."""
    if isinstance(error, OverflowError | UnicodeEncodeError):
        return CallerError(f"this cannot be stored: {error}")
    return error


def is_store_failure(outcome: Any) -> bool:
    return isinstance(outcome, StoreError) and not isinstance(outcome, SessionDamaged)


def run_job(work: Callable[[Store], Any], store: Store) -> Any:
    """Return the result of a job, or the refusal that it raised. A failure of the store is raised."""
    try:
        return work(store)
    except TurnlogError as error:
        if is_store_failure(error):
            raise
        return error


def resolve_futures(jobs: list[Job], outcomes: list[Any], health: WriteHealth) -> None:
    """Deliver outcomes on the event loop. `on_commit` runs even if the caller has stopped waiting."""
    health.record_outcomes(jobs, outcomes)
    for job, outcome in zip(jobs, outcomes, strict=True):
        if job.on_settled is not None:
            job.on_settled()
        if isinstance(outcome, Exception):
            if not job.future.cancelled():
                job.future.set_exception(outcome)
            continue

        result = job.on_commit(outcome)
        if not job.future.cancelled():
            job.future.set_result(result)
