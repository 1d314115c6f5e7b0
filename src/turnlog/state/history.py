"""The model's view of a session: messages in order, from the log alone (protocol section 4).

Input: the events of the log. Output: `History.messages`, which a provider accepts.

- The root agents of a channel share one conversation. A called agent has its own: it begins with the prompt,
  or with a copy of the conversation it resumes in the same channel. A hand-off continues a conversation.
- Events of the application are described in the conversation of their channel. What opens a turn is added
  when that turn begins, after everything that the turn before it added.
- Blank texts and retracted parts are dropped, and neighbours of one role are merged.
- A result is in the user message right after its call, whenever it arrived.
"""

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import Any, Literal

from turnlog.events import (
    AgentEnd,
    AgentStart,
    BlockRetract,
    Envelope,
    Payload,
    ToolResult,
    UiAction,
    UiMessage,
    UnknownPayload,
)
from turnlog.state.content_parts import (
    PROVIDER_PARTS,
    THINKING_TYPES,
    ContentPart,
    prompt_parts,
    provider_result_part,
    result_part,
    text_part,
)
from turnlog.state.descriptions import describe_app_event, is_app_event_for_model

MessageRole = Literal["user", "assistant"]


@dataclass(slots=True)
class Message:
    """One message of a conversation: texts, calls and results, as content parts."""

    role: MessageRole
    content: list[ContentPart]


@dataclass(slots=True)
class ConversationCall:
    """A call in a conversation: its message and its number among all calls."""

    message: Message
    number: float
    is_client_call: bool
    has_result: bool = False


@dataclass(slots=True)
class Conversation:
    """Messages in order, in a channel ("" is none).

    Calls are looked up by their id, everything else from the end, where conversations change, so the cost
    does not grow with the length.
    """

    messages: list[Message] = field(default_factory=list)
    channel: str = ""
    _calls: dict[str, ConversationCall] = field(default_factory=dict)  # the last one of each id
    _numbers: Iterator[int] = field(default_factory=count)

    def copy(self) -> "Conversation":
        copy = Conversation(channel=self.channel)
        for message in self.messages:
            new_message = Message(message.role, list(message.content))
            copy.messages.append(new_message)
            for part in message.content:
                copy._index_part(new_message, part)
        return copy

    def add(self, role: MessageRole, part: ContentPart) -> bool:
        """Append a part. Return False and append nothing if it is blank."""
        is_added = append_part(self.messages, role, part)
        if is_added:
            self._index_part(self.messages[-1], part)
        return is_added

    def find_call(self, call_id: str) -> ConversationCall | None:
        """Return a call; the last one if several have this id."""
        return self._calls.get(call_id)

    def add_result(self, call: ConversationCall, part: ContentPart) -> None:
        """Insert a result after its call: before texts, in the order of the calls."""
        index = self._index_after(call.message)
        if index == len(self.messages) or self.messages[index].role != "user":
            self.messages.insert(index, Message("user", []))

        content = self.messages[index].content
        content.insert(bisect(content, call.number, key=self._call_number), part)
        call.has_result = True

    def retract(self, parts: list[ContentPart]) -> set[int]:
        """Remove parts, and the results of calls among them. Return the `id()` of every removed part."""
        parts_left = {id(part) for part in parts}
        call_ids = {part["id"] for part in parts if is_tool_use_part(part)}
        removed: set[int] = set()

        first_changed = len(self.messages)
        while parts_left and first_changed:
            first_changed -= 1
            content = self.messages[first_changed].content
            for index in range(len(content) - 1, -1, -1):
                part = content[index]
                if id(part) in parts_left or answered_call_id(part) in call_ids:
                    del content[index]
                    removed.add(id(part))
                    parts_left.discard(id(part))
                if not parts_left:
                    break

        for call_id in call_ids:
            self._calls.pop(call_id, None)
        self._merge_from(first_changed)
        return removed

    def _merge_from(self, first_changed: int) -> None:
        start = max(0, first_changed - 1)
        self.messages[start:] = merge_same_role_messages(self.messages[start:], self._move_calls)

    def _move_calls(self, source: Message, target: Message) -> None:
        for part in source.content:
            call = self._calls.get(part["id"]) if is_tool_use_part(part) else None
            if call is not None and call.message is source:
                call.message = target

    def _index_part(self, message: Message, part: ContentPart) -> None:
        if is_tool_use_part(part):
            is_client_call = part["type"] == "tool_use"
            self._calls[part["id"]] = ConversationCall(message, next(self._numbers), is_client_call)
            return
        answered = self._calls.get(answered_call_id(part) or "")
        if answered is not None:
            answered.has_result = True

    def _index_after(self, message: Message) -> int:
        index = len(self.messages)
        while self.messages[index - 1] is not message:
            index -= 1
        return index

    def _call_number(self, part: ContentPart) -> float:
        call = self._calls.get(answered_call_id(part) or "")
        return call.number if call else inf


