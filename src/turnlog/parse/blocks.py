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
from turnlog.parse.inline.parsed_text import ParsedText
from turnlog.parse.json_values import MAX_VALUE_BYTES, SurrogateJoiner, decode_json, make_reject

MAX_REPLY_CHARS = 2 << 20  # four times what a model says at most; 12 MiB when every character is escaped
MAX_REPLY_VALUE_BYTES = 64 << 20  # documents and images in the results of the provider's tools


class UntypedEvent(Payload, frozen=True, kw_only=True):
    """A tag that was read without a vocabulary: an event under its bare name. It is declared nowhere."""

    type: str
    data: dict[str, Any]


class ReplyContext:
    """What the blocks of one reply share."""

    def __init__(self, new_id: Callable[[Any], str]) -> None:
        self.new_id = new_id
        self.message_id: str | None = None
        self.block_ids: list[str] = []
        self.chars_left = MAX_REPLY_CHARS
        self.bytes_left = MAX_REPLY_VALUE_BYTES
        self.joining_space: list[str] | None = (
            None  # between two neighbouring texts; None: the next begins afresh
        )

    def reserve(self, chars: int, value: object = None) -> bool:
        """Take what something costs from what is left, if there is as much."""
        size = 0 if value is None else len(msgspec.json.encode(value))
        if chars > self.chars_left or size > self.bytes_left:
            return False
        self.chars_left -= chars
        self.bytes_left -= size
        return True

    def new_block_id(self) -> str:
        """A new block that is shown."""
        block_id = self.new_id("blk_")
        self.block_ids.append(block_id)
        return block_id


class Overflow:
    """What went beyond the limit: counted and hashed, not kept."""

    def __init__(self) -> None:
        self.length = 0
        self._hash = hashlib.sha256()

    def truncate(self, piece: str, chars_left: int) -> str:
        """The part of a piece that is within the limit."""
        over = piece[chars_left:]
        self.length += len(over)
        self._hash.update(over.encode())
        return piece[:chars_left]

    def to_reject(self, block_id: str | None) -> ParseReject:
        """The trace of it."""
        sha256 = self._hash.hexdigest()
        return ParseReject(reason="too_long", length=self.length, sha256=sha256, block_id=block_id)


class TextParser(Protocol):
    """What finds events in a text: tags, markers or both."""

    def feed(self, chunk: str) -> ParsedText:
        """The next piece of text."""
        ...

    def flush(self) -> ParsedText:
        """The text is over."""
        ...


class Block(Protocol):
    """What a reply needs of a block."""

    is_deferred: bool  # whether its end waits for the end of the message

    def end(self) -> list[Payload]:
        """The block is complete."""
        ...

    def abort(self) -> list[Payload]:
        """The block will not be completed."""
        ...


class BlockBuffer:
    """What blocks that come in pieces have in common: the pieces, and the limit."""

    def __init__(self, context: ReplyContext) -> None:
        self._context = context
        self.pieces: list[str] = []
        self._overflow: Overflow | None = None
        self._joiner = SurrogateJoiner()
        self.block_id: str | None = None

    def accept(self, piece: str) -> str:
        """Return the piece as far as it is decided text and within the limit."""
        return self._truncate_to_limit(self._joiner.feed(piece))

    def flush(self) -> str:
        """Return what `admit` held back: no more pieces come."""
        return self._truncate_to_limit(self._joiner.flush())

    def _truncate_to_limit(self, piece: str) -> str:
        draft = self._context
        left = draft.chars_left - len(piece)
        if left < 0:
            self._overflow = self._overflow or Overflow()
            piece, left = self._overflow.truncate(piece, draft.chars_left), 0
        draft.chars_left = left
        return piece

    def append(self, piece: str) -> BlockDelta:
        """A piece that is shown."""
        self.pieces.append(piece)
        return BlockDelta(block_id=self.block_id or "", text=piece)

    def begin(self, kind: Any, **fields: Any) -> BlockStart:
        """The block is shown from now on."""
        self.block_id = self._context.new_block_id()
        return BlockStart(block_id=self.block_id, kind=kind, **fields)

    @property
    def text(self) -> str:
        """What was kept."""
        return "".join(self.pieces)

    @property
    def has_overflow(self) -> bool:
        """Whether something was beyond the limit."""
        return self._overflow is not None

    def append_json(self, value: object) -> None:
        """Show a value as the text of a block that is aborted, if the text fits into one event."""
        body = msgspec.json.encode(value)
        text = body.decode()
        if (
            len(msgspec.json.encode(text)) <= MAX_VALUE_BYTES
        ):  # as it is written in an event: escaped once more
            self.pieces.append(text)
        else:
            self._overflow = self._overflow or Overflow()
            self._overflow.truncate(text, 0)

    def end_event(self) -> BlockEnd:
        """The end of a complete block."""
        return BlockEnd(block_id=self.block_id or "", status="complete")

    def abort_events(self) -> list[Payload]:
        """The end of a block that is not complete, and what was refused of it."""
        ends: list[Payload] = []
        if self.block_id is not None:
            ends.append(BlockEnd(block_id=self.block_id, status="aborted", text=self.text))
        if self._overflow:
            ends.append(self._overflow.to_reject(self.block_id))
        return ends


