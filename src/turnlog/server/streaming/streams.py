"""The streams that are open. Each is a response that lasts, read by the task of its request (protocol 7).

A reader is a cursor and holds little else: no task, no timer and no queue of its own. Where the server offers
its connection in the scope (`uvicorn_server.py` does), bytes are written to it by a plain call and it says
when the peer is gone; elsewhere each page is awaited with `send`, and a task waits for the peer to leave. A
stream ends when its client leaves, its time is over, its reader's roles change or the server stops; none of that
touches the session.
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

from turnlog.app import Principal, Seat, Sessions
from turnlog.errors import Damaged
from turnlog.events import SessionMember
from turnlog.events.roles import SERVER_ROLES
from turnlog.log.push import Rest, Take
from turnlog.server.auth.credentials import Known
from turnlog.server.error_responses import refusal
from turnlog.server.limits import Budgets, Limits, TooManyStreams
from turnlog.server.metrics import Metrics
from turnlog.wire import sse

CONNECTION = "turnlog.connection"
SENT_BYTES = "turnlog.bytes"  # where the journal finds what was written past `send`
LOOK_S = 0.25  # how often at most it is looked whose time is over
HEARTBEAT = sse.encode(  # with the fields that every line of `blocks` has (protocol 7.4)
    b'{"type":"heartbeat","agent":"","final":true,"delta":""}', event="heartbeat"
)
RETRY = b"retry: 1000\n\n"
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]

Headers = Iterable[tuple[bytes, bytes]]


class Connection(Protocol):
    """What a server offers for a response that has begun."""

    def write(self, body: bytes) -> Rest | None:
        """Write a part of the body; what is returned is to be called and awaited before the next."""

    def when_lost(self, call: Callable[[], None]) -> None:
        """Call a function once, when the peer is gone."""


class Source(Protocol):
    """What a reader is told."""

    def deliver(self, take: Take) -> Awaitable[None]:
        """Hand page after page on; an empty one is a heartbeat."""


class Pages:
    """Pages as somebody makes them."""

    __slots__ = ("_pages",)

    def __init__(self, pages: AsyncGenerator[bytes, None]) -> None:
        self._pages = pages

    async def deliver(self, take: Take) -> None:
        """Hand them on, each when the one before is out; close their generator whatever ends this."""
        async with aclosing(self._pages) as pages:
            async for page in pages:
                if rest := take(page):
                    await rest()


class Standing(NamedTuple):
    """Somebody's roles in a session, as they were when a stream began."""

    session_id: str
    principal: Principal
    roles: frozenset[str]

    def holds(self, given: Iterable[str]) -> bool:
        """Whether it is the same with the roles that somebody was given there."""
        return frozenset(given) - SERVER_ROLES == self.roles


