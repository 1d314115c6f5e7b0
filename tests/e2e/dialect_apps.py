"""Applications with default dialects, for the tests over sockets."""

from turnlog import Agent, App
from turnlog.agents import Scripted
from turnlog.wire.dialects import DialectOptions

HISTORIES = DialectOptions(stream_meta_history_and_tool_results=True)


def greeter() -> Agent:
    return Agent("Julian", "Be brief.", Scripted(lambda _: ["Hello."]))


plain = App("plain", greeter())
office = App("office", greeter(), dialect="office", dialect_options=HISTORIES)
xml = App("xml", greeter(), dialect="blocks-xml", dialect_options=HISTORIES)
shared = App("shared", greeter(), dialect="office", shared_session=True)