class TextBlock:
    """Prose without its tags; what the tags say comes with the end of the block."""

    is_deferred = False

    def __init__(self, context: ReplyContext, parser: TextParser) -> None:
        self._context = context
        self._buffer = BlockBuffer(context)
        self._parser = parser
        self._inline_events: list[Payload] = []
        self._citations: list[Citation] = []

    @property
    def text(self) -> str:
        """What was shown."""
        return self._buffer.text

    def feed(self, piece: str) -> list[Payload]:
        """The next piece of text."""
        kept = self._buffer
        parsed = self._parser.feed(kept.accept(piece))
        text = parsed.display_text
        if kept.block_id is None or not text or parsed.events or parsed.rejects:
            return self._emit(parsed)
        kept.pieces.append(text)
        return [BlockDelta(block_id=kept.block_id, text=text)]

    def cite(self, citation: Citation) -> None:
        """A source of this text."""
        self._citations.append(citation)

    def end(self) -> list[Payload]:
        said = self._flush()
        if self._buffer.has_overflow:
            return [*said, *self._abort_events()]
        block_id = self._buffer.block_id
        if block_id is not None:
            message = AssistantMessage(
                text=self.text,
                citations=tuple(self._citations),
                block_id=block_id,
                message_id=self._context.message_id,
            )
            said += [self._buffer.end_event(), message]
        elif self._citations:
            self._inline_events.append(make_reject("citation_without_text", self._citations))
        return said + self._inline_events

    def abort(self) -> list[Payload]:
        return [*self._flush(), *self._abort_events()]

    def _flush(self) -> list[Payload]:
        rest = self._buffer.flush()
        said = self._emit(self._parser.feed(rest)) if rest else []
        return said + self._emit(self._parser.flush())

    def _abort_events(self) -> list[Payload]:
        """The application events found in it are void, refusals stay."""
        return self._buffer.abort_events() + [
            found for found in self._inline_events if isinstance(found, ParseReject)
        ]

    def _emit(self, parsed: ParsedText) -> list[Payload]:
        if parsed.events or parsed.rejects:
            self._inline_events += [
                event.payload or UntypedEvent(type=event.type, data=event.data) for event in parsed.events
            ]
            self._inline_events += parsed.rejects
        text, kept = parsed.display_text, self._buffer
        if kept.block_id is not None:
            return [kept.append(text)] if text else []
        return self._start_if_visible(text)

    def _start_if_visible(self, text: str) -> list[Payload]:
        """The block starts with its first visible character; white space before it only joins two texts."""
        white = self._context.joining_space
        if not text or text.isspace():
            if white is not None:
                white.append(text)
            return []
        text = text.lstrip() if white is None else "".join(white) + text
        self._context.joining_space = []
        return [self._buffer.begin("text"), self._buffer.append(text)]


class ThinkingBlock:
    """The model's thinking, with its signature; never parsed."""

    is_deferred = False

    def __init__(self, context: ReplyContext) -> None:
        self._context = context
        self._buffer = BlockBuffer(context)
        self._signature: str | None = None
        self._redacted: str | None = None

    def feed(self, piece: str) -> list[Payload]:
        """The next piece of thinking."""
        return self._append(self._buffer.accept(piece))

    def _append(self, piece: str) -> list[Payload]:
        return [*self._start_once(), self._buffer.append(piece)] if piece else []

    def sign(self, signature: str) -> list[Payload]:
        """The signature; a later one replaces it."""
        said = self._append(self._buffer.flush())
        self._signature = self._buffer.accept(signature) + self._buffer.flush()
        return said

    def redact(self, data: str) -> list[Payload]:
        """The encrypted form, instead of the text."""
        said = self._append(self._buffer.flush())
        self._redacted = self._buffer.accept(data) + self._buffer.flush()
        return said + self._start_once()

    def _start_once(self) -> list[Payload]:
        return [self._buffer.begin("thinking")] if self._buffer.block_id is None else []

    def end(self) -> list[Payload]:
        said = self._append(self._buffer.flush())
        if self._buffer.has_overflow:
            return said + self._buffer.abort_events()
        if self._buffer.block_id is None and not self._signature:
            return []
        said += self._start_once()
        twin = AssistantThinking(
            text=self._buffer.text,
            signature=self._signature,
            redacted=self._redacted,
            block_id=self._buffer.block_id,
            message_id=self._context.message_id,
        )
        return [*said, self._buffer.end_event(), twin]

    def abort(self) -> list[Payload]:
        return self._append(self._buffer.flush()) + self._buffer.abort_events()


