"""The blocks of a reply while they are made: pieces in, events out. Pure: ids come in.

Each class has `end` for a block that is complete, which gives `block.end`, the durable twin and what was
found in the block, in this order and for one append; and `abort` for one that is not, which gives an aborted
`block.end` with what there was, and no twin. `block.start` of a text or a thinking comes with its first
character. Pieces are kept in lists and joined once. Limits: the blocks of one reply keep 2 Mi characters of
pieces and 64 MiB of what came whole; what is beyond is refused, and its block is aborted.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec

from turnlog.errors import BadInput
from turnlog.events import (
    AssistantBlock,
    AssistantMessage,
    AssistantThinking,
    BlockDelta,
    BlockEnd,
    BlockStart,
    Citation,
    ParseReject,
    Payload,
    ToolCall,
)
from turnlog.parse.inline.parsed_text import Parsed
from turnlog.parse.json_values import WHOLE_BYTES, SurrogateJoiner, read, refused

LIMIT_CHARS = 2 << 20  # four times what a model says at most; 12 MiB when every character is escaped
LIMIT_WHOLE_BYTES = 64 << 20  # documents and images in the results of the provider's tools


class Found(Payload, frozen=True, kw_only=True):
    """A tag that was read without a vocabulary: an event under its bare name. It is declared nowhere."""

    type: str
    data: dict[str, Any]


class Draft:
    """What the blocks of one reply share."""

    def __init__(self, new_id: Callable[[Any], str]) -> None:
        self.new_id = new_id
        self.message_id: str | None = None
        self.block_ids: list[str] = []
        self.left = LIMIT_CHARS
        self.left_bytes = LIMIT_WHOLE_BYTES
        self.white: list[str] | None = None  # between two neighbouring texts; None: the next begins afresh

    def afford(self, chars: int, whole: object = None) -> bool:
        """Take what something costs from what is left, if there is as much."""
        size = 0 if whole is None else len(msgspec.json.encode(whole))
        if chars > self.left or size > self.left_bytes:
            return False
        self.left -= chars
        self.left_bytes -= size
        return True

    def block_id(self) -> str:
        """A new block that is shown."""
        block_id = self.new_id("blk_")
        self.block_ids.append(block_id)
        return block_id


class Excess:
    """What went beyond the limit: counted and hashed, not kept."""

    def __init__(self) -> None:
        self.length = 0
        self._hash = hashlib.sha256()

    def cut(self, piece: str, left: int) -> str:
        """The part of a piece that is within the limit."""
        over = piece[left:]
        self.length += len(over)
        self._hash.update(over.encode())
        return piece[:left]

    def reject(self, block_id: str | None) -> ParseReject:
        """The trace of it."""
        sha256 = self._hash.hexdigest()
        return ParseReject(reason="too_long", length=self.length, sha256=sha256, block_id=block_id)


class TextParser(Protocol):
    """What finds events in a text: tags, markers or both."""

    def feed(self, chunk: str) -> Parsed:
        """The next piece of text."""
        ...

    def flush(self) -> Parsed:
        """The text is over."""
        ...


class Block(Protocol):
    """What a reply needs of a block."""

    waits: bool  # whether its end waits for the end of the message

    def end(self) -> list[Payload]:
        """The block is complete."""
        ...

    def abort(self) -> list[Payload]:
        """The block will not be completed."""
        ...


class Streamed:
    """What blocks that come in pieces have in common: the pieces, and the limit."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.pieces: list[str] = []
        self._excess: Excess | None = None
        self._joiner = SurrogateJoiner()
        self.block_id: str | None = None

    def admit(self, piece: str) -> str:
        """Return the piece as far as it is decided text and within the limit."""
        return self._within(self._joiner.feed(piece))

    def rest(self) -> str:
        """Return what `admit` held back: no more pieces come."""
        return self._within(self._joiner.flush())

    def _within(self, piece: str) -> str:
        draft = self._draft
        left = draft.left - len(piece)
        if left < 0:
            self._excess = self._excess or Excess()
            piece, left = self._excess.cut(piece, draft.left), 0
        draft.left = left
        return piece

    def keep(self, piece: str) -> BlockDelta:
        """A piece that is shown."""
        self.pieces.append(piece)
        return BlockDelta(block_id=self.block_id or "", text=piece)

    def begin(self, kind: Any, **fields: Any) -> BlockStart:
        """The block is shown from now on."""
        self.block_id = self._draft.block_id()
        return BlockStart(block_id=self.block_id, kind=kind, **fields)

    @property
    def text(self) -> str:
        """What was kept."""
        return "".join(self.pieces)

    @property
    def cut(self) -> bool:
        """Whether something was beyond the limit."""
        return self._excess is not None

    def keep_json(self, value: object) -> None:
        """Show a value as the text of a block that is aborted, if the text fits into one event."""
        body = msgspec.json.encode(value)
        text = body.decode()
        if len(msgspec.json.encode(text)) <= WHOLE_BYTES:  # as it is written in an event: escaped once more
            self.pieces.append(text)
        else:
            self._excess = self._excess or Excess()
            self._excess.cut(text, 0)

    def finished(self) -> BlockEnd:
        """The end of a complete block."""
        return BlockEnd(block_id=self.block_id or "", status="complete")

    def broken(self) -> list[Payload]:
        """The end of a block that is not complete, and what was refused of it."""
        ends: list[Payload] = []
        if self.block_id is not None:
            ends.append(BlockEnd(block_id=self.block_id, status="aborted", text=self.text))
        if self._excess:
            ends.append(self._excess.reject(self.block_id))
        return ends


