"""One reply of any model as events. Pure: ids come in.

Every method returns a batch: events for one append. Text streams without its tags; thinking and arguments
stream unchanged. The end of a block, its final event and the events found in it are one batch. Calls that
this side runs, and every block that ends after such a call, are deferred until `done`: tools start when the
message is complete, so an interrupted reply has started none. `done` or `abort` comes last and closes all
open blocks. Limits: those of `blocks`. Each block costs 64 characters, so their number is limited too.
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
    PlainText,
    ReplyContext,
    TextBlock,
    TextParser,
    ThinkingBlock,
)
from turnlog.parse.inline.tags import AgentStreamParser
from turnlog.parse.json_values import as_name, as_opaque_id, convert_or_none, to_json_value
from turnlog.parse.rejects import make_reject

# Why a message ended. After "tool_use" and "pause_turn" its agent goes on.
MessageStop = StopReason | Literal["tool_use", "pause_turn"]
TextParserFactory = Callable[[], TextParser]
B = TypeVar("B", bound=Block)
R = TypeVar("R", bound=Record)

BLOCK_COST_CHARS = 64  # of a block or a citation, besides its content


def tag_parser_factory(vocabulary: Vocabulary | None) -> TextParserFactory:
    """Return a factory of parsers that find the tags of a vocabulary. Without one, text has no tags."""
    return PlainText if vocabulary is None else partial(AgentStreamParser, vocabulary)


def always_backend(tool: str) -> ExecutorKind:
    return "backend"


def is_valid_call(tool: str, call_id: str | None) -> bool:
    if as_name(tool) is None:
        return False
    return call_id is None or as_opaque_id(call_id) is not None


def to_json_object(data: Any) -> dict[str, Any] | None:
    """Return an object as plain JSON values, lone surrogates replaced; None if JSON cannot express it."""
    try:
        value = to_json_value(data)
    except BadInput:
        return None
    return value if isinstance(value, dict) else None


def sanitize_record(record: R | None) -> R | None:
    """Return a record with lone surrogates replaced; None if it is not valid, or None itself."""
    if record is None:
        return None
    try:
        fields = msgspec.to_builtins(record)
    except (TypeError, ValueError, RecursionError):
        return None
    sanitized: R | None = convert_or_none(to_json_object(fields), type(record))
    return sanitized


def file_events(files: tuple[File, ...]) -> list[Payload]:
    return [AssistantFiles(files=files)] if files else []


class ReplyBuilder:
    """Builds the events of one reply. Afterwards `calls`, `usage`, `stop_reason` and `error` describe it."""

    def __init__(
        self,
        new_id: Callable[[Any], str],
        make_text_parser: TextParserFactory = tag_parser_factory(None),  # noqa: B008
        executor_for: Callable[[str], ExecutorKind] = always_backend,
    ) -> None:
        self._context = ReplyContext(new_id)
        self._make_text_parser = make_text_parser
        self._executor_for = executor_for
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
        return self._context.message_id

    @property
    def block_ids(self) -> tuple[str, ...]:
        """Return the ids of the blocks that have started. A retry retracts them."""
        return tuple(self._context.block_ids)

    @property
    def text_so_far(self) -> str:
        return "".join(block.text for block in self._text_blocks)

    @property
    def has_deferred_calls(self) -> bool:
        return any(block.is_deferred for block in self._deferred_blocks)

    def begin(self, model: str | None = None, message_id: str | None = None) -> list[Payload]:
        """Set the model and the provider's message id. Return an empty batch."""
        self.model = as_name(model)
        self._context.message_id = as_opaque_id(message_id)
        return []

    def text(self, piece: str) -> list[Payload]:
        """Add a piece to the open text, or begin a text."""
        block = self._current_block(TextBlock)
        if block is not None:
            return block.feed(piece)

        batch = self.end()
        block = self.open_text()
        if block is None:
            return [*batch, make_reject("too_long", piece)]
        return batch + block.feed(piece)

    def cite(self, citation: Citation) -> list[Payload]:
        block = self._current_block(TextBlock)
        if block is None:
            return [make_reject("citation_without_text", citation)]
        sanitized = sanitize_record(citation)
        if sanitized is None:
            return [make_reject("bad_citation", citation)]
        return self.add_citation(block, sanitized)

    def think(self, piece: str) -> list[Payload]:
        """Add a piece to the open thinking, or begin a thinking."""
        block = self._current_block(ThinkingBlock)
        if block is not None:
            return block.feed(piece)

        batch = self.end()
        block = self.open_thinking()
        if block is None:
            return [*batch, make_reject("too_long", piece)]
        return batch + block.feed(piece)

    def sign(self, signature: str) -> list[Payload]:
        """Sign the open thinking, or a new one without a text."""
        block = self._current_block(ThinkingBlock)
        if block is not None:
            return block.sign(signature)

        batch = self.end()
        block = self.open_thinking()
        if block is None:
            return [*batch, make_reject("too_long", signature)]
        return batch + block.sign(signature)

    def start_call(self, tool: str, call_id: str | None = None) -> list[Payload]:
        """Begin a call whose arguments follow in pieces."""
        batch = self.end()
        if not is_valid_call(tool, call_id):
            return [*batch, make_reject("bad_call", [tool, call_id], tool)]
        block = self.open_call(tool, call_id)
        if block is None:
            return [*batch, make_reject("too_long", tool)]
        return batch + block.start()

    def arguments(self, piece: str) -> list[Payload]:
        """Add a piece to the arguments of the open call. All pieces together are one JSON object."""
        block = self._current_block(CallBlock)
        if block is None:
            return [make_reject("arguments_without_call", piece)]
        return block.feed(piece)

    def call(self, tool: str, args: dict[str, Any], call_id: str | None = None) -> list[Payload]:
        batch = self.end()
        json_args = to_json_object(args)
        if json_args is None or not is_valid_call(tool, call_id):
            return [*batch, make_reject("bad_call", [tool, args], tool)]
        block = self.open_call(tool, call_id, args=json_args)
        if block is None:
            return [*batch, make_reject("too_long", [tool, args])]
        return batch + block.start() + self.close(block)

    def result(self, result: ToolResult, files: tuple[File, ...] = ()) -> list[Payload]:
        """Add the result of a tool of the provider, and the files it made."""
        batch = self.end()
        sanitized = sanitize_record(result)
        if sanitized is None or find_contradiction(sanitized):
            return [*batch, make_reject("bad_result", result, result.tool)]
        block = self.open_result(sanitized, files)
        if block is None:
            return [*batch, make_reject("too_long", result)]
        return batch + self.close(block)

    def end(self) -> list[Payload]:
        batch: list[Payload] = []
        for block in tuple(self._open_blocks):
            batch += self.close(block)
        return batch

    def done(self, stop_reason: MessageStop, usage: Usage | None = None) -> list[Payload]:
        """Complete the message. After a refusal its calls are aborted: they must not run."""
        batch = self.end()
        for block in self._take_deferred():
            if stop_reason == "refusal" and block.is_deferred:
                batch += block.abort()
            else:
                batch += block.end()

        self.calls = [
            payload for payload in batch if isinstance(payload, ToolCall) and payload.executor != "provider"
        ]
        self.usage = usage or self.usage
        self.stop_reason = stop_reason
        self.complete = True
        return batch

    def flush_deferred(self) -> list[Payload]:
        """End the deferred blocks now, for a source that runs calls before the message is complete."""
        batch: list[Payload] = []
        for block in self._take_deferred():
            batch += block.end()
        return batch

    def abort(self, error: ErrorInfo | None = None) -> list[Payload]:
        """Close an incomplete message: open blocks and deferred calls are aborted."""
        batch: list[Payload] = []
        for block in self._take_deferred():
            batch += block.abort() if block.is_deferred else block.end()
        for block in self._open_blocks:
            batch += block.abort()

        self._open_blocks = []
        self.error = error or self.error
        return batch

    # The open_* methods are for a source that names its blocks. They return None if the reply's limits leave
    # no room for another block.

    def open_text(self) -> TextBlock | None:
        block = self._register(TextBlock(self._context, self._make_text_parser()))
        if block is not None:
            self._text_blocks.append(block)
        return block

    def open_thinking(self) -> ThinkingBlock | None:
        return self._register(ThinkingBlock(self._context))

    def open_call(
        self,
        tool: str,
        call_id: str | None = None,
        executor: ExecutorKind | None = None,
        args: dict[str, Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> CallBlock | None:
        """Open a call. `args` are used if no argument deltas come. `executor` defaults to the tool's own."""
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
        return self._register(OtherBlock(self._context, kind, data, file_events(files)), data)

    def open_result(self, result: ToolResult, files: tuple[File, ...] = ()) -> CompleteEvents | None:
        return self._register(CompleteEvents([result, *file_events(files)]), result)

    def add_citation(self, block: TextBlock, citation: Citation) -> list[Payload]:
        if not self._context.reserve(BLOCK_COST_CHARS, citation):
            return [make_reject("too_long", citation, citation.type)]
        block.cite(citation)
        return []

    def close(self, block: Block) -> list[Payload]:
        """Complete a block. Return its end, or nothing if it is deferred to the end of the message."""
        self._open_blocks.remove(block)
        # A block after a deferred call waits too, so that events keep the order of the blocks.
        if block.is_deferred or self._deferred_blocks:
            self._deferred_blocks.append(block)
            return []
        return block.end()

    def drop(self, block: Block) -> list[Payload]:
        """Abort a block, not its message."""
        self._open_blocks.remove(block)
        return block.abort()

    def _take_deferred(self) -> list[Block]:
        deferred = self._deferred_blocks
        self._deferred_blocks = []
        return deferred

    def _current_block(self, block_class: type[B]) -> B | None:
        block = self._open_blocks[-1] if self._open_blocks else None
        return block if isinstance(block, block_class) else None

    def _register(self, block: B, value: object = None) -> B | None:
        """Reserve the cost of a block and open it. Return None if it does not fit."""
        if not self._context.reserve(BLOCK_COST_CHARS, value):
            return None
        if not isinstance(block, TextBlock):
            self._context.joining_space = None
        self._open_blocks.append(block)
        return block
