"""The stream of Anthropic's Messages API: raw events in, batches of a `Reply` out (docs/protocol.md 5).

An event is a dict or an object of any SDK: what it is follows from its `type`, through tables. One parser
reads one message. Blocks are known by their index and may interleave. A block that is known but wrong, and
one that is not known, is kept whole as `assistant.block`; what has no place at all leaves a `parse.reject`.
A message is complete with `message_stop`. When the stream ends otherwise, `flush` closes what is open with
what there was, and `reply.error` says why. Never raises; its memory is bounded by the reply's limits.
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
    as_name,
    as_opaque_id,
    convert_or_none,
    get_field,
    make_reject,
    printable_name,
    to_json_value,
)
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
    "compaction": "pause_turn",  # the context was compacted, and the model wants to go on
}
USAGE_FIELDS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_input_tokens": "cache_read_tokens",
    "cache_creation_input_tokens": "cache_creation_tokens",
}
RESULT_SUFFIX = "_tool_result"  # how the names of all blocks end that answer a call of the provider's tools
MAX_ERROR_CHARS = 2000  # of an error


class MessagesParser:
    """Reads one message into a reply."""

    def __init__(self, reply: ReplyBuilder) -> None:
        self.reply = reply
        self.stop_details: Any = None  # why a message was refused, in the provider's words
        self.container: str | None = None  # where code was executed: the next request may name it
        self._blocks: dict[int, Block] = {}  # the open ones
        self._delta_sinks: dict[
            tuple[int, str], tuple[str, DeltaSink]
        ] = {}  # by index and delta: which field, and who
        self._known_indexes: set[int] = set()
        self._provider_tools: dict[str, str] = {}  # by call: the provider's tool
        self._token_counts: dict[str, int] = {}
        self._stop_reason: MessageStop | None = None
        self._has_started = False
        self.has_ended = False  # whether the message has ended, in order or not

    def feed(self, event: Any) -> list[Payload]:
        """Take one raw event; the answer is what it decided."""
        try:  # nearly every event is the next piece of an open block
            fields = event if type(event) is dict else event.__dict__
            delta, kind = fields["delta"], fields["type"]
            parts = delta if type(delta) is dict else delta.__dict__
            name, take = self._delta_sinks[fields["index"], parts["type"]]
            piece = parts[name]
        except (AttributeError, KeyError, TypeError):
            return self._dispatch(event)
        usual = type(piece) is str and kind == "content_block_delta"
        return take(piece) if usual else self._dispatch(event)

    def _dispatch(self, event: Any) -> list[Payload]:
        kind = get_field(event, "type")
        read = EVENT_READERS.get(kind) if type(kind) is str else None
        if read is None:
            return [make_reject("unknown_event", event, kind)]
        late = self.has_ended and kind != "ping"
        return [make_reject("after_the_end", event, kind)] if late else read(self, event)

    def flush(self, error: ErrorInfo | None = None) -> list[Payload]:
        """The stream is over, in order or not."""
        if self.has_ended:
            return []
        self.has_ended = True
        self._blocks, self._delta_sinks = {}, {}
        self._store_usage()
        return self.reply.abort(error or INCOMPLETE)

    def _on_ping(self, _: Any) -> list[Payload]:
        return []

    def _on_error(self, event: Any) -> list[Payload]:
        problem = get_field(event, "error")
        code, message = printable_name(get_field(problem, "type")) or "error", get_field(problem, "message")
        return self.flush(ErrorInfo(code=code, message=bounded_text(message) or code))

    def _on_message_start(self, event: Any) -> list[Payload]:
        if self._has_started:
            return [make_reject("repeated_message", event)]
        self._has_started = True
        message = get_field(event, "message")
        self.reply.begin(as_name(get_field(message, "model")), as_opaque_id(get_field(message, "id")))
        return self._update_counts(get_field(message, "usage"))

    def _on_message_delta(self, event: Any) -> list[Payload]:
        """Why the message ends, and what it cost."""
        delta = get_field(event, "delta")
        rejects = self._update_counts(get_field(event, "usage"))
        self.container = as_opaque_id(get_field(get_field(delta, "container"), "id")) or self.container
        try:
            self.stop_details = to_json_value(get_field(delta, "stop_details"), vars) or self.stop_details
        except BadInput:
            rejects.append(make_reject("bad_stop_details", event))
        reason = get_field(delta, "stop_reason")
        if reason is None:
            return rejects
        self._stop_reason = STOP_REASONS.get(reason) if type(reason) is str else None
        return rejects if self._stop_reason else [*rejects, make_reject("unknown_stop_reason", event, reason)]

    def _on_message_stop(self, _: Any) -> list[Payload]:
        """The message is complete; a block that was not stopped is not."""
        self.has_ended = True
        batch = [p for index in tuple(self._blocks) for p in self.reply.drop(self._forget_block(index))]
        self._store_usage()
        return [*batch, *self.reply.done(self._stop_reason or "end_turn")]

    def _update_counts(self, usage: Any) -> list[Payload]:
        """Counts are of the message so far: a later one replaces an earlier one."""
        counts = {name: count for name in USAGE_FIELDS if (count := get_field(usage, name)) is not None}
        good = {name: count for name, count in counts.items() if convert_or_none(count, Count) is not None}
        self._token_counts |= good
        return [] if len(good) == len(counts) else [make_reject("bad_usage", usage)]

    def _store_usage(self) -> None:
        self.reply.usage = Usage(
            **{own: self._token_counts.get(name, 0) for name, own in USAGE_FIELDS.items()}
        )

    def _on_block_start(self, event: Any) -> list[Payload]:
        index, content = get_field(event, "index"), get_field(event, "content_block")
        kind = get_field(content, "type")
        if type(index) is not int or type(kind) is not str:
            return [make_reject("bad_block", event, kind)]
        batch: list[Payload] = []
        if index in self._known_indexes:
            batch = [make_reject("repeated_block", event, kind)]
            if index not in self._blocks:
                return batch
            batch = [*self.reply.drop(self._forget_block(index)), *batch]
        try:
            return [*batch, *self._open_block(index, kind, to_json_value(content, vars))]
        except BadInput:
            return [*batch, make_reject("bad_block", event, kind)]

    def _open_block(self, index: int, kind: str, data: JsonObject) -> list[Payload]:
        """A block begins; one that lacks what its kind needs is kept as it is."""
        otherwise = (
            MessagesParser._open_result if kind.endswith(RESULT_SUFFIX) else MessagesParser._open_other
        )
        said = BLOCK_OPENERS.get(kind, otherwise)(self, index, data)
        return (
            [make_reject("bad_block", data, kind), *self._open_other(index, data)] if said is None else said
        )

    def _register(self, index: int, block: Block | None, data: JsonObject) -> list[Payload]:
        """The block is open from now on, if there is room for it."""
        if block is None:
            return [make_reject("too_long", data, data["type"])]
        self._known_indexes.add(index)
        self._blocks[index] = block
        for kind, (owner, name, take) in DELTA_READERS.items():
            if type(block) is owner:
                self._delta_sinks[index, kind] = name, MethodType(take, block)
        return block.start() if isinstance(block, CallBlock | OtherBlock) else []

    def _open_text(self, index: int, data: JsonObject) -> list[Payload] | None:
        text, citations = data.get("text", ""), data.get("citations") or []
        if type(text) is not str or type(citations) is not list:
            return None
        batch = self._register(index, block := self.reply.open_text(), data)
        if block is not None:
            batch += block.feed(text)
            batch += [payload for citation in citations for payload in self._add_citation(block, citation)]
        return batch

    def _add_citation(self, block: TextBlock, data: Any) -> list[Payload]:
        """A source of a text; fields that are not known leave a trace."""
        citation = convert_or_none(data, Citation)
        if citation is None:
            return [make_reject("bad_citation", data)]
        unknown = extra_fields(data, CITATION_FIELDS)
        rejects = [make_reject("unknown_citation_fields", unknown, citation.type)] if unknown else []
        return [*self.reply.add_citation(block, citation), *rejects]

    def _open_thinking(self, index: int, data: JsonObject) -> list[Payload] | None:
        thinking, signature = data.get("thinking"), data.get("signature")
        if not isinstance(thinking, str | None) or not isinstance(signature, str | None):
            return None
        batch = self._register(index, block := self.reply.open_thinking(), data)
        if block is not None:
            batch += [*block.feed(thinking or ""), *(block.sign(signature) if signature else [])]
        return batch

    def _open_redacted(self, index: int, data: JsonObject) -> list[Payload] | None:
        hidden = data.get("data")
        if type(hidden) is not str:
            return None
        batch = self._register(index, block := self.reply.open_thinking(), data)
        return [*batch, *block.redact(hidden)] if block else batch

    def _open_call(self, index: int, data: JsonObject) -> list[Payload] | None:
        tool, call_id, args = as_name(data.get("name")), as_opaque_id(data.get("id")), data.get("input") or {}
        if tool is None or call_id is None or type(args) is not dict:
            return None
        own = data["type"] == "tool_use"
        extra = extra_fields(data, {"id", "name", "input"} | ({"type"} if own else set()))
        if not own:
            self._provider_tools[call_id] = tool
        block = self.reply.open_call(tool, call_id, None if own else "provider", args, extra)
        return self._register(index, block, data)

    def _open_result(self, index: int, data: JsonObject) -> list[Payload] | None:
        kind, call_id, content = (
            as_name(data["type"]),
            as_opaque_id(data.get("tool_use_id")),
            data.get("content"),
        )
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
        index, delta = get_field(event, "index"), get_field(event, "delta")
        kind = get_field(delta, "type")
        if type(index) is not int or index not in self._blocks:
            return [make_reject("no_block", event, kind)]
        if type(kind) is str and (index, kind) in self._delta_sinks:
            name, take = self._delta_sinks[index, kind]
            piece = get_field(delta, name)
            return take(piece) if type(piece) is str else [make_reject("bad_delta", event, kind)]
        return self._apply_other_delta(event, self._blocks[index], kind, delta)

    def _apply_other_delta(self, event: Any, block: Block, kind: Any, delta: Any) -> list[Payload]:
        """A delta that is not a piece of text for its block."""
        try:
            data = to_json_value(delta, vars)
        except BadInput:
            data = None
        if type(data) is dict and isinstance(block, OtherBlock):
            # texts as they came: half a pair of surrogates may be made whole by the next delta
            raw = {name: piece for name in data if isinstance(piece := get_field(delta, name), str)}
            return block.merge(extra_fields(data | raw, {"type"}) or {})
        if type(data) is dict and isinstance(block, TextBlock) and kind == "citations_delta":
            return self._add_citation(block, data.get("citation"))
        return [make_reject("bad_delta", event, kind)]

    def _on_block_stop(self, event: Any) -> list[Payload]:
        index = get_field(event, "index")
        if type(index) is not int or index not in self._blocks:
            return [make_reject("no_block", event)]
        return self.reply.close(self._forget_block(index))

    @property
    def open_indexes(self) -> Set[int]:
        """The blocks that have not ended, by their index."""
        return self._blocks.keys()

    def drop(self, index: int) -> list[Payload]:
        """A block will not be completed, although the message goes on."""
        return self.reply.drop(self._forget_block(index)) if index in self._blocks else []

    def _forget_block(self, index: int) -> Block:
        for kind in DELTA_READERS:
            self._delta_sinks.pop((index, kind), None)
        return self._blocks.pop(index)


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
}  # blocks that end with `_tool_result` are results, all others are kept as they are
DELTA_READERS: dict[str, tuple[type, str, Callable[[Any, str], list[Payload]]]] = {
    "text_delta": (TextBlock, "text", TextBlock.feed),
    "thinking_delta": (ThinkingBlock, "thinking", ThinkingBlock.feed),
    "signature_delta": (ThinkingBlock, "signature", ThinkingBlock.sign),
    "input_json_delta": (CallBlock, "partial_json", CallBlock.feed),
}
CITATION_FIELDS = frozenset(Citation.__struct_fields__)


def extra_fields(data: JsonObject, known: Set[str]) -> JsonObject | None:
    """What a block says beside what is known of it."""
    return {name: value for name, value in data.items() if name not in known and value is not None} or None


def bounded_text(text: Any) -> str | None:
    """The provider's words, if they are words."""
    return replace_lone_surrogates(text)[:MAX_ERROR_CHARS] if isinstance(text, str) else None


def parse_provider_error(data: JsonObject, content: Any) -> ErrorInfo | None:
    """Why a tool of the provider failed, with its answer whole."""
    if data.get("is_error") is True:
        return ErrorInfo(
            code="error", message=bounded_text(content) or "The tool failed.", details={"content": content}
        )
    kind = content.get("type") if isinstance(content, dict) else None
    if not (isinstance(kind, str) and kind.endswith("_error")):
        return None
    code = printable_name(content.get("error_code")) or "error"
    message = bounded_text(content.get("error_message")) or code
    return ErrorInfo(code=code, message=message, details={"content": content})


def parse_output_files(content: Any) -> tuple[File, ...]:
    """The files that a result names; where they are, the provider knows."""
    outputs = content.get("content") if isinstance(content, dict) else content
    ids = (
        [as_opaque_id(get_field(output, "file_id")) for output in outputs]
        if isinstance(outputs, list)
        else []
    )
    return tuple(
        File(file_id=file_id, filename=file_id, storage_location=f"provider:{file_id}")
        for file_id in ids
        if file_id
    )
