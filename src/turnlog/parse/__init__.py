"""Model output in, events out. Every parser is pure, bounded, linear and never raises (docs/protocol.md 5).

A parser with memory has `feed` and `flush`; a whole-text function is feed and flush. Any way of cutting the
input gives the same result. What was refused leaves a `ParseReject`. Parsers of a model's stream say what
they read to a `Reply`, the one machine that makes blocks, twins and calls of it.
"""

from turnlog.parse.claude.agents import Said
from turnlog.parse.claude.parser import CliParser
from turnlog.parse.claude.turns import Asked
from turnlog.parse.inline.markers import MarkerParser, TagsAndMarkers
from turnlog.parse.inline.parsed_text import Parsed, TagEvent
from turnlog.parse.inline.tags import AgentStreamParser, Stripped, strip_event_tags
from turnlog.parse.messages_api import MessagesParser
from turnlog.parse.reply import Reply

__all__ = [
    "AgentStreamParser",
    "Asked",
    "CliParser",
    "MarkerParser",
    "MessagesParser",
    "Parsed",
    "Reply",
    "Said",
    "Stripped",
    "TagEvent",
    "TagsAndMarkers",
    "strip_event_tags",
]
