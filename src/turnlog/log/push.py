"""A reader at the end of a session: what is appended is handed to it at once, and no task wakes for it.

It is a cursor still. One that cannot take more right away, that the tail has outrun, or whose session ends
goes back to its task, which reads on from the log at its own pace; so nothing is queued for anyone.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from turnlog.log.subscription import Subscription

Drain = Callable[[], Awaitable[None]]
FrameSink = Callable[[bytes], Drain | None]
"""Hands bytes on, none after a silence. What it returns is to be called and awaited before it takes more."""


class PushSubscription:
    """One reader, as the tail's signal sees it."""

    __slots__ = ("_end", "_sink", "_subscription")

    def __init__(self, subscription: Subscription, sink: FrameSink) -> None:
        self._subscription = subscription
        self._sink = sink
        self._end: asyncio.Future[Drain | None] = asyncio.get_running_loop().create_future()

    async def run(self, idle_s: float | None) -> None:
        """Take what comes, for as long as that goes."""
        wakeup = self._subscription.tail.wakeup
        wakeup.add_listener(self.on_wakeup, idle_s)
        try:
            rest = await self._end
        finally:
            wakeup.remove_listener(self.on_wakeup, idle_s)
        if rest is not None:
            await rest()

    def on_wakeup(self, changed: bool) -> bool:
        """Hand on what is new, or that there was nothing; whether the reader stays."""
        walk, data = self._subscription, b""
        tail = walk.tail
        if tail.closed or tail.epoch != walk.epoch:
            return self._finish(None)
        if tail.last > walk.after:  # the store may have been ahead of the tail, and so the reader
            page = tail.page_after(walk.after)
            if not page:
                return self._finish(None)
            walk.after, data = page.last, page.frames().data
        elif changed:
            return True
        try:
            rest = self._sink(data)
        except Exception as error:  # noqa: BLE001  it is this reader's, and its task's to deal with
            return self._finish(partial(raise_later, error))
        return rest is None or self._finish(rest)

    def _finish(self, drain: Drain | None) -> bool:
        if not self._end.done():
            self._end.set_result(drain)
        return False


async def raise_later(error: Exception) -> None:
    """What is left of a `take` that failed."""
    raise error
