"""Readers that come all at once: what they get, and processes that read beside a test.

Each function takes the number of readers: `test_storm` has some, `tests/soak` has a thousand.
"""

import asyncio
import json
import selectors
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.e2e.harness import RETRY, ROOT, Dechunker, Server
from tests.e2e.streams import (
    Wish,
    add_notes,
    add_turns,
    connected,
    events_path,
    head_of,
    metric,
    open_files,
    request,
    until,
    wait_for_subscribers,
)
from turnlog.wire.sse import Decoder

STORE_THREADS = 2


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


async def come_back(
    port: int, count: int, asked: bytes, last: bytes, here: Callable[[int], None]
) -> set[bytes]:
    """So many readers connect at the same moment; return the answers, once each reader has the last event."""
    loop = asyncio.get_running_loop()

    async def one() -> tuple[asyncio.Transport, Returning]:
        transport, reader = await loop.create_connection(lambda: Returning(asked, last), "127.0.0.1", port)
        await reader.done
        return transport, reader

    found = await asyncio.gather(*[one() for _ in range(count)])
    await asyncio.to_thread(here, count)
    for transport, _ in found:
        transport.abort()
    await asyncio.to_thread(here, 0)
    return {bytes(reader.data) for _, reader in found}


def seqs_in(answer: bytes) -> list[int]:
    """The seqs of the events in a whole HTTP answer."""
    body = Dechunker().feed(answer.partition(b"\r\n\r\n")[2])
    messages = [message for message in Decoder().feed(body) if message.event == "message"]
    return [json.loads(message.data)["seq"] for message in messages]


def bodies_in(answers: set[bytes]) -> set[bytes]:
    """The bodies of whole HTTP answers, without the `retry:` that differs from reader to reader."""
    bodies = [Dechunker().feed(answer.partition(b"\r\n\r\n")[2]) for answer in answers]
    return {RETRY.sub(b"", body) for body in bodies}


def reset(peer: socket.socket) -> None:
    """Leave without a word: what is on its way is answered with RST."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def reset_connections(server: Server, count: int) -> None:
    """Open so many streams, reset each, and check that the server keeps none of their files."""
    session = server.session()
    add_notes(server, session, 200, 1000)
    wishes = (Wish(), Wish("blocks"), Wish(types="duo"), Wish(depth=0))
    server.get("/metrics")
    before = open_files(server)
    for number in range(count):
        asked = request(server, events_path(session, wishes[number % len(wishes)]))
        whole = number % 5 != 0
        peer = connected(server, asked if whole else asked[: len(asked) // 2])
        if whole and number % 3 == 0:
            head_of(peer)
        reset(peer)
    wait_for_subscribers(server, 0)
    asyncio.run(until(lambda: open_files(server)["socket"] <= before["socket"]))
    more = open_files(server) - before
    assert more.total() <= 2 * STORE_THREADS, f"only files of the log, two for each thread: {more}"


DRAIN = "import tests.e2e.storm as storm; storm.drain()"


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


@contextmanager
def replays(server: Server, wish: Wish, count: int, notes: int, turns: int) -> Iterator[Callable[[], int]]:
    """So many connections that replay a session again and again, in a process of their own.

    The yielded function ends them and returns how many bytes they have read.
    """
    session = server.session()
    if wish.dialect == "turnlog":
        add_notes(server, session, notes, 4000)
    else:
        add_turns(server, session, turns)
    asked: dict[str, Any] = {
        "port": server.port,
        "request": request(server, events_path(session, wish)).decode(),
        "bytes": 4000 * notes if wish.dialect == "turnlog" else 500 * turns,  # less than there is
        "count": count,
    }
    command = [sys.executable, "-c", DRAIN]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reading:
        stdin, stdout = reading.stdin, reading.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(asked) + "\n")
        stdin.flush()
        assert stdout.readline() == "reading\n"
        asyncio.run(until(lambda: metric(server, "turnlog_subscribers") >= 0.9 * count))

        def taken() -> int:
            stdin.close()
            return int(stdout.readline())

        yield taken
