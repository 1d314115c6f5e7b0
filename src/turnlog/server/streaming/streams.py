"""Open event streams, and what ends them. Each stream runs in the task of its request (protocol 7).

A stream holds a cursor and little else: no task, no timer and no queue of its own. If the server puts its
connection into the scope (`uvicorn_server.py` does), pages are written to it by a plain call, and it reports
the disconnect. Otherwise each page is awaited with `send`, and a task waits for the disconnect.

A stream ends when its client disconnects, its maximum age is reached, its reader's roles change or the server
stops. None of that touches the session.
"""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

from starlette.types import Message, Receive, Scope, Send

from turnlog.app import Membership, Principal
from turnlog.errors import SessionDamaged
from turnlog.events.roles import SERVER_ROLES
from turnlog.log import SessionRecord
from turnlog.log.subscription import Drain, FrameSink
from turnlog.log.wakeup import Wakeup
from turnlog.server.auth.credentials import Identity
from turnlog.server.error_responses import error_response
from turnlog.server.limits.policy import Limits
from turnlog.server.limits.rate_limiter import TooManyStreams
from turnlog.server.metrics import Metrics
from turnlog.server.scope_keys import CONNECTION_KEY, SENT_BYTES_KEY
from turnlog.server.session_access import SessionAccess
from turnlog.server.streaming.frames import Frames
from turnlog.wire.dialects.framing import Framing

EXPIRY_CHECK_INTERVAL_S = 0.25  # the shortest time between two looks for streams that are too old
# The readers of a server that stops must not all reconnect at the same moment.
RETRY_RANGE_MS = (500, 3000)
SSE_MEDIA_TYPE = "text/event-stream"

Headers = Iterable[tuple[bytes, bytes]]


class StreamConnection(Protocol):
    """A connection that a response which has begun may write to directly."""

    def write(self, body: bytes) -> Drain | None:
        """Write a part of the body.

        Return None, or a coroutine function that must be awaited before the next write.
        """

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the peer has disconnected."""


class FrameSource(Protocol):
    """A source of SSE pages."""

    def deliver(self, sink: FrameSink) -> Awaitable[None]:
        """Call the sink with each page. An empty page is a heartbeat."""


class IteratorSource:
    """The pages of an async generator."""

    __slots__ = ("_pages",)

    def __init__(self, pages: Frames) -> None:
        self._pages = pages

    async def deliver(self, sink: FrameSink) -> None:
        """Call the sink with each page when the one before is written. Close the generator in any case."""
        async with aclosing(self._pages) as pages:
            async for page in pages:
                drain = sink(page)
                if drain is not None:
                    await drain()


class RoleSnapshot(NamedTuple):
    """A principal's roles in a session when its stream began."""

    session_id: str
    principal: Principal
    roles: frozenset[str]

    def has_same_roles(self, roles: Iterable[str]) -> bool:
        return frozenset(roles) - SERVER_ROLES == self.roles


