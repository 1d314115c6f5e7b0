"""The stream of Anthropic's Messages API: raw events in, batches of events out (docs/protocol.md 5).

An event is a dict or an object of any SDK. Tables choose its reader by its `type`. One parser reads one
message. Blocks are identified by their index and may interleave. A block of an unknown type, and a block
whose fields are not valid, is stored whole as `assistant.block`; everything else that is not valid becomes a
`parse.reject`. `message_stop` completes a message. If the stream ends before it, `flush` aborts the open
blocks, and `reply.error` says why. Never raises. The limits of the reply bound the memory.
"""

from collections.abc import Callable, Set
from types import MethodType
from typing import Any

from turnlog.errors import BadInput
from turnlog.events import Citation, ErrorInfo, File, Payload, ToolResult, Usage
from turnlog.events.payload import Count
from turnlog.events.surrogates import replace_lone_surrogates
from turnlog.parse.blocks import Block, CallBlock, OtherBlock, TextBlock, ThinkingBlock
from turnlog.parse.json_values import (
    JsonObject,
    as_list,
    as_name,
    as_opaque_id,
    convert_or_none,
    get_field,
    printable_name,
    to_json_value,
)
from turnlog.parse.rejects import make_reject
from turnlog.parse.reply import MessageStop, ReplyBuilder

DeltaSink = Callable[[str], list[Payload]]

INCOMPLETE = ErrorInfo(code="incomplete", message="The stream ended before the message did.")
STOP_REASONS: dict[str, MessageStop] = {
    "end_turn": "end_turn",
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_use",
    "pause_turn": "pause_turn",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_window",
    "compaction": "pause_turn",  # the provider compacted the context; the model goes on
}
USAGE_FIELDS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_input_tokens": "cache_read_tokens",
    "cache_creation_input_tokens": "cache_creation_tokens",
}
RESULT_SUFFIX = "_tool_result"  # all result types of the provider's tools end with it
MAX_ERROR_CHARS = 2000  # of an error message


