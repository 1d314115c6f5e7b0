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
    Unknown,
    Usage,
)
from turnlog.state.history import call_part, provided_part
from turnlog.wire.chunks import chunk
from turnlog.wire.dialects.base import (
    DEFAULT,
    DONE,
    STREAMED,
    BlocksOptions,
    Conversation,
    Shown,
    bare,
    compact,
    untold,
    usage_json,
)
from turnlog.wire.dialects.blocks import Blocks, citations
from turnlog.wire.dialects.blocks_meta import Meta
from turnlog.wire.dialects.blocks_xml import fitted

Delta = dict[str, Any]

EMPTY: dict[str, Delta] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}
DELTAS = {"text": "text_delta", "thinking": "thinking_delta", "partial_json": "input_json_delta"}
REASONS: dict[str, str | None] = {  # the others end a message as its content says
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "context_window": "model_context_window_exceeded",
    "refusal": "refusal",
    "timeout": None,
    "cancelled": None,
    "error": None,
}


@dataclass(slots=True)
class Streamed:
    """A text or thinking block between its start and its durable twin."""

    kind: str
    index: int | None = None  # while its content block is open
    told: bool = False
    ended: bool = False


@dataclass(slots=True)
class Reply:
    """The message that an agent is in."""

    open: bool = False
    size: int = 0
    calls: bool = False
    cut: bool = False  # the arguments of a call are incomplete: its stop reason is not tool_use
    usage: Usage | None = None


@dataclass(slots=True)
class Agent:
    """What has to be remembered of an agent, from its start to its end; it writes its own messages."""

    id: str
    model: str = ""
    running: bool = False
    blocks: dict[str, Streamed] = field(default_factory=dict)
    shown: Shown = field(default_factory=Shown)
    reply: Reply = field(default_factory=Reply)

    def line(self, type: str, **fields: Any) -> bytes:
        return msgspec.json.encode({"type": type, **fields, "agent": self.id})

    def begin(self, event_id: str) -> list[bytes]:
        """Be in a message: the one before is over once its usage is known."""
        if self.reply.open and self.reply.usage is None:
            return self.stop_ended()
        before = self.finish("tool_use" if self.reply.calls else "pause_turn")
        self.reply = Reply(open=True)
        message: Delta = {
            "id": "msg_" + event_id.removeprefix("evt_"),
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_json(None),
        }
        return [*before, self.line("message_start", message=message)]

    def start(self, event_id: str, key: str, content: Delta) -> tuple[int, list[bytes]]:
        """A content block and its index."""
        before = self.begin(event_id)
        index = self.reply.size
        self.reply.size += 1
        self.shown.add(key or None)
        return index, [*before, self.line("content_block_start", index=index, content_block=content)]

    def say(self, index: int, name: str, text: str) -> list[bytes]:
        """A text in deltas of bounded size."""
        return fitted(text, lambda piece: self.add(index, {"type": DELTAS[name], name: piece}))

    def add(self, index: int, delta: Delta) -> bytes:
        return self.line("content_block_delta", index=index, delta=delta)

    def stop(self, index: int) -> bytes:
        return self.line("content_block_stop", index=index)

    def stop_ended(self) -> list[bytes]:
        """Stop the blocks that wait for their twins."""
        return self._stop_all([block for block in self.blocks.values() if block.ended])

    def _stop_all(self, blocks: Iterable[Streamed]) -> list[bytes]:
        messages = []
        for block in blocks:
            if block.index is not None:
                messages.append(self.stop(block.index))
                block.index = None
        return messages

    def finish(self, reason: str | None) -> list[bytes]:
        """End the message, if there is one."""
        reply, self.reply = self.reply, Reply()
        if not reply.open:
            return []
        delta = {"stop_reason": reason, "stop_sequence": None}
        return [
            *self._stop_all(self.blocks.values()),
            self.line("message_delta", delta=delta, usage=usage_json(reply.usage)),
            self.line("message_stop"),
        ]

    def whole(
        self, event_id: str, key: str, content: Delta, said: Delta, ends: Iterable[Delta] = ()
    ) -> list[bytes]:
        """A content block at once: its texts by the name of their delta, then what ends it."""
        index, messages = self.start(event_id, key, content)
        for name, text in said.items():
            messages += self.say(index, name, text)
        return [*messages, *(self.add(index, delta) for delta in ends), self.stop(index)]


