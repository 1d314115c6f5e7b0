"""An application whose model writes one word for each step that a test takes."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

from tests.foreign_clients.apps import TOOLS, answer, helper
from turnlog import Agent, App
from turnlog.agents import Scripted
from turnlog.agents.models import Request
from turnlog.agents.models.script_turn import ScriptTurn
from turnlog.events import Payload, Usage
from turnlog.parse.reply import ReplyBuilder

STEPS_VARIABLE = "TURNLOG_TEST_STEPS"  # the file whose size is the number of words that the model may write
WORDS = ("One ", "two ", "three ", "four.")


def wait_for_steps(count: int) -> None:
    steps = Path(os.environ[STEPS_VARIABLE])
    while not steps.exists() or steps.stat().st_size < count:
        time.sleep(0.02)  # a file cannot be waited for otherwise


class Stepped:
    """The scripted model. To `step` it answers with `WORDS`, each a delta of its own."""

    name = "scripted"

    def __init__(self) -> None:
        self._scripted = Scripted(answer)

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        if ScriptTurn(request.messages).text != "step":
            async for batch in self._scripted.stream(request, reply):
                yield batch
            return
        yield reply.begin(self.name)
        for count, word in enumerate(WORDS, start=1):
            await asyncio.to_thread(wait_for_steps, count)
            yield reply.text(word)
        await asyncio.to_thread(wait_for_steps, len(WORDS) + 1)
        yield reply.done("end_turn", Usage(input_tokens=1, output_tokens=4))


app = App("desk", Agent("Lead", "Lead.", Stepped(), tools=TOOLS, agents=(helper,)))
