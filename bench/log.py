"""How many events become durable in a second: `python -m bench.log`.

Every round runs all candidates, ratios are taken inside a round, the table shows medians. All commit to a WAL
with synchronous FULL in the same folder, so an fsync costs all alike. "bare" is SQLite with one row and one
commit at a time, the least a durable log can do; "one at a time" is our log with each append awaited before
the next. Goals: group commit FULL at 30 times single-commit FULL, and at 20 times with one event each: the
faster the fsync, the harder. The events are made before the clock starts.
"""

import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from statistics import median
from typing import TypeVar

from bench.chunks import Times, speed, verdict
from turnlog.events import CATALOG, BlockDelta, Event, Scope
from turnlog.log import Log, SqliteStore

ROUNDS = 7
SESSIONS = [f"sess_{number}" for number in range(10)]
SINGLE = 300  # events a round where each is an fsync
GROUPED = 20_000  # and where many share one
IN_FLIGHT = 2000  # appends at a time, over all sessions
BATCH = 100
SCOPE = Scope(trace_id="tr_01a1e16b", agent_id="agt_01a1e16b", agent_name="Researcher", depth=1)
TEXT = "Based on the document, "

BARE = "bare SQLite, a row a commit"
ONE = "log, one at a time"
FLIGHT = "log, in flight, 1 event each"
BATCHES = f"log, in flight, {BATCH} events each"

T = TypeVar("T")
Run = Callable[[Sequence[Event]], Awaitable[None]]

_numbers = count()


def make(number: int) -> list[Event]:
    """Events nobody has seen, ready to append: deltas, as most events are."""
    return [
        CATALOG.build_event(
            BlockDelta(block_id="blk_1", text=TEXT),
            id=f"evt_01a1e16b-cd7c-7ef8-8cca-{next(_numbers):012}",
            origin="model",
            scope=SCOPE,
        )
        for _ in range(number)
    ]


def parts(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """Cut into pieces."""
    return [items[at : at + size] for at in range(0, len(items), size)]


class Bare:
    """SQLite and nothing else."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("pragma journal_mode = wal")
        self.connection.execute("pragma synchronous = full")
        self.connection.execute("create table event (seq integer primary key, frame blob not null)")

    async def run(self, events: Sequence[Event]) -> None:
        """One row, one commit."""
        for event in events:
            self.connection.execute("insert into event (frame) values (?)", (event.body,))


async def one_at_a_time(log: Log, events: Sequence[Event]) -> None:
    """Each append is durable before the next begins."""
    for event in events:
        await log.append(SESSIONS[0], [event])


async def in_flight(log: Log, size: int, events: Sequence[Event]) -> None:
    """Appends of a size, many on their way, sessions in turn."""
    for window in parts(parts(events, size), IN_FLIGHT):
        waiting = [log.submit(SESSIONS[number % len(SESSIONS)], part) for number, part in enumerate(window)]
        for done in waiting:
            await done


@asynccontextmanager
async def opened(folder: Path, name: str) -> AsyncIterator[Log]:
    """A log of its own for each candidate."""
    log = Log(SqliteStore(folder / f"{name}.db"))
    try:
        for session in SESSIONS:
            await log.create("bench", session)
        yield log
    finally:
        await log.close()


async def measure(candidates: dict[str, tuple[int, Run]]) -> Times:
    """Seconds per event: all candidates once per round, so that noise hits all alike."""
    times: Times = {name: [] for name in candidates}
    for _ in range(ROUNDS):
        for name, (number, run) in candidates.items():
            events = make(number)
            start = time.perf_counter()
            await run(events)
            times[name].append((time.perf_counter() - start) / number)
    return times


async def run_all(folder: Path) -> Times:
    """Open what is compared, and compare it."""
    bare = Bare(folder / "bare.db")
    try:
        async with (
            opened(folder, "one") as one,
            opened(folder, "flight") as flight,
            opened(folder, "batches") as batches,
        ):
            return await measure(
                {
                    BARE: (SINGLE, bare.run),
                    ONE: (SINGLE, lambda events: one_at_a_time(one, events)),
                    FLIGHT: (GROUPED, lambda events: in_flight(flight, 1, events)),
                    BATCHES: (GROUPED, lambda events: in_flight(batches, BATCH, events)),
                }
            )
    finally:
        bare.connection.close()


def main() -> int:
    """Print the table and the goal; the number of missed goals."""
    with tempfile.TemporaryDirectory() as folder:
        times = asyncio.run(run_all(Path(folder)))
    print("| WAL, FULL | events/s | µs/event | x bare | x one at a time |\n|---|---|---|---|---|")
    for name, seconds in times.items():
        rate, per_event = 1 / median(seconds), median(seconds) * 1e6
        ratios = f"{speed(times, name, BARE):.1f} | {speed(times, name, ONE):.1f}"
        print(f"| {name} | {rate:,.0f} | {per_event:.1f} | {ratios} |")
    print()
    met = [
        verdict(f"group commit: {BATCHES}, of {ONE}", speed(times, BATCHES, ONE), 30),
        verdict(f"group commit: {FLIGHT}, of {ONE}", speed(times, FLIGHT, ONE), 20),
    ]
    return 0 if any(met) else 1


if __name__ == "__main__":
    sys.exit(main())
