"""Very many readers at once: a thousand that come back, five hundred that vanish, requests beside replays."""

import asyncio
import http.client
import json
import resource
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.harness import ROOT, TURNLOG, Dechunker, Server, running
from tests.e2e.streams import (
    Record,
    Wish,
    add_notes,
    add_turns,
    connected,
    events_path,
    head_of,
    headers_of,
    metric,
    open_files,
    request,
    until,
)
from turnlog.wire.sse import Decoder

pytestmark = pytest.mark.alone

READERS = 1000
BACKLOG = 100
CAUGHT_UP_S = 2.0
BARE_TIMES = 6
ROUNDS = 5
ANSWER_S = 0.3
STORE_THREADS = 2

Round = tuple[float, set[bytes]]  # how long it took, and what the readers got


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the server inherits it
    try:
        with running("tests.e2e.stream_apps:talker", tmp_path, program=[TURNLOG]) as server:
            yield server
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Returning(asyncio.Protocol):
    """A reader that keeps what comes, until a frame it waits for."""

    def __init__(self, asked: bytes, last: bytes) -> None:
        self.asked = asked
        self.last = last
        self.data = bytearray()
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self.asked)

    def data_received(self, data: bytes) -> None:
        self.data += data
        if not self.done.done() and self.data.find(self.last, max(0, len(self.data) - len(data) - 99)) >= 0:
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the server ended the stream"))


async def come_back(port: int, asked: bytes, last: bytes, here: Callable[[int], None]) -> Round:
    """Everybody connects at the same moment; how long until the last one has the last event."""
    loop, begun = asyncio.get_running_loop(), time.monotonic()

    async def one() -> tuple[asyncio.Transport, Returning]:
        transport, reader = await loop.create_connection(lambda: Returning(asked, last), "127.0.0.1", port)
        await reader.done
        return transport, reader

    found = await asyncio.gather(*[one() for _ in range(READERS)])
    took_s = time.monotonic() - begun
    await asyncio.to_thread(here, READERS)
    for transport, _ in found:
        transport.abort()
    await asyncio.to_thread(here, 0)
    return took_s, {bytes(reader.data) for _, reader in found}


def subscribed(server: Server, count: int) -> None:
    asyncio.run(until(lambda: metric(server, "turnlog_subscribers") == count, 10))


class Bare(asyncio.Protocol):
    """What a server cannot do with less: take a request, and write bytes that it has."""

    answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(self.answer)


async def bare() -> None:
    """Another process: answer everybody with the bytes from standard input."""
    loop = asyncio.get_running_loop()
    Bare.answer = await asyncio.to_thread(sys.stdin.buffer.read)
    server = await loop.create_server(Bare, "127.0.0.1", 0, backlog=2 * READERS)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


@contextmanager
def bare_server(answer: bytes) -> Iterator[int]:
    """The port of a server that does nothing but write this."""
    command = [
        sys.executable,
        "-c",
        "import asyncio, tests.e2e.test_storm as storm; asyncio.run(storm.bare())",
    ]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(answer)
            process.stdin.close()
            yield int(process.stdout.readline())
        finally:
            process.kill()


def test_a_thousand_readers_that_come_back_are_caught_up_within_two_seconds(
    server: Server, record_property: Record
) -> None:
    """Every round is without an error; the best is within two seconds, or within a few times a bare server.

    The clock counts what the thousand clients of this process cost, and whatever else the machine does: the
    bare server, asked by the same clients in the same round, says how much that is.
    """
    session = server.session()
    seq = add_notes(server, session, 10, 200)
    last = add_notes(server, session, BACKLOG, 200)
    asked, end = request(server, events_path(session), str(seq)), f":{last}\n".encode()
    rounds = list[tuple[float, float]]()
    while len(rounds) < ROUNDS and not any(caught_up(*one) for one in rounds):
        took_s, answers = asyncio.run(come_back(server.port, asked, end, partial(subscribed, server)))
        bodies = {Dechunker().feed(answer.partition(b"\r\n\r\n")[2]) for answer in answers}
        assert len(bodies) == 1, "everybody got the same bytes"
        seqs = [json.loads(message.data)["seq"] for message in Decoder().feed(bodies.pop())]
        assert seqs == list(range(seq + 1, last + 1))
        with bare_server(answers.pop()) as port:
            bare_s, _ = asyncio.run(come_back(port, asked, end, lambda _: None))
        rounds.append((took_s, bare_s))
    record_property("caught_up_s", rounds)
    assert any(caught_up(*one) for one in rounds), rounds


def caught_up(took_s: float, bare_s: float) -> bool:
    return took_s <= max(CAUGHT_UP_S, BARE_TIMES * bare_s)


