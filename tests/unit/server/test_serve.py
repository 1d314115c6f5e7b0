"""A connection of the real server: when it is offered for writing, what is written to it, when it is lost."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from tests.e2e.harness import Dechunker
from tests.support.coverage_pause import without_coverage
from tests.unit.log.delegates import scenario, soon, until
from turnlog.server.limits.connections import ConnectionBounds, ConnectionLimit
from turnlog.server.scope_keys import CONNECTION_KEY
from turnlog.server.uvicorn_server import (
    KEEP_ALIVE_S,
    WRITE_CHUNK_BYTES,
    PacedHttpProtocol,
    listen,
    make_config,
)

NGINX_KEEPALIVE_S = 60  # of an idle connection to an upstream server
PLAIN = (b"content-type", b"text/plain")
LONG = bytes(range(256)) * 40_000  # far more than the kernel takes at once


class Speaker:
    """An application that begins a response, does something, and ends it."""

    def __init__(self, then: Callable[[PacedHttpProtocol | None], Awaitable[None]], *headers: bytes) -> None:
        self._then = then
        self._headers = [PLAIN, *[(name, b"10") for name in headers]]
        self.offered: list[bool] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert CONNECTION_KEY not in scope, "not before the response has begun"
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        self.offered.append(CONNECTION_KEY in scope)
        await self._then(scope.get(CONNECTION_KEY))
        await send({"type": "http.response.body", "body": b"0123456789"})


@asynccontextmanager
async def served(application: ASGIApp) -> AsyncIterator[int]:
    """The port of a server."""
    listener = listen("127.0.0.1", 0)
    config = uvicorn.Config(
        application,
        http=PacedHttpProtocol,
        lifespan="off",
        log_config=None,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    server = uvicorn.Server(config)
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await until(lambda: server.started)
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await soon(task)


@asynccontextmanager
async def asked(port: int, method: str = "GET", more: str = "") -> AsyncIterator[asyncio.StreamReader]:
    """A connection on which something was asked for."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = (f"{method} / HTTP/1.1", "Host: x", "Accept-Encoding: gzip", "Connection: close", more)
    writer.write("".join(f"{line}\r\n" for line in lines if line).encode() + b"\r\n")
    try:
        yield reader
    finally:
        writer.close()


async def nothing_more(_: PacedHttpProtocol | None) -> None:
    pass


@without_coverage()
@scenario
async def test_what_is_written_arrives_in_order_however_slowly_it_is_read() -> None:
    paused = []

    async def write(connection: PacedHttpProtocol | None) -> None:
        assert connection is not None
        for body in (b"first", LONG, b"last"):
            if rest := connection.write(body):
                paused.append(connection.transport.get_write_buffer_size())
                await rest()
            assert connection.transport.get_write_buffer_size() == 0

    async with served(Speaker(write)) as port, asked(port) as reader:
        head = await reader.readuntil(b"\r\n\r\n")
        await until(lambda: bool(paused))
        body = Dechunker().feed(await reader.read())
        assert b"transfer-encoding: chunked" in head
        assert body == b"first" + LONG + b"last0123456789"
        assert 0 < paused[0] <= WRITE_CHUNK_BYTES + 16, "what waits is in the log, not here"


@pytest.mark.parametrize(
    ("method", "headers", "offered"),
    [
        ("GET", (), True),
        ("POST", (), True),
        ("HEAD", (), False),
        ("GET", (b"content-length",), False),
        ("GET", (b"Content-Encoding",), False),
    ],
)
def test_it_is_offered_where_what_is_written_is_what_arrives(
    method: str, headers: tuple[bytes, ...], offered: bool
) -> None:
    @scenario
    async def run() -> None:
        speaker = Speaker(nothing_more, *headers)
        more = "Content-Length: 0" if method == "POST" else ""
        async with served(speaker) as port, asked(port, method, more) as reader:
            await reader.read()
        assert speaker.offered == [offered]

    run()


@scenario
async def test_who_changes_bodies_on_the_way_is_not_passed_by() -> None:
    speaker = Speaker(nothing_more)
    async with served(GZipMiddleware(speaker, minimum_size=1)) as port, asked(port) as reader:
        assert b"content-encoding: gzip" in await reader.read()
    assert speaker.offered == [False]


@scenario
async def test_it_says_when_the_peer_is_gone_also_to_who_asks_late() -> None:
    told: list[str] = []

    async def wait(connection: PacedHttpProtocol | None) -> None:
        assert connection is not None
        for name in ("in time", "late"):
            gone = asyncio.Event()
            connection.on_disconnect(gone.set)
            await gone.wait()
            told.append(name)
        assert connection.write(b"to nobody") is None

    async with served(Speaker(wait)) as port:
        async with asked(port) as reader:
            await reader.readuntil(b"\r\n\r\n")
            assert told == []
        await until(lambda: told == ["in time", "late"])


@scenario
async def test_a_response_that_is_over_hears_nothing_of_its_peer() -> None:
    told: list[str] = []

    async def listen_only(connection: PacedHttpProtocol | None) -> None:
        assert connection is not None
        connection.on_disconnect(lambda: told.append("gone"))

    async with served(Speaker(listen_only)) as port, asked(port) as reader:
        assert (await reader.read()).endswith(b"0123456789\r\n0\r\n\r\n")
    assert told == []


@scenario
async def test_connection_stays_open_after_a_stream_as_after_any_response() -> None:
    """A busy client sends its next request late: if the server had closed meanwhile, it would be lost."""
    timeouts_s: list[float] = []

    async def end_stream(connection: PacedHttpProtocol | None) -> None:
        assert connection is not None
        connection.write(b"data: {}\n\n")
        timeouts_s.append(connection.timeout_keep_alive)

    async with served(Speaker(end_stream)) as port, asked(port) as reader:
        await reader.read()
    assert timeouts_s == [KEEP_ALIVE_S]


def test_an_idle_connection_outlives_those_of_proxies_and_shortly_one_of_the_reserve() -> None:
    limit = ConnectionLimit(ConnectionBounds(0, 9))
    config = make_config(Starlette(), limit)
    assert config.timeout_keep_alive > NGINX_KEEPALIVE_S

    async def reserve_timeout_s() -> float:
        protocol = PacedHttpProtocol(config, ServerState(), {}, limit=limit)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            loop = asyncio.get_running_loop()
            transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
            transport.abort()
        return protocol.timeout_keep_alive

    config.load()
    assert asyncio.run(reserve_timeout_s()) < NGINX_KEEPALIVE_S
