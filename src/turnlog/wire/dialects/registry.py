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
from turnlog.events import AgentStart, Envelope, Payload, Unknown
from turnlog.state.history import History, Message
from turnlog.wire import sse
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialects import office
from turnlog.wire.dialects.agentic import Agentic
from turnlog.wire.dialects.base import BlocksOptions, Conversation, Dialect
from turnlog.wire.dialects.blocks import Blocks
from turnlog.wire.dialects.blocks_raw import BlocksRaw
from turnlog.wire.dialects.blocks_xml import BlocksXml

Kind = Callable[[], Dialect]
Make = Callable[[BlocksOptions, Conversation], Dialect]


def plainly(kind: Kind) -> Make:
    """How a dialect is made that has no options and tells no histories."""
    return lambda options, conversation: kind()


BLOCKS: dict[str, Make] = {"blocks": Blocks, "blocks-xml": BlocksXml, "blocks-raw": BlocksRaw}
CONVERTED: dict[str, Make] = {**BLOCKS, "office": plainly(office.Office), "agentic": plainly(Agentic)}
DIALECTS = ("turnlog", *CONVERTED)
OWN_NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")
HEARTBEATS: dict[str, Callable[[int, int, str], bytes]] = {  # of a seq, a time in ms and a session
    "office": office.heartbeat,
}


class Wanted(NamedTuple):
    """What a reader asks for: a dialect and its options, and how it is made if it is an application's own."""

    name: str
    options: BlocksOptions
    own: Make | None = None

    def dialect(self, conversation: Conversation) -> Dialect:
        """The dialect, at a place where nothing is open."""
        return (self.own or CONVERTED[self.name])(self.options, conversation)


def well_named(kinds: Mapping[str, Kind]) -> dict[str, Kind]:
    """An application's dialects: their names are words, and not those of Turnlog's."""
    for name in kinds:
        if name in DIALECTS or not OWN_NAME.fullmatch(name):
            problem = "expected a dialect's name of a-z, 0-9 and -, which Turnlog's own dialects do not have"
            raise CallerError(f"{problem}, got {quote(name)}")
    return dict(kinds)


class Told:
    """A dialect together with the history it tells."""

    def __init__(self, wanted: Wanted) -> None:
        self.history = History()
        self._channel: str | None = None
        self._dialect = wanted.dialect(self._conversation)

    def _conversation(self, agent_id: str) -> list[Message]:
        return self.history.messages(agent_id, self._channel)

    def convert(self, envelope: Envelope, payload: Payload | Unknown) -> list[bytes]:
        """The messages of one event; a history tells what came before it."""
        self._channel = envelope.channel
        if isinstance(payload, AgentStart):
            self.history.begin(envelope, payload)  # an agent that is called does not have its caller's
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


def frames(messages: list[bytes], seq: int, epoch: str | None = None) -> list[bytes]:
    """The messages of one event, each with its place; the last one has the plain form."""
    last = len(messages) - 1
    return [
        sse.encode(message, id=str(Cursor(seq, epoch, None if number == last else number)))
        for number, message in enumerate(messages)
    ]
