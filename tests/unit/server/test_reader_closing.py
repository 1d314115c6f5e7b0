"""A stream that ends closes the generators behind it; it leaves none to the garbage collector."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Iterator

import pytest

from tests.unit.log.delegates import scenario
from turnlog.log.subscription import Drain
from turnlog.server.streaming.event_stream import prepend_frame
from turnlog.server.streaming.merged_stream import MergedStream
from turnlog.server.streaming.streams import IteratorSource
from turnlog.server.streaming.turn_response import insert_heartbeats
from turnlog.team.office import encode_heartbeat
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialects.framing import NATIVE_FRAMING


@pytest.fixture(autouse=True)
def _uncollected() -> Iterator[None]:
    """No collector closes what the code forgot to close."""
    gc.disable()
    yield
    gc.enable()


class Source:
    """Pages without end; `closed` says that their generator was closed."""

    def __init__(self) -> None:
        self.closed = False
        self.pages = self._made()  # a reference, as the owner of a stream holds one

    async def _made(self) -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"page"
        finally:
            self.closed = True


async def cut(pages: AsyncGenerator[bytes, None]) -> None:
    """Deliver pages to a reader that is cancelled while a page drains."""
    draining, forever = asyncio.Event(), asyncio.Event()

    async def drain() -> None:
        draining.set()
        await forever.wait()

    def take(page: bytes) -> Drain | None:
        return drain

    reader = asyncio.create_task(IteratorSource(pages).deliver(take))
    await draining.wait()
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)


@scenario
async def test_pages_of_a_reader_that_is_cancelled_are_closed() -> None:
    source = Source()
    await cut(source.pages)
    assert source.closed


@scenario
async def test_pages_behind_a_reset_are_closed() -> None:
    source = Source()
    frames = prepend_frame(b"event: reset\n\n", source.pages)
    await anext(frames)
    await frames.aclose()
    assert not source.closed, "nothing was begun"
    source = Source()
    frames = prepend_frame(b"event: reset\n\n", source.pages)
    await anext(frames)
    await cut(frames)
    assert source.closed


@scenario
async def test_pages_behind_heartbeats_of_a_dialect_are_closed() -> None:
    source = Source()
    await cut(insert_heartbeats(source.pages, encode_heartbeat, "sess_1", 0))
    assert source.closed


@scenario
async def test_pages_of_merged_sessions_are_closed() -> None:
    sources = [Source(), Source()]
    await cut(
        MergedStream([source.pages for source in sources], [Cursor(), Cursor()]).frames(NATIVE_FRAMING, 60.0)
    )
    assert [source.closed for source in sources] == [True, True]
