"""Model output in, events out. Every parser is pure, bounded, linear and never raises (docs/protocol.md 5).

A parser with memory has `feed` and `flush`; a whole-text function is feed and flush. Any way of cutting the
input gives the same result. What looked like an event and was refused leaves a `ParseReject`.
"""

from turnlog.parse.tags import AgentStreamParser, Parsed, Stripped, TagEvent, strip_event_tags

__all__ = ["AgentStreamParser", "Parsed", "Stripped", "TagEvent", "strip_event_tags"]
