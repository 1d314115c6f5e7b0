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
from turnlog.events import Citation, Fault, File, Payload, ToolResult, Usage
from turnlog.events.payload import Count
from turnlog.parse.blocks import Block, CallBlock, OtherBlock, TextBlock, ThinkingBlock
from turnlog.parse.json_values import Data, as_key, as_name, field, mended, name_of, plain, refused, valid
from turnlog.parse.reply import Reply, Stop

Take = Callable[[str], list[Payload]]

CUT = Fault(code="incomplete", message="The stream ended before the message did.")
STOPS: dict[str, Stop] = {
    "end_turn": "end_turn",
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_use",
    "pause_turn": "pause_turn",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_window",
    "compaction": "pause_turn",  # the context was compacted, and the model wants to go on
}
COUNTS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_input_tokens": "cache_read_tokens",
    "cache_creation_input_tokens": "cache_creation_tokens",
}
RESULT = "_tool_result"  # how the names of all blocks end that answer a call of the provider's tools
MESSAGE_CHARS = 2000  # of an error


class MessagesParser:
    """Reads one message into a reply."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.stop_details: Any = None  # why a message was refused, in the provider's words
        self.container: str | None = None  # where code was executed: the next request may name it
        self._blocks: dict[int, Block] = {}  # the open ones
        self._takes: dict[tuple[int, str], tuple[str, Take]] = {}  # by index and delta: which field, and who
        self._seen: set[int] = set()
        self._tools: dict[str, str] = {}  # by call: the provider's tool
        self._counts: dict[str, int] = {}
        self._stop: Stop | None = None
        self._begun = False
        self.over = False  # whether the message has ended, in order or not

    def feed(self, event: Any) -> list[Payload]:
        """Take one raw event; the answer is what it decided."""
        try:  # nearly every event is the next piece of an open block
            fields = event if type(event) is dict else event.__dict__
            delta, kind = fields["delta"], fields["type"]
            parts = delta if type(delta) is dict else delta.__dict__
            name, take = self._takes[fields["index"], parts["type"]]
            piece = parts[name]
        except (AttributeError, KeyError, TypeError):
            return self._feed(event)
        usual = type(piece) is str and kind == "content_block_delta"
        return take(piece) if usual else self._feed(event)

    def _feed(self, event: Any) -> list[Payload]:
        kind = field(event, "type")
        read = EVENTS.get(kind) if type(kind) is str else None
        if read is None:
            return [refused("unknown_event", event, kind)]
        late = self.over and kind != "ping"
        return [refused("after_the_end", event, kind)] if late else read(self, event)

    def flush(self, error: Fault | None = None) -> list[Payload]:
        """The stream is over, in order or not."""
        if self.over:
            return []
        self.over = True
        self._blocks, self._takes = {}, {}
        self._settle_usage()
        return self.reply.abort(error or CUT)

    def _ping(self, _: Any) -> list[Payload]:
        return []

    def _error(self, event: Any) -> list[Payload]:
        problem = field(event, "error")
        code, message = name_of(field(problem, "type")) or "error", field(problem, "message")
        return self.flush(Fault(code=code, message=sentence(message) or code))

    def _start(self, event: Any) -> list[Payload]:
        if self._begun:
            return [refused("repeated_message", event)]
        self._begun = True
        message = field(event, "message")
        self.reply.begin(as_name(field(message, "model")), as_key(field(message, "id")))
        return self._count(field(message, "usage"))

    def _delta(self, event: Any) -> list[Payload]:
        """Why the message ends, and what it cost."""
        delta = field(event, "delta")
        rejects = self._count(field(event, "usage"))
        self.container = as_key(field(field(delta, "container"), "id")) or self.container
        try:
            self.stop_details = plain(field(delta, "stop_details"), vars) or self.stop_details
        except BadInput:
            rejects.append(refused("bad_stop_details", event))
        reason = field(delta, "stop_reason")
        if reason is None:
            return rejects
        self._stop = STOPS.get(reason) if type(reason) is str else None
        return rejects if self._stop else [*rejects, refused("unknown_stop_reason", event, reason)]

    def _end(self, _: Any) -> list[Payload]:
        """The message is complete; a block that was not stopped is not."""
        self.over = True
        batch = [p for index in tuple(self._blocks) for p in self.reply.drop(self._shut(index))]
        self._settle_usage()
        return [*batch, *self.reply.done(self._stop or "end_turn")]

    def _count(self, usage: Any) -> list[Payload]:
        """Counts are of the message so far: a later one replaces an earlier one."""
        counts = {name: count for name in COUNTS if (count := field(usage, name)) is not None}
        good = {name: count for name, count in counts.items() if valid(count, Count) is not None}
        self._counts |= good
        return [] if len(good) == len(counts) else [refused("bad_usage", usage)]

    def _settle_usage(self) -> None:
        self.reply.usage = Usage(**{own: self._counts.get(name, 0) for name, own in COUNTS.items()})

    def _block_start(self, event: Any) -> list[Payload]:
        index, content = field(event, "index"), field(event, "content_block")
        kind = field(content, "type")
        if type(index) is not int or type(kind) is not str:
            return [refused("bad_block", event, kind)]
        batch: list[Payload] = []
        if index in self._seen:
            batch = [refused("repeated_block", event, kind)]
            if index not in self._blocks:
                return batch
            batch = [*self.reply.drop(self._shut(index)), *batch]
        try:
            return [*batch, *self._open(index, kind, plain(content, vars))]
        except BadInput:
            return [*batch, refused("bad_block", event, kind)]

    def _open(self, index: int, kind: str, data: Data) -> list[Payload]:
        """A block begins; one that lacks what its kind needs is kept as it is."""
        otherwise = MessagesParser._result if kind.endswith(RESULT) else MessagesParser._other
        said = BLOCKS.get(kind, otherwise)(self, index, data)
        return [refused("bad_block", data, kind), *self._other(index, data)] if said is None else said

    def _opened(self, index: int, block: Block | None, data: Data) -> list[Payload]:
        """The block is open from now on, if there is room for it."""
        if block is None:
            return [refused("too_long", data, data["type"])]
        self._seen.add(index)
        self._blocks[index] = block
        for kind, (owner, name, take) in DELTAS.items():
            if type(block) is owner:
                self._takes[index, kind] = name, MethodType(take, block)
        return block.start() if isinstance(block, CallBlock | OtherBlock) else []

    def _text(self, index: int, data: Data) -> list[Payload] | None:
        text, citations = data.get("text", ""), data.get("citations") or []
        if type(text) is not str or type(citations) is not list:
            return None
        batch = self._opened(index, block := self.reply.open_text(), data)
        if block is not None:
            batch += block.feed(text)
            batch += [payload for citation in citations for payload in self._cite(block, citation)]
        return batch

    def _cite(self, block: TextBlock, data: Any) -> list[Payload]:
        """A source of a text; fields that are not known leave a trace."""
        citation = valid(data, Citation)
        if citation is None:
            return [refused("bad_citation", data)]
        unknown = rest(data, CITATION_FIELDS)
        rejects = [refused("unknown_citation_fields", unknown, citation.type)] if unknown else []
        return [*self.reply.cited(block, citation), *rejects]

    def _thinking(self, index: int, data: Data) -> list[Payload] | None:
        thinking, signature = data.get("thinking"), data.get("signature")
        if not isinstance(thinking, str | None) or not isinstance(signature, str | None):
            return None
        batch = self._opened(index, block := self.reply.open_thinking(), data)
        if block is not None:
            batch += [*block.feed(thinking or ""), *(block.sign(signature) if signature else [])]
        return batch

    def _redacted(self, index: int, data: Data) -> list[Payload] | None:
        hidden = data.get("data")
        if type(hidden) is not str:
            return None
        batch = self._opened(index, block := self.reply.open_thinking(), data)
        return [*batch, *block.redact(hidden)] if block else batch

    def _call(self, index: int, data: Data) -> list[Payload] | None:
        tool, call_id, args = as_name(data.get("name")), as_key(data.get("id")), data.get("input") or {}
        if tool is None or call_id is None or type(args) is not dict:
            return None
        own = data["type"] == "tool_use"
        extra = rest(data, {"id", "name", "input"} | ({"type"} if own else set()))
        if not own:
            self._tools[call_id] = tool
        block = self.reply.open_call(tool, call_id, None if own else "provider", args, extra)
        return self._opened(index, block, data)

    def _result(self, index: int, data: Data) -> list[Payload] | None:
        kind, call_id, content = as_name(data["type"]), as_key(data.get("tool_use_id")), data.get("content")
        if kind is None or call_id is None:
            return None
        error = fault_of(data, content)
        result = ToolResult(
            call_id=call_id,
            tool=self._tools.get(call_id) or kind.removesuffix(RESULT) or kind,
            ok=error is None,
            result=None if error else content,
            error=error,
            kind=kind,
            extra=rest(data, {"type", "tool_use_id", "content"}),
        )
        return self._opened(index, self.reply.open_result(result, files_of(content)), data)

    def _other(self, index: int, data: Data) -> list[Payload]:
        kind = name_of(data["type"]) or "unknown"
        return self._opened(index, self.reply.open_other(kind, data), data)

    def _upload(self, index: int, data: Data) -> list[Payload]:
        block = self.reply.open_other("container_upload", data, files_of([data]))
        return self._opened(index, block, data)

    def _block_delta(self, event: Any) -> list[Payload]:
        index, delta = field(event, "index"), field(event, "delta")
        kind = field(delta, "type")
        if type(index) is not int or index not in self._blocks:
            return [refused("no_block", event, kind)]
        if type(kind) is str and (index, kind) in self._takes:
            name, take = self._takes[index, kind]
            piece = field(delta, name)
            return take(piece) if type(piece) is str else [refused("bad_delta", event, kind)]
        return self._odd_delta(event, self._blocks[index], kind, delta)

    def _odd_delta(self, event: Any, block: Block, kind: Any, delta: Any) -> list[Payload]:
        """A delta that is not a piece of text for its block."""
        try:
            data = plain(delta, vars)
        except BadInput:
            data = None
        if type(data) is dict and isinstance(block, OtherBlock):
            # texts as they came: half a pair of surrogates may be made whole by the next delta
            raw = {name: piece for name in data if isinstance(piece := field(delta, name), str)}
            return block.merge(rest(data | raw, {"type"}) or {})
        if type(data) is dict and isinstance(block, TextBlock) and kind == "citations_delta":
            return self._cite(block, data.get("citation"))
        return [refused("bad_delta", event, kind)]

    def _block_stop(self, event: Any) -> list[Payload]:
        index = field(event, "index")
        if type(index) is not int or index not in self._blocks:
            return [refused("no_block", event)]
        return self.reply.close(self._shut(index))

    @property
    def open_blocks(self) -> Set[int]:
        """The blocks that have not ended, by their index."""
        return self._blocks.keys()

    def drop(self, index: int) -> list[Payload]:
        """A block will not be completed, although the message goes on."""
        return self.reply.drop(self._shut(index)) if index in self._blocks else []

    def _shut(self, index: int) -> Block:
        for kind in DELTAS:
            self._takes.pop((index, kind), None)
        return self._blocks.pop(index)


EVENTS: dict[str, Callable[[MessagesParser, Any], list[Payload]]] = {
    "message_start": MessagesParser._start,
    "content_block_start": MessagesParser._block_start,
    "content_block_delta": MessagesParser._block_delta,
    "content_block_stop": MessagesParser._block_stop,
    "message_delta": MessagesParser._delta,
    "message_stop": MessagesParser._end,
    "ping": MessagesParser._ping,
    "error": MessagesParser._error,
}
BLOCKS: dict[str, Callable[[MessagesParser, int, Data], list[Payload] | None]] = {
    "text": MessagesParser._text,
    "thinking": MessagesParser._thinking,
    "redacted_thinking": MessagesParser._redacted,
    "tool_use": MessagesParser._call,
    "server_tool_use": MessagesParser._call,
    "mcp_tool_use": MessagesParser._call,
    "container_upload": MessagesParser._upload,
}  # blocks that end with `_tool_result` are results, all others are kept as they are
DELTAS: dict[str, tuple[type, str, Callable[[Any, str], list[Payload]]]] = {
    "text_delta": (TextBlock, "text", TextBlock.feed),
    "thinking_delta": (ThinkingBlock, "thinking", ThinkingBlock.feed),
    "signature_delta": (ThinkingBlock, "signature", ThinkingBlock.sign),
    "input_json_delta": (CallBlock, "partial_json", CallBlock.feed),
}
CITATION_FIELDS = frozenset(Citation.__struct_fields__)


def rest(data: Data, known: Set[str]) -> Data | None:
    """What a block says beside what is known of it."""
    return {name: value for name, value in data.items() if name not in known and value is not None} or None


def sentence(text: Any) -> str | None:
    """The provider's words, if they are words."""
    return mended(text)[:MESSAGE_CHARS] if isinstance(text, str) else None


def fault_of(data: Data, content: Any) -> Fault | None:
    """Why a tool of the provider failed, with its answer whole."""
    if data.get("is_error") is True:
        return Fault(
            code="error", message=sentence(content) or "The tool failed.", details={"content": content}
        )
    kind = content.get("type") if isinstance(content, dict) else None
    if not (isinstance(kind, str) and kind.endswith("_error")):
        return None
    code = name_of(content.get("error_code")) or "error"
    message = sentence(content.get("error_message")) or code
    return Fault(code=code, message=message, details={"content": content})


def files_of(content: Any) -> tuple[File, ...]:
    """The files that a result names; where they are, the provider knows."""
    outputs = content.get("content") if isinstance(content, dict) else content
    ids = [as_key(field(output, "file_id")) for output in outputs] if isinstance(outputs, list) else []
    return tuple(
        File(file_id=file_id, filename=file_id, storage_location=f"provider:{file_id}")
        for file_id in ids
        if file_id
    )
