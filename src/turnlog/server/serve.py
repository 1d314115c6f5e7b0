"""Running the server: uvicorn, with a bound on what one connection may hold, and an end to what never ends.

A peer sets the pace of whoever sends to it: what it does not take waits in the log, not in memory. After
`stall_s` without progress the kernel gives it up, as it does one that has vanished. uvicorn waits for open
responses before it stops, and an event stream never ends by itself. So the signal also ends the streams;
readers reconnect with their cursor. The log is opened before uvicorn starts, so that what is wrong with it is
an error of ours, not a stack trace of the server's.
"""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from turnlog.log.live import Rest
from turnlog.server.connections import CROWDED, FULL, ConnectionLimit, bounds_for, raise_file_limit
from turnlog.server.readers import CONNECTION
from turnlog.server.request_head import RequestHead, RequestRefused, refusal_response
from turnlog.server.token_file import TokenFile

STALL_S = 30.0  # how long a peer may take nothing of what was sent to it
FEED_BYTES = 16 * 1024  # what the parser gets at once, so that limits are checked before much is stored
REQUEST_S = 30.0  # how long a peer may take to say what it wants, from its first byte to the last
RESERVE_S = 5.0  # the same on a connection of the reserve, which is not to be held by who says nothing
UNSENT_BYTES = 16 * 1024  # what the kernel takes before it is on its way; what is, has room at the peer
PIECE_BYTES = 8 * 1024  # what is copied to be written; the rest of a page waits where it is
FRAMED = {b"content-length", b"content-encoding", b"transfer-encoding"}  # whose body is not sent as it is
LINGER_S = 2.0  # how long a peer that was refused may still send
TOKENS_S = 0.5  # how often the file of tokens is looked at: a token that was taken out ends within a second
GRACE_S = 1.0  # what responses have to end by themselves when the server stops


