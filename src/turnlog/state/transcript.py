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
    Unknown,
)
from turnlog.state.descriptions import channel_of, is_direct, narrated

Who = Literal["user", "assistant", "note"]
OPEN = -1  # the place of a text that has no bubble yet


class Bubble(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One text. `channel` is the role whose members see it; none is everybody."""

    seq: int
    ts: str
    who: Who
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

    bubbles: dict[int, Bubble] = field(default_factory=dict)
    blocks: dict[str, dict[str, int]] = field(default_factory=dict)  # by open agent and block

    def apply(self, envelope: Envelope, payload: Payload | Unknown) -> None:
        """Take one event into account."""
        step = STEPS.get(type(payload))
        if step is not None:
            step(self, envelope, payload)
        elif is_direct(envelope, payload):
            _note(self, envelope, payload)

    def seen_in(self, channels: Collection[str]) -> list[Bubble]:
        """What somebody sees who is in these channels, in order."""
        return [bubble for bubble in self.bubbles.values() if bubble.channel in (None, *channels)]

    def of_agent(self, envelope: Envelope) -> dict[str, int]:
        """The texts of an agent."""
        return self.blocks.setdefault(envelope.agent_id or "", {})

    def add(self, bubble: Bubble) -> bool:
        """Add a bubble, unless there is nothing to read."""
        if not bubble.text.strip():
            return False
        self.bubbles[bubble.seq] = bubble
        return True


def bubble(envelope: Envelope, payload: Any, who: Who, text: str, speaker: str | None) -> Bubble:
    """A text in its place."""
    return Bubble(
        seq=envelope.seq,
        ts=envelope.ts,
        who=who,
        text=text,
        turn=envelope.trace_id,
        channel=channel_of(envelope, payload),
        speaker=speaker,
        agent_id=envelope.agent_id,
        agent_name=envelope.agent_name,
        depth=envelope.depth or 0,
        partial=isinstance(payload, BlockEnd),
    )


def _message(transcript: Transcript, envelope: Envelope, payload: UiMessage) -> None:
    transcript.add(bubble(envelope, payload, "user", payload.text, payload.speaker or envelope.actor))


def _action(transcript: Transcript, envelope: Envelope, payload: UiAction) -> None:
    """An action that answers a call is a result, which has no words here either."""
    if payload.call_id is None:
        _note(transcript, envelope, payload)


def _note(transcript: Transcript, envelope: Envelope, payload: Any) -> None:
    transcript.add(bubble(envelope, payload, "note", narrated(envelope.type, payload), envelope.actor))


def _said(transcript: Transcript, envelope: Envelope, payload: AssistantMessage) -> None:
    said = bubble(envelope, payload, "assistant", payload.text, payload.speaker)
    if transcript.add(said) and payload.block_id:
        transcript.of_agent(envelope)[payload.block_id] = envelope.seq


def _block_start(transcript: Transcript, envelope: Envelope, payload: BlockStart) -> None:
    if payload.kind == "text":
        transcript.of_agent(envelope)[payload.block_id] = OPEN


def _block_end(transcript: Transcript, envelope: Envelope, payload: BlockEnd) -> None:
    """A text that was aborted has no twin: what there is of it stands here."""
    texts = transcript.of_agent(envelope)
    if payload.status == "complete" or texts.pop(payload.block_id, None) != OPEN:
        return
    if transcript.add(bubble(envelope, payload, "assistant", payload.text or "", None)):
        texts[payload.block_id] = envelope.seq


def _retract(transcript: Transcript, envelope: Envelope, payload: BlockRetract) -> None:
    texts = transcript.of_agent(envelope)
    for block_id in payload.block_ids:
        transcript.bubbles.pop(texts.pop(block_id, OPEN), None)


def _agent_end(transcript: Transcript, envelope: Envelope, _: AgentEnd) -> None:
    transcript.blocks.pop(envelope.agent_id or "", None)


STEPS: dict[type, Callable[[Transcript, Envelope, Any], None]] = {
    UiMessage: _message,
    UiAction: _action,
    AssistantMessage: _said,
    BlockStart: _block_start,
    BlockEnd: _block_end,
    BlockRetract: _retract,
    AgentEnd: _agent_end,
}
