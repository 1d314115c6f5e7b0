"""Model output in, events out. Every parser is pure, bounded, linear and never raises (docs/protocol.md 5).

A streaming parser has `feed` and `flush`. However the input is cut, the result is the same. Refused input
becomes a `ParseReject`. Parsers of a model's stream pass what they parse to a `ReplyBuilder`, which builds
the blocks, their final events and the calls. A runtime that is no stream of ours reports what its agents do
to an `AgentEventBuilder`.
"""

from turnlog.parse.agent_events import AgentEventBuilder, RuntimeAgent
from turnlog.parse.claude.parser import CliParser
from turnlog.parse.claude.turns import SentMessage
from turnlog.parse.inline.parsed_text import ParsedText, TagEvent
from turnlog.parse.inline.tags import AgentStreamParser, StrippedText, strip_event_tags
from turnlog.parse.messages_api import MessagesParser
from turnlog.parse.reply import ReplyBuilder
from turnlog.parse.runtime_input import AgentInfo

__all__ = [
    "AgentEventBuilder",
    "AgentInfo",
    "AgentStreamParser",
    "CliParser",
    "MessagesParser",
    "ParsedText",
    "ReplyBuilder",
    "RuntimeAgent",
    "SentMessage",
    "StrippedText",
    "TagEvent",
    "strip_event_tags",
]
