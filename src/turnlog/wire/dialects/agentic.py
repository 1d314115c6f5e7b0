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
    Unknown,
)
from turnlog.wire.dialects.base import DONE, Shown, call_args, compact, with_images

OWN = frozenset(kind.name.partition(".")[0] for kind in CORE)  # an unknown type of these may be a newer one


@dataclass(slots=True)
class Completion:
    """What a model has said since it was asked."""

    said: list[str] = field(default_factory=list)
    thought: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)

    def drop(self, count: int) -> None:
        """The last pieces of text are void; there may be more before this completion."""
        del self.said[max(0, len(self.said) - count) :]

    def message(self) -> dict[str, Any]:
        """The reply, as a chat completion has it."""
        return {"content": "".join(self.said), "role": "assistant", "tool_calls": self.calls or None}

    def metadata(self) -> dict[str, Any]:
        """What else it gave."""
        return {"reasoning_content": "\n".join(self.thought)} if self.thought else {}


@dataclass(slots=True)
class Agent:
    """An agent from its start to its end; it writes its own messages."""

    name: str
    depth: int
    parent_id: str = ""
    running: bool = False
    completion: Completion | None = None
    blocks: dict[str, bool] = field(default_factory=dict)  # its texts: whether something of them was told
    tools: dict[str, str] = field(default_factory=dict)  # the names, by open call
    shown: Shown = field(default_factory=Shown)  # its `chat_output`s

    def line(self, type: str, payload: object, **fields: object) -> bytes:
        return msgspec.json.encode(
            {"type": type, "agent": self.name, "depth": self.depth, "payload": payload, **fields}
        )

    def begin(self) -> list[bytes]:
        """Be in a completion; who is not running has nobody to end it."""
        if self.completion is not None or not self.running:
            return []
        self.completion = Completion()
        return [self.line("completion_start", {})]

    def end(self, usage: AgentUsage | None = None, void: int = 0, **metadata: object) -> list[bytes]:
        """End the completion, if there is one; its last pieces of text may be void."""
        completion, self.completion = self.completion, None
        if completion is None:
            return []
        completion.drop(void)
        payload = {
            "usage": usage_of(usage),
            "metadata": completion.metadata() | metadata,
            "llm_message": completion.message(),
        }
        return [self.line("completion_end", payload)]

    def say(self, text: str, block_id: str | None) -> list[bytes]:
        """A piece of text."""
        self.shown.add(block_id)
        if self.completion is not None:
            self.completion.said.append(text)
        return [self.line("chat_output", {"content": text, "role": "assistant"})]

    def result(self, tool: str, value: object, call_id: str, *, log: bool) -> bytes:
        """What a tool gave, or says while it runs."""
        payload = {"name": tool, "result": value, "is_log": log, "tool_call_id": call_id}
        return self.line("tool_result", payload, result=value)


