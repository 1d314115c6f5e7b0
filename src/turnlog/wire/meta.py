"""What the dialects of document 003 say about an agent beside its content, as JSON values.

A conversation may have megabytes: each dialect encodes these values once, in its own framing.
"""

from dataclasses import dataclass
from typing import Any, Literal

from turnlog.events import AgentEnd, AgentStart, AssistantFiles, File, SessionError, ToolAwait
from turnlog.wire.dialect import BlocksOptions, Conversation, bare, usage_json

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Meta:
    """The values of an agent's start and end; `history` gives its conversation as of the event at hand."""

    options: BlocksOptions
    history: Conversation

    @property
    def _with_history(self) -> bool:
        return self.options.stream_meta_history_and_tool_results

    def init(self, agent: str, payload: AgentStart, form: Literal["json", "xml", "raw"]) -> Json:
        """Return what `meta_init` says."""
        meta = {
            "format": form,
            "user_query": payload.prompt or "",
            "agent_uuid": agent,
            "agent_name": payload.name,
            "model": payload.model or "",
        }
        if payload.parent_id:
            meta["parent_agent_uuid"] = bare(payload.parent_id)
        return meta | ({"message_history": self._messages(agent)} if self._with_history else {})

    def final(self, agent: str, payload: AgentEnd) -> Json | None:
        """Return what `meta_final` says; None if the reader did not ask for it."""
        if not self._with_history:
            return None
        return {
            "conversation_history": self._messages(agent),
            "stop_reason": payload.stop_reason,
            "total_steps": payload.steps,
            "generated_files": [file_json(file) for file in payload.files] or None,
            "cost": payload.cost,
            "cumulative_usage": usage_json(payload.usage),
        }

    def _messages(self, agent: str) -> list[Json]:
        messages = self.history(f"agt_{agent}")
        return [{"role": message.role, "content": message.content} for message in messages]


def awaited_calls(payload: ToolAwait) -> list[Json]:
    """Return the calls that the page must answer."""
    return [{"tool_use_id": call.call_id, "name": call.tool, "input": call.args} for call in payload.calls]


def files_meta(payload: AssistantFiles) -> Json:
    """Return the generated files."""
    return {"files": [file_json(file) for file in payload.files]}


def error_meta(payload: SessionError) -> Json:
    """Return an error of the session."""
    return {"type": payload.code, "message": payload.message}


def file_json(file: File) -> dict[str, str]:
    """Return a generated file."""
    return {"file_id": file.file_id, "filename": file.filename, "storage_location": file.storage_location}
