"""Appends the deltas of a reply in order, and merges them only while a write is under way.

The first delta is appended immediately. Payloads that arrive during a write go into the next one, and deltas
of one block become one event. Memory is bounded: above `MAX_PENDING_CHARS` the model has to wait.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from turnlog.events import BlockDelta, Payload

MAX_PENDING_CHARS = 64 * 1024  # a model that outruns the disk by this much is slowed down


class PendingBatch:
    """Payloads that wait for a write. Neighbouring deltas of one block are joined once, by `take`."""

    def __init__(self) -> None:
        self.chars = 0  # of all deltas
        self._payloads: list[Payload] = []
        self._block_id: str | None = None  # of the last payload; None if it is no delta
        self._pieces: list[str] = []  # the texts of the last deltas, all of that block

    def __bool__(self) -> bool:
        return bool(self._payloads or self._pieces)

    def add(self, payload: Payload) -> None:
        if not isinstance(payload, BlockDelta):
            self._join_pieces()
            self._payloads.append(payload)
            return

        if payload.block_id != self._block_id:
            self._join_pieces()
            self._block_id = payload.block_id
        self._pieces.append(payload.text)
        self.chars += len(payload.text)

    def take(self) -> list[Payload]:
        """Return the payloads. The batch is empty afterwards."""
        self._join_pieces()
        payloads = self._payloads
        self._payloads = []
        self.chars = 0
        return payloads

    def _join_pieces(self) -> None:
        if self._block_id is not None:
            delta = BlockDelta(block_id=self._block_id, text="".join(self._pieces))
            self._payloads.append(delta)
            self._block_id = None
            self._pieces = []


class DeltaWriter:
    """Appends the live part of one reply; `append` starts a write and returns its future."""

    def __init__(self, append: Callable[[list[Payload]], asyncio.Future[Any]]) -> None:
        self._append = append
        self._pending = PendingBatch()
        self._write_future: asyncio.Future[Any] | None = None
        self._error: BaseException | None = None

    async def write(self, payloads: Iterable[Payload]) -> None:
        """Append soon. Return at once unless too much is pending. Raise the error of an earlier write."""
        for payload in payloads:
            self._pending.add(payload)
        if self._write_future is None and self._pending:
            self._start_write()
        self._raise_error()
        if self._pending.chars > MAX_PENDING_CHARS:
            await self.flush()

    def _start_write(self) -> None:
        if self._error is not None:
            return  # nothing is written after a failed write
        try:
            self._write_future = self._append(self._pending.take())
        except Exception as error:  # noqa: BLE001  the next `write` or `flush` raises it
            self._error = error
        else:
            self._write_future.add_done_callback(self._on_write_done)

    def _on_write_done(self, done: asyncio.Future[Any]) -> None:
        self._write_future = None
        self._error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if self._pending:
            self._start_write()

    def take_unwritten(self) -> list[Payload]:
        """Return the payloads that wait for the write under way; the caller has to append them."""
        return self._pending.take()

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
