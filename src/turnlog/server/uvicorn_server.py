"""Run the application with uvicorn, with bounds on memory, connections and time.

This is the only module that uses undocumented parts of uvicorn; `test_uvicorn_internals.py` lists them.

- Writes wait for the peer: data that it does not read stays in the log, not in memory. After `stall_s`
  without progress the kernel closes the connection.
- uvicorn waits for open responses before it stops, and an event stream does not end by itself. So a stop
  signal ends the streams; readers reconnect with their cursor.
- The log is opened before uvicorn starts, so that an error in it is not a traceback of the server.
"""

import asyncio
import gc
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

from turnlog.log.subscription import Drain
from turnlog.server.auth.token_file import TokenFile
from turnlog.server.limits.connections import (
    FULL_MESSAGE,
    ConnectionLimit,
    compute_bounds,
    raise_file_limit,
)
from turnlog.server.request_head import RequestHead, RequestRefused, encode_refusal
from turnlog.server.scope_keys import CONNECTION_KEY, RESERVE_KEY

STALL_TIMEOUT_S = 30.0  # a connection ends if its peer reads nothing for so long
REQUEST_TIMEOUT_S = 30.0  # from the first byte of a request to its last
# Longer than proxies (60 s) and most clients keep an idle connection. If the server closed first, a request
# that was sent at that moment would be lost.
KEEP_ALIVE_S = 75
RESERVE_KEEP_ALIVE_S = 5
RESERVE_REQUEST_TIMEOUT_S = 5.0  # of a connection of the reserve, which silent peers must not hold
REFUSAL_LINGER_S = 2.0  # a peer that was refused may send for so long before it is cut
SHUTDOWN_GRACE_S = 1.0  # responses have so long to end by themselves when the server stops
TOKEN_FILE_POLL_S = 0.5  # a token that was removed from the file is refused within a second
# The parser gets the input in pieces, so that limits are checked before much is stored.
PARSER_FEED_BYTES = 16 * 1024
MAX_UNSENT_BYTES = 16 * 1024  # bytes in the kernel that are not yet sent
WRITE_CHUNK_BYTES = 8 * 1024  # bytes that are copied for one write; the rest of a page is not copied
LISTEN_BACKLOG = 2048
GC_THRESHOLDS = (50_000, 20, 50)  # new objects; collections of the first and of the second generation
# With one of these headers the bytes on the wire are not the bytes of the body.
BODY_FRAMING_HEADERS = {b"content-length", b"content-encoding", b"transfer-encoding"}


