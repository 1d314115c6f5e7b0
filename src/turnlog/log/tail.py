"""The tail of a session: its recent rows in memory, shared by its followers, and their wake-up signal."""

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice, takewhile

from turnlog.log.records import Page, Row, SessionRecord
from turnlog.log.wakeup import Wakeup

MAX_TAIL_ROWS = 512  # a follower that lags further behind reads from the store
MAX_TAIL_BYTES = 1 << 20


class Tail:
    """The recent rows of one session, and its record. Followers share it.

    The rows have no gap: rows that do not follow the last one replace all others. An empty `epoch` means that
    the history has changed: followers end. `record` is the current one unless `is_stale`.
    """

    def __init__(self, record: SessionRecord) -> None:
        self.last = record.last
        self.epoch = record.epoch
        self.closed = record.closed
        self.record = record
        self.is_synced = False  # True once the record was read again after the tail was registered
        self.sync_lock = asyncio.Lock()  # followers that arrive together share that read
        self.foreign_commits = 0  # of other logs: how many rings for this session
        self._read_commits = 0  # how many of them the record includes
        self.follower_count = 0
        self.wakeup = Wakeup()
        self._rows: deque[Row] = deque()
        self._size_bytes = 0
        self._cached_page: tuple[int, Page] | None = None

    @property
    def is_current(self) -> bool:
        """Return whether `record` is the stored one, apart from commits of this log under way."""
        return self.is_synced and self._read_commits == self.foreign_commits and bool(self.epoch)

    def publish(self, record: SessionRecord, rows: Sequence[Row]) -> None:
        """Take over a commit of this log: its rows and the record after it. Wake the followers."""
        if record.revision > self.record.revision:
            self.record = record
        if rows:
            self._extend(rows)
        # The commit may follow rows of another log whose ring has not arrived yet.
        if record.last > self.last or record.closed > self.closed:
            self.last = max(self.last, record.last)
            self.closed = self.closed or record.closed
            self.wakeup.wake()

    def _extend(self, rows: Sequence[Row]) -> None:
        """Add committed rows and drop the oldest above the limits.

        Another log may have added rows in between. Then the rows before are dropped: a follower that needs
        them reads the store.
        """
        window_end = self._rows[-1].seq if self._rows else None
        if window_end is not None and rows[-1].seq <= window_end:
            return  # known rows
        if window_end is not None and rows[0].seq != window_end + 1:
            self._rows.clear()
            self._size_bytes = 0

        self._rows.extend(rows)
        self._cached_page = None
        self._size_bytes += sum([len(row.frame) for row in rows])
        while len(self._rows) > MAX_TAIL_ROWS or (self._size_bytes > MAX_TAIL_BYTES and len(self._rows) > 1):
            self._size_bytes -= len(self._rows.popleft().frame)

        self.last = max(self.last, rows[-1].seq)
        self.wakeup.wake()

    def note_foreign_commit(self, last: int) -> None:
        """Note that another log has changed the session, whose last seq is at least `last` now.

        Followers read new rows from the store. The record is stale until `catch_up`.
        """
        self.foreign_commits += 1
        if last > self.last:
            self.last = last
            self.wakeup.wake()

    def catch_up(self, record: SessionRecord, foreign_commits: int, rows: Sequence[Row] = ()) -> None:
        """Apply a record that was read from the store. Wake the followers if it changes the tail.

        `foreign_commits` is their number when the read began. `rows` were read with the record.
        """
        self.is_synced = True
        self._read_commits = max(self._read_commits, foreign_commits)
        closed = record.closed or self.closed
        if record.epoch != self.epoch:
            self.epoch = ""
            self.wakeup.wake()
            return

        if record.revision > self.record.revision:
            self.record = record
        if rows:
            self._extend(rows)
        if record.last > self.last or closed != self.closed:
            self.last = max(record.last, self.last)
            self.closed = closed
            self.wakeup.wake()

    def page_after(self, seq: int) -> Page | None:
        """Return the rows after a seq, one page for all followers there; None if the tail begins later."""
        if self._cached_page and self._cached_page[0] == seq:
            return self._cached_page[1]
        if not self._rows or self._rows[0].seq > seq + 1:
            return None

        # From the end: a follower needs the newest rows, and a deque is walked row by row.
        rows = list(islice(reversed(self._rows), self._count_after(seq)))
        rows.reverse()
        page = Page(rows, self.epoch)
        self._cached_page = (seq, page)
        return page

    def _count_after(self, seq: int) -> int:
        """Return how many rows follow a seq."""
        rows = self._rows
        count = rows[-1].seq - seq
        if 0 < count <= len(rows) and rows[-count].seq == seq + 1:
            return count
        # An import may leave out seqs.
        return sum(1 for _ in takewhile(lambda row: row.seq > seq, reversed(rows)))
