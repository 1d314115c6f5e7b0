"""What the dialects of document 003 send about an agent beside its content, as JSON values.

Every turn sends its conversation again. To keep a stream from growing with the square of the turns, a history
has only the newest messages, up to `MAX_HISTORY_BYTES` of JSON, and the number of messages that it omits.
"""

from dataclasses import dataclass
from typing import Any, Literal

from msgspec import json

from turnlog.events import AgentEnd, AgentStart, AssistantFiles, File, SessionError, ToolAwait
from turnlog.wire.dialects._common import strip_agent_prefix, usage_json
from turnlog.wire.dialects.base import BlocksOptions, HistoryLookup

JsonObject = dict[str, Any]

MAX_HISTORY_BYTES = 256 * 1024  # of one history; about as much as a model reads


@dataclass(frozen=True, slots=True)
class AgentMetaBuilder:
    """Builds the values of an agent's start and end. `history` returns its messages before the event."""

    options: BlocksOptions
    history: HistoryLookup

    def build_init(
        self, agent: str, payload: AgentStart, format: Literal["json", "xml", "raw"]
    ) -> JsonObject:
        """Return the value of `meta_init`."""
        meta = {
            "format": format,
            "user_query": payload.prompt or "",
            "agent_uuid": agent,
            "agent_name": payload.name,
            "model": payload.model or "",
        }
        if payload.parent_id:
            meta["parent_agent_uuid"] = strip_agent_prefix(payload.parent_id)
        if self.options.stream_meta_history_and_tool_results:
            meta |= self._history_fields("message_history", agent)
        return meta

    def build_final(self, agent: str, payload: AgentEnd) -> JsonObject | None:
        """Return the value of `meta_final`; None if the reader did not request it."""
        if not self.options.stream_meta_history_and_tool_results:
            return None
        return {
            **self._history_fields("conversation_history", agent),
            "stop_reason": payload.stop_reason,
            "total_steps": payload.steps,
            "generated_files": [file_json(file) for file in payload.files] or None,
            "cost": payload.cost,
            "cumulative_usage": usage_json(payload.usage),
        }

    def _history_fields(self, key: str, agent: str) -> JsonObject:
        """Return the newest messages under a key, and how many older ones are left out, if any are."""
        messages = self.history(f"agt_{agent}")
        newest: list[JsonObject] = []
        left_bytes = MAX_HISTORY_BYTES
        for message in reversed(messages):
            value = {"role": message.role, "content": message.content}
            left_bytes -= len(json.encode(value))
            if left_bytes < 0 and newest:  # the newest message is sent whatever its size
                break
            newest.append(value)

        fields: JsonObject = {key: newest[::-1]}
        if len(newest) < len(messages):
            fields["omitted_messages"] = len(messages) - len(newest)
        return fields


def awaited_calls(payload: ToolAwait) -> list[JsonObject]:
    """Return the calls that the page must answer."""
    return [{"tool_use_id": call.call_id, "name": call.tool, "input": call.args} for call in payload.calls]


def files_meta(payload: AssistantFiles) -> JsonObject:
    return {"files": [file_json(file) for file in payload.files]}


def error_meta(payload: SessionError) -> JsonObject:
    return {"type": payload.code, "message": payload.message}


def file_json(file: File) -> dict[str, str]:
    return {"file_id": file.file_id, "filename": file.filename, "storage_location": file.storage_location}
