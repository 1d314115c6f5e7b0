"""One thread that writes: group commit over all sessions.

Work is a function of the store. The thread commits at once when idle and takes everything that arrived
during an fsync into the next transaction. A function checks first and writes last, so one that raises has
written nothing and its neighbours in the group are not touched. Results reach the event loop after the
commit, one call per group.
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
    work: Callable[[Store], Any]
    on_commit: Callable[[Any], Any]
    future: asyncio.Future[Any]
    writes: bool = True


class WriteHealth:
    """Whether the last write was stored, and when the last one was that was (seconds since 1970).

    `on_failure` is called when writes begin to fail, `on_recovery` when one is stored again.
    """

    def __init__(self, on_failure: Callable[[], None] = lambda: None) -> None:
        self.is_failing = False
        self.last_stored_s: float | None = None
        self._on_failure = on_failure
        self.on_recovery: Callable[[], None] = lambda: None

    def record_outcomes(self, jobs: list[Job], outcomes: list[Any]) -> None:
        """Take the outcomes of a group into account. What was refused, or only read, says nothing."""
        if any(isinstance(one, StoreError) and not isinstance(one, SessionDamaged) for one in outcomes):
            if not self.is_failing:
                self.is_failing = True
                self._on_failure()
        elif any(
            job.writes and not isinstance(one, Exception) for job, one in zip(jobs, outcomes, strict=True)
        ):
            was_failing, self.is_failing = self.is_failing, False
            self.last_stored_s = time.time()
            if was_failing:
                self.on_recovery()


class WriterThread:
    """Runs work on the store, in order, in groups."""

    def __init__(self, store: Store, health: WriteHealth) -> None:
        self._store = store
        self._health = health
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="turnlog-writer", daemon=True)
        self._thread.start()

    def submit(
        self, work: Callable[[Store], Any], on_commit: Callable[[Any], Any], writes: bool = True
    ) -> asyncio.Future[Any]:
        """Queue work. When it is durable, `after` is called on the loop and the future gets its result."""
        if self._closed:
            raise Unavailable("the log is closed")
        done: asyncio.Future[Any] = self._loop.create_future()
        self._jobs.put(Job(work, on_commit, done, writes))
        return done

    async def close(self) -> None:
        """Finish what was submitted and end the thread."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)  # whoever closes too must not be ahead of it

    def _run(self) -> None:
        open_for_work = True
        while open_for_work:
            group = [self._jobs.get()]
            while len(group) < self._store.max_batch and group[-1] is not None and not self._jobs.empty():
                group.append(self._jobs.get())
            open_for_work = group[-1] is not None
            jobs = [job for job in group if job is not None]
            self._loop.call_soon_threadsafe(
                resolve_futures, jobs, commit_jobs(self._store, jobs), self._health
            )


class InlineWriter:
    """The same for a store that never makes anyone wait: work is done where it is submitted, no thread."""

    def __init__(self, store: Store, health: WriteHealth) -> None:
        self._store = store
        self._health = health
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def submit(
        self, work: Callable[[Store], Any], on_commit: Callable[[Any], Any], writes: bool = True
    ) -> asyncio.Future[Any]:
        """Do the work now; its result comes with the loop's next round, as from a thread."""
        if self._closed:
            raise Unavailable("the log is closed")
        job = Job(work, on_commit, self._loop.create_future(), writes)
        self._loop.call_soon(resolve_futures, [job], commit_jobs(self._store, [job]), self._health)
        return job.future

    async def close(self) -> None:
        """Take no more work; what was done has been told."""
        self._closed = True
        await asyncio.sleep(0)


def commit_jobs(store: Store, jobs: list[Job]) -> list[Any]:
    """The outcomes of a group. A job with a bug must not take the others along: then each goes alone."""
    try:
        with store.transaction():
            return [run_job(job.work, store) for job in jobs]
    except StoreError as error:
        return [copy_error(error) for _ in jobs]
    except Exception as error:  # noqa: BLE001  the thread must live on; whoever waits gets the error
        if len(jobs) == 1:
            return [as_caller_error(error)]
        return [outcome for job in jobs for outcome in commit_jobs(store, [job])]


def copy_error(error: StoreError) -> StoreError:
    """Return the same error for one job: each that is raised gets a traceback of its own."""
    own = StoreError(str(error))
    own.__cause__ = error
    return own


def as_caller_error(error: Exception) -> Exception:
    """A value that no column can hold is the caller's fault; everything else is a bug and stays one."""
    if isinstance(error, OverflowError | UnicodeEncodeError):
        return CallerError(f"this cannot be stored: {error}")
    return error


def run_job(work: Callable[[Store], Any], store: Store) -> Any:
    """The result of the work, or the refusal it raised."""
    try:
        return work(store)
    except TurnlogError as error:
        if isinstance(error, StoreError) and not isinstance(error, SessionDamaged):
            raise
        return error


def resolve_futures(jobs: list[Job], outcomes: list[Any], health: WriteHealth) -> None:
    """Hand the outcomes on; whoever asked may not be waiting any more, but what is done is done."""
    health.record_outcomes(jobs, outcomes)
    for job, outcome in zip(jobs, outcomes, strict=True):
        if isinstance(outcome, Exception):
            if not job.future.cancelled():
                job.future.set_exception(outcome)
        else:
            result = job.on_commit(outcome)
            if not job.future.cancelled():
                job.future.set_result(result)