def reset(peer: socket.socket) -> None:
    """Leave without a word: what is on its way is answered with RST."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def test_five_hundred_connections_that_are_reset_leave_nothing_behind(server: Server) -> None:
    session = server.session()
    add_notes(server, session, 200, 1000)
    wishes = (Wish(), Wish("blocks"), Wish(types="duo"), Wish(depth=0))
    server.get("/metrics")
    before = open_files(server)
    for number in range(500):
        asked = request(server, events_path(session, wishes[number % len(wishes)]))
        whole = number % 5 != 0
        peer = connected(server, asked if whole else asked[: len(asked) // 2])
        if whole and number % 3 == 0:
            head_of(peer)
        reset(peer)
    asyncio.run(until(lambda: metric(server, "turnlog_subscribers") == 0, 10))
    asyncio.run(until(lambda: open_files(server)["socket"] <= before["socket"], 10))
    more = open_files(server) - before
    assert more.total() <= 2 * STORE_THREADS, f"only files of the log, two for each thread: {more}"


DRAIN = "import tests.e2e.test_storm as storm; storm.drain()"


def drain() -> None:
    """Another process: replay a session over many connections again and again, until standard input ends."""
    asked = json.loads(sys.stdin.readline())
    data, whole, selector = asked["request"].encode(), asked["bytes"], selectors.DefaultSelector()
    buffer = bytearray(1 << 16)

    def begin() -> None:
        peer = socket.create_connection(("127.0.0.1", asked["port"]))
        peer.sendall(data)
        selector.register(peer, selectors.EVENT_READ, [whole])

    for _ in range(asked["count"]):
        begin()
    sys.stdout.write("reading\n")
    sys.stdout.flush()
    selector.register(sys.stdin, selectors.EVENT_READ)
    taken = 0
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                sys.stdout.write(f"{taken}\n")
                return
            peer, left = key.fileobj, key.data
            assert isinstance(peer, socket.socket)
            got = peer.recv_into(buffer)
            taken, left[0] = taken + got, left[0] - got
            if left[0] <= 0:
                selector.unregister(peer)
                peer.close()
                begin()


def answer_times(server: Server, paths: tuple[str, ...], count: int, for_s: float) -> list[float]:
    """How long new requests take, each on a new connection: so many at least, and for so long."""
    times, end = list[float](), time.monotonic() + for_s
    while len(times) < count or time.monotonic() < end:
        number, begun = len(times), time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("GET", paths[number % len(paths)], headers=headers_of(server))
        response = connection.getresponse()
        response.read()
        assert response.status == 200
        connection.close()
        times.append(time.monotonic() - begun)
    return times


def at_best(measure: Callable[[], list[float]]) -> list[float]:
    """The best of three, or the first that is good: what else runs can only make it worse."""
    rounds = list[list[float]]()
    while len(rounds) < 3 and not (rounds and p95(rounds[-1]) < ANSWER_S):
        rounds.append(measure())
    return min(rounds, key=p95)


def p95(times: list[float]) -> float:
    return sorted(times)[len(times) * 95 // 100]


@pytest.mark.parametrize("wish", [Wish(), Wish("blocks"), Wish(types="duo")], ids=str)
def test_a_new_request_is_answered_at_once_during_two_hundred_replays(
    server: Server, wish: Wish, record_property: Record
) -> None:
    session = server.session()
    if wish.dialect == "turnlog":
        add_notes(server, session, 1500, 4000)
    else:
        add_turns(server, session, 400)
    asked = {
        "port": server.port,
        "request": request(server, events_path(session, wish)).decode(),
        "bytes": 6_000_000 if wish.dialect == "turnlog" else 200_000,  # less than there is
        "count": 200,
    }
    command = [sys.executable, "-c", DRAIN]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reading:
        assert reading.stdin is not None
        assert reading.stdout is not None
        reading.stdin.write(json.dumps(asked) + "\n")
        reading.stdin.flush()
        assert reading.stdout.readline() == "reading\n"
        asyncio.run(until(lambda: metric(server, "turnlog_subscribers") >= 190, 30))
        asyncio.run(until(lambda: metric(server, "turnlog_delivered_bytes_total") > 1_000_000, 30))
        times = at_best(lambda: answer_times(server, ("/healthz", "/"), 60, 1.5))
        reading.stdin.close()
        taken = int(reading.stdout.readline())
    shares = [sorted(times)[len(times) * share // 1000] * 1000 for share in (500, 900, 990, 999)]
    record_property("answers_ms", [len(times), *shares, 1000 * max(times), taken / 1e6])
    assert taken > 50_000, "more than the heads of two hundred responses"
    assert p95(times) < ANSWER_S, sorted(times)[-10:]
