"""The model's view of a session: messages in order, from the log alone (protocol section 4).

The root agents of a channel share one conversation; an agent that was called has its own, which begins with
its prompt, or goes on from a copy of the one it resumes in the same channel. A hand-off goes on with the
conversation it takes over. What pages sent directly and rules said stands in the conversation of its channel,
told. What asks for a turn of its own is read when that turn begins, together with what rules made of it:
after all that a turn before it said. Blank turns are dropped, neighbours of one role are merged, what was
retracted is gone, and a result stands in the user's turn right after its call. `messages` gives what a
provider accepts: calls without a result are left out, and so is a thinking that led to nothing. A part
has the form of the Messages API; images in results are named by their address, which only an adapter
resolves.
"""

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from math import inf
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
    UiAction,
    UiMessage,
    Unknown,
)
from turnlog.state.narration import is_news, news

Part = dict[str, Any]
Role = Literal["user", "assistant"]


@dataclass(slots=True)
class Message:
    """One turn of a conversation: texts, calls and results, as content parts."""

    role: Role
    content: list[Part]


@dataclass(slots=True)
class Call:
    """A call in a conversation: the message it stands in, its number among all calls, whose it is to run."""

    message: Message
    number: float
    own: bool
    answered: bool = False


@dataclass(slots=True)
class Conversation:
    """Messages in order, in a channel ("" is none). Calls are found by their id, and everything else from the
    end: that is where a conversation changes, however long it is."""

    messages: list[Message] = field(default_factory=list)
    channel: str = ""
    _calls: dict[str, Call] = field(default_factory=dict)  # the last one of each id
    _numbers: Iterator[int] = field(default_factory=count)

    @classmethod
    def of(cls, messages: list[Message], channel: str = "") -> "Conversation":
        """These messages, which are its own from now on."""
        conversation = cls(messages, channel)
        for message in messages:
            for part in message.content:
                conversation._note(message, part)
        return conversation

    def copy(self) -> "Conversation":
        """The same, to go its own way from here."""
        messages = [Message(message.role, list(message.content)) for message in self.messages]
        return Conversation.of(messages, self.channel)

    def add(self, role: Role, part: Part) -> bool:
        """Append a part, unless it is blank."""
        added = add(self.messages, role, part)
        if added:
            self._note(self.messages[-1], part)
        return added

    def call(self, call_id: str) -> Call | None:
        """A call; of several with one id the last one counts."""
        return self._calls.get(call_id)

    def answer(self, call: Call, part: Part) -> None:
        """Put a result behind its call: in the order of the calls, whatever was ready first, before words."""
        place = self._after(call.message)
        if place == len(self.messages) or self.messages[place].role != "user":
            self.messages.insert(place, Message("user", []))
        results = self.messages[place].content
        results.insert(bisect(results, call.number, key=self._order), part)
        call.answered = True

    def retract(self, gone: list[Part]) -> set[int]:
        """Take parts out, and with calls among them their results. Return the `id()` of all that went."""
        void, calls = {id(part) for part in gone}, {part["id"] for part in gone if is_call(part)}
        removed: set[int] = set()
        place = len(self.messages)
        while void and place:
            place -= 1
            content = self.messages[place].content
            for index in range(len(content) - 1, -1, -1):
                if id(content[index]) in void or answers(content[index]) in calls:
                    part = content.pop(index)
                    removed.add(id(part))
                    void.discard(id(part))
                if not void:
                    break
        for call_id in calls:
            self._calls.pop(call_id, None)
        self._join(place)
        return removed

    def _join(self, place: int) -> None:
        """From a place on, empty messages are dropped and neighbours of one role merged."""
        ends = self.messages[place:]
        del self.messages[place:]
        for message in ends:
            if self.messages and self.messages[-1].role == message.role:
                self._move(message, self.messages[-1])
            elif message.content:
                self.messages.append(message)

    def _move(self, message: Message, to: Message) -> None:
        to.content += message.content
        for part in message.content:
            call = self._calls.get(part["id"]) if is_call(part) else None
            if call and call.message is message:
                call.message = to

    def _note(self, message: Message, part: Part) -> None:
        if is_call(part):
            self._calls[part["id"]] = Call(message, next(self._numbers), part["type"] == "tool_use")
        elif call := self._calls.get(answers(part) or ""):
            call.answered = True

    def _after(self, message: Message) -> int:
        place = len(self.messages)
        while self.messages[place - 1] is not message:
            place -= 1
        return place

    def _order(self, part: Part) -> float:
        call = self._calls.get(answers(part) or "")
        return call.number if call else inf


