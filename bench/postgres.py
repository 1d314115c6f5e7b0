"""PostgreSQL against SQLite and against itself: `python -m bench.postgres`. Ratios within one run only.

A primary and a synchronous standby run on this machine, with fsync. Every round runs all candidates, and the
table shows medians. "bare psycopg" inserts the same rows: the same callers wait for the same writer thread,
which encodes all events that wait and inserts them in one statement and commit. It knows no sessions, looks
for no id and decides nothing. All candidates run with the garbage collection of `turnlog serve`. "bell off"
is four writing processes that tell no other process of their commits. Followers are measured with about 20
appends a second, and without a pause. A send is an append to a session whose owner, another process, rests or
appends without a pause. Goals: 256 appends in flight at 1.0 of SQLite FULL and 0.6 of bare psycopg; bell on
at 0.8 of bell off; an append on one log is at a follower of another in 3 times the time of the append; a send
into a stream takes 3 times one into a session at rest, p90.
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
from statistics import median, quantiles
from typing import Any, NamedTuple, cast

from bench.chunks import Times, speed, verdict
from bench.fanout.measure import cpu_us
from bench.log import SCOPE, TEXT, make
from tests.support.postgres_server import PostgresServer, running_cluster
from turnlog.events import CATALOG, BlockDelta, Event, encode_sse_frame
from turnlog.ids import new_id
from turnlog.log import Log, SqliteStore
from turnlog.log.append import RowBatch
from turnlog.log.jobs import Job, JobOutcome, JobResult
from turnlog.log.postgres.connections import open_connection
from turnlog.log.postgres.rows import INSERT_EVENTS, event_row, transpose
from turnlog.log.postgres.store import PostgresStore
from turnlog.log.records import SessionRecord
from turnlog.log.store import EventStore
from turnlog.log.writer import WriteHealth, WriterThread
from turnlog.server.uvicorn_server import delay_garbage_collections

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
SEND_ROUNDS = 5
SENDS = 40
SEND_PAUSE_S = 0.02

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
        rows = [event_row(self._number, new) for new in batch.rows]
        self._connection.execute(INSERT_EVENTS, transpose(rows))
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


class CpuTimes(NamedTuple):
    """CPU time in microseconds: of this process, and of the primary and its standby."""

    client_us: float
    engine_us: float


def cpu_times(servers: Sequence[PostgresServer]) -> CpuTimes:
    engine_us = sum(cpu_us(pid) for server in servers for pid in server.pids())
    return CpuTimes(time.process_time() * 1e6, engine_us)


async def measure_appends(
    logs: Mapping[str, Log], bare: BareStore, servers: Sequence[PostgresServer]
) -> tuple[Times, dict[str, list[CpuTimes]]]:
    """Return the seconds of an append, and its CPU time, in each round."""
    times: Times = {name: [] for name in (*logs, BARE)}
    cpu: dict[str, list[CpuTimes]] = {name: [] for name in times}
    for _ in range(ROUNDS):
        for name, seconds in times.items():
            events = make(EVENTS)
            bare.restart()
            before = cpu_times(servers)
            start = time.perf_counter()
            if name == BARE:
                await insert_in_flight(bare, events)
            else:
                await append_in_flight(logs[name], events, IN_FLIGHT)
            seconds.append((time.perf_counter() - start) / EVENTS)
            after = cpu_times(servers)
            cpu[name].append(
                CpuTimes(*[(end - begin) / EVENTS for begin, end in zip(before, after, strict=True)])
            )
    return times, cpu


async def timed_append(log: Log, session: str, event: Event) -> float:
    start = time.perf_counter()
    await log.append(session, [event])
    return time.perf_counter() - start


async def measure_latency(url: str, pause_s: float) -> tuple[list[float], list[float]]:
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
            await asyncio.sleep(random.uniform(0, 2 * pause_s))
            start = time.perf_counter()
            append = asyncio.create_task(timed_append(one, session, event))
            while not await anext(pages):
                pass
            arrivals.append(time.perf_counter() - start)
            appends.append(await append)
        return appends, arrivals


def new_delta() -> Event:
    """Build an event whose id no other process has."""
    delta = BlockDelta(block_id="blk_1", text=TEXT)
    return CATALOG.build_event(delta, id=new_id("evt_"), origin="model", scope=SCOPE)


async def run_owner(url: str, session: str) -> None:
    """Be the owner of a session: append without pause, from a line `stream` until a line `rest`."""
    log = Log(PostgresStore(url))
    stop = asyncio.Event()
    streaming: asyncio.Task[None] | None = None

    async def stream() -> None:
        while not stop.is_set():
            await log.append(session, [new_delta()])

    while line := await asyncio.to_thread(sys.stdin.readline):
        if streaming is not None:
            stop.set()
            await streaming
            stop.clear()
        streaming = asyncio.create_task(stream()) if line == "stream\n" else None
        print("done", flush=True)
    await log.close()


async def measure_sends(url: str) -> tuple[list[float], list[float]]:
    """Return the seconds of sends into a session while its owner rests, and while it streams."""
    log = Log(PostgresStore(url))
    session = await log.create("bench")
    command = [sys.executable, "-m", "bench.postgres", "owner", url, session]
    owner = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    assert owner.stdin is not None
    assert owner.stdout is not None
    seconds: dict[str, list[float]] = {"rest": [], "stream": []}
    for _ in range(SEND_ROUNDS):
        for state, times in seconds.items():
            owner.stdin.write(f"{state}\n".encode())
            await owner.stdout.readline()
            for _ in range(SENDS):
                await asyncio.sleep(random.uniform(0, 2 * SEND_PAUSE_S))
                times.append(await timed_append(log, session, new_delta()))
    await owner.communicate(b"rest\n")
    await log.close()
    return seconds["rest"], seconds["stream"]


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


class Measured(NamedTuple):
    """All that one run has measured; times in seconds."""

    times: Times
    cpu: dict[str, list[CpuTimes]]
    followed: tuple[list[float], list[float]]  # appends, and until a follower has them, with pauses
    followed_closely: tuple[list[float], list[float]]  # the same without a pause
    sends: tuple[list[float], list[float]]  # while the owner rests, and while it streams


async def measure_all(folder: Path, servers: Sequence[PostgresServer]) -> Measured:
    url = servers[0].url()
    async with AsyncExitStack() as stack:
        logs = {SQLITE: Log(SqliteStore(folder / "log.db")), POSTGRES: Log(PostgresStore(url))}
        for log in logs.values():
            stack.push_async_callback(log.close)
            for session in SESSIONS:
                await log.create("bench", session)
        bare = BareStore(url)
        stack.callback(bare.close)
        times, cpu = await measure_appends(logs, bare, servers)

    times |= {BELL_ON: [], BELL_OFF: []}
    for _ in range(BELL_ROUNDS):
        times[BELL_OFF].append(await measure_writers(url, False))
        times[BELL_ON].append(await measure_writers(url, True))
    return Measured(
        times,
        cpu,
        await measure_latency(url, PAUSE_S),
        await measure_latency(url, 0),
        await measure_sends(url),
    )


def use_synchronous_standby(primary: PostgresServer) -> None:
    primary.set_option("synchronous_standby_names", "'ANY 1 (s1)'")


def main() -> int:
    """Measure, and print the table and the goals; the number of missed goals."""
    delay_garbage_collections()
    if sys.argv[1:2] == ["writer"]:
        asyncio.run(run_writer(sys.argv[2], sys.argv[3] == "on"))
        return 0
    if sys.argv[1:2] == ["owner"]:
        asyncio.run(run_owner(sys.argv[2], sys.argv[3]))
        return 0
    settings: dict[str, Any] = {"fsync": "on", "shared_buffers": "128MB"}
    with running_cluster(1, **settings) as servers, tempfile.TemporaryDirectory() as folder:
        use_synchronous_standby(servers[0])
        measured = asyncio.run(measure_all(Path(folder), servers))
    return report(measured)


def report(measured: Measured) -> int:
    times = measured.times
    print("| durable appends | events/s | µs/event | CPU µs: this process | primary and standby |")
    print("|---|---|---|---|---|")
    for name, seconds in times.items():
        cpu = [f"{median(values):.1f}" for values in zip(*measured.cpu.get(name, []), strict=True)]
        columns = [f"{1 / median(seconds):,.0f}", f"{median(seconds) * 1e6:.1f}", *(cpu or ["", ""])]
        print(f"| {name} | {' | '.join(columns)} |")

    print()
    ratios = []
    for pauses, pair in (("about 20/s", measured.followed), ("no pause", measured.followed_closely)):
        append_ms, arrival_ms = (median(values) * 1000 for values in pair)
        ratios.append(3 * append_ms / arrival_ms)
        print(f"{pauses}: append p50 {append_ms:.2f} ms, at a follower elsewhere p50 {arrival_ms:.2f} ms")
    rest_ms, stream_ms = (quantiles(values, n=10)[-1] * 1000 for values in measured.sends)
    print(f"send p90: {rest_ms:.2f} ms while the owner rests, {stream_ms:.2f} ms while it streams\n")
    met = [
        verdict(f"{POSTGRES}, of {SQLITE}", speed(times, POSTGRES, SQLITE), 1.0),
        verdict(f"{POSTGRES}, of {BARE}", speed(times, POSTGRES, BARE), 0.6),
        verdict("four writing processes, bell on, of bell off", speed(times, BELL_ON, BELL_OFF), 0.8),
        verdict("3 times an append, of the way to a follower elsewhere", ratios[0], 1.0),
        verdict("the same without a pause between appends", ratios[1], 1.0),
        verdict("3 times a send at rest, of a send into a stream, p90", 3 * rest_ms / stream_ms, 1.0),
    ]
    return met.count(False)


if __name__ == "__main__":
    sys.exit(main())
