"""One message of a Claude CLI agent: streamed events, whole blocks, or both, each block once.

With partial messages a block comes twice: as events, and whole before it stops. A whole block that repeats a
streamed one only confirms it: should the stream end before the block does, the block is complete all the
same. Blocks are known by their place in the message; a call also by its id. Calls are said when their block
is complete, not with the end of the message: the process begins to run them at once.
"""

from typing import Any

from turnlog.events import BlockStart, Payload
from turnlog.events.payload import Count
from turnlog.parse.json_values import Data, as_key, field, valid
from turnlog.parse.messages_api import MessagesParser
from turnlog.parse.reply import Reply


class Message:
    """A message while it is read."""

    def __init__(self, reply: Reply, start: Data) -> None:
        self._parser = MessagesParser(reply)
        self._parser.feed(start)
        self.key = reply.message_id
        self._streamed: dict[int, tuple[Any, Any]] = {}  # type and id; no whole block has repeated them yet
        self._confirmed: set[int] = set()  # open ones whose whole block came
        self._shown: dict[int, str] = {}
        self._count = 0

    @property
    def over(self) -> bool:
        """Whether its stream has ended."""
        return self._parser.over

    def stream(self, event: Data) -> list[Payload]:
        """One event of the Messages API."""
        kind, index = event.get("type"), valid(event.get("index"), Count)
        if kind == "content_block_stop" and index in self._confirmed:
            return self._stop(index)  # perhaps it was complete before
        batch = self.settle() if kind == "message_stop" else []
        batch += self._feed(event, index)
        if kind == "content_block_start" and index in self._parser.open_blocks:
            self._streamed[index] = identity(event.get("content_block"))
            self._count = max(self._count, index + 1)
        return batch

    def whole(self, block: Any, aborted: bool = False) -> tuple[list[Payload], list[str]]:
        """A whole block: what it says that was not said before, and the blocks that it is."""
        index, batch = self._repeated(block), list[Payload]()
        if index is not None:
            self._confirmed.add(index)
        else:
            index, self._count = self._count, self._count + 1
            batch = self._feed({"type": "content_block_start", "index": index, "content_block": block}, index)
            batch += [] if aborted else self._stop(index)
        if aborted:
            batch += self._drop(index)
        return batch, self._ids(index)

    def repeats(self, block: Any) -> bool:
        """Whether a whole block was streamed."""
        return identity(block) in self._streamed.values()

    def abandon(self, start: int) -> tuple[list[Payload], list[str]]:
        """The blocks from this one on are void: what closes those that are open, and which were shown."""
        late = [index for index in self._parser.open_blocks if index >= start]
        batch = [payload for index in late for payload in self._drop(index)]
        return batch, [self._shown.pop(index) for index in list(self._shown) if index >= start]

    def settle(self) -> list[Payload]:
        """The open blocks whose whole block came are complete."""
        ready = [index for index in self._parser.open_blocks if index in self._confirmed]
        return [payload for index in ready for payload in self._stop(index)]

    def close(self) -> list[Payload]:
        """The message is over, in order or not."""
        return [*self.settle(), *self._parser.flush()]

    def _stop(self, index: int) -> list[Payload]:
        """A block is complete, unless it never began."""
        stop = {"type": "content_block_stop", "index": index}
        return self._feed(stop, index) if index in self._parser.open_blocks else []

    def _drop(self, index: int) -> list[Payload]:
        return self._noted(self._parser.drop(index), index)

    def _feed(self, event: Data, index: int | None) -> list[Payload]:
        return self._noted([*self._parser.feed(event), *self._parser.reply.release()], index)

    def _noted(self, batch: list[Payload], index: int | None) -> list[Payload]:
        """The batch; which block it began is remembered."""
        for payload in batch:
            if isinstance(payload, BlockStart) and index is not None:
                self._shown[index] = payload.block_id
        return batch

    def _repeated(self, block: Any) -> int | None:
        """The first streamed block that this one repeats; it repeats no other."""
        wanted = identity(block)
        for index, streamed in self._streamed.items():
            if streamed == wanted:
                del self._streamed[index]
                return index
        return None

    def _ids(self, index: int) -> list[str]:
        return [self._shown[index]] if index in self._shown else []


def identity(block: Any) -> tuple[Any, Any]:
    """What a block is known by, beside its place."""
    kind = field(block, "type")
    return kind if isinstance(kind, str) else None, as_key(field(block, "id"))
