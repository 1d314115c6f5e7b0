"""The dialects by name, and a dialect together with the history it tells.

`turnlog` is the envelope itself: stored bytes are replayed, so it needs no converter. The block dialects tell
histories in `meta_init` and `meta_final` when they are asked to; `Told` folds them beside the conversion.
A dialect whose heartbeats say where the reader is has a row in `HEARTBEATS`.
"""

from collections.abc import Callable
from typing import NamedTuple

from turnlog.events import AgentStart, Envelope, Payload, Unknown
from turnlog.state.history import History, Message
from turnlog.wire import office, sse
from turnlog.wire.agentic import Agentic
from turnlog.wire.blocks import Blocks
from turnlog.wire.blocks_raw import BlocksRaw
from turnlog.wire.blocks_xml import BlocksXml
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialect import BlocksOptions, Conversation, Dialect

BLOCKS: dict[str, Callable[[BlocksOptions, Conversation], Dialect]] = {
    "blocks": Blocks,
    "blocks-xml": BlocksXml,
    "blocks-raw": BlocksRaw,
}
CONVERTED: dict[str, Callable[[BlocksOptions, Conversation], Dialect]] = {
    **BLOCKS,
    "office": lambda _, __: office.Office(),
    "agentic": lambda _, __: Agentic(),
}
DIALECTS = ("turnlog", *CONVERTED)
HEARTBEATS: dict[str, Callable[[int, int, str], bytes]] = {  # of a seq, a time in ms and a session
    "office": office.heartbeat,
}


class Wanted(NamedTuple):
    """What a reader asks for: a dialect and its options."""

    name: str
    options: BlocksOptions


class Told:
    """A dialect together with the history it tells."""

    def __init__(self, wanted: Wanted) -> None:
        self.history = History()
        self._channel: str | None = None
        self._dialect = CONVERTED[wanted.name](wanted.options, self._conversation)

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