class TextBlock:
    """Prose without its tags; what the tags say comes with the end of the block."""

    waits = False

    def __init__(self, draft: Draft, tags: TextParser) -> None:
        self._draft = draft
        self._kept = Streamed(draft)
        self._tags = tags
        self._found: list[Payload] = []
        self._citations: list[Citation] = []

    @property
    def text(self) -> str:
        """What was shown."""
        return self._kept.text

    def feed(self, piece: str) -> list[Payload]:
        """The next piece of text."""
        kept = self._kept
        parsed = self._tags.feed(kept.admit(piece))
        text = parsed.display_text
        if kept.block_id is None or not text or parsed.events or parsed.rejects:
            return self._say(parsed)
        kept.pieces.append(text)
        return [BlockDelta(block_id=kept.block_id, text=text)]

    def cite(self, citation: Citation) -> None:
        """A source of this text."""
        self._citations.append(citation)

    def end(self) -> list[Payload]:
        said = self._flush()
        if self._kept.cut:
            return [*said, *self._broken()]
        block_id = self._kept.block_id
        if block_id is not None:
            message = AssistantMessage(
                text=self.text,
                citations=tuple(self._citations),
                block_id=block_id,
                message_id=self._draft.message_id,
            )
            said += [self._kept.finished(), message]
        elif self._citations:
            self._found.append(refused("citation_without_text", self._citations))
        return said + self._found

    def abort(self) -> list[Payload]:
        return [*self._flush(), *self._broken()]

    def _flush(self) -> list[Payload]:
        rest = self._kept.rest()
        said = self._say(self._tags.feed(rest)) if rest else []
        return said + self._say(self._tags.flush())

    def _broken(self) -> list[Payload]:
        """The application events found in it are void, refusals stay."""
        return self._kept.broken() + [found for found in self._found if isinstance(found, ParseReject)]

    def _say(self, parsed: Parsed) -> list[Payload]:
        if parsed.events or parsed.rejects:
            self._found += [
                event.payload or Found(type=event.type, data=event.data) for event in parsed.events
            ]
            self._found += parsed.rejects
        text, kept = parsed.display_text, self._kept
        if kept.block_id is not None:
            return [kept.keep(text)] if text else []
        return self._open(text)

    def _open(self, text: str) -> list[Payload]:
        """The block starts with its first visible character; white space before it only joins two texts."""
        white = self._draft.white
        if not text or text.isspace():
            if white is not None:
                white.append(text)
            return []
        text = text.lstrip() if white is None else "".join(white) + text
        self._draft.white = []
        return [self._kept.begin("text"), self._kept.keep(text)]


