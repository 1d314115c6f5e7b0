"""What the tests of the event stream share: what a reader asked for and must be told, and raw connections."""

import asyncio
import contextlib
import ctypes
import fcntl
import itertools
import json
import os
import re
import socket
import struct
import sys
import termios
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.harness import Dechunker, Reader, Server
from tests.support.limits import HANG_S
from turnlog.cli.convert import Converter
from turnlog.server.routes.messages import MAX_EVENTS_PER_BODY
from turnlog.vocabularies import DIALECTS
from turnlog.wire.dialects.base import DialectOptions
from turnlog.wire.sse import Decoder, ServerSentEvent

TOO_OFTEN = 429
LIVE = ("block.delta", "tool.progress")
Told = tuple[str, str]  # the id without its epoch, and the data


class Wish(NamedTuple):
    """What a reader asks for."""

    dialect: str = "turnlog"
    types: str = ""
    depth: int | None = None

    @property
    def query(self) -> str:
        types = f"&types={self.types}" if self.types else ""
        depth = "" if self.depth is None else f"&depth={self.depth}"
        return f"&dialect={self.dialect}{types}{depth}"

    def takes(self, event: Any) -> bool:
        """Whether an event of the log is asked for."""
        if self.depth is not None and event.get("depth", 0) > self.depth:
            return False
        return not self.types or any(
            event["type"] == name or event["type"].startswith(f"{name}.") for name in self.types.split(",")
        )

    def expected(self, lines: list[bytes]) -> list[Told]:
        """What the whole log is in this dialect, made from its lines without the server."""
        converter, decoder = Converter(DIALECTS.request(self.dialect, DialectOptions()), None), Decoder()
        wanted = [line for line in lines if self.takes(json.loads(line))]
        frames = [converter.convert_line(number, line) for number, line in enumerate(wanted, 1)]
        return [(message.id, message.data) for message in decoder.feed(b"".join(frames))]

    def check(self, told: list[Told], expected: list[Told]) -> None:
        """Everything durable once, nothing live twice, in order; other dialects leave out nothing."""
        if self.dialect != "turnlog":
            assert told == expected
            return
        seqs = [int(id_) for id_, _ in told]
        assert seqs == sorted(set(seqs)), "doubled, or out of order"
        assert set(told) <= set(expected), "not what the log says"
        assert [item for item in told if durable(item)] == [item for item in expected if durable(item)]


WISHES = (
    Wish(),
    Wish("blocks"),
    Wish(types="tool,block,assistant"),
    Wish(depth=0),
    Wish("blocks", depth=0),
)


def durable(told: Told) -> bool:
    return json.loads(told[1])["type"] not in LIVE


def told_by(messages: list[ServerSentEvent]) -> list[Told]:
    """The log events of a stream, with their places."""
    return [(place(message.id), message.data) for message in messages if message.event == "message"]


def place(id_: str) -> str:
    return id_.partition(":")[0]


def log_lines(server: Server, session: str) -> list[bytes]:
    """The events of the log, a line each."""
    asked = urllib.request.Request(f"{server.url}/api/log?session={session}", headers=headers_of(server))
    with urllib.request.urlopen(asked, timeout=HANG_S) as response:
        return list(response.read().splitlines()[1:])


def headers_of(server: Server) -> dict[str, str]:
    """What says who is asking."""
    return dict(getattr(server, "headers", {}))


async def keep_reading(reader: Reader, cuts: Iterator[int | None]) -> None:
    """Read until somebody cancels, cut after so many bytes again and again."""
    while True:
        await reader.read(lambda message: False, cut=next(cuts))


async def finish(reader: Reader, last: str) -> None:
    """Read to a place, if the reader is not there yet."""
    if place(reader.last_id) != last:
        assert await reader.read(lambda message: place(message.id) == last)


def uncut() -> Iterator[int | None]:
    return itertools.repeat(None)


# raw connections


def request(server: Server, path: str, last_id: str = "") -> bytes:
    """A GET as bytes."""
    headers = {"host": "127.0.0.1", **headers_of(server)} | ({"last-event-id": last_id} if last_id else {})
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode()


def events_path(session: str, wish: Wish = Wish()) -> str:  # noqa: B008
    return f"/api/events?session={session}{wish.query}"


def connected(server: Server, data: bytes, window_bytes: int | None = None) -> socket.socket:
    """A connection that has sent a request and reads nothing by itself."""
    peer = socket.socket()
    if window_bytes is not None:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window_bytes)
    peer.settimeout(HANG_S)
    peer.connect(("127.0.0.1", server.port))
    peer.sendall(data)
    return peer


