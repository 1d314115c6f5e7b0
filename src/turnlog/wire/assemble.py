"""The reader of the dialect `blocks`: messages in, whole blocks out, in the order in which they opened.

`feed` takes the data of one SSE message with its id and gives the blocks that changed; `flush` says that no
more will come. While a block is open it is known by (agent, type, id); `final` closes it. Results hang on
their call, citations on the agent's last complete text, images on their result. A rollback takes back what
the model said last, and with a call its results. Nothing is raised: what cannot be used is counted in
`dropped`, unknown types and lines that are no JSON object are not even counted.

After a reconnect messages may come again: one whose id is not after the last one is left out. A new epoch or
a `reset` makes everything void (protocol section 7). Work and memory are linear in the input.
`web/client/blocks/assembler.js` is the same reader, and `reading` makes sure that both hold the same values.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from turnlog.errors import BadInput
from turnlog.wire import cursor
from turnlog.wire.assembled import RESULTS, Agent, Block, Citation, block_json, last_of, transcript
from turnlog.wire.reading import (
    Json,
    Message,
    is_count,
    read_calls,
    read_fields,
    read_files,
    read_message,
    read_value,
)

CALLS = frozenset({"tool_call", "server_tool_call"})
MODEL = CALLS | {"text", "thinking", "server_tool_result"}  # what a rollback counts
UNLISTED = frozenset({"meta_init", "meta_final", "rollback"})  # no blocks: they act when they are complete

Place = tuple[str, int, float]  # epoch, seq, chunk


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
        return "\n".join(map(str, transcript(self.agents)))

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


def place_of(id: str) -> Place | None:
    """The place an id names; its plain form is the last frame of an event. Foreign ids name none."""
    try:
        place = cursor.parse(id)
    except BadInput:
        return None
    chunk = math.inf if place.chunk is None else place.chunk
    return (place.epoch, place.seq, chunk) if place.epoch and str(place) == id else None


class Kind(NamedTuple):
    """How a type is taken, read and finished."""

    read: Callable[[str], object] | None = None
    take: Callable[[Assembler, Agent, Message], list[Block]] = Assembler._take_block
    finish: Callable[[Assembler, Agent, Block], list[Block]] | None = None


KINDS: dict[str, Kind] = {
    "text": Kind(take=Assembler._take_streamed, finish=Assembler._finish_text),
    "thinking": Kind(take=Assembler._take_streamed),
    "citation": Kind(take=Assembler._take_citation),
    "tool_call": Kind(read_value),
    "server_tool_call": Kind(read_value),
    "tool_result": Kind(),
    "tool_result_image": Kind(take=Assembler._take_image),
    "server_tool_result": Kind(),
    "awaiting_frontend_tools": Kind(read_calls),
    "meta_files": Kind(read_files),
    "error": Kind(read_value),
    "meta_init": Kind(read_value, finish=Assembler._finish_meta),
    "meta_final": Kind(read_value, finish=Assembler._finish_meta),
    "rollback": Kind(read_value, finish=Assembler._finish_rollback),
}
