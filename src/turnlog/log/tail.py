"""The tail of a session: its recent rows in memory, shared by its followers, and the signal they sleep on."""

from collections import deque
from collections.abc import Sequence
from itertools import islice, takewhile

from turnlog.log.store import Page, Row, SessionRecord
from turnlog.log.wakeup import Wakeup

MAX_TAIL_ROWS = 512  # what a follower may lag behind before it goes back to the store
MAX_TAIL_BYTES = 1 << 20


class Tail:
    """The recent rows of one session and the one signal its followers sleep on."""

    def __init__(self, record: SessionRecord) -> None:
        self.last = record.last
        self.epoch = record.epoch
        self.closed = record.closed
        self.is_synced = False  # whether it is known that nothing was missed before the first rows came
        self.follower_count = 0
        self.wakeup = Wakeup()
        self._rows: deque[Row] = deque()
        self._size_bytes = 0
        self._cached_page: tuple[int, Page] | None = None

    def extend(self, rows: Sequence[Row]) -> None:
        """Take committed rows and wake the followers."""
        self._rows.extend(rows)
        self._cached_page = None
        self._size_bytes += sum(len(row.frame) for row in rows)
        while len(self._rows) > MAX_TAIL_ROWS or (self._size_bytes > MAX_TAIL_BYTES and len(self._rows) > 1):
            self._size_bytes -= len(self._rows.popleft().frame)
        self.last = rows[-1].seq
        self.wakeup.wake()

    def catch_up(self, record: SessionRecord) -> None:
        """Take over where the session stands, and wake whoever sleeps on an older view."""
        self.is_synced = True
        if record.epoch != self.epoch:
            self.epoch = ""  # another history: what follows this tail ends
        elif record.last < self.last or (record.last, record.closed or self.closed) == (
            self.last,
            self.closed,
        ):
            return
        self.last, self.closed = max(record.last, self.last), record.closed or self.closed
        self.wakeup.wake()

    def page_after(self, seq: int) -> Page | None:
        """The rows after a seq, one page for all who stand there; None when the window begins later."""
        if self._cached_page and self._cached_page[0] == seq:
            return self._cached_page[1]
        if not self._rows or self._rows[0].seq > seq + 1:
            return None
        fresh = sum(1 for _ in takewhile(lambda row: row.seq > seq, reversed(self._rows)))
        page = Page(list(islice(self._rows, len(self._rows) - fresh, None)), self.epoch)
        self._cached_page = seq, page
        return page
