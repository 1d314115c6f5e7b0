"""One message of a Claude CLI agent: streamed events, whole blocks, or both. Each block is emitted once.

With partial messages the process sends a block twice: as events, and whole before its stop event. A whole
block that repeats a streamed one only confirms it: if the stream ends before the block does, the block is
complete. A block is identified by its index in the message, a call also by its id. Calls are emitted when
their block is complete, not at the end of the message: the process starts to run them at once.
"""

from typing import Any

from turnlog.events import BlockStart, Payload
from turnlog.events.payload import Count
from turnlog.parse.json_values import JsonObject, as_opaque_id, convert_or_none, get_field
from turnlog.parse.messages_api import MessagesParser
from turnlog.parse.open_agents import OpenAgent, OpenAgents
from turnlog.parse.reply import ReplyBuilder


class CliMessage:
    """Parses one message. `take_output` returns its events. `reply` has its model and its tokens."""

    # For an `AgentEventBuilder` that shares the agents: the parser alone completes this message.
    is_open = False

    def __init__(self, reply: ReplyBuilder, start: JsonObject, is_streamed: bool) -> None:
        self._parser = MessagesParser(reply)
        self._parser.feed(start)
        self.reply = reply
        self.is_streamed = is_streamed
        self._output: list[Payload] = []
        self._unconfirmed_blocks: dict[int, tuple[Any, Any]] = {}  # identities of streamed blocks, by index
        self._confirmed_indexes: set[int] = set()  # a whole block has repeated them
        self._block_ids: dict[int, str] = {}  # by index
        self._block_count = 0

    @property
    def message_id(self) -> str | None:
        return self.reply.message_id

    @property
    def has_ended(self) -> bool:
        return self._parser.has_ended

    def take_output(self) -> list[Payload]:
        output = self._output
        self._output = []
        return output

    def feed_event(self, event: JsonObject) -> None:
        kind = event.get("type")
        index = convert_or_none(event.get("index"), Count)
        # The whole block may have stopped it already.
        if kind == "content_block_stop" and index in self._confirmed_indexes:
            self._stop_block(index)
            return

        if kind == "message_stop":
            self.finish_confirmed()
        self._feed(event, index)
        if kind == "content_block_start" and index in self._parser.open_indexes:
            self._unconfirmed_blocks[index] = get_block_identity(event.get("content_block"))
            self._block_count = max(self._block_count, index + 1)

    def add_whole_block(self, block: Any, aborted: bool = False) -> str | None:
        """Confirm the streamed block that this one repeats, or add it. Return its id, if it has started."""
        index = self._take_streamed_index(block)
        if index is not None:
            self._confirmed_indexes.add(index)
        else:
            index = self._block_count
            self._block_count += 1
            self._feed({"type": "content_block_start", "index": index, "content_block": block}, index)
            if not aborted:
                self._stop_block(index)
        if aborted:
            self._drop_block(index)
        return self._block_ids.get(index)

    def has_streamed(self, block: Any) -> bool:
        return get_block_identity(block) in self._unconfirmed_blocks.values()

    def abandon_from(self, start: int) -> list[str]:
        """Abort the open blocks from this index on. Return the ids of all blocks from there on."""
        for index in [index for index in self._parser.open_indexes if index >= start]:
            self._drop_block(index)
        return [self._block_ids.pop(index) for index in list(self._block_ids) if index >= start]

    def finish_confirmed(self) -> None:
        for index in [index for index in self._parser.open_indexes if index in self._confirmed_indexes]:
            self._stop_block(index)

    def abort(self) -> list[Payload]:
        """Complete the blocks that are confirmed and abort the others. Return all events."""
        self.finish_confirmed()
        self._output += self._parser.flush()
        return self.take_output()

    def _stop_block(self, index: int) -> None:
        if index in self._parser.open_indexes:
            self._feed({"type": "content_block_stop", "index": index}, index)

    def _drop_block(self, index: int) -> None:
        self._emit(self._parser.drop(index), index)

    def _feed(self, event: JsonObject, index: int | None) -> None:
        self._emit(self._parser.feed(event), index)
        self._emit(self._parser.reply.flush_deferred(), index)

    def _emit(self, batch: list[Payload], index: int | None) -> None:
        for payload in batch:
            if isinstance(payload, BlockStart) and index is not None:
                self._block_ids[index] = payload.block_id
        self._output += batch

    def _take_streamed_index(self, block: Any) -> int | None:
        identity = get_block_identity(block)
        for index, streamed in self._unconfirmed_blocks.items():
            if streamed == identity:
                del self._unconfirmed_blocks[index]
                return index
        return None


def get_block_identity(block: Any) -> tuple[Any, Any]:
    kind = get_field(block, "type")
    return kind if isinstance(kind, str) else None, as_opaque_id(get_field(block, "id"))


CliAgent = OpenAgent[CliMessage]
CliAgents = OpenAgents[CliMessage]
