"""The output of a parser of model text: text to show, events and rejects, in document order."""

from typing import Any

import msgspec

from turnlog.events import ParseReject, Payload


class TagEvent(msgspec.Struct):
    """An event found in the text. `payload` is None if the parser has no vocabulary."""

    type: str
    data: dict[str, Any]
    payload: Payload | None = None


class ParsedText(msgspec.Struct, gc=False):
    """The output of one `feed` or `flush`."""

    display_text: str
    events: list[TagEvent]
    rejects: list[ParseReject]
