"""What an `Assembler` has put together: agents, their blocks, the sources of a text; as JSON and as text.

A block knows its state (`complete`, `void`) and what hangs on it. JSON and transcript are the same in Python
and JavaScript (`web/client/assembled.js`). A transcript is made of lines that say what they are, so that a
terminal can colour them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from msgspec import UNSET

from turnlog.client.portable_json import JsonObject
from turnlog.events.surrogates import replace_lone_surrogates
from turnlog.wire.chunks import Scalar

RESULT_TYPES = frozenset({"tool_result", "server_tool_result"})
TITLE_KEYS = ("document_title", "title", "url")


@dataclass(slots=True, eq=False)
class AssembledCitation:
    """A source of a text; `fields` are its kind and place under the names of the wire."""

    fields: dict[str, Scalar]
    pieces: list[str] = field(default_factory=list)

    @property
    def cited_text(self) -> str:
        return join_pieces(self.pieces)


@dataclass(slots=True, eq=False)
class AssembledBlock:
    """One block. `value` is what its text says as JSON once it is complete, else UNSET.

    `complete` is false while it is open and stays so when the stream ends early. A `void` block was taken
    back. A result knows its `call`, if there was one, and is listed in the call's `results`.
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


@dataclass(slots=True, eq=False)
class AssembledAgent:
    """What is known of one agent. `order` holds its blocks as they opened, `spoken` those of the model."""

    id: str
    meta_init: JsonObject | None = None
    meta_final: JsonObject | None = None
    blocks: dict[AssembledBlock, None] = field(default_factory=dict)
    model_blocks: list[AssembledBlock] = field(default_factory=list)
    open_blocks: dict[tuple[str, str | None], AssembledBlock] = field(default_factory=dict)
    complete_texts: list[AssembledBlock] = field(default_factory=list)  # the complete ones
    calls_by_id: dict[str, list[AssembledBlock]] = field(default_factory=dict)
    open_citation: tuple[int | None, AssembledBlock, AssembledCitation] | None = (
        None  # the citation that a chunk may continue
    )

    @property
    def name(self) -> str:
        """What the agent is called; nothing if nobody said."""
        return get_text_field(self.meta_init, "agent_name")

    def pending_calls(self) -> list[JsonObject]:
        """The calls that the agent last waited for and that have no result since."""
        answered = set()
        for block in reversed(self.blocks):
            if block.type in RESULT_TYPES:
                answered.add(block.id)
            elif is_wait(block) and isinstance(block.value, list):
                calls = [call for call in block.value if call["tool_use_id"] not in answered]
                return [{**call, "agent": self.id} for call in calls]
        return []

    def finished_waits(self) -> set[AssembledBlock]:
        """The waits that have ended: all but the last, and that too when every call is answered."""
        waits = [block for block in self.blocks if is_wait(block)]
        return set(waits[:-1] if self.pending_calls() else waits)


def is_wait(block: AssembledBlock) -> bool:
    """Whether a block says what an agent waits for, in a way that can be read."""
    return block.type == "awaiting_frontend_tools" and isinstance(block.value, list)


def join_pieces(pieces: list[str]) -> str:
    """Pieces as one text; they stay joined. The two halves of a character may have come in two pieces."""
    pieces[:] = ["".join(pieces)]
    return replace_lone_surrogates(pieces[0])


def last_valid_block(blocks: list[AssembledBlock]) -> AssembledBlock | None:
    """The last block that is not void; void ones are let go."""
    while blocks and blocks[-1].void:
        blocks.pop()
    return blocks[-1] if blocks else None


class BlockFormat(NamedTuple):
    """How a type is written and shown."""

    label: str
    parts: tuple[str, ...] = ()
    value_key: str = ""  # the name of its value in JSON
    name_key: str = ""  # in a value that is a list: where an item has its name


BLOCK_FORMATS = {
    "text": BlockFormat("text", ("text", "citations")),
    "thinking": BlockFormat("thinking", ("text",)),
    "tool_call": BlockFormat("call", ("id", "name", "results"), "args"),
    "server_tool_call": BlockFormat("provider call", ("id", "name", "results"), "args"),
    "tool_result": BlockFormat("result", ("id", "name", "text", "images")),
    "server_tool_result": BlockFormat("provider result", ("id", "name", "text", "images")),
    "awaiting_frontend_tools": BlockFormat("waiting for", (), "calls", "name"),
    "meta_files": BlockFormat("files", (), "files", "filename"),
    "error": BlockFormat("error", (), "error"),
}


