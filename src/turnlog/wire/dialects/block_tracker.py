"""The blocks of one agent: which are open, and which a retraction can take back.

A text or thinking is open from `block.start` to its final event (`assistant.message`, `assistant.thinking`),
which the log holds right after `block.end` and which has the citations and the signature. A dialect sends the
deltas, or the final event if the deltas are gone. An aborted block has no final event: its end has the text.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from turnlog.events import BlockDelta, BlockEnd, BlockStart

STREAMED_KINDS = ("text", "thinking")


@dataclass(slots=True)
class OpenBlock:
    """A text or thinking between its start and its final event."""

    kind: str
    is_deferred: bool = False  # sent at its end, because another block was open when it began
    has_started: bool = False  # a delta of it was sent
    has_ended: bool = False
    index: int | None = None  # in `blocks-raw`: of its content block, while that is open


class BlockTracker:
    """The open blocks of one agent by id, and the positions of the output that it can retract."""

    __slots__ = ("_output_count", "_positions", "agent_id", "has_output", "open")

    def __init__(self, agent_id: str = "") -> None:
        self.agent_id = agent_id
        self.open: dict[str, OpenBlock] = {}
        self.has_output = False
        self._output_count = 0
        self._positions: dict[str, int] = {}  # of output with a block id, in rising order

    def open_of_kind(self, kind: str) -> list[OpenBlock]:
        return [block for block in self.open.values() if block.kind == kind]

    def start(self, payload: BlockStart, *, is_deferred: bool = False) -> None:
        """Open a block. Kinds that are not streamed, such as calls, are ignored."""
        if payload.kind in STREAMED_KINDS:
            self.open[payload.block_id] = OpenBlock(payload.kind, is_deferred)

    def find_streamed(self, payload: BlockDelta) -> OpenBlock | None:
        """Return the open block of a delta; None if there is nothing to send."""
        block = self.open.get(payload.block_id)
        if block is None or block.is_deferred or not payload.text:
            return None
        return block

    def end(self, payload: BlockEnd) -> OpenBlock | None:
        """Mark a complete block as ended, or remove an aborted one. Return it; None if it is not open."""
        block = self.open.get(payload.block_id)
        if block is not None:
            block.has_ended = True
            if payload.status == "aborted":
                del self.open[payload.block_id]
        return block

    def finish(self, block_id: str | None) -> OpenBlock | None:
        """Remove the block of a final event. Return it; None if its start is unknown."""
        return self.open.pop(block_id or "", None)

    def drop(self, block_ids: Iterable[str]) -> list[OpenBlock]:
        """Remove retracted blocks. Return those that were open."""
        return [self.open.pop(block_id) for block_id in block_ids if block_id in self.open]

    def record_output(self, block_id: str | None) -> None:
        """Count a block, or another unit of output, that `retract` can take back."""
        self.has_output = True
        if block_id is not None:
            self._positions.setdefault(block_id, self._output_count)
        self._output_count += 1

    def retract(self, block_ids: Iterable[str]) -> int:
        """Forget all output from the first of these blocks on. Return how many units that was."""
        positions = [self._positions[key] for key in block_ids if key in self._positions]
        first = min(positions, default=self._output_count)
        retracted = self._output_count - first
        self._output_count = first

        while self._positions:
            key, position = self._positions.popitem()
            if position < first:
                self._positions[key] = position
                break
        return retracted