class CallBlock:
    """A call of a tool: its arguments come in pieces and are read once, at the end."""

    def __init__(self, context: ReplyContext, call: ToolCall) -> None:
        self._buffer = BlockBuffer(context)
        self._call = call  # with the arguments that count if no piece of them comes
        self.is_deferred = call.executor != "provider"

    def start(self) -> list[Payload]:
        """The call is announced."""
        return [self._buffer.begin("tool_call", call_id=self._call.call_id, tool=self._call.tool)]

    def feed(self, piece: str) -> list[Payload]:
        """The next piece of the arguments."""
        return self._append(self._buffer.accept(piece))

    def _append(self, piece: str) -> list[Payload]:
        return [self._buffer.append(piece)] if piece else []

    def end(self) -> list[Payload]:
        said = self._append(self._buffer.flush())
        if self._buffer.has_overflow:
            return said + self._buffer.abort_events()
        raw, block_id = self._buffer.text, self._buffer.block_id
        read = parse_arguments(raw) if raw.strip() else {}
        return [
            *said,
            self._buffer.end_event(),
            msgspec.structs.replace(self._call, block_id=block_id, **read),
        ]

    def abort(self) -> list[Payload]:
        said = self._append(self._buffer.flush())
        if not self._buffer.text and self._call.args:
            self._buffer.append_json(self._call.args)
        return said + self._buffer.abort_events()


def parse_arguments(raw: str) -> dict[str, Any]:
    """The fields of a call that its arguments decide: what never became JSON is kept as it came."""
    try:
        args = decode_json(raw.encode())
    except BadInput:
        args = None
    return {"args": args} if isinstance(args, dict) else {"args": {}, "incomplete": raw}


class OtherBlock:
    """A block of any other kind: kept as it came; pieces of its text fields are joined."""

    is_deferred = False

    def __init__(
        self, context: ReplyContext, kind: str, data: dict[str, Any], file_events: Iterable[Payload] = ()
    ) -> None:
        self._context = context
        self._buffer = BlockBuffer(context)
        self._kind, self._fields, self._file_events = kind, data, file_events
        self._parts: dict[str, list[str]] = {}
        self._joiners: dict[str, SurrogateJoiner] = {}

    def start(self) -> list[Payload]:
        """The block is announced."""
        return [self._buffer.begin("other")]

    def merge(self, fields: dict[str, Any]) -> list[Payload]:
        """More of its fields: text goes on with the text that is there, the rest replaces it."""
        for name, value in fields.items():
            self._buffer.accept(name)
            if isinstance(value, str):
                text = self._joiners.setdefault(name, SurrogateJoiner()).feed(value)
                self._parts.setdefault(name, []).append(self._buffer.accept(text))
            else:
                self._buffer.accept(msgspec.json.encode(value).decode())
                self._fields[name] = value
        return []

    @property
    def _joined_fields(self) -> dict[str, Any]:
        for name, joiner in self._joiners.items():
            self._parts[name].append(joiner.flush())
        joined = {name: "".join([*self._initial_text(name), *parts]) for name, parts in self._parts.items()}
        return self._fields | joined

    def _initial_text(self, name: str) -> list[str]:
        value = self._fields.get(name)
        return [value] if isinstance(value, str) else []

    def end(self) -> list[Payload]:
        if self._buffer.has_overflow:
            return self.abort()
        twin = AssistantBlock(
            kind=self._kind,
            data=self._joined_fields,
            block_id=self._buffer.block_id,
            message_id=self._context.message_id,
        )
        return [self._buffer.end_event(), twin, *self._file_events]

    def abort(self) -> list[Payload]:
        self._buffer.append_json(self._joined_fields)
        return self._buffer.abort_events()


class CompleteEvents:
    """Events that came complete, in their place among the blocks."""

    is_deferred = False

    def __init__(self, payloads: list[Payload]) -> None:
        self._payloads = payloads

    def end(self) -> list[Payload]:
        return self._payloads

    abort = end
