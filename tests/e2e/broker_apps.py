"""The example `broker` for the tests over sockets: as it is, slow, and with models that repeat words."""

import json
from collections.abc import AsyncIterator

from turnlog.agents import ReplyBuilder, Request, Scripted
from turnlog.events import Payload
from turnlog.state.history import Message
from turnlog_examples.broker import make_app

app = make_app()
slow = make_app(pace_s=0.03)


def echoed(messages: list[Message]) -> list[str]:
    """A model that says what it is told, tags and all: a test writes down what it says."""
    return [messages[-1].content[-1]["text"]]


echo = make_app(model=Scripted(echoed))


class Chunks:
    """A model that says what it is told: a JSON list of strings in these chunks, any other text in one."""

    name = "chunks"

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        text = request.messages[-1].content[-1]["text"]
        for chunk in json.loads(text) if text.startswith('["') else [text]:
            yield reply.text(chunk)
        yield reply.done("end_turn")


chunks = make_app(model=Chunks())
