"""The followers of sessions: a cursor goes in, pages or frames come out, or are written to a sink.

`subscribe` returns the cursor (`subscription`). One of `pages`, `frames`, `push_frames` and `push_pages` then
takes it to its end: history from the store, page by page, then new rows from the tail that all followers of
the session share (`tails`). A follower that lags behind the tail reads the store again.

Invariant: rows come in the order of their seqs, none twice, and none is left out that the cursor asks for.
Where that cannot be, the follower ends: the epoch has changed, or the store has evicted the next row. Each
end releases the tail, also an error. While a follower waits, it holds no page in memory.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from turnlog.log.filter import matches_any_type
from turnlog.log.records import FrameBatch, Page, SessionRecord, TypeQuery
from turnlog.log.spans import LIVE_TYPES
from turnlog.log.store import EventStore
from turnlog.log.subscription import (
    HISTORY_END,
    FollowOptions,
    FrameSink,
    PageEncoder,
    PageLock,
    PushSubscription,
    Subscription,
)
from turnlog.log.tails import TailRegistry

P = TypeVar("P", Page, FrameBatch)
PageReader = Callable[[str, int, int | None, int], P | None]


class Followers:
    """Reads for the followers of a log's sessions.

    `read_or_quarantine` calls a function of the store with its arguments. It records a damage that the read
    meets, and raises it. `read_info` returns the record of a session.
    """

    def __init__(
        self,
        store: EventStore,
        tail_registry: TailRegistry,
        read_or_quarantine: Callable[..., Awaitable[Any]],
        read_info: Callable[[str], Awaitable[SessionRecord]],
    ) -> None:
        self._store = store
        self._tail_registry = tail_registry
        self._read_or_quarantine = read_or_quarantine
        self._read_info = read_info

    async def subscribe(
        self, session_id: str, after: int, replay_from: int | None, epoch: str | None
    ) -> Subscription:
        """Return a cursor on the tail of a session. The caller must hand it to one of the methods below."""
        tail = await self._tail_registry.acquire(session_id)
        replay_until = -1 if replay_from is None else tail.last
        return Subscription(session_id, tail, epoch or tail.epoch, after, replay_from, replay_until)

    def _unsubscribe(self, subscription: Subscription) -> None:
        self._tail_registry.release(subscription.session_id, subscription.tail)

    # in the task of the follower

    def pages(
        self, subscription: Subscription, idle_s: float | None, page_lock: PageLock, options: FollowOptions
    ) -> AsyncGenerator[Page | None, None]:
        """Yield pages of rows, None after an idle time. See `Log.follow`."""
        read: PageReader[Page] = self._store.read
        # Live rows are not in the index of types.
        if options.types and not any(matches_any_type(live_type, options.types) for live_type in LIVE_TYPES):
            read = partial(self._read_types, options.types)

        end_mark = HISTORY_END if options.marks_history_end else None
        return self._follow(subscription, read, unchanged_page, idle_s, page_lock, end_mark)

    def _read_types(
        self, types: tuple[str, ...], session_id: str, after: int, replay_from: int | None, limit_bytes: int
    ) -> Page:
        return self._store.read_types(session_id, TypeQuery(after, types, limit_bytes))

    def frames(
        self, subscription: Subscription, idle_s: float | None, page_lock: PageLock, history_end: bytes
    ) -> AsyncGenerator[FrameBatch | None, None]:
        """Yield rows as they are sent, None after an idle time. See `Log.follow_frames`."""
        end_mark = FrameBatch(-1, -1, history_end, "") if history_end else None
        return self._follow(subscription, self._store.read_frames, Page.frames, idle_s, page_lock, end_mark)

    async def _follow(
        self,
        subscription: Subscription,
        read: PageReader[P],
        convert: Callable[[Page], P],
        idle_s: float | None,
        page_lock: PageLock,
        end_mark: P | None,
    ) -> AsyncGenerator[P | None, None]:
        """Yield page after page, None after an idle time, and `end_mark` once at the end of the history."""
        try:
            while end_mark is not None or not subscription.is_finished():
                async with page_lock:
                    page = await self._next_page(subscription, read, convert)
                    if page is None and end_mark is not None:
                        page = end_mark if subscription.is_read() else None
                        end_mark = None
                    if page is not None:
                        yield page
                        page = None
                        continue
                if not subscription.is_finished() and not await subscription.tail.wakeup.wait(idle_s):
                    yield None
        finally:
            self._unsubscribe(subscription)

    # to a sink, without a task that wakes
    # Both return the coroutine of `_push`: one of their own would stay in memory while the follower waits.

    def push_frames(
        self, subscription: Subscription, sink: FrameSink, idle_s: float | None, history_end: bytes
    ) -> Awaitable[None]:
        """Write rows to a sink as they are sent. See `Log.push_frames`."""

        async def read_frames() -> bytes | None:
            page = await self._next_page(subscription, self._store.read_frames, Page.frames)
            return page.data if page else None

        return self._push(PushSubscription(subscription, sink), read_frames, idle_s, history_end)

    def push_pages(
        self, subscription: Subscription, sink: FrameSink, encode: PageEncoder, idle_s: float | None
    ) -> Awaitable[None]:
        """Write rows to a sink as `encode` returns them. See `Log.push_pages`."""

        async def read_page() -> bytes | None:
            page = await self._next_page(subscription, self._store.read, unchanged_page)
            return encode(page, page.last >= subscription.tail.last) if page else None

        return self._push(PushSubscription(subscription, sink, encode), read_page, idle_s)

    async def _push(
        self,
        push: PushSubscription,
        read_bytes: Callable[[], Awaitable[bytes | None]],
        idle_s: float | None,
        history_end: bytes = b"",
    ) -> None:
        """Send what `read_bytes` returns. When it returns None, wait for new rows."""
        subscription = push.subscription
        try:
            while history_end or not subscription.is_finished():
                data = await read_bytes()
                if data is None and history_end:
                    data = history_end if subscription.is_read() else None
                    history_end = b""
                elif data is None and not subscription.is_finished():
                    await push.run(idle_s)
                drain = push.sink(data) if data else None
                data = None  # while it waits, a follower must not hold its last page in memory
                if drain is not None:
                    await drain()
        finally:
            self._unsubscribe(subscription)

    # one page

    async def _next_page(
        self, subscription: Subscription, read: PageReader[P], convert: Callable[[Page], P]
    ) -> P | None:
        """Return the page after the cursor and move the cursor behind it; None at the end."""
        tail = subscription.tail
        while subscription.after < tail.last and not subscription.is_finished():
            last = tail.last
            page = self._page_from_tail(subscription, convert)
            if page is None:
                page = await self._page_from_store(subscription, read)

            if page and page.epoch != subscription.epoch:  # the tail does not have the new epoch yet
                subscription.epoch = ""
                return None
            has_gap = not page or page.first > subscription.after + 1
            if has_gap and await self._was_evicted(subscription.session_id, subscription.after):
                subscription.epoch = ""
                return None

            if page is not None and page.upto is not None:  # a page of some types, which may be empty
                subscription.after = page.upto
                return page
            if page:
                subscription.after = page.last
                return page
            subscription.after = last  # replay leaves out all rows up to here
        return None

    def _page_from_tail(self, subscription: Subscription, convert: Callable[[Page], P]) -> P | None:
        if subscription.after < subscription.replay_until:
            return None
        page = subscription.tail.page_after(subscription.after)
        return convert(page) if page else None

    async def _page_from_store(self, subscription: Subscription, read: PageReader[P]) -> P | None:
        page: P | None = await self._read_or_quarantine(
            read,
            subscription.session_id,
            subscription.after,
            subscription.replay_from,
            subscription.next_read_bytes(),
        )
        if page is not None and subscription.charge_bytes is not None:
            await subscription.charge_bytes(page.size_bytes)
        return page

    async def _was_evicted(self, session_id: str, after: int) -> bool:
        return after >= 0 and (await self._read_info(session_id)).first > after + 1


def unchanged_page(page: Page) -> Page:
    return page
