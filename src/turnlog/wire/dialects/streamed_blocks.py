"""When a block starts, continues and ends for clients that get these three apart: AG-UI and the AI SDK.

A block is open from `block.start` to its final event: `assistant.message`, `assistant.thinking`, `tool.call`.
An aborted block ends with `block.end`, because no final event follows. A reader that came too late for the
deltas gets the whole text from the event that ends the block. A dialect's writer knows how each is written.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from turnlog.events import (
    AssistantMessage,
    AssistantThinking,
    BlockDelta,
    BlockEnd,
    BlockStart,
    Envelope,
)

FinalEvent = AssistantMessage | AssistantThinking


@dataclass(slots=True)
class StreamedBlock:
    """A text, thinking or call that is open. `part_id` is the id of its message, part or call."""

    kind: str
    part_id: str
    tool: str = ""
    has_content: bool = False


Block = TypeVar("Block", bound=StreamedBlock)
Agent = TypeVar("Agent", bound="BlockOwner[Any]")
AgentContra = TypeVar("AgentContra", contravariant=True)


class BlockOwner(Protocol[Block]):
    """An agent: its open blocks by id, and the ids of its calls by block, for retractions."""

    blocks: dict[str, Block]
    call_ids: dict[str, str]


class BlockWriter(Protocol[AgentContra, Block]):
    """Writes the parts of a block. `write_content` sets `has_content`."""

    def make_block(self, kind: str, part_id: str, tool: str = "") -> Block: ...

    def start_block(self, agent: AgentContra, block: Block, **fields: Any) -> None: ...

    def write_content(self, agent: AgentContra, block: Block, text: str) -> None: ...

    def end_block(self, agent: AgentContra, block: Block) -> None: ...


def convert_block_start(
    out: BlockWriter[Agent, Block], agent: Agent, _: Envelope, payload: BlockStart
) -> None:
    if payload.kind == "tool_call":
        if payload.call_id is None or payload.tool is None:
            return
        block = out.make_block("tool_call", payload.call_id, payload.tool)
        agent.call_ids[payload.block_id] = payload.call_id
    elif payload.kind == "other":
        return
    else:
        block = out.make_block(payload.kind, payload.block_id)
    agent.blocks[payload.block_id] = block
    out.start_block(agent, block)


def convert_block_delta(
    out: BlockWriter[Agent, Block], agent: Agent, _: Envelope, payload: BlockDelta
) -> None:
    block = agent.blocks.get(payload.block_id)
    if block is not None and payload.text:
        out.write_content(agent, block, payload.text)


def convert_block_end(out: BlockWriter[Agent, Block], agent: Agent, _: Envelope, payload: BlockEnd) -> None:
    # The final event ends a complete block.
    block = agent.blocks.get(payload.block_id)
    if block is None or payload.status == "complete":
        return
    del agent.blocks[payload.block_id]
    if payload.text and not block.has_content:
        out.write_content(agent, block, payload.text)
    out.end_block(agent, block)


def finish_text(
    out: BlockWriter[Agent, Block], agent: Agent, envelope: Envelope, kind: str, payload: FinalEvent
) -> str | None:
    """Write the end of a text or thinking. Return its id; None for one that was never begun and is empty."""
    if payload.block_id not in agent.blocks and not payload.text:
        return None
    whole = out.make_block(kind, payload.block_id or envelope.id)
    return finish_block(out, agent, payload.block_id, whole, payload.text)


def list_part_ids(agent: BlockOwner[Any], block_ids: Iterable[str]) -> list[str]:
    """Return the ids under which blocks were written: that of a call is its own."""
    return [agent.call_ids.get(block_id, block_id) for block_id in block_ids]


def finish_block(
    out: BlockWriter[Agent, Block],
    agent: Agent,
    block_id: str | None,
    whole: Block,
    text: str,
    **fields: Any,
) -> str:
    """Write the end of a block by its final event, or all of it if its start is not known. Return its id."""
    block: Block | None = agent.blocks.pop(block_id or "", None)
    if block is None:
        block = whole
        out.start_block(agent, block, **fields)
    if text and not block.has_content:
        out.write_content(agent, block, text)
    out.end_block(agent, block)
    return block.part_id
