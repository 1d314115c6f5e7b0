"""The reader of the dialect `blocks`: messages in, whole blocks out, in the order in which they opened.

`feed` takes the data of one SSE message with its id and gives the blocks that changed; `flush` says that no
more will come. While a block is open it is known by (agent, type, id); `final` closes it. Results hang on
their call, citations on the agent's last complete text, images on their result. A rollback takes back what
the model said last, and with a call its results. Nothing is raised: what cannot be used is counted in
`dropped`, unknown types and lines that are no JSON object are not even counted.

After a reconnect messages may come again: one whose id is not after the last one is left out. A new epoch or
a `reset` makes everything void (protocol section 7). Work and memory are linear in the input.
`web/client/assembler.js` is the same reader. JSON is read so that both languages hold the same value; where
they could not (numbers beyond 2**53 - 1, lone surrogates, more than 128 levels) it stays text.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple, TypeGuard

from msgspec import UNSET, Struct

from turnlog.errors import BadInput
from turnlog.wire import cursor
from turnlog.wire.chunks import Scalar, well_formed

DEPTH = 128  # the gate stops at 32, histories wrap what passed it; far below any stack
SAFE = 2**53 - 1  # beyond it a JavaScript number is not the one that was written

COMMON = frozenset({"type", "agent", "final", "delta", "index"})
CALLS = frozenset({"tool_call", "server_tool_call"})
RESULTS = frozenset({"tool_result", "server_tool_result"})
MODEL = CALLS | {"text", "thinking", "server_tool_result"}  # what a rollback counts
UNLISTED = frozenset({"meta_init", "meta_final", "rollback"})  # no blocks: they act when they are complete
TITLES = ("document_title", "title", "url")

_OBJECT = re.compile(r"[ \t\r\n]*\{")
_SURROGATE = re.compile("[\ud800-\udfff]")

Json = dict[str, object]
Place = tuple[str, int, float]  # epoch, seq, chunk


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

    def pending(self) -> list[Json]:
        """The calls that the agent last waited for and that have no result since."""
        answered = set()
        for block in reversed(self.order):
            if block.type in RESULTS:
                answered.add(block.id)
            elif block.type == "awaiting_frontend_tools" and isinstance(block.value, list):
                calls = [call for call in block.value if call["tool_use_id"] not in answered]
                return [{**call, "agent": self.id} for call in calls]
        return []


class Message(Struct, frozen=True):
    """A message whose common fields are as they should be; `extra` holds the other scalars."""

    type: str
    agent: str
    final: bool
    delta: str
    index: int | None
    extra: dict[str, Scalar]

    def text(self, key: str) -> str | None:
        """An extra field that is a text, and not empty."""
        value = self.extra.get(key)
        return value if isinstance(value, str) and value else None


class Assembler:
    """Rebuilds what the agents of one session said."""

    def __init__(self) -> None:
        self.dropped = 0
        self.agents: dict[str, Agent] = {}
        self._blocks: dict[Block, None] = {}
        self._last: Place | None = None

    @property
    def blocks(self) -> list[Block]:
        """The blocks of all agents as they opened; results with a call are found there."""
        return list(self._blocks)

    @property
    def pending(self) -> list[Json]:
        """The calls that the page must answer."""
        return [call for agent in self.agents.values() for call in agent.pending()]

    def feed(self, message: bytes | str, id: str = "") -> list[Block]:
        """Take one message; return the blocks that changed, void ones too. A result changes its call."""
        text = message if isinstance(message, str) else message.decode(errors="replace")
        fields = read_fields(text)
        if fields and fields.get("type") == "reset":  # has no id of its own: the reader's last one sticks
            return self._clear()
        gone = self._move(id)
        return [] if gone is None else gone + self._take(fields)

    def flush(self) -> list[Block]:
        """The stream is over: what is open stays incomplete. Returns these blocks."""
        left = []
        for agent in self.agents.values():
            left += [block.call or block for block in agent.open.values() if block.type not in UNLISTED]
            self.dropped += sum(block.type in UNLISTED for block in agent.open.values())
            agent.open.clear()
            agent.cited = None
        return left

    def as_json(self) -> Json:
        """Everything as plain JSON, the same in Python and JavaScript. Values are shared, not copied."""
        agents = [
            {"agent": agent.id, "meta_init": agent.meta_init, "meta_final": agent.meta_final}
            for agent in self.agents.values()
        ]
        blocks = [block_json(block) for block in self._blocks]
        return {"agents": agents, "blocks": blocks, "pending": self.pending, "dropped": self.dropped}

    def transcript(self) -> str:
        """Everything as text for people, one agent after the other."""
        return "\n".join(line for agent in self.agents.values() for line in agent_lines(agent))

    def _drop(self) -> list[Block]:
        self.dropped += 1
        return []

    def _clear(self) -> list[Block]:
        gone = self.blocks
        for block in gone:
            block.void = True
        self.agents, self._blocks, self._last = {}, {}, None
        return gone

    def _move(self, id: str) -> list[Block] | None:
        """Go on to the place of an id: None when it was seen before, else what a new epoch makes void."""
        place, last = place_of(id) if id else None, self._last
        if place is None:
            return []
        if last and place[0] == last[0] and place[1:] <= last[1:]:
            return None
        gone = self._clear() if last and place[0] != last[0] else []
        self._last = place
        return gone

    def _take(self, fields: Json | None) -> list[Block]:
        if fields is None:
            return self._drop()
        kind = KINDS.get(str(fields.get("type")))
        if kind is None:
            return []
        message = read_message(fields)
        if message is None:
            return self._drop()
        name = message.agent
        agent = self.agents.get(name) or self.agents.setdefault(name, Agent(name))
        return kind.take(self, agent, message)

    def _take_streamed(self, agent: Agent, message: Message) -> list[Block]:
        if message.final and not message.delta and (message.type, message.text("id")) not in agent.open:
            return []  # the end of a text that never began
        return self._take_block(agent, message)

    def _take_block(self, agent: Agent, message: Message) -> list[Block]:
        block, kind = self._opened(agent, message, message.type), KINDS[message.type]
        block.pieces.append(message.delta)
        if not message.final:
            return [] if block.type in UNLISTED else [block.call or block]
        del agent.open[block.type, block.id]
        block.complete = True
        if kind.read:
            block.value = kind.read(block.text)
        return kind.finish(self, agent, block) if kind.finish else [block.call or block]

    def _take_image(self, agent: Agent, message: Message) -> list[Block]:
        src = message.text("src")
        if src is None:
            return self._drop()
        block = self._opened(agent, message, "tool_result")
        block.images.append({"src": src, "media_type": message.text("media_type") or ""})
        return [block.call or block]

    def _take_citation(self, agent: Agent, message: Message) -> list[Block]:
        text = self._cited_text(agent, message)
        if message.index is not None and agent.cited and agent.cited[:2] == (message.index, text):
            citation = agent.cited[2]
        else:
            citation = Citation(message.extra)
            text.citations.append(citation)
        citation.pieces.append(message.delta)
        agent.cited = None if message.final else (message.index, text, citation)
        return [text]

    def _cited_text(self, agent: Agent, message: Message) -> Block:
        text = last_of(agent.texts) or agent.open.get(("text", message.text("id")))
        if text is None:
            text = Block("text", agent.id, message.text("id"), complete=True)
            agent.texts.append(text)
            self._place(agent, text)
        return text

    def _opened(self, agent: Agent, message: Message, type: str) -> Block:
        """The open block that a message belongs to; the first message opens it."""
        block = agent.open.get((type, message.text("id")))
        if block is None:
            block = Block(type, agent.id, message.text("id"), message.text("name"))
            agent.open[type, block.id] = block
            if type not in UNLISTED:
                self._place(agent, block)
        return block

    def _place(self, agent: Agent, block: Block) -> None:
        """Put a new block where it is found: with its call, or among the others."""
        agent.order[block] = None
        if block.type in MODEL:
            agent.spoken.append(block)
        if block.id and block.type in CALLS:
            agent.calls.setdefault(block.id, []).append(block)
        if block.id and block.type in RESULTS:
            block.call = last_of(agent.calls.get(block.id, []))
        (block.call.held if block.call else self._blocks)[block] = None

    def _finish_text(self, agent: Agent, block: Block) -> list[Block]:
        agent.texts.append(block)
        return [block]

    def _finish_meta(self, agent: Agent, block: Block) -> list[Block]:
        if not isinstance(block.value, dict):
            return self._drop()
        setattr(agent, block.type, block.value)
        return []

    def _finish_rollback(self, agent: Agent, block: Block) -> list[Block]:
        count = block.value.get("blocks") if isinstance(block.value, dict) else None
        if not is_count(count):
            return self._drop()
        changed: dict[Block, None] = {}
        for _ in range(min(count, len(agent.spoken))):
            void = agent.spoken.pop()
            self._void(agent, void)
            changed[void.call or void] = None
        return list(changed)

    def _void(self, agent: Agent, block: Block) -> None:
        block.void = True
        del agent.order[block], (block.call.held if block.call else self._blocks)[block]
        agent.open.pop((block.type, block.id), None)
        last_of(agent.texts)
        last_of(agent.calls.get(block.id or "", []))
        for result in block.results:
            self._void(agent, result)


def joined(pieces: list[str]) -> str:
    """Pieces as one text; they stay joined. The two halves of a character may have come in two pieces."""
    pieces[:] = ["".join(pieces)]
    return clean(pieces[0])


def last_of(blocks: list[Block]) -> Block | None:
    """The last block that is not void; void ones are let go."""
    while blocks and blocks[-1].void:
        blocks.pop()
    return blocks[-1] if blocks else None


def place_of(id: str) -> Place | None:
    """The place an id names; its plain form is the last frame of an event. Foreign ids name none."""
    try:
        place = cursor.parse(id)
    except BadInput:
        return None
    chunk = math.inf if place.chunk is None else place.chunk
    return (place.epoch, place.seq, chunk) if place.epoch and str(place) == id else None


def read_fields(text: str) -> Json | None:
    """The fields of a message: none for a line that is no object, None for an object that is broken."""
    if not _OBJECT.match(text):
        return {}
    fields = read_json(text)
    return fields if isinstance(fields, dict) else None


def read_message(fields: Json) -> Message | None:
    """A message; None when a common field is missing or of another type."""
    kind, agent, delta, final = map(fields.get, ("type", "agent", "delta", "final"))
    if not (isinstance(kind, str) and isinstance(agent, str) and isinstance(delta, str)):
        return None
    found = {key: scalar(value) for key, value in fields.items() if key not in COMMON}
    extra: dict[str, Scalar] = {clean(key): value for key, value in found.items() if value is not None}
    index = place if is_count(place := fields.get("index")) else None
    return Message(kind, clean(agent), final, delta, index, extra) if isinstance(final, bool) else None


def scalar(value: object) -> Scalar:
    """A value that may stand beside a delta; None for every other."""
    if isinstance(value, str):
        return clean(value)
    return value if isinstance(value, bool | int | float) and not math.isnan(value) else None


def clean(text: str) -> str:
    """Text without lone surrogates, which UTF-8 cannot say."""
    return str(well_formed(text)) if _SURROGATE.search(text) else text


def read_value(text: str) -> object:
    """What a JSON text says; UNSET when it is no JSON, or not the same in every language."""
    value = read_json(text)
    try:
        again = "" if value is UNSET else json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return UNSET
    return UNSET if _SURROGATE.search(again) else value


def read_json(text: str) -> object:
    try:
        value: object = DECODER.decode(text)
        deep = text.count("[") + text.count("{") > DEPTH and depth(value) > DEPTH
    except (ValueError, RecursionError):
        return UNSET
    return UNSET if deep else value


def depth(value: object) -> int:
    """How many arrays and objects stand around the innermost value."""
    items = list(value.values()) if isinstance(value, dict) else value
    return 1 + max(map(depth, items), default=0) if isinstance(items, list) else 0


def number(text: str) -> int | float:
    """A number as JavaScript has it: 1.0 is 1. One that it would change is not a number."""
    value = float(text)
    if abs(value) > SAFE:
        return math.nan
    return int(value) if value.is_integer() else value


# int refuses NaN and Infinity, which are not JSON
DECODER = json.JSONDecoder(parse_int=number, parse_float=number, parse_constant=int)


def is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def read_files(text: str) -> object:
    value = read_value(text)
    files = value.get("files") if isinstance(value, dict) else None
    return files if isinstance(files, list) else UNSET


def read_calls(text: str) -> object:
    value = read_value(text)
    calls = value if isinstance(value, list) else [None]
    named = all(isinstance(call, dict) and isinstance(call.get("tool_use_id"), str) for call in calls)
    return calls if named else UNSET


def block_json(block: Block) -> Json:
    """A block as plain JSON; what could not be read as JSON is `raw`."""
    kind = KINDS[block.type]
    parts = {part: PARTS.get(part, attrgetter(part))(block) for part in kind.parts}
    if kind.value:
        parts |= {"raw": block.text} if block.value is UNSET else {kind.value: block.value}
    return {"type": block.type, "agent": block.agent, **parts, "complete": block.complete}


def agent_lines(agent: Agent) -> list[str]:
    """One agent: who called it, what it was asked, what it said, how it ended."""
    meta = agent.meta_init
    model, parent, query = (said(meta, key) for key in ("model", "parent_agent_uuid", "user_query"))
    lines = [f"[{agent.id}]" + (f" {model}" if model else "") + (f" called by {parent}" if parent else "")]
    lines += [line_of("user", query)] if query else []
    lines += [line for block in agent.order if not block.call for line in block_lines(block)]
    reason = said(agent.meta_final, "stop_reason")
    return [*lines, line_of("end", reason)] if reason else lines


def block_lines(block: Block, indent: str = "") -> list[str]:
    """A block, and below it what hangs on it."""
    kind, deeper = KINDS[block.type], indent + "  "
    items = block.value if kind.named and isinstance(block.value, list) else []
    text = ", ".join(said(item, kind.named) or "?" for item in items) or block.text
    name = f" {block.name}" if block.name and not block.call else ""
    lines = [line_of(kind.label + name + ("" if block.complete else " (incomplete)"), text, indent)]
    lines += [line_of("cited", cited_line(citation), deeper) for citation in block.citations]
    lines += [line_of("image", image["src"], deeper) for image in block.images]
    return lines + [line for result in block.results for line in block_lines(result, deeper)]


def cited_line(citation: Citation) -> str:
    title = next((title for key in TITLES if (title := said(citation.fields, key))), "")
    return f"{citation.cited_text} ({title})" if title else citation.cited_text


def line_of(label: str, text: str, indent: str = "") -> str:
    """A labelled text; its further lines are indented below the label."""
    return f"{indent}{label}:{' ' if text else ''}{text}".replace("\n", f"\n{indent}  ")


def said(fields: object, key: str) -> str:
    """A text in JSON, if it is there."""
    value = fields.get(key) if isinstance(fields, dict) else None
    return value if isinstance(value, str) else ""


PARTS: dict[str, Callable[[Block], object]] = {
    "citations": lambda block: [{**item.fields, "cited_text": item.cited_text} for item in block.citations],
    "results": lambda block: [block_json(result) for result in block.results],
}


class Kind(NamedTuple):
    """Everything that depends on a type: how it is taken, read, written and shown."""

    label: str = ""
    parts: tuple[str, ...] = ()
    value: str = ""  # the name of its value in JSON
    named: str = ""  # in a value that is a list: where an item has its name
    read: Callable[[str], object] | None = None
    take: Callable[[Assembler, Agent, Message], list[Block]] = Assembler._take_block
    finish: Callable[[Assembler, Agent, Block], list[Block]] | None = None


KINDS: dict[str, Kind] = {
    "text": Kind("text", ("text", "citations"), take=Assembler._take_streamed, finish=Assembler._finish_text),
    "thinking": Kind("thinking", ("text",), take=Assembler._take_streamed),
    "citation": Kind(take=Assembler._take_citation),
    "tool_call": Kind("call", ("id", "name", "results"), "args", read=read_value),
    "server_tool_call": Kind("provider call", ("id", "name", "results"), "args", read=read_value),
    "tool_result": Kind("result", ("id", "name", "text", "images")),
    "tool_result_image": Kind(take=Assembler._take_image),
    "server_tool_result": Kind("provider result", ("id", "name", "text", "images")),
    "awaiting_frontend_tools": Kind("waiting for", (), "calls", "name", read_calls),
    "meta_files": Kind("files", (), "files", "filename", read_files),
    "error": Kind("error", (), "error", read=read_value),
    "meta_init": Kind(read=read_value, finish=Assembler._finish_meta),
    "meta_final": Kind(read=read_value, finish=Assembler._finish_meta),
    "rollback": Kind(read=read_value, finish=Assembler._finish_rollback),
}
