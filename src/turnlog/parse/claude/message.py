"""One message of a Claude CLI agent: streamed events, whole blocks, or both, each block once.

With partial messages a block comes twice: as events, and whole before it stops. A whole block that repeats a
streamed one only confirms it: should the stream end before the block does, the block is complete all the
same. Blocks are known by their place in the message; a call also by its id. Calls are said when their block
is complete, not with the end of the message: the process begins to run them at once.
"""

from typing import Any

from turnlog.events import BlockStart, Payload
from turnlog.events.payload import Count
from turnlog.parse.json_values import JsonObject, as_opaque_id, convert_or_none, get_field
from turnlog.parse.messages_api import MessagesParser
from turnlog.parse.reply import ReplyBuilder


class CliMessage:
    """A message while it is read."""

    def __init__(self, reply: ReplyBuilder, start: JsonObject) -> None:
        self._parser = MessagesParser(reply)
        self._parser.feed(start)
        self.message_id = reply.message_id
        self._unconfirmed_blocks: dict[
            int, tuple[Any, Any]
        ] = {}  # type and id; no whole block has repeated them yet
        self._confirmed_indexes: set[int] = set()  # open ones whose whole block came
        self._block_ids: dict[int, str] = {}
        self._block_count = 0

    @property
    def has_ended(self) -> bool:
        """Whether its stream has ended."""
        return self._parser.has_ended

    def feed_event(self, event: JsonObject) -> list[Payload]:
        """One event of the Messages API."""
        kind, index = event.get("type"), convert_or_none(event.get("index"), Count)
        if kind == "content_block_stop" and index in self._confirmed_indexes:
            return self._stop_block(index)  # perhaps it was complete before
        batch = self.finish_confirmed() if kind == "message_stop" else []
        batch += self._feed(event, index)
        if kind == "content_block_start" and index in self._parser.open_indexes:
            self._unconfirmed_blocks[index] = get_block_identity(event.get("content_block"))
            self._block_count = max(self._block_count, index + 1)
        return batch

    def add_whole_block(self, block: Any, aborted: bool = False) -> tuple[list[Payload], list[str]]:
        """A whole block: what it says that was not said before, and the blocks that it is."""
        index, batch = self._take_streamed_index(block), list[Payload]()
        if index is not None:
            self._confirmed_indexes.add(index)
        else:
            index, self._block_count = self._block_count, self._block_count + 1
            batch = self._feed({"type": "content_block_start", "index": index, "content_block": block}, index)
            batch += [] if aborted else self._stop_block(index)
        if aborted:
            batch += self._drop_block(index)
        return batch, self._ids_of_block(index)

    def has_streamed(self, block: Any) -> bool:
        """Whether a whole block was streamed."""
        return get_block_identity(block) in self._unconfirmed_blocks.values()

    def abandon_from(self, start: int) -> tuple[list[Payload], list[str]]:
        """The blocks from this one on are void: what closes those that are open, and which were shown."""
        late = [index for index in self._parser.open_indexes if index >= start]
        batch = [payload for index in late for payload in self._drop_block(index)]
        return batch, [self._block_ids.pop(index) for index in list(self._block_ids) if index >= start]

    def finish_confirmed(self) -> list[Payload]:
        """The open blocks whose whole block came are complete."""
        ready = [index for index in self._parser.open_indexes if index in self._confirmed_indexes]
        return [payload for index in ready for payload in self._stop_block(index)]

    def close(self) -> list[Payload]:
        """The message is over, in order or not."""
        return [*self.finish_confirmed(), *self._parser.flush()]

    def _stop_block(self, index: int) -> list[Payload]:
        """A block is complete, unless it never began."""
        stop = {"type": "content_block_stop", "index": index}
        return self._feed(stop, index) if index in self._parser.open_indexes else []

    def _drop_block(self, index: int) -> list[Payload]:
        return self._record_starts(self._parser.drop(index), index)

    def _feed(self, event: JsonObject, index: int | None) -> list[Payload]:
        return self._record_starts([*self._parser.feed(event), *self._parser.reply.flush_deferred()], index)

    def _record_starts(self, batch: list[Payload], index: int | None) -> list[Payload]:
        """The batch; which block it began is remembered."""
        for payload in batch:
            if isinstance(payload, BlockStart) and index is not None:
                self._block_ids[index] = payload.block_id
        return batch

    def _take_streamed_index(self, block: Any) -> int | None:
        """The first streamed block that this one repeats; it repeats no other."""
        wanted = get_block_identity(block)
        for index, streamed in self._unconfirmed_blocks.items():
            if streamed == wanted:
                del self._unconfirmed_blocks[index]
                return index
        return None

    def _ids_of_block(self, index: int) -> list[str]:
        return [self._block_ids[index]] if index in self._block_ids else []


def get_block_identity(block: Any) -> tuple[Any, Any]:
    """What a block is known by, beside its place."""
    kind = get_field(block, "type")
    return kind if isinstance(kind, str) else None, as_opaque_id(get_field(block, "id"))
