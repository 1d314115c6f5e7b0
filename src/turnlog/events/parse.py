"""What a parser refused."""

from typing import Annotated, ClassVar

from msgspec import Meta

from turnlog.events.payload import SYSTEM_ORIGINS, Count, Name, OpaqueId, Origins, Payload


class ParseReject(Payload, frozen=True, kw_only=True):
    """Model output that looked like an event and was refused. The text itself is not kept, only its hash."""

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
    name: Annotated[Name | None, Meta(description="The event it wanted to be, if that could be read.")] = None
    block_id: OpaqueId | None = None