@dataclass(slots=True)
class History:
    """The conversations of a session, folded from its events."""

    by_channel: dict[str, Conversation] = field(default_factory=dict)  # "" is no channel
    by_agent: dict[str, Conversation] = field(default_factory=dict)
    _running_traces: set[str] = field(default_factory=set)
    # Application events by turn that has not begun: those that open it or follow from what opens it.
    _queued_parts: dict[str, list[ContentPart]] = field(default_factory=dict)
    # By open agent and block.
    _parts_by_block: dict[str, dict[str, ContentPart]] = field(default_factory=dict)
    # By caller and call: the agent that answers.
    _answering_agents: dict[tuple[str, str], str] = field(default_factory=dict)

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        reduce = REDUCERS.get(type(payload))
        if reduce is not None:
            reduce(self, envelope, payload)
        elif is_app_event_for_model(payload, envelope):
            self._add_app_event(envelope, text_part(describe_app_event(envelope, payload)))

    def messages(self, agent_id: str, channel: str | None = None) -> list[Message]:
        """Return what the model of this agent, in this channel, reads. Later events do not change it."""
        conversation = self.by_agent.get(agent_id) or self.by_channel.get(self._channel_key(channel))
        return prepare_for_provider(conversation.messages) if conversation else []

    def begin_agent(self, envelope: Envelope, payload: AgentStart) -> None:
        """Give an agent its conversation as it was before the start. A second call changes nothing."""
        agent_id = envelope.agent_id or ""
        new = Conversation(channel=envelope.channel or "")

        if payload.via == "call":
            resumed = self.by_agent.get(payload.resumes or "", new)
            # The id of an agent is no permission to read another channel.
            self.by_agent[agent_id] = resumed.copy() if resumed.channel == new.channel else new
        elif payload.via == "handoff" and payload.call_id is not None:
            predecessor = self._answering_agents.get((payload.parent_id or "", payload.call_id), "")
            self.by_agent[agent_id] = self.by_agent.get(predecessor, new)

    @staticmethod
    def _channel_key(channel: str | None) -> str:
        return channel or ""

    def _channel_conversation(self, channel: str | None) -> Conversation:
        key = self._channel_key(channel)
        return self.by_channel.setdefault(key, Conversation(channel=key))

    def _conversation_for(self, envelope: Envelope) -> Conversation:
        conversation = self.by_agent.get(envelope.agent_id or "")
        return self._channel_conversation(envelope.channel) if conversation is None else conversation

    def _start(self, envelope: Envelope, payload: AgentStart) -> None:
        self.begin_agent(envelope, payload)
        agent_id = envelope.agent_id or ""
        self._parts_by_block.pop(agent_id, None)  # an agent that starts twice lost its first conversation
        if agent_id not in self.by_agent:
            self._running_traces.add(envelope.trace_id or "")
        if payload.call_id is not None:
            self._answering_agents[payload.parent_id or "", payload.call_id] = agent_id

        conversation = self._conversation_for(envelope)
        for part in self._queued_parts.pop(envelope.trace_id or "", ()):
            conversation.add("user", part)
        for part in prompt_parts(payload.content, payload.prompt or ""):
            conversation.add("user", part)

    def _end(self, envelope: Envelope, _: AgentEnd) -> None:
        self._parts_by_block.pop(envelope.agent_id or "", None)
        if envelope.agent_id not in self.by_agent:
            self._running_traces.discard(envelope.trace_id or "")

    def _add_app_event(self, envelope: Envelope, part: ContentPart) -> None:
        if envelope.origin == "ui":
            self._queue_turn(envelope)
        queued = self._queued_parts.get(envelope.trace_id or "")
        if queued is None:
            self._channel_conversation(envelope.channel).add("user", part)
        else:
            queued.append(part)

    def _queue_turn(self, envelope: Envelope) -> None:
        if envelope.trace_id and envelope.trace_id not in self._running_traces:
            self._queued_parts.setdefault(envelope.trace_id, [])

    def _message(self, envelope: Envelope, payload: UiMessage) -> None:
        # A message that opens a turn is the prompt of that turn's agent.
        if envelope.trace_id in self._running_traces:
            for part in prompt_parts(payload.content, payload.text):
                self._conversation_for(envelope).add("user", part)
        else:
            self._queue_turn(envelope)

    def _action(self, envelope: Envelope, payload: UiAction) -> None:
        # An action with a call answers it, and opens no turn.
        if payload.call_id is None:
            self._queue_turn(envelope)

    def _model_block(self, envelope: Envelope, payload: Any) -> None:
        part = PROVIDER_PARTS[type(payload)](payload)
        if part is None:
            return
        is_added = self._conversation_for(envelope).add("assistant", part)
        if is_added and payload.block_id:
            self._parts_by_block.setdefault(envelope.agent_id or "", {})[payload.block_id] = part

    def _result(self, envelope: Envelope, payload: ToolResult) -> None:
        conversation = self._conversation_for(envelope)
        call = conversation.find_call(payload.call_id)
        # The call was retracted, or has a result: the first one counts.
        if call is None or call.has_result:
            return

        if payload.kind is not None:
            conversation.add("assistant", provider_result_part(payload))
        elif call.is_client_call:
            caller_id = envelope.agent_id or ""
            answered_by = self._answering_agents.pop((caller_id, payload.call_id), None)
            conversation.add_result(call, result_part(payload, answered_by))

    def _retract(self, envelope: Envelope, payload: BlockRetract) -> None:
        parts = self._parts_by_block.get(envelope.agent_id or "", {})
        retracted = [parts.pop(block_id) for block_id in payload.block_ids if block_id in parts]
        if not retracted:
            return

        removed = self._conversation_for(envelope).retract(retracted)
        for block_id, part in list(parts.items()):
            if id(part) in removed:  # a block that answered a retracted call
                del parts[block_id]


