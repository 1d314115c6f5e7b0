"""The model's output while it streams, block by block.

A complete block has a durable final event (`assistant.message`, `assistant.thinking`, `assistant.block`,
`tool.call`) in the same append as its end. An aborted block has none; its end carries the partial text.
"""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from turnlog.events.payload import MODEL_ORIGINS, Name, OpaqueId, Origins, Payload

BlockKind = Literal["text", "thinking", "tool_call", "other"]
Interruption = Annotated[
    Literal["stopped", "timeout", "interrupted"] | None,
    Meta(
        description="What interrupted it: a person stopped it, its turn took too long, or the process that "
        "ran it ended. None: it ended by itself."
    ),
]


class BlockStart(Payload, frozen=True, kw_only=True):
    """A block began. A text block begins with its first visible character."""

    TYPE: ClassVar = "block.start"
    ORIGINS: ClassVar[Origins] = MODEL_ORIGINS
    EXAMPLE: ClassVar = {"block_id": "blk_1", "kind": "text"}

    block_id: OpaqueId
    kind: BlockKind
    call_id: OpaqueId | None = None
    tool: Name | None = None


class BlockDelta(Payload, frozen=True, kw_only=True, gc=False):
    """A piece of an open block, emitted as it arrives."""

    TYPE: ClassVar = "block.delta"
    ORIGINS: ClassVar[Origins] = MODEL_ORIGINS
    LIVE: ClassVar = True
    EXAMPLE: ClassVar = {"block_id": "blk_1", "text": "Based on the document, "}

    block_id: OpaqueId
    text: str


class BlockEnd(Payload, frozen=True, kw_only=True):
    """A block ended. An aborted one carries its partial text."""

    TYPE: ClassVar = "block.end"
    ORIGINS: ClassVar[Origins] = MODEL_ORIGINS
    EXAMPLE: ClassVar = {"block_id": "blk_1", "status": "aborted", "text": "Based on"}

    block_id: OpaqueId
    status: Literal["complete", "aborted"]
    text: Annotated[str | None, Meta(description="The partial text of an aborted block.")] = None
    reason: Interruption = None


class BlockRetract(Payload, frozen=True, kw_only=True):
    """Blocks that were sent are withdrawn, complete ones too. A retry emits it before it starts."""

    TYPE: ClassVar = "block.retract"
    ORIGINS: ClassVar[Origins] = MODEL_ORIGINS
    EXAMPLE: ClassVar = {"block_ids": ["blk_1"], "reason": "overloaded_error"}

    block_ids: tuple[OpaqueId, ...]
    reason: str


EVENTS = (BlockStart, BlockDelta, BlockEnd, BlockRetract)
