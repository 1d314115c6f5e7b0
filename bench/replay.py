"""How fast stored events reach a reader: `python -m bench.replay`.

50,000 events of one session, followed and framed as `GET /api/events` does, on the server's loop. Every round
runs all candidates, ratios are taken inside a round, the table shows medians. Goals: from SQLite at 5 times
"columns + json.dumps" (a table with a column per field of the envelope, read 256 rows at a time, each row a
dict, dumped and framed), from memory at 30 times. The last table reads one session of 80 events among 1 and
among 10,000 others: the ratio is 1 when a session does not pay for the others.
"""

import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from statistics import median

import msgspec
import uvloop

from bench.chunks import Times, speed, verdict
from bench.log import make
from tests.faults.large_log import build, name_of
from turnlog.events import Envelope, Event, decode_envelope
from turnlog.log import Log, MemoryStore, Row, SqliteStore, envelope_json

ROUNDS = 7
EVENTS = 50_000
APPEND = 500
SESSION = "sess_01a1e16b-cd7c-7ef8-8cca-d699e1a3bb1d"
FIELDS = Envelope.__struct_fields__
FETCH = 256
OTHERS = 10_000
FRAME_BYTES = 1000  # no event here is as long
AGAIN = 50  # a short session is read so many times per round

COLUMNS = "columns + json.dumps"
SQLITE = "SQLite"
SKIPPING = "SQLite, looking for live events to leave out"
RING = "memory"

Run = Callable[[], Awaitable[int]]


async def replay(log: Log, session: str, origin: int | None) -> int:
    """A session from its beginning, followed as the server does and framed; how many bytes."""
    head, size = await log.info(session), 0
    end = f"id: {head.last}:".encode()
    async with aclosing(log.follow_frames(session, replay_from=origin)) as pages:
        async for page in pages:
            size += len(page)
            if end in page[-FRAME_BYTES:]:
                break
    return size


class Columns:
    """What most servers do: a column per field, a dict per row."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path)
        self.connection.execute("pragma journal_mode = wal")
        self.connection.execute(f"create table event ({', '.join(FIELDS)}, primary key (session_id, seq))")

    def fill(self, rows: list[Row]) -> None:
        """The same events as the log has."""
        places = ", ".join("?" * len(FIELDS))
        for row in rows:
            fields = msgspec.structs.asdict(decode_envelope(envelope_json(row)))
            values = [bytes(fields[name]).decode() if name == "payload" else fields[name] for name in FIELDS]
            self.connection.execute(f"insert into event values ({places})", values)
        self.connection.commit()

    async def replay(self) -> int:
        """Read, build, dump, frame."""
        names = ", ".join(FIELDS)
        query = f"select {names} from event where session_id = ? order by seq"
        cursor, size = self.connection.execute(query, (SESSION,)), 0
        while rows := cursor.fetchmany(FETCH):
            size += len(b"".join([frame_of(row) for row in rows]))
        return size


def frame_of(row: tuple[object, ...]) -> bytes:
    """One event, the plain way; the payload was stored as JSON and is read to be dumped again."""
    fields = dict(zip(FIELDS, row, strict=True))
    fields["payload"] = json.loads(str(fields["payload"]))
    return f"id: {fields['seq']}:0\ndata: {json.dumps(fields)}\n\n".encode()


async def filled(log: Log, events: list[Event]) -> Log:
    """A log with the events in one session."""
    await log.create("bench", SESSION)
    for at in range(0, len(events), APPEND):
        await log.append(SESSION, events[at : at + APPEND])
    return log


async def everything(log: Log) -> list[Row]:
    rows: list[Row] = []
    while page := await log.read(SESSION, rows[-1].seq if rows else -1):
        rows += page
    return rows


async def interleaved(candidates: dict[str, Run], number: int) -> Times:
    """Seconds per call: all candidates once per round, so that noise hits all alike."""
    times: Times = {name: [] for name in candidates}
    for _ in range(ROUNDS):
        for name, run in candidates.items():
            start = time.perf_counter()
            for _ in range(number):
                await run()
            times[name].append((time.perf_counter() - start) / number)
    return times


async def compare_sources(folder: Path) -> int:
    """The table of sources and the goals; the number of missed ones."""
    events = make(EVENTS)
    sqlite = await filled(Log(SqliteStore(folder / "log.db")), events)
    memory = await filled(Log(MemoryStore(EVENTS, 1 << 30)), events)
    columns = Columns(folder / "columns.db")
    columns.fill(await everything(sqlite))
    candidates: dict[str, Run] = {
        COLUMNS: columns.replay,
        SQLITE: lambda: replay(sqlite, SESSION, None),
        SKIPPING: lambda: replay(sqlite, SESSION, -1),
        RING: lambda: replay(memory, SESSION, None),
    }
    sizes = {name: await run() for name, run in candidates.items()}
    times = await interleaved(candidates, 1)
    print("| source | events/s | MB/s | x columns + json.dumps |\n|---|---|---|---|")
    for name, seconds in times.items():
        rate, mb = EVENTS / median(seconds), sizes[name] / 1e6 / median(seconds)
        print(f"| {name} | {rate:,.0f} | {mb:,.0f} | {speed(times, name, COLUMNS):.1f} |")
    print()
    columns.connection.close()
    await sqlite.close()
    await memory.close()
    met = [
        verdict(f"replay from {SQLITE}, of {COLUMNS}", speed(times, SQLITE, COLUMNS), 5),
        verdict(f"replay from {SKIPPING}, of {COLUMNS}", speed(times, SKIPPING, COLUMNS), 5),
        verdict(f"replay from {RING}, of {COLUMNS}", speed(times, RING, COLUMNS), 30),
    ]
    return met.count(False)


async def compare_neighbours(folder: Path) -> None:
    """A short session among 1 and among many others."""
    logs = {}
    for others in (1, OTHERS):
        build(folder / f"{others}.db", sessions=others + 1, events_each=80, long_events=0)
        logs[others] = Log(SqliteStore(folder / f"{others}.db"))

    def reader(others: int) -> Run:
        return lambda: replay(logs[others], name_of(others // 2), -1)

    times = await interleaved({f"{others:,}": reader(others) for others in logs}, AGAIN)
    print("\n| other sessions | µs to read 80 events | x the time among 1 |\n|---|---|---|")
    for name, seconds in times.items():
        print(f"| {name} | {median(seconds) * 1e6:.0f} | {1 / speed(times, name, '1'):.2f} |")
    for log in logs.values():
        await log.close()


def main() -> int:
    """Print the tables and the goals; the number of missed goals."""
    with tempfile.TemporaryDirectory() as folder:
        missed = uvloop.run(compare_sources(Path(folder)))
        uvloop.run(compare_neighbours(Path(folder)))
    return missed


if __name__ == "__main__":
    sys.exit(main())
