"""What a parser of model text gives: text to show, events and rejects, in document order."""

from typing import Any

import msgspec

from turnlog.events import ParseReject, Payload


class TagEvent(msgspec.Struct):
    """An event found in the text; `payload` is its typed form when there is a vocabulary."""

    type: str
    data: dict[str, Any]
    payload: Payload | None = None


class ParsedText(msgspec.Struct, gc=False):
    """What one feed or flush decided."""

    display_text: str
    events: list[TagEvent]
    rejects: list[ParseReject]
