"""The dialect `office`: the 22 typed events of document 004, with exactly their fields.

An event becomes one message or none, complete by itself: `id` is the bare seq, `ts` milliseconds, `sessionId`
the session. No event becomes a `heartbeat`; the server sends it while nothing happens.

- A block is one `claude_text`; all blocks of a reply have the same `messageId`. Deltas, partial texts,
  retractions, views, files, approvals, rejects and application events have no message.
- The start and the end of a turn's own agent are `claude_system` and `claude_result`. A turn that was handed
  over has one result with the sums of all its agents. These sums are the state; it is empty between turns.
- A tool's content begins with the addresses of its images and is cut at 10,000 characters.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import structs

from turnlog.events import (
    AgentEnd,
    AgentStart,
    ArtifactWrite,
    AssistantMessage,
    AssistantThinking,
    ContextCompact,
    Envelope,
    JobSuggest,
    Payload,
    ProcessAuth,
    ProcessEnd,
    ProcessStart,
    RosterJoin,
    RosterOffer,
    RosterStatus,
    ScreenCommand,
    SessionError,
    ToolCall,
    ToolResult,
    UiCommand,
    UiMessage,
    UnknownPayload,
    Usage,
)
from turnlog.events.agent import add_counts
from turnlog.events.envelope import parse_timestamp_ms
from turnlog.events.ui import EndSession, StartSession, Summon, Wake
from turnlog.state.content_parts import DISPLAY_PARTS, display_text_part
from turnlog.wire.dialects._common import result_text_with_images
from turnlog.wire.dialects.base import DEFAULT_OPTIONS, DONE, BlocksOptions, HistoryLookup, no_history

Body = dict[str, Any]

MAX_CONTENT_CHARS = 10_000  # of a tool's output, as in document 004
ERROR_CODES = frozenset(
    {
        "auth_failed",
        "session_conflict",
        "setup_required",
        "stdin_write_failed",
        "process_exited",
        "turn_timeout",
        "inactivity_timeout",
    }
)
RESULT_SUBTYPES = {  # every other reason is an error
    "end_turn": "success",
    "stop_sequence": "success",
    "max_tokens": "success",
    "refusal": "success",
    "timeout": "timeout",
}
NO_USAGE = Usage(input_tokens=0, output_tokens=0)


class Office:
    """One projection of a session's log. It has no options and sends no histories."""

    def __init__(self, options: BlocksOptions = DEFAULT_OPTIONS, history: HistoryLookup = no_history) -> None:
        self._handoff_totals: dict[str, AgentEnd] = {}  # by turn: the sums of the agents that handed it over

    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        event = self._turn_end(envelope, payload) if isinstance(payload, AgentEnd) else payload
        convert = CONVERTERS.get(type(event))
        body = convert(envelope, event) if convert else None
        if body is None:
            return []
        ts_ms = parse_timestamp_ms(envelope.ts)
        return [encode_office_message(envelope.seq, ts_ms, envelope.session_id, body)]

    def close(self) -> list[bytes]:
        return [DONE]

    @property
    def idle(self) -> bool:
        return not self._handoff_totals

    def _turn_end(self, envelope: Envelope, payload: AgentEnd) -> AgentEnd | None:
        """Return the end of a turn with the sums of its agents; None if the turn continues."""
        if envelope.depth:
            return None
        turn = envelope.trace_id or ""
        previous = self._handoff_totals.pop(turn, None)
        end = payload if previous is None else merge_agent_ends(previous, payload)
        if end.stop_reason == "handoff":
            self._handoff_totals[turn] = end
            return None
        return end


def encode_heartbeat(seq: int, ts_ms: int, session_id: str) -> bytes:
    """Encode a heartbeat after the event at this seq."""
    return encode_office_message(seq, ts_ms, session_id, {"type": "heartbeat"})


def encode_office_message(seq: int, ts_ms: int, session_id: str, body: Body) -> bytes:
    return msgspec.json.encode({"id": seq, "ts": ts_ms, "sessionId": session_id, **body})


def merge_agent_ends(previous: AgentEnd, end: AgentEnd) -> AgentEnd:
    """Return `end` with the steps, usage and cost of both. The cost is None if one of them is unknown."""
    usage = end.usage or previous.usage
    if previous.usage and end.usage:
        usage = previous.usage + end.usage

    cost = end.cost or previous.cost
    if previous.cost and end.cost:
        cost = previous.cost + end.cost
    # A sum with an unknown price in it is unknown (protocol 4.16).
    if any(agent_end.usage and not agent_end.cost for agent_end in (previous, end)):
        cost = None
    return structs.replace(end, steps=add_counts(previous.steps, end.steps), usage=usage, cost=cost)


def _process_start(_: Envelope, payload: ProcessStart) -> Body:
    return {
        "type": "session_start",
        "pid": payload.pid,
        "model": payload.model or "",
        "demoMode": payload.demo_mode,
    }


def _process_end(_: Envelope, payload: ProcessEnd) -> Body:
    return {"type": "session_end", "exitCode": payload.exit_code, "reason": payload.reason}


def _process_auth(_: Envelope, payload: ProcessAuth) -> Body:
    return {
        "type": "auth_state",
        "authMethod": payload.method,
        "needsSetup": payload.needs_setup,
        "expiresInMinutes": payload.expires_in_minutes,
    }


def _agent_start(envelope: Envelope, payload: AgentStart) -> Body | None:
    # The target of a hand-off continues the turn.
    if envelope.depth or payload.via != "prompt":
        return None
    return {
        "type": "claude_system",
        "claudeSessionId": payload.source_session or "",
        "availableTools": payload.tools,
    }


