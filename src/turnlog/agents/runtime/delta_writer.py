"""What an agent says on its way to the log: in order, at once, merged only while a write is under way.

The first delta is appended immediately. What comes during its write goes together into the next one, and
deltas of one block become one event. Memory is bounded: when much is waiting, the model is made to wait.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from turnlog.events import BlockDelta, Payload

WAITING_CHARS = 64 * 1024  # a model that outruns the disk by this much is slowed down


class Speaker:
    """Appends the live part of one reply; `append` begins a write and gives its future."""

    def __init__(self, append: Callable[[list[Payload]], asyncio.Future[Any]]) -> None:
        self._append = append
        self._waiting: list[Payload] = []
        self._writing: asyncio.Future[Any] | None = None
        self._fault: BaseException | None = None

    async def say(self, payloads: Iterable[Payload]) -> None:
        """Append soon; returns at once unless too much is waiting. Raises what went wrong in a write."""
        for payload in payloads:
            merge(self._waiting, payload)
        if self._waiting and self._writing is None:
            self._write()
        self._check()
        if sum(len(item.text) for item in self._waiting if isinstance(item, BlockDelta)) > WAITING_CHARS:
            await self.finish()

    def _write(self) -> None:
        """Begin the next write, unless an earlier one has failed."""
        if self._fault is not None:
            return
        batch, self._waiting = self._waiting, []
        try:
            self._writing = self._append(batch)
        except Exception as error:  # noqa: BLE001  whoever speaks is told, here or after a write
            self._fault = error
        else:
            self._writing.add_done_callback(self._written)

    def _written(self, done: asyncio.Future[Any]) -> None:
        self._writing = None
        self._fault = asyncio.CancelledError() if done.cancelled() else done.exception()
        if self._waiting:
            self._write()

    def _check(self) -> None:
        if self._fault is not None:
            raise self._fault

    async def finish(self) -> None:
        """Wait until everything said is in the log; who is cancelled meanwhile writes no more."""
        while (writing := self._writing) is not None:
            try:
                await asyncio.wait([writing])
            except asyncio.CancelledError:
                writing.cancel()
                raise
        self._check()


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
