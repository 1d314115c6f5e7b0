"""The reader of the dialect `blocks`: messages in, whole blocks out, in the order in which they opened.

`feed` takes the data of one SSE message with its id and returns the blocks that changed; `flush` ends the
stream. An open block is known by (agent, type, id); `final` closes it. Results belong to their call,
citations to the agent's last complete text, images to their result. A rollback voids what the model sent
last, and the results of void calls.

Nothing is raised. Messages that cannot be used are counted in `dropped`, except unknown types and lines that
are no JSON object. After a reconnect, a message whose id is not after the last one is skipped. A new epoch or
a `reset` voids everything (protocol section 7). Work and memory are linear in the input. The reader in
`web/client` has the same rules; `portable_json` makes both hold the same values.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from turnlog.client.blocks import (
    RESULT_TYPES,
    AssembledAgent,
    AssembledBlock,
    AssembledCitation,
    block_to_json,
    last_valid_block,
)
from turnlog.client.portable_json import (
    BlocksMessage,
    JsonObject,
    is_count,
    read_calls,
    read_fields,
    read_files,
    read_message,
    read_value,
)
from turnlog.errors import BadInput
from turnlog.wire.cursor import parse_cursor

CALL_TYPES = frozenset({"tool_call", "server_tool_call"})
MODEL_TYPES = CALL_TYPES | {"text", "thinking", "server_tool_result"}  # what a rollback counts
META_TYPES = frozenset({"meta_init", "meta_final", "rollback"})  # not listed: they act when they are complete


class StreamPosition(NamedTuple):
    """The position of a message in the log. The last message of an event has an infinite chunk."""

    epoch: str
    seq: int
    chunk: float


class Assembler:
    """Rebuilds the blocks of the agents of one session."""

    def __init__(self) -> None:
        self.dropped = 0
        self.agents: dict[str, AssembledAgent] = {}
        self._blocks: dict[AssembledBlock, None] = {}
        self._last_position: StreamPosition | None = None

    @property
    def blocks(self) -> list[AssembledBlock]:
        """Return the blocks of all agents as they opened. Results with a call are in the call."""
        return list(self._blocks)

    @property
    def pending(self) -> list[JsonObject]:
        return [call for agent in self.agents.values() for call in agent.pending_calls()]

    def feed(self, message: bytes | str, id: str = "") -> list[AssembledBlock]:
        """Take one message. Return the blocks that changed, void ones too. A result changes its call."""
        text = message if isinstance(message, str) else message.decode(errors="replace")
        fields = read_fields(text)
        # A reset has no id of its own; SSE readers repeat the last one.
        if fields and fields.get("type") == "reset":
            return self._clear()

        position = parse_position(id) if id else None
        if position is None:
            return self._on_fields(fields)

        last = self._last_position
        if last is not None and position.epoch == last.epoch and position <= last:
            return []
        changed: list[AssembledBlock] = []
        if last is not None and position.epoch != last.epoch:
            changed = self._clear()
        self._last_position = position
        return changed + self._on_fields(fields)

    def flush(self) -> list[AssembledBlock]:
        """End the stream: open blocks stay incomplete. Return them."""
        incomplete = []
        for agent in self.agents.values():
            for block in agent.open_blocks.values():
                if block.type in META_TYPES:
                    self.dropped += 1
                else:
                    incomplete.append(block.call or block)
            agent.open_blocks.clear()
            agent.open_citation = None
        return incomplete

    def as_json(self) -> JsonObject:
        """Return everything as plain JSON, the same in Python and JavaScript. Values are not copied."""
        agents = [
            {"agent": agent.id, "meta_init": agent.meta_init, "meta_final": agent.meta_final}
            for agent in self.agents.values()
        ]
        blocks = [block_to_json(block) for block in self._blocks]
        return {"agents": agents, "blocks": blocks, "pending": self.pending, "dropped": self.dropped}

    def _count_dropped(self) -> list[AssembledBlock]:
        self.dropped += 1
        return []

    def _clear(self) -> list[AssembledBlock]:
        void_blocks = self.blocks
        for block in void_blocks:
            block.void = True
        self.agents = {}
        self._blocks = {}
        self._last_position = None
        return void_blocks

    def _on_fields(self, fields: JsonObject | None) -> list[AssembledBlock]:
        if fields is None:
            return self._count_dropped()
        handler = BLOCK_HANDLERS.get(str(fields.get("type")))
        if handler is None:
            return []
        message = read_message(fields)
        if message is None:
            return self._count_dropped()

        agent = self.agents.get(message.agent)
        if agent is None:
            agent = self.agents[message.agent] = AssembledAgent(message.agent)
        return handler.on_message(self, agent, message)

    def _on_streamed(self, agent: AssembledAgent, message: BlocksMessage) -> list[AssembledBlock]:
        # The end of a text that never began opens no block.
        is_bare_end = message.final and not message.delta
        if is_bare_end and (message.type, message.get_text("id")) not in agent.open_blocks:
            return []
        return self._on_block(agent, message)

    def _on_block(self, agent: AssembledAgent, message: BlocksMessage) -> list[AssembledBlock]:
        block = self._get_or_open_block(agent, message, message.type)
        block.pieces.append(message.delta)
        if not message.final:
            return [] if block.type in META_TYPES else [block.call or block]

        del agent.open_blocks[block.type, block.id]
        block.complete = True
        handler = BLOCK_HANDLERS[message.type]
        if handler.parse_value:
            block.value = handler.parse_value(block.text)
        if handler.on_complete:
            return handler.on_complete(self, agent, block)
        return [block.call or block]

    def _on_image(self, agent: AssembledAgent, message: BlocksMessage) -> list[AssembledBlock]:
        src = message.get_text("src")
        if src is None:
            return self._count_dropped()
        block = self._get_or_open_block(agent, message, "tool_result")
        block.images.append({"src": src, "media_type": message.get_text("media_type") or ""})
        return [block.call or block]

    def _on_citation(self, agent: AssembledAgent, message: BlocksMessage) -> list[AssembledBlock]:
        text = self._find_cited_text(agent, message)
        citation: AssembledCitation | None = None
        if message.index is not None and agent.open_citation is not None:
            open_index, open_text, open_citation = agent.open_citation
            if open_index == message.index and open_text is text:
                citation = open_citation

        if citation is None:
            citation = AssembledCitation(message.extra)
            text.citations.append(citation)
        citation.pieces.append(message.delta)
        agent.open_citation = None if message.final else (message.index, text, citation)
        return [text]

    def _find_cited_text(self, agent: AssembledAgent, message: BlocksMessage) -> AssembledBlock:
        text_id = message.get_text("id")
        text = last_valid_block(agent.complete_texts) or agent.open_blocks.get(("text", text_id))
        if text is None:
            text = AssembledBlock("text", agent.id, text_id, complete=True)
            agent.complete_texts.append(text)
            self._insert_block(agent, text)
        return text

    def _get_or_open_block(self, agent: AssembledAgent, message: BlocksMessage, type: str) -> AssembledBlock:
        block_id = message.get_text("id")
        block = agent.open_blocks.get((type, block_id))
        if block is None:
            block = AssembledBlock(type, agent.id, block_id, message.get_text("name"))
            agent.open_blocks[type, block_id] = block
            if type not in META_TYPES:
                self._insert_block(agent, block)
        return block

    def _insert_block(self, agent: AssembledAgent, block: AssembledBlock) -> None:
        agent.blocks[block] = None
        if block.type in MODEL_TYPES:
            agent.model_blocks.append(block)
        if block.id and block.type in CALL_TYPES:
            agent.calls_by_id.setdefault(block.id, []).append(block)
        if block.id and block.type in RESULT_TYPES:
            block.call = last_valid_block(agent.calls_by_id.get(block.id, []))
        self._siblings(block)[block] = None

    def _siblings(self, block: AssembledBlock) -> dict[AssembledBlock, None]:
        return block.call.result_blocks if block.call else self._blocks

    def _finish_text(self, agent: AssembledAgent, block: AssembledBlock) -> list[AssembledBlock]:
        agent.complete_texts.append(block)
        return [block]

    def _finish_meta(self, agent: AssembledAgent, block: AssembledBlock) -> list[AssembledBlock]:
        if not isinstance(block.value, dict):
            return self._count_dropped()
        setattr(agent, block.type, block.value)
        return []

    def _finish_rollback(self, agent: AssembledAgent, block: AssembledBlock) -> list[AssembledBlock]:
        count = block.value.get("blocks") if isinstance(block.value, dict) else None
        if not is_count(count):
            return self._count_dropped()

        changed: dict[AssembledBlock, None] = {}
        for _ in range(min(count, len(agent.model_blocks))):
            model_block = agent.model_blocks.pop()
            self._void_block(agent, model_block)
            changed[model_block.call or model_block] = None
        return list(changed)

    def _void_block(self, agent: AssembledAgent, block: AssembledBlock) -> None:
        block.void = True
        del agent.blocks[block]
        del self._siblings(block)[block]
        agent.open_blocks.pop((block.type, block.id), None)
        last_valid_block(agent.complete_texts)
        last_valid_block(agent.calls_by_id.get(block.id or "", []))
        for result in block.results:
            self._void_block(agent, result)


def parse_position(id: str) -> StreamPosition | None:
    """Return the position of an id; None for an id without an epoch, or in another form."""
    try:
        cursor = parse_cursor(id)
    except BadInput:
        return None
    if not cursor.epoch or str(cursor) != id:
        return None
    # The id of the last message of an event has no chunk.
    chunk = math.inf if cursor.chunk is None else cursor.chunk
    return StreamPosition(cursor.epoch, cursor.seq, chunk)


class BlockHandler(NamedTuple):
    """How messages of a type are read, and how a complete block of it is decoded and finished."""

    parse_value: Callable[[str], object] | None = None
    on_message: Callable[[Assembler, AssembledAgent, BlocksMessage], list[AssembledBlock]] = (
        Assembler._on_block
    )
    on_complete: Callable[[Assembler, AssembledAgent, AssembledBlock], list[AssembledBlock]] | None = None


BLOCK_HANDLERS: dict[str, BlockHandler] = {
    "text": BlockHandler(on_message=Assembler._on_streamed, on_complete=Assembler._finish_text),
    "thinking": BlockHandler(on_message=Assembler._on_streamed),
    "citation": BlockHandler(on_message=Assembler._on_citation),
    "tool_call": BlockHandler(read_value),
    "server_tool_call": BlockHandler(read_value),
    "tool_result": BlockHandler(),
    "tool_result_image": BlockHandler(on_message=Assembler._on_image),
    "server_tool_result": BlockHandler(),
    "awaiting_frontend_tools": BlockHandler(read_calls),
    "meta_files": BlockHandler(read_files),
    "error": BlockHandler(read_value),
    "meta_init": BlockHandler(read_value, on_complete=Assembler._finish_meta),
    "meta_final": BlockHandler(read_value, on_complete=Assembler._finish_meta),
    "rollback": BlockHandler(read_value, on_complete=Assembler._finish_rollback),
}
