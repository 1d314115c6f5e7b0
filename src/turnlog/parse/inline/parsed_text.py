"""The output of a parser of model text: text to show, events and rejects, in document order."""

from typing import Any

import msgspec

from turnlog.events import ParseReject, Payload


class TagEvent(msgspec.Struct, omit_defaults=True):
    """An event found in the text. `payload` is None if the parser has no vocabulary."""

    type: str
    data: dict[str, Any]
    payload: Payload | None = None


class ParsedText(msgspec.Struct, gc=False, rename="camel"):
    """The output of one `feed` or `flush`. In JSON its text is `displayText`."""

    display_text: str
    events: list[TagEvent]
    rejects: list[ParseReject]
