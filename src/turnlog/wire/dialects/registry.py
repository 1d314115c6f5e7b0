"""The dialects by name, and a dialect together with the history it tells.

`turnlog` is the envelope itself: stored bytes are replayed, so it needs no converter. An application may have
dialects of its own beside these. The block dialects tell histories in `meta_init` and `meta_final` when they
are asked to; `Told` folds them beside the conversion. A dialect whose heartbeats say where the
reader is has a row in `HEARTBEATS`.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from turnlog.errors import CallerError, quote
from turnlog.events import AgentStart, Envelope, Payload, UnknownPayload
from turnlog.state.history import History, Message
from turnlog.wire import sse
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialects import office
from turnlog.wire.dialects.agentic import Agentic
from turnlog.wire.dialects.base import BlocksOptions, Dialect, HistoryLookup
from turnlog.wire.dialects.blocks import Blocks
from turnlog.wire.dialects.blocks_raw import BlocksRaw
from turnlog.wire.dialects.blocks_xml import BlocksXml

DialectFactory = Callable[[], Dialect]
ConfiguredDialectFactory = Callable[[BlocksOptions, HistoryLookup], Dialect]


def ignore_options(factory: DialectFactory) -> ConfiguredDialectFactory:
    """How a dialect is made that has no options and tells no histories."""
    return lambda options, conversation: factory()


BLOCK_DIALECT_FACTORIES: dict[str, ConfiguredDialectFactory] = {
    "blocks": Blocks,
    "blocks-xml": BlocksXml,
    "blocks-raw": BlocksRaw,
}
DIALECT_FACTORIES: dict[str, ConfiguredDialectFactory] = {
    **BLOCK_DIALECT_FACTORIES,
    "office": ignore_options(office.Office),
    "agentic": ignore_options(Agentic),
}
DIALECT_NAMES = ("turnlog", *DIALECT_FACTORIES)
CUSTOM_NAME_PATTERN = re.compile(r"[a-z][a-z0-9-]{0,63}")
HEARTBEAT_ENCODERS: dict[str, Callable[[int, int, str], bytes]] = {  # of a seq, a time in ms and a session
    "office": office.encode_heartbeat,
}


class DialectRequest(NamedTuple):
    """What a reader asks for: a dialect and its options, and how it is made if it is an application's own."""

    name: str
    options: BlocksOptions
    custom_factory: ConfiguredDialectFactory | None = None

    def create_dialect(self, history: HistoryLookup) -> Dialect:
        """The dialect, at a place where nothing is open."""
        return (self.custom_factory or DIALECT_FACTORIES[self.name])(self.options, history)


def check_dialect_names(factories: Mapping[str, DialectFactory]) -> dict[str, DialectFactory]:
    """An application's dialects: their names are words, and not those of Turnlog's."""
    for name in factories:
        if name in DIALECT_NAMES or not CUSTOM_NAME_PATTERN.fullmatch(name):
            problem = "expected a dialect's name of a-z, 0-9 and -, which Turnlog's own dialects do not have"
            raise CallerError(f"{problem}, got {quote(name)}")
    return dict(factories)


class DialectWithHistory:
    """A dialect together with the history it tells."""

    def __init__(self, request: DialectRequest) -> None:
        self.history = History()
        self._channel: str | None = None
        self._dialect = request.create_dialect(self._look_up_history)

    def _look_up_history(self, agent_id: str) -> list[Message]:
        return self.history.messages(agent_id, self._channel)

    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        """The messages of one event; a history tells what came before it."""
        self._channel = envelope.channel
        if isinstance(payload, AgentStart):
            self.history.begin_agent(envelope, payload)  # an agent that is called does not have its caller's
        messages = self._dialect.convert(envelope, payload)
        self.history.apply(envelope, payload)
        return messages

    def close(self) -> list[bytes]:
        """What ends a response."""
        return self._dialect.close()

    @property
    def idle(self) -> bool:
        """Whether nothing is open: the state is empty between turns."""
        return self._dialect.idle


def encode_frames(messages: list[bytes], seq: int, epoch: str | None = None) -> list[bytes]:
    """The messages of one event, each with its place; the last one has the plain form."""
    last = len(messages) - 1
    return [
        sse.encode(message, id=str(Cursor(seq, epoch, None if number == last else number)))
        for number, message in enumerate(messages)
    ]
