"""The dialect `blocks-raw`: the events of the Anthropic Messages stream, made up again from the log.

Every message is one JSON object. The six kinds of the provider come per completion of an agent, with dense
indexes: `message_start` with its first content, `content_block_start`, `_delta` and `_stop`, then
`message_delta` and `message_stop` once its usage and its stop reason are known. They carry one more key,
`agent`, which tells interleaved agents apart. Everything else (`meta_init`, `tool_result`, `meta_files`,
`awaiting_frontend_tools`, `error`, `meta_final`, `rollback`) is said as in `blocks`, where the original put
lines of XML. A rollback counts content blocks.

A text is stopped by its durable twin, which the log holds right after the block's end, because citations and
signatures are known only then; if the agent says something else first, the block is stopped and its citations
are said as in `blocks`. The stop reason is null when the message was cut (retracted, cancelled, failed) and
pause_turn when its agent goes on without a call. A completion without content is not said. Deltas of text,
thinking and arguments have at most 2048 bytes; what the provider sends whole is whole. The state is what the
running agents have open or can retract: it is empty between turns.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from turnlog.events import (
    AgentEnd,
    AgentStart,
    AgentUsage,
    AssistantBlock,
    AssistantFiles,
    AssistantMessage,
    AssistantThinking,
    BlockDelta,
    BlockEnd,
    BlockRetract,
    BlockStart,
    Envelope,
    Payload,
    SessionError,
    ToolAwait,
    ToolCall,
    ToolResult,
    UnknownPayload,
    Usage,
)
from turnlog.state.content_parts import call_part, provider_result_part
from turnlog.wire.chunks import chunk
from turnlog.wire.dialects.base import (
    DEFAULT_OPTIONS,
    DONE,
    STREAMED_KINDS,
    BlocksOptions,
    HistoryLookup,
    RetractableBlocks,
    no_history,
    strip_agent_prefix,
    to_json_text,
    usage_json,
)
from turnlog.wire.dialects.blocks import Blocks, encode_citations
from turnlog.wire.dialects.blocks_meta import AgentMetaBuilder
from turnlog.wire.dialects.blocks_xml import split_to_fit

JsonObject = dict[str, Any]

EMPTY_CONTENT: dict[str, JsonObject] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}
DELTA_TYPES = {"text": "text_delta", "thinking": "thinking_delta", "partial_json": "input_json_delta"}
PROVIDER_STOP_REASONS: dict[str, str | None] = {  # the others end a message as its content says
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "context_window": "model_context_window_exceeded",
    "refusal": "refusal",
    "timeout": None,
    "cancelled": None,
    "error": None,
}


@dataclass(slots=True)
class OpenRawBlock:
    """A text or thinking block between its start and its durable twin."""

    kind: str
    index: int | None = None  # while its content block is open
    has_started: bool = False
    has_ended: bool = False


@dataclass(slots=True)
class OpenRawMessage:
    """The message that an agent is in."""

    is_open: bool = False
    block_count: int = 0
    has_calls: bool = False
    has_incomplete_call: bool = (
        False  # the arguments of a call are incomplete: its stop reason is not tool_use
    )
    usage: Usage | None = None


@dataclass(slots=True)
class RawAgentState:
    """What has to be remembered of an agent, from its start to its end; it writes its own messages."""

    id: str
    model: str = ""
    running: bool = False
    blocks: dict[str, OpenRawBlock] = field(default_factory=dict)
    retractable: RetractableBlocks = field(default_factory=RetractableBlocks)
    open_message: OpenRawMessage = field(default_factory=OpenRawMessage)

    def encode_message(self, type: str, **fields: Any) -> bytes:
        return msgspec.json.encode({"type": type, **fields, "agent": self.id})

    def start_message(self, event_id: str) -> list[bytes]:
        """Be in a message: the one before is over once its usage is known."""
        if self.open_message.is_open and self.open_message.usage is None:
            return self.stop_ended_blocks()
        before = self.finish_message("tool_use" if self.open_message.has_calls else "pause_turn")
        self.open_message = OpenRawMessage(is_open=True)
        message: JsonObject = {
            "id": "msg_" + event_id.removeprefix("evt_"),
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_json(None),
        }
        return [*before, self.encode_message("message_start", message=message)]

    def start_block(self, event_id: str, key: str, content: JsonObject) -> tuple[int, list[bytes]]:
        """A content block and its index."""
        before = self.start_message(event_id)
        index = self.open_message.block_count
        self.open_message.block_count += 1
        self.retractable.add(key or None)
        return index, [
            *before,
            self.encode_message("content_block_start", index=index, content_block=content),
        ]

    def encode_text_deltas(self, index: int, name: str, text: str) -> list[bytes]:
        """A text in deltas of bounded size."""
        return split_to_fit(
            text, lambda piece: self.encode_delta(index, {"type": DELTA_TYPES[name], name: piece})
        )

    def encode_delta(self, index: int, delta: JsonObject) -> bytes:
        return self.encode_message("content_block_delta", index=index, delta=delta)

    def encode_block_stop(self, index: int) -> bytes:
        return self.encode_message("content_block_stop", index=index)

    def stop_ended_blocks(self) -> list[bytes]:
        """Stop the blocks that wait for their twins."""
        return self._stop_blocks([block for block in self.blocks.values() if block.has_ended])

    def _stop_blocks(self, blocks: Iterable[OpenRawBlock]) -> list[bytes]:
        messages = []
        for block in blocks:
            if block.index is not None:
                messages.append(self.encode_block_stop(block.index))
                block.index = None
        return messages

    def finish_message(self, reason: str | None) -> list[bytes]:
        """End the message, if there is one."""
        reply, self.open_message = self.open_message, OpenRawMessage()
        if not reply.is_open:
            return []
        delta = {"stop_reason": reason, "stop_sequence": None}
        return [
            *self._stop_blocks(self.blocks.values()),
            self.encode_message("message_delta", delta=delta, usage=usage_json(reply.usage)),
            self.encode_message("message_stop"),
        ]

    def write_whole_block(
        self,
        event_id: str,
        key: str,
        content: JsonObject,
        texts: JsonObject,
        final_deltas: Iterable[JsonObject] = (),
    ) -> list[bytes]:
        """A content block at once: its texts by the name of their delta, then what ends it."""
        index, messages = self.start_block(event_id, key, content)
        for name, text in texts.items():
            messages += self.encode_text_deltas(index, name, text)
        return [
            *messages,
            *(self.encode_delta(index, delta) for delta in final_deltas),
            self.encode_block_stop(index),
        ]


class BlocksRaw:
    """One projection of a session's log. `history` gives an agent's conversation as of the event at hand."""

    def __init__(self, options: BlocksOptions = DEFAULT_OPTIONS, history: HistoryLookup = no_history) -> None:
        self._options = options
        self._blocks_dialect = Blocks(options, history)  # only for events that leave no state in it
        self._meta = AgentMetaBuilder(options, history)
        self._agents: dict[str, RawAgentState] = {}

    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        """The messages of one event. An agent that is not running has nobody to end its message later."""
        convert = CONVERTERS.get(type(payload))
        if convert is None:
            return []
        name = strip_agent_prefix(envelope.agent_id or "")
        agent = self._agents.pop(name, None) or RawAgentState(name)
        messages = convert(self, agent, envelope, payload)
        if agent.running or agent.blocks:
            self._agents[name] = agent
            return messages
        return messages + agent.finish_message("tool_use" if agent.open_message.has_calls else "end_turn")

    def close(self) -> list[bytes]:
        """What ends a response; a message that is open is cut, unless all it waits for is its calls."""
        ends = [
            agent.finish_message(
                "tool_use"
                if agent.open_message.has_calls and not agent.open_message.has_incomplete_call
                else None
            )
            for agent in self._agents.values()
        ]
        return [*(message for messages in ends for message in messages), DONE]

    @property
    def idle(self) -> bool:
        """Whether nothing is open: the state is empty between turns."""
        return not self._agents

    def _agent_start(self, agent: RawAgentState, _: Envelope, payload: AgentStart) -> list[bytes]:
        agent.running, agent.model = True, payload.model or ""
        return chunk("meta_init", agent.id, to_json_text(self._meta.build_init(agent.id, payload, "raw")))

    def _agent_end(self, agent: RawAgentState, envelope: Envelope, payload: AgentEnd) -> list[bytes]:
        otherwise = "tool_use" if agent.open_message.has_calls else "end_turn"
        messages = agent.finish_message(PROVIDER_STOP_REASONS.get(payload.stop_reason, otherwise))
        agent.running = False
        agent.blocks.clear()
        return messages + self._blocks_dialect.convert(envelope, payload)

    def _agent_usage(self, agent: RawAgentState, _: Envelope, payload: AgentUsage) -> list[bytes]:
        """The completion is over; unless it made calls, what follows says why."""
        reply = agent.open_message
        reply.usage = payload.usage
        return agent.finish_message("tool_use") if reply.has_calls and not reply.has_incomplete_call else []

    def _block_start(self, agent: RawAgentState, _: Envelope, payload: BlockStart) -> list[bytes]:
        if payload.kind in STREAMED_KINDS:
            agent.blocks[payload.block_id] = OpenRawBlock(payload.kind)
        return []

    def _block_delta(self, agent: RawAgentState, envelope: Envelope, payload: BlockDelta) -> list[bytes]:
        key = payload.block_id
        block = agent.blocks.get(key)
        if block is None or not payload.text:
            return []
        messages: list[bytes] = []
        if block.index is None:
            block.index, messages = agent.start_block(envelope.id, key, EMPTY_CONTENT[block.kind])
            block.has_started = True
        return messages + agent.encode_text_deltas(block.index, block.kind, payload.text)

    def _block_end(self, agent: RawAgentState, envelope: Envelope, payload: BlockEnd) -> list[bytes]:
        """A complete block waits for its twin, an aborted one has none."""
        key = payload.block_id
        if payload.status == "complete":
            if key in agent.blocks:
                agent.blocks[key].has_ended = True
            return []
        block = agent.blocks.pop(key, None)
        if block and block.index is not None:
            return [agent.encode_block_stop(block.index)]
        if block is None or block.has_started or not payload.text:
            return []
        return agent.write_whole_block(
            envelope.id, key, EMPTY_CONTENT[block.kind], {block.kind: payload.text}
        )

    def _message(self, agent: RawAgentState, envelope: Envelope, payload: AssistantMessage) -> list[bytes]:
        ends = [{"type": "citations_delta", "citation": item} for item in payload.citations]
        return self._final_block(agent, envelope, payload, EMPTY_CONTENT["text"], ends)

    def _thinking(self, agent: RawAgentState, envelope: Envelope, payload: AssistantThinking) -> list[bytes]:
        redacted = payload.redacted is not None and not payload.text
        content = (
            {"type": "redacted_thinking", "data": payload.redacted} if redacted else EMPTY_CONTENT["thinking"]
        )
        ends = [{"type": "signature_delta", "signature": payload.signature}] if payload.signature else []
        return self._final_block(agent, envelope, payload, content, ends)

    def _final_block(
        self,
        agent: RawAgentState,
        envelope: Envelope,
        payload: AssistantMessage | AssistantThinking,
        content: JsonObject,
        final_deltas: list[JsonObject],
    ) -> list[bytes]:
        """What ends a text; and the text itself, unless its deltas said it."""
        key = payload.block_id or ""
        block = agent.blocks.pop(key, None)
        if block and block.index is not None:
            return [
                *(agent.encode_delta(block.index, delta) for delta in final_deltas),
                agent.encode_block_stop(block.index),
            ]
        if block and block.has_started:
            return (
                encode_citations(agent.id, payload.citations) if isinstance(payload, AssistantMessage) else []
            )
        if not (payload.text or final_deltas or "data" in content):
            return []
        said = {content["type"]: payload.text} if payload.text else {}
        return agent.write_whole_block(envelope.id, key, content, said, final_deltas)

    def _assistant_block(
        self, agent: RawAgentState, envelope: Envelope, payload: AssistantBlock
    ) -> list[bytes]:
        """A block of a kind that only the provider knows, as it came."""
        content = {"type": payload.kind, **payload.data}
        return agent.write_whole_block(envelope.id, payload.block_id or "", content, {})

    def _retract(self, agent: RawAgentState, _: Envelope, payload: BlockRetract) -> list[bytes]:
        """End the message; the retry is another one."""
        count = agent.retractable.retract(payload.block_ids)
        messages = agent.finish_message(None) if count else []
        for key in payload.block_ids:
            agent.blocks.pop(key, None)
        return messages + (chunk("rollback", agent.id, to_json_text({"blocks": count})) if count else [])

    def _tool_call(self, agent: RawAgentState, envelope: Envelope, payload: ToolCall) -> list[bytes]:
        client = payload.executor != "provider"
        args = to_json_text(payload.args) if payload.incomplete is None else payload.incomplete
        content = call_part(payload) | {"input": {}}  # the arguments follow as deltas
        messages = agent.write_whole_block(
            envelope.id, payload.block_id or "", content, {"partial_json": args}
        )
        agent.open_message.has_calls |= client
        agent.open_message.has_incomplete_call |= payload.incomplete is not None
        return messages

    def _tool_result(self, agent: RawAgentState, envelope: Envelope, payload: ToolResult) -> list[bytes]:
        """The provider's own results are content; others come when the message with the call is over."""
        if payload.kind is None:
            return self._convert_after_calls(agent, envelope, payload)
        if not self._options.stream_tool_results:
            return []
        return agent.write_whole_block(envelope.id, "", provider_result_part(payload), {})

    def _convert_after_calls(
        self, agent: RawAgentState, envelope: Envelope, payload: ToolResult | ToolAwait
    ) -> list[bytes]:
        messages = agent.finish_message("tool_use") if agent.open_message.has_calls else []
        return messages + self._blocks_dialect.convert(envelope, payload)

    def _convert_as_blocks(
        self, _: RawAgentState, envelope: Envelope, payload: AssistantFiles | SessionError
    ) -> list[bytes]:
        return self._blocks_dialect.convert(envelope, payload)


CONVERTERS: dict[type, Callable[[BlocksRaw, RawAgentState, Envelope, Any], list[bytes]]] = {
    AgentStart: BlocksRaw._agent_start,
    AgentEnd: BlocksRaw._agent_end,
    AgentUsage: BlocksRaw._agent_usage,
    BlockStart: BlocksRaw._block_start,
    BlockDelta: BlocksRaw._block_delta,
    BlockEnd: BlocksRaw._block_end,
    BlockRetract: BlocksRaw._retract,
    AssistantMessage: BlocksRaw._message,
    AssistantThinking: BlocksRaw._thinking,
    AssistantBlock: BlocksRaw._assistant_block,
    AssistantFiles: BlocksRaw._convert_as_blocks,
    ToolCall: BlocksRaw._tool_call,
    ToolResult: BlocksRaw._tool_result,
    ToolAwait: BlocksRaw._convert_after_calls,
    SessionError: BlocksRaw._convert_as_blocks,
}
