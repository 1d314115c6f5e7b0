"""Markers of a team in model text, alone or with tags (docs/protocol.md 5.8), and whom a message is for.

`MarkerParser` and `TagsAndMarkers` are scanners of `tags` with other openers: every marker with its JSON is
taken out of the text, the rest is kept. A tag inside a marker's JSON is a part of the JSON, a marker inside a
tag's a part of the tag; events come in document order.
"""

import re

from turnlog.events import Origin, Vocabulary
from turnlog.parse.inline.marker_scanner import MARKERS
from turnlog.parse.inline.tag_scanner import TAG_START
from turnlog.parse.inline.tags import AgentStreamParser, Openers
from turnlog.parse.json_values import as_name

MARKER_OPENERS = Openers(*MARKERS)
ALL_OPENERS = Openers(TAG_START, *MARKERS)


class MarkerParser(AgentStreamParser):
    """Takes the markers out of model text while it streams. After `flush` it is ready for the next text."""

    def __init__(self) -> None:
        super().__init__(openers=MARKER_OPENERS)


class TagAndMarkerParser(AgentStreamParser):
    """Takes tags and markers out of model text while it streams."""

    def __init__(
        self, vocabulary: Vocabulary | None = None, origin: Origin = "model", nonce: str | None = None
    ) -> None:
        super().__init__(vocabulary, origin, nonce, ALL_OPENERS)


ROUTE_PATTERN = re.compile(r"\s*\[ROUTE TO AGENT:([^\]\n]{1,256})\]\s*")


def parse_route(text: str) -> tuple[str | None, str]:
    """Whom a message is for, if it begins by saying so, and the message without that."""
    match = ROUTE_PATTERN.match(text)
    target = as_name(match[1].strip()) if match else None
    return (target, text[match.end() :]) if match and target else (None, text)
