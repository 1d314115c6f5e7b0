"""What an agent says on its way to the log: in order, at once, merged only while a write is under way.

The first delta is appended immediately. What comes during its write goes together into the next one, and
deltas of one block become one event. Memory is bounded: when much is waiting, the model is made to wait.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from turnlog.events import BlockDelta, Payload

MAX_PENDING_CHARS = 64 * 1024  # a model that outruns the disk by this much is slowed down


class DeltaWriter:
    """Appends the live part of one reply; `append` begins a write and gives its future."""

    def __init__(self, append: Callable[[list[Payload]], asyncio.Future[Any]]) -> None:
        self._append = append
        self._pending: list[Payload] = []
        self._write_future: asyncio.Future[Any] | None = None
        self._error: BaseException | None = None

    async def write(self, payloads: Iterable[Payload]) -> None:
        """Append soon; returns at once unless too much is waiting. Raises what went wrong in a write."""
        for payload in payloads:
            merge_delta(self._pending, payload)
        if self._pending and self._write_future is None:
            self._start_write()
        self._raise_error()
        if sum(len(item.text) for item in self._pending if isinstance(item, BlockDelta)) > MAX_PENDING_CHARS:
            await self.flush()

    def _start_write(self) -> None:
        """Begin the next write, unless an earlier one has failed."""
        if self._error is not None:
            return
        batch, self._pending = self._pending, []
        try:
            self._write_future = self._append(batch)
        except Exception as error:  # noqa: BLE001  whoever speaks is told, here or after a write
            self._error = error
        else:
            self._write_future.add_done_callback(self._on_write_done)

    def _on_write_done(self, done: asyncio.Future[Any]) -> None:
        self._write_future = None
        self._error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if self._pending:
            self._start_write()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    async def flush(self) -> None:
        """Wait until everything said is in the log; who is cancelled meanwhile writes no more."""
        while (writing := self._write_future) is not None:
            try:
                await asyncio.wait([writing])
            except asyncio.CancelledError:
                writing.cancel()
                raise
        self._raise_error()


def merge_delta(waiting: list[Payload], payload: Payload) -> None:
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