def block_to_json(block: AssembledBlock) -> JsonObject:
    """A block as plain JSON; what could not be read as JSON is `raw`."""
    shape = BLOCK_FORMATS[block.type]
    parts = {part: PART_ENCODERS.get(part, attrgetter(part))(block) for part in shape.parts}
    if shape.value_key:
        parts |= {"raw": block.text} if block.value is UNSET else {shape.value_key: block.value}
    return {"type": block.type, "agent": block.agent, **parts, "complete": block.complete}


PART_ENCODERS: dict[str, Callable[[AssembledBlock], object]] = {
    "citations": lambda block: [{**item.fields, "cited_text": item.cited_text} for item in block.citations],
    "results": lambda block: [block_to_json(result) for result in block.results],
}


class TranscriptLine(NamedTuple):
    """A part of a transcript. `kind` is a block's type, or one of agent, user, cited, image, end."""

    kind: str
    label: str
    text: str
    indent: str = ""

    def __str__(self) -> str:
        return "".join(self.parts())

    def parts(self) -> tuple[str, str]:
        """The label, and the text behind it; further lines are indented below the label."""
        label = self.indent + self.label + ("" if self.kind == "agent" else ":")
        text = f" {self.text}" if self.text else ""
        margin = f"\n{self.indent}  "
        return label.replace("\n", margin), text.replace("\n", margin)


def build_transcript(agents: Mapping[str, AssembledAgent]) -> list[TranscriptLine]:
    """Everything for people, one agent after the other."""
    return [line for agent in agents.values() for line in format_agent_lines(agent, agents)]


def format_agent_lines(agent: AssembledAgent, agents: Mapping[str, AssembledAgent]) -> list[TranscriptLine]:
    """One agent: who it is and who called it, what it was asked, what it said, how it ended."""
    keys = ("model", "parent_agent_uuid", "user_query")
    model, parent_id, query = (get_text_field(agent.meta_init, key) for key in keys)
    parent = agents.get(parent_id)
    caller = f"called by {(parent and parent.name) or parent_id}" if parent_id else ""
    about = " ".join(part for part in (f"[{agent.id}]", model, caller) if part)
    lines = [TranscriptLine("agent", agent.name, about) if agent.name else TranscriptLine("agent", about, "")]
    lines += [TranscriptLine("user", "user", query)] if query else []
    over = agent.finished_waits()
    for block in agent.blocks:
        if not block.call:
            lines += format_block_lines(block, label="waited for" if block in over else "")
    reason = get_text_field(agent.meta_final, "stop_reason")
    return [*lines, TranscriptLine("end", "end", reason)] if reason else lines


def format_block_lines(block: AssembledBlock, indent: str = "", label: str = "") -> list[TranscriptLine]:
    """A block, and below it what hangs on it."""
    shape, deeper = BLOCK_FORMATS[block.type], indent + "  "
    items = block.value if shape.name_key and isinstance(block.value, list) else []
    text = ", ".join(get_text_field(item, shape.name_key) or "?" for item in items) or block.text
    name = f" {block.name}" if block.name and not block.call else ""
    label = (label or shape.label) + name + ("" if block.complete else " (incomplete)")
    lines = [TranscriptLine(block.type, label, text, indent)]
    lines += [
        TranscriptLine("cited", "cited", format_citation_line(citation), deeper)
        for citation in block.citations
    ]
    lines += [TranscriptLine("image", "image", image["src"], deeper) for image in block.images]
    return lines + [line for result in block.results for line in format_block_lines(result, deeper)]


def format_citation_line(citation: AssembledCitation) -> str:
    title = next((title for key in TITLE_KEYS if (title := get_text_field(citation.fields, key))), "")
    return f"{citation.cited_text} ({title})" if title else citation.cited_text


def get_text_field(fields: object, key: str) -> str:
    """A text in JSON, if it is there."""
    value = fields.get(key) if isinstance(fields, dict) else None
    return value if isinstance(value, str) else ""