def head_of(peer: socket.socket) -> bytes:
    """The head of a response, byte by byte, so that nothing after it is taken."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += peer.recv(1)
    return head


def body_of(peer: socket.socket, until: bytes | None) -> bytes:
    """A body without its transfer coding, up to a frame with some bytes or to where the connection breaks."""
    dechunker, body, found = Dechunker(), bytearray(), -1
    with contextlib.suppress(ConnectionResetError):
        head = head_of(peer)
        assert b" 200 " in head, head
        while data := peer.recv(1 << 18):
            start = max(0, len(body) - 99)
            body += dechunker.feed(data)
            found = body.find(until, start) if found < 0 and until is not None else found
            if found >= 0 and body.find(b"\n\n", found) >= 0:
                break
    return bytes(body)


def vanish(peer: socket.socket) -> None:
    """Let a peer drop everything that comes, unseen and unacknowledged: a cable that was pulled."""
    drop = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))  # BPF: return 0
    attach = 26  # SO_ATTACH_FILTER
    peer.setsockopt(socket.SOL_SOCKET, attach, struct.pack("HxxxxxxP", 1, ctypes.addressof(drop)))


def unread_bytes(peer: socket.socket) -> int:
    """What has come and was not read."""
    answer = bytearray(4)
    fcntl.ioctl(peer, termios.FIONREAD, answer)
    return int.from_bytes(answer, sys.byteorder)


def buffer_bytes(peer: socket.socket) -> int:
    """How large the kernel's buffer for what comes is."""
    return peer.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def held_bytes(peers: list[socket.socket]) -> int:
    """What the kernel holds for our own ends of connections."""
    meminfo = 55  # SO_MEMINFO: nine numbers, of which received and set aside count here
    found = [struct.unpack("9I", peer.getsockopt(socket.SOL_SOCKET, meminfo, 36)) for peer in peers]
    return sum(numbers[0] + numbers[4] for numbers in found)


# what a server process holds


def metric(server: Server, name: str) -> int:
    """A number of `GET /metrics`; -1 for who asks too often, and will ask again."""
    status, text = server.get("/metrics")
    if status == TOO_OFTEN:
        return -1
    found = re.search(rf"^{name} (\d+)$", text.decode(), re.MULTILINE)
    assert found
    return int(found[1])


def tcp_bytes() -> int:
    """What the kernel holds for all TCP connections."""
    found = re.search(r"^TCP:.* mem (\d+)", Path("/proc/net/sockstat").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) * 4096


def resident_bytes(server: Server) -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{server.process.pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


def open_files(server: Server) -> Counter[str]:
    """How many files a server has open, by what they are."""
    found = Counter[str]()
    for link in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found[os.readlink(link).partition(":")[0]] += 1
    return found


def add_notes(server: Server, session: str, count: int, size: int) -> int:
    """Post notes; the seq of the last one."""
    seqs = list[int]()
    note = {"type": "duo.note", "payload": {"text": "x" * size}}
    step = min(MAX_EVENTS_PER_BODY, max(1, 400_000 // size))
    for start in range(0, count, step):
        events = [note] * min(step, count - start)
        status, answer = server.post("/api/events", {"session": session, "events": events})
        assert status == 202, answer
        seqs += answer["seqs"]
    return seqs[-1]


def add_turns(server: Server, session: str, count: int) -> None:
    """Let the agent of a session answer so many times."""
    seqs = [server.send(session, "Go on")["eventId"] for _ in range(count)]
    ends = 0

    def over(message: ServerSentEvent) -> bool:
        nonlocal ends
        ends += message.event == "message"
        return ends == count

    assert asyncio.run(Reader(server, session, f"&types=agent.end&after={seqs[0]}").read(over))


async def until(holds: Callable[[], bool]) -> None:
    """Ask again and again until a condition holds."""
    async with asyncio.timeout(HANG_S):
        while not await asyncio.to_thread(holds):
            pass


def wait_for_subscribers(server: Server, count: int) -> None:
    """Wait until the server has so many open streams; ask slower than the server's budget of requests."""

    async def wait() -> None:
        while metric(server, "turnlog_subscribers") != count:  # noqa: ASYNC110  the server tells no one
            await asyncio.sleep(0.05)  # the budget is for the requests of the test itself

    asyncio.run(asyncio.wait_for(wait(), HANG_S))
