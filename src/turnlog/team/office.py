"""The dialect `office`: the 22 typed events of document 004, with exactly their fields.

An event becomes one message or none, complete by itself: `id` is the bare seq, `ts` milliseconds, `sessionId`
the session. No event becomes a `heartbeat`; the server sends it while nothing happens.

- A `claude_text` has all blocks of its reply so far; the next one with the same `messageId` replaces it.
  Deltas, partial texts, views, files, approvals, rejects and application events have no message.
- `claude_system` is sent when it changes, and again for a new process. A turn has one `claude_result`, with
  the sums of all agents to which it was handed over.
- The server's own start is a `session_start` only after its end: a restart.
- State of a turn: the current reply of each agent, and the sums. Across turns it is what the last event of
  `EARLIER_TYPES` says. A reader that resumes converts that event first and drops its message.
- A tool's content begins with the addresses of its images and is cut at 10,000 characters.
"""

from collections.abc import Callable, Collection
from typing import Any

import msgspec
from msgspec import structs

from turnlog.events import (
    AgentEnd,
    AgentStart,
    AssistantMessage,
    AssistantThinking,
    BlockRetract,
    ContextCompact,
    Envelope,
    Payload,
    ProcessAuth,
    ProcessEnd,
    ProcessStart,
    SessionError,
    ToolCall,
    ToolResult,
    UiCommand,
    UiMessage,
    UnknownPayload,
    Usage,
)
from turnlog.events.agent import add_counts
from turnlog.events.content import label_files
from turnlog.events.envelope import parse_timestamp_ms
from turnlog.events.ui import EndSession, StartSession, Summon, Wake
from turnlog.state.content_parts import DISPLAY_PARTS, ContentPart
from turnlog.team.events import (
    ArtifactWrite,
    JobSuggest,
    RosterJoin,
    RosterOffer,
    RosterStatus,
    ScreenCommand,
)
from turnlog.wire.dialects._common import result_text_with_images
from turnlog.wire.dialects.base import DEFAULT_OPTIONS, DONE, DialectOptions, HistoryLookup, no_history

Body = dict[str, Any]

MAX_CONTENT_CHARS = 10_000  # of a tool's output, as in document 004
# Each block repeats those before it, so a reply with many blocks would take quadratic time and space.
MAX_REPLY_BLOCKS = 64
EARLIER_TYPES = (AgentStart.TYPE, ProcessStart.TYPE, ProcessEnd.TYPE)
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


class Reply:
    """The blocks of one model message, by block id. `number` counts the messages over which it is spread."""

    __slots__ = ("message_id", "number", "parts")

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        self.number = 1
        self.parts: dict[str, ContentPart] = {}

    def add(self, block_id: str, part: ContentPart) -> None:
        """Add a block. A reply that has too many continues as another message."""
        if len(self.parts) >= MAX_REPLY_BLOCKS:
            self.number += 1
            self.parts = {}
        self.parts[block_id] = part

    def retract(self, block_ids: Collection[str]) -> bool:
        """Remove blocks. Return whether the reply had one of them."""
        count = len(self.parts)
        self.parts = {key: part for key, part in self.parts.items() if key not in block_ids}
        return len(self.parts) < count

    def body(self) -> Body:
        message_id = self.message_id if self.number == 1 else f"{self.message_id}.{self.number}"
        return {"type": "claude_text", "messageId": message_id, "content": list(self.parts.values())}