REDUCERS: dict[type, Callable[[History, Envelope, Any], None]] = {
    AgentStart: History._start,
    AgentEnd: History._end,
    UiMessage: History._message,
    UiAction: History._action,
    ToolResult: History._result,
    BlockRetract: History._retract,
    **dict.fromkeys(PROVIDER_PARTS, History._model_block),
}


def append_part(messages: list[Message], role: MessageRole, part: ContentPart) -> bool:
    """Append a part to the last message of the same role, or as a new one. Return False for blank text."""
    if part["type"] == "text" and not part["text"].strip():
        return False
    if messages and messages[-1].role == role:
        messages[-1].content.append(part)
    else:
        messages.append(Message(role, [part]))
    return True


def is_tool_use_part(part: ContentPart) -> bool:
    return isinstance(part.get("id"), str) and str(part["type"]).endswith("tool_use")


def answered_call_id(part: ContentPart) -> str | None:
    call_id = part.get("tool_use_id")
    return call_id if isinstance(call_id, str) else None


def merge_same_role_messages(
    messages: Iterable[Message], on_merge: Callable[[Message, Message], None] | None = None
) -> list[Message]:
    """Drop empty messages and merge neighbours of one role: the first of them gets all parts.

    `on_merge` is called with a message and the one that gets its parts.
    """
    merged: list[Message] = []
    for message in messages:
        if merged and merged[-1].role == message.role:
            if on_merge is not None:
                on_merge(message, merged[-1])
            merged[-1].content += message.content
        elif message.content:
            merged.append(message)
    return merged


def prepare_for_provider(messages: list[Message]) -> list[Message]:
    """Return a copy that the Messages API accepts.

    Calls without a result are removed, except calls of the provider's tools in the message that the model
    continues. Thinking at the end of a message is removed. Neighbours of one role are merged.
    """
    answered = {answered_call_id(part) for message in messages for part in message.content}
    continued = continued_message_index(messages)

    prepared: list[Message] = []
    for index, message in enumerate(messages):
        content: list[ContentPart] = []
        for part in message.content:
            is_open_call = is_tool_use_part(part) and part["id"] not in answered
            may_stay_open = index == continued and part["type"] != "tool_use"
            if not is_open_call or may_stay_open:
                content.append(part)
        while content and content[-1]["type"] in THINKING_TYPES:
            content.pop()
        prepared.append(Message(message.role, content))
    return merge_same_role_messages(prepared)


def continued_message_index(messages: list[Message]) -> int:
    last = len(messages) - 1
    if last <= 0:
        return last
    has_only_results = all(part["type"] == "tool_result" for part in messages[last].content)
    return last - 1 if has_only_results else last
