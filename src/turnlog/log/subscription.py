"""One follower of a session: a cursor that reads the tail or the store, in pages that grow.

`Subscription` is the cursor. `PushSubscription` serves a follower at the end of the log without waking a
task: each wake-up writes the new frames to its sink. A follower whose sink must drain, that lags behind the
tail or whose session ends returns to its task, which reads on from the store. So no queue ever grows.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from turnlog.log.records import Page
from turnlog.log.tail import Tail

PageLock = AbstractAsyncContextManager[None, bool | None]
"""A lock around the read of a page. Followers that share one hold one page in memory together."""
NO_PAGE_LOCK: PageLock = nullcontext()

MAX_PAGE_BYTES = 512 * 1024  # one read: large enough to be fast, small enough to let other readers run
FIRST_PAGE_BYTES = 16 * 1024  # what a follower that never reads costs
# Pages double after this much: more than socket buffers hold, so the peer does read.
GROW_AFTER_BYTES = 256 * 1024

ChargeBytes = Callable[[int], Awaitable[None]]
"""Called with the number of bytes that were read from the store; may wait before the next read."""

Drain = Callable[[], Awaitable[None]]
FrameSink = Callable[[bytes], Drain | None]
"""Sends bytes, b"" after an idle time. The caller must await the returned function before the next call."""
PageEncoder = Callable[[Page, bool], bytes]
"""Returns a page as it is sent, b"" if none of it is. The bool is whether the log has no more rows."""


def encode_stored_frames(page: Page, is_last: bool) -> bytes:
    """Return the frames as they are stored."""
    return page.frames().data


HISTORY_END = Page()
"""The page that a follower gets once, when it has all rows that the log had; it has no rows itself."""


class FollowOptions(NamedTuple):
    """Options of a follower.

    `types` are the event types it needs (none: all), `charge_bytes` is what its reads are charged to. With
    `marks_history_end` it gets the page `HISTORY_END`.
    """

    types: tuple[str, ...] = ()
    charge_bytes: ChargeBytes | None = None
    marks_history_end: bool = False


@dataclass(slots=True)
class Subscription:
    """The cursor of one follower. Each read returns about `max_bytes` at most.

    Up to the seq `replay_until` it reads from the store only: the tail does not know what replay leaves out.
    """

    session_id: str
    tail: Tail
    epoch: str
    after: int
    replay_from: int | None
    replay_until: int
    max_bytes: int = MAX_PAGE_BYTES
    charge_bytes: ChargeBytes | None = None
    read_bytes: int = FIRST_PAGE_BYTES
    total_bytes: int = 0

    def is_finished(self) -> bool:
        """Return True if no more events follow: closed and read to the end, or the epoch has changed."""
        tail = self.tail
        return tail.epoch != self.epoch or not self.epoch or (tail.closed and self.after >= tail.last)

    def is_read(self) -> bool:
        """Return True if the follower has every row that the log has."""
        return self.tail.epoch == self.epoch and self.after >= self.tail.last

    def next_read_bytes(self) -> int:
        """Return how much to read next, and count it."""
        size_bytes = min(self.read_bytes, self.max_bytes)
        self.total_bytes += size_bytes
        if self.total_bytes >= GROW_AFTER_BYTES:
            self.read_bytes = 2 * size_bytes
        return size_bytes


class PushSubscription:
    """Writes new rows to a sink on each wake-up, until the follower must return to its task."""

    __slots__ = ("_encode", "_end", "sink", "subscription")

    def __init__(
        self, subscription: Subscription, sink: FrameSink, encode: PageEncoder = encode_stored_frames
    ) -> None:
        self.subscription = subscription
        self.sink = sink
        self._encode = encode
        self._end: asyncio.Future[Drain | None]

    async def run(self, idle_s: float | None) -> None:
        """Push until the sink must drain, the tail is ahead or the session ends. Then drain the sink."""
        self._end = asyncio.get_running_loop().create_future()
        wakeup = self.subscription.tail.wakeup
        wakeup.add_listener(self.on_wakeup, idle_s)
        try:
            drain = await self._end
        finally:
            wakeup.remove_listener(self.on_wakeup, idle_s)

        if drain is not None:
            await drain()

    def on_wakeup(self, changed: bool) -> bool:
        """Send what is new, or b"" after an idle time. Return False to be removed from the listeners."""
        subscription = self.subscription
        tail = subscription.tail
        if tail.closed or tail.epoch != subscription.epoch:
            return self._finish(None)

        page = None
        if tail.last > subscription.after:
            page = tail.page_after(subscription.after)
            if not page:
                return self._finish(None)
            subscription.after = page.last
        elif changed:
            return True  # the last read came from the store, which was ahead of the tail

        try:
            data = self._encode(page, page.last >= tail.last) if page else b""
            if page and not data:
                return True
            drain = self.sink(data)
        except Exception as error:  # noqa: BLE001  raised in the task of this follower; others go on
            return self._finish(partial(raise_later, error))
        return drain is None or self._finish(drain)

    def _finish(self, drain: Drain | None) -> bool:
        if not self._end.done():
            self._end.set_result(drain)
        return False


async def raise_later(error: Exception) -> None:
    raise error
