"""Where a recording writes: a log of this process, or a server (`turnlog.connection`)."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from turnlog.errors import CallerError, TurnlogError
from turnlog.events import Entry, EventDraft


class RecordingLost(CallerError):
    """The session has another owner now, or the lease was over: what is recorded from here on is refused."""


class RecordingStopped(TurnlogError):
    """A person has stopped the turn. The body of the recording was cancelled."""


class RecordTarget(Protocol):
    """One session, owned by one recording from `open` to `release`.

    Every method but `release` raises `RecordingLost` when the session has another owner.
    """

    @property
    def lease_s(self) -> float | None:
        """Return how long the ownership lasts without a renewal; None: as long as this process."""
        ...

    async def open(self) -> int:
        """Own the session. Return the last seq. Raise `Conflict` if something runs in it."""
        ...

    async def append(self, items: Sequence[EventDraft]) -> None:
        """Append a batch. Return when it is durable. Wait while the log cannot be reached."""
        ...

    async def renew(self) -> None: ...

    def follow(self, after: int) -> AsyncIterator[Entry]:
        """Yield the durable events after a seq, for ever."""
        ...

    async def release(self, *, is_complete: bool) -> None:
        """Give the session up. Unless it is complete, its next owner closes what is open.

        Never raises for a session that is lost.
        """
        ...
