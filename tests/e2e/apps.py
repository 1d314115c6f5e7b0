"""Applications for the tests over sockets."""

from collections.abc import Iterator

from turnlog import Agent, App, tool
from turnlog.agents import Scripted, ToolUse
from turnlog.state.history import Message
from turnlog_examples.tour import make_app

fast = make_app()
slow = make_app(pace_s=0.02)


def talk(messages: list[Message]) -> Iterator[str | ToolUse]:
    """A long answer: one that is still being said when a test wants to interrupt it."""
    yield "word " * 2000


endless = App("endless", Agent("Talker", "Talk.", Scripted(talk, word_delay_s=0.01)))


def fail(messages: list[Message]) -> Iterator[str | ToolUse]:
    """A model that breaks in the middle of a sentence."""
    yield "I was about to "
    raise ConnectionError("the line is dead")


broken = App("broken", Agent("Broken", "Break.", Scripted(fail)))


@tool(executor="remote")
def count_words(text: str) -> int:
    """Count the words of a text, in a process that is near to it."""
    return len(text.split())


def delegate(messages: list[Message]) -> Iterator[str | ToolUse]:
    """A model that lets another process count, and says what it counted."""
    last = messages[-1].content[-1]
    if last["type"] == "tool_result":
        yield f"There are {last['content']} words."
    else:
        yield ToolUse("count_words", {"text": last["text"]})


remote = App("remote", Agent("Counter", "Count.", Scripted(delegate), tools=(count_words,)))
