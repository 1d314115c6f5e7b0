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

from turnlog.errors import CallerError, Damaged, StoreError, TurnlogError, Unavailable
from turnlog.log.store import Store


class Job(NamedTuple):
    """Work, and who is told of it: `after` with what was stored, `on_settled` also of what was not."""

    work: Callable[[Store], Any]
    after: Callable[[Any], Any]
    done: asyncio.Future[Any]
    writes: bool = True
    on_settled: Callable[[], None] | None = None


class WriteHealth:
    """Whether the last write was stored, and when the last one was that was (seconds since 1970).

    `on_failure` is called when writes begin to fail, `on_recovery` when one is stored again.
    """

    def __init__(self, on_failure: Callable[[], None] = lambda: None) -> None:
        self.is_failing = False
        self.stored_s: float | None = None
        self._on_failure = on_failure
        self.on_recovery: Callable[[], None] = lambda: None

    def note(self, jobs: list[Job], outcomes: list[Any]) -> None:
        """Take the outcomes of a group into account. What was refused, or only read, says nothing."""
        has_stored = False
        for job, outcome in zip(jobs, outcomes, strict=True):
            if not isinstance(outcome, Exception):
                has_stored = has_stored or job.writes
            elif isinstance(outcome, StoreError) and not isinstance(outcome, Damaged):
                self._note_failure()
                return
        if has_stored:
            was_failing, self.is_failing = self.is_failing, False
            self.stored_s = time.time()
            if was_failing:
                self.on_recovery()

    def _note_failure(self) -> None:
        if not self.is_failing:
            self.is_failing = True
            self._on_failure()


class Writer:
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
        self,
        work: Callable[[Store], Any],
        after: Callable[[Any], Any],
        writes: bool = True,
        on_settled: Callable[[], None] | None = None,
    ) -> asyncio.Future[Any]:
        """Queue work. When it is durable, `after` is called on the loop and the future gets its result."""
        if self._closed:
            raise Unavailable("the log is closed")
        done: asyncio.Future[Any] = self._loop.create_future()
        self._jobs.put(Job(work, after, done, writes, on_settled))
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
            while len(group) < self._store.group and group[-1] is not None and not self._jobs.empty():
                group.append(self._jobs.get())
            open_for_work = group[-1] is not None
            jobs = [job for job in group if job is not None]
            self._loop.call_soon_threadsafe(settle, jobs, commit(self._store, jobs), self._health)


class Direct:
    """The same for a store that never makes anyone wait: work is done where it is submitted, no thread."""

    def __init__(self, store: Store, health: WriteHealth) -> None:
        self._store = store
        self._health = health
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def submit(
        self,
        work: Callable[[Store], Any],
        after: Callable[[Any], Any],
        writes: bool = True,
        on_settled: Callable[[], None] | None = None,
    ) -> asyncio.Future[Any]:
        """Do the work now; its result comes with the loop's next round, as from a thread."""
        if self._closed:
            raise Unavailable("the log is closed")
        job = Job(work, after, self._loop.create_future(), writes, on_settled)
        self._loop.call_soon(settle, [job], commit(self._store, [job]), self._health)
        return job.done

    async def close(self) -> None:
        """Take no more work; what was done has been told."""
        self._closed = True
        await asyncio.sleep(0)


def commit(store: Store, jobs: list[Job]) -> list[Any]:
    """The outcomes of a group. A job with a bug must not take the others along: then each goes alone."""
    try:
        with store.transaction():
            return [attempt(job.work, store) for job in jobs]
    except StoreError as error:
        return [own_error(error) for _ in jobs]
    except Exception as error:  # noqa: BLE001  the thread must live on; whoever waits gets the error
        if len(jobs) == 1:
            return [refusal(error)]
        return [outcome for job in jobs for outcome in commit(store, [job])]


def own_error(error: StoreError) -> StoreError:
    """Return the same error for one job: each that is raised gets a traceback of its own."""
    own = StoreError(str(error))
    own.__cause__ = error
    return own


def refusal(error: Exception) -> Exception:
    """A value that no column can hold is the caller's fault; everything else is a bug and stays one."""
    if isinstance(error, OverflowError | UnicodeEncodeError):
        return CallerError(f"this cannot be stored: {error}")
    return error


def attempt(work: Callable[[Store], Any], store: Store) -> Any:
    """The result of the work, or the refusal it raised."""
    try:
        return work(store)
    except TurnlogError as error:
        if isinstance(error, StoreError) and not isinstance(error, Damaged):
            raise
        return error


def settle(jobs: list[Job], outcomes: list[Any], health: WriteHealth) -> None:
    """Hand the outcomes on; whoever asked may not be waiting any more, but what is done is done."""
    health.note(jobs, outcomes)
    for job, outcome in zip(jobs, outcomes, strict=True):
        if job.on_settled is not None:
            job.on_settled()
        if isinstance(outcome, Exception):
            if not job.done.cancelled():
                job.done.set_exception(outcome)
        else:
            result = job.after(outcome)
            if not job.done.cancelled():
                job.done.set_result(result)
