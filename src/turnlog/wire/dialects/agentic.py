"""The dialect `agentic`: the event classes of document 001 under the names they have on its wire.

Every message is `{"type", "agent", "depth", "payload"}`: the wire name of a class, the name of the agent, how
deep it is, and what the class holds; `tool_result` has its `result` beside them too. All agents of a turn are
told as they speak. Texts come in pieces (`chat_output`), from the durable twin where the pieces are gone;
thinking comes whole. Events of applications, and of the team, are `set_state` under their full name.

`completion_start` comes with the first of a completion, `completion_end` with its usage. A completion without
usage (aborted, retracted, cut) is ended with zeros, so the two are always a pair. 001 has no word for what is
retracted: `metadata.retracted` says how many of the agent's last `chat_output` are void, and why. The state
is what the running agents have open or can retract.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from turnlog.events import (
    CORE,
    AgentEnd,
    AgentHandoff,
    AgentStart,
    AgentUsage,
    AssistantBlock,
    AssistantMessage,
    AssistantThinking,
    AwaitedCall,
    BlockDelta,
    BlockEnd,
    BlockRetract,
    BlockStart,
    Envelope,
    Payload,
    SessionError,
    ToolAwait,
    ToolCall,
    ToolProgress,
    ToolResult,
    UiAction,
    UiMessage,
    UnknownPayload,
)
from turnlog.wire.dialects.base import (
    DONE,
    RetractableBlocks,
    call_args,
    result_text_with_images,
    to_json_text,
)

CORE_FAMILIES = frozenset(
    kind.name.partition(".")[0] for kind in CORE
)  # an unknown type of these may be a newer one


@dataclass(slots=True)
class Completion:
    """What a model has said since it was asked."""

    text_pieces: list[str] = field(default_factory=list)
    thinking_texts: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)

    def drop_last_pieces(self, count: int) -> None:
        """The last pieces of text are void; there may be more before this completion."""
        del self.text_pieces[max(0, len(self.text_pieces) - count) :]

    def message(self) -> dict[str, Any]:
        """The reply, as a chat completion has it."""
        return {"content": "".join(self.text_pieces), "role": "assistant", "tool_calls": self.calls or None}

    def metadata(self) -> dict[str, Any]:
        """What else it gave."""
        return {"reasoning_content": "\n".join(self.thinking_texts)} if self.thinking_texts else {}


@dataclass(slots=True)
class AgenticAgentState:
    """An agent from its start to its end; it writes its own messages."""

    name: str
    depth: int
    parent_id: str = ""
    running: bool = False
    completion: Completion | None = None
    has_output_by_block: dict[str, bool] = field(
        default_factory=dict
    )  # its texts: whether something of them was told
    tool_names: dict[str, str] = field(default_factory=dict)  # the names, by open call
    retractable: RetractableBlocks = field(default_factory=RetractableBlocks)  # its `chat_output`s

    def encode_message(self, type: str, payload: object, **fields: object) -> bytes:
        return msgspec.json.encode(
            {"type": type, "agent": self.name, "depth": self.depth, "payload": payload, **fields}
        )

    def start_completion(self) -> list[bytes]:
        """Be in a completion; who is not running has nobody to end it."""
        if self.completion is not None or not self.running:
            return []
        self.completion = Completion()
        return [self.encode_message("completion_start", {})]

    def end_completion(
        self, usage: AgentUsage | None = None, retracted_pieces: int = 0, **metadata: object
    ) -> list[bytes]:
        """End the completion, if there is one; its last pieces of text may be void."""
        completion, self.completion = self.completion, None
        if completion is None:
            return []
        completion.drop_last_pieces(retracted_pieces)
        payload = {
            "usage": completion_usage(usage),
            "metadata": completion.metadata() | metadata,
            "llm_message": completion.message(),
        }
        return [self.encode_message("completion_end", payload)]

    def emit_text(self, text: str, block_id: str | None) -> list[bytes]:
        """A piece of text."""
        self.retractable.add(block_id)
        if self.completion is not None:
            self.completion.text_pieces.append(text)
        return [self.encode_message("chat_output", {"content": text, "role": "assistant"})]

    def encode_tool_result(self, tool: str, value: object, call_id: str, *, log: bool) -> bytes:
        """What a tool gave, or says while it runs."""
        payload = {"name": tool, "result": value, "is_log": log, "tool_call_id": call_id}
        return self.encode_message("tool_result", payload, result=value)


class Agentic:
    """One projection of a session's log."""

    def __init__(self) -> None:
        self._agents: dict[str, AgenticAgentState] = {}  # the running ones, by id

    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        """The messages of one event."""
        agent = self._agents.get(envelope.agent_id or "")
        agent = agent or AgenticAgentState(envelope.agent_name or "", envelope.depth or 0)
        say = CONVERTERS.get(type(payload))
        if say is not None:
            return say(self, agent, envelope, payload)
        newer = isinstance(payload, UnknownPayload) and envelope.type.partition(".")[0] in CORE_FAMILIES
        if newer or envelope.type in CORE.types:
            return []
        return [agent.encode_message("set_state", {envelope.type: envelope.payload})]

    def close(self) -> list[bytes]:
        """What ends a response; completions that are open are ended."""
        ends = [message for agent in self._agents.values() for message in agent.end_completion()]
        return [*ends, DONE]

    @property
    def idle(self) -> bool:
        """Whether nothing is open: the state is empty between turns."""
        return not self._agents

    def _user_message(self, agent: AgenticAgentState, envelope: Envelope, payload: UiMessage) -> list[bytes]:
        to = AgenticAgentState(payload.target or agent.name, agent.depth)
        return [to.encode_message("prompt", payload.text, request_id=envelope.trace_id)]

    def _action(self, agent: AgenticAgentState, envelope: Envelope, payload: UiAction) -> list[bytes]:
        """The input that a call waits for; other actions are on views, which 001 does not know."""
        if payload.call_id is None:
            return []
        answer = {payload.call_id: getattr(payload.action, "values", payload.action)}
        return [agent.encode_message("resume_with_input", answer, request_id=envelope.trace_id)]

    def _agent_start(self, _: AgenticAgentState, envelope: Envelope, payload: AgentStart) -> list[bytes]:
        started = AgenticAgentState(payload.name, envelope.depth or 0, payload.parent_id or "", running=True)
        if envelope.agent_id:
            self._agents[envelope.agent_id] = started
        prompt = payload.prompt or ""
        messages = [started.encode_message("prompt_started", {"content": prompt})]
        caller = self._agents.get(started.parent_id)
        if caller is None or payload.via != "call":
            return messages
        return [
            caller.encode_message("subagent_call", {"target_agent": payload.name, "message": prompt}),
            *messages,
        ]

    def _agent_end(self, agent: AgenticAgentState, envelope: Envelope, payload: AgentEnd) -> list[bytes]:
        """The end of an agent, and its answer to who called it; an agent that took over answers for both."""
        self._agents.pop(envelope.agent_id or "", None)
        messages, result = agent.end_completion(), payload.result or ""
        if payload.stop_reason == "cancelled":
            messages.append(
                agent.encode_message("turn_cancelled", {})
            )  # and its end: readers wait for everybody's
        messages.append(
            agent.encode_message("turn_end", {"messages": [{"content": result, "role": "assistant"}]})
        )
        caller = self._agents.get(agent.parent_id)
        if caller is None or payload.stop_reason == "handoff":
            return messages
        return [
            *messages,
            caller.encode_message("subagent_result", {"source_agent": agent.name, "result": result}),
        ]

    def _handoff(self, agent: AgenticAgentState, _: Envelope, payload: AgentHandoff) -> list[bytes]:
        return [agent.encode_message("add_child", payload.to, handoff=True)]

    def _usage(self, agent: AgenticAgentState, _: Envelope, payload: AgentUsage) -> list[bytes]:
        messages = agent.start_completion()
        agent.completion = agent.completion or Completion()  # a reader that only follows usage gets it all
        return messages + agent.end_completion(payload)

    def _block_start(self, agent: AgenticAgentState, _: Envelope, payload: BlockStart) -> list[bytes]:
        if payload.kind == "text":
            agent.has_output_by_block[payload.block_id] = False
        return agent.start_completion()

    def _block_delta(self, agent: AgenticAgentState, _: Envelope, payload: BlockDelta) -> list[bytes]:
        if payload.block_id not in agent.has_output_by_block or not payload.text:
            return []
        agent.has_output_by_block[payload.block_id] = True
        return agent.emit_text(payload.text, payload.block_id)

    def _block_end(self, agent: AgenticAgentState, _: Envelope, payload: BlockEnd) -> list[bytes]:
        """A complete block waits for its twin, an aborted one has none."""
        if (
            payload.status == "complete"
            or agent.has_output_by_block.pop(payload.block_id, True)
            or not payload.text
        ):
            return []
        return agent.emit_text(payload.text, payload.block_id)

    def _assistant_message(
        self, agent: AgenticAgentState, _: Envelope, payload: AssistantMessage
    ) -> list[bytes]:
        """A text, unless its deltas said it."""
        messages = start_completion_if_model_output(agent, payload)
        if agent.has_output_by_block.pop(payload.block_id or "", False) or not payload.text:
            return messages
        return messages + agent.emit_text(payload.text, payload.block_id)

    def _assistant_thinking(
        self, agent: AgenticAgentState, _: Envelope, payload: AssistantThinking
    ) -> list[bytes]:
        messages = start_completion_if_model_output(agent, payload)
        if not payload.text:
            return messages
        if agent.completion is not None:
            agent.completion.thinking_texts.append(payload.text)
        return [*messages, agent.encode_message("reasoning_content", {"reasoning_content": payload.text})]

    def _assistant_block(self, agent: AgenticAgentState, _: Envelope, payload: AssistantBlock) -> list[bytes]:
        return start_completion_if_model_output(agent, payload)

    def _retract(self, agent: AgenticAgentState, _: Envelope, payload: BlockRetract) -> list[bytes]:
        """End the completion; the retry is another one."""
        for block_id in payload.block_ids:
            agent.has_output_by_block.pop(block_id, None)
        count = agent.retractable.retract(payload.block_ids)
        if count == 0 and agent.completion is None:
            return []
        retracted = {"chat_outputs": count, "reason": payload.reason}
        return agent.start_completion() + agent.end_completion(retracted_pieces=count, retracted=retracted)

    def _tool_call(self, agent: AgenticAgentState, _: Envelope, payload: ToolCall) -> list[bytes]:
        messages, args = start_completion_if_model_output(agent, payload), call_args(payload)
        agent.tool_names[payload.call_id] = payload.tool
        if agent.completion is not None:
            function = {
                "name": payload.tool,
                "arguments": args if isinstance(args, str) else to_json_text(args),
            }
            agent.completion.calls.append({"id": payload.call_id, "type": "function", "function": function})
        call = {"name": payload.tool, "arguments": args, "tool_call_id": payload.call_id}
        return [*messages, agent.encode_message("tool_call", call)]

    def _tool_progress(self, agent: AgenticAgentState, _: Envelope, payload: ToolProgress) -> list[bytes]:
        tool = agent.tool_names.get(payload.call_id, "")
        return [agent.encode_tool_result(tool, payload.text, payload.call_id, log=True)]

    def _tool_result(self, agent: AgenticAgentState, _: Envelope, payload: ToolResult) -> list[bytes]:
        """What a tool gave. What went wrong is told twice: as an error, and to readers of results."""
        agent.tool_names.pop(payload.call_id, None)
        if payload.ok:
            value = result_text_with_images(payload) if payload.images else payload.result
            return [agent.encode_tool_result(payload.tool, value, payload.call_id, log=False)]
        text = result_text_with_images(payload)
        error = {"name": payload.tool, "error": text, "tool_call_id": payload.call_id}
        return [
            agent.encode_message("tool_error", error),
            agent.encode_tool_result(payload.tool, text, payload.call_id, log=False),
        ]

    def _tool_await(self, agent: AgenticAgentState, _: Envelope, payload: ToolAwait) -> list[bytes]:
        questions = {call.call_id: question_text(call) for call in payload.calls}
        return [agent.encode_message("wait_for_input", questions)]

    def _error(self, agent: AgenticAgentState, _: Envelope, payload: SessionError) -> list[bytes]:
        return [agent.encode_message("output", {"error": payload.message, "code": payload.code})]


