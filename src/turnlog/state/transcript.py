"""The texts of a session for people to read: of people, of agents, and notes about acts without words.

Input: the events of the log. Output: entries in log order, by the seq of their event. Blank texts have no
entry. A retracted text is removed; an aborted one stays and is marked `partial`. Texts that are still being
written are in `pending`, not here.
"""

from collections.abc import Callable, Collection
from typing import Any, Literal

from msgspec import Struct, field

from turnlog.events import (
    AgentEnd,
    AssistantMessage,
    BlockEnd,
    BlockRetract,
    BlockStart,
    Envelope,
    Payload,
    UiAction,
    UiMessage,
    UnknownPayload,
)
from turnlog.state.channels import is_channel_visible, visible_channel
from turnlog.state.descriptions import describe_input, is_page_event

EntryRole = Literal["user", "assistant", "note"]
NO_ENTRY_SEQ = -1  # of a text block that has no entry yet


class TranscriptEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One text. Members of `channel` see it; without a channel every member does."""

    seq: int
    ts: str
    who: EntryRole
    text: str
    turn: str | None = None
    channel: str | None = None
    speaker: str | None = None
    agent_id: str | None = None
    agent_name: str | None = None
    depth: int = 0
    partial: bool = False


class Transcript(Struct):
    """The entries of a session by seq, and the seqs of the texts that can still be retracted."""

    entries: dict[int, TranscriptEntry] = field(default_factory=dict)
    seqs_by_block: dict[str, dict[str, int]] = field(default_factory=dict)  # by open agent and block

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        reduce = REDUCERS.get(type(payload))
        if reduce is not None:
            reduce(self, envelope, payload)
        elif is_page_event(envelope, payload):
            _note(self, envelope, payload)

    def visible_in(self, channels: Collection[str]) -> list[TranscriptEntry]:
        return [entry for entry in self.entries.values() if is_channel_visible(entry.channel, channels)]

    def block_seqs(self, envelope: Envelope) -> dict[str, int]:
        """Return the seqs of the texts of the event's agent by block, to change in place."""
        return self.seqs_by_block.setdefault(envelope.agent_id or "", {})

    def add(self, entry: TranscriptEntry) -> bool:
        """Add an entry. Return False and add nothing if its text is blank."""
        if not entry.text.strip():
            return False
        self.entries[entry.seq] = entry
        return True


def build_entry(
    envelope: Envelope, payload: Any, who: EntryRole, text: str, speaker: str | None
) -> TranscriptEntry:
    return TranscriptEntry(
        seq=envelope.seq,
        ts=envelope.ts,
        who=who,
        text=text,
        turn=envelope.trace_id,
        channel=visible_channel(envelope, payload),
        speaker=speaker,
        agent_id=envelope.agent_id,
        agent_name=envelope.agent_name,
        depth=envelope.depth or 0,
        partial=isinstance(payload, BlockEnd),
    )


def _user_message(transcript: Transcript, envelope: Envelope, payload: UiMessage) -> None:
    speaker = payload.speaker or envelope.actor
    transcript.add(build_entry(envelope, payload, "user", payload.text, speaker))


def _action(transcript: Transcript, envelope: Envelope, payload: UiAction) -> None:
    # An action that answers a call is a result, and results have no entries.
    if payload.call_id is None:
        _note(transcript, envelope, payload)


def _note(transcript: Transcript, envelope: Envelope, payload: Any) -> None:
    text = describe_input(envelope.type, payload)
    transcript.add(build_entry(envelope, payload, "note", text, envelope.actor))


def _assistant_message(transcript: Transcript, envelope: Envelope, payload: AssistantMessage) -> None:
    entry = build_entry(envelope, payload, "assistant", payload.text, payload.speaker)
    if transcript.add(entry) and payload.block_id:
        transcript.block_seqs(envelope)[payload.block_id] = envelope.seq


def _block_start(transcript: Transcript, envelope: Envelope, payload: BlockStart) -> None:
    if payload.kind == "text":
        transcript.block_seqs(envelope)[payload.block_id] = NO_ENTRY_SEQ


def _block_end(transcript: Transcript, envelope: Envelope, payload: BlockEnd) -> None:
    # A complete block has a final event, `assistant.message`. An aborted one has none.
    if payload.status == "complete":
        return
    seqs = transcript.block_seqs(envelope)
    if seqs.pop(payload.block_id, None) != NO_ENTRY_SEQ:
        return
    if transcript.add(build_entry(envelope, payload, "assistant", payload.text or "", None)):
        seqs[payload.block_id] = envelope.seq


def _retract(transcript: Transcript, envelope: Envelope, payload: BlockRetract) -> None:
    seqs = transcript.block_seqs(envelope)
    for block_id in payload.block_ids:
        transcript.entries.pop(seqs.pop(block_id, NO_ENTRY_SEQ), None)


def _agent_end(transcript: Transcript, envelope: Envelope, _: AgentEnd) -> None:
    transcript.seqs_by_block.pop(envelope.agent_id or "", None)


REDUCERS: dict[type, Callable[[Transcript, Envelope, Any], None]] = {
    UiMessage: _user_message,
    UiAction: _action,
    AssistantMessage: _assistant_message,
    BlockStart: _block_start,
    BlockEnd: _block_end,
    BlockRetract: _retract,
    AgentEnd: _agent_end,
}
