"""A driver's view of its session's log: folds events, waits for positions, and appends closing events.

The driver passes in `apply`, which folds one event, and the coroutine that follows the log. Other tasks wait
here until a position has been folded. Closing events are appended only if the log has not moved since they
were computed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from typing import Any

from turnlog.agents.runtime.optimistic_append import AppendPlan, append_if_unchanged
from turnlog.agents.runtime.session_writer import SessionWriter
from turnlog.errors import SessionClosed, Unavailable
from turnlog.events import Envelope, EventDraft
from turnlog.log import Log, Row
from turnlog.log.wakeup import Wakeup
from turnlog.state.tree import Tree

log = logging.getLogger("turnlog.agents")


class SessionFollower:
    """Follows one session. `apply` folds into `tree`, whose `last_seq` is the position of this follower."""

    def __init__(
        self,
        log: Log,
        session_id: str,
        writer: SessionWriter,
        tree: Tree,
        apply: Callable[[Row, Envelope], Any],
    ) -> None:
        self._log = log
        self._session_id = session_id
        self._writer = writer
        self._tree = tree
        self._apply = apply
        self.task: asyncio.Task[None] | None = None
        self._has_failed = False
        self._wakeup = Wakeup()

    # following

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.task = asyncio.create_task(work, context=Context())
        self.task.add_done_callback(self._on_follow_done)

    def _on_follow_done(self, task: asyncio.Task[None]) -> None:
        # the task ended by itself: wake the waiters, which raise `Unavailable`; after `stop` the driver wakes
        # them when it has closed what was open
        log_task_error(task)
        if self._has_failed or not task.cancelled():
            self._wakeup.wake()

    @property
    def has_ended(self) -> bool:
        """Return whether the task ended without `stop`.

        It ends so if it fails, or if the session is closed or has a new history.
        """
        if self.task is None or not self.task.done():
            return False
        return self._has_failed or not self.task.cancelled()

    def on_task_done(self, task: asyncio.Task[None]) -> None:
        """Log how a task of the driver ended; if it failed, stop following.

        The events of the failed task are not in the log, so its turn would never end here. The next driver
        that opens the session closes it.
        """
        log_task_error(task)
        has_error = not task.cancelled() and task.exception() is not None
        if has_error and self.task is not None and not self.task.done():
            self._has_failed = True
            self.task.cancel()

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    def notify(self) -> None:
        self._wakeup.wake()

    # waiting

    async def wait_for_seq(self, seq: int) -> None:
        while self._tree.last_seq < seq:
            if self.task is not None and self.task.done():
                raise Unavailable("the session's driver is not running; try again")
            await self._wakeup.wait()

    async def wait_until_idle(self, trace: str) -> None:
        while not self._tree.is_settled(trace):
            await self.wait_for_seq(self._tree.last_seq + 1)

    async def wait_for_head(self) -> int:
        await self.wait_for_seq(await self._log.last_seq(self._session_id))
        return self._tree.last_seq

    # reading and closing

    async def replay_to_head(self) -> int:
        """Fold everything that is in the log now, without acting on it. Return the last seq."""
        while page := await self._log.read(self._session_id, self._tree.last_seq):
            for row, envelope in zip(page, page.envelopes(), strict=True):
                self._apply(row, envelope)
        return self._tree.last_seq

    async def append_closings(
        self, closings: Callable[[], list[EventDraft]], refresh: Callable[[], Awaitable[Any]]
    ) -> None:
        """Append closing events. If an answer arrives at the same moment, refresh and compute them again."""

        async def make_plan() -> AppendPlan | None:
            items = closings()
            if not items:
                return None
            events = [self._writer.build_event(item) for item in items]
            last = self._tree.last_seq
            return AppendPlan(events, last, {"expected_last": last})

        async def catch_up(_: int) -> None:
            await refresh()

        await append_if_unchanged(self._writer.write, make_plan, catch_up)


def log_task_error(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, SessionClosed):
        log.error("a session's task failed: %s", error, exc_info=error)
