"""Durable Streams against the project's own server and its file store: `python -m bench.durable_streams`.

1. Appends: 32 writers append one JSON message per request to one stream, as fast as responses come. Both
   servers answer when the message is on the disk.
2. Deliveries: 1,000 readers follow one stream over SSE, and one writer appends a message when all of them
   have the one before. What counts is the CPU time of the server for one message to one reader. Linux.

The clients are the same bytes over plain sockets for both. Both servers run all the time and are measured in
turns. The ratio is taken inside a round, so that a load of the machine meets both, and the median counts.

The other server appends one message at a time to a stream: write, fdatasync, then the commit of its index. So
its rate is that of the disk, and ours is that of the CPU: the ratio depends on both. The time of an fdatasync
in the same folder, and our CPU time of an append, are printed with each round.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import uvloop

from bench.fanout.measure import cpu_us
from tests.e2e.harness import ROOT
from tests.foreign_clients.node import find_node
from tests.foreign_clients.packages import workspace

PACKAGES = ROOT / "tests" / "foreign_clients" / "durable_streams"
APPEND_ROUNDS = 9
DELIVERY_ROUNDS = 3
WRITERS = 32
APPEND_S = 1.5
READERS = 1_000
MESSAGES = 10
MESSAGE = b'{"type":"token","text":"' + b"x" * 180 + b'"}'
APPENDS_GOAL = 10.0
CPU_GOAL = 0.5
SYNCS = 20  # of a round, to know the disk


@contextmanager
def started(command: list[str], folder: Path) -> Iterator[tuple[int, int]]:
    """Start a server. Yield its process id and its port."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        try:
            assert process.stdout is not None
            # The reference server writes lines about its start before its URL.
            ports = (urlsplit(line.strip()).port for line in process.stdout if line.startswith("http"))
            port = next(ports)
            assert port is not None
            yield process.pid, port
        finally:
            process.terminate()


def turnlog_command(folder: Path) -> list[str]:
    module = "tests.foreign_clients.durable_streams.server"
    return [sys.executable, "-m", module, f"sqlite:///{folder}/log.db", "20"]


