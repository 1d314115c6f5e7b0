"""What a streamed token costs, and what a long turn keeps: `python -m bench.turn`.

One agent whose scripted model says 10,000 tokens, and its caller, who sees every event. The time is that of
the turn on `memory:` minus that of the same model alone; every round runs both, and medians count. A model
that is faster than the log has its tokens merged while a write is under way ("as they come"); in "one by one"
it waits until the caller has seen each token, so that each is an append, a wake-up and an event of its own:
the way through everything and back, threads included. Goal R1: 50 microseconds per token as they come. The
memory is what Python objects hold at token 1,000 and at token 10,000, on a log in a file. Goal R2: at most 32
bytes for each character said. What grows is the block that is open: its text is held by the parser and the
reply for the final message, and by the tree for whoever has to close it after a crash. A log in memory keeps
the events of an open turn besides, which is what it is for.
"""

import asyncio
import gc
import sys
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from statistics import median

from turnlog import open_log
from turnlog.agents import Agent, ReplyBuilder, Request
from turnlog.events import Payload
from turnlog.ids import new_id
from turnlog.log import Log

ROUNDS = 7
TOKENS = 10_000
EARLY = 1_000
GOAL_US = 50.0
GOAL_BYTES = 32.0
TOKEN = "token "


def nothing(said: int) -> None:
    """Nobody looks."""


@dataclass
class Talker:
    """A model that says the same token again and again, and lets others go in between as a socket does."""

    look: Callable[[int], None] = nothing
    heard: asyncio.Semaphore | None = None  # released by a caller for each event it has seen
    name: str = "talker"

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        for said in range(TOKENS):
            await (self.heard.acquire() if self.heard else asyncio.sleep(0))
            yield reply.text(TOKEN)
            self.look(said + 1)
        yield reply.done("end_turn")


async def alone() -> float:
    """Seconds of the model and its parser, and nothing else."""
    begun = time.perf_counter()
    async for _ in Talker().stream(Request("", []), ReplyBuilder(new_id)):
        pass
    return time.perf_counter() - begun


async def turn(log: Log, model: Talker) -> tuple[float, int]:
    """Seconds of a whole turn, and how many events its caller saw."""
    agent = Agent("Talker", "Talk.", model)
    begun, seen = time.perf_counter(), 0
    async for event in agent.run("Talk.", log=log):
        seen += 1
        if model.heard and event.type in ("agent.start", "block.delta"):
            model.heard.release()
    return time.perf_counter() - begun, seen


async def overheads() -> tuple[list[float], dict[str, tuple[list[float], int]]]:
    """Microseconds per token: the model alone, and by kind what a turn costs besides, with its events."""
    bare: list[float] = []
    found: dict[str, tuple[list[float], int]] = {}
    for _ in range(ROUNDS):
        bare.append(await alone() / TOKENS * 1e6)
        for kind, heard in (("as they come", None), ("one by one", asyncio.Semaphore(0))):
            log = await open_log("memory:")
            seconds, events = await turn(log, Talker(heard=heard))
            times, _ = found.get(kind, ([], 0))
            found[kind] = [*times, seconds / TOKENS * 1e6 - bare[-1]], events
            await log.close()
    return bare, found


async def growth(folder: str) -> list[tuple[str, float]]:
    """Bytes per character that are held more at the last token than at an early one, by their file."""
    shots: list[tracemalloc.Snapshot] = []

    def look(said: int) -> None:
        if said in (EARLY, TOKENS):
            gc.collect()
            shots.append(tracemalloc.take_snapshot())

    log = await open_log(f"sqlite:///{folder}/log.db")
    tracemalloc.start()
    await turn(log, Talker(look))
    tracemalloc.stop()
    await log.close()
    characters = (TOKENS - EARLY) * len(TOKEN)
    grown = shots[1].compare_to(shots[0], "filename")
    return [(each.traceback[0].filename, each.size_diff / characters) for each in grown]


def main() -> int:
    """Print the tables and the goals; the number of missed goals."""
    bare, found = asyncio.run(overheads())
    print(f"| {TOKENS:,} tokens on memory: | µs/token | from, to | events |\n|---|---|---|---|")
    print(f"| the model alone | {median(bare):.1f} | {min(bare):.1f}, {max(bare):.1f} | |")
    for kind, (times, events) in found.items():
        spread = f"{min(times):.1f}, {max(times):.1f}"
        print(f"| the turn besides, {kind} | {median(times):.1f} | {spread} | {events:,} |")
    print()
    with tempfile.TemporaryDirectory() as folder:
        grown = asyncio.run(growth(folder))
    total = sum(size for _, size in grown)
    print("| held more, by file | bytes/character |\n|---|---|")
    for name, size in grown:
        if abs(size) >= 0.1:
            print(f"| {'/'.join(name.split('/')[-2:])} | {size:.1f} |")
    print()
    cost = median(found["as they come"][0])
    goals = (("R1 µs/token", cost, GOAL_US), ("R2 bytes/character", total, GOAL_BYTES))
    missed = 0
    for goal, value, bound in goals:
        missed += value > bound
        print(f"{goal}: {value:.1f}, goal at most {bound:g}, {'met' if value <= bound else 'MISSED'}")
    return missed


if __name__ == "__main__":
    sys.exit(main())
