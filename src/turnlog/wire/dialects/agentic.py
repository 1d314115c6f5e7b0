"""The dialect `agentic`: the event classes of document 001 under the names they have on its wire.

- Every message is `{"type", "agent", "depth", "payload", "agent_id", "parent_id"}`: the wire name of a class,
  the name of the agent, its depth, the fields of the class, and the ids of the invocation and of its caller.
  An agent without a caller has no `parent_id`. `tool_result` also has its `result` beside them.
- `prompt` comes with the start of the agent that gets it: a message that waits for its turn has no agent yet.
- Texts are sent in pieces (`chat_output`), or from the final event where the deltas are gone. Thinking is
  sent whole. Events of applications and of the team are `set_state` under their full name.
- `completion_start` precedes the first output of a completion, `completion_end` follows its usage. A
  completion without usage (aborted, retracted, cut) is ended with zeros, so the two are always a pair.
- 001 has no retraction: `metadata.retracted` has the number of the agent's last `chat_output` that are void.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from turnlog.events import (
    AgentEnd,
    AgentHandoff,
    AgentStart,
    AgentUsage,
    AssistantBlock,
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
    ToolProgress,
    ToolResult,
    UiAction,
    UiMessage,
    UnknownPayload,
)
from turnlog.events.content import label_files
from turnlog.wire.dialects._common import (
    call_args,
    is_foreign_event,
    question_text,
    result_text_with_images,
    to_json_text,
)
from turnlog.wire.dialects.base import DEFAULT_OPTIONS, DONE, DialectOptions, HistoryLookup, no_history
from turnlog.wire.dialects.block_tracker import BlockTracker


@dataclass(slots=True)
class Completion:
    """The output of a model since its last request."""

    text_pieces: list[str] = field(default_factory=list)
    thinking_texts: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)

    def drop_last_pieces(self, count: int) -> None:
        """Remove the last pieces of text. `count` may be more than this completion has."""
        del self.text_pieces[max(0, len(self.text_pieces) - count) :]

    def add_call(self, payload: ToolCall) -> None:
        args = call_args(payload)
        arguments = args if isinstance(args, str) else to_json_text(args)
        function = {"name": payload.tool, "arguments": arguments}
        self.calls.append({"id": payload.call_id, "type": "function", "function": function})

    def message(self) -> dict[str, Any]:
        return {"content": "".join(self.text_pieces), "role": "assistant", "tool_calls": self.calls or None}

    def metadata(self) -> dict[str, Any]:
        return {"reasoning_content": "\n".join(self.thinking_texts)} if self.thinking_texts else {}


@dataclass(slots=True)
class AgenticAgentState:
    """An agent from its start to its end. It writes its messages to `out`, which the dialect owns."""

    name: str
    depth: int
    out: list[bytes]
    agent_id: str = ""
    parent_id: str = ""
    running: bool = False
    completion: Completion | None = None
    tool_names: dict[str, str] = field(default_factory=dict)  # by open call
    tracker: BlockTracker = field(default_factory=BlockTracker)  # its output is counted in `chat_output`s

    def write(self, type: str, payload: object, **fields: object) -> None:
        message = {"type": type, "agent": self.name, "depth": self.depth, "payload": payload}
        if self.agent_id:
            message["agent_id"] = self.agent_id
        if self.parent_id:
            message["parent_id"] = self.parent_id
        self.out.append(msgspec.json.encode(message | fields))

    def start_completion(self) -> None:
        """Start a completion, unless one is open. No event would end one of an agent that is not running."""
        if self.completion is None and self.running:
            self.completion = Completion()
            self.write("completion_start", {})

    def start_completion_for(self, payload: Any) -> None:
        if payload.block_id or payload.message_id:
            self.start_completion()

    def end_completion(
        self, usage: AgentUsage | None = None, retracted_pieces: int = 0, **metadata: object
    ) -> None:
        completion = self.completion
        if completion is None:
            return
        self.completion = None
        completion.drop_last_pieces(retracted_pieces)
        payload = {
            "usage": completion_usage(usage),
            "metadata": completion.metadata() | metadata,
            "llm_message": completion.message(),
        }
        self.write("completion_end", payload)

    def write_text(self, text: str, block_id: str | None) -> None:
        self.tracker.record_output(block_id)
        if self.completion is not None:
            self.completion.text_pieces.append(text)
        self.write("chat_output", {"content": text, "role": "assistant"})


class Agentic:
    """One projection of a session's log. It has no options and sends no histories."""

    def __init__(
        self, options: DialectOptions = DEFAULT_OPTIONS, history: HistoryLookup = no_history
    ) -> None:
        self._agents: dict[str, AgenticAgentState] = {}  # the running ones, by id
        self._out: list[bytes] = []  # output of the event that is being converted

    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        agent = self._agents.get(envelope.agent_id or "")
        if agent is None:
            agent = self._new_state(envelope, envelope.agent_name or "")

        convert = CONVERTERS.get(type(payload))
        if convert is not None:
            convert(self, agent, envelope, payload)
        elif is_foreign_event(envelope, payload):
            agent.write("set_state", {envelope.type: envelope.payload})
        messages = self._out.copy()
        self._out.clear()
        return messages

    def close(self) -> list[bytes]:
        for agent in self._agents.values():
            agent.end_completion()
        messages = [*self._out, DONE]
        self._out.clear()
        return messages

    @property
    def idle(self) -> bool:
        return not self._agents

    def _new_state(self, envelope: Envelope, name: str) -> AgenticAgentState:
        return AgenticAgentState(name, envelope.depth or 0, self._out, envelope.agent_id or "")

    def _user_message(self, agent: AgenticAgentState, envelope: Envelope, payload: UiMessage) -> None:
        # A message that opens a turn is the prompt of the agent that starts for it.
        if agent.agent_id:
            agent.write("prompt", label_files(payload.text, payload.content), request_id=envelope.trace_id)

    def _action(self, agent: AgenticAgentState, envelope: Envelope, payload: UiAction) -> None:
        # Other actions are on views, which 001 does not have.
        if payload.call_id is not None:
            answer = {payload.call_id: getattr(payload.action, "values", payload.action)}
            agent.write("resume_with_input", answer, request_id=envelope.trace_id)

    def _agent_start(self, _: AgenticAgentState, envelope: Envelope, payload: AgentStart) -> None:
        agent = self._new_state(envelope, payload.name)
        agent.parent_id = payload.parent_id or ""
        agent.running = True
        if envelope.agent_id:
            self._agents[envelope.agent_id] = agent

        prompt = payload.prompt or ""
        caller = self._agents.get(agent.parent_id)
        if caller is not None and payload.via == "call":
            caller.write("subagent_call", {"target_agent": payload.name, "message": prompt})
        elif payload.via == "prompt" and payload.prompt is not None:
            agent.write("prompt", prompt, request_id=envelope.trace_id)
        agent.write("prompt_started", {"content": prompt})

    def _agent_end(self, agent: AgenticAgentState, envelope: Envelope, payload: AgentEnd) -> None:
        self._agents.pop(envelope.agent_id or "", None)
        agent.end_completion()

        # Readers wait for a `turn_end` of every agent, also of a cancelled one.
        if payload.stop_reason == "cancelled":
            agent.write("turn_cancelled", {})
        result = payload.result or ""
        agent.write("turn_end", {"messages": [{"content": result, "role": "assistant"}]})

        # The target of a hand-off answers for both.
        caller = self._agents.get(agent.parent_id)
        if caller is not None and payload.stop_reason != "handoff":
            caller.write("subagent_result", {"source_agent": agent.name, "result": result})

    def _handoff(self, agent: AgenticAgentState, _: Envelope, payload: AgentHandoff) -> None:
        # Readers that wait for a `turn_end` of every agent wait for the target too.
        agent.write("add_child", payload.to, handoff=True, child_id=payload.to_agent_id)

    def _usage(self, agent: AgenticAgentState, _: Envelope, payload: AgentUsage) -> None:
        agent.start_completion()
        # Readers that only follow usage get it also from an agent that is not running.
        if agent.completion is None:
            agent.completion = Completion()
        agent.end_completion(payload)

    def _block_start(self, agent: AgenticAgentState, _: Envelope, payload: BlockStart) -> None:
        if payload.kind == "text":
            agent.tracker.start(payload)
        agent.start_completion()

    def _block_delta(self, agent: AgenticAgentState, _: Envelope, payload: BlockDelta) -> None:
        block = agent.tracker.find_streamed(payload)
        if block is not None:
            block.has_started = True
            agent.write_text(payload.text, payload.block_id)

    def _block_end(self, agent: AgenticAgentState, _: Envelope, payload: BlockEnd) -> None:
        block = agent.tracker.end(payload)
        is_aborted = payload.status == "aborted"
        if block is not None and is_aborted and not block.has_started and payload.text:
            agent.write_text(payload.text, payload.block_id)

    def _assistant_message(self, agent: AgenticAgentState, _: Envelope, payload: AssistantMessage) -> None:
        agent.start_completion_for(payload)
        block = agent.tracker.finish(payload.block_id)
        was_streamed = block is not None and block.has_started
        if payload.text and not was_streamed:
            agent.write_text(payload.text, payload.block_id)

    def _assistant_thinking(self, agent: AgenticAgentState, _: Envelope, payload: AssistantThinking) -> None:
        agent.start_completion_for(payload)
        if not payload.text:
            return
        if agent.completion is not None:
            agent.completion.thinking_texts.append(payload.text)
        agent.write("reasoning_content", {"reasoning_content": payload.text})

    def _assistant_block(self, agent: AgenticAgentState, _: Envelope, payload: AssistantBlock) -> None:
        agent.start_completion_for(payload)

    def _retract(self, agent: AgenticAgentState, _: Envelope, payload: BlockRetract) -> None:
        agent.tracker.drop(payload.block_ids)
        count = agent.tracker.retract(payload.block_ids)
        if count == 0 and agent.completion is None:
            return
        # The retry is another completion.
        agent.start_completion()
        retracted = {"chat_outputs": count, "reason": payload.reason}
        agent.end_completion(retracted_pieces=count, retracted=retracted)

    def _tool_call(self, agent: AgenticAgentState, _: Envelope, payload: ToolCall) -> None:
        agent.start_completion_for(payload)
        agent.tool_names[payload.call_id] = payload.tool
        if agent.completion is not None:
            agent.completion.add_call(payload)
        call = {"name": payload.tool, "arguments": call_args(payload), "tool_call_id": payload.call_id}
        agent.write("tool_call", call)

    def _tool_progress(self, agent: AgenticAgentState, _: Envelope, payload: ToolProgress) -> None:
        tool = agent.tool_names.get(payload.call_id, "")
        output = {"name": tool, "output": payload.text, "tool_call_id": payload.call_id}
        agent.write("tool_output", output)

    def _tool_result(self, agent: AgenticAgentState, _: Envelope, payload: ToolResult) -> None:
        agent.tool_names.pop(payload.call_id, None)
        if payload.ok and not payload.images:
            value: object = payload.result
        else:
            value = result_text_with_images(payload)

        # An error is sent twice: as an error, and for readers of results.
        if not payload.ok:
            error = {"name": payload.tool, "error": value, "tool_call_id": payload.call_id}
            agent.write("tool_error", error)
        result = {"name": payload.tool, "result": value, "is_log": False, "tool_call_id": payload.call_id}
        agent.write("tool_result", result, result=value)

    def _tool_await(self, agent: AgenticAgentState, _: Envelope, payload: ToolAwait) -> None:
        agent.write("wait_for_input", {call.call_id: question_text(call) for call in payload.calls})

    def _error(self, agent: AgenticAgentState, _: Envelope, payload: SessionError) -> None:
        agent.write("output", {"error": payload.message, "code": payload.code})


CONVERTERS: dict[type, Callable[[Agentic, AgenticAgentState, Envelope, Any], None]] = {
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


def completion_usage(payload: AgentUsage | None) -> dict[str, Any]:
    if payload is None:
        return {"model": "", "cost": 0, "input_tokens": 0, "output_tokens": 0, "elapsed_time": 0}
    return {
        "model": payload.model,
        "cost": payload.cost.total_cost if payload.cost else 0,
        "input_tokens": payload.usage.input_tokens,
        "output_tokens": payload.usage.output_tokens,
        "elapsed_time": (payload.duration_ms or 0) / 1000,
    }
