"""The tails of followed sessions: one per session, from its first follower to its last.

In go followers (`acquire`, `release`), the commits of this log (`publish`) and notices that other logs have
changed sessions (`note_changes`). Out come rows and records in the tails (`tail`), which wake the followers.

Invariant: a tail misses no commit. Its record is read again after the tail was registered, and after each
notice. If it cannot be read, or if the history has changed, the followers end. A session without followers
has no tail. All methods run on the event loop; `by_session` may be read in any thread.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from turnlog.errors import StoreError
from turnlog.log.records import News, Row, SessionRecord
from turnlog.log.tail import Tail

ReadRecord = Callable[[str], Awaitable[SessionRecord]]
"""Returns the stored record of a session. Raises `NotFound` if there is none."""
ReadNews = Callable[[Mapping[str, int]], Awaitable[dict[str, News]]]
"""Returns what is new in many sessions (`NewsReader.read_news`)."""

log = logging.getLogger("turnlog.log")

MAX_NEWS_SESSIONS = 512  # that are read at once


class TailRegistry:
    """The tails of the sessions that this log follows.

    `read_news` is None for a store that cannot read many sessions at once. `on_members_changed` is called
    with each record that was read: its members may have changed in another process.
    """

    def __init__(
        self,
        read_record: ReadRecord,
        read_news: ReadNews | None,
        on_members_changed: Callable[[SessionRecord], None],
    ) -> None:
        self.by_session: dict[str, Tail] = {}  # never replaced: `Log.tails` is this object
        self._read_record = read_record
        self._read_news = read_news
        self._on_members_changed = on_members_changed
        self._changed_sessions: set[str] = set()  # by other logs: their record must be read again
        self._refresher: asyncio.Task[None] | None = None

    # followers

    async def acquire(self, session_id: str) -> Tail:
        """Return the tail of a session for one more follower, who must `release` it."""
        tail = self.by_session.get(session_id)
        if tail is None:
            record = await self._read_record(session_id)
            tail = self.by_session.setdefault(session_id, Tail(record))
        tail.follower_count += 1
        try:
            if not tail.is_synced:
                await self._sync(session_id, tail)
        except BaseException:
            self.release(session_id, tail)
            raise
        if not tail.epoch and self.by_session.get(session_id) is tail:
            del self.by_session[session_id]
        return tail

    def release(self, session_id: str, tail: Tail) -> None:
        tail.follower_count -= 1
        if not tail.follower_count and self.by_session.get(session_id) is tail:
            del self.by_session[session_id]

    async def _sync(self, session_id: str, tail: Tail) -> None:
        """Read the record again: events committed before the tail was registered would be missed."""
        async with tail.sync_lock:
            if not tail.is_synced:
                await self._catch_up(session_id, tail)

    async def _catch_up(self, session_id: str, tail: Tail) -> None:
        foreign_commits = tail.foreign_commits
        record = await self._read_record(session_id)
        tail.catch_up(record, foreign_commits)
        self._on_members_changed(record)

    # commits of this log

    def publish(self, record: SessionRecord, rows: Sequence[Row]) -> None:
        """Add the rows of a commit to the tail of its session, if it has one, and keep the record."""
        tail = self.by_session.get(record.session_id)
        if tail is None:
            return
        if tail.epoch != record.epoch:
            self.end(record.session_id)
        else:
            tail.publish(record, rows)

    def end(self, session_id: str) -> None:
        """End the followers of a session at once, as a change of its history does."""
        tail = self.by_session.pop(session_id, None)
        if tail is not None:
            tail.epoch = ""
            tail.wakeup.wake()

    # changes by other logs

    def note_changes(self, moved: Mapping[str, int]) -> None:
        """Note the last seqs of sessions that other logs have changed, and read the followed ones again."""
        for session_id, last in moved.items():
            tail = self.by_session.get(session_id)
            if tail is not None:
                # Followers wait for the rows that one read brings for all of them.
                tail.note_foreign_commit(last if self._read_news is None else -1)
                self._changed_sessions.add(session_id)
        if self._changed_sessions and (self._refresher is None or self._refresher.done()):
            self._refresher = asyncio.create_task(self._refresh_changed())

    async def _refresh_changed(self) -> None:
        """Read the records of sessions that other logs have changed, and their new rows."""
        while self._changed_sessions:
            count = min(len(self._changed_sessions), MAX_NEWS_SESSIONS)
            session_ids = [self._changed_sessions.pop() for _ in range(count)]
            tails = {
                session_id: tail for session_id in session_ids if (tail := self.by_session.get(session_id))
            }
            unread = tails if self._read_news is None else await self._apply_news(self._read_news, tails)
            for session_id, tail in unread.items():
                await self._refresh(session_id, tail)

    async def _apply_news(self, read_news: ReadNews, tails: Mapping[str, Tail]) -> dict[str, Tail]:
        """Read what is new in some sessions at once. Return those that have to be read one by one."""
        positions = {session_id: tail.last for session_id, tail in tails.items()}
        foreign_commits = {session_id: tail.foreign_commits for session_id, tail in tails.items()}
        try:
            news = await read_news(positions)
        except StoreError as error:
            log.error("cannot read new events of %d sessions at once: %s", len(tails), error)
            return dict(tails)
        for session_id, (record, rows) in news.items():
            tails[session_id].catch_up(record, foreign_commits[session_id], rows)
            self._on_members_changed(record)
        return {session_id: tail for session_id, tail in tails.items() if session_id not in news}

    async def _refresh(self, session_id: str, tail: Tail) -> None:
        try:
            await self._catch_up(session_id, tail)
        except Exception as error:  # noqa: BLE001  a follower that ends reads again, and gets the error itself
            log.error("cannot read new events of %s: %s", session_id, error)
            self.end(session_id)

    # the end of the log

    async def stop_refreshing(self) -> None:
        """Cancel the read of changed sessions that is under way.

        A later notice starts another one. When the log is closed, that read fails and ends the followers.
        """
        if self._refresher is not None:
            self._refresher.cancel()
            await asyncio.wait([self._refresher])

    def close(self) -> None:
        """Close all tails: their followers end when they have read all rows."""
        for tail in self.by_session.values():
            tail.closed = True
            tail.wakeup.wake()
