"""A thread of AG-UI as its client keeps it: events go in, messages and the state for the next run come out.

Does no I/O. The protocol has no history of its own: a client builds it from the events, and sends it with
every run. Texts and calls of sub-agents are not part of it. MESSAGES_SNAPSHOT replaces the messages, and
STATE_SNAPSHOT and STATE_DELTA the state. A state that is too large, or a patch that does not fit, leaves
none. Limits: `MAX_HISTORY_BYTES`, of which the oldest files and then the oldest turns are dropped first, and
`MAX_STATE_BYTES`.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from turnlog.adapters.ag_ui_files import drop_files, has_files
from turnlog.adapters.runner import UnreadableState
from turnlog.errors import BadInput
from turnlog.events.surrogates import replace_lone_surrogates
from turnlog.ids import new_id
from turnlog.parse.foreign.ag_ui_interrupts import AnswerForm
from turnlog.parse.foreign.common import get_text
from turnlog.parse.json_values import JsonObject, as_list, get_field, to_json_value
from turnlog.wire.json_patch import PatchedValue

log = logging.getLogger("turnlog.agents")

MAX_HISTORY_BYTES = 5632 << 10  # one image of the largest size; a server of ours takes bodies of 8 MiB
MAX_STATE_BYTES = 2 << 20
MAX_SAVED_MESSAGE_IDS = 256  # of the last messages: a snapshot has those of the open turn again


class ThreadQuestion(msgspec.Struct):
    """A call that waits. `interrupt_id` is None for a call that a tool message answers.

    An interrupt that came as a CUSTOM event has an empty id.
    """

    agent_id: str
    call_id: str
    source_call_id: str
    interrupt_id: str | None = None
    form: AnswerForm = "value"
    reason_field: str = "reason"


class StoredThread(msgspec.Struct):
    """The state of a checkpoint. `agents` are the open sub-agents, by the id of their run.

    `open_calls` are the calls of the thread without a result, as the server spells their ids.
    """

    messages: list[JsonObject] = []
    state: Any = None
    questions: list[ThreadQuestion] = []
    agents: dict[str, str] = {}
    message_ids: list[str] = []
    open_calls: list[str] = []


def decode_thread(state: bytes | None) -> StoredThread:
    if state is None:
        return StoredThread()
    try:
        return msgspec.json.decode(state, type=StoredThread)
    except msgspec.DecodeError as error:
        raise UnreadableState(f"the stored thread is not of this version: {str(error)[:80]}") from error


def join_cut_pieces(pieces: Sequence[str]) -> str:
    """Return a text whose surrogate pairs may be cut between two pieces."""
    return replace_lone_surrogates("".join(pieces))


@dataclass(slots=True)
class StreamedCall:
    call_id: str
    name: str
    pieces: list[str] = field(default_factory=list)

    def build(self) -> JsonObject:
        function = {"name": self.name, "arguments": join_cut_pieces(self.pieces)}
        return {"id": self.call_id, "type": "function", "function": function}


@dataclass(slots=True)
class StreamedMessage:
    """A message of this run. `fields` are those that do not stream."""

    fields: JsonObject
    pieces: list[str] = field(default_factory=list)
    calls: list[StreamedCall] = field(default_factory=list)

    def build(self) -> JsonObject | None:
        """Return the message; None if it is empty."""
        message = dict(self.fields)
        if self.pieces:
            message["content"] = join_cut_pieces(self.pieces)
        if self.calls:
            message["toolCalls"] = [call.build() for call in self.calls]
        return message if "content" in message or self.calls else None


class ClientThread:
    """The messages and the state of a thread, from what was saved on."""

    def __init__(self, saved: StoredThread) -> None:
        self._messages: list[JsonObject] = list(saved.messages)
        self._message_ids = list(saved.message_ids)
        self._state = PatchedValue(saved.state)
        self._streamed: list[StreamedMessage] = []
        self._by_id: dict[str, StreamedMessage] = {}
        self._calls: dict[str, StreamedCall] = {}
        self._open_calls = dict.fromkeys(saved.open_calls) | find_open_calls(self._messages)

    @property
    def message_ids(self) -> list[str]:
        """Return the ids of the last messages, of earlier runs too."""
        ids = [get_text(message, "id") for message in self.messages]
        return list(dict.fromkeys([*self._message_ids, *ids]))[-MAX_SAVED_MESSAGE_IDS:]

    @property
    def messages(self) -> list[JsonObject]:
        built = [message.build() for message in self._streamed]
        return [*self._messages, *(message for message in built if message is not None)]

    @property
    def messages_to_send(self) -> list[JsonObject]:
        """Return the messages for a run. Files of the last message of the user are always among them."""
        messages = self.messages
        last = find_last_user_message(messages)
        return [*drop_old_files(messages[:last], measure_messages(messages[last:])), *messages[last:]]

    @property
    def open_calls(self) -> list[str]:
        """Return the ids of the calls without a result, as the server spells them."""
        return list(self._open_calls)

    @property
    def state(self) -> Any:
        """Return the state for the next run; an empty one if there is none, or it is too large."""
        try:
            value = to_json_value(self._state.value)
        except BadInput:
            value = None
        if value is None or len(msgspec.json.encode(value)) > MAX_STATE_BYTES:
            return {}
        return value

    def dump(
        self, questions: list[ThreadQuestion], agents: Mapping[str, str], *, with_messages: bool
    ) -> bytes:
        """Return what the next run needs. A server that keeps the thread needs no messages."""
        saved = StoredThread(
            trim_history(self.messages) if with_messages else [],
            self.state,
            questions,
            dict(agents),
            self.message_ids,
            self.open_calls,
        )
        return msgspec.json.encode(saved)

    # what people said

    def add_user_message(self, content: str | list[JsonObject]) -> JsonObject:
        message = {"id": new_id("evt_"), "role": "user", "content": content}
        self._append(message)
        return message

    def add_result(self, call_id: str, content: str, error: str | None = None) -> JsonObject:
        message = {"id": new_id("evt_"), "role": "tool", "toolCallId": call_id, "content": content}
        if error is not None:
            message["error"] = error
        self._append_result(call_id, message)
        return message

    def close_open_calls(self, reason_of: Callable[[str], str]) -> list[JsonObject]:
        """Add a result to every call without one: models refuse a history with open calls."""
        results: list[JsonObject] = []
        for call_id in self.open_calls:
            reason = reason_of(call_id)
            results.append(self.add_result(call_id, reason, reason))
        return results

    def _append(self, message: JsonObject) -> None:
        self._streamed.append(StreamedMessage(message))

    def _append_result(self, call_id: str, message: JsonObject) -> None:
        self._append(message)
        self._open_calls.pop(call_id, None)
        self._calls.pop(call_id, None)  # the model may use its id again

    # what the agent reports

    def feed(self, event: JsonObject) -> None:
        read = THREAD_READERS.get(get_text(event, "type"))
        if read is not None and not get_text(event, "subagentRunId"):
            read(self, event)

    def _start_message(self, event: JsonObject, role: str) -> StreamedMessage:
        message_id = get_text(event, "messageId")
        message = self._by_id.get(message_id)
        if message is None:
            message = StreamedMessage({"id": message_id, "role": role})
            self._by_id[message_id] = message
            self._streamed.append(message)
        return message

    def _start_text(self, event: JsonObject) -> None:
        self._start_message(event, get_text(event, "role") or "assistant")

    def _start_thinking(self, event: JsonObject) -> None:
        self._start_message(event, "reasoning")

    def _add_text(self, event: JsonObject) -> None:
        self._start_message(event, "assistant").pieces.append(get_text(event, "delta"))

    def _add_thinking(self, event: JsonObject) -> None:
        self._start_message(event, "reasoning").pieces.append(get_text(event, "delta"))

    def _add_signature(self, event: JsonObject) -> None:
        message = self._by_id.get(get_text(event, "entityId"))
        if message is not None:
            message.fields["encryptedValue"] = get_text(event, "encryptedValue")

    def _start_call(self, event: JsonObject) -> None:
        call_id = get_text(event, "toolCallId")
        if call_id in self._open_calls:
            return
        parent_id = get_text(event, "parentMessageId")
        last = self._streamed[-1] if self._streamed else None
        parent = self._by_id.get(parent_id, last)
        if parent is None or parent.fields["role"] != "assistant" or (not parent_id and not parent.calls):
            parent = self._start_message({"messageId": parent_id or call_id}, "assistant")
        call = StreamedCall(call_id, get_text(event, "toolCallName"))
        self._calls[call_id] = call
        self._open_calls[call_id] = None
        parent.calls.append(call)

    def _add_arguments(self, event: JsonObject) -> None:
        call = self._calls.get(get_text(event, "toolCallId"))
        if call is not None:
            call.pieces.append(get_text(event, "delta"))

    def _add_result(self, event: JsonObject) -> None:
        call_id = get_text(event, "toolCallId")
        if call_id not in self._open_calls:
            return
        content = get_field(event, "content")
        message_id = get_text(event, "messageId") or new_id("evt_")
        self._append_result(
            call_id, {"id": message_id, "role": "tool", "toolCallId": call_id, "content": content}
        )

    def _read_snapshot(self, event: JsonObject) -> None:
        messages = get_field(event, "messages")
        if isinstance(messages, list):
            self._messages = [message for message in messages if isinstance(message, dict)]
            self._streamed.clear()
            self._by_id.clear()
            self._calls.clear()
            self._open_calls = find_open_calls(self._messages)

    def _replace_state(self, event: JsonObject) -> None:
        self._state.value = get_field(event, "snapshot")

    def _patch_state(self, event: JsonObject) -> None:
        try:
            self._state.apply(get_field(event, "delta"))
        except BadInput as error:
            log.warning("the state of an AG-UI thread is dropped: %s", error)
            self._state.value = None


def find_open_calls(messages: list[JsonObject]) -> dict[str, None]:
    """Return the ids of the calls that have no result, in their order."""
    open_calls: dict[str, None] = {}
    for message in messages:
        if message.get("role") == "tool":
            open_calls.pop(get_text(message, "toolCallId"), None)
        for call in as_list(message.get("toolCalls")):
            open_calls[get_text(call, "id")] = None
    return open_calls


def measure_messages(messages: list[JsonObject]) -> int:
    return sum(len(msgspec.json.encode(message)) for message in messages)


def find_last_user_message(messages: list[JsonObject]) -> int:
    """Return its position; that behind the end if there is none."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].get("role") == "user":
            return index
    return len(messages)