class StreamRegistry:
    """The open streams of a server."""

    def __init__(
        self,
        access: SessionAccess,
        metrics: Metrics,
        limits: Limits,
        is_still_valid: Callable[[Identity], bool] = lambda _: True,
    ) -> None:
        self._access = access
        self._is_still_valid = is_still_valid
        self._max_stream_age_s = limits.max_stream_age_s
        self._open_streams: dict[EventStreamResponse, None] = {}
        self._streams_by_session: dict[str, dict[EventStreamResponse, None]] = {}
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._drain_end_s = math.inf
        self._changed = Wakeup()
        self.metrics = metrics
        self.rate_limiter = access.rate_limiter

    def make_response(
        self,
        source: FrameSource,
        identity: Identity,
        memberships: Iterable[Membership],
        framing: Framing,
        headers: Headers = (),
    ) -> "EventStreamResponse":
        """Return a response with the frames of a source. `headers` are sent beside those of the framing."""
        snapshots = [RoleSnapshot(item.session_id, item.principal, item.roles) for item in memberships]
        return EventStreamResponse(self, source, identity, snapshots, framing, headers)

    def check_quota(self, identity: Identity) -> None:
        """Raise `TooManyStreams` if the caller has no stream left, before a request appends anything."""
        if not self.rate_limiter.has_free_stream(identity.principal):
            raise too_many_streams_error()

    @contextmanager
    def count_stream(self, identity: Identity) -> Iterator[None]:
        """Count a long response as one of its caller's streams. Raise `TooManyStreams` if none is left."""
        if not self.rate_limiter.acquire_stream(identity.principal):
            raise too_many_streams_error()
        try:
            yield
        finally:
            self.rate_limiter.release_stream(identity.principal)

    def end_all(self) -> None:
        for stream in self._open_streams:
            stream.end()

    async def drain(self, timeout_s: float) -> None:
        """End all streams spread over a time, so that their readers do not reconnect all at once."""
        now_s = asyncio.get_running_loop().time()
        self._drain_end_s = now_s + timeout_s
        for stream in self._open_streams:
            stream.deadline_s = min(stream.deadline_s, random.uniform(now_s, self._drain_end_s))
        self._end_expired()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._drain_end_s):
                while self._open_streams:
                    await self._changed.wait()

    def on_members_changed(self, record: SessionRecord) -> None:
        """End the streams of members whose roles have changed. Their clients reconnect if they still may."""
        for stream in self._streams_by_session.get(record.session_id, ()):
            for snapshot in stream.role_snapshots:
                if snapshot.session_id == record.session_id and not snapshot.has_same_roles(
                    record.members.get(snapshot.principal.name, ())
                ):
                    stream.end()

    def end_signed_out(self) -> None:
        for stream in self._open_streams:
            if not self._is_still_valid(stream.identity):
                stream.end()

    async def is_still_allowed(self, identity: Identity, role_snapshots: Iterable[RoleSnapshot]) -> bool:
        if not self._is_still_valid(identity):
            return False
        for snapshot in role_snapshots:
            record = await self._access.sessions.log.info(snapshot.session_id)
            if not snapshot.has_same_roles(record.members.get(snapshot.principal.name, ())):
                return False
        return True

    def add(self, stream: "EventStreamResponse", identity: Identity) -> None:
        """Register a stream. It ends at its maximum age, or before when the reader's sign-in expires."""
        # A random age keeps readers that connected together from reconnecting together.
        age_s = self._max_stream_age_s * random.uniform(0.9, 1.0)
        if identity.expires_at_s is not None:
            age_s = min(age_s, max(0.0, identity.expires_at_s - time.time()))
        now_s = asyncio.get_running_loop().time()
        stream.deadline_s = now_s + age_s
        if self._drain_end_s < math.inf:
            stream.deadline_s = min(stream.deadline_s, random.uniform(now_s, max(now_s, self._drain_end_s)))
        self._open_streams[stream] = None
        for snapshot in stream.role_snapshots:
            self._streams_by_session.setdefault(snapshot.session_id, {})[stream] = None
        self.metrics.subscribers += 1
        if self._expiry_timer is None or stream.deadline_s < self._expiry_timer.when():
            self._schedule_expiry(stream.deadline_s)

    def discard(self, stream: "EventStreamResponse") -> None:
        del self._open_streams[stream]
        for session_id in {snapshot.session_id for snapshot in stream.role_snapshots}:
            streams = self._streams_by_session[session_id]
            del streams[stream]
            if not streams:
                del self._streams_by_session[session_id]
        self.metrics.subscribers -= 1
        self._changed.wake()
        if self._expiry_timer is not None and not self._open_streams:
            self._expiry_timer.cancel()
            self._expiry_timer = None

    def _schedule_expiry(self, when_s: float) -> None:
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        self._expiry_timer = asyncio.get_running_loop().call_at(when_s, self._end_expired)

    def _end_expired(self) -> None:
        """End the streams that have reached their deadline.

        All streams share a timer: one for each would take most of a stream's memory.
        """
        now_s = asyncio.get_running_loop().time()
        next_s = math.inf
        for stream in self._open_streams:
            if stream.deadline_s <= now_s:
                stream.end()
            else:
                next_s = min(next_s, stream.deadline_s)
        self._expiry_timer = None
        if next_s < math.inf:
            self._schedule_expiry(max(next_s, now_s + EXPIRY_CHECK_INTERVAL_S))


