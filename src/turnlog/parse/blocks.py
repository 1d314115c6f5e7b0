"""The blocks of a reply while it streams: pieces in, events out. Pure: ids come in.

`end` of a complete block returns `block.end`, the final event and the events found in the block, in this
order and for one append. `abort` returns an aborted `block.end` with the partial text, and no final event.
`block.start` of a text or a thinking block comes with its first character. Pieces are stored in lists and
joined once. Limits: the blocks of one reply store 2 Mi characters of pieces and 64 MiB of values that came
whole. Input beyond the limits is refused, and its block is aborted.
"""

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
from turnlog.parse.json_values import MAX_VALUE_BYTES, SurrogateJoiner, decode_json
from turnlog.parse.rejects import RejectedInput, make_reject

MAX_REPLY_CHARS = 2 << 20  # four times the longest reply of a model; 12 MiB if every character is escaped
MAX_INDENTATION_CHARS = 1024  # of the first line of a text
MAX_REPLY_VALUE_BYTES = 64 << 20  # documents and images in the results of the provider's tools


class UntypedEvent(Payload, frozen=True, kw_only=True):
    """A tag parsed without a vocabulary. For inspection only: no catalog can build an event of it."""

    type: str
    data: dict[str, Any]


class ReplyContext:
    """State that the blocks of one reply share: ids and limits."""

    def __init__(self, new_id: Callable[[Any], str]) -> None:
        self.new_id = new_id
        self.message_id: str | None = None
        self.block_ids: list[str] = []
        self.chars_left = MAX_REPLY_CHARS
        self.bytes_left = MAX_REPLY_VALUE_BYTES
        # White space between two neighbouring text blocks. None: leading white space is dropped.
        self.joining_space: list[str] | None = None

    def reserve(self, chars: int, value: object = None) -> bool:
        """Subtract `chars` and the encoded size of `value` from the reply's limits.

        Return False and subtract nothing if one of them does not fit.
        """
        size_bytes = 0
        if value is not None:
            size_bytes = len(msgspec.json.encode(value))
        if chars > self.chars_left or size_bytes > self.bytes_left:
            return False

        self.chars_left -= chars
        self.bytes_left -= size_bytes
        return True

    def new_block_id(self) -> str:
        block_id = self.new_id("blk_")
        self.block_ids.append(block_id)
        return block_id


class TextParser(Protocol):
    """Finds events in a text: tags, markers or both."""

    def feed(self, chunk: str) -> ParsedText: ...

    def flush(self) -> ParsedText: ...


class PlainText:
    """Passes text on as it is, for an application that declares no events."""

    def feed(self, chunk: str) -> ParsedText:
        return ParsedText(chunk, [], [])

    def flush(self) -> ParsedText:
        return ParsedText("", [], [])


class Block(Protocol):
    """An open block of a reply."""

    is_deferred: bool  # True: the block ends with the message, because this side runs the call

    def end(self) -> list[Payload]:
        """Complete the block and return the events of its end."""
        ...

    def abort(self) -> list[Payload]:
        """Close the block incomplete and return the events of its end."""
        ...


class BlockBuffer:
    """The pieces of one block, within the limits of the reply."""

    def __init__(self, context: ReplyContext) -> None:
        self._context = context
        self.pieces: list[str] = []
        self._overflow: RejectedInput | None = None  # the input beyond the limit
        self._joiner = SurrogateJoiner()
        self.block_id: str | None = None

    def accept(self, piece: str) -> str:
        """Return the part of the piece that is complete text and within the limit."""
        return self._truncate_to_limit(self._joiner.feed(piece))

    def flush(self) -> str:
        return self._truncate_to_limit(self._joiner.flush())

    def _truncate_to_limit(self, piece: str) -> str:
        context = self._context
        chars_left = context.chars_left - len(piece)
        if chars_left >= 0:
            context.chars_left = chars_left
            return piece

        self._reject(piece[context.chars_left :])
        piece = piece[: context.chars_left]
        context.chars_left = 0
        return piece

    def _reject(self, text: str) -> None:
        if self._overflow is None:
            self._overflow = RejectedInput()
        self._overflow.add_text(text)

    def append(self, piece: str) -> BlockDelta:
        self.pieces.append(piece)
        return BlockDelta(block_id=self.block_id or "", text=piece)

    def begin(self, kind: Any, **fields: Any) -> BlockStart:
        self.block_id = self._context.new_block_id()
        return BlockStart(block_id=self.block_id, kind=kind, **fields)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def has_overflow(self) -> bool:
        """Return whether input was beyond the limit: the block must be aborted."""
        return self._overflow is not None

    def append_json(self, value: object) -> None:
        """Add a value as the partial text of an aborted block, if it fits into one event."""
        text = msgspec.json.encode(value).decode()
        # In the event it is a string: escaped once more.
        if len(msgspec.json.encode(text)) <= MAX_VALUE_BYTES:
            self.pieces.append(text)
        else:
            self._reject(text)

    def end_event(self) -> BlockEnd:
        return BlockEnd(block_id=self.block_id or "", status="complete")

    def abort_events(self) -> list[Payload]:
        events: list[Payload] = []
        if self.block_id is not None:
            events.append(BlockEnd(block_id=self.block_id, status="aborted", text=self.text))
        if self._overflow is not None:
            events.append(self._overflow.to_reject("too_long", block_id=self.block_id))
        return events