@dataclass(slots=True)
class History:
    """The conversations of a session, folded from its events."""

    roots: dict[str, Conversation] = field(default_factory=dict)  # by channel; "" is no channel
    called: dict[str, Conversation] = field(default_factory=dict)
    _traces: set[str] = field(default_factory=set)
    # by turn that has not begun: the application's events that open it or follow from what opens it
    _coming: dict[str, list[Part]] = field(default_factory=dict)
    _shown: dict[str, dict[str, Part]] = field(default_factory=dict)  # by open agent and block
    _answers: dict[tuple[str, str], str] = field(default_factory=dict)  # by caller and call: who answers

    def apply(self, envelope: Envelope, payload: Payload | Unknown) -> None:
        """Take one event into account."""
        step = STEPS.get(type(payload))
        if step is not None:
            step(self, envelope, payload)
        elif is_news(payload, envelope):
            self._news(envelope, text_part(news(envelope, payload)))

    def messages(self, agent_id: str, channel: str | None = None) -> list[Message]:
        """What the model of this agent, in this channel, gets to read; later events do not change it."""
        return lawful(self.called.get(agent_id, self._root(channel)).messages)

    @property
    def root(self) -> list[Message]:
        """The conversation outside of all channels."""
        return self._root(None).messages

    def _root(self, channel: str | None) -> Conversation:
        return self.roots.setdefault(channel or "", Conversation(channel=channel or ""))

    def _of(self, envelope: Envelope) -> Conversation:
        """The conversation that an event belongs to."""
        own = self.called.get(envelope.agent_id or "")
        return self._root(envelope.channel) if own is None else own

    def begin(self, envelope: Envelope, payload: AgentStart) -> None:
        """Give an agent that starts its conversation as it was before; to say so twice changes nothing."""
        agent_id, call = envelope.agent_id or "", (payload.parent_id or "", payload.call_id or "")
        new = Conversation(channel=envelope.channel or "")
        if payload.via == "call":
            resumed = self.called.get(payload.resumes or "", new)
            # the id of an agent is no right to read what was said in another channel
            self.called[agent_id] = resumed.copy() if resumed.channel == new.channel else new
        elif payload.via == "handoff" and payload.call_id is not None:
            self.called[agent_id] = self.called.get(self._answers.get(call, ""), new)

    def _start(self, envelope: Envelope, payload: AgentStart) -> None:
        """A message that waits for its turn is read when the turn begins."""
        self.begin(envelope, payload)
        agent_id = envelope.agent_id or ""
        self._shown.pop(agent_id, None)  # of an agent that starts twice, the first conversation is gone
        if agent_id not in self.called:
            self._traces.add(envelope.trace_id or "")
        if payload.call_id is not None:
            self._answers[payload.parent_id or "", payload.call_id] = agent_id
        for part in self._coming.pop(envelope.trace_id or "", ()):
            self._of(envelope).add("user", part)
        self._of(envelope).add("user", text_part(payload.prompt or ""))

    def _news(self, envelope: Envelope, part: Part) -> None:
        if envelope.origin == "ui":
            self._queue(envelope)
        coming = self._coming.get(envelope.trace_id or "")
        if coming is None:
            self._root(envelope.channel).add("user", part)
        else:
            coming.append(part)

    def _queue(self, envelope: Envelope) -> None:
        """Hold back the application's events of a turn until it begins, unless it runs."""
        if envelope.trace_id and envelope.trace_id not in self._traces:
            self._coming.setdefault(envelope.trace_id, [])

    def _end(self, envelope: Envelope, _: AgentEnd) -> None:
        self._shown.pop(envelope.agent_id or "", None)
        if envelope.agent_id not in self.called:
            self._traces.discard(envelope.trace_id or "")

    def _message(self, envelope: Envelope, payload: UiMessage) -> None:
        if envelope.trace_id in self._traces:
            self._of(envelope).add("user", text_part(payload.text))
        else:
            self._queue(envelope)

    def _action(self, envelope: Envelope, payload: UiAction) -> None:
        # an action with a call answers it, and opens no turn
        if payload.call_id is None:
            self._queue(envelope)

    def _said(self, envelope: Envelope, payload: Any) -> None:
        """A block of the model, whole."""
        part = PARTS[type(payload)](payload)
        if part is not None and self._of(envelope).add("assistant", part) and payload.block_id:
            self._shown.setdefault(envelope.agent_id or "", {})[payload.block_id] = part

    def _result(self, envelope: Envelope, payload: ToolResult) -> None:
        """What nobody called for is not told: its call was retracted, or was the provider's to answer."""
        conversation, agent_id = self._of(envelope), envelope.agent_id or ""
        call = conversation.call(payload.call_id)
        if call is None or call.answered:  # the first answer counts
            return
        if payload.kind is not None:
            conversation.add("assistant", provided_part(payload))
        elif call.own:
            answered_by = self._answers.pop((agent_id, payload.call_id), None)
            conversation.answer(call, result_part(payload, answered_by))

    def _retract(self, envelope: Envelope, payload: BlockRetract) -> None:
        shown = self._shown.get(envelope.agent_id or "", {})
        if gone := [shown.pop(block_id) for block_id in payload.block_ids if block_id in shown]:
            void = self._of(envelope).retract(gone)
            for block_id in [block_id for block_id, part in shown.items() if id(part) in void]:
                del shown[block_id]  # a block that answered a retracted call


