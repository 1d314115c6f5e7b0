"""The messages of a chat as the Vercel AI SDK stores them (`UIMessage`), reduced from the parts of a stream.

A page that is loaded again begins with these. The reducer does what the SDK's own client does with the same
parts; a retraction also removes the parts that a client before version 7 can only hide.
"""

from collections.abc import Callable
from typing import Any

from turnlog.events import AgentStart, Envelope, Payload, UiMessage, UnknownPayload
from turnlog.events.content import PromptPart, PromptText, strip_labels

Part = dict[str, Any]


class ChatMessages:
    """The messages of a chat so far."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._parts: list[Part] = []
        self._by_id: dict[str, Part] = {}  # the parts of the last message by their id in the stream
        self._prompt_ids: dict[str, str | None] = {}  # the client's ids of messages that wait, by turn

    def apply_person(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        """Add the message of a person that an event has: one that opens a turn comes with its agent."""
        if isinstance(payload, AgentStart) and payload.via == "prompt" and payload.prompt:
            prompt_id = self._prompt_ids.pop(envelope.trace_id or "", None)
            self.add_user_message(self._choose_id(prompt_id, envelope.id), payload.prompt, payload.content)
        elif isinstance(payload, UiMessage) and envelope.agent_id:
            message_id = self._choose_id(payload.client_message_id, envelope.id)
            self.add_user_message(message_id, payload.text, payload.content)
        elif isinstance(payload, UiMessage):
            self._prompt_ids[envelope.trace_id or ""] = payload.client_message_id

    def _choose_id(self, client_message_id: str | None, event_id: str) -> str:
        """Return the client's id. An edited message comes with that of the first: it gets the event's."""
        is_used = any(message["id"] == client_message_id for message in self.messages)
        return event_id if client_message_id is None or is_used else client_message_id

    def add_user_message(self, message_id: str, text: str, content: tuple[PromptPart, ...] = ()) -> None:
        """Add a message of a person. Its files are parts, if they have a type: the SDK requires one."""
        files = [item for item in content if not isinstance(item, PromptText) and item.media_type]
        # Not the texts of `content`: a client of AG-UI also puts what only the model gets there.
        shown_text = strip_labels(text, files)
        parts: list[Part] = [{"type": "text", "text": shown_text}] if shown_text else []
        for item in files:
            file_part = {"type": "file", "mediaType": item.media_type, "url": item.src}
            parts.append(file_part | ({"filename": item.title} if item.title else {}))
        self.messages.append({"id": message_id, "role": "user", "parts": parts})

    def apply(self, part: Part) -> None:
        """Apply a part of the stream."""
        kind = part["type"]
        if kind.startswith("data-"):
            self._data(part)
            return
        reduce = REDUCERS.get(kind)
        if reduce is not None:
            reduce(self, part)

    def _start(self, part: Part) -> None:
        message_id = part.get("messageId", "")
        # A turn that goes on after a question goes on with its message.
        for message in self.messages:
            if message["id"] == message_id:
                self._parts = message["parts"]
                return
        self._parts = []
        self._by_id = {}
        self.messages.append({"id": message_id, "role": "assistant", "parts": self._parts})

    def _add(self, part_id: str, part: Part) -> None:
        self._parts.append(part)
        self._by_id[part_id] = part

    def _text_start(self, part: Part) -> None:
        kind = part["type"].removesuffix("-start")
        self._add(part["id"], {"type": kind, "text": "", "state": "streaming"})

    def _text_delta(self, part: Part) -> None:
        self._by_id[part["id"]]["text"] += part["delta"]

    def _text_end(self, part: Part) -> None:
        self._by_id[part["id"]]["state"] = "done"

    def _source(self, part: Part) -> None:
        self._parts.append(part)

    def _call(self, part: Part) -> Part:
        call_id = part["toolCallId"]
        if call_id not in self._by_id:
            call = {"type": "dynamic-tool", "toolName": part["toolName"], "toolCallId": call_id}
            self._add(call_id, call)
        return self._by_id[call_id]

    def _call_start(self, part: Part) -> None:
        self._call(part)["state"] = "input-streaming"

    def _call_input(self, part: Part) -> None:
        self._call(part).update(state="input-available", input=part["input"])

    def _call_input_error(self, part: Part) -> None:
        self._call(part).update(state="output-error", input=part["input"], errorText=part["errorText"])

    def _approval(self, part: Part) -> None:
        approval = {"id": part["approvalId"]}
        if "reason" in part:
            approval["requestReason"] = part["reason"]
        self._call(part).update(state="approval-requested", approval=approval)

    def _approval_response(self, part: Part) -> None:
        # The id of an approval is that of its call.
        call = self._by_id[part["approvalId"]]
        decision = {name: part[name] for name in ("approved", "reason") if name in part}
        call.update(state="approval-responded", approval={**call["approval"], **decision})

    def _output(self, part: Part) -> None:
        self._call(part).update(state="output-available", output=part["output"])

    def _output_error(self, part: Part) -> None:
        self._call(part).update(state="output-error", errorText=part["errorText"])

    def _denied(self, part: Part) -> None:
        call = self._call(part)
        approval = {"id": part["toolCallId"], **call.get("approval", {}), "approved": False}
        call.update(state="output-denied", approval=approval)

    def _step(self, _: Part) -> None:
        self._parts.append({"type": "step-start"})

    def _reset_step(self, _: Part) -> None:
        while self._parts and self._parts[-1]["type"] != "step-start":
            self._parts.pop()

    def _finish(self, part: Part) -> None:
        if "messageMetadata" in part:
            self.messages[-1]["metadata"] = part["messageMetadata"]

    def _data(self, part: Part) -> None:
        if part.get("transient"):
            return
        if part["type"] == "data-retract":
            retracted = [self._by_id.get(part_id) for part_id in part["data"]["ids"]]
            self._parts[:] = [item for item in self._parts if not any(item is one for one in retracted)]
            return
        for item in self._parts:
            if item["type"] == part["type"] and item.get("id") == part.get("id"):
                item["data"] = part["data"]
                return
        self._parts.append(part)


REDUCERS: dict[str, Callable[[ChatMessages, Part], None]] = {
    "start": ChatMessages._start,
    "text-start": ChatMessages._text_start,
    "text-delta": ChatMessages._text_delta,
    "text-end": ChatMessages._text_end,
    "reasoning-start": ChatMessages._text_start,
    "reasoning-delta": ChatMessages._text_delta,
    "reasoning-end": ChatMessages._text_end,
    "source-url": ChatMessages._source,
    "source-document": ChatMessages._source,
    "tool-input-start": ChatMessages._call_start,
    "tool-input-available": ChatMessages._call_input,
    "tool-input-error": ChatMessages._call_input_error,
    "tool-approval-request": ChatMessages._approval,
    "tool-approval-response": ChatMessages._approval_response,
    "tool-output-available": ChatMessages._output,
    "tool-output-error": ChatMessages._output_error,
    "tool-output-denied": ChatMessages._denied,
    "start-step": ChatMessages._step,
    "reset-step": ChatMessages._reset_step,
    "finish": ChatMessages._finish,
}
