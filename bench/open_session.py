"""What it costs to open a session with a long history: `python -m bench.open_session`.

The session has 20,000 deltas in the finished blocks of 40 turns, in a SQLite file. A round opens it with new
`Sessions`, as a server does after its start, and asks for its state. The peer reads the frames of all its
events with one query and decodes their JSON: the least that a fold over every event costs. Both are measured
in CPU time of this process; ratios are taken inside a round, and medians count. The other rows read the
session through the log, with its finished deltas and without. Goal: 0.7, a tenth of what opening cost when it
folded every delta.
"""

import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from statistics import median

import msgspec

from bench.chunks import Times
from turnlog import Agent, App
from turnlog.agents import Scripted
from turnlog.app.membership import LOCAL
from turnlog.app.sessions import Sessions
from turnlog.events import Event
from turnlog.log import Log, SqliteStore
from turnlog.state.history import Message
from turnlog.testing.factories import (
    agent_end_event,
    agent_scope,
    agent_start_event,
    block_delta_event,
    block_end_event,
    block_start_event,
    durable_event,
    user_message_event,
)

ROUNDS = 7
TURNS = 40
DELTAS = 500  # of a turn
GOAL = 0.7

OPEN = "open the session and ask for its state"
DECODE = "read and decode every frame"
READ_ALL = "Log.read, all events"
READ_REPLAY = "Log.read, without finished deltas"


def answer(messages: list[Message]) -> Iterator[str]:
    yield "Yes."


def make_turn(number: int) -> list[Event]:
    """Build one finished turn: a message, a block of deltas and its answer."""
    scope = agent_scope(number, number)
    key = f"b{number}"
    return [
        user_message_event(f"m{number}", number),
        agent_start_event(scope),
        block_start_event(key, scope),
        *(block_delta_event(key, delta, scope) for delta in range(DELTAS)),
        block_end_event(key, scope),
        durable_event(f"a{number}", "Yes.", scope),
        agent_end_event(scope),
    ]


async def fill(log: Log, app: App) -> str:
    """Create the session and append its turns; return its id."""
    sessions = Sessions(log, [app], 1)
    membership = await sessions.create(LOCAL)
    await sessions.close()
    for number in range(TURNS):
        await log.append(membership.session_id, make_turn(number))
    return membership.session_id


async def open_session(log: Log, app: App, session_id: str) -> None:
    sessions = Sessions(log, [app], 1)
    membership = await sessions.get_membership(LOCAL, session_id)
    await sessions.state(membership)
    await sessions.close()


async def decode_frames(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for (frame,) in connection.execute("select frame from event order by session, seq"):
            msgspec.json.decode(frame[len(b"data: ") : -len(b"\n\n")])


async def read_pages(log: Log, session_id: str, replay_from: int | None) -> None:
    after = -1
    while page := await log.read(session_id, after, replay_from=replay_from):
        after = page.last


async def measure(candidates: dict[str, Callable[[], Awaitable[None]]]) -> Times:
    """Return the CPU seconds of each candidate by round."""
    times: Times = {name: [] for name in candidates}
    for number in range(ROUNDS + 1):
        for name, run in candidates.items():
            begun_s = time.process_time()
            await run()
            if number:  # the first round loads modules and fills caches
                times[name].append(time.process_time() - begun_s)
    return times


async def measure_all(path: Path) -> Times:
    app = App("bench", Agent("Answerer", "Answer.", Scripted(answer)))
    log = Log(SqliteStore(path))
    try:
        session_id = await fill(log, app)
        return await measure(
            {
                OPEN: lambda: open_session(log, app, session_id),
                DECODE: lambda: decode_frames(path),
                READ_ALL: lambda: read_pages(log, session_id, None),
                READ_REPLAY: lambda: read_pages(log, session_id, -1),
            }
        )
    finally:
        await log.close()


def main() -> int:
    """Print the table and the goal; return the number of missed goals."""
    with tempfile.TemporaryDirectory() as folder:
        times = asyncio.run(measure_all(Path(folder) / "log.db"))
    print(f"| {TURNS * DELTAS:,} finished deltas | ms of CPU | from, to |\n|---|---|---|")
    for name, seconds in times.items():
        spread = f"{min(seconds) * 1e3:.1f}, {max(seconds) * 1e3:.1f}"
        print(f"| {name} | {median(seconds) * 1e3:.1f} | {spread} |")
    print()
    part = median(own / other for own, other in zip(times[OPEN], times[DECODE], strict=True))
    verdict = "met" if part <= GOAL else "MISSED"
    print(f"opening, of decoding every frame: {part:.2f}, goal at most {GOAL:g}, {verdict}")
    return int(part > GOAL)


if __name__ == "__main__":
    sys.exit(main())