class Readers:
    """Everybody who reads, and what ends them."""

    def __init__(
        self,
        sessions: Callable[[], Sessions],
        metrics: Metrics,
        budgets: Budgets,
        limits: Limits,
        holds: Callable[[Known], bool] = lambda known: True,
    ) -> None:
        """`holds` says whether what a reader signed in with is still accepted."""
        self._sessions = sessions
        self._holds = holds
        self._life_s = limits.life_s
        self._open: dict[Reader, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.metrics = metrics
        self.budgets = budgets

    def response(
        self, source: Source, known: Known, seats: Iterable[Seat], headers: Headers = HEADERS
    ) -> "Reader":
        """A stream for somebody, as the answer to a request."""
        standings = [Standing(seat.session_id, seat.principal, seat.roles) for seat in seats]
        return Reader(self, source, known, standings, headers)

    def admit(self, known: Known) -> None:
        """Refuse who has no stream left, before anything is done that only a stream would tell of."""
        if not self.budgets.has_stream(known.principal):
            raise too_many()

    @contextmanager
    def counted(self, known: Known) -> Iterator[None]:
        """Count an answer that lasts as one of its reader's streams; refuse who has no stream left."""
        if not self.budgets.open_stream(known.principal):
            raise too_many()
        try:
            yield
        finally:
            self.budgets.close_stream(known.principal)

    def stop(self) -> None:
        """End every stream; readers come back with their cursor."""
        for reader in self._open:
            reader.end()

    def change(self, session_id: str, payload: SessionMember) -> None:
        """Somebody has other roles in a session: their streams end, and they come back if they still may."""
        for reader in self._open:
            for standing in reader.standings:
                changed = (standing.session_id, standing.principal.name) == (session_id, payload.principal)
                if changed and not standing.holds(payload.roles):
                    reader.end()

    def end_signed_out(self) -> None:
        """End the streams whose reader's cookie or token is not accepted any more."""
        for reader in self._open:
            if not self._holds(reader.known):
                reader.end()

    async def hold(self, known: Known, standings: Iterable[Standing]) -> bool:
        """Whether a reader's sign-in and roles are as they were when they were looked up."""
        if not self._holds(known):
            return False
        for one in standings:
            members = (await self._sessions().log.info(one.session_id)).members
            if not one.holds(members.get(one.principal.name, ())):
                return False
        return True

    def add(self, reader: "Reader", known: Known) -> None:
        """One more; it ends when its reader has to show again that it may read."""
        left_s = math.inf if known.until is None else max(0.0, known.until - time.time())
        life_s = min(self._life_s * random.uniform(0.9, 1.0), left_s)  # not all come back at once
        reader.until_s = asyncio.get_running_loop().time() + life_s
        self._open[reader] = None
        self.metrics.subscribers += 1
        if self._timer is None or reader.until_s < self._timer.when():
            self._look_at(reader.until_s)

    def discard(self, reader: "Reader") -> None:
        """One less."""
        del self._open[reader]
        self.metrics.subscribers -= 1
        if self._timer is not None and not self._open:
            self._timer.cancel()
            self._timer = None

    def _look_at(self, when_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when_s, self._look)

    def _look(self) -> None:
        """End those whose time is over. One timer for all: for each it would be most of what they cost."""
        now_s, first_s = asyncio.get_running_loop().time(), math.inf
        for reader in self._open:
            if reader.until_s <= now_s:
                reader.end()
            else:
                first_s = min(first_s, reader.until_s)
        self._timer = None
        if first_s < math.inf:
            self._look_at(max(first_s, now_s + LOOK_S))


class Reader:
    """One stream, an ASGI application as every response is."""

    __slots__ = (
        "_ended", "_headers", "_readers", "_sent_bytes", "_source", "_task", "_write",
        "known", "standings", "until_s",
    )  # fmt: skip

    def __init__(
        self,
        readers: Readers,
        source: Source,
        known: Known,
        standings: Sequence[Standing],
        headers: Headers,
    ) -> None:
        self._readers = readers
        self._source = source
        self.known = known
        self._headers = headers
        self._sent_bytes = 0
        self._ended = False
        self.standings = standings
        self.until_s = math.inf

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        principal, budgets = self.known.principal, self._readers.budgets
        if not budgets.open_stream(principal):
            await refusal(too_many())(scope, receive, send)
            return
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(self._headers)})
            if scope["method"] != "HEAD":  # who asks for the headers alone waits for nothing more
                await self._read(scope.get(CONNECTION), receive, send)
        finally:
            budgets.close_stream(principal)
            scope[SENT_BYTES] = self._sent_bytes
        await send({"type": "http.response.body", "body": b""})

    async def _read(self, connection: Connection | None, receive: Receive, send: Send) -> None:
        """Until there is no more, or somebody ends it."""
        self._task = current_task()
        self._readers.add(self, self.known)
        gone = self._begin(connection, receive, send)
        try:
            if await self._readers.hold(self.known, self.standings):  # from here on `change` tells
                await self._put(RETRY)
                await self._source.deliver(self.take)
        except Damaged:
            pass  # the session has a new epoch now: the reader comes back and is told
        except asyncio.CancelledError:
            if not self._ended or self._task.uncancel():
                raise
        finally:
            self._ended = True  # the task goes on, and is not to be cancelled for this any more
            self._readers.discard(self)
            if gone is not None:
                gone.cancel()

    def _begin(
        self, connection: Connection | None, receive: Receive, send: Send
    ) -> asyncio.Task[None] | None:
        """How it is written, and who says that the peer is gone."""
        if connection is not None:
            self._write = connection.write
            connection.when_lost(self.end)
            return None
        self._write = partial(sending, send)
        gone = asyncio.create_task(left(receive))
        gone.add_done_callback(lambda _: self.end())
        return gone

    def end(self) -> None:
        """End the stream, wherever it stands."""
        if not self._ended:
            self._ended = True
            self._task.cancel()

    def take(self, page: bytes) -> Rest | None:
        """Write a page, at once."""
        self._readers.metrics.delivered(len(page))
        body = page or HEARTBEAT
        self._sent_bytes += len(body)
        return self._write(body)

    async def _put(self, body: bytes) -> None:
        self._sent_bytes += len(body)
        if rest := self._write(body):
            await rest()


def too_many() -> TooManyStreams:
    """What is said to who has no stream left."""
    return TooManyStreams("too many open streams, close some")


def sending(send: Send, body: bytes) -> Rest:
    """A part of the body, where the server offers no connection."""
    return partial(send, {"type": "http.response.body", "body": body, "more_body": True})


def current_task() -> asyncio.Task[Any]:
    """The task that runs this."""
    task = asyncio.current_task()
    assert task is not None
    return task


async def left(receive: Receive) -> None:
    """Return when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
