"""The messages of an AG-UI thread, reduced from its events as the protocol's own client does it.

A text, a reasoning, a tool call, a tool result and an activity is a message each. The order is that of their
first events, but a result follows its call. `to_json` gives the newest messages that fit into
`MAX_SNAPSHOT_BYTES`.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from turnlog.wire.dialects.ag_ui.events import (
    ActivitySnapshot,
    AgUiEvent,
    ReasoningEncryptedValue,
    ReasoningMessageContent,
    ReasoningMessageStart,
    TextMessageContent,
    TextMessageStart,
    ToolCallArgs,
    ToolCallResult,
    ToolCallStart,
)

MAX_SNAPSHOT_BYTES = 4 << 20  # the protocol's client refuses an event of 10 MB


@dataclass(slots=True)
class ThreadMessage:
    """A message without its streamed text, and the pieces of that text."""

    fields: dict[str, Any]
    pieces: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        fields = dict(self.fields)
        tool = fields.pop("tool", None)
        if tool is not None:
            call = {"id": fields["id"], "type": "function"}
            call["function"] = {"name": tool, "arguments": "".join(self.pieces)}
            if "metadata" in fields:
                call["metadata"] = fields.pop("metadata")
            fields["toolCalls"] = [call]
        elif "content" not in fields:
            fields["content"] = "".join(self.pieces)
        return fields


class ThreadMessages:
    """The messages of a thread. `earlier` are messages as a client sent them, which stay as they are."""

    def __init__(self, earlier: Sequence[dict[str, Any]] = ()) -> None:
        self._earlier = earlier
        self._messages: dict[str, ThreadMessage] = {}
        self._results: dict[str, list[str]] = {}  # the ids of result messages, by call
        self._contents: dict[str, list[dict[str, Any]]] = {}  # of messages that are more than a text

    def choose_id(self, client_message_id: str | None, event_id: str) -> str:
        """Return the id of a message that a client sent: the client's own.

        A client drops what a snapshot does not have, and puts messages with new ids at the end. Another
        client may have used the same id: then it is the event's.
        """
        if client_message_id is None or client_message_id in self._messages:
            return event_id
        if any(message.get("id") == client_message_id for message in self._earlier):
            return event_id
        return client_message_id

    def set_content(self, message_id: str, parts: list[dict[str, Any]]) -> None:
        """Set the parts of a message that has files: its events have a text alone."""
        self._contents[message_id] = parts

    def apply(self, event: AgUiEvent) -> None:
        reduce = REDUCERS.get(type(event))
        if reduce is not None:
            reduce(self, event)

    def remove(self, message_ids: Collection[str]) -> None:
        """Remove messages that were retracted, and the results of calls among them."""
        for message_id in message_ids:
            for result_id in self._results.pop(message_id, ()):
                self._messages.pop(result_id, None)
            message = self._messages.get(message_id)
            if message is not None and message.fields["role"] == "reasoning":
                # A client keeps reasoning that a snapshot does not have, but takes one that has become empty.
                message.pieces.clear()
            else:
                self._messages.pop(message_id, None)

    def text_of(self, message_id: str) -> str:
        """Return the streamed text of a message, or the arguments of a call."""
        message = self._messages.get(message_id)
        return "".join(message.pieces) if message is not None else ""

    def to_json(self, *, with_activities: bool, without: Collection[str] = ()) -> list[Any]:
        """Return the newest messages that fit, but those `without`.

        A client keeps its own activities if there are none.
        """
        messages: list[Any] = []
        size_bytes = 0
        newest_first = [*self._earlier, *self._in_order()][::-1]
        for message in newest_first:
            if isinstance(message, ThreadMessage):
                if message.fields["role"] == "activity" and not with_activities:
                    continue
                if message.fields["id"] in without:
                    continue
                parts = self._contents.get(message.fields["id"])
                message = message.to_json() if parts is None else {**message.fields, "content": parts}
            data = msgspec.json.encode(message)
            size_bytes += len(data)
            if size_bytes > MAX_SNAPSHOT_BYTES:
                break
            messages.append(msgspec.Raw(data))
        return messages[::-1]

    def _in_order(self) -> list[ThreadMessage]:
        """Return the messages in the order in which a client has them that got their events."""
        ordered: dict[str, ThreadMessage] = {}
        for message_id, message in self._messages.items():
            ordered.setdefault(message_id, message)
            for result_id in self._results.get(message_id, ()):
                if result_id in self._messages:
                    ordered[result_id] = self._messages[result_id]
        return list(ordered.values())

    def _add(self, event: Any, message_id: str, **fields: Any) -> ThreadMessage:
        message = self._messages.get(message_id)
        if message is None:
            all_fields = {"id": message_id, **fields}
            if event.subagent_run_id is not None:
                all_fields["subagentRunId"] = event.subagent_run_id
            message = ThreadMessage(all_fields)
            self._messages[message_id] = message
        if event.metadata is not None:
            message.fields["metadata"] = event.metadata
        return message

    def _append(self, message_id: str, delta: str) -> None:
        message = self._messages.get(message_id)
        if message is not None:
            message.pieces.append(delta)

    def _text_start(self, event: TextMessageStart) -> None:
        name = {} if event.name is None else {"name": event.name}
        self._add(event, event.message_id, role=event.role, **name)

    def _text(self, event: TextMessageContent | ReasoningMessageContent) -> None:
        self._append(event.message_id, event.delta)

    def _reasoning_start(self, event: ReasoningMessageStart) -> None:
        self._add(event, event.message_id, role="reasoning")

    def _encrypted_value(self, event: ReasoningEncryptedValue) -> None:
        message = self._messages.get(event.entity_id)
        if message is not None:
            message.fields["encryptedValue"] = event.encrypted_value

    def _call_start(self, event: ToolCallStart) -> None:
        self._add(event, event.tool_call_id, role="assistant", tool=event.tool_call_name)

    def _call_args(self, event: ToolCallArgs) -> None:
        self._append(event.tool_call_id, event.delta)

    def _call_result(self, event: ToolCallResult) -> None:
        call_id = event.tool_call_id
        self._add(event, event.message_id, role="tool", toolCallId=call_id, content=event.content)
        self._results.setdefault(call_id, []).append(event.message_id)

    def _activity(self, event: ActivitySnapshot) -> None:
        message = self._add(event, event.message_id, role="activity", activityType=event.activity_type)
        message.fields["content"] = event.content


REDUCERS: dict[type, Callable[[ThreadMessages, Any], None]] = {
    TextMessageStart: ThreadMessages._text_start,
    TextMessageContent: ThreadMessages._text,
    ReasoningMessageStart: ThreadMessages._reasoning_start,
    ReasoningMessageContent: ThreadMessages._text,
    ReasoningEncryptedValue: ThreadMessages._encrypted_value,
    ToolCallStart: ThreadMessages._call_start,
    ToolCallArgs: ThreadMessages._call_args,
    ToolCallResult: ThreadMessages._call_result,
    ActivitySnapshot: ThreadMessages._activity,
}
