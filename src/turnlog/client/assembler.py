"""The reader of the dialect `blocks`: messages in, whole blocks out, in the order in which they opened.

`feed` takes the data of one SSE message with its id and gives the blocks that changed; `flush` says that no
more will come. While a block is open it is known by (agent, type, id); `final` closes it. Results hang on
their call, citations on the agent's last complete text, images on their result. A rollback takes back what
the model said last, and with a call its results. Nothing is raised: what cannot be used is counted in
`dropped`, unknown types and lines that are no JSON object are not even counted.

After a reconnect messages may come again: one whose id is not after the last one is left out. A new epoch or
a `reset` makes everything void (protocol section 7). Work and memory are linear in the input.
`web/client/assembler.js` is the same reader, and `reading` makes sure that both hold the same values.
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
    build_transcript,
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
from turnlog.wire import cursor

CALL_TYPES = frozenset({"tool_call", "server_tool_call"})
MODEL_TYPES = CALL_TYPES | {"text", "thinking", "server_tool_result"}  # what a rollback counts
META_TYPES = frozenset({"meta_init", "meta_final", "rollback"})  # no blocks: they act when they are complete

StreamPosition = tuple[str, int, float]  # epoch, seq, chunk


class Assembler:
    """Rebuilds what the agents of one session said."""

    def __init__(self) -> None:
        self.dropped = 0
        self.agents: dict[str, AssembledAgent] = {}
        self._blocks: dict[AssembledBlock, None] = {}
        self._last_position: StreamPosition | None = None

    @property
    def blocks(self) -> list[AssembledBlock]:
        """The blocks of all agents as they opened; results with a call are found there."""
        return list(self._blocks)

    @property
    def pending(self) -> list[JsonObject]:
        """The calls that the page must answer."""
        return [call for agent in self.agents.values() for call in agent.pending_calls()]

    def feed(self, message: bytes | str, id: str = "") -> list[AssembledBlock]:
        """Take one message; return the blocks that changed, void ones too. A result changes its call."""
        text = message if isinstance(message, str) else message.decode(errors="replace")
        fields = read_fields(text)
        if fields and fields.get("type") == "reset":  # has no id of its own: the reader's last one sticks
            return self._clear()
        gone = self._advance(id)
        return [] if gone is None else gone + self._on_fields(fields)

    def flush(self) -> list[AssembledBlock]:
        """The stream is over: what is open stays incomplete. Returns these blocks."""
        left = []
        for agent in self.agents.values():
            left += [
                block.call or block for block in agent.open_blocks.values() if block.type not in META_TYPES
            ]
            self.dropped += sum(block.type in META_TYPES for block in agent.open_blocks.values())
            agent.open_blocks.clear()
            agent.open_citation = None
        return left

    def as_json(self) -> JsonObject:
        """Everything as plain JSON, the same in Python and JavaScript. Values are shared, not copied."""
        agents = [
            {"agent": agent.id, "meta_init": agent.meta_init, "meta_final": agent.meta_final}
            for agent in self.agents.values()
        ]
        blocks = [block_to_json(block) for block in self._blocks]
        return {"agents": agents, "blocks": blocks, "pending": self.pending, "dropped": self.dropped}

    def transcript(self) -> str:
        """Everything as text for people, one agent after the other."""
        return "\n".join(map(str, build_transcript(self.agents)))

    def _count_dropped(self) -> list[AssembledBlock]:
        self.dropped += 1
        return []

    def _clear(self) -> list[AssembledBlock]:
        gone = self.blocks
        for block in gone:
            block.void = True
        self.agents, self._blocks, self._last_position = {}, {}, None
        return gone

    def _advance(self, id: str) -> list[AssembledBlock] | None:
        """Go on to the place of an id: None when it was seen before, else what a new epoch makes void."""
        place, last = parse_position(id) if id else None, self._last_position
        if place is None:
            return []
        if last and place[0] == last[0] and place[1:] <= last[1:]:
            return None
        gone = self._clear() if last and place[0] != last[0] else []
        self._last_position = place
        return gone

    def _on_fields(self, fields: JsonObject | None) -> list[AssembledBlock]:
        if fields is None:
            return self._count_dropped()
        kind = BLOCK_HANDLERS.get(str(fields.get("type")))
        if kind is None:
            return []
        message = read_message(fields)
        if message is None:
            return self._count_dropped()
        name = message.agent
        agent = self.agents.get(name) or self.agents.setdefault(name, AssembledAgent(name))
        return kind.on_message(self, agent, message)

    def _on_streamed(self, agent: AssembledAgent, message: BlocksMessage) -> list[AssembledBlock]:
        if (
            message.final
            and not message.delta
            and (message.type, message.get_text("id")) not in agent.open_blocks
        ):
            return []  # the end of a text that never began
        return self._on_block(agent, message)

    def _on_block(self, agent: AssembledAgent, message: BlocksMessage) -> list[AssembledBlock]:
        block, kind = self._get_or_open_block(agent, message, message.type), BLOCK_HANDLERS[message.type]
        block.pieces.append(message.delta)
        if not message.final:
            return [] if block.type in META_TYPES else [block.call or block]
        del agent.open_blocks[block.type, block.id]
        block.complete = True
        if kind.parse_value:
            block.value = kind.parse_value(block.text)
        return kind.on_complete(self, agent, block) if kind.on_complete else [block.call or block]

    def _on_image(self, agent: AssembledAgent, message: BlocksMessage) -> list[AssembledBlock]:
        src = message.get_text("src")
        if src is None:
            return self._count_dropped()
        block = self._get_or_open_block(agent, message, "tool_result")
        block.images.append({"src": src, "media_type": message.get_text("media_type") or ""})
        return [block.call or block]

    def _on_citation(self, agent: AssembledAgent, message: BlocksMessage) -> list[AssembledBlock]:
        text = self._find_cited_text(agent, message)
        if (
            message.index is not None
            and agent.open_citation
            and agent.open_citation[:2] == (message.index, text)
        ):
            citation = agent.open_citation[2]
        else:
            citation = AssembledCitation(message.extra)
            text.citations.append(citation)
        citation.pieces.append(message.delta)
        agent.open_citation = None if message.final else (message.index, text, citation)
        return [text]

    def _find_cited_text(self, agent: AssembledAgent, message: BlocksMessage) -> AssembledBlock:
        text = last_valid_block(agent.complete_texts) or agent.open_blocks.get(
            ("text", message.get_text("id"))
        )
        if text is None:
            text = AssembledBlock("text", agent.id, message.get_text("id"), complete=True)
            agent.complete_texts.append(text)
            self._insert_block(agent, text)
        return text

    def _get_or_open_block(self, agent: AssembledAgent, message: BlocksMessage, type: str) -> AssembledBlock:
        """The open block that a message belongs to; the first message opens it."""
        block = agent.open_blocks.get((type, message.get_text("id")))
        if block is None:
            block = AssembledBlock(type, agent.id, message.get_text("id"), message.get_text("name"))
            agent.open_blocks[type, block.id] = block
            if type not in META_TYPES:
                self._insert_block(agent, block)
        return block

    def _insert_block(self, agent: AssembledAgent, block: AssembledBlock) -> None:
        """Put a new block where it is found: with its call, or among the others."""
        agent.blocks[block] = None
        if block.type in MODEL_TYPES:
            agent.model_blocks.append(block)
        if block.id and block.type in CALL_TYPES:
            agent.calls_by_id.setdefault(block.id, []).append(block)
        if block.id and block.type in RESULT_TYPES:
            block.call = last_valid_block(agent.calls_by_id.get(block.id, []))
        (block.call.result_blocks if block.call else self._blocks)[block] = None

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
            void = agent.model_blocks.pop()
            self._void_block(agent, void)
            changed[void.call or void] = None
        return list(changed)

    def _void_block(self, agent: AssembledAgent, block: AssembledBlock) -> None:
        block.void = True
        del agent.blocks[block], (block.call.result_blocks if block.call else self._blocks)[block]
        agent.open_blocks.pop((block.type, block.id), None)
        last_valid_block(agent.complete_texts)
        last_valid_block(agent.calls_by_id.get(block.id or "", []))
        for result in block.results:
            self._void_block(agent, result)


def parse_position(id: str) -> StreamPosition | None:
    """The place an id names; its plain form is the last frame of an event. Foreign ids name none."""
    try:
        place = cursor.parse_cursor(id)
    except BadInput:
        return None
    chunk = math.inf if place.chunk is None else place.chunk
    return (place.epoch, place.seq, chunk) if place.epoch and str(place) == id else None


class BlockHandler(NamedTuple):
    """How a type is taken, read and finished."""

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
