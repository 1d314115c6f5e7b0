"""What a streamed token costs beside other agent frameworks: `python -m bench.peers`, with the extra `bench`.

Each framework runs turns of one agent whose offline model says 300 tokens, and the caller takes every event:
Turnlog `Agent.run` on a SQLite log, Pydantic AI `run_stream_events` with its `FunctionModel`, LangGraph
`astream` in the mode "messages" with LangChain's `GenericFakeChatModel`. The figure is CPU time of this
process, all threads, for each token. Every round runs one turn of all candidates, ratios are taken inside a
round, medians count: other work on the machine comes and goes, and rounds are shorter than it. Garbage is
collected before each turn, so that no candidate pays for another. Only Turnlog stores anything: every event
is on the disk before the caller sees it. Goals are for tokens "as they come", where those that arrive during
a write become one event, and for "an event each". The rows without a goal are bounds: a commit for each
token, and a LangGraph model without a thread.
"""

import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from statistics import median
from typing import Any, NamedTuple

from bench.chunks import Times
from turnlog import open_log
from turnlog.agents import Agent, ReplyBuilder, Request
from turnlog.events import Payload
from turnlog.log import Log

ROUNDS = 40
WARM_UP_ROUNDS = 5  # load modules and fill caches
TOKENS = 300  # of a turn: a usual answer, so that opening and ending a turn count
TOKEN = "token "

MERGED = "Turnlog, as they come"
EACH = "Turnlog, an event each"
COMMIT = "Turnlog, a commit each"
PYDANTIC = "Pydantic AI"
LANGGRAPH = "LangGraph"
LANGGRAPH_ASYNC = "LangGraph, asynchronous model"
GOALS = (
    (MERGED, PYDANTIC, 0.35),
    (MERGED, LANGGRAPH, 0.18),
    (EACH, PYDANTIC, 0.70),
    (EACH, LANGGRAPH, 0.35),
)

Candidate = Callable[[], Awaitable[int]]
"""Runs a turn; returns how many events with text the caller got."""


async def say_tokens() -> AsyncIterator[str]:
    """Yield tokens, and let other tasks run in between as a socket does."""
    for _ in range(TOKENS):
        await asyncio.sleep(0)
        yield TOKEN


class MergedTokens:
    """A model whose tokens belong to one block."""

    name = "merged"

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        async for token in say_tokens():
            yield reply.text(token)
        yield reply.done("end_turn")


class SeparateTokens:
    """A model that writes two blocks at a time: deltas of different blocks are never merged."""

    name = "separate"

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        blocks = reply.open_text(), reply.open_text()
        number = 0
        async for token in say_tokens():
            block = blocks[number % 2]
            assert block is not None
            yield block.feed(token)
            number += 1
        yield reply.done("end_turn")


class AwaitedTokens:
    """A model that waits until the caller has seen its last token, as a slow model does."""

    name = "awaited"

    def __init__(self) -> None:
        self.seen = asyncio.Semaphore(1)

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        for _ in range(TOKENS):
            await self.seen.acquire()
            yield reply.text(TOKEN)
        yield reply.done("end_turn")


async def run_turnlog(log: Log, model: MergedTokens | SeparateTokens | AwaitedTokens) -> int:
    deltas = 0
    async for event in Agent("Talker", "Talk.", model).run("Talk.", log=log):
        if event.type == "block.delta":
            deltas += 1
            if isinstance(model, AwaitedTokens):
                model.seen.release()
    return deltas


def pydantic_ai_candidate() -> Candidate:
    from pydantic_ai import Agent, PartDeltaEvent, PartStartEvent
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    async def stream(messages: list[Any], info: AgentInfo) -> AsyncIterator[str]:
        async for token in say_tokens():
            yield token

    agent = Agent(FunctionModel(stream_function=stream))

    async def run() -> int:
        pieces = 0
        async with agent.run_stream_events("Talk.") as events:
            async for event in events:
                pieces += isinstance(event, PartStartEvent | PartDeltaEvent)
        return pieces

    return run


