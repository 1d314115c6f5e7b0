"""What was said in a session, as bubbles: by people, by agents, and notes of what people did without words.

A bubble stands where its event stands in the log. Blank texts leave none, nor do events without prose. What
was retracted vanishes; a text that was aborted stays, marked `partial`. Texts that are still being written
are not here but in what is open (`pending`).
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
from turnlog.state.descriptions import describe_input, is_page_event, visible_channel

EntryRole = Literal["user", "assistant", "note"]
NO_ENTRY_SEQ = -1  # the place of a text that has no bubble yet


class TranscriptEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One text. `channel` is the role whose members see it; none is everybody."""

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
    """The bubbles of a session by seq. `blocks` has the seqs of texts that can still be retracted."""

    entries: dict[int, TranscriptEntry] = field(default_factory=dict)
    seqs_by_block: dict[str, dict[str, int]] = field(default_factory=dict)  # by open agent and block

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        """Take one event into account."""
        step = REDUCERS.get(type(payload))
        if step is not None:
            step(self, envelope, payload)
        elif is_page_event(envelope, payload):
            _note(self, envelope, payload)

    def visible_in(self, channels: Collection[str]) -> list[TranscriptEntry]:
        """What somebody sees who is in these channels, in order."""
        return [bubble for bubble in self.entries.values() if bubble.channel in (None, *channels)]

    def block_seqs(self, envelope: Envelope) -> dict[str, int]:
        """The texts of an agent."""
        return self.seqs_by_block.setdefault(envelope.agent_id or "", {})

    def add(self, entry: TranscriptEntry) -> bool:
        """Add a bubble, unless there is nothing to read."""
        if not entry.text.strip():
            return False
        self.entries[entry.seq] = entry
        return True


def build_entry(
    envelope: Envelope, payload: Any, who: EntryRole, text: str, speaker: str | None
) -> TranscriptEntry:
    """A text in its place."""
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
    transcript.add(build_entry(envelope, payload, "user", payload.text, payload.speaker or envelope.actor))


def _action(transcript: Transcript, envelope: Envelope, payload: UiAction) -> None:
    """An action that answers a call is a result, which has no words here either."""
    if payload.call_id is None:
        _note(transcript, envelope, payload)


def _note(transcript: Transcript, envelope: Envelope, payload: Any) -> None:
    transcript.add(
        build_entry(envelope, payload, "note", describe_input(envelope.type, payload), envelope.actor)
    )


def _assistant_message(transcript: Transcript, envelope: Envelope, payload: AssistantMessage) -> None:
    said = build_entry(envelope, payload, "assistant", payload.text, payload.speaker)
    if transcript.add(said) and payload.block_id:
        transcript.block_seqs(envelope)[payload.block_id] = envelope.seq


def _block_start(transcript: Transcript, envelope: Envelope, payload: BlockStart) -> None:
    if payload.kind == "text":
        transcript.block_seqs(envelope)[payload.block_id] = NO_ENTRY_SEQ


def _block_end(transcript: Transcript, envelope: Envelope, payload: BlockEnd) -> None:
    """A text that was aborted has no twin: what there is of it stands here."""
    texts = transcript.block_seqs(envelope)
    if payload.status == "complete" or texts.pop(payload.block_id, None) != NO_ENTRY_SEQ:
        return
    if transcript.add(build_entry(envelope, payload, "assistant", payload.text or "", None)):
        texts[payload.block_id] = envelope.seq


def _retract(transcript: Transcript, envelope: Envelope, payload: BlockRetract) -> None:
    texts = transcript.block_seqs(envelope)
    for block_id in payload.block_ids:
        transcript.entries.pop(texts.pop(block_id, NO_ENTRY_SEQ), None)


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