class MessagesParser:
    """Parses the events of one message into a reply."""

    def __init__(self, reply: ReplyBuilder) -> None:
        self.reply = reply
        self.stop_details: Any = None  # the provider's explanation of a refusal
        self.container: str | None = None  # where code was executed: the next request may name it
        self.has_ended = False  # completed or flushed
        self._open_blocks: dict[int, Block] = {}  # by index
        # By index and type of delta: the field with the text, and the method of the block that takes it.
        self._delta_sinks: dict[tuple[int, str], tuple[str, DeltaSink]] = {}
        self._known_indexes: set[int] = set()
        self._provider_tools: dict[str, str] = {}  # names of the provider's tools, by call
        self._token_counts: dict[str, int] = {}
        self._stop_reason: MessageStop | None = None
        self._has_started = False

    def feed(self, event: Any) -> list[Payload]:
        """Parse one raw event and return its batch."""
        # Nearly every event is the next piece of an open block: it needs no reader.
        try:
            fields = event if type(event) is dict else event.__dict__
            kind = fields["type"]
            delta = fields["delta"]
            parts = delta if type(delta) is dict else delta.__dict__
            name, sink = self._delta_sinks[fields["index"], parts["type"]]
            piece = parts[name]
        except (AttributeError, KeyError, TypeError):
            return self._dispatch(event)
        if type(piece) is str and kind == "content_block_delta":
            return sink(piece)
        return self._dispatch(event)

    def _dispatch(self, event: Any) -> list[Payload]:
        kind = get_field(event, "type")
        reader = EVENT_READERS.get(kind) if type(kind) is str else None
        if reader is None:
            return [make_reject("unknown_event", event, kind)]
        if self.has_ended and kind != "ping":
            return [make_reject("after_the_end", event, kind)]
        return reader(self, event)

    def flush(self, error: ErrorInfo | None = None) -> list[Payload]:
        """End the stream. Abort the message if it is not complete. `error` is the reason."""
        if self.has_ended:
            return []
        self.has_ended = True
        self._open_blocks = {}
        self._delta_sinks = {}
        self._store_usage()
        return self.reply.abort(error or INCOMPLETE)

    def _on_ping(self, _: Any) -> list[Payload]:
        return []

    def _on_error(self, event: Any) -> list[Payload]:
        error = get_field(event, "error")
        code = printable_name(get_field(error, "type")) or "error"
        message = bounded_text(get_field(error, "message")) or code
        return self.flush(ErrorInfo(code=code, message=message))

    def _on_message_start(self, event: Any) -> list[Payload]:
        if self._has_started:
            return [make_reject("repeated_message", event)]
        self._has_started = True
        message = get_field(event, "message")
        self.reply.begin(as_name(get_field(message, "model")), as_opaque_id(get_field(message, "id")))
        return self._update_counts(get_field(message, "usage"))

    def _on_message_delta(self, event: Any) -> list[Payload]:
        batch = self._update_counts(get_field(event, "usage"))
        delta = get_field(event, "delta")

        container_id = as_opaque_id(get_field(get_field(delta, "container"), "id"))
        if container_id is not None:
            self.container = container_id
        try:
            self.stop_details = to_json_value(get_field(delta, "stop_details"), vars) or self.stop_details
        except BadInput:
            batch.append(make_reject("bad_stop_details", event))

        reason = get_field(delta, "stop_reason")
        if reason is not None:
            self._stop_reason = STOP_REASONS.get(reason) if type(reason) is str else None
            if self._stop_reason is None:
                batch.append(make_reject("unknown_stop_reason", event, reason))
        return batch

    def _on_message_stop(self, _: Any) -> list[Payload]:
        self.has_ended = True
        batch: list[Payload] = []
        for index in tuple(self._open_blocks):
            batch += self.reply.drop(self._take_block(index))
        self._store_usage()
        return batch + self.reply.done(self._stop_reason or "end_turn")

    def _update_counts(self, usage: Any) -> list[Payload]:
        """Store token counts. They are totals of the message: a later one replaces an earlier one."""
        has_bad_count = False
        for name in USAGE_FIELDS:
            count = get_field(usage, name)
            if count is None:
                continue
            if convert_or_none(count, Count) is None:
                has_bad_count = True
            else:
                self._token_counts[name] = count
        return [make_reject("bad_usage", usage)] if has_bad_count else []

    def _store_usage(self) -> None:
        counts = {field: self._token_counts.get(name, 0) for name, field in USAGE_FIELDS.items()}
        self.reply.usage = Usage(**counts)

    def _on_block_start(self, event: Any) -> list[Payload]:
        index = get_field(event, "index")
        content = get_field(event, "content_block")
        kind = get_field(content, "type")
        if type(index) is not int or type(kind) is not str:
            return [make_reject("bad_block", event, kind)]

        batch: list[Payload] = []
        if index in self._known_indexes:
            repeated = make_reject("repeated_block", event, kind)
            if index not in self._open_blocks:
                return [repeated]
            batch = [*self.reply.drop(self._take_block(index)), repeated]

        try:
            data = to_json_value(content, vars)
        except BadInput:
            return [*batch, make_reject("bad_block", event, kind)]
        return batch + self._open_block(index, kind, data)

    def _open_block(self, index: int, kind: str, data: JsonObject) -> list[Payload]:
        opener = BLOCK_OPENERS.get(kind)
        if opener is None:
            is_result = kind.endswith(RESULT_SUFFIX)
            opener = MessagesParser._open_result if is_result else MessagesParser._open_other
        batch = opener(self, index, data)
        if batch is None:
            return [make_reject("bad_block", data, kind), *self._open_other(index, data)]
        return batch

    def _register(self, index: int, block: Block | None, data: JsonObject) -> list[Payload]:
        """Store an open block. Return its start, or a reject if `block` is None: it did not fit."""
        if block is None:
            return [make_reject("too_long", data, data["type"])]

        self._known_indexes.add(index)
        self._open_blocks[index] = block
        for kind, (block_class, name, method) in DELTA_READERS.items():
            if type(block) is block_class:
                self._delta_sinks[index, kind] = name, MethodType(method, block)
        if isinstance(block, CallBlock | OtherBlock):
            return block.start()
        return []

    # The _open_* methods return None if the fields of the block are not valid for its type.

    def _open_text(self, index: int, data: JsonObject) -> list[Payload] | None:
        text = data.get("text", "")
        citations = data.get("citations") or []
        if type(text) is not str or type(citations) is not list:
            return None

        block = self.reply.open_text()
        batch = self._register(index, block, data)
        if block is not None:
            batch += block.feed(text)
            for citation in citations:
                batch += self._add_citation(block, citation)
        return batch

    def _add_citation(self, block: TextBlock, data: Any) -> list[Payload]:
        citation = convert_or_none(data, Citation)
        if citation is None:
            return [make_reject("bad_citation", data)]
        batch = self.reply.add_citation(block, citation)
        unknown = extra_fields(data, CITATION_FIELDS)
        if unknown:
            batch.append(make_reject("unknown_citation_fields", unknown, citation.type))
        return batch

    def _open_thinking(self, index: int, data: JsonObject) -> list[Payload] | None:
        thinking = data.get("thinking")
        signature = data.get("signature")
        if not isinstance(thinking, str | None) or not isinstance(signature, str | None):
            return None

        block = self.reply.open_thinking()
        batch = self._register(index, block, data)
        if block is not None:
            batch += block.feed(thinking or "")
            if signature:
                batch += block.sign(signature)
        return batch

    def _open_redacted(self, index: int, data: JsonObject) -> list[Payload] | None:
        redacted = data.get("data")
        if type(redacted) is not str:
            return None

        block = self.reply.open_thinking()
        batch = self._register(index, block, data)
        if block is not None:
            batch += block.redact(redacted)
        return batch

    def _open_call(self, index: int, data: JsonObject) -> list[Payload] | None:
        tool = as_name(data.get("name"))
        call_id = as_opaque_id(data.get("id"))
        args = data.get("input") or {}
        if tool is None or call_id is None or type(args) is not dict:
            return None

        if data["type"] == "tool_use":
            extra = extra_fields(data, {"type", "id", "name", "input"})
            block = self.reply.open_call(tool, call_id, args=args, extra=extra)
        else:
            # The provider runs it. Its type goes back in the next request, so it stays in `extra`.
            self._provider_tools[call_id] = tool
            extra = extra_fields(data, {"id", "name", "input"})
            block = self.reply.open_call(tool, call_id, "provider", args, extra)
        return self._register(index, block, data)

    def _open_result(self, index: int, data: JsonObject) -> list[Payload] | None:
        kind = as_name(data["type"])
        call_id = as_opaque_id(data.get("tool_use_id"))
        content = data.get("content")
        if kind is None or call_id is None:
            return None

        error = parse_provider_error(data, content)
        result = ToolResult(
            call_id=call_id,
            tool=self._provider_tools.get(call_id) or kind.removesuffix(RESULT_SUFFIX) or kind,
            ok=error is None,
            result=None if error else content,
            error=error,
            kind=kind,
            extra=extra_fields(data, {"type", "tool_use_id", "content"}),
        )
        return self._register(index, self.reply.open_result(result, parse_output_files(content)), data)

    def _open_other(self, index: int, data: JsonObject) -> list[Payload]:
        kind = printable_name(data["type"]) or "unknown"
        return self._register(index, self.reply.open_other(kind, data), data)

    def _open_upload(self, index: int, data: JsonObject) -> list[Payload]:
        block = self.reply.open_other("container_upload", data, parse_output_files([data]))
        return self._register(index, block, data)

    def _on_block_delta(self, event: Any) -> list[Payload]:
        index = get_field(event, "index")
        delta = get_field(event, "delta")
        kind = get_field(delta, "type")
        if type(index) is not int or index not in self._open_blocks:
            return [make_reject("no_block", event, kind)]

        if type(kind) is str and (index, kind) in self._delta_sinks:
            name, sink = self._delta_sinks[index, kind]
            piece = get_field(delta, name)
            if type(piece) is not str:
                return [make_reject("bad_delta", event, kind)]
            return sink(piece)
        return self._apply_other_delta(event, self._open_blocks[index], kind, delta)

    def _apply_other_delta(self, event: Any, block: Block, kind: Any, delta: Any) -> list[Payload]:
        try:
            data = to_json_value(delta, vars)
        except BadInput:
            data = None

        if type(data) is dict and isinstance(block, OtherBlock):
            # Texts as they came: the next delta may complete a surrogate pair that is cut in two.
            for name in data:
                piece = get_field(delta, name)
                if isinstance(piece, str):
                    data[name] = piece
            return block.merge(extra_fields(data, {"type"}) or {})
        if type(data) is dict and isinstance(block, TextBlock) and kind == "citations_delta":
            return self._add_citation(block, data.get("citation"))
        return [make_reject("bad_delta", event, kind)]

    def _on_block_stop(self, event: Any) -> list[Payload]:
        index = get_field(event, "index")
        if type(index) is not int or index not in self._open_blocks:
            return [make_reject("no_block", event)]
        return self.reply.close(self._take_block(index))

    @property
    def open_indexes(self) -> Set[int]:
        return self._open_blocks.keys()

    def drop(self, index: int) -> list[Payload]:
        """Abort a block, not its message. Return an empty batch if the block is not open."""
        if index not in self._open_blocks:
            return []
        return self.reply.drop(self._take_block(index))

    def _take_block(self, index: int) -> Block:
        for kind in DELTA_READERS:
            self._delta_sinks.pop((index, kind), None)
        return self._open_blocks.pop(index)


