"""The tail of a session: its recent rows in memory, shared by its followers, and their wake-up signal."""

from collections import deque
from collections.abc import Sequence
from itertools import islice, takewhile

from turnlog.log.records import Page, Row, SessionRecord
from turnlog.log.wakeup import Wakeup

MAX_TAIL_ROWS = 512  # a follower that lags further behind reads from the store
MAX_TAIL_BYTES = 1 << 20


class Tail:
    """The recent rows of one session. An empty `epoch` means: the history has changed, followers end."""

    def __init__(self, record: SessionRecord) -> None:
        self.last = record.last
        self.epoch = record.epoch
        self.closed = record.closed
        self.is_synced = False  # True once the record was read again after the tail was registered
        self.follower_count = 0
        self.wakeup = Wakeup()
        self._rows: deque[Row] = deque()
        self._size_bytes = 0
        self._cached_page: tuple[int, Page] | None = None

    @property
    def is_current(self) -> bool:
        return self.is_synced and not self.closed and bool(self.epoch)

    def extend(self, rows: Sequence[Row]) -> None:
        self._rows.extend(rows)
        self._cached_page = None
        self._size_bytes += sum(len(row.frame) for row in rows)
        while len(self._rows) > MAX_TAIL_ROWS or (self._size_bytes > MAX_TAIL_BYTES and len(self._rows) > 1):
            self._size_bytes -= len(self._rows.popleft().frame)

        self.last = rows[-1].seq
        self.wakeup.wake()

    def catch_up(self, record: SessionRecord) -> None:
        """Apply a record that was read from the store. Wake the followers if it changes the tail."""
        self.is_synced = True
        closed = record.closed or self.closed
        if record.epoch != self.epoch:
            self.epoch = ""
        elif record.last < self.last:
            return  # read before the last rows were committed
        elif record.last == self.last and closed == self.closed:
            return

        self.last = max(record.last, self.last)
        self.closed = closed
        self.wakeup.wake()

    def page_after(self, seq: int) -> Page | None:
        """Return the rows after a seq, one page for all followers there; None if the tail begins later."""
        if self._cached_page and self._cached_page[0] == seq:
            return self._cached_page[1]
        if not self._rows or self._rows[0].seq > seq + 1:
            return None

        count = sum(1 for _ in takewhile(lambda row: row.seq > seq, reversed(self._rows)))
        page = Page(list(islice(self._rows, len(self._rows) - count, None)), self.epoch)
        self._cached_page = (seq, page)
        return page
