"""The data of an `Assembler`: agents, their blocks, and the citations of a text; also as JSON.

A block has its state (`complete`, `void`), its citations, images and results. The JSON form is the same in
Python and in the JavaScript client (`web/client`).
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import UNSET

from turnlog.client.portable_json import JsonObject
from turnlog.events.surrogates import replace_lone_surrogates
from turnlog.wire.chunks import Scalar

RESULT_TYPES = frozenset({"tool_result", "server_tool_result"})


@dataclass(slots=True, eq=False)
class AssembledCitation:
    """A citation of a text. `fields` are its type and location under the names of the wire."""

    fields: dict[str, Scalar]
    pieces: list[str] = field(default_factory=list)

    @property
    def cited_text(self) -> str:
        return join_pieces(self.pieces)

    def as_json(self) -> JsonObject:
        return {**self.fields, "cited_text": self.cited_text}


@dataclass(slots=True, eq=False)
class AssembledBlock:
    """One block. `value` is its text decoded as JSON once it is complete, else UNSET.

    `complete` is False while the block is open, and stays so if the stream ends early. A `void` block was
    rolled back. A result has its `call`, if there is one, and is in the `results` of the call.
    """

    type: str
    agent: str
    id: str | None = None
    name: str | None = None
    complete: bool = False
    void: bool = False
    value: object = UNSET
    citations: list[AssembledCitation] = field(default_factory=list)
    images: list[dict[str, str]] = field(default_factory=list)
    call: "AssembledBlock | None" = None
    result_blocks: dict["AssembledBlock", None] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return join_pieces(self.pieces)

    @property
    def results(self) -> list["AssembledBlock"]:
        return list(self.result_blocks)

    @property
    def is_wait(self) -> bool:
        """Return whether the block has the list of calls that its agent waits for."""
        return self.type == "awaiting_frontend_tools" and isinstance(self.value, list)


@dataclass(slots=True, eq=False)
class AssembledAgent:
    """One agent. `blocks` has its blocks as they opened, `model_blocks` those that a rollback counts."""

    id: str
    meta_init: JsonObject | None = None
    meta_final: JsonObject | None = None
    blocks: dict[AssembledBlock, None] = field(default_factory=dict)
    model_blocks: list[AssembledBlock] = field(default_factory=list)
    open_blocks: dict[tuple[str, str | None], AssembledBlock] = field(default_factory=dict)
    complete_texts: list[AssembledBlock] = field(default_factory=list)
    calls_by_id: dict[str, list[AssembledBlock]] = field(default_factory=dict)
    # The citation that the next chunk may continue: its index, its text and itself.
    open_citation: tuple[int | None, AssembledBlock, AssembledCitation] | None = None

    @property
    def name(self) -> str:
        return get_text_field(self.meta_init, "agent_name")

    def pending_calls(self) -> list[JsonObject]:
        """Return the calls that the agent waited for last and that have no result since."""
        answered = set()
        for block in reversed(self.blocks):
            if block.type in RESULT_TYPES:
                answered.add(block.id)
            elif block.type == "awaiting_frontend_tools" and isinstance(block.value, list):
                calls = [call for call in block.value if call["tool_use_id"] not in answered]
                return [{**call, "agent": self.id} for call in calls]
        return []

    def finished_waits(self) -> set[AssembledBlock]:
        """Return the waits that are over: all but the last, and the last once its calls have results."""
        waits = [block for block in self.blocks if block.is_wait]
        if self.pending_calls():
            waits.pop()
        return set(waits)


def join_pieces(pieces: list[str]) -> str:
    """Return the pieces as one text, and replace them by it. Two pieces may share a surrogate pair."""
    pieces[:] = ["".join(pieces)]
    return replace_lone_surrogates(pieces[0])


def last_valid_block(blocks: list[AssembledBlock]) -> AssembledBlock | None:
    """Remove void blocks from the end. Return the last block that is left; None if none is."""
    while blocks and blocks[-1].void:
        blocks.pop()
    return blocks[-1] if blocks else None


class BlockFormat(NamedTuple):
    """The fields of a block's JSON form, and the key of its decoded value, if it has one."""

    fields: tuple[str, ...] = ()
    value_key: str = ""


BLOCK_FORMATS = {
    "text": BlockFormat(("text", "citations")),
    "thinking": BlockFormat(("text",)),
    "tool_call": BlockFormat(("id", "name", "results"), "args"),
    "server_tool_call": BlockFormat(("id", "name", "results"), "args"),
    "tool_result": BlockFormat(("id", "name", "text", "images")),
    "server_tool_result": BlockFormat(("id", "name", "text", "images")),
    "awaiting_frontend_tools": BlockFormat((), "calls"),
    "meta_files": BlockFormat((), "files"),
    "error": BlockFormat((), "error"),
}


def block_to_json(block: AssembledBlock) -> JsonObject:
    """Return a block as plain JSON. A value that is not portable JSON is the text `raw`."""
    block_format = BLOCK_FORMATS[block.type]
    body: JsonObject = {"type": block.type, "agent": block.agent}
    for name in block_format.fields:
        if name == "citations":
            body[name] = [citation.as_json() for citation in block.citations]
        elif name == "results":
            body[name] = [block_to_json(result) for result in block.results]
        else:
            body[name] = getattr(block, name)

    if block_format.value_key and block.value is UNSET:
        body["raw"] = block.text
    elif block_format.value_key:
        body[block_format.value_key] = block.value
    body["complete"] = block.complete
    return body


def get_text_field(fields: object, key: str) -> str:
    value = fields.get(key) if isinstance(fields, dict) else None
    return value if isinstance(value, str) else ""
