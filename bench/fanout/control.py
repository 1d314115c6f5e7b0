"""What every candidate in Python shares: the event that is sent, and the commands on standard input.

A candidate says where it listens in one line of JSON, with the headers its readers must send; then it does
what it is told, line by line, and answers `done 0`: the kernel counts its writes. `paced N INTERVAL_MS` is
one event at a time, `burst N` is N events at once.
"""

import asyncio
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from turnlog import event
from turnlog.events import BlockDelta, BlockStart, Event, encode_sse_frame
from turnlog.log import Page

SESSION = "sess_fanout"
BLOCK = "blk_1"
FILL = "Based on"  # the frame of it is 200 bytes long

Emit = Callable[[int], Awaitable[None]]


def begin() -> Event:
    """The block that all events belong to."""
    return event(BlockStart(block_id=BLOCK, kind="text"), origin="model")


def delta(number: int) -> Event:
    """One piece of a text; behind the `~` is the time when it was made, by which readers count latency."""
    text = f"~{time.monotonic_ns():016x}{FILL}"
    return event(BlockDelta(block_id=BLOCK, text=text), id=f"evt_{number}", origin="model")


def line(what: Event, seq: int) -> str:
    """The envelope of an event, as the log keeps it."""
    kept = encode_sse_frame(what, session_id=SESSION, seq=seq, ts_ms=time.time_ns() // 1_000_000)
    return kept.decode()[len("data: ") : -2]


def sent(what: Event, seq: int) -> bytes:
    """An event as `GET /api/events` sends it; what the floor sends too."""
    kept = encode_sse_frame(what, session_id=SESSION, seq=seq, ts_ms=time.time_ns() // 1_000_000)
    return Page([(seq, b"", kept, 0)], "0" * 8).frames().data


def announce(port: int, path: str, headers: list[str]) -> None:
    """Say where readers connect, and what they must send."""
    print(json.dumps({"port": port, "path": path, "headers": headers}), flush=True)


def allow_files() -> None:
    """A thousand readers are a thousand files."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def obey(emit: Emit) -> None:
    """Do what standard input says until it ends."""
    loop, commands = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while words := (await commands.readline()).split():
        await COMMANDS[words[0]](emit, *map(int, words[1:]))
        print("done 0", flush=True)


async def paced(emit: Emit, events: int, interval_ms: int) -> None:
    """One event after the other, in time."""
    clock = asyncio.get_running_loop().time
    due = clock()
    for _ in range(events):
        await emit(1)
        due += interval_ms / 1000
        await asyncio.sleep(max(0.0, due - clock()))


async def burst(emit: Emit, events: int) -> None:
    """All at once."""
    await emit(events)


COMMANDS: dict[bytes, Any] = {b"paced": paced, b"burst": burst}
