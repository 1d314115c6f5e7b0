"""Applications for the tests of the event stream: agents that talk at once, long answers, many notes."""

from collections.abc import Iterator
from typing import ClassVar

from turnlog import Agent, App, Vocabulary, tool
from turnlog.agents import Scripted, ToolUse
from turnlog.events import Payload
from turnlog.state.history import Message


class Note(Payload, frozen=True, kw_only=True):
    """Somebody wrote a note."""

    ORIGINS: ClassVar = frozenset({"ui"})
    EXAMPLE: ClassVar = {"text": "milk"}

    text: str


@tool
def measure(text: str) -> int:
    """How long a text is."""
    return len(text)


def lead(messages: list[Message]) -> Iterator[str | ToolUse]:
    """Says something, sends two aides off at once and measures meanwhile, then says what came of it."""
    last = messages[-1].content[-1]
    if last["type"] != "tool_result":
        yield "Two of us will look at once; \u201cone\u201d 💡 moment."
        yield ToolUse("aide", {"prompt": "north"})
        yield ToolUse("aide", {"prompt": "south"})
        yield ToolUse("measure", {"text": last["text"]})
    else:
        yield "That is all we found, as far as I can see."


def aide(messages: list[Message]) -> Iterator[str | ToolUse]:
    """Measures, then talks; two of them talk at the same time."""
    last = messages[-1].content[-1]
    if last["type"] != "tool_result":
        yield "Let me look first."
        yield ToolUse("measure", {"text": last["text"]})
    else:
        yield f'I have seen {last["content"]} houses and a "river" there.'


def make_duo(pace_s: float) -> App:
    """An agent and a sub-agent that it calls twice at once, speaking at a pace."""
    aiding = Agent("Aide", "Look.", Scripted(aide, pace_s), tools=(measure,))
    leading = Agent("Lead", "Lead.", Scripted(lead, pace_s), tools=(measure,), agents=(aiding,))
    return App("duo", leading, vocabulary=Vocabulary("duo", [Note]))


duo = make_duo(0.003)
slow_duo = make_duo(0.02)


def talk(messages: list[Message]) -> Iterator[str | ToolUse]:
    """A long answer in few, large words."""
    yield ("w" * 200 + " ") * 10


talker = App("talker", Agent("Talker", "Talk.", Scripted(talk)), vocabulary=Vocabulary("duo", [Note]))