def _agent_end(_: Envelope, payload: AgentEnd) -> Body:
    usage = payload.usage or NO_USAGE
    return {
        "type": "claude_result",
        "subtype": RESULT_SUBTYPES.get(payload.stop_reason, "error"),
        "numTurns": payload.steps,
        "costUsd": payload.cost.total_cost if payload.cost else None,
        "usage": {
            "inputTokens": usage.input_tokens,
            "outputTokens": usage.output_tokens,
            "cacheReadTokens": usage.cache_read_tokens,
            "cacheCreationTokens": usage.cache_creation_tokens,
        },
        "resultText": payload.result or "",
    }


def _block(envelope: Envelope, payload: Any) -> Body | None:
    part = DISPLAY_PARTS[type(payload)](payload)
    if part is None:
        return None
    # Readers join blocks by this id: a block without a message is a message of its own.
    message_id = payload.message_id or "msg_" + envelope.id.removeprefix("evt_")
    return {"type": "claude_text", "messageId": message_id, "content": [part]}


def _message(envelope: Envelope, payload: AssistantMessage) -> Body | None:
    part = display_text_part(payload)
    if part is None or payload.speaker is None:
        return _block(envelope, payload)
    return {"type": "agent_message", "agentName": payload.speaker, "content": [part]}


def _tool_result(_: Envelope, payload: ToolResult) -> Body:
    return {
        "type": "claude_tool_result",
        "toolUseId": payload.call_id,
        "toolName": payload.tool,
        "content": result_text_with_images(payload)[:MAX_CONTENT_CHARS],
        "isError": not payload.ok,
    }


def _compact(_: Envelope, __: ContextCompact) -> Body:
    return {"type": "claude_compact"}


def _user_message(envelope: Envelope, payload: UiMessage) -> Body:
    return {
        "type": "user_message",
        "text": payload.text,
        "speakerName": payload.speaker or envelope.actor or "",
        "targetAgent": payload.target,
    }


def _command(_: Envelope, payload: UiCommand) -> Body | None:
    convert = COMMAND_CONVERTERS.get(type(payload.command))
    return convert(payload.command) if convert else None


def _summon(_: Summon) -> Body:
    return {"type": "user_summon"}


def _wake(command: Wake) -> Body:
    agents = [
        {
            "name": agent.name,
            "color": agent.color,
            "colorName": agent.color_name,
            "gridPosition": agent.seat,
            "hasSoul": agent.has_soul,
            "hasTranscript": agent.has_transcript,
        }
        for agent in command.agents
    ]
    return {"type": "user_wake", "agentPayloads": agents}


def _start_session(command: StartSession) -> Body:
    return {
        "type": "user_session_start",
        "demoMode": command.demo_mode,
        "hasPreviousTranscript": command.has_previous_transcript,
        "hasArtifactCatalog": command.has_artifact_catalog,
    }


def _end_session(_: EndSession) -> Body:
    return {"type": "user_session_end"}


def _join(envelope: Envelope, payload: RosterJoin) -> Body:
    agent = {
        "name": payload.name,
        "color": payload.color,
        "colorName": payload.color_name,
        "gender": payload.gender,
        "gridPosition": payload.seat,
        "faceVariant": {"eyes": payload.face.eyes, "mouth": payload.face.mouth},
        "individuationArtifact": payload.soul,
        "createdAt": payload.created_at or envelope.ts,
    }
    return {"type": "agent_registered", "agent": agent}


def _status(_: Envelope, payload: RosterStatus) -> Body:
    agents = [
        {"name": agent.name, "status": agent.status, "gridPosition": agent.seat} for agent in payload.agents
    ]
    return {"type": "agent_status", "agents": agents}


def _offer(_: Envelope, payload: RosterOffer) -> Body:
    return {"type": "agent_work_offered", "agentName": payload.agent, "jobNames": payload.jobs}


def _artifact(_: Envelope, payload: ArtifactWrite) -> Body:
    return {
        "type": "artifact_written",
        "filename": payload.filename,
        "path": payload.path,
        "isNew": payload.is_new,
        "sizeBytes": payload.size_bytes,
        "meta": payload.meta,
    }


def _screen(_: Envelope, payload: ScreenCommand) -> Body:
    body = {"type": "screen_command", "command": payload.command}
    if payload.expression is not None:
        body["expression"] = payload.expression
    return body


def _job(_: Envelope, payload: JobSuggest) -> Body:
    return {"type": "job_help", "suggestions": payload.suggestions}


def _error(_: Envelope, payload: SessionError) -> Body:
    code = payload.code if payload.code in ERROR_CODES else "unknown"
    return {"type": "server_error", "message": payload.message, "code": code}


COMMAND_CONVERTERS: dict[type, Callable[[Any], Body]] = {
    Summon: _summon,
    Wake: _wake,
    StartSession: _start_session,
    EndSession: _end_session,
}
CONVERTERS: dict[type, Callable[[Envelope, Any], Body | None]] = {
    ProcessStart: _process_start,
    ProcessEnd: _process_end,
    ProcessAuth: _process_auth,
    AgentStart: _agent_start,
    AgentEnd: _agent_end,
    AssistantMessage: _message,
    AssistantThinking: _block,
    ToolCall: _block,
    ToolResult: _tool_result,
    ContextCompact: _compact,
    UiMessage: _user_message,
    UiCommand: _command,
    RosterJoin: _join,
    RosterStatus: _status,
    RosterOffer: _offer,
    ArtifactWrite: _artifact,
    ScreenCommand: _screen,
    JobSuggest: _job,
    SessionError: _error,
}
