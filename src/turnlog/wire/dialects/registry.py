"""The dialects by name, and a dialect together with the history that it sends.

`turnlog` is the envelope itself: the server replays stored bytes, so it has no factory. An application may
add dialects of its own. The block dialects send histories in `meta_init` and `meta_final` on request;
`DialectWithHistory` folds them beside the conversion. A dialect whose heartbeats carry the reader's position
has a row in `HEARTBEAT_ENCODERS`. One whose messages depend on an event of an earlier turn has a row in
`EARLIER_EVENT_TYPES`.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from turnlog.errors import CallerError, quote
from turnlog.events import AgentStart, Envelope, Payload, UnknownPayload
from turnlog.state.history import History, Message
from turnlog.wire import sse
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialects.agentic import Agentic
from turnlog.wire.dialects.base import BlocksOptions, Dialect, DialectFactory, HistoryLookup
from turnlog.wire.dialects.blocks import Blocks
from turnlog.wire.dialects.blocks_raw import BlocksRaw
from turnlog.wire.dialects.blocks_xml import BlocksXml
from turnlog.wire.dialects.office import EARLIER_TYPES, Office, encode_heartbeat

HeartbeatEncoder = Callable[[int, int, str], bytes]  # of a seq, a time in ms and a session

DIALECT_FACTORIES: dict[str, DialectFactory] = {
    "blocks": Blocks,
    "blocks-xml": BlocksXml,
    "blocks-raw": BlocksRaw,
    "office": Office,
    "agentic": Agentic,
}
BLOCK_DIALECTS = frozenset({"blocks", "blocks-xml", "blocks-raw"})
DIALECT_NAMES = ("turnlog", *DIALECT_FACTORIES)
CUSTOM_NAME_PATTERN = re.compile(r"[a-z][a-z0-9-]{0,63}")
HEARTBEAT_ENCODERS: dict[str, HeartbeatEncoder] = {"office": encode_heartbeat}
DENSE_ID_DIALECTS = frozenset({"office"})  # whose ids can be numbers without gaps (`ids=dense`)
# A dialect that begins in the middle of a log first converts the last event before it of these types and of
# depth 0, and drops the message, which was sent before.
EARLIER_EVENT_TYPES: dict[str, tuple[str, ...]] = {"office": EARLIER_TYPES}


class DialectRequest(NamedTuple):
    """The dialect that a reader requests, with its options. An application's own brings its factory."""

    name: str
    options: BlocksOptions
    custom_factory: DialectFactory | None = None

    def create_dialect(self, history: HistoryLookup) -> Dialect:
        """Return a new dialect, for a position in the log where nothing is open."""
        factory = self.custom_factory or DIALECT_FACTORIES[self.name]
        return factory(self.options, history)


def check_dialect_names(factories: Mapping[str, DialectFactory]) -> dict[str, DialectFactory]:
    """Return an application's dialects; raise `CallerError` for a name that is malformed or Turnlog's own."""
    for name in factories:
        if name in DIALECT_NAMES or not CUSTOM_NAME_PATTERN.fullmatch(name):
            problem = "expected a dialect's name of a-z, 0-9 and -, which Turnlog's own dialects do not have"
            raise CallerError(f"{problem}, got {quote(name)}")
    return dict(factories)


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


def encode_frames(messages: list[bytes], seq: int, epoch: str | None = None) -> list[bytes]:
    """Return one SSE frame per message of an event. Only the last id has no chunk number."""
    frames = []
    last = len(messages) - 1
    for index, message in enumerate(messages):
        chunk = None if index == last else index
        frames.append(sse.encode(message, id=str(Cursor(seq, epoch, chunk))))
    return frames
