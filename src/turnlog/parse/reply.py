"""One reply of a model as events, whatever the model. Pure: ids come in.

Every method returns a batch: events for one append. Prose streams without its tags, thinking and arguments
stream as they come; a block's end, its durable twin and what was found in it are one batch. Calls that this
side has to run, and every block that ends after one, wait for `done`: tools start when the message is
complete, so a reply that breaks off has nothing to take back. `done` or `abort` comes last, and closes what
is open. Limits: those of `blocks`; each block costs 64 of the characters, so their number is bounded too.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeVar

import msgspec

from turnlog.errors import BadInput
from turnlog.events import (
    AssistantFiles,
    Citation,
    ErrorInfo,
    File,
    Payload,
    ToolCall,
    ToolResult,
    Usage,
    Vocabulary,
)
from turnlog.events.agent import StopReason
from turnlog.events.payload import Record
from turnlog.events.tool import ExecutorKind, find_contradiction
from turnlog.parse.blocks import (
    Block,
    CallBlock,
    CompleteEvents,
    OtherBlock,
    ReplyContext,
    TextBlock,
    TextParser,
    ThinkingBlock,
)
from turnlog.parse.inline.markers import TagAndMarkerParser
from turnlog.parse.inline.tags import AgentStreamParser
from turnlog.parse.json_values import as_name, as_opaque_id, convert_or_none, make_reject, to_json_value

MessageStop = (
    StopReason | Literal["tool_use", "pause_turn"]
)  # why a message ended; the last two: its agent goes on
TextParserFactory = Callable[[], TextParser]
B = TypeVar("B", bound=Block)
R = TypeVar("R", bound=Record)

NO_VOCABULARY = Vocabulary("none", [])  # an application without events: every tag is refused, none vanishes
BLOCK_COST_CHARS = 64  # what a block or a citation costs beside its content


def tag_parser_factory(vocabulary: Vocabulary | None) -> TextParserFactory:
    """A parser of tags for each text of an application."""
    return partial(AgentStreamParser, vocabulary or NO_VOCABULARY)


def tag_and_marker_parser_factory(vocabulary: Vocabulary | None) -> TextParserFactory:
    """A parser of tags and of a team's markers for each text of an application."""
    return partial(TagAndMarkerParser, vocabulary or NO_VOCABULARY)


def always_backend(tool: str) -> ExecutorKind:
    """Every tool runs here."""
    return "backend"


def is_valid_call(tool: str, call_id: str | None) -> bool:
    """Whether an event can carry the names of a call."""
    return as_name(tool) is not None and (call_id is None or as_opaque_id(call_id) is not None)


def to_json_object(data: Any) -> dict[str, Any] | None:
    """Return an object as the log can hold it, lone surrogates replaced; None if it cannot."""
    try:
        value = to_json_value(data)
    except BadInput:
        return None
    return value if isinstance(value, dict) else None


def sanitize_record(record: R) -> R | None:
    """Return a record as the log can hold it, lone surrogates replaced; None if it cannot."""
    found: R | None = convert_or_none(to_json_object(msgspec.to_builtins(record)), type(record))
    return found


def file_events(files: tuple[File, ...]) -> list[Payload]:
    """The event that names files, if there are any."""
    return [AssistantFiles(files=files)] if files else []


