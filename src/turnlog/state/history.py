"""The model's view of a session: messages in order, from the log alone (protocol section 4).

The root agents of a session share one conversation; an agent that was called has its own, which begins with
its prompt. Blank turns are dropped, neighbours of one role are merged, and the last turn is the user's. What
was retracted was never said.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from turnlog.events import (
    AgentEnd,
    AgentStart,
    AssistantBlock,
    AssistantMessage,
    AssistantThinking,
    BlockRetract,
    Envelope,
    Payload,
    ToolCall,
    ToolResult,
    UiMessage,
    Unknown,
)

Part = dict[str, Any]


@dataclass(slots=True)
class Message:
    """One turn of a conversation: texts, calls and results, as content parts."""

    role: Literal["user", "assistant"]
    content: list[Part]


@dataclass(slots=True)
class History:
    """The conversations of a session, folded from its events."""

    root: list[Message] = field(default_factory=list)
    called: dict[str, list[Message]] = field(default_factory=dict)
    _traces: set[str] = field(default_factory=set)
    _blocks: dict[str, dict[str, Part]] = field(default_factory=dict)  # by agent and block: its part

    def apply(self, envelope: Envelope, payload: Payload | Unknown) -> None:
        """Take one event into account."""
        messages = self.called.get(envelope.agent_id or "", self.root)
        match payload:
            case AgentStart(via="call", prompt=prompt):
                own = self.called[envelope.agent_id or ""] = []
                add(own, "user", text_part(prompt or ""))
            case AgentStart(prompt=prompt):  # a message that waits for its turn is read when the turn begins
                self._traces.add(envelope.trace_id or "")
                add(messages, "user", text_part(prompt or ""))
            case AgentEnd():
                self._blocks.pop(envelope.agent_id or "", None)
                if messages is self.root:
                    self._traces.discard(envelope.trace_id or "")
            case UiMessage(text=text) if envelope.trace_id in self._traces:
                add(messages, "user", text_part(text))
            case ToolResult(kind=None):
                add(messages, "user", result_part(payload))
                sort_results(messages)
            case BlockRetract(block_ids=void):
                blocks = self._blocks.get(envelope.agent_id or "", {})
                take_back(messages, [blocks.pop(key) for key in void if key in blocks])
            case _ if part := spoken(payload):
                add(messages, "assistant", part)
                key = getattr(payload, "block_id", None) or ""
                self._blocks.setdefault(envelope.agent_id or "", {})[key] = part
            case _:
                pass

    def messages(self, agent_id: str) -> list[Message]:
        """What this agent's model gets to read."""
        return self.called.get(agent_id, self.root)


def add(messages: list[Message], role: Literal["user", "assistant"], part: Part) -> None:
    """Append a part: blank text is dropped, the same role as before is continued."""
    if part["type"] == "text" and not part["text"].strip():
        return
    if messages and messages[-1].role == role:
        messages[-1].content.append(part)
    else:
        messages.append(Message(role, [part]))


def take_back(messages: list[Message], void: list[Part]) -> None:
    """Remove parts of the last message, and what the provider answered to them."""
    gone, calls = {id(part) for part in void}, {part["id"] for part in void if "id" in part}
    if messages and messages[-1].role == "assistant":
        kept = [p for p in messages[-1].content if id(p) not in gone and p.get("tool_use_id") not in calls]
        messages[-1:] = [Message("assistant", kept)] if kept else []


def sort_results(messages: list[Message]) -> None:
    """Results in the order of their calls, whichever was ready first; words come after them."""
    calls = messages[-2].content if len(messages) > 1 else []
    order = {part["id"]: place for place, part in enumerate(calls) if part["type"] == "tool_use"}
    messages[-1].content.sort(key=lambda part: order.get(part.get("tool_use_id"), len(calls)))


def spoken(payload: Payload | Unknown) -> Part | None:
    """What an event adds to the model's own message, if it does."""
    match payload:
        case AssistantBlock(kind=kind) if kind in OWN or kind.endswith("_tool_result"):
            return None  # it lacked what its kind needs: no provider takes it back
        case AssistantThinking(signature=None, redacted=None):
            return None  # nor a thinking that nobody signed
    part_of = PARTS.get(type(payload))
    return part_of(payload) if part_of else None


def text_part(text: str) -> Part:
    return {"type": "text", "text": text}


def said_part(payload: AssistantMessage) -> Part:
    """A text of the model, with its sources."""
    cited = [msgspec.to_builtins(item) for item in payload.citations]
    return text_part(payload.text) | ({"citations": cited} if cited else {})


def thinking_part(payload: AssistantThinking) -> Part:
    """A thinking as the provider wants it back."""
    if payload.redacted is not None:
        return {"type": "redacted_thinking", "data": payload.redacted}
    return {"type": "thinking", "thinking": payload.text, "signature": payload.signature}


def call_part(payload: ToolCall) -> Part:
    """A call; what ran at the provider says so in `type`."""
    kind = "server_tool_use" if payload.executor == "provider" else "tool_use"
    part = {"type": kind, "id": payload.call_id, "name": payload.tool, "input": payload.args}
    return part | (payload.extra or {})


def provided_part(payload: ToolResult) -> Part:
    """A result of the provider's own tools: part of the model's message."""
    details = payload.error.details if payload.error else None
    content = (details or {}).get("content") if payload.error else payload.result
    part = {"type": payload.kind, "tool_use_id": payload.call_id, "content": content}
    return part | (payload.extra or {})


OWN = frozenset(
    {"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "mcp_tool_use"}
)  # kinds with an event of their own
PARTS: dict[type, Callable[[Any], Part]] = {
    AssistantMessage: said_part,
    AssistantThinking: thinking_part,
    AssistantBlock: lambda payload: {"type": payload.kind, **payload.data},
    ToolCall: call_part,
    ToolResult: provided_part,
}


def result_part(payload: ToolResult) -> Part:
    """A tool result as the model reads it: text as it is, other values as JSON."""
    return {
        "type": "tool_result",
        "tool_use_id": payload.call_id,
        "content": result_text(payload),
        "is_error": not payload.ok,
    }


def result_text(payload: ToolResult) -> str:
    """The result of a call in one text."""
    value = payload.result if payload.ok else payload.error
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