class TextBlock:
    """Text without its tags. The events of its tags follow the end of the block."""

    is_deferred = False

    def __init__(self, context: ReplyContext, parser: TextParser) -> None:
        self._context = context
        self._buffer = BlockBuffer(context)
        self._parser = parser
        self._indentation = ""  # white space since the last line break before the first visible character
        self._inline_events: list[Payload] = []
        self._citations: list[Citation] = []

    @property
    def text(self) -> str:
        return self._buffer.text

    def feed(self, piece: str) -> list[Payload]:
        buffer = self._buffer
        parsed = self._parser.feed(buffer.accept(piece))
        text = parsed.display_text
        if buffer.block_id is None or not text or parsed.events or parsed.rejects:
            return self._emit(parsed)

        # Nearly every piece is plain text of a block that has started.
        buffer.pieces.append(text)
        return [BlockDelta(block_id=buffer.block_id, text=text)]

    def cite(self, citation: Citation) -> None:
        self._citations.append(citation)

    def end(self) -> list[Payload]:
        events = self._flush()
        if self._buffer.has_overflow:
            return events + self._abort_events()

        block_id = self._buffer.block_id
        if block_id is not None:
            message = AssistantMessage(
                text=self.text,
                citations=tuple(self._citations),
                block_id=block_id,
                message_id=self._context.message_id,
            )
            events += [self._buffer.end_event(), message]
        elif self._citations:
            self._inline_events.append(make_reject("citation_without_text", self._citations))
        return events + self._inline_events

    def abort(self) -> list[Payload]:
        return self._flush() + self._abort_events()

    def _flush(self) -> list[Payload]:
        events: list[Payload] = []
        rest = self._buffer.flush()
        if rest:
            events += self._emit(self._parser.feed(rest))
        return events + self._emit(self._parser.flush())

    def _abort_events(self) -> list[Payload]:
        """Return the aborted end. Events of its tags are dropped, their rejects are not."""
        rejects = [event for event in self._inline_events if isinstance(event, ParseReject)]
        return self._buffer.abort_events() + rejects

    def _emit(self, parsed: ParsedText) -> list[Payload]:
        for event in parsed.events:
            self._inline_events.append(event.payload or UntypedEvent(type=event.type, data=event.data))
        self._inline_events += parsed.rejects

        text = parsed.display_text
        if self._buffer.block_id is None:
            return self._start_if_visible(text)
        if not text:
            return []
        return [self._buffer.append(text)]

    def _start_if_visible(self, text: str) -> list[Payload]:
        """Start the block with its first visible character.

        Blank lines before it are dropped, unless they separate this block from a text block before it. The
        indentation of the first line stays.
        """
        space = self._context.joining_space
        if not text or text.isspace():
            if space is not None:
                space.append(text)
            else:
                self._indentation = last_line(self._indentation + text)[-MAX_INDENTATION_CHARS:]
            return []

        if space is None:
            body = text.lstrip()
            text = last_line(self._indentation + text[: len(text) - len(body)]) + body
        else:
            text = "".join(space) + text
        self._context.joining_space = []
        return [self._buffer.begin("text"), self._buffer.append(text)]


def last_line(space: str) -> str:
    return space[space.rfind("\n") + 1 :]


class ThinkingBlock:
    """The model's thinking with its signature; not parsed for tags."""

    is_deferred = False

    def __init__(self, context: ReplyContext) -> None:
        self._context = context
        self._buffer = BlockBuffer(context)
        self._signature: str | None = None
        self._redacted: str | None = None

    def feed(self, piece: str) -> list[Payload]:
        return self._append(self._buffer.accept(piece))

    def _append(self, piece: str) -> list[Payload]:
        if not piece:
            return []
        return [*self._start_once(), self._buffer.append(piece)]

    def sign(self, signature: str) -> list[Payload]:
        events = self._append(self._buffer.flush())
        self._signature = self._buffer.accept(signature) + self._buffer.flush()
        return events

    def redact(self, data: str) -> list[Payload]:
        events = self._append(self._buffer.flush())
        self._redacted = self._buffer.accept(data) + self._buffer.flush()
        return events + self._start_once()

    def _start_once(self) -> list[Payload]:
        if self._buffer.block_id is not None:
            return []
        return [self._buffer.begin("thinking")]

    def end(self) -> list[Payload]:
        events = self._append(self._buffer.flush())
        if self._buffer.has_overflow:
            return events + self._buffer.abort_events()
        if self._buffer.block_id is None and not self._signature:
            return []

        events += self._start_once()
        thinking = AssistantThinking(
            text=self._buffer.text,
            signature=self._signature,
            redacted=self._redacted,
            block_id=self._buffer.block_id,
            message_id=self._context.message_id,
        )
        return [*events, self._buffer.end_event(), thinking]

    def abort(self) -> list[Payload]:
        return self._append(self._buffer.flush()) + self._buffer.abort_events()


