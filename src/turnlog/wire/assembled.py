"""What an `Assembler` has put together: agents, their blocks, the sources of a text; as JSON and as text.

A block knows its state (`complete`, `void`) and what hangs on it. JSON and transcript are the same in Python
and JavaScript (`web/client/blocks/model.js`). A transcript is made of lines that say what they are, so that a
terminal can colour them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from msgspec import UNSET

from turnlog.wire.chunks import Scalar
from turnlog.wire.reading import Json, clean

RESULTS = frozenset({"tool_result", "server_tool_result"})
TITLES = ("document_title", "title", "url")


@dataclass(slots=True, eq=False)
class Citation:
    """A source of a text; `fields` are its kind and place under the names of the wire."""

    fields: dict[str, Scalar]
    pieces: list[str] = field(default_factory=list)

    @property
    def cited_text(self) -> str:
        return joined(self.pieces)


@dataclass(slots=True, eq=False)
class Block:
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
    citations: list[Citation] = field(default_factory=list)
    images: list[dict[str, str]] = field(default_factory=list)
    call: "Block | None" = None
    held: dict["Block", None] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return joined(self.pieces)

    @property
    def results(self) -> list["Block"]:
        return list(self.held)


@dataclass(slots=True, eq=False)
class Agent:
    """What is known of one agent. `order` holds its blocks as they opened, `spoken` those of the model."""

    id: str
    meta_init: Json | None = None
    meta_final: Json | None = None
    order: dict[Block, None] = field(default_factory=dict)
    spoken: list[Block] = field(default_factory=list)
    open: dict[tuple[str, str | None], Block] = field(default_factory=dict)
    texts: list[Block] = field(default_factory=list)  # the complete ones
    calls: dict[str, list[Block]] = field(default_factory=dict)
    cited: tuple[int | None, Block, Citation] | None = None  # the citation that a chunk may continue

    @property
    def name(self) -> str:
        """What the agent is called; nothing if nobody said."""
        return said(self.meta_init, "agent_name")

    def pending(self) -> list[Json]:
        """The calls that the agent last waited for and that have no result since."""
        answered = set()
        for block in reversed(self.order):
            if block.type in RESULTS:
                answered.add(block.id)
            elif waited(block) and isinstance(block.value, list):
                calls = [call for call in block.value if call["tool_use_id"] not in answered]
                return [{**call, "agent": self.id} for call in calls]
        return []

    def over(self) -> set[Block]:
        """The waits that have ended: all but the last, and that too when every call is answered."""
        waits = [block for block in self.order if waited(block)]
        return set(waits[:-1] if self.pending() else waits)


def waited(block: Block) -> bool:
    """Whether a block says what an agent waits for, in a way that can be read."""
    return block.type == "awaiting_frontend_tools" and isinstance(block.value, list)


def joined(pieces: list[str]) -> str:
    """Pieces as one text; they stay joined. The two halves of a character may have come in two pieces."""
    pieces[:] = ["".join(pieces)]
    return clean(pieces[0])


def last_of(blocks: list[Block]) -> Block | None:
    """The last block that is not void; void ones are let go."""
    while blocks and blocks[-1].void:
        blocks.pop()
    return blocks[-1] if blocks else None


class Shape(NamedTuple):
    """How a type is written and shown."""

    label: str
    parts: tuple[str, ...] = ()
    value: str = ""  # the name of its value in JSON
    named: str = ""  # in a value that is a list: where an item has its name


SHAPES = {
    "text": Shape("text", ("text", "citations")),
    "thinking": Shape("thinking", ("text",)),
    "tool_call": Shape("call", ("id", "name", "results"), "args"),
    "server_tool_call": Shape("provider call", ("id", "name", "results"), "args"),
    "tool_result": Shape("result", ("id", "name", "text", "images")),
    "server_tool_result": Shape("provider result", ("id", "name", "text", "images")),
    "awaiting_frontend_tools": Shape("waiting for", (), "calls", "name"),
    "meta_files": Shape("files", (), "files", "filename"),
    "error": Shape("error", (), "error"),
}


def block_json(block: Block) -> Json:
    """A block as plain JSON; what could not be read as JSON is `raw`."""
    shape = SHAPES[block.type]
    parts = {part: PARTS.get(part, attrgetter(part))(block) for part in shape.parts}
    if shape.value:
        parts |= {"raw": block.text} if block.value is UNSET else {shape.value: block.value}
    return {"type": block.type, "agent": block.agent, **parts, "complete": block.complete}


PARTS: dict[str, Callable[[Block], object]] = {
    "citations": lambda block: [{**item.fields, "cited_text": item.cited_text} for item in block.citations],
    "results": lambda block: [block_json(result) for result in block.results],
}


class Line(NamedTuple):
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


def transcript(agents: Mapping[str, Agent]) -> list[Line]:
    """Everything for people, one agent after the other."""
    return [line for agent in agents.values() for line in agent_lines(agent, agents)]


def agent_lines(agent: Agent, agents: Mapping[str, Agent]) -> list[Line]:
    """One agent: who it is and who called it, what it was asked, what it said, how it ended."""
    keys = ("model", "parent_agent_uuid", "user_query")
    model, parent_id, query = (said(agent.meta_init, key) for key in keys)
    parent = agents.get(parent_id)
    caller = f"called by {(parent and parent.name) or parent_id}" if parent_id else ""
    about = " ".join(part for part in (f"[{agent.id}]", model, caller) if part)
    lines = [Line("agent", agent.name, about) if agent.name else Line("agent", about, "")]
    lines += [Line("user", "user", query)] if query else []
    over = agent.over()
    for block in agent.order:
        if not block.call:
            lines += block_lines(block, label="waited for" if block in over else "")
    reason = said(agent.meta_final, "stop_reason")
    return [*lines, Line("end", "end", reason)] if reason else lines


def block_lines(block: Block, indent: str = "", label: str = "") -> list[Line]:
    """A block, and below it what hangs on it."""
    shape, deeper = SHAPES[block.type], indent + "  "
    items = block.value if shape.named and isinstance(block.value, list) else []
    text = ", ".join(said(item, shape.named) or "?" for item in items) or block.text
    name = f" {block.name}" if block.name and not block.call else ""
    label = (label or shape.label) + name + ("" if block.complete else " (incomplete)")
    lines = [Line(block.type, label, text, indent)]
    lines += [Line("cited", "cited", cited_line(citation), deeper) for citation in block.citations]
    lines += [Line("image", "image", image["src"], deeper) for image in block.images]
    return lines + [line for result in block.results for line in block_lines(result, deeper)]


def cited_line(citation: Citation) -> str:
    title = next((title for key in TITLES if (title := said(citation.fields, key))), "")
    return f"{citation.cited_text} ({title})" if title else citation.cited_text


def said(fields: object, key: str) -> str:
    """A text in JSON, if it is there."""
    value = fields.get(key) if isinstance(fields, dict) else None
    return value if isinstance(value, str) else ""