EVENT_READERS: dict[str, Callable[[MessagesParser, Any], list[Payload]]] = {
    "message_start": MessagesParser._on_message_start,
    "content_block_start": MessagesParser._on_block_start,
    "content_block_delta": MessagesParser._on_block_delta,
    "content_block_stop": MessagesParser._on_block_stop,
    "message_delta": MessagesParser._on_message_delta,
    "message_stop": MessagesParser._on_message_stop,
    "ping": MessagesParser._on_ping,
    "error": MessagesParser._on_error,
}
BLOCK_OPENERS: dict[str, Callable[[MessagesParser, int, JsonObject], list[Payload] | None]] = {
    "text": MessagesParser._open_text,
    "thinking": MessagesParser._open_thinking,
    "redacted_thinking": MessagesParser._open_redacted,
    "tool_use": MessagesParser._open_call,
    "server_tool_use": MessagesParser._open_call,
    "mcp_tool_use": MessagesParser._open_call,
    "container_upload": MessagesParser._open_upload,
}  # types that end with `_tool_result` are results; all others are stored whole
DELTA_READERS: dict[str, tuple[type, str, Callable[[Any, str], list[Payload]]]] = {
    "text_delta": (TextBlock, "text", TextBlock.feed),
    "thinking_delta": (ThinkingBlock, "thinking", ThinkingBlock.feed),
    "signature_delta": (ThinkingBlock, "signature", ThinkingBlock.sign),
    "input_json_delta": (CallBlock, "partial_json", CallBlock.feed),
}
CITATION_FIELDS = frozenset(Citation.__struct_fields__)


