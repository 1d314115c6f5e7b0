"""A reader at the end of a session: what is appended is handed to it at once, and no task wakes for it.

It is a cursor still. One that cannot take more right away, that the tail has outrun, or whose session ends
goes back to its task, which reads on from the log at its own pace; so nothing is queued for anyone.
"""

import asyncio
from collections.abc import Awaitable, Callable

from turnlog.log.tail import Tail

Take = Callable[[bytes], Awaitable[None] | None]
"""Hands bytes on, none after a silence. What it returns is still to be awaited before it takes more."""


class Live:
    """One reader, as the tail's signal sees it."""

    __slots__ = ("_epoch", "_left", "_tail", "_take", "after")

    def __init__(self, tail: Tail, after: int, take: Take) -> None:
        self.after = after
        self._tail = tail
        self._epoch = tail.epoch
        self._take = take
        self._left: asyncio.Future[Awaitable[None] | None] = asyncio.get_running_loop().create_future()

    async def stay(self, idle_s: float | None) -> int:
        """Take what comes for as long as that goes; where the reader stands then."""
        self._tail.wakeup.add(self.look, idle_s)
        try:
            rest = await self._left
        finally:
            self._tail.wakeup.discard(self.look, idle_s)
        if rest is not None:
            await rest
        return self.after

    def look(self, changed: bool) -> bool:
        """Hand on what is new, or that there was nothing; whether the reader stays."""
        tail, data = self._tail, b""
        if tail.closed or tail.epoch != self._epoch:
            return self._leave(None)
        if tail.last != self.after:
            page = tail.after(self.after)
            if page is None:
                return self._leave(None)
            _, self.after, data = page.ready()
        elif changed:
            return True
        try:
            rest = self._take(data)
        except Exception as error:  # noqa: BLE001  it is this reader's, and its task's to deal with
            return self._leave(raising(error))
        return rest is None or self._leave(rest)

    def _leave(self, rest: Awaitable[None] | None) -> bool:
        if not self._left.done():
            self._left.set_result(rest)
        return False


async def raising(error: Exception) -> None:
    """What is left of a `take` that failed."""
    raise error
