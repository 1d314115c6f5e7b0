"""A follower's way through a session: a cursor, where it may read the tail, and how much it gets at once."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

from turnlog.log.tail import Tail

Gate = AbstractAsyncContextManager[None, bool | None]
"""What a page is read inside of: a lock that followers share, who then hold one page together."""
OPEN_GATE: Gate = nullcontext()

PAGE_BYTES = 512 * 1024  # one read: large enough to be fast, small enough to let others go
FIRST_BYTES = 16 * 1024  # what a follower who never takes it costs
STEADY_BYTES = 256 * 1024  # more than fits between here and a peer that takes nothing; from here pages double


Spend = Callable[[int], Awaitable[None]]
"""Told how many bytes were read from the store for a follower; may wait before more is read."""


class Asked(NamedTuple):
    """What a follower asks for beside its place: types of events, or all, and who is told what it costs."""

    types: tuple[str, ...] = ()
    spend: Spend | None = None


@dataclass(slots=True)
class Walk:
    """One follower, who gets at most about `most_bytes` at once.

    Up to the seq `history` only the store knows what to leave out.
    """

    session_id: str
    tail: Tail
    epoch: str
    after: int
    origin: int | None
    history: int
    most_bytes: int = PAGE_BYTES
    spend: Spend | None = None
    size_bytes: int = FIRST_BYTES
    taken_bytes: int = 0

    def is_over(self) -> bool:
        """Whether nothing comes any more: the session is closed and read, or has another history now."""
        tail = self.tail
        return tail.epoch != self.epoch or not self.epoch or (tail.closed and self.after >= tail.last)

    def take(self) -> int:
        """How much to read next: who has taken much gets more at once."""
        size_bytes = min(self.size_bytes, self.most_bytes)
        self.taken_bytes += size_bytes
        if self.taken_bytes >= STEADY_BYTES:
            self.size_bytes = 2 * size_bytes
        return size_bytes