class Connection(HttpToolsProtocol):
    """A connection whose peer sets the pace of whoever sends, but not of what it asks itself, and for which a
    stop does not wait long. Request heads are bounded (`request_head`), and trailers are dropped. So is the
    number of connections, if there is a `limit` (`connections`)."""

    def __init__(self, *args: Any, limit: ConnectionLimit | None = None, **given: Any) -> None:
        super().__init__(*args, **given)
        self._limit = limit
        self._in_reserve = False
        self.app = self.paced
        self._head = RequestHead()
        self._refused: RequestRefused | None = None
        self._late: asyncio.TimerHandle | None = None
        self._lost: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # anything the kernel does not take is too much
        if self._limit is not None and len(self.connections) > self._limit.max_connections:
            self._in_reserve = True
            if len(self.connections) > self._limit.max_with_reserve:
                self._turn_away(self._limit)
                return
        self._expect_request()

    def _turn_away(self, limit: ConnectionLimit) -> None:
        """Refuse a connection before its first request, at once: there are no files for it to linger."""
        limit.note_refusal(self.loop.time())
        self._refused = RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, FULL)
        self.transport.write(refusal_response(self._refused))
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self._late is None and self._is_idle():
            # Line breaks before a request begin none, and must not keep a connection open.
            self._expect_request()
        for start in range(0, len(data), FEED_BYTES):
            if self._refused is not None or self.transport.is_closing():
                return
            piece = data[start : start + FEED_BYTES]
            super().data_received(piece)
            try:
                self._head.count_bytes(len(piece))
            except RequestRefused as refused:
                self._refuse(refused)

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser refused; a limit that was exceeded on the way says why."""
        self._refuse(self._refused or RequestRefused(HTTPStatus.BAD_REQUEST, msg))

    def _refuse(self, refused: RequestRefused) -> None:
        """Answer in the application's place, if no other answer is under way, and end the connection.

        The peer may still be sending. What it sends is dropped for a moment instead of reset, so that it can
        read the answer.
        """
        self._refused = refused
        cycle: RequestResponseCycle | None = self.cycle
        if self._is_idle() or (self._head.is_complete and cycle and not cycle.response_started):
            self.transport.write(refusal_response(refused))
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.abort)

    def _is_idle(self) -> bool:
        """Whether no response is owed on this connection."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def on_url(self, url: bytes) -> None:
        self._check(self._head.count_url, len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._check(self._head.count_field)
        if not self._head.is_complete:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._check(self._head.complete, self.headers)
        if self._limit is not None:
            self._limit.discard_silent(self)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head.count_body()
        super().on_body(body)

    def _check(self, check: Callable[..., None], *args: object) -> None:
        """Keep the reason of a refusal: the parser reports every exception of a callback as its own error."""
        try:
            check(*args)
        except RequestRefused as refused:
            self._refused = refused
            raise

    def connection_lost(self, exc: Exception | None) -> None:
        if self._limit is not None:
            self._limit.discard_silent(self)
        self._in_time()
        super().connection_lost(exc)
        if self._lost is not None:
            self._lost()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = RequestHead()
        self._in_time()
        self._expect_request()

    def on_message_complete(self) -> None:
        self._in_time()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._lost = None  # it is over, and nothing of it is to be kept for as long as the peer stays
        super().on_response_complete()
        if self._is_idle() and not self.transport.is_closing():
            self._fall_silent()

    def _expect_request(self) -> None:
        """Give the connection up if its peer does not send a whole request in time."""
        patience_s = RESERVE_S if self._in_reserve else REQUEST_S
        self._late = self.loop.call_later(patience_s, self.transport.abort)
        self._fall_silent()

    def _fall_silent(self) -> None:
        """No request of this connection is being answered; a reader's connection is no silent one."""
        if self._limit is not None and self._is_idle():
            self._limit.add_silent(self, self.transport.abort)

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def write(self, body: bytes) -> Rest | None:
        """Write a part of a response that has begun past its `send`; how to wait if that is not all out."""
        done = self._put(body, 0)
        return partial(self._finish, body, done) if self.flow.write_paused else None

    def _put(self, body: bytes, start: int) -> int:
        """Write pieces for as long as the kernel takes them; where it stopped."""
        while start < len(body) and not self.transport.is_closing():
            piece = body[start : start + PIECE_BYTES]
            self.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            start += PIECE_BYTES
            if self.flow.write_paused:
                break
        return start

    async def _finish(self, body: bytes, start: int) -> None:
        """The rest, at the peer's pace."""
        await self.flow.drain()
        while start < len(body) and not self.transport.is_closing():
            start = self._put(body, start)
            await self.flow.drain()

    def when_lost(self, call: Callable[[], None]) -> None:
        """Call a function when the peer is gone; only that of the response that was begun last."""
        self._lost = call
        if self.transport.is_closing():
            self.loop.call_soon(call)

    def paced(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """The application, whose every send lasts until the kernel has taken all of it."""
        application: ASGIApp = self.config.loaded_app
        if self._in_reserve:
            scope[CROWDED] = self._limit
        return application(scope, receive, Paced(self, scope, send))

    def shutdown(self) -> None:
        super().shutdown()
        self.loop.call_later(GRACE_S, self.transport.abort)


class Paced:
    """A `send` that lasts until the kernel has taken everything.

    Once a response has begun whose body is sent as it is, the scope offers the connection to write it to. Who
    changes bodies on the way says so in the headers, or begins late, and is not passed by.
    """

    __slots__ = ("_connection", "_scope", "_send")

    def __init__(self, connection: Connection, scope: Scope, send: Send) -> None:
        self._connection = connection
        self._scope = scope
        self._send = send

    async def __call__(self, message: Message) -> None:
        body = message.get("body", b"")
        last = max(0, len(body) - 1) // PIECE_BYTES * PIECE_BYTES
        for start in range(0, last, PIECE_BYTES):
            await self._give({**message, "body": body[start : start + PIECE_BYTES], "more_body": True})
        await self._give({**message, "body": body[last:]} if last else message)
        if message["type"] == "http.response.start" and self._is_plain(message):
            self._scope[CONNECTION] = self._connection

    def _is_plain(self, start: Message) -> bool:
        """Whether what is written is what the peer gets."""
        names = {name.lower() for name, _ in start.get("headers", ())}
        return self._scope["method"] != "HEAD" and names.isdisjoint(FRAMED)

    async def _give(self, message: Message) -> None:
        await self._send(message)
        flow = self._connection.flow
        if flow.write_paused:
            await flow.drain()


class StoppingServer(uvicorn.Server):
    """A uvicorn server whose stop signal ends the open streams and then the server, in order and quietly."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit  # a second signal does not wait
        self.should_exit = True
        application = self.config.app
        assert isinstance(application, Starlette)
        asyncio.get_running_loop().call_soon_threadsafe(application.state.stop_streams)


def listen(host: str, port: int, stall_s: float = STALL_S) -> socket.socket:
    """A listening socket; port 0 takes a free one. Its connections end after `stall_s` without progress."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound_peers(listener, stall_s)
        listener.bind((host, port))
        listener.listen(2048)
    except (OSError, OverflowError):  # a port out of range is an OverflowError
        listener.close()
        raise
    return listener


def bound_peers(listener: socket.socket, stall_s: float) -> None:
    """What every accepted connection inherits: little that is unsent, no delay, an end to silent peers."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_NODELAY", 1),
        ("TCP_NOTSENT_LOWAT", UNSENT_BYTES),
        ("TCP_USER_TIMEOUT", int(stall_s * 1000)),  # nothing acknowledged, or no room at the peer
        ("TCP_KEEPIDLE", max(1, int(stall_s / 2))),
        ("TCP_KEEPINTVL", max(1, int(stall_s / 4))),
    ):
        if hasattr(socket, name):  # all of them on Linux; elsewhere the system's own time-outs hold
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def serve(
    application: Starlette,
    listener: socket.socket,
    begun: Callable[[], None] = lambda: None,
    tokens: TokenFile | None = None,
) -> None:
    """Serve until a stop signal; `begun` is called when the log is open. `tokens` are read when they change.

    SIGHUP has the tokens read again. It stops the server if it comes because the terminal was closed.
    """
    limit = ConnectionLimit(bounds_for(raise_file_limit()))
    config = uvicorn.Config(
        application,
        log_config=None,  # the journal's is the only one: uvicorn's own would tell what an error says
        access_log=False,
        http=partial(Connection, limit=limit),  # type: ignore[arg-type]  # uvicorn only calls it
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=3,
        server_header=False,
    )
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(run(application, StoppingServer(config), listener, begun, tokens))


async def run(
    application: Starlette,
    server: uvicorn.Server,
    listener: socket.socket,
    begun: Callable[[], None],
    tokens: TokenFile | None = None,
) -> None:
    """Run the server within the application's life; a signal before `begun` stops it in order too."""
    with server.capture_signals():
        if threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGHUP"):
            call_on_hangup(server, tokens)
        async with application.router.lifespan_context(application), looking_after(tokens):
            begun()
            await server.serve(sockets=[listener])


def call_on_hangup(server: uvicorn.Server, tokens: TokenFile | None) -> None:
    """Have SIGHUP read the tokens again; from a terminal that was closed it stops the server."""
    had_terminal = has_terminal()

    def hang_up() -> None:
        if had_terminal and not has_terminal():
            server.handle_exit(signal.SIGHUP, None)
        elif tokens is not None:
            tokens.reload()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hang_up)


def has_terminal() -> bool:
    """Whether a person can see or stop this process; a terminal that was closed is none any more."""
    return any(os.isatty(number) for number in (0, 1, 2))


@asynccontextmanager
async def looking_after(tokens: TokenFile | None) -> AsyncIterator[None]:
    """Look once a second whether the file of tokens has changed."""
    if tokens is None:
        yield
        return
    task = asyncio.create_task(check_for_ever(tokens))
    try:
        yield
    finally:
        task.cancel()


async def check_for_ever(tokens: TokenFile) -> None:
    while True:
        await asyncio.sleep(TOKENS_S)
        tokens.check()
