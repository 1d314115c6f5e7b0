"""The states that runners left in a session: private blobs, and the checkpoints that name them (4.18).

A runner goes on from the last checkpoint of its channel, if it can read it. A blob that a later checkpoint
has superseded is dropped.
"""

from contextlib import suppress
from typing import NamedTuple

from turnlog.adapters.runner import AgentRunner, StoredCheckpoint
from turnlog.errors import NotFound
from turnlog.events import AgentCheckpoint, Envelope, Payload, UnknownPayload
from turnlog.log import Log
from turnlog.state.checkpoints import Checkpoints

STATE_MEDIA_TYPE = "application/octet-stream"


class ReadableState(NamedTuple):
    """The state that a runner goes on from; `problem` says why it cannot read the last one."""

    state: bytes | None = None
    problem: str | None = None


class StoredStates:
    """The states of one session."""

    def __init__(self, log: Log, session_id: str) -> None:
        self._log = log
        self._session_id = session_id
        self._checkpoints = Checkpoints()

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        self._checkpoints.apply(envelope, payload)

    def take_superseded(self) -> list[str]:
        """Return the names of blobs that no runner needs any more, each once."""
        return self._checkpoints.take_superseded()

    async def drop(self, names: list[str]) -> None:
        await self._log.drop_private_blobs(self._session_id, names)

    async def store(self, state: bytes) -> str:
        """Store a state. Return the name of its blob."""
        return await self._log.put_blob(self._session_id, state, STATE_MEDIA_TYPE, private=True)

    async def make_checkpoint(self, runner: AgentRunner, state: bytes) -> AgentCheckpoint:
        """Store a state, and build the checkpoint that names it."""
        return AgentCheckpoint(
            source=runner.source,
            version=runner.version,
            blob=await self.store(state),
            size_bytes=len(state),
        )

    async def load_checkpoint(self, channel: str | None) -> StoredCheckpoint | None:
        """Return the last checkpoint of a channel; None if there is none."""
        checkpoint = self._checkpoints.last.get(channel or "")
        if checkpoint is None:
            return None
        state: bytes | None = None
        with suppress(NotFound):
            blob = await self._log.get_private_blob(self._session_id, checkpoint.blob)
            state = blob.data
        return StoredCheckpoint(checkpoint.source, checkpoint.version, state)

    async def load_state(self, runner: AgentRunner, channel: str | None) -> ReadableState:
        """Return what a runner goes on from in a channel."""
        stored = await self.load_checkpoint(channel)
        if stored is None:
            return ReadableState()
        if stored.source != runner.source or not runner.can_read(stored.version):
            writer = f"{stored.source} {stored.version}"
            return ReadableState(
                None, f"The conversation was stored by {writer}, not {runner.source} {runner.version}."
            )
        if stored.state is None:
            return ReadableState(None, "The stored conversation is missing.")
        return ReadableState(stored.state or None)