def langgraph_candidate(make_model: Callable[[], Any]) -> Candidate:
    from langchain_core.messages import BaseMessage, HumanMessage
    from langgraph.graph import START, MessagesState, StateGraph

    async def talk(state: MessagesState) -> dict[str, list[BaseMessage]]:
        return {"messages": [await make_model().ainvoke(state["messages"])]}

    graph: Any = StateGraph(MessagesState).add_node("talk", talk).add_edge(START, "talk").compile()

    async def run() -> int:
        pieces = 0
        messages: Any = {"messages": [HumanMessage("Talk.")]}
        async for message, _ in graph.astream(messages, stream_mode="messages"):
            pieces += bool(message.content)
        return pieces

    return run


def make_fake_chat_model() -> Any:
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel

    # It streams the words and the spaces: two pieces for each.
    return GenericFakeChatModel(messages=iter([TOKEN * (TOKENS // 2)]))


def define_async_chat_model() -> type[Any]:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessageChunk
    from langchain_core.outputs import ChatGenerationChunk, ChatResult

    class AsyncChatModel(BaseChatModel):
        """A model that streams without a thread, as those of providers do."""

        @property
        def _llm_type(self) -> str:
            return "async"

        def _generate(self, *args: Any, **options: Any) -> ChatResult:
            raise NotImplementedError("this model only streams")

        async def _astream(self, *args: Any, **options: Any) -> AsyncIterator[ChatGenerationChunk]:
            async for token in say_tokens():
                yield ChatGenerationChunk(message=AIMessageChunk(content=token))

    return AsyncChatModel


class Measured(NamedTuple):
    """CPU seconds for each token by candidate and round, and the events with text of the last turn."""

    times: Times
    pieces: dict[str, int]


async def measure(candidates: dict[str, Candidate]) -> Measured:
    measured = Measured({name: [] for name in candidates}, {})
    for number in range(WARM_UP_ROUNDS + ROUNDS):
        for name, run in candidates.items():
            gc.collect()
            begun_s = time.process_time()
            pieces = await run()
            spent_s = time.process_time() - begun_s
            if pieces != TOKENS and not (name == MERGED and 0 < pieces < TOKENS):
                raise RuntimeError(f"{name}: {TOKENS} tokens reached the caller in {pieces} events")
            measured.pieces[name] = pieces
            if number >= WARM_UP_ROUNDS:
                measured.times[name].append(spent_s / TOKENS)
    return measured


async def measure_all(folder: str) -> Measured:
    log = await open_log(f"sqlite:///{folder}/log.db")
    try:
        return await measure(
            {
                MERGED: lambda: run_turnlog(log, MergedTokens()),
                EACH: lambda: run_turnlog(log, SeparateTokens()),
                COMMIT: lambda: run_turnlog(log, AwaitedTokens()),
                PYDANTIC: pydantic_ai_candidate(),
                LANGGRAPH: langgraph_candidate(make_fake_chat_model),
                LANGGRAPH_ASYNC: langgraph_candidate(define_async_chat_model()),
            }
        )
    finally:
        await log.close()


def main() -> int:
    """Print the table and the goals; return the number of missed goals."""
    with tempfile.TemporaryDirectory() as folder:
        times, pieces = asyncio.run(measure_all(folder))
    print(f"| turns of {TOKENS} tokens | µs of CPU/token | from, to | events with text |\n|---|---|---|---|")
    for name, seconds in times.items():
        spread = f"{min(seconds) * 1e6:.1f}, {max(seconds) * 1e6:.1f}"
        print(f"| {name} | {median(seconds) * 1e6:.1f} | {spread} | {pieces[name]} |")
    print()
    missed = 0
    for name, peer, goal in GOALS:
        part = median(own / other for own, other in zip(times[name], times[peer], strict=True))
        missed += part > goal
        verdict = "met" if part <= goal else "MISSED"
        print(f"CPU for a token, {name}, of {peer}: {part:.2f}, goal at most {goal:.2f}, {verdict}")
    return missed


if __name__ == "__main__":
    sys.exit(main())