class ReplyBuilder:
    """A reply while it is made, and what is known of it afterwards."""

    def __init__(
        self,
        new_id: Callable[[Any], str],
        make_text_parser: TextParserFactory = tag_parser_factory(None),  # noqa: B008
        executor_for: Callable[[str], ExecutorKind] = always_backend,
    ) -> None:
        self._context = ReplyContext(new_id)
        self._make_text_parser, self._executor_for = make_text_parser, executor_for
        self._open_blocks: list[Block] = []
        self._deferred_blocks: list[Block] = []
        self._text_blocks: list[TextBlock] = []
        self.model: str | None = None
        self.calls: list[ToolCall] = []
        self.usage = Usage(input_tokens=0, output_tokens=0)
        self.stop_reason: MessageStop | None = None
        self.complete = False
        self.error: ErrorInfo | None = None

    @property
    def message_id(self) -> str | None:
        """The provider's id of the message."""
        return self._context.message_id

    @property
    def block_ids(self) -> tuple[str, ...]:
        """The blocks that were shown; a retry retracts them."""
        return tuple(self._context.block_ids)

    @property
    def text_so_far(self) -> str:
        """The text, all blocks of it."""
        return "".join(block.text for block in self._text_blocks)

    @property
    def has_deferred_calls(self) -> bool:
        """Whether calls wait for the end of the message."""
        return any(block.is_deferred for block in self._deferred_blocks)

    def begin(self, model: str | None = None, message_id: str | None = None) -> list[Payload]:
        """What is known of the message before its first block."""
        self.model, self._context.message_id = as_name(model), as_opaque_id(message_id)
        return []

    def text(self, piece: str) -> list[Payload]:
        """A piece of text; it goes on with the text that is open."""
        block = self._current_block(TextBlock)
        return (
            block.feed(piece)
            if block
            else self._start_block(self.open_text, piece, lambda new: new.feed(piece))
        )

    def cite(self, citation: Citation) -> list[Payload]:
        """A source of the open text."""
        block = self._current_block(TextBlock)
        if block is None:
            return [make_reject("citation_without_text", citation)]
        mended = sanitize_record(citation)
        return self.add_citation(block, mended) if mended else [make_reject("bad_citation", citation)]

    def think(self, piece: str) -> list[Payload]:
        """A piece of thinking."""
        block = self._current_block(ThinkingBlock)
        return (
            block.feed(piece)
            if block
            else self._start_block(self.open_thinking, piece, lambda new: new.feed(piece))
        )

    def sign(self, signature: str) -> list[Payload]:
        """The signature of the open thinking, or of one without a text."""
        block = self._current_block(ThinkingBlock)
        if block:
            return block.sign(signature)
        return self._start_block(self.open_thinking, signature, lambda new: new.sign(signature))

    def redact(self, data: str) -> list[Payload]:
        """A thinking that only the provider can read."""
        return self._start_block(self.open_thinking, data, lambda new: [*new.redact(data), *self.close(new)])

    def start_call(self, tool: str, call_id: str | None = None) -> list[Payload]:
        """A call begins; its arguments follow in pieces."""
        if not is_valid_call(tool, call_id):
            return [*self.end(), make_reject("bad_call", [tool, call_id], tool)]
        return self._start_block(partial(self.open_call, tool, call_id), tool, CallBlock.start)

    def arguments(self, piece: str) -> list[Payload]:
        """A piece of the open call's arguments, which are one JSON object."""
        block = self._current_block(CallBlock)
        return block.feed(piece) if block else [make_reject("arguments_without_call", piece)]

    def call(self, tool: str, args: dict[str, Any], call_id: str | None = None) -> list[Payload]:
        """A whole call at once."""
        given = to_json_object(args)
        if given is None or not is_valid_call(tool, call_id):
            return [*self.end(), make_reject("bad_call", [tool, args], tool)]
        opened = partial(self.open_call, tool, call_id, args=given)
        return self._start_block(opened, [tool, args], lambda new: [*new.start(), *self.close(new)])

    def other(self, kind: str, data: dict[str, Any]) -> list[Payload]:
        """A whole block of another kind."""
        given = to_json_object(data)
        if given is None or as_name(kind) is None:
            return [*self.end(), make_reject("bad_block", data, kind)]
        opened = partial(self.open_other, kind, given)
        return self._start_block(opened, data, lambda new: [*new.start(), *self.close(new)])

    def result(self, result: ToolResult, files: tuple[File, ...] = ()) -> list[Payload]:
        """What a tool of the provider answered."""
        mended = sanitize_record(result)
        if mended is None or find_contradiction(mended):
            return [*self.end(), make_reject("bad_result", result, result.tool)]
        return self._start_block(partial(self.open_result, mended, files), result, self.close)

    def end(self) -> list[Payload]:
        """The open block is complete."""
        return [payload for block in tuple(self._open_blocks) for payload in self.close(block)]

    def done(self, stop_reason: MessageStop, usage: Usage | None = None) -> list[Payload]:
        """The message is complete. Calls of one that was refused are void."""
        batch = self.end()
        void = stop_reason == "refusal"
        for block in self._take_deferred():
            batch += block.abort() if void and block.is_deferred else block.end()
        self.calls = [
            payload for payload in batch if isinstance(payload, ToolCall) and payload.executor != "provider"
        ]
        self.usage = usage or self.usage
        self.stop_reason, self.complete = stop_reason, True
        return batch

    def flush_deferred(self) -> list[Payload]:
        """What waits for the end of the message, now: its source has begun to run the calls."""
        return [payload for block in self._take_deferred() for payload in block.end()]

    def abort(self, error: ErrorInfo | None = None) -> list[Payload]:
        """The message will not be completed: what is open is closed with what there was, calls are void."""
        batch: list[Payload] = []
        for block in self._take_deferred():
            batch += block.abort() if block.is_deferred else block.end()
        for block in self._open_blocks:
            batch += block.abort()
        self._open_blocks = []
        self.error = error or self.error
        return batch

    def open_text(self) -> TextBlock | None:
        """A text, for a source that names its blocks; None if there is no room for another block."""
        block = self._register(TextBlock(self._context, self._make_text_parser()))
        if block:
            self._text_blocks.append(block)
        return block

    def open_thinking(self) -> ThinkingBlock | None:
        """A thinking."""
        return self._register(ThinkingBlock(self._context))

    def open_call(
        self,
        tool: str,
        call_id: str | None = None,
        executor: ExecutorKind | None = None,
        args: dict[str, Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> CallBlock | None:
        """A call; `args` count if no piece of them comes; who runs it is known or follows from the tool."""
        call = ToolCall(
            call_id=call_id or self._context.new_id("call_"),
            tool=tool,
            args=args or {},
            executor=executor or self._executor_for(tool),
            message_id=self.message_id,
            extra=extra,
        )
        return self._register(CallBlock(self._context, call), call)

    def open_other(self, kind: str, data: dict[str, Any], files: tuple[File, ...] = ()) -> OtherBlock | None:
        """A block of another kind, and the files it names."""
        return self._register(OtherBlock(self._context, kind, data, file_events(files)), data)

    def open_result(self, result: ToolResult, files: tuple[File, ...] = ()) -> CompleteEvents | None:
        """What a tool of the provider answered, and the files it made."""
        return self._register(CompleteEvents([result, *file_events(files)]), result)

    def add_citation(self, block: TextBlock, citation: Citation) -> list[Payload]:
        """A source of a text."""
        if not self._context.reserve(BLOCK_COST_CHARS, citation):
            return [make_reject("too_long", citation, citation.type)]
        block.cite(citation)
        return []

    def close(self, block: Block) -> list[Payload]:
        """A block is complete; its end is said now, or with the end of the message."""
        self._open_blocks.remove(block)
        return self._end_or_defer(block)

    def drop(self, block: Block) -> list[Payload]:
        """A block will not be completed, although the message goes on."""
        self._open_blocks.remove(block)
        return block.abort()

    def _end_or_defer(self, block: Block) -> list[Payload]:
        if not self._deferred_blocks and not block.is_deferred:
            return block.end()
        self._deferred_blocks.append(block)
        return []

    def _take_deferred(self) -> list[Block]:
        held, self._deferred_blocks = self._deferred_blocks, []
        return held

    def _current_block(self, kind: type[B]) -> B | None:
        """The block that is open, if it is of this kind."""
        block = self._open_blocks[-1] if self._open_blocks else None
        return block if isinstance(block, kind) else None

    def _start_block(
        self, open_block: Callable[[], B | None], thing: object, fill: Callable[[B], list[Payload]]
    ) -> list[Payload]:
        """End what is open and go on with a new block, if there is room for one."""
        batch, block = self.end(), open_block()
        return [*batch, *(fill(block) if block else [make_reject("too_long", thing)])]

    def _register(self, block: B, value: object = None) -> B | None:
        if not self._context.reserve(BLOCK_COST_CHARS, value):
            return None
        if not isinstance(block, TextBlock):
            self._context.joining_space = None
        self._open_blocks.append(block)
        return block
