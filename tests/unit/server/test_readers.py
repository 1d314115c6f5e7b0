"""Streams: how they are written, what ends them, and that nothing of them is left."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import ASGIApp, Message

from tests.unit.log.delegates import scenario, soon, until
from turnlog import App
from turnlog.agents import Agent
from turnlog.agents.models.scripted import Scripted
from turnlog.app import LOCAL, Membership, Principal, Sessions
from turnlog.errors import SessionDamaged
from turnlog.events import SessionMember
from turnlog.log import Log, MemoryStore
from turnlog.log.append import apply_to_record
from turnlog.log.subscription import Drain
from turnlog.server.access_log import AccessLogMiddleware
from turnlog.server.auth.credentials import Identity
from turnlog.server.limits import Limits
from turnlog.server.limits.rate_limiter import RateLimiter
from turnlog.server.metrics import Metrics
from turnlog.server.scope_keys import CONNECTION_KEY, SENT_BYTES_KEY
from turnlog.server.session_access import SessionAccess
from turnlog.server.streaming import streams
from turnlog.server.streaming.streams import IteratorSource, StreamRegistry
from turnlog.wire.dialects.framing import NATIVE_FRAMING

RETRY_MS = 700
OPENING = NATIVE_FRAMING.encode_opening(RETRY_MS)
APP = App("t", Agent("Nobody", "Nobody is asked.", Scripted(lambda _: [])))
EVE = Principal("eve", frozenset({"operator"}))


@pytest.fixture(autouse=True)
def fixed_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reader is told to reconnect after the same time."""
    monkeypatch.setattr(streams, "RETRY_RANGE_MS", (RETRY_MS, RETRY_MS))


def as_it_is(application: ASGIApp) -> ASGIApp:
    """Nothing around it."""
    return application


