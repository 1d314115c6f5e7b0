"""What an agent says on its way to the log: in order, at once, merged only while a write is under way.

The first delta is appended immediately. What comes during its write goes together into the next one, and
deltas of one block become one event. Memory is bounded: when much is waiting, the model is made to wait.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from turnlog.events import BlockDelta, Payload

WAITING_CHARS = 64 * 1024  # a model that outruns the disk by this much is slowed down


class Speaker:
    """Appends the live part of one reply."""

    def __init__(self, append: Callable[[list[Payload]], Awaitable[object]]) -> None:
        self._append = append
        self._waiting: list[Payload] = []
        self._writing: asyncio.Task[None] | None = None

    async def say(self, payloads: Iterable[Payload]) -> None:
        """Append soon; returns at once unless too much is waiting."""
        for payload in payloads:
            merge(self._waiting, payload)
        if self._waiting and (self._writing is None or self._writing.done()):
            self.check()
            self._writing = asyncio.create_task(self._write())
        if sum(len(item.text) for item in self._waiting if isinstance(item, BlockDelta)) > WAITING_CHARS:
            await self.finish()

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            await self._append(batch)

    def check(self) -> None:
        """Raise what went wrong in an earlier write."""
        if self._writing is not None:
            self._writing.result()

    async def finish(self) -> None:
        """Wait until everything said is in the log."""
        if self._writing is not None:
            await self._writing

    def stop(self) -> None:
        """Say no more; what is being written is written."""
        self._waiting.clear()
        if self._writing is not None:
            self._writing.cancel()


def merge(waiting: list[Payload], payload: Payload) -> None:
    """Add a payload; a delta joins the delta of the same block before it."""
    before = waiting[-1] if waiting else None
    if (
        isinstance(payload, BlockDelta)
        and isinstance(before, BlockDelta)
        and before.block_id == payload.block_id
    ):
        waiting[-1] = BlockDelta(block_id=before.block_id, text=before.text + payload.text)
    else:
        waiting.append(payload)