def add(messages: list[Message], role: Role, part: Part) -> bool:
    """Append a part: blank text is dropped, the same role as before is continued."""
    if part["type"] == "text" and not part["text"].strip():
        return False
    if messages and messages[-1].role == role:
        messages[-1].content.append(part)
    else:
        messages.append(Message(role, [part]))
    return True


def is_call(part: Part) -> bool:
    """Whether a part asks for a tool, ours or the provider's; what else it is, only the provider knows."""
    return isinstance(part.get("id"), str) and str(part["type"]).endswith("tool_use")


def answers(part: Part) -> str | None:
    """The call that a part answers."""
    call_id = part.get("tool_use_id")
    return call_id if isinstance(call_id, str) else None


def tidy(messages: Iterable[Message]) -> list[Message]:
    """Empty turns are dropped, neighbours of one role are merged."""
    tidied: list[Message] = []
    for message in messages:
        if tidied and tidied[-1].role == message.role:
            tidied[-1].content += message.content
        elif message.content:
            tidied.append(message)
    return tidied


def lawful(messages: list[Message]) -> list[Message]:
    """A conversation as a provider takes it.

    Every call has its result; only a call of the provider's tools may still be open, if the model is about to
    go on with its own turn. The last part of an assistant's turn is not a thinking.
    """
    answered = {answers(part) for message in messages for part in message.content}
    last = going_on(messages)
    told: list[Message] = []
    for place, message in enumerate(messages):
        content = [
            part
            for part in message.content
            if not is_call(part) or part["id"] in answered or (place == last and part["type"] != "tool_use")
        ]
        while content and content[-1]["type"] in THINKING:
            content.pop()
        told.append(Message(message.role, content))
    return tidy(told)


def going_on(messages: list[Message]) -> int:
    """The turn that the model goes on with: the last one, or the one before results."""
    last = len(messages) - 1
    ours = last > 0 and all(part["type"] == "tool_result" for part in messages[last].content)
    return last - 1 if ours else last


def text_part(text: str) -> Part:
    return {"type": "text", "text": text}


def said_part(payload: AssistantMessage) -> Part:
    """A text of the model, with its sources."""
    cited = [msgspec.to_builtins(item) for item in payload.citations]
    return text_part(payload.text) | ({"citations": cited} if cited else {})


def thinking_part(payload: AssistantThinking) -> Part | None:
    """A thinking as the provider wants it back; nobody takes one that was not signed."""
    if payload.redacted is not None:
        return {"type": "redacted_thinking", "data": payload.redacted}
    if payload.signature is None:
        return None
    return {"type": "thinking", "thinking": payload.text, "signature": payload.signature}


def block_part(payload: AssistantBlock) -> Part | None:
    """A block of another kind; one that lacked what its kind needs is not taken back."""
    part = {"type": payload.kind, **payload.data}
    kind = part["type"]
    return None if not isinstance(kind, str) or kind in OWN or kind.endswith("_tool_result") else part


def call_part(payload: ToolCall) -> Part:
    """A call; what ran at the provider says so in `type`."""
    kind = "server_tool_use" if payload.executor == "provider" else "tool_use"
    part = {"type": kind, "id": payload.call_id, "name": payload.tool, "input": payload.args}
    return part | (payload.extra or {})


def provided_part(payload: ToolResult) -> Part:
    """A result of the provider's own tools: part of the model's message."""
    content = payload.result
    if not payload.ok:
        # without the provider's own words only the code is known, in an older log not even that
        code = payload.error.code if payload.error else "unavailable"
        details = payload.error.details if payload.error else None
        content = (details or {}).get("content", {"type": f"{payload.kind}_error", "error_code": code})
    part = {"type": payload.kind, "tool_use_id": payload.call_id, "content": content}
    return part | (payload.extra or {})


def result_part(payload: ToolResult, agent_id: str | None = None) -> Part:
    """A tool result as the model reads it; one that an agent gave names it, so that it can be resumed."""
    text = result_text(payload)
    images = [{"type": "image", **msgspec.to_builtins(image)} for image in payload.images]
    words = [text_part(text)] if text.strip() else []
    return {
        "type": "tool_result",
        "tool_use_id": payload.call_id,
        "content": [*words, *images] if images else text,
        "is_error": not payload.ok,
    } | ({"agent_id": agent_id} if agent_id else {})


def result_text(payload: ToolResult) -> str:
    """The result of a call in one text: text as it is, other values as JSON."""
    value = payload.result if payload.ok else payload.error
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


THINKING = frozenset({"thinking", "redacted_thinking"})
OWN = THINKING | {"text", "tool_use", "server_tool_use", "mcp_tool_use"}  # kinds with an event of their own
PARTS: dict[type, Callable[[Any], Part | None]] = {
    AssistantMessage: said_part,
    AssistantThinking: thinking_part,
    AssistantBlock: block_part,
    ToolCall: call_part,
}
STEPS: dict[type, Callable[[History, Envelope, Any], None]] = {
    AgentStart: History._start,
    AgentEnd: History._end,
    UiMessage: History._message,
    UiAction: History._action,
    ToolResult: History._result,
    BlockRetract: History._retract,
    **dict.fromkeys(PARTS, History._said),
}
