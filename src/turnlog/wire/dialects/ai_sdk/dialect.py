"""The dialect `ai-sdk`: the UI message stream of the Vercel AI SDK, for clients 5, 6 and 7 (protocol 11).

- One response is one message of the assistant: `start`, parts, `finish` and `[DONE]`. A completion of the
  agent that answers is a step. A message of a person within a turn begins another message.
- Every tool is `dynamic`. Sub-agents have no place in the format: each is a part `data-agent`, which is sent
  again as it grows, and its text comes live in transient parts. Their questions are top-level calls.
- A part that a client does not know is fatal to it. `options.ai_sdk` is the client's version, 5 without it:
  approvals are `data-approval` for 5, and a retraction is `data-retract` for 5 and 6.
"""

from typing import Any

import msgspec

from turnlog.events import (
    Envelope,
    Payload,
    UnknownPayload,
)
from turnlog.wire import sse
from turnlog.wire.dialects._common import is_foreign_event
from turnlog.wire.dialects.ai_sdk.converters import CONVERTERS
from turnlog.wire.dialects.ai_sdk.parts import (
    part,
)
from turnlog.wire.dialects.ai_sdk.writer import AiSdkAgent, AiSdkRun, AiSdkWriter
from turnlog.wire.dialects.base import DEFAULT_OPTIONS, DONE, DialectOptions, HistoryLookup, no_history
from turnlog.wire.dialects.framing import DONE_FRAME
from turnlog.wire.dialects.run_outcome import LIVE_PAYLOADS, ReaderRoles

Part = dict[str, Any]


class AiSdk:
    """One projection of a session's log."""

    def __init__(
        self,
        options: DialectOptions = DEFAULT_OPTIONS,
        history: HistoryLookup = no_history,
        run: AiSdkRun | None = None,
        roles: ReaderRoles = None,
    ) -> None:
        self._run = run
        self._writer = AiSdkWriter(int(options.ai_sdk), run, roles)

    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        agent = self._writer.agents.get(envelope.agent_id or "") or AiSdkAgent(envelope.agent_name or "")
        self._writer.progress.apply(envelope, payload)
        convert = CONVERTERS.get(type(payload))
        if convert is not None:
            convert(self._writer, agent, envelope, payload)
        elif is_foreign_event(envelope, payload):
            self._writer.write_data(
                "event", {"type": envelope.type, "payload": envelope.payload}, id=envelope.id
            )
        if self._run is None:
            return self._take_session_output(payload)
        return self._take_run_output(self._run)

    def skip(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        """Return nothing: the format has no state of the application."""
        return []

    @property
    def is_finished(self) -> bool:
        """Return whether nothing runs: a response ends here."""
        return self._writer.progress.is_finished

    @property
    def idle(self) -> bool:
        return not self._writer.agents and not self._writer.progress.hands_over

    def begin(self) -> list[bytes]:
        """Return the parts that begin a response at this position."""
        self._writer.has_begun = True
        # The client's own message, which is still to come, begins another message.
        if self._writer.is_silent:
            return []
        replayed = self._writer.replayed
        self._writer.replayed = []
        return [*self._encode([part("start", messageId=self._writer.message_id)]), *replayed]

    def close(self) -> list[bytes]:
        if self._writer.has_begun:
            self._writer.finish()
        return [*self._encode(self._writer.take_output()), DONE]

    # responses

    def _take_session_output(self, payload: Payload | UnknownPayload) -> list[bytes]:
        if self._writer.out and not self._writer.has_begun:
            self._writer.has_begun = True
            self._writer.out.insert(0, part("start", messageId=self._writer.message_id or None))
        if (
            self._writer.has_begun
            and type(payload) not in LIVE_PAYLOADS
            and not self._writer.progress.is_running
        ):
            self._writer.finish()
        parts = [*self._writer.ended, *self._writer.take_output()]
        self._writer.ended = []
        return self._encode(parts)

    def _take_run_output(self, run: AiSdkRun) -> list[bytes]:
        parts = self._writer.take_output()
        if self._writer.is_silent:
            return []
        if self._writer.has_begun:
            return self._encode(parts)
        if run.replays:
            self._writer.replayed += self._encode(parts)
        return []

    def _encode(self, parts: list[Part]) -> list[bytes]:
        return [msgspec.json.encode(item) for item in parts]


def encode_early_end() -> bytes:
    """Return the frames that end a stream before its end: a client then resumes it."""
    problem = part("error", errorText="The server ended this stream; resume it.")
    return sse.encode(msgspec.json.encode(problem)) + DONE_FRAME
