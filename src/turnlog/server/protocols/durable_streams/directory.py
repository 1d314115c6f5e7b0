"""The streams of all principals: find, create, fork and delete them by path.

A path is an alias of its principal: the id of the session is derived from both, and from the number of
earlier streams under the path, which were deleted or have expired. So a request never reaches the stream of
another principal.

A deleted or expired stream whose forks are all gone is erased: at the DELETE, at the next request for its
path, or by `turnlog prune`. What is left is an empty session that keeps the number. With a fork left, the
data stays, because the fork reads it.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from turnlog.app import Principal
from turnlog.app.session_creation import default_session_id, find_newest_default
from turnlog.errors import BadInput, CallerError, Conflict, LimitReached, NotFound
from turnlog.events import Event, Payload, Scope
from turnlog.ids import new_id, now_ms
from turnlog.log import Log
from turnlog.server.protocols.durable_streams.open_stream import OpenStream
from turnlog.server.protocols.durable_streams.reading import make_readable_stream, read_contents
from turnlog.server.streaming.query import CursorGone
from turnlog.vocabularies import FULL_CATALOG
from turnlog.wire.durable_streams.events import (
    STREAM_APP,
    ForkSource,
    StreamAppend,
    StreamClose,
    StreamCreate,
)
from turnlog.wire.durable_streams.framing import take_prefix
from turnlog.wire.durable_streams.requests import (
    DEFAULT_CONTENT_TYPE,
    CreateRequest,
    ForkRequest,
    media_type_of,
)
from turnlog.wire.durable_streams.state import Outcome, StreamState, plan_delete, plan_fork

MAX_OPEN_STREAMS = 10_000  # whose state is kept in memory, some KiB each


class StreamGone(CursorGone):
    """A stream was deleted, and forks of it are left (410)."""


class StreamConflict(CallerError):
    """A stream that cannot be created under its path, or from its source (409)."""


class StreamKey(NamedTuple):
    """A principal and a path of its choice."""

    principal: Principal
    path: str

    @property
    def text(self) -> str:
        name = self.principal.name
        return f"stream:{len(name)}:{name}:{self.path}"


class FoundStream(NamedTuple):
    """The newest stream under a path, and how many there were before it."""

    number: int
    stream: OpenStream


class StreamDirectory:
    """The streams of one log."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._open: dict[StreamKey, FoundStream] = {}  # the least recently used first

    async def get(self, key: StreamKey) -> OpenStream:
        """Return the stream under a path, with its current state.

        Raise `NotFound` if there is none, `StreamGone` if it was deleted and has forks.
        """
        found = await self._find(key)
        if found is None:
            raise not_found(key)
        await self._check_exists(key, found.stream)
        return found.stream

    def get_open(self, key: StreamKey) -> OpenStream | None:
        """Return a stream whose state is in memory. It may not be current: an append finds that out."""
        found = self._open.get(key)
        return found.stream if found else None

    async def _check_exists(self, key: StreamKey, stream: OpenStream) -> None:
        if not stream.state.is_gone(now_ms()):
            return
        if await self._has_living_fork(stream.state):
            raise StreamGone(f"the stream {key.path[:80]} was deleted, and forks of it are left")
        await self._erase(stream)
        raise not_found(key)

    async def _find(self, key: StreamKey) -> FoundStream | None:
        """Return the newest stream under a path, with its current state; None if there was none."""
        found = self._open.pop(key, None)
        if found is not None:
            self._open[key] = found
            state = await found.stream.refresh()
            if not state.is_gone(now_ms()):
                return found

        number, record = await find_newest_default(self.log, key.text)
        if record is None:
            return None
        # Another request may have opened it meanwhile: two objects would overtake each other's batches.
        found = self._open.get(key)
        if found is None or found.number != number:
            found = FoundStream(number, OpenStream(self.log, record.session_id, key.principal.name))
            self._keep(key, found)
        await found.stream.refresh()
        return found

    def _keep(self, key: StreamKey, found: FoundStream) -> None:
        self._open.pop(key, None)
        self._open[key] = found
        if len(self._open) <= MAX_OPEN_STREAMS:
            return
        oldest = next(iter(self._open))
        dropped = self._open.pop(oldest)
        if dropped.stream.is_busy:
            self._open[oldest] = dropped

    async def _has_living_fork(self, state: StreamState) -> bool:
        """Return whether a fork of a stream, or a fork of a fork, exists."""
        pending = list(state.forks)
        now = now_ms()
        while pending:
            fork = OpenStream(self.log, pending.pop(), "")
            try:
                fork_state = await fork.refresh()
            except NotFound:
                continue  # the source has recorded it, and creating it failed
            if not fork_state.is_gone(now):
                return True
            pending += fork_state.forks
        return False

    # creating

    async def create(
        self,
        key: StreamKey,
        request: CreateRequest,
        first: Payload | None,
        consume_session: Callable[[], None],
    ) -> tuple[OpenStream, bool]:
        """Create a stream and return True with it. One that matches the request is returned with False.

        `first` is its first append. `consume_session` is called before a session is created, and may refuse.
        Raise `StreamConflict` if another stream has the path.
        """
        while True:
            found = await self._find(key)
            number = 0
            if found is not None:
                number = found.number + 1
                state = found.stream.state
                is_gone = state.is_gone(now_ms())
                if is_gone and await self._has_living_fork(state):
                    raise StreamConflict("the stream under this path was deleted, and forks of it are left")
                if is_gone:
                    await self._erase(found.stream)
                else:
                    source_path = source_path_of(request)
                    if not state.matches(request, source_path):
                        raise StreamConflict("another stream has this path, with another configuration")
                    return found.stream, False

            consume_session()
            session_id = default_session_id(key.text, number)
            events = await self._first_events(key, request, first, session_id)
            try:
                await self.log.create(STREAM_APP, session_id, events)
            except Conflict:
                continue  # another request has created it meanwhile
            stream = OpenStream(self.log, session_id, key.principal.name)
            self._keep(key, FoundStream(number, stream))
            await stream.refresh()
            await self._check_inherited(stream)
            return stream, True

    async def _first_events(
        self, key: StreamKey, request: CreateRequest, first: Payload | None, session_id: str
    ) -> list[Event]:
        payloads: list[Payload]
        if request.fork is None:
            content_type = request.content_type or DEFAULT_CONTENT_TYPE
            payloads = [
                StreamCreate(
                    path=key.path,
                    content_type=content_type,
                    ttl_s=request.ttl_s,
                    expires_at=request.expires_at,
                )
            ]
        else:
            payloads = await self._fork_events(key, request, request.fork, session_id)
        if first is not None:
            payloads.append(first)
        if request.closed:
            payloads.append(StreamClose())

        scope = Scope(actor=key.principal.name)
        return [
            FULL_CATALOG.build_event(payload, id=new_id("evt_"), origin="system", scope=scope)
            for payload in payloads
        ]

    # forks

    async def _fork_events(
        self, key: StreamKey, request: CreateRequest, fork: ForkRequest, session_id: str
    ) -> list[Payload]:
        """Return the first events of a fork. The source has recorded it before they are stored."""
        source = await self.get_source(key, fork)
        state = source.state
        content_type = request.content_type or state.content_type
        if media_type_of(content_type) != media_type_of(state.content_type):
            raise StreamConflict("expected the content type of the source")

        position = state.tail if fork.offset is None else fork.offset.position
        if position > state.tail:
            raise BadInput("expected an offset of the source", "Stream-Fork-Offset")
        if fork.offset is not None and fork.offset.tag != state.tag_at(position, source.record.epoch):
            raise BadInput("expected an offset of the source's history", "Stream-Fork-Offset")

        payloads: list[Payload] = []
        if fork.sub_offset:
            payloads.append(await self._take_prefix(source, position, fork.sub_offset))
        decision = await source.run_request(partial(plan_fork, session_id))
        if decision.outcome is Outcome.TOO_MANY_FORKS:
            raise LimitReached("the source has as many forks as a stream may have")
        if decision.outcome is not Outcome.ACCEPTED:
            raise not_found(StreamKey(key.principal, fork.source))

        has_expiry = request.ttl_s is not None or request.expires_at is not None
        create = StreamCreate(
            path=key.path,
            content_type=content_type,
            ttl_s=request.ttl_s if has_expiry else state.ttl_s,
            expires_at=request.expires_at if has_expiry else state.expires_at,
            fork=ForkSource(path=fork.source, position=position, sub_offset=fork.sub_offset),
            inherits=state.parts_until(position, source.session_id, source.record.epoch),
        )
        return [create, *payloads]

    async def _check_inherited(self, stream: OpenStream) -> None:
        """Erase a new fork and raise `StreamConflict` if what it inherits was erased meanwhile."""
        for part in stream.state.inherits:
            if (await self.log.info(part.session_id)).is_erased:
                await self.log.erase(stream.session_id)
                raise StreamConflict("the source was deleted meanwhile")

    async def get_source(self, key: StreamKey, fork: ForkRequest) -> OpenStream:
        """Return the stream that a fork is taken from."""
        try:
            return await self.get(StreamKey(key.principal, fork.source))
        except StreamGone as error:
            raise StreamConflict(str(error)) from None

    async def _take_prefix(self, source: OpenStream, position: int, count: int) -> StreamAppend:
        """Return the first messages or bytes of the append after a position, as an append of the fork."""
        readable = make_readable_stream(source)
        page = await read_contents(self.log, readable, position, max_bytes=1)
        prefix = take_prefix(page.contents[0], readable.format, count) if page.contents else None
        if prefix is None:
            raise BadInput("expected a place in the append after the offset", "Stream-Fork-Sub-Offset")
        return prefix

    # deleting

    async def delete(self, key: StreamKey) -> None:
        stream = await self.get(key)
        decision = await stream.run_request(plan_delete)
        if decision.outcome is not Outcome.ACCEPTED:
            raise not_found(key)
        if not await self._has_living_fork(stream.state):
            await self._erase(stream)

    async def _erase(self, stream: OpenStream) -> None:
        """Erase a stream that is gone and has no fork, then those of its sources that only waited for it."""
        if stream.record.is_erased:
            return
        sources = [part.session_id for part in stream.state.inherits]
        await self.log.erase(stream.session_id)
        for session_id in sources:
            await self.erase_if_gone(session_id)

    async def erase_if_gone(self, session_id: str) -> bool:
        """Erase the stream of a session if it is gone and has no fork. Return whether it was erased."""
        stream = OpenStream(self.log, session_id, "")
        try:
            state = await stream.refresh()
        except NotFound:
            return False  # its first event is damaged
        if stream.record.is_erased or not state.is_gone(now_ms()) or await self._has_living_fork(state):
            return False
        await self._erase(stream)
        return True


def not_found(key: StreamKey) -> NotFound:
    return NotFound(f"no stream {key.path[:80]}")


def source_path_of(request: CreateRequest) -> str | None:
    return request.fork.source if request.fork else None
