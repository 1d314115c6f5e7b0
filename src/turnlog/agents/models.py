"""Models: something that reads a conversation and streams a reply.

A reply is a stream of parts: pieces of text, requests for tools, and its usage at the end. `Scripted` is
the offline model: a Python function from the conversation to the parts, spoken word by word. It is
deterministic; `pace_s` is for people who watch. It uses no tokens.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from turnlog.events import Usage
from turnlog.state.history import Message


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the reply's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The model asks for a tool."""

    tool: str
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Done:
    """The reply is complete; what it cost."""

    usage: Usage


Part = Text | ToolUse | Done


class Model(Protocol):
    """What an agent needs of a model."""

    @property
    def name(self) -> str:
        """The name that stands in the log."""
        ...

    def stream(self, instructions: str, messages: list[Message]) -> AsyncIterator[Part]:
        """The reply to a conversation."""
        ...


@dataclass(frozen=True, slots=True)
class Scripted:
    """A model whose words are written beforehand."""

    script: Callable[[list[Message]], Iterable[str | ToolUse]]
    pace_s: float = 0.0
    name: str = "scripted"

    async def stream(self, instructions: str, messages: list[Message]) -> AsyncIterator[Part]:
        for part in self.script(messages):
            if isinstance(part, ToolUse):
                yield part
                continue
            for word in re.findall(r"\s*\S+\s*", part):
                await asyncio.sleep(self.pace_s)
                yield Text(word)
        yield Done(Usage(input_tokens=0, output_tokens=0))
