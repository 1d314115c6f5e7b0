"""Model output in, events out. Every parser is pure, bounded, linear and never raises (docs/protocol.md 5).

A parser with memory has `feed` and `flush`; a whole-text function is feed and flush. Any way of cutting the
input gives the same result. What was refused leaves a `ParseReject`. Parsers of a model's stream say what
they read to a `Reply`, the one machine that makes blocks, twins and calls of it.
"""

from turnlog.parse.claude.agents import EventDraft
from turnlog.parse.claude.parser import CliParser
from turnlog.parse.claude.turns import SentMessage
from turnlog.parse.inline.markers import MarkerParser, TagAndMarkerParser
from turnlog.parse.inline.parsed_text import ParsedText, TagEvent
from turnlog.parse.inline.tags import AgentStreamParser, StrippedText, strip_event_tags
from turnlog.parse.messages_api import MessagesParser
from turnlog.parse.reply import ReplyBuilder

__all__ = [
    "AgentStreamParser",
    "CliParser",
    "EventDraft",
    "MarkerParser",
    "MessagesParser",
    "ParsedText",
    "ReplyBuilder",
    "SentMessage",
    "StrippedText",
    "TagAndMarkerParser",
    "TagEvent",
    "strip_event_tags",
]
