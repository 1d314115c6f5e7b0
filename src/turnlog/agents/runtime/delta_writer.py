"""Appends the deltas of a reply in order, and merges them only while a write is under way.

The first delta is appended immediately. Payloads that arrive during a write go into the next one, and deltas
of one block become one event. Memory is bounded: above `MAX_PENDING_CHARS` the model has to wait.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from turnlog.events import BlockDelta, Payload

MAX_PENDING_CHARS = 64 * 1024  # a model that outruns the disk by this much is slowed down


class DeltaWriter:
    """Appends the live part of one reply; `append` starts a write and returns its future."""

    def __init__(self, append: Callable[[list[Payload]], asyncio.Future[Any]]) -> None:
        self._append = append
        self._pending: list[Payload] = []
        self._write_future: asyncio.Future[Any] | None = None
        self._error: BaseException | None = None

    async def write(self, payloads: Iterable[Payload]) -> None:
        """Append soon. Return at once unless too much is pending. Raise the error of an earlier write."""
        for payload in payloads:
            merge_delta(self._pending, payload)
        if self._pending and self._write_future is None:
            self._start_write()
        self._raise_error()
        pending_chars = sum(len(item.text) for item in self._pending if isinstance(item, BlockDelta))
        if pending_chars > MAX_PENDING_CHARS:
            await self.flush()

    def _start_write(self) -> None:
        if self._error is not None:
            return  # nothing is written after a failed write
        batch, self._pending = self._pending, []
        try:
            self._write_future = self._append(batch)
        except Exception as error:  # noqa: BLE001  the next `write` or `flush` raises it
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
        """Wait until everything is in the log. If the caller is cancelled, the write is cancelled too."""
        while (writing := self._write_future) is not None:
            try:
                await asyncio.wait([writing])
            except asyncio.CancelledError:
                writing.cancel()
                raise
        self._raise_error()


def merge_delta(pending: list[Payload], payload: Payload) -> None:
    last = pending[-1] if pending else None
    if isinstance(payload, BlockDelta) and isinstance(last, BlockDelta) and last.block_id == payload.block_id:
        pending[-1] = BlockDelta(block_id=last.block_id, text=last.text + payload.text)
    else:
        pending.append(payload)
