"""What the dialects of document 003 say about an agent beside its content, as JSON values.

Every turn tells its conversation again, so that a whole one would make a stream grow with the square of the
turns: a history has the newest messages, up to `MAX_HISTORY_BYTES` of JSON, and says how many it leaves out.
"""

from dataclasses import dataclass
from typing import Any, Literal

from msgspec import json

from turnlog.events import AgentEnd, AgentStart, AssistantFiles, File, SessionError, ToolAwait
from turnlog.wire.dialects.base import BlocksOptions, HistoryLookup, strip_agent_prefix, usage_json

JsonObject = dict[str, Any]

MAX_HISTORY_BYTES = 256 * 1024  # of one history; about as much as a model reads


@dataclass(frozen=True, slots=True)
class AgentMetaBuilder:
    """The values of an agent's start and end; `history` gives its conversation as of the event at hand."""

    options: BlocksOptions
    history: HistoryLookup

    @property
    def _includes_history(self) -> bool:
        return self.options.stream_meta_history_and_tool_results

    def build_init(self, agent: str, payload: AgentStart, form: Literal["json", "xml", "raw"]) -> JsonObject:
        """Return what `meta_init` says."""
        meta = {
            "format": form,
            "user_query": payload.prompt or "",
            "agent_uuid": agent,
            "agent_name": payload.name,
            "model": payload.model or "",
        }
        if payload.parent_id:
            meta["parent_agent_uuid"] = strip_agent_prefix(payload.parent_id)
        return meta | (self._history_fields("message_history", agent) if self._includes_history else {})

    def build_final(self, agent: str, payload: AgentEnd) -> JsonObject | None:
        """Return what `meta_final` says; None if the reader did not ask for it."""
        if not self._includes_history:
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
            if left_bytes < 0 and newest:  # the newest message is there whatever its size
                break
            newest.append(value)
        omitted = len(messages) - len(newest)
        return {key: newest[::-1]} | ({"omitted_messages": omitted} if omitted else {})


def awaited_calls(payload: ToolAwait) -> list[JsonObject]:
    """Return the calls that the page must answer."""
    return [{"tool_use_id": call.call_id, "name": call.tool, "input": call.args} for call in payload.calls]


def files_meta(payload: AssistantFiles) -> JsonObject:
    """Return the generated files."""
    return {"files": [file_json(file) for file in payload.files]}


def error_meta(payload: SessionError) -> JsonObject:
    """Return an error of the session."""
    return {"type": payload.code, "message": payload.message}


def file_json(file: File) -> dict[str, str]:
    """Return a generated file."""
    return {"file_id": file.file_id, "filename": file.filename, "storage_location": file.storage_location}
