"""PostgreSQL against SQLite and against itself: `python -m bench.postgres`. Ratios within one run only.

A primary and a synchronous standby run on this machine, with fsync. Every round runs all candidates, and the
table shows medians. "bare psycopg" inserts the same rows: the same callers wait for the same writer thread,
which encodes all events that wait and inserts them in one statement and commit. It knows no sessions, looks
for no id and decides nothing. "bell off" is four writing processes that tell no other process of their
commits. Followers are measured with about 20 appends a second. Goals: 256 appends in flight at 1.0 of SQLite
FULL and 0.6 of bare psycopg; bell on at 0.8 of bell off; an append on one log is at a follower of another in
3 times the time of the append.
"""

import asyncio
import random
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from statistics import median
from typing import Any, cast

from bench.chunks import Times, speed, verdict
from bench.log import make
from tests.support.postgres_server import PostgresServer, running_cluster
from turnlog.events import Event, encode_sse_frame
from turnlog.log import Log, SqliteStore
from turnlog.log.append import RowBatch
from turnlog.log.jobs import Job, JobOutcome, JobResult
from turnlog.log.postgres.connections import open_connection
from turnlog.log.postgres.rows import INSERT_EVENTS, EventColumns
from turnlog.log.postgres.store import PostgresStore
from turnlog.log.records import SessionRecord
from turnlog.log.store import EventStore
from turnlog.log.writer import WriteHealth, WriterThread

ROUNDS = 5
IN_FLIGHT = 256
SESSIONS = [f"sess_{number}" for number in range(10)]
EVENTS = 6_000
BELL_ROUNDS = 3
WRITERS = 4
WRITER_EVENTS = 2_500
WRITER_IN_FLIGHT = 32
LATENCY_EVENTS = 200
PAUSE_S = 0.05

SQLITE = "SQLite FULL"
POSTGRES = "PostgreSQL, synchronous standby"
BARE = "bare psycopg, the same rows"
BELL_ON = "four processes, bell on"
BELL_OFF = "four processes, bell off"


async def append_in_flight(
    log: Log, events: Sequence[Event], in_flight: int, sessions: Sequence[str] = SESSIONS
) -> None:
    """Append events one by one, some at a time: a new one as soon as one is durable."""
    waiting = iter(enumerate(events))

    async def work() -> None:
        for number, event in waiting:
            await log.append(sessions[number % len(sessions)], [event])

    await asyncio.gather(*[work() for _ in range(in_flight)])


class BareStore:
    """psycopg and the table of events, nothing else: jobs are events."""

    max_batch = PostgresStore.max_batch

    def __init__(self, url: str) -> None:
        self._connection = open_connection(url)
        self._number = 1_000_000  # of a session that does not exist
        self.restart()

    def close(self) -> None:
        self._connection.close()

    def restart(self) -> None:
        """Begin a new session."""
        self._number += 1
        self._batch = RowBatch(SessionRecord("sess_bare", "g0000000", "bench"))

    def commit(self, jobs: Sequence[Any]) -> list[JobOutcome]:
        batch = self._batch
        for event in jobs:
            seq = batch.last + 1
            frame = encode_sse_frame(event, session_id="sess_bare", seq=seq, ts_ms=0)
            batch.add(event, event.scope, event.payload, seq, event.live, frame, 0)
        columns = EventColumns()
        for new in batch.rows:
            columns.add(self._number, new)
        self._connection.execute(INSERT_EVENTS, columns.values())
        batch.rows.clear()
        return [JobResult() for _ in jobs]


async def insert_in_flight(store: BareStore, events: Sequence[Event]) -> None:
    writer = WriterThread(cast(EventStore, store), WriteHealth(), lambda job, outcome: None)
    waiting = iter(events)

    async def work() -> None:
        for event in waiting:
            await writer.submit(cast(Job, event))

    await asyncio.gather(*[work() for _ in range(IN_FLIGHT)])
    await writer.close()


async def measure_appends(logs: Mapping[str, Log], bare: BareStore) -> Times:
    times: Times = {name: [] for name in (*logs, BARE)}
    for _ in range(ROUNDS):
        for name, log in logs.items():
            events = make(EVENTS)
            start = time.perf_counter()
            await append_in_flight(log, events, IN_FLIGHT)
            times[name].append((time.perf_counter() - start) / EVENTS)
        events = make(EVENTS)
        bare.restart()
        start = time.perf_counter()
        await insert_in_flight(bare, events)
        times[BARE].append((time.perf_counter() - start) / EVENTS)
    return times


async def timed_append(log: Log, session: str, event: Event) -> float:
    start = time.perf_counter()
    await log.append(session, [event])
    return time.perf_counter() - start


