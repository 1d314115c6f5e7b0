"""The tail of a session: its recent rows in memory, shared by its followers, and the signal they sleep on."""

from collections import deque
from collections.abc import Sequence
from itertools import islice, takewhile

from turnlog.log.store import Head, Page, Row
from turnlog.log.wakeup import Wakeup

TAIL_ROWS = 512  # what a follower may lag behind before it goes back to the store
TAIL_BYTES = 1 << 20


class Tail:
    """The recent rows of one session and the one signal its followers sleep on."""

    def __init__(self, head: Head) -> None:
        self.last = head.last
        self.epoch = head.epoch
        self.closed = head.closed
        self.joined = False  # whether it is known that nothing was missed before the first rows came
        self.followers = 0
        self.wakeup = Wakeup()
        self._rows: deque[Row] = deque()
        self._bytes = 0
        self._shared: tuple[int, Page] | None = None

    @property
    def is_current(self) -> bool:
        """Whether it has missed nothing and goes on."""
        return self.joined and not self.closed and bool(self.epoch)

    def extend(self, rows: Sequence[Row]) -> None:
        """Take committed rows and wake the followers."""
        self._rows.extend(rows)
        self._shared = None
        self._bytes += sum(len(row.frame) for row in rows)
        while len(self._rows) > TAIL_ROWS or (self._bytes > TAIL_BYTES and len(self._rows) > 1):
            self._bytes -= len(self._rows.popleft().frame)
        self.last = rows[-1].seq
        self.wakeup.wake()

    def catch_up(self, head: Head) -> None:
        """Take over where the session stands, and wake whoever sleeps on an older view."""
        self.joined = True
        if head.epoch != self.epoch:
            self.epoch = ""  # another history: what follows this tail ends
        elif head.last < self.last or (head.last, head.closed or self.closed) == (self.last, self.closed):
            return
        self.last, self.closed = max(head.last, self.last), head.closed or self.closed
        self.wakeup.wake()

    def after(self, seq: int) -> Page | None:
        """The rows after a seq, one page for all who stand there; None when the window begins later."""
        if self._shared and self._shared[0] == seq:
            return self._shared[1]
        if not self._rows or self._rows[0].seq > seq + 1:
            return None
        fresh = sum(1 for _ in takewhile(lambda row: row.seq > seq, reversed(self._rows)))
        page = Page(list(islice(self._rows, len(self._rows) - fresh, None)), self.epoch)
        self._shared = seq, page
        return page