class ThinkingBlock:
    """The model's thinking, with its signature; never parsed."""

    waits = False

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._kept = Streamed(draft)
        self._signature: str | None = None
        self._redacted: str | None = None

    def feed(self, piece: str) -> list[Payload]:
        """The next piece of thinking."""
        return self._show(self._kept.admit(piece))

    def _show(self, piece: str) -> list[Payload]:
        return [*self._begun(), self._kept.keep(piece)] if piece else []

    def sign(self, signature: str) -> list[Payload]:
        """The signature; a later one replaces it."""
        said = self._show(self._kept.rest())
        self._signature = self._kept.admit(signature) + self._kept.rest()
        return said

    def redact(self, data: str) -> list[Payload]:
        """The encrypted form, instead of the text."""
        said = self._show(self._kept.rest())
        self._redacted = self._kept.admit(data) + self._kept.rest()
        return said + self._begun()

    def _begun(self) -> list[Payload]:
        return [self._kept.begin("thinking")] if self._kept.block_id is None else []

    def end(self) -> list[Payload]:
        said = self._show(self._kept.rest())
        if self._kept.cut:
            return said + self._kept.broken()
        if self._kept.block_id is None and not self._signature:
            return []
        said += self._begun()
        twin = AssistantThinking(
            text=self._kept.text,
            signature=self._signature,
            redacted=self._redacted,
            block_id=self._kept.block_id,
            message_id=self._draft.message_id,
        )
        return [*said, self._kept.finished(), twin]

    def abort(self) -> list[Payload]:
        return self._show(self._kept.rest()) + self._kept.broken()


class CallBlock:
    """A call of a tool: its arguments come in pieces and are read once, at the end."""

    def __init__(self, draft: Draft, call: ToolCall) -> None:
        self._kept = Streamed(draft)
        self._call = call  # with the arguments that count if no piece of them comes
        self.waits = call.executor != "provider"

    def start(self) -> list[Payload]:
        """The call is announced."""
        return [self._kept.begin("tool_call", call_id=self._call.call_id, tool=self._call.tool)]

    def feed(self, piece: str) -> list[Payload]:
        """The next piece of the arguments."""
        return self._show(self._kept.admit(piece))

    def _show(self, piece: str) -> list[Payload]:
        return [self._kept.keep(piece)] if piece else []

    def end(self) -> list[Payload]:
        said = self._show(self._kept.rest())
        if self._kept.cut:
            return said + self._kept.broken()
        raw, block_id = self._kept.text, self._kept.block_id
        read = arguments(raw) if raw.strip() else {}
        return [*said, self._kept.finished(), msgspec.structs.replace(self._call, block_id=block_id, **read)]

    def abort(self) -> list[Payload]:
        said = self._show(self._kept.rest())
        if not self._kept.text and self._call.args:
            self._kept.keep_json(self._call.args)
        return said + self._kept.broken()


def arguments(raw: str) -> dict[str, Any]:
    """The fields of a call that its arguments decide: what never became JSON is kept as it came."""
    try:
        args = read(raw.encode())
    except BadInput:
        args = None
    return {"args": args} if isinstance(args, dict) else {"args": {}, "incomplete": raw}


class OtherBlock:
    """A block of any other kind: kept as it came; pieces of its text fields are joined."""

    waits = False

    def __init__(self, draft: Draft, kind: str, data: dict[str, Any], made: Iterable[Payload] = ()) -> None:
        self._draft = draft
        self._kept = Streamed(draft)
        self._kind, self._fields, self._made = kind, data, made
        self._parts: dict[str, list[str]] = {}
        self._joiners: dict[str, SurrogateJoiner] = {}

    def start(self) -> list[Payload]:
        """The block is announced."""
        return [self._kept.begin("other")]

    def merge(self, fields: dict[str, Any]) -> list[Payload]:
        """More of its fields: text goes on with the text that is there, the rest replaces it."""
        for name, value in fields.items():
            self._kept.admit(name)
            if isinstance(value, str):
                text = self._joiners.setdefault(name, SurrogateJoiner()).feed(value)
                self._parts.setdefault(name, []).append(self._kept.admit(text))
            else:
                self._kept.admit(msgspec.json.encode(value).decode())
                self._fields[name] = value
        return []

    @property
    def _data(self) -> dict[str, Any]:
        for name, joiner in self._joiners.items():
            self._parts[name].append(joiner.flush())
        joined = {name: "".join([*self._texts(name), *parts]) for name, parts in self._parts.items()}
        return self._fields | joined

    def _texts(self, name: str) -> list[str]:
        value = self._fields.get(name)
        return [value] if isinstance(value, str) else []

    def end(self) -> list[Payload]:
        if self._kept.cut:
            return self.abort()
        twin = AssistantBlock(
            kind=self._kind,
            data=self._data,
            block_id=self._kept.block_id,
            message_id=self._draft.message_id,
        )
        return [self._kept.finished(), twin, *self._made]

    def abort(self) -> list[Payload]:
        self._kept.keep_json(self._data)
        return self._kept.broken()


class Whole:
    """Events that came complete, in their place among the blocks."""

    waits = False

    def __init__(self, payloads: list[Payload]) -> None:
        self._payloads = payloads

    def end(self) -> list[Payload]:
        return self._payloads

    abort = end