class BlocksRaw:
    """One projection of a session's log. `history` gives an agent's conversation as of the event at hand."""

    def __init__(self, options: BlocksOptions = DEFAULT, history: Conversation = untold) -> None:
        self._options = options
        self._json = Blocks(options, history)  # only for events that leave no state in it
        self._meta = Meta(options, history)
        self._agents: dict[str, Agent] = {}

    def convert(self, envelope: Envelope, payload: Payload | Unknown) -> list[bytes]:
        """The messages of one event. An agent that is not running has nobody to end its message later."""
        convert = CONVERT.get(type(payload))
        if convert is None:
            return []
        name = bare(envelope.agent_id or "")
        agent = self._agents.pop(name, None) or Agent(name)
        messages = convert(self, agent, envelope, payload)
        if agent.running or agent.blocks:
            self._agents[name] = agent
            return messages
        return messages + agent.finish("tool_use" if agent.reply.calls else "end_turn")

    def close(self) -> list[bytes]:
        """What ends a response; a message that is open is cut, unless all it waits for is its calls."""
        ends = [
            agent.finish("tool_use" if agent.reply.calls and not agent.reply.cut else None)
            for agent in self._agents.values()
        ]
        return [*(message for messages in ends for message in messages), DONE]

    @property
    def idle(self) -> bool:
        """Whether nothing is open: the state is empty between turns."""
        return not self._agents

    def _agent_start(self, agent: Agent, _: Envelope, payload: AgentStart) -> list[bytes]:
        agent.running, agent.model = True, payload.model or ""
        return chunk("meta_init", agent.id, compact(self._meta.init(agent.id, payload, "raw")))

    def _agent_end(self, agent: Agent, envelope: Envelope, payload: AgentEnd) -> list[bytes]:
        otherwise = "tool_use" if agent.reply.calls else "end_turn"
        messages = agent.finish(REASONS.get(payload.stop_reason, otherwise))
        agent.running = False
        agent.blocks.clear()
        return messages + self._json.convert(envelope, payload)

    def _agent_usage(self, agent: Agent, _: Envelope, payload: AgentUsage) -> list[bytes]:
        """The completion is over; unless it made calls, what follows says why."""
        reply = agent.reply
        reply.usage = payload.usage
        return agent.finish("tool_use") if reply.calls and not reply.cut else []

    def _block_start(self, agent: Agent, _: Envelope, payload: BlockStart) -> list[bytes]:
        if payload.kind in STREAMED:
            agent.blocks[payload.block_id] = Streamed(payload.kind)
        return []

    def _block_delta(self, agent: Agent, envelope: Envelope, payload: BlockDelta) -> list[bytes]:
        key = payload.block_id
        block = agent.blocks.get(key)
        if block is None or not payload.text:
            return []
        messages: list[bytes] = []
        if block.index is None:
            block.index, messages = agent.start(envelope.id, key, EMPTY[block.kind])
            block.told = True
        return messages + agent.say(block.index, block.kind, payload.text)

    def _block_end(self, agent: Agent, envelope: Envelope, payload: BlockEnd) -> list[bytes]:
        """A complete block waits for its twin, an aborted one has none."""
        key = payload.block_id
        if payload.status == "complete":
            if key in agent.blocks:
                agent.blocks[key].ended = True
            return []
        block = agent.blocks.pop(key, None)
        if block and block.index is not None:
            return [agent.stop(block.index)]
        if block is None or block.told or not payload.text:
            return []
        return agent.whole(envelope.id, key, EMPTY[block.kind], {block.kind: payload.text})

    def _message(self, agent: Agent, envelope: Envelope, payload: AssistantMessage) -> list[bytes]:
        ends = [{"type": "citations_delta", "citation": item} for item in payload.citations]
        return self._twin(agent, envelope, payload, EMPTY["text"], ends)

    def _thinking(self, agent: Agent, envelope: Envelope, payload: AssistantThinking) -> list[bytes]:
        redacted = payload.redacted is not None and not payload.text
        content = {"type": "redacted_thinking", "data": payload.redacted} if redacted else EMPTY["thinking"]
        ends = [{"type": "signature_delta", "signature": payload.signature}] if payload.signature else []
        return self._twin(agent, envelope, payload, content, ends)

    def _twin(
        self,
        agent: Agent,
        envelope: Envelope,
        payload: AssistantMessage | AssistantThinking,
        content: Delta,
        ends: list[Delta],
    ) -> list[bytes]:
        """What ends a text; and the text itself, unless its deltas said it."""
        key = payload.block_id or ""
        block = agent.blocks.pop(key, None)
        if block and block.index is not None:
            return [*(agent.add(block.index, delta) for delta in ends), agent.stop(block.index)]
        if block and block.told:
            return citations(agent.id, payload.citations) if isinstance(payload, AssistantMessage) else []
        if not (payload.text or ends or "data" in content):
            return []
        said = {content["type"]: payload.text} if payload.text else {}
        return agent.whole(envelope.id, key, content, said, ends)

    def _other(self, agent: Agent, envelope: Envelope, payload: AssistantBlock) -> list[bytes]:
        """A block of a kind that only the provider knows, as it came."""
        content = {"type": payload.kind, **payload.data}
        return agent.whole(envelope.id, payload.block_id or "", content, {})

    def _retract(self, agent: Agent, _: Envelope, payload: BlockRetract) -> list[bytes]:
        """End the message; the retry is another one."""
        count = agent.shown.retract(payload.block_ids)
        messages = agent.finish(None) if count else []
        for key in payload.block_ids:
            agent.blocks.pop(key, None)
        return messages + (chunk("rollback", agent.id, compact({"blocks": count})) if count else [])

    def _tool_call(self, agent: Agent, envelope: Envelope, payload: ToolCall) -> list[bytes]:
        client = payload.executor != "provider"
        args = compact(payload.args) if payload.incomplete is None else payload.incomplete
        content = call_part(payload) | {"input": {}}  # the arguments follow as deltas
        messages = agent.whole(envelope.id, payload.block_id or "", content, {"partial_json": args})
        agent.reply.calls |= client
        agent.reply.cut |= payload.incomplete is not None
        return messages

    def _tool_result(self, agent: Agent, envelope: Envelope, payload: ToolResult) -> list[bytes]:
        """The provider's own results are content; others come when the message with the call is over."""
        if payload.kind is None:
            return self._after_calls(agent, envelope, payload)
        if not self._options.stream_tool_results:
            return []
        return agent.whole(envelope.id, "", provided_part(payload), {})

    def _after_calls(self, agent: Agent, envelope: Envelope, payload: ToolResult | ToolAwait) -> list[bytes]:
        messages = agent.finish("tool_use") if agent.reply.calls else []
        return messages + self._json.convert(envelope, payload)

    def _plain(self, _: Agent, envelope: Envelope, payload: AssistantFiles | SessionError) -> list[bytes]:
        return self._json.convert(envelope, payload)


CONVERT: dict[type, Callable[[BlocksRaw, Agent, Envelope, Any], list[bytes]]] = {
    AgentStart: BlocksRaw._agent_start,
    AgentEnd: BlocksRaw._agent_end,
    AgentUsage: BlocksRaw._agent_usage,
    BlockStart: BlocksRaw._block_start,
    BlockDelta: BlocksRaw._block_delta,
    BlockEnd: BlocksRaw._block_end,
    BlockRetract: BlocksRaw._retract,
    AssistantMessage: BlocksRaw._message,
    AssistantThinking: BlocksRaw._thinking,
    AssistantBlock: BlocksRaw._other,
    AssistantFiles: BlocksRaw._plain,
    ToolCall: BlocksRaw._tool_call,
    ToolResult: BlocksRaw._tool_result,
    ToolAwait: BlocksRaw._after_calls,
    SessionError: BlocksRaw._plain,
}
