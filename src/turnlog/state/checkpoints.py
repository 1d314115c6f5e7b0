"""The last checkpoint of every channel, and the private blobs that no runtime needs any more.

Input: the events of a session, in order. A runtime goes on from the last checkpoint of its channel; a later
one supersedes it. `take_superseded` returns the blobs of checkpoints that are superseded, each once, so the
caller bounds the memory. A checkpoint that names a blob of another session is ignored.
"""

from dataclasses import dataclass, field

from turnlog.events import AgentCheckpoint, Envelope, Payload, UnknownPayload


@dataclass(slots=True)
class Checkpoints:
    """The last checkpoint by channel; "" is no channel."""

    last: dict[str, AgentCheckpoint] = field(default_factory=dict)
    superseded: list[str] = field(default_factory=list)

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        if not isinstance(payload, AgentCheckpoint):
            return
        # A source that records events must not reach what another session stored.
        if not payload.blob.startswith(f"{envelope.session_id}/"):
            return

        channel = envelope.channel or ""
        before = self.last.get(channel)
        self.last[channel] = payload
        if before is not None and not self._is_needed(before.blob):
            self.superseded.append(before.blob)

    def take_superseded(self) -> list[str]:
        """Return the names of superseded blobs that were not returned before."""
        names = [name for name in dict.fromkeys(self.superseded) if not self._is_needed(name)]
        self.superseded = []
        return names

    def _is_needed(self, name: str) -> bool:
        return any(checkpoint.blob == name for checkpoint in self.last.values())