async def measure_latency(url: str) -> tuple[list[float], list[float]]:
    """Return the seconds of appends, and from their begin until a follower of another log has the event."""
    async with AsyncExitStack() as stack:
        one, two = Log(PostgresStore(url)), Log(PostgresStore(url))
        stack.push_async_callback(one.close)
        stack.push_async_callback(two.close)
        session = await one.create("bench")
        appends: list[float] = []
        arrivals: list[float] = []
        pages = await stack.enter_async_context(aclosing(two.follow(session, idle_s=0.05)))
        await anext(pages)  # an idle page: the follower listens
        for event in make(LATENCY_EVENTS):
            await asyncio.sleep(random.uniform(0, 2 * PAUSE_S))
            start = time.perf_counter()
            append = asyncio.create_task(timed_append(one, session, event))
            while not await anext(pages):
                pass
            arrivals.append(time.perf_counter() - start)
            appends.append(await append)
        return appends, arrivals


async def run_writer(url: str, has_bell: bool) -> None:
    """Be one of the writing processes: wait for a line, append, print the seconds."""
    store = PostgresStore(url)
    log = Log(store)
    sessions = [await log.create("bench") for _ in range(16)]
    if not has_bell:
        store._notify_bell.ring = lambda moved, is_wanted: None  # type: ignore[union-attr,method-assign]
    await append_in_flight(log, make(200), WRITER_IN_FLIGHT, sessions)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    start = time.perf_counter()
    await append_in_flight(log, make(WRITER_EVENTS), WRITER_IN_FLIGHT, sessions)
    print(time.perf_counter() - start, flush=True)
    await log.close()


async def measure_writers(url: str, has_bell: bool) -> float:
    """Return the seconds per event of four processes that write at the same time."""
    command = [sys.executable, "-m", "bench.postgres", "writer", url]
    writers = [
        await asyncio.create_subprocess_exec(*command, "on" if has_bell else "off", stdin=PIPE, stdout=PIPE)
        for _ in range(WRITERS)
    ]
    for writer in writers:
        assert writer.stdout is not None
        await writer.stdout.readline()
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"go\n")
        await writer.stdin.drain()
    seconds = [float((await writer.communicate())[0]) for writer in writers]
    return max(seconds) / (WRITERS * WRITER_EVENTS)


async def measure_all(folder: Path, primary: PostgresServer) -> tuple[Times, list[float], list[float]]:
    url = primary.url()
    async with AsyncExitStack() as stack:
        logs = {SQLITE: Log(SqliteStore(folder / "log.db")), POSTGRES: Log(PostgresStore(url))}
        for log in logs.values():
            stack.push_async_callback(log.close)
            for session in SESSIONS:
                await log.create("bench", session)
        bare = BareStore(url)
        stack.callback(bare.close)
        times = await measure_appends(logs, bare)

    times |= {BELL_ON: [], BELL_OFF: []}
    for _ in range(BELL_ROUNDS):
        times[BELL_OFF].append(await measure_writers(url, False))
        times[BELL_ON].append(await measure_writers(url, True))
    return times, *await measure_latency(url)


def use_synchronous_standby(primary: PostgresServer) -> None:
    primary.set_option("synchronous_standby_names", "'ANY 1 (s1)'")


def main() -> int:
    """Print the table and the goals; the number of missed goals."""
    if sys.argv[1:2] == ["writer"]:
        asyncio.run(run_writer(sys.argv[2], sys.argv[3] == "on"))
        return 0
    settings: dict[str, Any] = {"fsync": "on", "shared_buffers": "128MB"}
    with running_cluster(1, **settings) as servers, tempfile.TemporaryDirectory() as folder:
        use_synchronous_standby(servers[0])
        times, appends, arrivals = asyncio.run(measure_all(Path(folder), servers[0]))
    print("| durable appends | events/s | µs/event |\n|---|---|---|")
    for name, seconds in times.items():
        print(f"| {name} | {1 / median(seconds):,.0f} | {median(seconds) * 1e6:.1f} |")
    append_ms, arrival_ms = median(appends) * 1000, median(arrivals) * 1000
    print(f"\nappend p50 {append_ms:.2f} ms, at a follower of another log p50 {arrival_ms:.2f} ms\n")
    met = [
        verdict(f"{POSTGRES}, of {SQLITE}", speed(times, POSTGRES, SQLITE), 1.0),
        verdict(f"{POSTGRES}, of {BARE}", speed(times, POSTGRES, BARE), 0.6),
        verdict("four writing processes, bell on, of bell off", speed(times, BELL_ON, BELL_OFF), 0.8),
        verdict("3 times an append, of the way to a follower elsewhere", 3 * append_ms / arrival_ms, 1.0),
    ]
    return met.count(False)


if __name__ == "__main__":
    sys.exit(main())
