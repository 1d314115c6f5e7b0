"""Models: something that reads a conversation and streams a reply.

A model says what it says to a `Reply` and yields the batches it gets from it: `yield reply.text("Hello ")`,
`yield reply.call("add", {"a": 1})`, at the end `yield reply.done("end_turn", usage)`. `Scripted` is the
offline model: a Python function from the conversation to texts and calls, spoken word by word. It is
deterministic; `pace_s` is for people who watch. It uses no tokens.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from turnlog.events import Payload, Usage
from turnlog.parse.reply import Reply
from turnlog.state.history import Message


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A script asks for a tool."""

    tool: str
    args: dict[str, Any]


class Model(Protocol):
    """What an agent needs of a model."""

    @property
    def name(self) -> str:
        """The name that stands in the log."""
        ...

    def stream(
        self, instructions: str, messages: list[Message], reply: Reply
    ) -> AsyncIterator[list[Payload]]:
        """The reply to a conversation, batch by batch; a stream that ends before `done` has failed."""
        ...


@dataclass(frozen=True, slots=True)
class Scripted:
    """A model whose words are written beforehand."""

    script: Callable[[list[Message]], Iterable[str | ToolUse]]
    pace_s: float = 0.0
    name: str = "scripted"

    async def stream(
        self, instructions: str, messages: list[Message], reply: Reply
    ) -> AsyncIterator[list[Payload]]:
        for part in self.script(messages):
            if isinstance(part, ToolUse):
                yield reply.call(part.tool, part.args)
                continue
            for word in re.findall(r"\s*\S+\s*", part):
                await asyncio.sleep(self.pace_s)
                yield reply.text(word)
        yield reply.done("tool_use" if reply.calling else "end_turn", Usage(input_tokens=0, output_tokens=0))