def extra_fields(data: JsonObject, known: Set[str]) -> JsonObject | None:
    return {name: value for name, value in data.items() if name not in known and value is not None} or None


def bounded_text(text: Any) -> str | None:
    """Return at most `MAX_ERROR_CHARS` characters of a provider's text; None if it is no text."""
    if not isinstance(text, str):
        return None
    return replace_lone_surrogates(text)[:MAX_ERROR_CHARS]


def parse_provider_error(data: JsonObject, content: Any) -> ErrorInfo | None:
    """Return why a tool of the provider failed, with its content as details; None if it did not fail."""
    if data.get("is_error") is True:
        message = bounded_text(content) or "The tool failed."
        return ErrorInfo(code="error", message=message, details={"content": content})

    if not isinstance(content, dict):
        return None
    kind = content.get("type")
    if not isinstance(kind, str) or not kind.endswith("_error"):
        return None
    code = printable_name(content.get("error_code")) or "error"
    message = bounded_text(content.get("error_message")) or code
    return ErrorInfo(code=code, message=message, details={"content": content})


def parse_output_files(content: Any) -> tuple[File, ...]:
    outputs = content.get("content") if isinstance(content, dict) else content
    files: list[File] = []
    for output in as_list(outputs):
        file_id = as_opaque_id(get_field(output, "file_id"))
        if file_id:
            location = f"provider:{file_id}"
            files.append(File(file_id=file_id, filename=file_id, storage_location=location))
    return tuple(files)
