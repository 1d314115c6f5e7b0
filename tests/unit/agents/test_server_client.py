"""Requests of a remote executor: bodies in every form, limits, time-outs, connections that end anywhere."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tests.support.tables import for_each_row
from turnlog.agents.remote import server_client
from turnlog.agents.remote.server_client import ServerClient, ServerUnavailable
from turnlog.errors import CallerError

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"
LENGTH = b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nabcde and more"
TO_THE_END = b"HTTP/1.0 200\r\n\r\nabcde"


class Peer:
    """A server that answers every request with the same bytes, and keeps the requests."""

    def __init__(self, answer: bytes, hold: bool = False, keep_alive: bool = False) -> None:
        self.answer = answer
        self.hold = hold
        self.keep_alive = keep_alive
        self.requests: list[bytes] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await self.answer_request(reader, writer)
            while self.keep_alive:
                await self.answer_request(reader, writer)
            if self.hold:
                await reader.read()
        writer.close()
        self.closed.set()

    async def answer_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        lengths = [line.split(b":")[1] for line in lines if line.startswith(b"content-length")]
        self.requests.append(head + (await reader.readexactly(int(lengths[0])) if lengths else b""))
        writer.write(self.answer)
        await writer.drain()

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


def ask(peer: Peer, work: Callable[[ServerClient], Coroutine[Any, Any, Any]], path: str = "") -> Any:
    async def run() -> Any:
        async with peer.open() as url:
            client = ServerClient(url + path, "secret")
            try:
                return await work(client)
            finally:
                await client.aclose()

    return asyncio.run(run())


async def read_stream(client: ServerClient) -> tuple[int, bytes]:
    async with client.stream("/api/events?session=s&types=a,b", {"last-event-id": "1:e"}) as response:
        return response.status_code, b"".join([chunk async for chunk in response.aiter_raw()])


@for_each_row(
    ("answer", "status"), [(CHUNKED, 200), (LENGTH, 404), (TO_THE_END, 200)], ids=["chunks", "length", "end"]
)
def test_bodies_in_every_form(answer: bytes, status: int) -> None:
    peer = Peer(answer)
    assert ask(peer, read_stream) == (status, b"abcde")
    [request] = peer.requests
    assert request.startswith(b"GET /api/events?session=s&types=a,b HTTP/1.1\r\n")
    lines = request.lower().split(b"\r\n")
    assert {b"last-event-id: 1:e", b"authorization: bearer secret", b"accept-encoding: identity"} <= {*lines}


@for_each_row("cut", range(len(CHUNKED) - len("\r\n")))
def test_a_body_cut_anywhere_is_not_a_whole_one(cut: int) -> None:
    with pytest.raises(ServerUnavailable):
        ask(Peer(CHUNKED[:cut]), read_stream)


def test_a_body_shorter_than_its_length_is_not_a_whole_one() -> None:
    with pytest.raises(ServerUnavailable):
        ask(Peer(LENGTH[:-12]), read_stream)


@for_each_row(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 2000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x" * 200_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 30 + b"\r\nabc",
    ],
    ids=["other", "status", "endless", "negative", "vast"],
)
def test_what_is_not_http_is_refused(answer: bytes) -> None:
    with pytest.raises(ServerUnavailable):
        ask(Peer(answer, hold=True), read_stream)


def test_a_server_that_falls_silent_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_client, "SILENCE_TIMEOUT_S", 0.01)
    with pytest.raises(ServerUnavailable, match="Timeout"):
        ask(Peer(CHUNKED[:60], hold=True), read_stream)


def test_a_head_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_client, "RESPONSE_TIMEOUT_S", 0.01)
    with pytest.raises(ServerUnavailable, match="Timeout"):
        ask(Peer(b"HTTP/1.1 200", hold=True), read_stream)


def test_a_server_that_does_not_listen_is_unavailable() -> None:
    with pytest.raises(ServerUnavailable):
        asyncio.run(read_stream(ServerClient("http://127.0.0.1:1")))


def test_a_post_carries_json_and_the_token() -> None:
    peer = Peer(LENGTH)
    result = ask(peer, lambda client: client.post("/api/events", b'{"a": 1}', 3), "/base/")
    assert result == (404, b"abc")
    head, _, body = peer.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /base/api/events HTTP/1.1\r\n")
    assert body == b'{"a": 1}'
    lines = head.lower().split(b"\r\n")
    for line in (b"authorization: bearer secret", b"content-type: application/json", b"content-length: 8"):
        assert line in lines


def test_a_body_without_end_is_read_to_the_limit() -> None:
    endless = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 100_000
    status, body = ask(Peer(endless, hold=True), lambda client: client.get("/", 1000))
    assert (status, len(body)) == (200, 1000)


def test_connections_are_used_again_and_cookies_are_not_stored() -> None:
    cookie = b"HTTP/1.1 200 OK\r\nset-cookie: a=b; path=/\r\ncontent-length: 2\r\n\r\n{}"
    peer = Peer(cookie, keep_alive=True)

    async def twice(client: ServerClient) -> None:
        for _ in range(2):
            assert await client.get("/", 1000) == (200, b"{}")

    ask(peer, twice)
    assert peer.connections == 1
    assert not any(b"cookie:" in request.lower() for request in peer.requests)


def test_redirects_are_not_followed() -> None:
    moved = b"HTTP/1.1 307 X\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"
    peer = Peer(moved)
    assert ask(peer, lambda client: client.get("/", 1000)) == (307, b"")


@for_each_row("trust_env", [False, True])
def test_proxies_of_the_environment_are_used_only_on_request(
    trust_env: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    peer = Peer(LENGTH)

    async def work() -> int:
        async with peer.open() as url:
            client = ServerClient(url, trust_env=trust_env)
            try:
                return (await client.get("/", 1000))[0]
            finally:
                peer.closed.set()
                await client.aclose()

    if trust_env:
        with pytest.raises(ServerUnavailable):
            asyncio.run(work())
    else:
        assert asyncio.run(work()) == 404


def test_a_client_can_be_used_after_it_was_closed() -> None:
    async def again(client: ServerClient) -> tuple[int, bytes]:
        await client.get("/", 1000)
        await client.aclose()
        return await client.get("/", 5)

    assert ask(Peer(LENGTH), again) == (404, b"abcde")


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
        ServerClient(url)


@for_each_row("token", ["", "two\r\nlines", "a b", "é"])
def test_a_token_cannot_forge_a_header(token: str) -> None:
    with pytest.raises(CallerError, match="visible ASCII"):
        ServerClient("http://host", token)


def test_without_the_package_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_client, "find_spec", lambda name: None)
    with pytest.raises(CallerError, match=r"pip install 'turnlog\[remote\]'"):
        ServerClient("http://host")