def drop_old_files(messages: list[JsonObject], other_bytes: int = 0) -> list[JsonObject]:
    """Return the messages without the oldest files that do not fit, beside `other_bytes`."""
    size_bytes = measure_messages(messages) + other_bytes
    kept = list(messages)
    for index, message in enumerate(messages):
        if size_bytes <= MAX_HISTORY_BYTES:
            break
        if has_files(message):
            kept[index] = drop_files(message)
            size_bytes += measure_messages([kept[index]]) - measure_messages([message])
    return kept


def trim_history(messages: list[JsonObject]) -> list[JsonObject]:
    """Return the newest messages that fit, from a message of the user on."""
    messages = drop_old_files(messages)
    size_bytes = 0
    first = len(messages)
    for index in range(len(messages) - 1, -1, -1):
        size_bytes += len(msgspec.json.encode(messages[index]))
        if size_bytes > MAX_HISTORY_BYTES:
            break
        if messages[index].get("role") == "user" or index == 0:
            first = index
    return messages[first:]


THREAD_READERS: Mapping[str, Callable[[ClientThread, JsonObject], None]] = {
    "TEXT_MESSAGE_START": ClientThread._start_text,
    "TEXT_MESSAGE_CONTENT": ClientThread._add_text,
    "REASONING_MESSAGE_START": ClientThread._start_thinking,
    "REASONING_MESSAGE_CONTENT": ClientThread._add_thinking,
    "REASONING_ENCRYPTED_VALUE": ClientThread._add_signature,
    "TOOL_CALL_START": ClientThread._start_call,
    "TOOL_CALL_ARGS": ClientThread._add_arguments,
    "TOOL_CALL_RESULT": ClientThread._add_result,
    "MESSAGES_SNAPSHOT": ClientThread._read_snapshot,
    "STATE_SNAPSHOT": ClientThread._replace_state,
    "STATE_DELTA": ClientThread._patch_state,
}