class Office:
    """One projection of a session's log. It sends no histories."""

    def __init__(
        self, options: DialectOptions = DEFAULT_OPTIONS, history: HistoryLookup = no_history
    ) -> None:
        self._handoff_totals: dict[str, AgentEnd] = {}  # by turn: the sums of the agents that handed it over
        self._replies: dict[tuple[str, str], Reply] = {}  # by turn and agent: the reply that it writes
        self._system: Body | None = None  # the last `claude_system` of the process
        self._has_server_ended = False

    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        convert_with_state = STATE_CONVERTERS.get(type(payload))
        convert = CONVERTERS.get(type(payload))
        body = None
        if convert_with_state is not None:
            body = convert_with_state(self, envelope, payload)
        elif convert is not None:
            body = convert(envelope, payload)
        if body is None:
            return []
        ts_ms = parse_timestamp_ms(envelope.ts)
        return [encode_office_message(envelope.seq, ts_ms, envelope.session_id, body)]

    def close(self) -> list[bytes]:
        return [DONE]

    @property
    def idle(self) -> bool:
        return not self._handoff_totals and not self._replies

    def _process_start(self, _: Envelope, payload: ProcessStart) -> Body | None:
        is_restart = self._has_server_ended
        self._system = None
        self._has_server_ended = False
        # Without an end before it, the server has only opened the session.
        if payload.process == "server" and not is_restart:
            return None
        return {
            "type": "session_start",
            "pid": payload.pid,
            "model": payload.model or "",
            "demoMode": payload.demo_mode,
        }

    def _process_end(self, _: Envelope, payload: ProcessEnd) -> Body:
        self._system = None
        self._has_server_ended = payload.process == "server"
        return {"type": "session_end", "exitCode": payload.exit_code, "reason": payload.reason}

    def _agent_start(self, envelope: Envelope, payload: AgentStart) -> Body | None:
        if envelope.depth:
            return None
        self._has_server_ended = False
        system = {
            "type": "claude_system",
            "claudeSessionId": payload.source_session or "",
            "availableTools": payload.tools,
        }
        if system == self._system:
            return None
        self._system = system
        return system

    def _agent_end(self, envelope: Envelope, payload: AgentEnd) -> Body | None:
        """Convert the end of a turn, with the sums of its agents. Other agents end without a message."""
        turn = envelope.trace_id or ""
        self._replies.pop(reply_key(envelope), None)
        if envelope.depth:
            return None

        previous = self._handoff_totals.pop(turn, None)
        end = payload if previous is None else merge_agent_ends(previous, payload)
        if end.stop_reason == "handoff":
            self._handoff_totals[turn] = end
            return None
        self._replies = {key: reply for key, reply in self._replies.items() if key[0] != turn}
        return encode_result(end)

    def _message(self, envelope: Envelope, payload: AssistantMessage) -> Body | None:
        if payload.speaker is None:
            return self._block(envelope, payload)
        if not payload.text.strip():
            return None
        part = {"type": "text", "text": payload.text}
        return {"type": "agent_message", "agentName": payload.speaker, "content": [part]}

    def _block(self, envelope: Envelope, payload: Any) -> Body | None:
        part = DISPLAY_PARTS[type(payload)](payload)
        if part is None:
            return None
        reply = self._find_reply(envelope, payload.message_id)
        reply.add(payload.block_id or envelope.id, part)
        return reply.body()

    def _find_reply(self, envelope: Envelope, message_id: str | None) -> Reply:
        """Return the agent's current reply if it has this id, else a new one."""
        # Pages replace a message by its id: a block without a message is a message of its own.
        if message_id is None:
            return Reply("msg_" + envelope.id.removeprefix("evt_"))
        if not envelope.agent_id:
            return Reply(message_id)

        key = reply_key(envelope)
        reply = self._replies.get(key)
        if reply is None or reply.message_id != message_id:
            reply = Reply(message_id)
            self._replies[key] = reply
        return reply

    def _retract(self, envelope: Envelope, payload: BlockRetract) -> Body | None:
        """Send the agent's reply again without the retracted blocks."""
        reply = self._replies.get(reply_key(envelope))
        if reply is None or not reply.retract(payload.block_ids):
            return None
        return reply.body()


def reply_key(envelope: Envelope) -> tuple[str, str]:
    return envelope.trace_id or "", envelope.agent_id or ""


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


def _process_auth(_: Envelope, payload: ProcessAuth) -> Body:
    return {
        "type": "auth_state",
        "authMethod": payload.method,
        "needsSetup": payload.needs_setup,
        "expiresInMinutes": payload.expires_in_minutes,
    }


def encode_result(payload: AgentEnd) -> Body:
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
        "text": label_files(payload.text, payload.content),
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
STATE_CONVERTERS: dict[type, Callable[[Office, Envelope, Any], Body | None]] = {
    ProcessStart: Office._process_start,
    ProcessEnd: Office._process_end,
    AgentStart: Office._agent_start,
    AgentEnd: Office._agent_end,
    AssistantMessage: Office._message,
    AssistantThinking: Office._block,
    ToolCall: Office._block,
    BlockRetract: Office._retract,
}
CONVERTERS: dict[type, Callable[[Envelope, Any], Body | None]] = {
    ProcessAuth: _process_auth,
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
