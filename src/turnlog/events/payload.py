"""What every payload shares: strictness, names, and the declarations that stand beside the fields.

A payload is a frozen, keyword-only struct. Absent fields are omitted on the wire. A class declares once,
next to its fields, everything the rest of the package wants to know about it:

    TYPE      the full name, for the classes of the package; an application's names come from its Vocabulary
    ORIGINS   who may emit it: a set, or a pure function of the payload; models and rules if it is left out
    LIVE      true for events that only matter while they happen (protocol section 6)
    LEGACY    true for a type that is still read but refused on append
    EXAMPLE   one payload, used by the reference and the tests
    NAMES_CHANNEL   true if the field `channel` names the event's channel; in other classes it is a field like
              any other

msgspec validates on decoding, not on construction; `Catalog.event` therefore always decodes what it encoded,
and checks what no schema can say: the bytes of names (`names`), and a payload that contradicts itself.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

Origin = Literal["model", "ui", "tool", "app", "system"]
Origins = frozenset[str] | Callable[[Any], frozenset[str]]

ANY_ORIGIN: frozenset[str] = frozenset({"model", "ui", "tool", "app", "system"})
SYSTEM_ORIGINS: frozenset[str] = frozenset({"system"})
MODEL_ORIGINS: frozenset[str] = frozenset(
    {"model", "system"}
)  # system: what recovery closes for a dead model
UI_ORIGINS: frozenset[str] = frozenset({"ui", "app"})
# the origins of a type that declares none: a page may post only what says so, because anyone can drive a page
DEFAULT_ORIGINS: frozenset[str] = frozenset({"model", "app"})

MAX_NAME_BYTES = 128  # a name is a label in every frame that mentions it; 128 bytes leave room in 2048

# `$(?!\n)`: Python's `$` also matches before a last newline; this form is exact in Python and JavaScript.
Name = Annotated[
    str, Meta(min_length=1, max_length=MAX_NAME_BYTES, pattern=r"^[^\u0000-\u001f\u007f]+$(?!\n)")
]
OpaqueId = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_BYTES, pattern=r"^[\u0021-\u007e]+$(?!\n)")]
EventId = Annotated[str, Meta(pattern=r"^evt_[A-Za-z0-9_-]{1,64}$(?!\n)")]
SessionId = Annotated[str, Meta(pattern=r"^sess_[A-Za-z0-9_-]{1,64}$(?!\n)")]
Role = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]{0,31}$(?!\n)")]  # of a member; a channel is a role's
TraceId = Annotated[str, Meta(pattern=r"^tr_[A-Za-z0-9_-]{1,64}$(?!\n)")]
InviteId = Annotated[str, Meta(pattern=r"^inv_[A-Za-z0-9_-]{1,48}$(?!\n)")]
AgentId = Annotated[str, Meta(pattern=r"^agt_[A-Za-z0-9_-]{1,64}$(?!\n)")]
MAX_COUNT = 2**53 - 1  # what every JSON reader can hold exactly
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Amount = Annotated[float, Meta(ge=0)]
Timestamp = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$(?!\n)")]


def explicit_null() -> None:
    """The default of a field that is written even when it is null (a plain default would be omitted)."""


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a payload."""


class Payload(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The content of one event; the declarations are explained at the head of this module."""

    TYPE: ClassVar[str] = ""
    ORIGINS: ClassVar[Origins] = DEFAULT_ORIGINS
    LIVE: ClassVar[bool] = False
    LEGACY: ClassVar[bool] = False
    NAMES_CHANNEL: ClassVar[bool] = False
    EXAMPLE: ClassVar[Mapping[str, Any]] = {}
