"""A model that talks with a scripted provider, and the messages it gets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import anthropic

from tests.e2e.provider import Answer, Provider, serving
from tests.support.limits import HANG_S
from turnlog.agents.models import AnthropicModel, ModelError, Request
from turnlog.events import Payload, Vocabulary
from turnlog.parse.reply import ReplyBuilder, tag_parser_factory
from turnlog.state.history import Message

WAIT_S = HANG_S
KEY = "sk-ant-secret-0123456789"
HELLO = [Message("user", [{"type": "text", "text": "Grass?"}])]

START = {"type": "message_start", "message": {"id": "msg_1", "model": "m", "usage": {"input_tokens": 3}}}
STOP = {"type": "message_stop"}


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any], stop: bool = True) -> list[Any]:
    events = [{"type": "content_block_start", "index": index, "content_block": content}]
    events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return events + ([{"type": "content_block_stop", "index": index}] if stop else [])


def text(*pieces: str, index: int = 0, stop: bool = True) -> list[Any]:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return block(index, {"type": "text", "text": ""}, *deltas, stop=stop)


def ending(reason: str, **more: Any) -> list[Any]:
    delta = {"stop_reason": reason, "stop_sequence": None, **more}
    return [{"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}}, STOP]


def message(*blocks: list[Any], reason: str = "end_turn", **more: Any) -> list[Any]:
    return [START, *(event for events in blocks for event in events), *ending(reason, **more)]


def new_reply() -> ReplyBuilder:
    counts = {"blk_": count(1), "call_": count(1)}
    return ReplyBuilder(
        lambda prefix: f"{prefix}{next(counts[prefix])}",
        tag_parser_factory(Vocabulary("none", [])),
        executor_for=lambda tool: "frontend" if tool == "confirm" else "backend",
    )


class Talk:
    """A model that talks with a provider, and what came of it."""

    def __init__(self, provider: Provider, model: AnthropicModel) -> None:
        self.provider, self.model = provider, model
        self.reply = new_reply()
        self.said: list[Payload] = []
        self.fault: ModelError | None = None

    async def ask(self, request: Request = Request("", HELLO)) -> None:  # noqa: B008
        self.reply, self.said, self.fault = new_reply(), [], None
        try:
            async for batch in self.model.stream(request, self.reply):
                self.said += batch
        except ModelError as fault:
            self.fault = fault

    @property
    def body(self) -> Any:
        """What the provider was asked last."""
        return self.provider.asked[-1].body


@asynccontextmanager
async def talking(*answers: Answer, patience_s: float = WAIT_S, **settings: Any) -> AsyncIterator[Talk]:
    async with serving(*answers) as provider, asyncio.timeout(WAIT_S):
        client = anthropic.AsyncAnthropic(base_url=provider.url, api_key=KEY, timeout=patience_s)
        async with client:
            yield Talk(provider, AnthropicModel("claude-test", client=client, **settings))


def told(*answers: Answer, request: Request = Request("", HELLO), **settings: Any) -> Talk:  # noqa: B008
    """One request, and what came of it."""

    async def play() -> Talk:
        async with talking(*answers, **settings) as talk:
            await talk.ask(request)
            return talk

    return asyncio.run(play())