class Line:
    """A connection: what was written to it, and its peer, which may be slow and may go."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.room = asyncio.Event()
        self.room.set()
        self.lost: Callable[[], None] = self.room.set

    def write(self, body: bytes) -> Drain | None:
        self.written.append(body)
        return None if self.room.is_set() else self._wait

    async def _wait(self) -> None:
        await self.room.wait()

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        self.lost = callback


class Stream:
    """A response that is read, over a connection or not."""

    def __init__(
        self,
        readers: StreamRegistry,
        seat: Membership,
        known: Identity,
        line: Line | None,
        around: Callable[[ASGIApp], ASGIApp],
    ) -> None:
        self.record = seat.record
        self.pages: asyncio.Queue[bytes | Exception] = asyncio.Queue()
        self.sent: list[Message] = []
        self.gone = asyncio.Event()
        self.scope: dict[str, Any] = {"type": "http", "method": "GET", "headers": []}
        self.scope |= {CONNECTION_KEY: line} if line else {}
        self.response = readers.make_response(IteratorSource(self._made()), known, [seat], NATIVE_FRAMING)
        self.task = asyncio.create_task(self._run(around(self.response)))

    async def _run(self, application: ASGIApp) -> str:
        await application(self.scope, self._receive, self._send)
        await asyncio.sleep(0)  # a server has more to do in this task
        return "ended"

    async def _made(self) -> AsyncGenerator[bytes, None]:
        while True:
            page = await self.pages.get()
            if isinstance(page, Exception):
                raise page
            yield page

    async def _receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.sent[1:]]


class Room:
    """A session, and who reads it."""

    def __init__(self, sessions: Sessions, seat: Membership, limits: Limits) -> None:
        self.metrics = Metrics()
        self.budgets = RateLimiter(limits)
        access = SessionAccess(self.budgets)
        access.set_sessions(sessions)
        self.readers = StreamRegistry(access, self.metrics, limits)
        self._seat = seat

    async def stream(
        self,
        known: Identity = Identity(LOCAL),  # noqa: B008
        line: Line | None = None,
        around: Callable[[ASGIApp], ASGIApp] = as_it_is,
    ) -> Stream:
        """A stream that has begun."""
        before = self.metrics.subscribers
        stream = Stream(self.readers, self._seat, known, line, around)
        await until(lambda: self.metrics.subscribers > before or stream.task.done())
        return stream

    @property
    def left(self) -> tuple[int, dict[str, int], object, object]:
        """What is there when nobody reads."""
        return (
            self.metrics.subscribers,
            self.budgets._streams,
            self.readers._open_streams,
            self.readers._expiry_timer,
        )


NOTHING: tuple[int, dict[str, int], object, object] = (0, {}, {}, None)


@asynccontextmanager
async def room(**limits: Any) -> AsyncIterator[Room]:
    log = Log(MemoryStore())
    sessions = Sessions(log, [APP], 1)
    try:
        yield Room(sessions, await sessions.create(LOCAL), Limits(**limits))
    finally:
        await sessions.close()
        await log.close()


@scenario
async def test_pages_are_written_to_the_connection_and_counted() -> None:
    async with room() as at:
        line = Line()
        stream = await at.stream(line=line)
        for page in (b"one", b"", b"three"):
            stream.pages.put_nowait(page)
        await until(lambda: len(line.written) == 4)
        line.lost()
        assert await soon(stream.task) == "ended"
        assert line.written == [OPENING, b"one", NATIVE_FRAMING.heartbeat, b"three"]
        assert [message["type"] for message in stream.sent] == ["http.response.start", "http.response.body"]
        assert stream.bodies == [b""]
        assert stream.scope[SENT_BYTES_KEY] == len(b"".join(line.written))
        assert (at.metrics.deliveries, at.metrics.delivered_bytes) == (3, len(b"onethree"))
        assert at.left == NOTHING


@scenario
async def test_where_no_connection_is_offered_every_page_is_sent() -> None:
    async with room() as at:
        stream = await at.stream()
        for page in (b"one", b"", b"three"):
            stream.pages.put_nowait(page)
        await until(lambda: len(stream.sent) == 5)
        assert [message["more_body"] for message in stream.sent[1:]] == [True] * 4
        stream.gone.set()
        assert await soon(stream.task) == "ended"
        assert stream.bodies == [OPENING, b"one", NATIVE_FRAMING.heartbeat, b"three", b""]
        assert stream.scope[SENT_BYTES_KEY] == len(b"".join(stream.bodies))
        assert at.left == NOTHING


@pytest.mark.parametrize("make", [lambda: None, Line], ids=["send", "connection"])
def test_the_journal_knows_what_was_sent(
    make: Callable[[], Line | None], caplog: pytest.LogCaptureFixture
) -> None:
    @scenario
    async def run() -> None:
        async with room() as at:
            stream = await at.stream(line=make(), around=AccessLogMiddleware)
            stream.pages.put_nowait(b"one")
            await until(lambda: at.metrics.deliveries == 1)
            stream.response.end()
            await soon(stream.task)

    caplog.set_level("INFO", "turnlog.server")
    run()
    [line] = [vars(record) for record in caplog.records if record.message == "request"]
    assert (line["status"], line["bytes"]) == (200, len(OPENING + b"one"))


@scenario
async def test_a_slow_peer_is_waited_for_and_can_be_ended() -> None:
    async with room() as at:
        line = Line()
        stream = await at.stream(line=line)
        await until(lambda: line.written == [OPENING])
        line.room.clear()
        for page in (b"one", b"two"):
            stream.pages.put_nowait(page)
        await until(lambda: b"one" in line.written)
        assert stream.pages.qsize() == 1
        at.readers.end_all()
        assert await soon(stream.task) == "ended"
        assert b"two" not in line.written


@pytest.mark.parametrize("make", [lambda: None, Line], ids=["send", "connection"])
def test_a_stream_that_has_ended_cancels_nobody(make: Callable[[], Line | None]) -> None:
    @scenario
    async def run() -> None:
        async with room() as at:
            stream = await at.stream(line=make())
            stream.pages.put_nowait(SessionDamaged("sess_1", 0, 0, "it cannot be told"))
            await until(lambda: stream.bodies[-1:] == [b""])
            stream.response.end()
            assert await soon(stream.task) == "ended"
            assert at.left == NOTHING

    run()


@scenario
async def test_whoever_else_cancels_the_task_is_not_ignored() -> None:
    async with room() as at:
        first, second = await at.stream(line=Line()), await at.stream(line=Line())
        second.response.end()
        for stream in (first, second):
            stream.task.cancel()
        await asyncio.wait({first.task, second.task})
        assert first.task.cancelled()
        assert second.task.cancelled()
        assert at.left == NOTHING


@scenario
async def test_an_error_of_the_source_is_not_hidden() -> None:
    async with room() as at:
        stream = await at.stream(line=Line())
        stream.pages.put_nowait(ValueError("a bug"))
        with pytest.raises(ValueError, match="a bug"):
            await soon(stream.task)
        assert at.left == NOTHING


@scenario
async def test_one_too_many_is_refused_and_the_others_stay() -> None:
    async with room(program_streams=1) as at:
        first = await at.stream(line=Line())
        second = await at.stream(line=Line())
        assert await soon(second.task) == "ended"
        assert second.sent[0]["status"] == 429
        assert not first.task.done()
        first.gone.set()
        first.response.end()
        await soon(first.task)
        third = await at.stream()
        assert third.sent[0]["status"] == 200
        third.gone.set()
        await soon(third.task)


@scenario
async def test_each_ends_in_its_time_and_one_timer_is_enough() -> None:
    async with room(max_stream_age_s=60.0) as at:
        now = time.time()
        long = await at.stream()
        soon_over = [await at.stream(Identity(LOCAL, now + 0.1 + number / 100)) for number in range(5)]
        over = await at.stream(Identity(LOCAL, now - 1))
        for stream in (over, *soon_over):
            assert await soon(stream.task) == "ended"
        assert not long.task.done()
        assert at.readers._expiry_timer is not None
        at.readers.end_all()
        await soon(long.task)
        assert at.left == NOTHING


@scenario
async def test_streams_do_not_all_end_at_once() -> None:
    # The clock stands at 0: a later time fires the guard of `scenario` on a freshly booted machine.
    asyncio.get_running_loop().time = lambda: 0.0  # type: ignore[method-assign]
    async with room(max_stream_age_s=600.0) as at:
        streams = [await at.stream() for _ in range(20)]
        ends = [stream.response.deadline_s for stream in streams]
        assert 530 < min(ends) < max(ends) <= 600
        assert max(ends) - min(ends) > 1
        at.readers.end_all()
        for stream in streams:
            await soon(stream.task)


@pytest.mark.parametrize(
    ("name", "roles", "ends"),
    [("local", ("guest",), True), ("local", ("owner",), False), ("eve", ("guest",), False)],
)
def test_roles_that_change_end_the_streams_of_whose_they_are(
    name: str, roles: tuple[str, ...], ends: bool
) -> None:
    @scenario
    async def run() -> None:
        async with room() as at:
            stream = await at.stream(line=Line())
            session_id = stream.record.session_id
            for session, told in (("sess_other", False), (session_id, ends)):
                record = stream.record.replace(session_id=session)
                change = SessionMember(principal=name, roles=roles)
                at.readers.on_members_changed(apply_to_record(record, change, "local", 1))
                assert stream.response._is_ended == told
            stream.response.end()
            await soon(stream.task)

    run()