class EventStreamResponse:
    """One stream, as an ASGI application."""

    __slots__ = (
        "_framing",
        "_headers",
        "_is_disconnected",
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
        framing: Framing,
        headers: Headers,
    ) -> None:
        self._registry = registry
        self._source = source
        self.identity = identity
        self._framing = framing
        self._headers = headers
        self._sent_bytes = 0
        self._is_ended = False
        self._is_disconnected = False
        self.role_snapshots = role_snapshots
        self.deadline_s = math.inf

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        principal = self.identity.principal
        rate_limiter = self._registry.rate_limiter
        if not rate_limiter.acquire_stream(principal):
            await error_response(too_many_streams_error())(scope, receive, send)
            return
        try:
            await send(self._make_start())
            if scope["method"] != "HEAD":
                await self._stream(scope.get(CONNECTION_KEY), receive, send)
        finally:
            rate_limiter.release_stream(principal)
            scope[SENT_BYTES_KEY] = self._sent_bytes
        await send({"type": "http.response.body", "body": b""})

    def _make_start(self) -> Message:
        # Not in the coroutine, whose variables live as long as the stream.
        headers = [*self._framing.headers, *self._headers]
        return {"type": "http.response.start", "status": 200, "headers": headers}

    async def _stream(self, connection: StreamConnection | None, receive: Receive, send: Send) -> None:
        self._task = require_current_task()
        self._registry.add(self, self.identity)
        disconnect_task = self._open_writer(connection, receive, send)
        try:
            # Roles may have changed since the request was authenticated. From here on `on_members_changed`
            # ends this stream.
            if await self._registry.is_still_allowed(self.identity, self.role_snapshots):
                opening = self._framing.encode_opening(random.randint(*RETRY_RANGE_MS))
                if opening:
                    await self._write_and_drain(opening)
                await self._source.deliver(self.write_page)
        except SessionDamaged:
            pass  # the session has a new epoch now: the reader reconnects and gets a reset
        except asyncio.CancelledError:
            if not self._is_ended or self._task.uncancel():
                raise
            if self._framing.cut and not self._is_disconnected:
                await self._write_and_drain(self._framing.cut)
        finally:
            self._is_ended = True  # the task continues, and must not be cancelled for this stream any more
            self._registry.discard(self)
            if disconnect_task is not None:
                disconnect_task.cancel()

    def _open_writer(
        self, connection: StreamConnection | None, receive: Receive, send: Send
    ) -> asyncio.Task[None] | None:
        if connection is not None:
            self._write = connection.write
            connection.on_disconnect(self._on_disconnect)
            return None
        self._write = partial(asgi_write, send)
        disconnect_task = asyncio.create_task(wait_for_disconnect(receive))
        disconnect_task.add_done_callback(lambda _: self._on_disconnect())
        return disconnect_task

    def _on_disconnect(self) -> None:
        self._is_disconnected = True
        self.end()

    def end(self) -> None:
        """Cancel the stream. A stream that has ended stays as it is."""
        if not self._is_ended:
            self._is_ended = True
            self._task.cancel()

    def write_page(self, page: bytes) -> Drain | None:
        """Write a page, or a heartbeat for an empty one. Return how to wait, if it is not all written."""
        self._registry.metrics.count_delivery(len(page))
        body = page or self._framing.heartbeat
        self._sent_bytes += len(body)
        return self._write(body)

    async def _write_and_drain(self, body: bytes) -> None:
        self._sent_bytes += len(body)
        drain = self._write(body)
        if drain is not None:
            await drain()


def too_many_streams_error() -> TooManyStreams:
    return TooManyStreams("too many open streams, close some")


def asgi_write(send: Send, body: bytes) -> Drain:
    return partial(send, {"type": "http.response.body", "body": body, "more_body": True})


def require_current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