class Agentic:
    """One projection of a session's log."""

    def __init__(self) -> None:
        self._agents: dict[str, Agent] = {}  # the running ones, by id

    def convert(self, envelope: Envelope, payload: Payload | Unknown) -> list[bytes]:
        """The messages of one event."""
        agent = self._agents.get(envelope.agent_id or "")
        agent = agent or Agent(envelope.agent_name or "", envelope.depth or 0)
        say = SAY.get(type(payload))
        if say is not None:
            return say(self, agent, envelope, payload)
        newer = isinstance(payload, Unknown) and envelope.type.partition(".")[0] in OWN
        if newer or envelope.type in CORE.kinds:
            return []
        return [agent.line("set_state", {envelope.type: envelope.payload})]

    def close(self) -> list[bytes]:
        """What ends a response; completions that are open are ended."""
        ends = [message for agent in self._agents.values() for message in agent.end()]
        return [*ends, DONE]

    @property
    def idle(self) -> bool:
        """Whether nothing is open: the state is empty between turns."""
        return not self._agents

    def _message(self, agent: Agent, envelope: Envelope, payload: UiMessage) -> list[bytes]:
        to = Agent(payload.target or agent.name, agent.depth)
        return [to.line("prompt", payload.text, request_id=envelope.trace_id)]

    def _action(self, agent: Agent, envelope: Envelope, payload: UiAction) -> list[bytes]:
        """The input that a call waits for; other actions are on views, which 001 does not know."""
        if payload.call_id is None:
            return []
        answer = {payload.call_id: getattr(payload.action, "values", payload.action)}
        return [agent.line("resume_with_input", answer, request_id=envelope.trace_id)]

    def _agent_start(self, _: Agent, envelope: Envelope, payload: AgentStart) -> list[bytes]:
        started = Agent(payload.name, envelope.depth or 0, payload.parent_id or "", running=True)
        if envelope.agent_id:
            self._agents[envelope.agent_id] = started
        prompt = payload.prompt or ""
        messages = [started.line("prompt_started", {"content": prompt})]
        caller = self._agents.get(started.parent_id)
        if caller is None or payload.via != "call":
            return messages
        return [caller.line("subagent_call", {"target_agent": payload.name, "message": prompt}), *messages]

    def _agent_end(self, agent: Agent, envelope: Envelope, payload: AgentEnd) -> list[bytes]:
        """The end of an agent, and its answer to who called it; an agent that took over answers for both."""
        self._agents.pop(envelope.agent_id or "", None)
        messages, result = agent.end(), payload.result or ""
        if payload.stop_reason == "cancelled":
            messages.append(agent.line("turn_cancelled", {}))  # and its end: readers wait for everybody's
        messages.append(agent.line("turn_end", {"messages": [{"content": result, "role": "assistant"}]}))
        caller = self._agents.get(agent.parent_id)
        if caller is None or payload.stop_reason == "handoff":
            return messages
        return [*messages, caller.line("subagent_result", {"source_agent": agent.name, "result": result})]

    def _handoff(self, agent: Agent, _: Envelope, payload: AgentHandoff) -> list[bytes]:
        return [agent.line("add_child", payload.to, handoff=True)]

    def _usage(self, agent: Agent, _: Envelope, payload: AgentUsage) -> list[bytes]:
        messages = agent.begin()
        agent.completion = agent.completion or Completion()  # a reader that only follows usage gets it all
        return messages + agent.end(payload)

    def _block_start(self, agent: Agent, _: Envelope, payload: BlockStart) -> list[bytes]:
        if payload.kind == "text":
            agent.blocks[payload.block_id] = False
        return agent.begin()

    def _block_delta(self, agent: Agent, _: Envelope, payload: BlockDelta) -> list[bytes]:
        if payload.block_id not in agent.blocks or not payload.text:
            return []
        agent.blocks[payload.block_id] = True
        return agent.say(payload.text, payload.block_id)

    def _block_end(self, agent: Agent, _: Envelope, payload: BlockEnd) -> list[bytes]:
        """A complete block waits for its twin, an aborted one has none."""
        if payload.status == "complete" or agent.blocks.pop(payload.block_id, True) or not payload.text:
            return []
        return agent.say(payload.text, payload.block_id)

    def _said(self, agent: Agent, _: Envelope, payload: AssistantMessage) -> list[bytes]:
        """A text, unless its deltas said it."""
        messages = begun(agent, payload)
        if agent.blocks.pop(payload.block_id or "", False) or not payload.text:
            return messages
        return messages + agent.say(payload.text, payload.block_id)

    def _thought(self, agent: Agent, _: Envelope, payload: AssistantThinking) -> list[bytes]:
        messages = begun(agent, payload)
        if not payload.text:
            return messages
        if agent.completion is not None:
            agent.completion.thought.append(payload.text)
        return [*messages, agent.line("reasoning_content", {"reasoning_content": payload.text})]

    def _other(self, agent: Agent, _: Envelope, payload: AssistantBlock) -> list[bytes]:
        return begun(agent, payload)

    def _retract(self, agent: Agent, _: Envelope, payload: BlockRetract) -> list[bytes]:
        """End the completion; the retry is another one."""
        for block_id in payload.block_ids:
            agent.blocks.pop(block_id, None)
        count = agent.shown.retract(payload.block_ids)
        if count == 0 and agent.completion is None:
            return []
        retracted = {"chat_outputs": count, "reason": payload.reason}
        return agent.begin() + agent.end(void=count, retracted=retracted)

    def _tool_call(self, agent: Agent, _: Envelope, payload: ToolCall) -> list[bytes]:
        messages, args = begun(agent, payload), call_args(payload)
        agent.tools[payload.call_id] = payload.tool
        if agent.completion is not None:
            function = {"name": payload.tool, "arguments": args if isinstance(args, str) else compact(args)}
            agent.completion.calls.append({"id": payload.call_id, "type": "function", "function": function})
        call = {"name": payload.tool, "arguments": args, "tool_call_id": payload.call_id}
        return [*messages, agent.line("tool_call", call)]

    def _tool_progress(self, agent: Agent, _: Envelope, payload: ToolProgress) -> list[bytes]:
        tool = agent.tools.get(payload.call_id, "")
        return [agent.result(tool, payload.text, payload.call_id, log=True)]

    def _tool_result(self, agent: Agent, _: Envelope, payload: ToolResult) -> list[bytes]:
        """What a tool gave. What went wrong is told twice: as an error, and to readers of results."""
        agent.tools.pop(payload.call_id, None)
        if payload.ok:
            value = with_images(payload) if payload.images else payload.result
            return [agent.result(payload.tool, value, payload.call_id, log=False)]
        text = with_images(payload)
        error = {"name": payload.tool, "error": text, "tool_call_id": payload.call_id}
        return [
            agent.line("tool_error", error),
            agent.result(payload.tool, text, payload.call_id, log=False),
        ]

    def _tool_await(self, agent: Agent, _: Envelope, payload: ToolAwait) -> list[bytes]:
        questions = {call.call_id: question(call) for call in payload.calls}
        return [agent.line("wait_for_input", questions)]

    def _error(self, agent: Agent, _: Envelope, payload: SessionError) -> list[bytes]:
        return [agent.line("output", {"error": payload.message, "code": payload.code})]


def begun(agent: Agent, payload: Any) -> list[bytes]:
    """What begins a completion; what is no block of a model does not."""
    return agent.begin() if payload.block_id or payload.message_id else []


def question(call: AwaitedCall) -> str:
    """What a person is asked."""
    asked = call.args.get("question")
    return asked if isinstance(asked, str) else compact(call.args)


def usage_of(payload: AgentUsage | None) -> dict[str, Any]:
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


SAY: dict[type, Callable[[Agentic, Agent, Envelope, Any], list[bytes]]] = {
    UiMessage: Agentic._message,
    UiAction: Agentic._action,
    AgentStart: Agentic._agent_start,
    AgentEnd: Agentic._agent_end,
    AgentHandoff: Agentic._handoff,
    AgentUsage: Agentic._usage,
    BlockStart: Agentic._block_start,
    BlockDelta: Agentic._block_delta,
    BlockEnd: Agentic._block_end,
    BlockRetract: Agentic._retract,
    AssistantMessage: Agentic._said,
    AssistantThinking: Agentic._thought,
    AssistantBlock: Agentic._other,
    ToolCall: Agentic._tool_call,
    ToolProgress: Agentic._tool_progress,
    ToolResult: Agentic._tool_result,
    ToolAwait: Agentic._tool_await,
    SessionError: Agentic._error,
}
