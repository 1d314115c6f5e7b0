"""A follower's way through a session: a cursor, where it may read the tail, and how much it gets at once."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

from turnlog.log.tail import Tail

PageLock = AbstractAsyncContextManager[None, bool | None]
"""What a page is read inside of: a lock that followers share, who then hold one page together."""
NO_PAGE_LOCK: PageLock = nullcontext()

MAX_PAGE_BYTES = 512 * 1024  # one read: large enough to be fast, small enough to let others go
FIRST_PAGE_BYTES = 16 * 1024  # what a follower who never takes it costs
GROW_AFTER_BYTES = (
    256 * 1024
)  # more than fits between here and a peer that takes nothing; from here pages double


ChargeBytes = Callable[[int], Awaitable[None]]
"""Told how many bytes were read from the store for a follower; may wait before more is read."""


class FollowOptions(NamedTuple):
    """What a follower asks for beside its place: types of events, or all, and who is told what it costs."""

    types: tuple[str, ...] = ()
    charge_bytes: ChargeBytes | None = None


@dataclass(slots=True)
class Subscription:
    """One follower, who gets at most about `most_bytes` at once.

    Up to the seq `history` only the store knows what to leave out.
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
        """Whether nothing comes any more: the session is closed and read, or has another history now."""
        tail = self.tail
        return tail.epoch != self.epoch or not self.epoch or (tail.closed and self.after >= tail.last)

    def next_read_bytes(self) -> int:
        """How much to read next: who has taken much gets more at once."""
        size_bytes = min(self.read_bytes, self.max_bytes)
        self.total_bytes += size_bytes
        if self.total_bytes >= GROW_AFTER_BYTES:
            self.read_bytes = 2 * size_bytes
        return size_bytes