def encode_request(method: str, path: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class Writer(asyncio.Protocol):
    """Sends a request again whenever its response has come. Responses have no body."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._answered = asyncio.Event()
        self.count = 0
        self.is_repeating = False
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._buffer.endswith(b"\r\n\r\n"):
            return
        status = self._buffer[9:12]
        assert status in (b"200", b"201", b"204"), self._buffer
        self._buffer = b""
        self.count += 1
        if self.is_repeating:
            self._transport.write(self._request)
        else:
            self._answered.set()

    async def send(self, request: bytes | None = None) -> None:
        self._answered.clear()
        self._transport.write(request or self._request)
        await self._answered.wait()

    def repeat(self) -> None:
        self.is_repeating = True
        self._transport.write(self._request)

    def close(self) -> None:
        self._transport.abort()


class ReaderGroup:
    """Readers, and a wait until each has so many messages."""

    def __init__(self) -> None:
        self._received = 0
        self._expected = 0
        self._complete = asyncio.Event()

    def add(self, count: int) -> None:
        self._received += count
        if self._received >= self._expected:
            self._complete.set()

    async def wait_for(self, expected: int) -> None:
        self._expected = expected
        self._complete.clear()
        self.add(0)
        await self._complete.wait()


class Reader(asyncio.Protocol):
    """Follows a stream and counts its messages."""

    def __init__(self, group: ReaderGroup, ready: ReaderGroup) -> None:
        self._group = group
        self._ready = ready
        self._is_ready = False
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        events, _, self._rest = (self._rest + data).rpartition(b"\n\n")
        if not self._is_ready and b"upToDate" in events:
            self._is_ready = True
            self._ready.add(1)
        self._group.add(events.count(b"event: data\n"))


async def connect_writer(port: int, request: bytes) -> Writer:
    loop = asyncio.get_running_loop()
    _, writer = await loop.create_connection(lambda: Writer(request), "127.0.0.1", port)
    return writer


async def measure_appends(port: int, path: str) -> float:
    """Return the appends per second of all writers."""
    writers = [await connect_writer(port, encode_request("POST", path, MESSAGE)) for _ in range(WRITERS)]
    await writers[0].send(encode_request("PUT", path))
    for writer in writers:
        await writer.send()

    begun = time.perf_counter()
    before = sum(writer.count for writer in writers)
    for writer in writers:
        writer.repeat()
    await asyncio.sleep(APPEND_S)
    count = sum(writer.count for writer in writers) - before
    rate = count / (time.perf_counter() - begun)
    for writer in writers:
        writer.close()
    return rate


async def measure_deliveries(port: int, pid: int, path: str) -> float:
    """Return the CPU time of the server for one message to one reader, in microseconds."""
    creator = await connect_writer(port, encode_request("PUT", path))
    await creator.send()
    creator.close()
    group = ReaderGroup()
    ready = ReaderGroup()
    loop = asyncio.get_running_loop()
    transports = []
    for _ in range(READERS):
        transport, _ = await loop.create_connection(lambda: Reader(group, ready), "127.0.0.1", port)
        transport.write(encode_request("GET", path + "?offset=now&live=sse"))
        transports.append(transport)
    await ready.wait_for(READERS)
    # Not before: a server closes a connection that is idle while the readers connect.
    writer = await connect_writer(port, encode_request("POST", path, MESSAGE))
    await writer.send()
    await group.wait_for(READERS)

    before_us = cpu_us(pid)
    for number in range(MESSAGES):
        await writer.send()
        await group.wait_for(READERS * (number + 2))
    spent_us = cpu_us(pid) - before_us
    for transport in transports:
        transport.abort()
    writer.close()
    return spent_us / (READERS * MESSAGES)


def measure_sync_us(folder: Path) -> float:
    """Return the time of an fdatasync after a small write, the median of some."""
    times = []
    with (folder / "sync").open("ab", buffering=0) as file:
        for _ in range(SYNCS):
            file.write(MESSAGE)
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begun)
    return median(times) * 1e6


class Bench(NamedTuple):
    """Both servers, each as (process id, port), and the folder with their data."""

    own: tuple[int, int]
    reference: tuple[int, int]
    folder: Path

    async def measure_append_ratios(self) -> list[tuple[float, float]]:
        """Return the appends per second of both, round by round. They take turns, the first one too."""
        rates = []
        for number in range(APPEND_ROUNDS):
            path = f"/v1/stream/appends-{number}"
            servers = [self.own, self.reference]
            order = servers if number % 2 == 0 else servers[::-1]
            sync_us = measure_sync_us(self.folder)
            before_us = cpu_us(self.own[0])
            measured = {server: await measure_appends(server[1], path) for server in order}
            own_us = (cpu_us(self.own[0]) - before_us) / (measured[self.own] * APPEND_S)
            print(f"round {number + 1}: fdatasync {sync_us:,.0f} us, our CPU of an append {own_us:,.0f} us")
            rates.append((measured[self.own], measured[self.reference]))
        return rates

    async def measure_delivery_costs(self) -> list[tuple[float, float]]:
        """Return the CPU time of a delivery of both, round by round."""
        costs = []
        for number in range(DELIVERY_ROUNDS):
            path = f"/v1/stream/deliveries-{number}"
            own = await measure_deliveries(self.own[1], self.own[0], path)
            costs.append((own, await measure_deliveries(self.reference[1], self.reference[0], path)))
        return costs


async def measure(bench: Bench) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    return await bench.measure_append_ratios(), await bench.measure_delivery_costs()


def run_bench(place: Path, folder: Path) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    for name in ("turnlog", "reference"):
        (folder / name).mkdir()
    reference = [*find_node().node, str(place / "reference.mjs"), str(folder / "reference")]
    # The client shares the cores with the servers: it takes as little as it can.
    client = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    with (
        started(turnlog_command(folder / "turnlog"), ROOT) as own,
        started(reference, place) as other,
        client,
    ):
        return client.run(measure(Bench(own, other, folder)))


def print_rounds(name: str, rounds: list[tuple[float, float]]) -> float:
    """Print each round. Return the median of the ratios."""
    for number, (own, reference) in enumerate(rounds, 1):
        print(f"{name}, round {number}: {own:,.1f} and {reference:,.1f}", flush=True)
    return median(own / reference for own, reference in rounds)


def main() -> int:
    """Print the figures; how many goals were missed."""
    if not sys.platform.startswith("linux"):
        print("needs Linux")
        return 0
    with tempfile.TemporaryDirectory() as name, workspace(PACKAGES, Path(name)) as place:
        rates, costs = run_bench(place, Path(name))
    appends = print_rounds("appends/s", rates)
    cpu = print_rounds("CPU of a delivery in us", costs)
    print(f"durable appends with {WRITERS} writers, as often: {appends:.1f}, goal {APPENDS_GOAL:g}")
    print(f"CPU of a delivery at {READERS:,} readers: {cpu:.2f}, goal at most {CPU_GOAL:g}")
    return int(appends < APPENDS_GOAL) + int(cpu > CPU_GOAL)


if __name__ == "__main__":
    sys.exit(main())
