"""A session's log as a driver sees it: folded event by event, followed page by page, waited for, closed.

Whoever works on a session hands in what one event means to it (`apply`) and the work of following. Everybody
else waits here until something has been taken into account. What is closed is closed as it was seen: if the
log has moved meanwhile, it is looked at again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from typing import Any

from turnlog.agents.runtime.session_writer import SessionWriter
from turnlog.agents.runtime.turn_loop import TurnEvent
from turnlog.errors import Conflict, SessionClosed, Unavailable
from turnlog.events import Envelope
from turnlog.log import Log, Row
from turnlog.log.wakeup import Wakeup
from turnlog.state.closing import ClosingEvent
from turnlog.state.tree import Tree

log = logging.getLogger("turnlog.agents")


class SessionFollower:
    """Follows one session; `tree` is what `apply` folds, up to its `last`."""

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
        """Begin to follow: `work` sees page after page, and does what follows from them."""
        self.task = asyncio.create_task(work, context=Context())
        self.task.add_done_callback(self._on_follow_done)

    def _on_follow_done(self, task: asyncio.Task[None]) -> None:
        """Nobody follows any more; who waits to see something is told, unless this is a `stop`."""
        log_task_error(task)
        if self._has_failed or not task.cancelled():
            self._wakeup.wake()

    @property
    def has_ended(self) -> bool:
        """Whether nobody follows, and not by a `stop`: the session is closed or has another history, or the
        work failed."""
        done = self.task is not None and self.task.done()
        return done and (self._has_failed or not (self.task and self.task.cancelled()))

    def on_task_done(self, task: asyncio.Task[None]) -> None:
        """Report how a task of the session ended; when it failed, follow no more.

        What the task was to write is not in the log, so its turn would never end here. The next process or
        driver that opens the session closes it.
        """
        log_task_error(task)
        if not task.cancelled() and task.exception() and self.task is not None and not self.task.done():
            self._has_failed = True
            self.task.cancel()

    async def stop(self) -> None:
        """Follow no more."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    def notify(self) -> None:
        """Tell everyone who waits: something has been taken into account, or nothing will be any more."""
        self._wakeup.wake()

    # waiting

    async def wait_for_seq(self, seq: int) -> None:
        """Wait until everything up to a seq has been taken into account."""
        while self._tree.last_seq < seq:
            if self.task is not None and self.task.done():
                raise Unavailable("session driver is not running")
            await self._wakeup.wait()

    async def wait_until_idle(self, trace: str) -> None:
        """Wait until a turn is over, or everyone in it waits."""
        while not self._tree.is_settled(trace):
            await self.wait_for_seq(self._tree.last_seq + 1)

    async def wait_for_head(self) -> int:
        """Wait until everything that is in the log now has been taken into account; the last seq."""
        await self.wait_for_seq((await self._log.info(self._session_id)).last)
        return self._tree.last_seq

    # looking

    async def replay_to_head(self) -> int:
        """Take everything that is in the log now into account, and do nothing about it; the last seq."""
        while page := await self._log.read(self._session_id, self._tree.last_seq):
            for row, envelope in zip(page, page.envelopes(), strict=True):
                self._apply(row, envelope)
        return self._tree.last_seq

    async def append_closings(
        self, closings: Callable[[], list[ClosingEvent]], refresh: Callable[[], Awaitable[Any]]
    ) -> None:
        """Close what is open, unless somebody answers it at the same moment: then look again."""
        while items := closings():
            events = [
                self._writer.build_event(TurnEvent(item.payload, item.scope, "system"), item.id)
                for item in items
            ]
            seen = self._tree.last_seq
            try:
                await self._writer.write(events, expected_last=seen)
                return
            except Conflict:
                await refresh()
                if self._tree.last_seq == seen:
                    raise


def log_task_error(task: asyncio.Task[None]) -> None:
    """Log why a task failed; that its session was closed meanwhile is no failure."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, SessionClosed):
        log.error("a session's work failed: %s", error, exc_info=error)
