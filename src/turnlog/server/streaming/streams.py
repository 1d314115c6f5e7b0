"""The streams that are open. Each is a response that lasts, read by the task of its request (protocol 7).

A reader is a cursor and holds little else: no task, no timer and no queue of its own. Where the server offers
its connection in the scope (`uvicorn_server.py` does), bytes are written to it by a plain call and it says
when the peer is gone; elsewhere each page is awaited with `send`, and a task waits for the peer to leave. A
stream ends when its client leaves, its time is over, its reader's roles change or the server stops; none of
that touches the session.
"""

import asyncio
import math
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol

from starlette.types import Receive, Scope, Send

from turnlog.app import Membership, Principal, Sessions
from turnlog.errors import SessionDamaged
from turnlog.events import SessionMember
from turnlog.events.roles import SERVER_ROLES
from turnlog.log.subscription import Drain, FrameSink
from turnlog.server.auth.credentials import Identity
from turnlog.server.error_responses import error_response
from turnlog.server.limits import Limits, RateLimiter, TooManyStreams
from turnlog.server.metrics import Metrics
from turnlog.wire import sse

CONNECTION_KEY = "turnlog.connection"
SENT_BYTES_KEY = "turnlog.bytes"  # where the journal finds what was written past `send`
EXPIRY_CHECK_INTERVAL_S = 0.25  # how often at most it is looked whose time is over
HEARTBEAT_FRAME = sse.encode(  # with the fields that every line of `blocks` has (protocol 7.4)
    b'{"type":"heartbeat","agent":"","final":true,"delta":""}', event="heartbeat"
)
RETRY_FRAME = b"retry: 1000\n\n"
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]

Headers = Iterable[tuple[bytes, bytes]]


class StreamConnection(Protocol):
    """What a server offers for a response that has begun."""

    def write(self, body: bytes) -> Drain | None:
        """Write a part of the body; what is returned is to be called and awaited before the next."""

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Call a function once, when the peer is gone."""


class FrameSource(Protocol):
    """What a reader is told."""

    def deliver(self, sink: FrameSink) -> Awaitable[None]:
        """Hand page after page on; an empty one is a heartbeat."""


class IteratorSource:
    """Pages as somebody makes them."""

    __slots__ = ("_pages",)

    def __init__(self, pages: AsyncGenerator[bytes, None]) -> None:
        self._pages = pages

    async def deliver(self, sink: FrameSink) -> None:
        """Hand them on, each when the one before is out; close their generator whatever ends this."""
        async with aclosing(self._pages) as pages:
            async for page in pages:
                if rest := sink(page):
                    await rest()


class RoleSnapshot(NamedTuple):
    """Somebody's roles in a session, as they were when a stream began."""

    session_id: str
    principal: Principal
    roles: frozenset[str]

    def has_same_roles(self, roles: Iterable[str]) -> bool:
        """Whether it is the same with the roles that somebody was given there."""
        return frozenset(roles) - SERVER_ROLES == self.roles


class StreamRegistry:
    """Everybody who reads, and what ends them."""

    def __init__(
        self,
        sessions: Callable[[], Sessions],
        metrics: Metrics,
        rate_limiter: RateLimiter,
        limits: Limits,
        is_still_valid: Callable[[Identity], bool] = lambda known: True,
    ) -> None:
        """`holds` says whether what a reader signed in with is still accepted."""
        self._sessions = sessions
        self._is_still_valid = is_still_valid
        self._max_stream_age_s = limits.max_stream_age_s
        self._open_streams: dict[EventStreamResponse, None] = {}
        self._expiry_timer: asyncio.TimerHandle | None = None
        self.metrics = metrics
        self.rate_limiter = rate_limiter

    def make_response(
        self,
        source: FrameSource,
        identity: Identity,
        memberships: Iterable[Membership],
        headers: Headers = STREAM_HEADERS,
    ) -> "EventStreamResponse":
        """A stream for somebody, as the answer to a request."""
        standings = [RoleSnapshot(seat.session_id, seat.principal, seat.roles) for seat in memberships]
        return EventStreamResponse(self, source, identity, standings, headers)

    def check_quota(self, identity: Identity) -> None:
        """Refuse who has no stream left, before anything is done that only a stream would tell of."""
        if not self.rate_limiter.has_free_stream(identity.principal):
            raise too_many_streams_error()

    @contextmanager
    def count_stream(self, identity: Identity) -> Iterator[None]:
        """Count an answer that lasts as one of its reader's streams; refuse who has no stream left."""
        if not self.rate_limiter.acquire_stream(identity.principal):
            raise too_many_streams_error()
        try:
            yield
        finally:
            self.rate_limiter.release_stream(identity.principal)

    def end_all(self) -> None:
        """End every stream; readers come back with their cursor."""
        for reader in self._open_streams:
            reader.end()

    def on_roles_changed(self, session_id: str, payload: SessionMember) -> None:
        """Somebody has other roles in a session: their streams end, and they come back if they still may."""
        for reader in self._open_streams:
            for standing in reader.role_snapshots:
                changed = (standing.session_id, standing.principal.name) == (session_id, payload.principal)
                if changed and not standing.has_same_roles(payload.roles):
                    reader.end()

    def end_signed_out(self) -> None:
        """End the streams whose reader's cookie or token is not accepted any more."""
        for reader in self._open_streams:
            if not self._is_still_valid(reader.identity):
                reader.end()

    async def is_still_allowed(self, identity: Identity, role_snapshots: Iterable[RoleSnapshot]) -> bool:
        """Whether a reader's sign-in and roles are as they were when they were looked up."""
        if not self._is_still_valid(identity):
            return False
        for one in role_snapshots:
            members = (await self._sessions().log.info(one.session_id)).members
            if not one.has_same_roles(members.get(one.principal.name, ())):
                return False
        return True

    def add(self, stream: "EventStreamResponse", identity: Identity) -> None:
        """One more; it ends when its reader has to show again that it may read."""
        left_s = math.inf if identity.expires_at_s is None else max(0.0, identity.expires_at_s - time.time())
        life_s = min(self._max_stream_age_s * random.uniform(0.9, 1.0), left_s)  # not all come back at once
        stream.deadline_s = asyncio.get_running_loop().time() + life_s
        self._open_streams[stream] = None
        self.metrics.subscribers += 1
        if self._expiry_timer is None or stream.deadline_s < self._expiry_timer.when():
            self._schedule_expiry(stream.deadline_s)

    def discard(self, stream: "EventStreamResponse") -> None:
        """One less."""
        del self._open_streams[stream]
        self.metrics.subscribers -= 1
        if self._expiry_timer is not None and not self._open_streams:
            self._expiry_timer.cancel()
            self._expiry_timer = None

    def _schedule_expiry(self, when_s: float) -> None:
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        self._expiry_timer = asyncio.get_running_loop().call_at(when_s, self._end_expired)

    def _end_expired(self) -> None:
        """End those whose time is over. One timer for all: for each it would be most of what they cost."""
        now_s, first_s = asyncio.get_running_loop().time(), math.inf
        for reader in self._open_streams:
            if reader.deadline_s <= now_s:
                reader.end()
            else:
                first_s = min(first_s, reader.deadline_s)
        self._expiry_timer = None
        if first_s < math.inf:
            self._schedule_expiry(max(first_s, now_s + EXPIRY_CHECK_INTERVAL_S))


