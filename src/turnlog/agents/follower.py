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

from turnlog.agents.loop import Item
from turnlog.agents.pen import Pen
from turnlog.errors import Closed, Conflict, Unavailable
from turnlog.events import Envelope
from turnlog.log import Log, Row
from turnlog.log.wakeup import Wakeup
from turnlog.state.tree import Closing, Tree

log = logging.getLogger("turnlog.agents")


class Follower:
    """Follows one session; `tree` is what `apply` folds, up to its `last`."""

    def __init__(
        self,
        log: Log,
        session_id: str,
        pen: Pen,
        tree: Tree,
        apply: Callable[[Row, Envelope], Any],
    ) -> None:
        self._log = log
        self._session_id = session_id
        self._pen = pen
        self._tree = tree
        self._apply = apply
        self.task: asyncio.Task[None] | None = None
        self._failed = False
        self._moved = Wakeup()

    # following

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin to follow: `work` sees page after page, and does what follows from them."""
        self.task = asyncio.create_task(work, context=Context())
        self.task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        """Nobody follows any more; who waits to see something is told, unless this is a `stop`."""
        report(task)
        if self._failed or not task.cancelled():
            self._moved.wake()

    @property
    def left(self) -> bool:
        """Whether nobody follows, and not by a `stop`: the session is closed or has another history, or the
        work failed."""
        done = self.task is not None and self.task.done()
        return done and (self._failed or not (self.task and self.task.cancelled()))

    def ended(self, task: asyncio.Task[None]) -> None:
        """Report how a task of the session ended; when it failed, follow no more.

        What the task was to write is not in the log, so its turn would never end here. The next process or
        driver that opens the session closes it.
        """
        report(task)
        if not task.cancelled() and task.exception() and self.task is not None and not self.task.done():
            self._failed = True
            self.task.cancel()

    async def stop(self) -> None:
        """Follow no more."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    def moved(self) -> None:
        """Tell everyone who waits: something has been taken into account, or nothing will be any more."""
        self._moved.wake()

    # waiting

    async def reached(self, seq: int) -> None:
        """Wait until everything up to a seq has been taken into account."""
        while self._tree.last < seq:
            if self.task is not None and self.task.done():
                raise Unavailable("nobody follows this session any more")
            await self._moved.wait()

    async def rested(self, trace: str) -> None:
        """Wait until a turn is over, or everyone in it waits."""
        while not self._tree.rests(trace):
            await self.reached(self._tree.last + 1)

    async def caught_up(self) -> int:
        """Wait until everything that is in the log now has been taken into account; the last seq."""
        await self.reached(await self._log.last_seq(self._session_id))
        return self._tree.last

    # looking

    async def catch_up(self) -> int:
        """Take everything that is in the log now into account, and do nothing about it; the last seq."""
        while page := await self._log.read(self._session_id, self._tree.last):
            for row, envelope in zip(page, page.envelopes(), strict=True):
                self._apply(row, envelope)
        return self._tree.last

    async def close(self, closings: Callable[[], list[Closing]], look: Callable[[], Awaitable[Any]]) -> None:
        """Close what is open, unless somebody answers it at the same moment: then look again."""
        while items := closings():
            events = [self._pen.event(Item(item.payload, item.scope, "system"), item.id) for item in items]
            seen = self._tree.last
            try:
                await self._pen.write(events, expected_last=seen)
                return
            except Conflict:
                await look()
                if self._tree.last == seen:
                    raise


def report(task: asyncio.Task[None]) -> None:
    """Log why a task failed; that its session was closed meanwhile is no failure."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, Closed):
        log.error("a session's work failed: %s", error, exc_info=error)
