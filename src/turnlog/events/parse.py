"""The event of a parser that refused its input."""

from typing import Annotated, ClassVar

from msgspec import Meta

from turnlog.events.payload import SYSTEM_ORIGINS, Count, Name, OpaqueId, Origins, Payload


class ParseReject(Payload, frozen=True, kw_only=True):
    """A parser refused model output that looked like an event. Only its hash is stored, not the text."""

    TYPE: ClassVar = "parse.reject"
    ORIGINS: ClassVar[Origins] = SYSTEM_ORIGINS
    EXAMPLE: ClassVar = {
        "reason": "unknown_type",
        "length": 61,
        "sha256": "e3b0c44298fc1c14",
        "name": "case_closed",
    }

    reason: Name
    length: Annotated[Count, Meta(description="Characters of the refused text.")]
    sha256: OpaqueId
    name: Annotated[Name | None, Meta(description="The event that it names, if that is readable.")] = None
    block_id: OpaqueId | None = None


EVENTS = (ParseReject,)