class EventStreamResponse:
    """One stream, an ASGI application as every response is."""

    __slots__ = (
        "_headers",
        "_is_ended",
        "_registry",
        "_sent_bytes",
        "_source",
        "_task",
        "_write",
        "deadline_s",
        "identity",
        "role_snapshots",
    )  # fmt: skip

    def __init__(
        self,
        registry: StreamRegistry,
        source: FrameSource,
        identity: Identity,
        role_snapshots: Sequence[RoleSnapshot],
        headers: Headers,
    ) -> None:
        self._registry = registry
        self._source = source
        self.identity = identity
        self._headers = headers
        self._sent_bytes = 0
        self._is_ended = False
        self.role_snapshots = role_snapshots
        self.deadline_s = math.inf

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        principal, budgets = self.identity.principal, self._registry.rate_limiter
        if not budgets.acquire_stream(principal):
            await error_response(too_many_streams_error())(scope, receive, send)
            return
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(self._headers)})
            if scope["method"] != "HEAD":  # who asks for the headers alone waits for nothing more
                await self._stream(scope.get(CONNECTION_KEY), receive, send)
        finally:
            budgets.release_stream(principal)
            scope[SENT_BYTES_KEY] = self._sent_bytes
        await send({"type": "http.response.body", "body": b""})

    async def _stream(self, connection: StreamConnection | None, receive: Receive, send: Send) -> None:
        """Until there is no more, or somebody ends it."""
        self._task = require_current_task()
        self._registry.add(self, self.identity)
        gone = self._open_writer(connection, receive, send)
        try:
            if await self._registry.is_still_allowed(
                self.identity, self.role_snapshots
            ):  # from here on `change` tells
                await self._write_and_drain(RETRY_FRAME)
                await self._source.deliver(self.write_page)
        except SessionDamaged:
            pass  # the session has a new epoch now: the reader comes back and is told
        except asyncio.CancelledError:
            if not self._is_ended or self._task.uncancel():
                raise
        finally:
            self._is_ended = True  # the task goes on, and is not to be cancelled for this any more
            self._registry.discard(self)
            if gone is not None:
                gone.cancel()

    def _open_writer(
        self, connection: StreamConnection | None, receive: Receive, send: Send
    ) -> asyncio.Task[None] | None:
        """How it is written, and who says that the peer is gone."""
        if connection is not None:
            self._write = connection.write
            connection.on_disconnect(self.end)
            return None
        self._write = partial(asgi_write, send)
        gone = asyncio.create_task(wait_for_disconnect(receive))
        gone.add_done_callback(lambda _: self.end())
        return gone

    def end(self) -> None:
        """End the stream, wherever it stands."""
        if not self._is_ended:
            self._is_ended = True
            self._task.cancel()

    def write_page(self, page: bytes) -> Drain | None:
        """Write a page, at once."""
        self._registry.metrics.count_delivery(len(page))
        body = page or HEARTBEAT_FRAME
        self._sent_bytes += len(body)
        return self._write(body)

    async def _write_and_drain(self, body: bytes) -> None:
        self._sent_bytes += len(body)
        if rest := self._write(body):
            await rest()


def too_many_streams_error() -> TooManyStreams:
    """What is said to who has no stream left."""
    return TooManyStreams("too many open streams, close some")


def asgi_write(send: Send, body: bytes) -> Drain:
    """A part of the body, where the server offers no connection."""
    return partial(send, {"type": "http.response.body", "body": body, "more_body": True})


def require_current_task() -> asyncio.Task[Any]:
    """The task that runs this."""
    task = asyncio.current_task()
    assert task is not None
    return task


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
