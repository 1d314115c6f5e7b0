"""A team's markers in model text, alone or with tags (docs/protocol.md 5.8), and the target of a message.

`MarkerParser` and `TagAndMarkerParser` are the scanner of `tags` with other openers: every marker is removed
from the text with its JSON. A tag inside a marker's JSON is part of the JSON, a marker inside a tag is part
of the tag. Events come in document order.
"""

import re

from turnlog.events import Origin, Vocabulary
from turnlog.parse.inline.marker_scanner import MARKERS
from turnlog.parse.inline.tags import AgentStreamParser, Openers
from turnlog.parse.json_values import as_name

MARKER_OPENERS = Openers(tags=False, markers=MARKERS)
TAG_AND_MARKER_OPENERS = Openers(markers=MARKERS)


class MarkerParser(AgentStreamParser):
    """Takes the markers out of model text while it streams."""

    def __init__(self) -> None:
        super().__init__(openers=MARKER_OPENERS)


class TagAndMarkerParser(AgentStreamParser):
    """Takes tags and markers out of model text while it streams."""

    def __init__(
        self, vocabulary: Vocabulary | None = None, origin: Origin = "model", nonce: str | None = None
    ) -> None:
        super().__init__(vocabulary, origin, nonce, TAG_AND_MARKER_OPENERS)


ROUTE_PATTERN = re.compile(r"\s*\[ROUTE TO AGENT:([^\]\n]{1,256})\]\s*")


def parse_route(text: str) -> tuple[str | None, str]:
    """Return the target that a message begins with, or None, and the message without it."""
    match = ROUTE_PATTERN.match(text)
    if match is None:
        return None, text
    target = as_name(match[1].strip())
    if target is None:
        return None, text
    return target, text[match.end() :]
