"""A reader at the end of a session: what is appended is handed to it at once, and no task wakes for it.

It is a cursor still. One that cannot take more right away, that the tail has outrun, or whose session ends
goes back to its task, which reads on from the log at its own pace; so nothing is queued for anyone.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from turnlog.log.subscription import Walk

Rest = Callable[[], Awaitable[None]]
Take = Callable[[bytes], Rest | None]
"""Hands bytes on, none after a silence. What it returns is to be called and awaited before it takes more."""


class Live:
    """One reader, as the tail's signal sees it."""

    __slots__ = ("_left", "_take", "_walk")

    def __init__(self, walk: Walk, take: Take) -> None:
        self._walk = walk
        self._take = take
        self._left: asyncio.Future[Rest | None] = asyncio.get_running_loop().create_future()

    async def stay(self, idle_s: float | None) -> None:
        """Take what comes, for as long as that goes."""
        wakeup = self._walk.tail.wakeup
        wakeup.add(self.look, idle_s)
        try:
            rest = await self._left
        finally:
            wakeup.discard(self.look, idle_s)
        if rest is not None:
            await rest()

    def look(self, changed: bool) -> bool:
        """Hand on what is new, or that there was nothing; whether the reader stays."""
        walk, data = self._walk, b""
        tail = walk.tail
        if tail.closed or tail.epoch != walk.epoch:
            return self._leave(None)
        if tail.last > walk.after:  # the store may have been ahead of the tail, and so the reader
            page = tail.after(walk.after)
            if not page:
                return self._leave(None)
            walk.after, data = page.last, page.ready().data
        elif changed:
            return True
        try:
            rest = self._take(data)
        except Exception as error:  # noqa: BLE001  it is this reader's, and its task's to deal with
            return self._leave(partial(raising, error))
        return rest is None or self._leave(rest)

    def _leave(self, rest: Rest | None) -> bool:
        if not self._left.done():
            self._left.set_result(rest)
        return False


async def raising(error: Exception) -> None:
    """What is left of a `take` that failed."""
    raise error
