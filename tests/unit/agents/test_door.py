"""The client's HTTP: bodies in every form, heads that are none, connections that end anywhere."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tests.support.tables import for_each_row
from turnlog.agents.remote import http_client as module
from turnlog.agents.remote.http_client import GONE, Door
from turnlog.errors import CallerError, PeerError

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"
LENGTH = b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nabcde and more"
TO_THE_END = b"HTTP/1.0 200\r\n\r\nabcde"


class Peer:
    """A server that says what it is told to, and keeps what it was asked."""

    def __init__(self, answer: bytes, hold: bool = False) -> None:
        self.answer = answer
        self.hold = hold
        self.asked = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = [
                line.split(b":")[1] for line in head.split(b"\r\n") if line.startswith(b"content-length")
            ]
            self.asked = head + (await reader.readexactly(int(length[0])) if length else b"")
            writer.write(self.answer)
            await writer.drain()
            if self.hold:
                await reader.read()
        writer.close()
        self.closed.set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        self.closed = asyncio.Event()
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        async with server:
            try:
                yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            finally:
                await self.closed.wait()
                await asyncio.sleep(0)


def asking(peer: Peer, work: Callable[[str], Coroutine[Any, Any, Any]]) -> Any:
    async def ask() -> Any:
        async with peer.open() as url:
            return await work(url)

    return asyncio.run(ask())


async def got(url: str) -> tuple[int, bytes]:
    async with Door(url).get("/api/events?session=s", {"last-event-id": "e:1"}) as answer:
        return answer.status, b"".join([piece async for piece in answer.pieces()])


@for_each_row(
    ("answer", "status"), [(CHUNKED, 200), (LENGTH, 404), (TO_THE_END, 200)], ids=["chunks", "length", "end"]
)
def test_bodies_in_every_form(answer: bytes, status: int) -> None:
    peer = Peer(answer)
    assert asking(peer, got) == (status, b"abcde")
    assert peer.asked.startswith(b"GET /api/events?session=s HTTP/1.1\r\nhost: 127.0.0.1:")
    assert b"\r\nlast-event-id: e:1\r\n" in peer.asked
    assert b"authorization" not in peer.asked


@for_each_row("cut", range(len(CHUNKED) - len("\r\n")))
def test_a_body_cut_anywhere_is_not_a_whole_one(cut: int) -> None:
    with pytest.raises(GONE):
        asking(Peer(CHUNKED[:cut]), got)


def test_a_body_shorter_than_its_length_is_not_a_whole_one() -> None:
    with pytest.raises(EOFError):
        asking(Peer(LENGTH[:-12]), got)


@for_each_row(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 2000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x" * 100_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n123456789\r\nabc",
    ],
    ids=["other", "status", "endless", "negative", "vast"],
)
def test_what_is_not_http_is_refused(answer: bytes) -> None:
    with pytest.raises(PeerError):
        asking(Peer(answer, hold=True), got)


def test_a_server_that_falls_silent_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENT_S", 0.01)
    with pytest.raises(TimeoutError):
        asking(Peer(CHUNKED[:60], hold=True), got)
    monkeypatch.setattr(module, "ANSWER_S", 0.01)
    with pytest.raises(TimeoutError):
        asking(Peer(b"HTTP/1.1 200", hold=True), got)


def test_nobody_at_home() -> None:
    with pytest.raises(GONE):
        asyncio.run(got("http://127.0.0.1:1"))


def test_a_post_carries_json_and_the_token() -> None:
    peer = Peer(LENGTH)

    async def post(url: str) -> tuple[int, bytes]:
        return await Door(url + "/base/", "secret").post("/api/events", b'{"a": 1}', 3)

    assert asking(peer, post) == (404, b"abc")
    head, _, body = peer.asked.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /base/api/events HTTP/1.1\r\n")
    assert body == b'{"a": 1}'
    for line in (b"authorization: Bearer secret", b"content-type: application/json", b"content-length: 8"):
        assert line in head.split(b"\r\n")


@for_each_row(
    "url",
    [
        *("ftp://host", "host:80", "http://", "http://host?x=1", "http://user:word@host", ""),
        *("http://host:word", "http://host:99999", "http://[::1", "http://:word@host"),
        *("http://höst", "http://host/a b", "http://host/é", "http://host/\r\nx: y"),
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(CallerError, match="expected a URL"):
        Door(url)


@for_each_row("token", ["", "two\r\nlines", "a b", "é"])
def test_a_token_cannot_forge_a_header(token: str) -> None:
    with pytest.raises(CallerError, match="visible ASCII"):
        Door("http://host", token)


def test_the_ports_are_the_usual_ones() -> None:
    assert (Door("http://host")._port, Door("https://host")._port, Door("https://host:8443")._port) == (
        80,
        443,
        8443,
    )
