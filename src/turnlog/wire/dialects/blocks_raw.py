"""The dialect `blocks-raw`: the events of the Anthropic Messages stream, rebuilt from the log.

- The six kinds of the provider are JSON objects. They are sent for each completion of an agent, with dense
  indexes, and carry one more key, `agent`. `message_delta` and `message_stop` follow once the
  usage and the stop reason are known. A completion without content is not sent.
- `meta_init`, `tool_result`, `awaiting_frontend_tools`, `meta_files`, `error` and `meta_final` are the tags
  of `blocks-xml`. A rollback is that of `blocks` and counts content blocks.
- A text is stopped by its final event, which has the citations and the signature. The stop repeats a text
  with citations: readers take them from there. If the agent writes something else first, the block is stopped
  and its citations are sent as in `blocks`.
- The stop reason is null if the message was cut, and pause_turn if its agent continues without a call.
- Deltas have at most 2048 bytes; what the provider sends whole is sent whole.
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
from turnlog.state.content_parts import (
    block_part,
    call_part,
    message_part,
    provider_result_part,
    redacted_thinking_part,
)
from turnlog.wire.dialects._common import (
    call_args,
    chunk_json,
    to_json_text,
    usage_json,
)
from turnlog.wire.dialects.agent_names import AgentNames
from turnlog.wire.dialects.base import DEFAULT_OPTIONS, DONE, DialectOptions, HistoryLookup, no_history
from turnlog.wire.dialects.block_tracker import BlockTracker, OpenBlock
from turnlog.wire.dialects.blocks import encode_citations
from turnlog.wire.dialects.blocks_meta import AgentMetaBuilder
from turnlog.wire.dialects.blocks_xml import (
    encode_element,
    encode_xml_await,
    encode_xml_error,
    encode_xml_files,
    encode_xml_result,
    pack_messages,
    split_to_fit,
)

JsonObject = dict[str, Any]

EMPTY_CONTENT: dict[str, JsonObject] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}
DELTA_TYPES = {"text": "text_delta", "thinking": "thinking_delta", "partial_json": "input_json_delta"}
PROVIDER_STOP_REASONS: dict[str, str | None] = {  # for all others the content of the message decides
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "context_window": "model_context_window_exceeded",
    "refusal": "refusal",
    "timeout": None,
    "cancelled": None,
    "error": None,
}


@dataclass(slots=True)
class OpenRawMessage:
    """The provider message that an agent is in."""

    is_open: bool = False
    block_count: int = 0
    has_calls: bool = False
    has_incomplete_call: bool = False  # the model was cut in the arguments: the reason is not tool_use
    usage: Usage | None = None

    def stop_reason(self, without_calls: str) -> str:
        return "tool_use" if self.has_calls else without_calls

    @property
    def is_waiting_for_calls(self) -> bool:
        return self.has_calls and not self.has_incomplete_call


@dataclass(slots=True)
class RawAgentState:
    """An agent from its start to its end. It writes its messages to `out`, which the dialect owns."""

    name: str
    out: list[bytes]
    tracker: BlockTracker
    model: str = ""
    running: bool = False
    open_message: OpenRawMessage = field(default_factory=OpenRawMessage)

    def write(self, type: str, **fields: Any) -> None:
        self.out.append(self.encode(type, **fields))

    def encode(self, type: str, **fields: Any) -> bytes:
        return msgspec.json.encode({"type": type, **fields, "agent": self.name})

    def start_message(self, event_id: str) -> None:
        """Open a message, unless one is open. A message is over once its usage is known."""
        if self.open_message.is_open and self.open_message.usage is None:
            self.stop_blocks([block for block in self.tracker.open.values() if block.has_ended])
            return

        self.finish_message(self.open_message.stop_reason(without_calls="pause_turn"))
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
        self.write("message_start", message=message)

    def start_block(self, event_id: str, block_id: str | None, content: JsonObject) -> int:
        self.start_message(event_id)
        index = self.open_message.block_count
        self.open_message.block_count += 1
        self.tracker.record_output(block_id)
        self.write("content_block_start", index=index, content_block=content)
        return index

    def write_text_deltas(self, index: int, name: str, text: str) -> None:
        def encode_piece(piece: str) -> bytes:
            delta = {"type": DELTA_TYPES[name], name: piece}
            return self.encode("content_block_delta", index=index, delta=delta)

        self.out += split_to_fit(text, encode_piece)

    def end_block(
        self, index: int, final_deltas: Iterable[JsonObject] = (), content: JsonObject | None = None
    ) -> None:
        for delta in final_deltas:
            self.write("content_block_delta", index=index, delta=delta)
        if content is None:
            self.write("content_block_stop", index=index)
        else:
            self.write("content_block_stop", index=index, content_block=content)

    def write_whole_block(
        self,
        event_id: str,
        block_id: str | None,
        content: JsonObject,
        texts: dict[str, str],
        final_deltas: Iterable[JsonObject] = (),
        whole_content: JsonObject | None = None,
    ) -> None:
        index = self.start_block(event_id, block_id, content)
        for name, text in texts.items():
            self.write_text_deltas(index, name, text)
        self.end_block(index, final_deltas, whole_content)

    def stop_blocks(self, blocks: Iterable[OpenBlock]) -> None:
        for block in blocks:
            if block.index is not None:
                self.end_block(block.index)
                block.index = None

    def finish_message(self, reason: str | None) -> None:
        message = self.open_message
        self.open_message = OpenRawMessage()
        if message.is_open:
            self.stop_blocks(self.tracker.open.values())
            delta = {"stop_reason": reason, "stop_sequence": None}
            self.write("message_delta", delta=delta, usage=usage_json(message.usage))
            self.write("message_stop")


class BlocksRaw:
    """One projection of a session's log."""

    def __init__(
        self, options: DialectOptions = DEFAULT_OPTIONS, history: HistoryLookup = no_history
    ) -> None:
        self._options = options
        self._names = AgentNames()
        self._meta = AgentMetaBuilder(options, history, self._names)
        self._agents: dict[str, RawAgentState] = {}  # by agent id
        self._out: list[bytes] = []  # output of the event that is being converted

    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        convert = CONVERTERS.get(type(payload))
        if convert is None:
            return []

        agent_id = envelope.agent_id or ""
        if isinstance(payload, AgentStart):
            self._names.start(agent_id, payload)
        agent = self._agents.pop(agent_id, None)
        if agent is None:
            agent = RawAgentState(self._names.name_of(agent_id), self._out, BlockTracker(agent_id))
        convert(self, agent, envelope, payload)
        if isinstance(payload, AgentEnd):
            self._names.end(agent_id)
        if agent.running or agent.tracker.open:
            self._agents[agent_id] = agent
        else:
            # No later event would end the message of an agent that is not running.
            agent.finish_message(agent.open_message.stop_reason(without_calls="end_turn"))
        messages = self._out.copy()
        self._out.clear()
        return messages

    def close(self) -> list[bytes]:
        for agent in self._agents.values():
            # The message is cut, unless it only waits for the results of its calls.
            agent.finish_message("tool_use" if agent.open_message.is_waiting_for_calls else None)
        messages = [*self._out, DONE]
        self._out.clear()
        return messages

    @property
    def idle(self) -> bool:
        return not self._agents

    def _write_tags(self, parts: list[bytes]) -> None:
        self._out += pack_messages(parts)

    def _agent_start(self, agent: RawAgentState, _: Envelope, payload: AgentStart) -> None:
        agent.running = True
        agent.model = payload.model or ""
        meta = self._meta.build_init(agent.tracker.agent_id, payload, "raw")
        self._write_tags(encode_element(agent.name, "meta_init", {"data": to_json_text(meta)}))

    def _agent_end(self, agent: RawAgentState, _: Envelope, payload: AgentEnd) -> None:
        default = agent.open_message.stop_reason(without_calls="end_turn")
        agent.finish_message(PROVIDER_STOP_REASONS.get(payload.stop_reason, default))
        agent.running = False
        agent.tracker.open.clear()
        meta = self._meta.build_final(agent.tracker.agent_id, payload)
        if meta is not None:
            self._write_tags(encode_element(agent.name, "meta_final", {"data": to_json_text(meta)}))

    def _agent_usage(self, agent: RawAgentState, _: Envelope, payload: AgentUsage) -> None:
        agent.open_message.usage = payload.usage
        # Without calls, the events that follow decide the stop reason.
        if agent.open_message.is_waiting_for_calls:
            agent.finish_message("tool_use")

    def _block_start(self, agent: RawAgentState, _: Envelope, payload: BlockStart) -> None:
        agent.tracker.start(payload)

    def _block_delta(self, agent: RawAgentState, envelope: Envelope, payload: BlockDelta) -> None:
        block = agent.tracker.find_streamed(payload)
        if block is None:
            return
        if block.index is None:
            block.index = agent.start_block(envelope.id, payload.block_id, EMPTY_CONTENT[block.kind])
            block.has_started = True
        agent.write_text_deltas(block.index, block.kind, payload.text)

    def _block_end(self, agent: RawAgentState, envelope: Envelope, payload: BlockEnd) -> None:
        block = agent.tracker.end(payload)
        if block is None or payload.status == "complete":
            return
        if block.index is not None:
            agent.end_block(block.index)
        elif not block.has_started and payload.text:
            content = EMPTY_CONTENT[block.kind]
            agent.write_whole_block(envelope.id, payload.block_id, content, {block.kind: payload.text})

    def _message(self, agent: RawAgentState, envelope: Envelope, payload: AssistantMessage) -> None:
        deltas = [{"type": "citations_delta", "citation": citation} for citation in payload.citations]
        whole_content = message_part(payload) if payload.citations else None
        self._final_event(agent, envelope, payload, EMPTY_CONTENT["text"], deltas, whole_content)

    def _thinking(self, agent: RawAgentState, envelope: Envelope, payload: AssistantThinking) -> None:
        content = EMPTY_CONTENT["thinking"]
        if payload.redacted is not None and not payload.text:
            content = redacted_thinking_part(payload.redacted)
        deltas: list[JsonObject] = []
        if payload.signature:
            deltas.append({"type": "signature_delta", "signature": payload.signature})
        self._final_event(agent, envelope, payload, content, deltas)

    def _final_event(
        self,
        agent: RawAgentState,
        envelope: Envelope,
        payload: AssistantMessage | AssistantThinking,
        content: JsonObject,
        final_deltas: list[JsonObject],
        whole_content: JsonObject | None = None,
    ) -> None:
        block = agent.tracker.finish(payload.block_id)
        if block is not None and block.index is not None:
            agent.end_block(block.index, final_deltas, whole_content)
        elif block is not None and block.has_started:
            # The block was stopped before its citations were known.
            if isinstance(payload, AssistantMessage):
                self._out += encode_citations(agent.name, payload.citations, self._options)
        elif payload.text or final_deltas or "data" in content:
            texts = {content["type"]: payload.text} if payload.text else {}
            agent.write_whole_block(
                envelope.id, payload.block_id, content, texts, final_deltas, whole_content
            )

    def _assistant_block(self, agent: RawAgentState, envelope: Envelope, payload: AssistantBlock) -> None:
        agent.write_whole_block(envelope.id, payload.block_id, block_part(payload), {})

    def _retract(self, agent: RawAgentState, _: Envelope, payload: BlockRetract) -> None:
        count = agent.tracker.retract(payload.block_ids)
        if count:
            agent.finish_message(None)  # the retry is another message
        agent.tracker.drop(payload.block_ids)
        if count:
            self._out += chunk_json("rollback", agent.name, {"blocks": count})

    def _tool_call(self, agent: RawAgentState, envelope: Envelope, payload: ToolCall) -> None:
        content = call_part(payload) | {"input": {}}  # the arguments follow as deltas
        args = call_args(payload)
        args_text = args if payload.incomplete is not None else to_json_text(args)
        agent.write_whole_block(envelope.id, payload.block_id, content, {"partial_json": args_text})
        agent.open_message.has_calls |= payload.executor != "provider"
        agent.open_message.has_incomplete_call |= payload.incomplete is not None

    def _tool_result(self, agent: RawAgentState, envelope: Envelope, payload: ToolResult) -> None:
        if payload.kind is None:
            self._finish_calls(agent)
            self._write_tags(encode_xml_result(agent.name, payload))
        elif self._options.stream_tool_results:
            agent.write_whole_block(envelope.id, None, provider_result_part(payload), {})

    def _tool_await(self, agent: RawAgentState, _: Envelope, payload: ToolAwait) -> None:
        self._finish_calls(agent)
        self._write_tags(encode_xml_await(agent.name, payload))

    def _finish_calls(self, agent: RawAgentState) -> None:
        if agent.open_message.has_calls:
            agent.finish_message("tool_use")

    def _files(self, agent: RawAgentState, _: Envelope, payload: AssistantFiles) -> None:
        self._write_tags(encode_xml_files(agent.name, payload))

    def _error(self, agent: RawAgentState, _: Envelope, payload: SessionError) -> None:
        self._write_tags(encode_xml_error(agent.name, payload))


CONVERTERS: dict[type, Callable[[BlocksRaw, RawAgentState, Envelope, Any], None]] = {
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
    AssistantFiles: BlocksRaw._files,
    ToolCall: BlocksRaw._tool_call,
    ToolResult: BlocksRaw._tool_result,
    ToolAwait: BlocksRaw._tool_await,
    SessionError: BlocksRaw._error,
}