def start_completion_if_model_output(agent: AgenticAgentState, payload: Any) -> list[bytes]:
    """What begins a completion; what is no block of a model does not."""
    return agent.start_completion() if payload.block_id or payload.message_id else []


def question_text(call: AwaitedCall) -> str:
    """What a person is asked."""
    asked = call.args.get("question")
    return asked if isinstance(asked, str) else to_json_text(call.args)


def completion_usage(payload: AgentUsage | None) -> dict[str, Any]:
    """What a completion took; what is not known is 0."""
    if payload is None:
        return {"model": "", "cost": 0, "input_tokens": 0, "output_tokens": 0, "elapsed_time": 0}
    return {
        "model": payload.model,
        "cost": payload.cost.total_cost if payload.cost else 0,
        "input_tokens": payload.usage.input_tokens,
        "output_tokens": payload.usage.output_tokens,
        "elapsed_time": (payload.duration_ms or 0) / 1000,
    }


CONVERTERS: dict[type, Callable[[Agentic, AgenticAgentState, Envelope, Any], list[bytes]]] = {
    UiMessage: Agentic._user_message,
    UiAction: Agentic._action,
    AgentStart: Agentic._agent_start,
    AgentEnd: Agentic._agent_end,
    AgentHandoff: Agentic._handoff,
    AgentUsage: Agentic._usage,
    BlockStart: Agentic._block_start,
    BlockDelta: Agentic._block_delta,
    BlockEnd: Agentic._block_end,
    BlockRetract: Agentic._retract,
    AssistantMessage: Agentic._assistant_message,
    AssistantThinking: Agentic._assistant_thinking,
    AssistantBlock: Agentic._assistant_block,
    ToolCall: Agentic._tool_call,
    ToolProgress: Agentic._tool_progress,
    ToolResult: Agentic._tool_result,
    ToolAwait: Agentic._tool_await,
    SessionError: Agentic._error,
}
