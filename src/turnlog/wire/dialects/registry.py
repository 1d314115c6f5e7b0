"""The dialects by name, and a dialect together with the history that it sends.

`turnlog` is the envelope itself: the server replays stored bytes, so it has no definition. A registry has the
dialects of the core, of the package's optional vocabularies and of applications. The block dialects send
histories in `meta_init` and `meta_final` on request; `DialectWithHistory` folds them beside the conversion.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from turnlog.errors import CallerError, quote
from turnlog.events import AgentStart, Envelope, Payload, UnknownPayload
from turnlog.state.history import History, Message
from turnlog.wire.dialects.ag_ui.dialect import AgUi, encode_cut
from turnlog.wire.dialects.agentic import Agentic
from turnlog.wire.dialects.ai_sdk.dialect import AiSdk, encode_early_end
from turnlog.wire.dialects.base import DEFAULT_OPTIONS, Dialect, DialectFactory, DialectOptions, HistoryLookup
from turnlog.wire.dialects.blocks import Blocks
from turnlog.wire.dialects.blocks_raw import BlocksRaw
from turnlog.wire.dialects.blocks_xml import BlocksXml
from turnlog.wire.dialects.framing import (
    DONE_FRAME,
    ENVELOPE_FRAMING,
    FOREIGN_FRAMING,
    NATIVE_FRAMING,
    SSE_HEADERS,
    Framing,
)

TURNLOG = "turnlog"
BLOCK_DIALECTS = frozenset({"blocks", "blocks-xml", "blocks-raw"})
CUSTOM_NAME_PATTERN = re.compile(r"[a-z][a-z0-9-]{0,63}")


class DialectDefinition(NamedTuple):
    """How a dialect is made, and how its messages are framed.

    A dialect that begins in the middle of a log first converts the last event before it of `earlier_types`
    and of depth 0, and drops the message, which was sent before. With `has_dense_ids` its ids can be numbers
    without gaps (`ids=dense`).
    """

    factory: DialectFactory
    framing: Framing = NATIVE_FRAMING
    earlier_types: tuple[str, ...] = ()
    has_dense_ids: bool = False


# The client of the AI SDK looks for this header.
AI_SDK_HEADERS = (*SSE_HEADERS, (b"x-vercel-ai-ui-message-stream", b"v1"))
AI_SDK_FRAMING = FOREIGN_FRAMING._replace(headers=AI_SDK_HEADERS, end=DONE_FRAME, cut=encode_early_end())

CORE_DIALECTS: dict[str, DialectDefinition] = {
    "blocks": DialectDefinition(Blocks),
    "blocks-xml": DialectDefinition(BlocksXml),
    "blocks-raw": DialectDefinition(BlocksRaw),
    "agentic": DialectDefinition(Agentic),
    "ag-ui": DialectDefinition(AgUi, FOREIGN_FRAMING._replace(cut=encode_cut())),
    "ai-sdk": DialectDefinition(AiSdk, AI_SDK_FRAMING),
}


class DialectRequest(NamedTuple):
    """The dialect that a reader requests, with its options. `turnlog` has no definition."""

    name: str
    options: DialectOptions
    definition: DialectDefinition | None

    @property
    def framing(self) -> Framing:
        return self.definition.framing if self.definition else ENVELOPE_FRAMING

    @property
    def has_dense_ids(self) -> bool:
        return self.definition is not None and self.definition.has_dense_ids

    def create_dialect(self, history: HistoryLookup) -> Dialect:
        """Return a new dialect, for a position in the log where nothing is open."""
        assert self.definition is not None, "the dialect turnlog is the stored line"
        return self.definition.factory(self.options, history)


class DialectRegistry:
    """The dialects that a reader may request by name."""

    def __init__(self, definitions: Mapping[str, DialectDefinition]) -> None:
        self.definitions = dict(definitions)

    @property
    def names(self) -> tuple[str, ...]:
        return (TURNLOG, *self.definitions)

    def check_name(self, name: str) -> None:
        """Raise `CallerError` if there is no dialect of this name."""
        if name not in self.names:
            raise CallerError(f"expected one of the dialects {', '.join(self.names)}, got {quote(name)}")

    def request(self, name: str, options: DialectOptions = DEFAULT_OPTIONS) -> DialectRequest:
        """Return the request for one of `names`."""
        return DialectRequest(name, options, None if name == TURNLOG else self.definitions[name])

    def extend(self, dialects: Mapping[str, DialectFactory | DialectDefinition]) -> "DialectRegistry":
        """Return a registry with more dialects. Raise `CallerError` for a malformed name, or one in use."""
        added = {}
        for name, dialect in dialects.items():
            if name in self.names or not CUSTOM_NAME_PATTERN.fullmatch(name):
                form = "a dialect's name of a-z, 0-9 and -, which Turnlog's own dialects do not have"
                raise CallerError(f"expected {form}, got {quote(name)}")
            added[name] = dialect if isinstance(dialect, DialectDefinition) else DialectDefinition(dialect)
        return DialectRegistry({**self.definitions, **added})


class DialectWithHistory:
    """A dialect together with the history that it sends."""

    def __init__(self, request: DialectRequest) -> None:
        self.history = History()
        self._channel: str | None = None
        self._dialect = request.create_dialect(self._look_up_history)

    def _look_up_history(self, agent_id: str) -> list[Message]:
        return self.history.messages(agent_id, self._channel)

    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        """Return the messages of one event. A history in them ends before the event."""
        self._channel = envelope.channel
        # A called agent must not get the conversation of its caller.
        if isinstance(payload, AgentStart):
            self.history.begin_agent(envelope, payload)
        messages = self._dialect.convert(envelope, payload)
        self.history.apply(envelope, payload)
        return messages

    def close(self) -> list[bytes]:
        return self._dialect.close()

    @property
    def idle(self) -> bool:
        return self._dialect.idle
