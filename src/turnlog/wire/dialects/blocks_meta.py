"""What the dialects of document 003 send about an agent beside its content, as JSON values.

Every turn sends its conversation again. To keep a stream from growing with the square of the turns, a history
has only the newest messages, up to `MAX_HISTORY_BYTES` of JSON, and the number of messages that it omits.
"""

from dataclasses import dataclass
from typing import Any, Literal

from msgspec import json

from turnlog.events import AgentEnd, AgentStart, AssistantFiles, File, SessionError, ToolAwait
from turnlog.state.content_parts import ContentPart, prompt_parts
from turnlog.wire.dialects._common import to_json_text, usage_json
from turnlog.wire.dialects.agent_names import AgentNames
from turnlog.wire.dialects.base import DialectOptions, HistoryLookup

JsonObject = dict[str, Any]

MEBIBYTE = 1 << 20
MAX_HISTORY_BYTES = 256 * 1024  # of one history; about as much as a model reads


@dataclass(frozen=True, slots=True)
class AgentMetaBuilder:
    """Builds the values of an agent's start and end. `history` returns its messages before the event."""

    options: DialectOptions
    history: HistoryLookup
    names: AgentNames

    def build_init(
        self, agent_id: str, payload: AgentStart, format: Literal["json", "xml", "raw"]
    ) -> JsonObject:
        meta = {
            "format": format,
            "user_query": format_user_query(payload),
            "agent_uuid": self.names.name_of(agent_id),
            "agent_name": payload.name,
            "model": payload.model or "",
        }
        if payload.parent_id:
            meta["parent_agent_uuid"] = self.names.name_of(payload.parent_id)
        if self.options.stream_meta_history_and_tool_results:
            meta |= self._history_fields("message_history", agent_id)
        return meta

    def build_final(self, agent_id: str, payload: AgentEnd) -> JsonObject | None:
        """Return the value of `meta_final`; None if the reader did not request it."""
        if not self.options.stream_meta_history_and_tool_results:
            return None
        return {
            **self._history_fields("conversation_history", agent_id),
            "stop_reason": payload.stop_reason,
            "total_steps": payload.steps,
            "generated_files": [file_json(file) for file in payload.files] or None,
            "cost": payload.cost,
            "cumulative_usage": usage_json(payload.usage),
        }

    def _history_fields(self, key: str, agent_id: str) -> JsonObject:
        messages = self.history(agent_id)
        newest: list[JsonObject] = []
        left_bytes = MAX_HISTORY_BYTES
        for message in reversed(messages):
            content = [label_binary_data(part) for part in message.content]
            value = {"role": message.role, "content": content}
            left_bytes -= len(json.encode(value))
            if left_bytes < 0 and newest:  # the newest message is sent whatever its size
                break
            newest.append(value)

        fields: JsonObject = {key: newest[::-1]}
        if len(newest) < len(messages):
            fields["omitted_messages"] = len(messages) - len(newest)
        return fields


def format_user_query(payload: AgentStart) -> str:
    """Return the prompt: its text, or its parts as JSON with a label in place of binary data."""
    if not payload.content:
        return payload.prompt or ""
    return to_json_text([label_binary_data(part) for part in prompt_parts(payload.content, "")])


def label_binary_data(part: ContentPart) -> ContentPart:
    """Return a part of a conversation in the API's form, with a label in place of binary data."""
    if part["type"] == "tool_result" and isinstance(part["content"], list):
        return part | {"content": [label_binary_data(item) for item in part["content"]]}
    if "src" not in part:
        return part
    fields: ContentPart = {key: part[key] for key in ("title", "context") if key in part}
    return {"type": part["type"], "source": labelled_source(part), **fields}


def labelled_source(part: ContentPart) -> JsonObject:
    src: str = part["src"]
    if src.startswith(("http://", "https://")):
        return {"type": "url", "url": src}
    size_bytes = part.get("size_bytes")
    if src.startswith("data:"):
        size_bytes = len(src.partition(",")[2]) * 3 // 4
    source = {"type": "base64", "data": format_size_label(size_bytes)}
    if "media_type" in part:
        source["media_type"] = part["media_type"]
    return source


def format_size_label(size_bytes: int | None) -> str:
    if size_bytes is None:
        return "[base64]"
    if size_bytes >= MEBIBYTE:
        return f"[base64, {size_bytes / MEBIBYTE:.1f} MB]"
    return f"[base64, {size_bytes / 1024:.1f} KB]"


def awaited_calls(payload: ToolAwait) -> list[JsonObject]:
    return [{"tool_use_id": call.call_id, "name": call.tool, "input": call.args} for call in payload.calls]


def files_meta(payload: AssistantFiles) -> JsonObject:
    return {"files": [file_json(file) for file in payload.files]}


def error_meta(payload: SessionError) -> JsonObject:
    return {"type": payload.code, "message": payload.provider_message or payload.message}


def file_json(file: File) -> dict[str, str]:
    return {"file_id": file.file_id, "filename": file.filename, "storage_location": file.storage_location}
