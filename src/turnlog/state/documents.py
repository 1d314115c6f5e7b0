"""The documents that events become: 004's table, with the names its documents have.

`STEPS` is the table; an event without a row there leaves no document. Ids are stable: the same events give
the same documents, and an event that says more about one changes it. An id begins with the type.

    message:<agent>:<message>   a reply: its texts, calls and thinkings in order, as far as they have come
    message:<event>             what a person said, or an agent of the team through another one
    agent-identity:<seat>       an agent of the team: its looks and soul, later its status
    artifact:<path>             a file, as it was written last
    marker:<event>              a process started or ended

What is retracted leaves its document, which says `retracted` when nothing is left. What is for one channel
only has documents of its own, as in `message@customer:<event>`; their bodies name the channel. Kept here is
only what can still change: replies of open agents, the team, the files. `apply` gives the documents that an
event changed, whole; of several with one id the last counts.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, field

from turnlog.events import (
    AgentEnd,
    ArtifactWrite,
    AssistantMessage,
    AssistantThinking,
    BlockRetract,
    Envelope,
    Payload,
    ProcessEnd,
    ProcessStart,
    RosterJoin,
    RosterStatus,
    ToolCall,
    UiMessage,
    UnknownPayload,
)
from turnlog.state.descriptions import visible_channel
from turnlog.state.fold import Item

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


class DerivedDocument(NamedTuple):
    """A document of a session; its body is compact JSON with sorted keys."""

    id: str
    type: str
    category: str
    body: bytes


class DocumentChannel(Struct):
    """What a body says about who may see it."""

    channel: str | None = None


class ReplyDocument(Struct):
    """A message of a model while its agent is open: its parts by block."""

    head: Body
    parts: dict[str, Body] = field(default_factory=dict)

    def build_body(self) -> Body:
        """The document."""
        gone: Body = {} if self.parts else {"retracted": True}
        return self.head | {"content": list(self.parts.values())} | gone


class Documents(Struct):
    """What can still change."""

    replies: dict[str, dict[str, ReplyDocument]] = field(default_factory=dict)  # by open agent and id
    reply_ids_by_block: dict[str, dict[str, str]] = field(
        default_factory=dict
    )  # the ids, by open agent and block
    team: Bodies = field(default_factory=dict)
    files: Bodies = field(default_factory=dict)

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[DerivedDocument]:
        """Take one event into account; the documents that it changed."""
        step = REDUCERS.get(type(payload))
        return (
            [build_document(key, body) for key, body in step(self, envelope, payload).items()] if step else []
        )


def fold_documents(items: Iterable[Item]) -> dict[str, DerivedDocument]:
    """The documents of a session, by id."""
    kept = Documents()
    return {made.id: made for envelope, payload in items for made in kept.apply(envelope, payload)}


def is_document_visible(channels: Collection[str], body: bytes) -> bool:
    """Whether somebody sees a document who is in these channels."""
    return msgspec.json.decode(body, type=DocumentChannel).channel in (None, *channels)


def build_document(key: str, body: Body) -> DerivedDocument:
    """A document as it is stored."""
    kind = key.partition(":")[0].partition("@")[0]
    return DerivedDocument(key, kind, CATEGORIES[kind], _encoder.encode(body))


def document_id(kind: str, name: str, channel: str | None) -> str:
    """The id of a document."""
    return f"{kind}@{channel}:{name}" if channel else f"{kind}:{name}"


def drop_none_fields(body: Body) -> Body:
    """The fields that have a value."""
    return {name: value for name, value in body.items() if value is not None}


def origin_fields(envelope: Envelope, payload: Payload) -> Body:
    """Where a document comes from."""
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
    said = {
        "role": "user",
        "speakerType": "human",
        "speakerName": payload.speaker or envelope.actor,
        "targetAgent": payload.target,
        "content": [{"type": "text", "text": payload.text}],
    }
    key = document_id("message", envelope.id, visible_channel(envelope, payload))
    return {key: origin_fields(envelope, payload) | drop_none_fields(said)}


def _part(documents: Documents, envelope: Envelope, payload: Any) -> Bodies:
    """A block of a reply joins those that came before; what says nothing does not."""
    part = PART_BUILDERS[type(payload)](payload)
    if part is None:
        return {}
    key, speaker = reply_id_and_speaker(envelope, payload)
    head = {
        "role": "assistant",
        "speakerType": "agent",
        "speakerName": speaker or envelope.agent_name,
        "messageId": payload.message_id,
    }
    reply, block_id = (
        ReplyDocument(origin_fields(envelope, payload) | drop_none_fields(head)),
        payload.block_id or envelope.id,
    )
    if envelope.agent_id:
        reply = documents.replies.setdefault(envelope.agent_id, {}).setdefault(key, reply)
        documents.reply_ids_by_block.setdefault(envelope.agent_id, {})[block_id] = key
    reply.parts[block_id] = part
    return {key: reply.build_body()}


def reply_id_and_speaker(envelope: Envelope, payload: Any) -> tuple[str, str | None]:
    """The document that a block belongs to, and who of the team speaks; such a message stands by itself."""
    speaker = getattr(payload, "speaker", None)
    whole = payload.message_id if envelope.agent_id and not speaker else None
    name = f"{envelope.agent_id}:{whole}" if whole else envelope.id
    return document_id("message", name, visible_channel(envelope, payload)), speaker


def document_text_part(payload: AssistantMessage) -> Body | None:
    return {"type": "text", "text": payload.text} if payload.text.strip() else None


def document_thinking_part(payload: AssistantThinking) -> Body | None:
    return {"type": "thinking", "thinking": payload.text} if payload.text.strip() else None


def document_call_part(payload: ToolCall) -> Body | None:
    return {"type": "tool_use", "id": payload.call_id, "name": payload.tool, "input": payload.args}


def _retract(documents: Documents, envelope: Envelope, payload: BlockRetract) -> Bodies:
    agent_id = envelope.agent_id or ""
    places = documents.reply_ids_by_block.get(agent_id, {})
    void = {block_id: places.pop(block_id) for block_id in payload.block_ids if block_id in places}
    for block_id, key in void.items():
        del documents.replies[agent_id][key].parts[block_id]
    return {key: documents.replies[agent_id][key].build_body() for key in void.values()}


def _end(documents: Documents, envelope: Envelope, _: AgentEnd) -> Bodies:
    """What an agent said before it ended cannot change any more."""
    documents.replies.pop(envelope.agent_id or "", None)
    documents.reply_ids_by_block.pop(envelope.agent_id or "", None)
    return {}


def _join(documents: Documents, envelope: Envelope, payload: RosterJoin) -> Bodies:
    """An agent that joins again keeps the time of its birth; another one on its seat begins anew."""
    key = document_id("agent-identity", str(payload.seat), visible_channel(envelope, payload))
    before = documents.team.get(key, {})
    born = before["createdAt"] if before.get("name") == payload.name else payload.created_at or envelope.ts
    looks = {
        "name": payload.name,
        "gridPosition": payload.seat,
        "color": payload.color,
        "colorName": payload.color_name,
        "gender": payload.gender,
        "faceVariant": {"eyes": payload.face.eyes, "mouth": payload.face.mouth},
        "individuationArtifact": payload.soul,
        "createdAt": born,
    }
    documents.team[key] = origin_fields(envelope, payload) | looks | alive_fields(envelope)
    return {key: documents.team[key]}


def alive_fields(envelope: Envelope) -> Body:
    """That somebody of the team is there."""
    return {"status": "alive", "lastAliveAt": envelope.ts, "lastSessionId": envelope.session_id}


def _status(documents: Documents, envelope: Envelope, payload: RosterStatus) -> Bodies:
    """Who is listed has the status it says, everybody else sleeps. Nobody joins by being listed."""
    channel = visible_channel(envelope, payload)
    listed = {
        document_id("agent-identity", str(one.seat), channel): DOCUMENT_STATUSES[one.status]
        for one in payload.agents
    }
    mine = [key for key, body in documents.team.items() if body.get("channel") == channel]
    awake = [key for key in mine if listed.get(key) == "alive"]
    for key in awake:
        documents.team[key] |= alive_fields(envelope)
    return {key: documents.team[key] for key in awake} | put_to_sleep(
        documents, [key for key in mine if key not in awake]
    )


def put_to_sleep(documents: Documents, keys: Iterable[str]) -> Bodies:
    """Whoever was awake sleeps."""
    changed = [key for key in keys if documents.team[key]["status"] == "alive"]
    for key in changed:
        documents.team[key]["status"] = "sleeping"
    return {key: documents.team[key] for key in changed}


def _artifact(documents: Documents, envelope: Envelope, payload: ArtifactWrite) -> Bodies:
    """A file that was there keeps the time it was made, and what it said about itself until it says more."""
    key = document_id("artifact", payload.path, visible_channel(envelope, payload))
    before = {} if payload.is_new else documents.files.get(key, {})
    wrote = {
        "filename": payload.filename,
        "path": payload.path,
        "sizeBytes": payload.size_bytes,
        "updatedAt": envelope.ts,
        "meta": before.get("meta", {}) | msgspec.to_builtins(payload.meta or {}),
    }
    documents.files[key] = origin_fields(envelope, payload) | before | wrote
    return {key: documents.files[key]}


def _process_start(_: Documents, envelope: Envelope, payload: ProcessStart) -> Bodies:
    started = {
        "kind": "session_start",
        "process": payload.process,
        "pid": payload.pid,
        "model": payload.model,
        "demoMode": payload.demo_mode,
    }
    return {f"marker:{envelope.id}": origin_fields(envelope, payload) | started}


def _process_end(documents: Documents, envelope: Envelope, payload: ProcessEnd) -> Bodies:
    """The end of a process, with which everybody of the team falls asleep."""
    ended = {
        "kind": "session_end",
        "process": payload.process,
        "reason": payload.reason,
        "exitCode": payload.exit_code,
    }
    return {f"marker:{envelope.id}": origin_fields(envelope, payload) | ended} | put_to_sleep(
        documents, documents.team
    )


PART_BUILDERS: dict[type, Callable[[Any], Body | None]] = {
    AssistantMessage: document_text_part,
    AssistantThinking: document_thinking_part,
    ToolCall: document_call_part,
}
REDUCERS: dict[type, Callable[[Documents, Envelope, Any], Bodies]] = {
    UiMessage: _message,  # user_message
    **dict.fromkeys(PART_BUILDERS, _part),  # claude_text, agent_message
    RosterJoin: _join,  # agent_registered
    RosterStatus: _status,  # agent_status
    ArtifactWrite: _artifact,  # artifact_written
    ProcessStart: _process_start,  # session_start
    ProcessEnd: _process_end,  # session_end
    BlockRetract: _retract,
    AgentEnd: _end,
}
