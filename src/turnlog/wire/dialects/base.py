"""The protocol of a dialect, and the options of a reader.

A dialect converts the events of one session, in order, to messages. `convert` never fails on events that the
log accepted. `close` ends a response: it closes what the format opens and closes in pairs (tags, provider
messages) and sends `[DONE]`; nothing is converted after it. A dialect whose messages are complete by
themselves, such as `blocks`, leaves a block open that continues elsewhere.
"""

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from turnlog.events import Envelope, Payload, UnknownPayload
from turnlog.state.history import Message

HistoryLookup = Callable[[str], list[Message]]  # an agent's messages before the event that is converted

DONE = b"[DONE]"


class DialectOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader may request beside the content. Dialects ignore options that they do not have.

    Each field is a query parameter of the same name: a `bool`, or a `Literal` of the texts that it may have.
    """

    stream_meta_history_and_tool_results: bool = False
    stream_tool_results: bool = True
    ids: Literal["seq", "dense"] = "seq"
    images: Literal["url", "inline"] = "url"  # inline: every image is a data URI, whatever its size
    citations: Literal["chunks", "whole"] = "chunks"  # whole: a citation is one message, whatever its size
    ag_ui: Literal["0", "1"] = "1"  # the version of the client: those before 1.0 refuse outcomes of 1.0
    ai_sdk: Literal["5", "6", "7"] = "5"  # the version of the client, which refuses parts of later ones


DEFAULT_OPTIONS = DialectOptions()


class Dialect(Protocol):
    """One projection of a session's log."""

    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        """Return the messages of one event."""
        ...

    def close(self) -> list[bytes]:
        """Return the messages that end a response."""
        ...

    @property
    def idle(self) -> bool:
        """Return whether nothing is open. A dialect is idle between turns.

        What it knows of the turns before follows from one event (`DialectDefinition.earlier_types`).
        """
        ...


DialectFactory = Callable[[DialectOptions, HistoryLookup], Dialect]


def no_history(agent_id: str) -> list[Message]:
    """Return no messages, for readers that did not request histories."""
    return []
