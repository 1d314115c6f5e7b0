"""Documents derived from events: 004's table, with the names that its documents have.

Input: the events of the log. Output: `apply` returns each document that an event changed, complete. The same
events give the same ids and documents. An id begins with the type:

    message:<agent>:<message>   a reply: its texts, calls and thinkings so far, in order
    message:<event>             a text of a person, or of a team member through another agent
    agent-identity:<seat>       an agent of the team: its looks, its soul and its status
    artifact:<path>             a file, as it was written last
    marker:<event>              the start or the end of a process

A retracted block leaves its document, which is marked `retracted` once it is empty. A channel has documents
of its own, as in `message@customer:<event>`. The state holds only documents that can still change: replies of
open agents, the team and the files.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Struct, field

from turnlog.events import (
    AgentEnd,
    BlockRetract,
    Envelope,
    Payload,
    ProcessEnd,
    ProcessStart,
    UiMessage,
    UnknownPayload,
)
from turnlog.state.channels import visible_channel
from turnlog.state.content_parts import DISPLAY_PARTS, text_part
from turnlog.state.derived_documents import DerivedDocument
from turnlog.team.events import ArtifactWrite, RosterJoin, RosterStatus

Body = dict[str, Any]
Bodies = dict[str, Body]  # by id

CATEGORIES = {
    "message": "transcript",
    "agent-identity": "identity",
    "artifact": "knowledge",
    "marker": "operational",
}
DOCUMENT_STATUSES = {"alive": "alive", "idle": "alive", "shutdown": "sleeping"}

_encoder = msgspec.json.Encoder(order="deterministic")


class ReplyDocument(Struct):
    """A message of a model while its agent is open: its parts by block."""

    head: Body
    parts: dict[str, Body] = field(default_factory=dict)

    def build_body(self) -> Body:
        body = self.head | {"content": list(self.parts.values())}
        if not self.parts:
            body["retracted"] = True
        return body


class Documents(Struct):
    """The documents that can still change."""

    replies: dict[str, dict[str, ReplyDocument]] = field(default_factory=dict)  # by open agent and id
    reply_ids_by_block: dict[str, dict[str, str]] = field(default_factory=dict)  # by open agent and block
    team: Bodies = field(default_factory=dict)
    files: Bodies = field(default_factory=dict)

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[DerivedDocument]:
        """Apply one event; return the documents that it changed."""
        reduce = REDUCERS.get(type(payload))
        if reduce is None:
            return []
        return [build_document(key, body) for key, body in reduce(self, envelope, payload).items()]


def build_document(key: str, body: Body) -> DerivedDocument:
    kind = key.partition(":")[0].partition("@")[0]
    return DerivedDocument(key, kind, CATEGORIES[kind], _encoder.encode(body))


def document_id(kind: str, name: str, channel: str | None) -> str:
    return f"{kind}@{channel}:{name}" if channel else f"{kind}:{name}"


def drop_none_fields(body: Body) -> Body:
    return {name: value for name, value in body.items() if value is not None}


def origin_fields(envelope: Envelope, payload: Payload) -> Body:
    """Return the fields common to all documents: creation time, seq, turn and channel."""
    return drop_none_fields(
        {
            "createdAt": envelope.ts,
            "seq": envelope.seq,
            "turn": envelope.trace_id,
            "channel": visible_channel(envelope, payload),
        }
    )


def _message(_: Documents, envelope: Envelope, payload: UiMessage) -> Bodies:
    if not payload.text.strip():
        return {}
    fields = {
        "role": "user",
        "speakerType": "human",
        "speakerName": payload.speaker or envelope.actor,
        "targetAgent": payload.target,
        "content": [text_part(payload.text)],
    }
    key = document_id("message", envelope.id, visible_channel(envelope, payload))
    return {key: origin_fields(envelope, payload) | drop_none_fields(fields)}


def _part(documents: Documents, envelope: Envelope, payload: Any) -> Bodies:
    """Add a block to the document of its reply. A block of an event without an agent is a whole document."""
    part = DISPLAY_PARTS[type(payload)](payload)
    if part is None:
        return {}

    key, speaker = reply_id_and_speaker(envelope, payload)
    head = {
        "role": "assistant",
        "speakerType": "agent",
        "speakerName": speaker or envelope.agent_name,
        "messageId": payload.message_id,
    }
    reply = ReplyDocument(origin_fields(envelope, payload) | drop_none_fields(head))
    block_id = payload.block_id or envelope.id
    if envelope.agent_id:
        reply = documents.replies.setdefault(envelope.agent_id, {}).setdefault(key, reply)
        documents.reply_ids_by_block.setdefault(envelope.agent_id, {})[block_id] = key
    reply.parts[block_id] = part
    return {key: reply.build_body()}


def reply_id_and_speaker(envelope: Envelope, payload: Any) -> tuple[str, str | None]:
    """Return the document of a block, and the team member who wrote it; such a text is its own document."""
    speaker = getattr(payload, "speaker", None)
    name = envelope.id
    if envelope.agent_id and payload.message_id and not speaker:
        name = f"{envelope.agent_id}:{payload.message_id}"
    return document_id("message", name, visible_channel(envelope, payload)), speaker


def _retract(documents: Documents, envelope: Envelope, payload: BlockRetract) -> Bodies:
    agent_id = envelope.agent_id or ""
    reply_ids = documents.reply_ids_by_block.get(agent_id, {})

    changed: dict[str, ReplyDocument] = {}
    for block_id in payload.block_ids:
        if block_id in reply_ids:
            key = reply_ids.pop(block_id)
            changed[key] = documents.replies[agent_id][key]
            del changed[key].parts[block_id]
    return {key: reply.build_body() for key, reply in changed.items()}


def _end(documents: Documents, envelope: Envelope, _: AgentEnd) -> Bodies:
    # Replies of an agent that ended cannot change any more.
    documents.replies.pop(envelope.agent_id or "", None)
    documents.reply_ids_by_block.pop(envelope.agent_id or "", None)
    return {}


def _join(documents: Documents, envelope: Envelope, payload: RosterJoin) -> Bodies:
    key = document_id("agent-identity", str(payload.seat), visible_channel(envelope, payload))

    # An agent that joins again keeps its time of birth; another agent on its seat does not.
    previous = documents.team.get(key, {})
    if previous.get("name") == payload.name:
        created_at = previous["createdAt"]
    else:
        created_at = payload.created_at or envelope.ts

    looks = {
        "name": payload.name,
        "gridPosition": payload.seat,
        "color": payload.color,
        "colorName": payload.color_name,
        "gender": payload.gender,
        "faceVariant": {"eyes": payload.face.eyes, "mouth": payload.face.mouth},
        "individuationArtifact": payload.soul,
        "createdAt": created_at,
    }
    documents.team[key] = origin_fields(envelope, payload) | looks | alive_fields(envelope)
    return {key: documents.team[key]}


def alive_fields(envelope: Envelope) -> Body:
    return {"status": "alive", "lastAliveAt": envelope.ts, "lastSessionId": envelope.session_id}


def _status(documents: Documents, envelope: Envelope, payload: RosterStatus) -> Bodies:
    """Set the status of the listed agents of the channel; the others sleep. Listing adds no agent."""
    channel = visible_channel(envelope, payload)
    statuses: dict[str, str] = {}
    for agent in payload.agents:
        key = document_id("agent-identity", str(agent.seat), channel)
        statuses[key] = DOCUMENT_STATUSES[agent.status]

    awake: Bodies = {}
    asleep: list[str] = []
    for key, body in documents.team.items():
        if body.get("channel") != channel:
            continue
        if statuses.get(key) == "alive":
            body |= alive_fields(envelope)
            awake[key] = body
        else:
            asleep.append(key)
    return awake | put_to_sleep(documents, asleep)


def put_to_sleep(documents: Documents, keys: Iterable[str]) -> Bodies:
    """Put agents to sleep; return the documents of those that were alive."""
    changed: Bodies = {}
    for key in keys:
        body = documents.team[key]
        if body["status"] == "alive":
            body["status"] = "sleeping"
            changed[key] = body
    return changed


def _artifact(documents: Documents, envelope: Envelope, payload: ArtifactWrite) -> Bodies:
    key = document_id("artifact", payload.path, visible_channel(envelope, payload))

    # A file that existed keeps its creation time, and the metadata that this event does not replace.
    previous = {} if payload.is_new else documents.files.get(key, {})
    fields = {
        "filename": payload.filename,
        "path": payload.path,
        "sizeBytes": payload.size_bytes,
        "updatedAt": envelope.ts,
        "meta": previous.get("meta", {}) | msgspec.to_builtins(payload.meta or {}),
    }
    documents.files[key] = origin_fields(envelope, payload) | previous | fields
    return {key: documents.files[key]}


def _process_start(_: Documents, envelope: Envelope, payload: ProcessStart) -> Bodies:
    fields = {
        "kind": "session_start",
        "process": payload.process,
        "pid": payload.pid,
        "model": payload.model,
        "demoMode": payload.demo_mode,
    }
    return {f"marker:{envelope.id}": origin_fields(envelope, payload) | fields}


def _process_end(documents: Documents, envelope: Envelope, payload: ProcessEnd) -> Bodies:
    """Add the marker and put the whole team to sleep."""
    fields = {
        "kind": "session_end",
        "process": payload.process,
        "reason": payload.reason,
        "exitCode": payload.exit_code,
    }
    marker = {f"marker:{envelope.id}": origin_fields(envelope, payload) | fields}
    return marker | put_to_sleep(documents, documents.team)


REDUCERS: dict[type, Callable[[Documents, Envelope, Any], Bodies]] = {
    UiMessage: _message,  # user_message
    **dict.fromkeys(DISPLAY_PARTS, _part),  # claude_text, agent_message
    RosterJoin: _join,  # agent_registered
    RosterStatus: _status,  # agent_status
    ArtifactWrite: _artifact,  # artifact_written
    ProcessStart: _process_start,  # session_start
    ProcessEnd: _process_end,  # session_end
    BlockRetract: _retract,
    AgentEnd: _end,
}
