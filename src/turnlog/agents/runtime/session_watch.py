"""Watches: the folds of sessions that this process looks at, without effects. A watch writes nothing.

A watch has no task: `WatchPool.synced_folds` reads the events since its last use. A watch that was not used
for `quiet_s` is dropped, so memory follows activity and not the number of sessions.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from turnlog.agents.runtime.session_folds import YIELD_EVERY_EVENTS, SessionFolds
from turnlog.errors import SessionDamaged, Unavailable
from turnlog.log import Log, Page, SessionRecord

QUIET_S = 60.0  # as long as a person reads before the next click


class SessionWatch:
    """The folds of one session, as of the last read. `lock` is held while they are brought up to date."""

    def __init__(self, log: Log, folds: SessionFolds) -> None:
        self._log = log
        self.folds = folds
        self.lock = asyncio.Lock()
        self.used_at_s = 0.0

    async def catch_up(self) -> None:
        """Fold all events that are in the log now. Raise `SessionDamaged` if they cannot all be read."""
        folds = self.folds
        async with self.lock:
            last = await self._log.last_seq(folds.session_id)
            while folds.last_seq < last:
                page = await self._log.read(folds.session_id, folds.last_seq, replay_from=folds.last_seq)
                if not page:
                    return
                await self._apply(page)

    async def take_page(self, page: Page) -> None:
        """Fold a page that follows what the watch has, or overlaps with it."""
        async with self.lock:
            await self._apply(page)

    async def _apply(self, page: Page) -> None:
        self.folds.epoch = page.epoch or self.folds.epoch
        for number, row in enumerate(page, 1):
            if number % YIELD_EVERY_EVENTS == 0:
                await asyncio.sleep(0)
            if row.seq <= self.folds.last_seq:
                continue
            if row.live:
                self.folds.skip_live(row)
            else:
                self.folds.apply(row, *self.folds.decode(row))


class WatchPool:
    """The watches of a process. `make_folds` builds empty folds of a session."""

    def __init__(
        self, log: Log, make_folds: Callable[[SessionRecord], SessionFolds], quiet_s: float = QUIET_S
    ) -> None:
        self._log = log
        self._make_folds = make_folds
        self._quiet_s = quiet_s
        self._watches: dict[str, SessionWatch] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._watches)

    async def synced_folds(self, record: SessionRecord) -> SessionFolds:
        """Return the folds of a session as of now."""
        return (await self._sync(record)).folds

    async def wait_until_settled(
        self, record: SessionRecord, trace: str, idle_s: float, check: Callable[[], None]
    ) -> None:
        """Wait until a turn has ended or all its agents wait. Raise `Unavailable` if the log ends before.

        `check` is called after `idle_s` without events: it may raise.
        """
        watch = await self._sync(record)
        if watch.folds.tree.is_settled(trace):
            return
        pages = self._log.follow(record.session_id, watch.folds.last_seq, idle_s=idle_s)
        async with aclosing(pages):
            async for page in pages:
                if not page:
                    check()
                await watch.take_page(page)
                if watch.folds.tree.is_settled(trace):
                    return
        raise Unavailable("the session ended before the turn; try again")

    async def _sync(self, record: SessionRecord) -> SessionWatch:
        damage: SessionDamaged | None = None
        while True:
            watch = self._get(record)
            try:
                await watch.catch_up()
            except SessionDamaged as error:
                # the damage is recorded now, and the next read skips it; the same damage again is final
                self._watches.pop(record.session_id, None)
                if damage is not None and damage.args == error.args:
                    raise
                damage = error
                continue
            watch.used_at_s = asyncio.get_running_loop().time()
            return watch

    def _get(self, record: SessionRecord) -> SessionWatch:
        watch = self._watches.get(record.session_id)
        # another history: what was folded is not part of it
        if watch is None or watch.folds.epoch not in ("", record.epoch):
            watch = SessionWatch(self._log, self._make_folds(record))
            watch.used_at_s = asyncio.get_running_loop().time()
            self._watches[record.session_id] = watch
            self._schedule_sweep(self._quiet_s)
        return watch

    def _schedule_sweep(self, delay_s: float) -> None:
        if self._sweep_timer is None:
            self._sweep_timer = asyncio.get_running_loop().call_later(delay_s, self._sweep)

    def _sweep(self) -> None:
        """Drop the watches that were not used for `quiet_s`, oldest first."""
        self._sweep_timer = None
        now_s = asyncio.get_running_loop().time()
        # a new dict: one whose entries are deleted keeps its size
        self._watches = {
            session_id: watch
            for session_id, watch in self._watches.items()
            if now_s - watch.used_at_s < self._quiet_s or watch.lock.locked()
        }
        if self._watches:
            oldest_s = min(watch.used_at_s for watch in self._watches.values())
            self._schedule_sweep(max(oldest_s + self._quiet_s - now_s, self._quiet_s / 10))

    def drop(self, session_id: str) -> None:
        """Forget the watch of a session that a runner of this process folds from now on."""
        self._watches.pop(session_id, None)

    def close(self) -> None:
        self._watches.clear()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
