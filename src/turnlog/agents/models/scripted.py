"""The offline model: its words are written beforehand.

`Scripted` is a Python function from the conversation to texts and calls, spoken word by word. It is
deterministic; `pace_s` is for people who watch. It uses no tokens.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from turnlog.agents.models.model import Request
from turnlog.events import Payload, Usage
from turnlog.parse.reply import Reply
from turnlog.state.history import Message


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A script asks for a tool."""

    tool: str
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scripted:
    """A model whose words are written beforehand."""

    script: Callable[[list[Message]], Iterable[str | ToolUse]]
    pace_s: float = 0.0
    name: str = "scripted"

    async def stream(self, request: Request, reply: Reply) -> AsyncIterator[list[Payload]]:
        for part in self.script(request.messages):
            if isinstance(part, ToolUse):
                yield reply.call(part.tool, part.args)
                continue
            for word in re.findall(r"\s*\S+\s*", part):
                await asyncio.sleep(self.pace_s)
                yield reply.text(word)
        yield reply.done("tool_use" if reply.calling else "end_turn", Usage(input_tokens=0, output_tokens=0))