class CallBlock:
    """A tool call. Its arguments come in pieces and are decoded once, at the end."""

    def __init__(self, context: ReplyContext, call: ToolCall) -> None:
        self._buffer = BlockBuffer(context)
        self._call = call  # its arguments are used if no piece of arguments comes
        self.is_deferred = call.executor != "provider"

    def start(self) -> list[Payload]:
        return [self._buffer.begin("tool_call", call_id=self._call.call_id, tool=self._call.tool)]

    def feed(self, piece: str) -> list[Payload]:
        return self._append(self._buffer.accept(piece))

    def _append(self, piece: str) -> list[Payload]:
        if not piece:
            return []
        return [self._buffer.append(piece)]

    def end(self) -> list[Payload]:
        events = self._append(self._buffer.flush())
        if self._buffer.has_overflow:
            return events + self._buffer.abort_events()

        fields: dict[str, Any] = {}
        raw = self._buffer.text
        if raw.strip():
            fields = parse_arguments(raw)
        call = msgspec.structs.replace(self._call, block_id=self._buffer.block_id, **fields)
        return [*events, self._buffer.end_event(), call]

    def abort(self) -> list[Payload]:
        events = self._append(self._buffer.flush())
        if not self._buffer.text and self._call.args:
            self._buffer.append_json(self._call.args)
        return events + self._buffer.abort_events()


def parse_arguments(raw: str) -> dict[str, Any]:
    """Return the fields of a call: `args`, and `incomplete` if the arguments are no JSON object."""
    try:
        args = decode_json(raw.encode())
    except BadInput:
        args = None
    if isinstance(args, dict):
        return {"args": args}
    return {"args": {}, "incomplete": raw}


class OtherBlock:
    """A block of any other kind, stored unchanged. Pieces of its text fields are joined."""

    is_deferred = False

    def __init__(
        self, context: ReplyContext, kind: str, data: dict[str, Any], file_events: Iterable[Payload] = ()
    ) -> None:
        self._context = context
        self._buffer = BlockBuffer(context)
        self._kind = kind
        self._fields = data
        self._file_events = file_events
        self._parts: dict[str, list[str]] = {}
        self._joiners: dict[str, SurrogateJoiner] = {}

    def start(self) -> list[Payload]:
        return [self._buffer.begin("other")]

    def merge(self, fields: dict[str, Any]) -> list[Payload]:
        """Add fields of a delta: a text is appended to the field, any other value replaces it."""
        for name, value in fields.items():
            self._buffer.accept(name)
            if isinstance(value, str):
                text = self._joiners.setdefault(name, SurrogateJoiner()).feed(value)
                self._parts.setdefault(name, []).append(self._buffer.accept(text))
            else:
                self._buffer.accept(msgspec.json.encode(value).decode())
                self._fields[name] = value
        return []

    def _join_fields(self) -> dict[str, Any]:
        """Return the fields with their pieces of text joined. Flushes the joiners: call it once."""
        fields = dict(self._fields)
        for name, parts in self._parts.items():
            first = fields.get(name)
            prefix = first if isinstance(first, str) else ""
            fields[name] = prefix + "".join(parts) + self._joiners[name].flush()
        return fields

    def end(self) -> list[Payload]:
        if self._buffer.has_overflow:
            return self.abort()
        block = AssistantBlock(
            kind=self._kind,
            data=self._join_fields(),
            block_id=self._buffer.block_id,
            message_id=self._context.message_id,
        )
        return [self._buffer.end_event(), block, *self._file_events]

    def abort(self) -> list[Payload]:
        self._buffer.append_json(self._join_fields())
        return self._buffer.abort_events()


class CompleteEvents:
    """Events that came complete. They keep their order among the blocks."""

    is_deferred = False

    def __init__(self, payloads: list[Payload]) -> None:
        self._payloads = payloads

    def end(self) -> list[Payload]:
        return self._payloads

    abort = end