class PacedHttpProtocol(HttpToolsProtocol):
    """An HTTP connection with write back-pressure, a request timeout and a bounded graceful shutdown.

    Request heads are bounded (`request_head`), and trailers are dropped. `limit` bounds the number of
    connections (`limits.connections`).
    """

    def __init__(self, *args: Any, limit: ConnectionLimit | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limit = limit
        self._in_reserve = False
        self.app = self.run_paced
        self._head = RequestHead()
        self._refusal: RequestRefused | None = None
        self._request_timer: asyncio.TimerHandle | None = None
        self._disconnect_callback: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # writes pause as soon as the kernel takes no more
        if self._limit is not None and len(self.connections) > self._limit.max_connections:
            self._in_reserve = True
            self.timeout_keep_alive = RESERVE_KEEP_ALIVE_S
            if len(self.connections) > self._limit.max_with_reserve:
                self._reject_connection(self._limit)
                return
        self._start_request_timer()

    def _reject_connection(self, limit: ConnectionLimit) -> None:
        """Refuse a connection before its first request, and close it at once: open files are scarce."""
        limit.record_refusal(self.loop.time())
        self._refusal = RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, FULL_MESSAGE)
        self.transport.write(encode_refusal(self._refusal))
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self._request_timer is None and self._is_idle():
            # Line breaks before a request do not begin one, and must not keep a connection open.
            self._start_request_timer()
        for start in range(0, len(data), PARSER_FEED_BYTES):
            if self._refusal is not None or self.transport.is_closing():
                return
            piece = data[start : start + PARSER_FEED_BYTES]
            super().data_received(piece)
            try:
                self._head.count_bytes(len(piece))
            except RequestRefused as refusal:
                self._refuse(refusal)

    def send_400_response(self, msg: str) -> None:
        """Send the refusal of a limit that was exceeded in a parser callback, or else the parser's own."""
        self._refuse(self._refusal or RequestRefused(HTTPStatus.BAD_REQUEST, msg))

    def _refuse(self, refusal: RequestRefused) -> None:
        """Send a refusal, unless another response has begun, and end the connection.

        The peer may still be sending. Its bytes are dropped for a moment instead of reset, so that it can
        read the refusal.
        """
        self._refusal = refusal
        cycle: RequestResponseCycle | None = self.cycle
        has_not_begun = self._head.is_complete and cycle is not None and not cycle.response_started
        if self._is_idle() or has_not_begun:
            self.transport.write(encode_refusal(refusal))

        if not self.transport.can_write_eof():
            self.transport.close()
            return
        self.transport.write_eof()
        self.loop.call_later(REFUSAL_LINGER_S, self.transport.abort)

    def _is_idle(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def on_url(self, url: bytes) -> None:
        self._check_head(self._head.count_url, len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._check_head(self._head.count_field)
        if not self._head.is_complete:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._check_head(self._head.complete, self.headers)
        if self._limit is not None:
            self._limit.discard_idle(self)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head.count_body()
        super().on_body(body)

    def _check_head(self, check: Callable[..., None], *args: object) -> None:
        """Run a check and store its refusal: the parser replaces every exception of a callback by its own."""
        try:
            check(*args)
        except RequestRefused as refusal:
            self._refusal = refusal
            raise

    def connection_lost(self, exc: Exception | None) -> None:
        if self._limit is not None:
            self._limit.discard_idle(self)
        self._cancel_request_timer()
        super().connection_lost(exc)
        if self._disconnect_callback is not None:
            self._disconnect_callback()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = RequestHead()
        self._cancel_request_timer()
        self._start_request_timer()

    def on_message_complete(self) -> None:
        self._cancel_request_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._disconnect_callback = None  # an idle connection must not keep the response alive
        super().on_response_complete()
        if self._is_idle() and not self.transport.is_closing():
            self._mark_idle()

    def _start_request_timer(self) -> None:
        timeout_s = RESERVE_REQUEST_TIMEOUT_S if self._in_reserve else REQUEST_TIMEOUT_S
        self._request_timer = self.loop.call_later(timeout_s, self.transport.abort)
        self._mark_idle()

    def _mark_idle(self) -> None:
        if self._limit is not None and self._is_idle():
            self._limit.add_idle(self, self.transport.abort)

    def _cancel_request_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def write(self, body: bytes) -> Drain | None:
        """Write a part of a response that has begun, past its `send`.

        Return None, or a coroutine function that writes the rest and must be awaited before the next write.
        """
        written = self._write_chunks(body, 0)
        return partial(self._write_rest, body, written) if self.flow.write_paused else None

    def _write_chunks(self, body: bytes, start: int) -> int:
        while start < len(body) and not self.transport.is_closing():
            piece = body[start : start + WRITE_CHUNK_BYTES]
            self.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            start += WRITE_CHUNK_BYTES
            if self.flow.write_paused:
                break
        return start

    async def _write_rest(self, body: bytes, start: int) -> None:
        await self.flow.drain()
        while start < len(body) and not self.transport.is_closing():
            start = self._write_chunks(body, start)
            await self.flow.drain()

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the peer has disconnected. It replaces the callback of a response before."""
        self._disconnect_callback = callback
        if self.transport.is_closing():
            self.loop.call_soon(callback)

    def run_paced(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Run the application with a `send` that waits until the kernel has taken all bytes."""
        application: ASGIApp = self.config.loaded_app
        if self._in_reserve:
            scope[RESERVE_KEY] = self._limit
        return application(scope, receive, PacedSend(self, scope, send))

    def shutdown(self) -> None:
        super().shutdown()
        self.loop.call_later(SHUTDOWN_GRACE_S, self.transport.abort)


class PacedSend:
    """A `send` that waits until the kernel has taken all bytes.

    When a response has begun whose body is sent as it is, its connection is put into the scope. A middleware
    that changes bodies sets one of `BODY_FRAMING_HEADERS`, or sends the start late; it is not bypassed.
    """

    __slots__ = ("_connection", "_scope", "_send")

    def __init__(self, connection: PacedHttpProtocol, scope: Scope, send: Send) -> None:
        self._connection = connection
        self._scope = scope
        self._send = send

    async def __call__(self, message: Message) -> None:
        body = message.get("body", b"")
        last = max(0, len(body) - 1) // WRITE_CHUNK_BYTES * WRITE_CHUNK_BYTES
        for start in range(0, last, WRITE_CHUNK_BYTES):
            chunk = body[start : start + WRITE_CHUNK_BYTES]
            await self._forward({**message, "body": chunk, "more_body": True})
        await self._forward({**message, "body": body[last:]} if last else message)

        if message["type"] == "http.response.start" and self._may_write_directly(message):
            self._scope[CONNECTION_KEY] = self._connection

    def _may_write_directly(self, start: Message) -> bool:
        names = {name.lower() for name, _ in start.get("headers", ())}
        return self._scope["method"] != "HEAD" and names.isdisjoint(BODY_FRAMING_HEADERS)

    async def _forward(self, message: Message) -> None:
        await self._send(message)
        flow = self._connection.flow
        if flow.write_paused:
            await flow.drain()


class StoppingServer(uvicorn.Server):
    """A uvicorn server whose stop signal first drains the application, and then ends its open streams.

    Each further signal ends what the one before waits for: the drain, open responses, the close of the log.
    """

    def __init__(self, config: uvicorn.Config, drain_s: float = 0.0) -> None:
        super().__init__(config)
        self._drain_s = drain_s
        self._drain_task: asyncio.Task[None] | None = None
        self._is_closing = False

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await super().serve(sockets)
        self._is_closing = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._is_closing:
            # Nothing is lost: what is acknowledged is stored, and the next owner continues the turns.
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
            return
        loop = asyncio.get_running_loop()
        if self._drain_s and self._drain_task is None and not self.should_exit:
            loop.call_soon_threadsafe(self._begin_drain)
            return
        self.force_exit = self.should_exit  # a second signal does not wait
        self.should_exit = True
        loop.call_soon_threadsafe(self._application.state.stop_streams)

    @property
    def _application(self) -> Starlette:
        application = self.config.app
        assert isinstance(application, Starlette)
        return application

    def _begin_drain(self) -> None:
        if self._drain_task is None:
            self._drain_task = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        try:
            await self._application.state.drain(self._drain_s)
        finally:
            self.should_exit = True
            self._application.state.stop_streams()


def listen(host: str, port: int, stall_s: float = STALL_TIMEOUT_S) -> socket.socket:
    """Return a listening socket. Port 0 takes a free one. `stall_s` is the stall timeout of connections."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        set_socket_options(listener, stall_s)
        listener.bind((host, port))
        listener.listen(LISTEN_BACKLOG)
    except (OSError, OverflowError):  # a port out of range is an OverflowError
        listener.close()
        raise
    return listener


def set_socket_options(listener: socket.socket, stall_s: float) -> None:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_NODELAY", 1),
        ("TCP_NOTSENT_LOWAT", MAX_UNSENT_BYTES),
        ("TCP_USER_TIMEOUT", int(stall_s * 1000)),  # nothing acknowledged, or no room at the peer
        ("TCP_KEEPIDLE", max(1, int(stall_s / 2))),
        ("TCP_KEEPINTVL", max(1, int(stall_s / 4))),
    ):
        if hasattr(socket, name):  # all of them on Linux; elsewhere the system's own time-outs hold
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def delay_garbage_collections() -> None:
    """Collect reference cycles less often, and leave out the objects of the loaded modules.

    A full collection visits every object of every open stream: with 1,000 readers it took as long as a burst
    of 30 events. The server makes few cycles; most objects end with their last reference.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def serve(
    application: Starlette,
    listener: socket.socket,
    on_started: Callable[[], None] = lambda: None,
    token_file: TokenFile | None = None,
    drain_s: float = 0.0,
) -> None:
    """Serve until a stop signal. `on_started` is called when the log is open.

    After the signal the application has `drain_s` to hand its sessions and streams over.

    `token_file` is read again when it changes, and on SIGHUP. A SIGHUP because the terminal was closed stops
    the server.
    """
    delay_garbage_collections()
    limit = ConnectionLimit(compute_bounds(raise_file_limit()))
    config = make_config(application, limit)
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        server = StoppingServer(config, drain_s)
        runner.run(run_until_stopped(application, server, listener, on_started, token_file))


def make_config(application: Starlette, limit: ConnectionLimit) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        log_config=None,  # `configure_logging` did it: uvicorn's own would log messages of errors
        access_log=False,
        http=partial(PacedHttpProtocol, limit=limit),  # type: ignore[arg-type]  # uvicorn only calls it
        ws="none",
        lifespan="off",
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=3,
        server_header=False,
    )


async def run_until_stopped(
    application: Starlette,
    server: uvicorn.Server,
    listener: socket.socket,
    on_started: Callable[[], None],
    token_file: TokenFile | None = None,
) -> None:
    """Run the server in the application's lifespan. A signal before `on_started` stops it in order, too."""
    with server.capture_signals():
        if threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGHUP"):
            install_hangup_handler(server, token_file)
        async with application.router.lifespan_context(application), watch_token_file(token_file):
            on_started()
            await server.serve(sockets=[listener])


def install_hangup_handler(server: uvicorn.Server, token_file: TokenFile | None) -> None:
    had_terminal = has_terminal()

    def hang_up() -> None:
        if had_terminal and not has_terminal():
            server.handle_exit(signal.SIGHUP, None)
        elif token_file is not None:
            token_file.reload()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hang_up)


def has_terminal() -> bool:
    """Return whether a standard stream is a terminal. A closed one does not count."""
    return any(os.isatty(descriptor) for descriptor in (0, 1, 2))


@asynccontextmanager
async def watch_token_file(token_file: TokenFile | None) -> AsyncIterator[None]:
    if token_file is None:
        yield
        return
    task = asyncio.create_task(poll_token_file(token_file))
    try:
        yield
    finally:
        task.cancel()


async def poll_token_file(token_file: TokenFile) -> None:
    while True:
        await asyncio.sleep(TOKEN_FILE_POLL_S)
        token_file.reload_if_changed()
