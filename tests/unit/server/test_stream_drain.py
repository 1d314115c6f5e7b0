"""A registry that drains: its streams end within the time, not all at once, and new ones end, too."""

import asyncio
import random

import pytest

from tests.support.limited_session import on_clock
from tests.support.manual_clock import move_on
from tests.unit.log.delegates import until
from turnlog.app import LOCAL
from turnlog.server.auth.credentials import Identity
from turnlog.server.limits import Limits
from turnlog.server.limits.rate_limiter import RateLimiter
from turnlog.server.metrics import Metrics
from turnlog.server.session_access import SessionAccess
from turnlog.server.streaming.frames import Frames
from turnlog.server.streaming.streams import IteratorSource, StreamRegistry
from turnlog.wire.dialects.framing import NATIVE_FRAMING

DRAIN_S = 100.0
STEP_S = DRAIN_S / 20
READERS = 30
GET = {"type": "http", "method": "GET"}


async def silent_pages() -> Frames:
    await asyncio.Event().wait()
    yield b""


class Readers:
    """Streams that are open until the registry ends them."""

    def __init__(self) -> None:
        self.registry = StreamRegistry(SessionAccess(RateLimiter(Limits())), Metrics(), Limits())
        self.tasks: list[asyncio.Task[None]] = []

    async def add(self, count: int) -> None:
        self.tasks += [asyncio.create_task(self._read()) for _ in range(count)]
        await until(lambda: self.registry.metrics.subscribers >= self.open_count)

    async def _read(self) -> None:
        response = self.registry.make_response(
            IteratorSource(silent_pages()), Identity(LOCAL), [], NATIVE_FRAMING
        )
        await response(GET, wait_for_ever, ignore_message)

    @property
    def open_count(self) -> int:
        return sum(not task.done() for task in self.tasks)


async def wait_for_ever() -> dict[str, object]:
    await asyncio.Event().wait()
    return {}


async def ignore_message(message: object) -> None:
    pass


async def settle() -> None:
    for _ in range(10):  # turns of the loop: an end takes three
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def seeded() -> None:
    random.seed(7)


@on_clock
async def test_streams_end_spread_over_the_time_of_a_drain() -> None:
    readers = Readers()
    await readers.add(READERS)
    drain = asyncio.create_task(readers.registry.drain(DRAIN_S))
    await settle()
    counts = [readers.open_count]
    while not drain.done():
        move_on(STEP_S)
        await settle()
        counts.append(readers.open_count)
    assert counts[-1] == 0
    assert len(set(counts)) > 8, counts


@on_clock
async def test_a_stream_that_begins_in_a_drain_ends_with_it() -> None:
    readers = Readers()
    await readers.add(1)
    drain = asyncio.create_task(readers.registry.drain(DRAIN_S))
    await settle()
    await readers.add(3)
    while not drain.done():
        move_on(STEP_S)
        await settle()
    assert readers.open_count == 0


@on_clock
async def test_a_drain_without_streams_takes_no_time() -> None:
    readers = Readers()
    await asyncio.wait_for(readers.registry.drain(DRAIN_S), DRAIN_S)


@on_clock
async def test_without_a_drain_streams_stay_open() -> None:
    """The control: the same time passes."""
    readers = Readers()
    await readers.add(READERS)
    move_on(DRAIN_S)
    await settle()
    assert readers.open_count == READERS
    readers.registry.end_all()
    await asyncio.gather(*readers.tasks)
