"""The base class of payloads, the types of their fields, and their declarations.

A payload is a frozen, keyword-only struct. Absent fields are omitted on the wire. A class declares once,
next to its fields, everything that the rest of the package needs to know about it:

    TYPE      the full name, for the package's own classes; a Vocabulary names an application's classes
    ORIGINS   the origins that may emit it: a set, or a pure function of the payload; default: model and app
    LIVE      True for an event that is not replayed after its span has ended (protocol section 6)
    LEGACY    True for a type that is still decoded but refused on append
    EXAMPLE   one payload, used by the reference and the tests
    NAMES_CHANNEL   True if the field `channel` names the event's channel; else it is application data

msgspec validates on decoding, not on construction. Therefore `Catalog.build_event` decodes what it encoded,
and checks what no schema can express: the bytes of names (`names`), and a payload that contradicts itself.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

Origin = Literal["model", "ui", "tool", "app", "system"]
Origins = frozenset[str] | Callable[[Any], frozenset[str]]

ANY_ORIGIN: frozenset[str] = frozenset({"model", "ui", "tool", "app", "system"})
SYSTEM_ORIGINS: frozenset[str] = frozenset({"system"})
# system: recovery closes the blocks of a dead model
MODEL_ORIGINS: frozenset[str] = frozenset({"model", "system"})
UI_ORIGINS: frozenset[str] = frozenset({"ui", "app"})
# The origins of a type that declares none. Without "ui": anyone can script a page, so a page may post only
# the types that allow it.
DEFAULT_ORIGINS: frozenset[str] = frozenset({"model", "app"})

MAX_NAME_BYTES = 128  # a name is a label in every frame that mentions it; 128 bytes leave room in 2048

# `$(?!\n)`: Python's `$` also matches before a last newline; this form is exact in Python and JavaScript.
Name = Annotated[
    str, Meta(min_length=1, max_length=MAX_NAME_BYTES, pattern=r"^[^\u0000-\u001f\u007f]+$(?!\n)")
]
OpaqueId = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_BYTES, pattern=r"^[\u0021-\u007e]+$(?!\n)")]
EVENT_ID_PATTERN = r"^evt_[A-Za-z0-9_-]{1,64}$(?!\n)"
EventId = Annotated[str, Meta(pattern=EVENT_ID_PATTERN)]
SessionId = Annotated[str, Meta(pattern=r"^sess_[A-Za-z0-9_-]{1,64}$(?!\n)")]
Role = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]{0,31}$(?!\n)")]  # also the name of a channel
TraceId = Annotated[str, Meta(pattern=r"^tr_[A-Za-z0-9_-]{1,64}$(?!\n)")]
InviteId = Annotated[str, Meta(pattern=r"^inv_[A-Za-z0-9_-]{1,48}$(?!\n)")]
AgentId = Annotated[str, Meta(pattern=r"^agt_[A-Za-z0-9_-]{1,64}$(?!\n)")]
# A conversation's name in `blocks`: the client's choice, or the first agent's id without `agt_`.
ConversationId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$(?!\n)")]
# The id that a client of another protocol gave its own message. It is unique for that client only.
ClientMessageId = Annotated[str, Meta(min_length=1, max_length=256)]
MAX_COUNT = 2**53 - 1  # the largest integer that every JSON reader holds exactly
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Amount = Annotated[float, Meta(ge=0)]
Timestamp = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$(?!\n)")]


def explicit_null() -> None:
    """Return None, as the default of a field that is written even if it is null.

    msgspec omits a field that equals a plain default, but not one that comes from a factory.
    """


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a payload."""


class Payload(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The content of one event. The head of this module explains the declarations."""

    TYPE: ClassVar[str] = ""
    ORIGINS: ClassVar[Origins] = DEFAULT_ORIGINS
    LIVE: ClassVar[bool] = False
    LEGACY: ClassVar[bool] = False
    NAMES_CHANNEL: ClassVar[bool] = False
    EXAMPLE: ClassVar[Mapping[str, Any]] = {}
