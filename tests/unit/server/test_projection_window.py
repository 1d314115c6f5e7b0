"""What a shared projection holds: bytes within a bound, and one window for all filters."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass

import pytest

import turnlog
from tests.support.limits import HANG_S
from turnlog.events import CATALOG, AssistantMessage, UiMessage
from turnlog.log import Log, open_log
from turnlog.log.filter import EventFilter
from turnlog.log.subscription import MAX_PAGE_BYTES
from turnlog.server.streaming import projection
from turnlog.server.streaming.projection import MAX_WINDOW_BYTES, DialectProjection
from turnlog.team.office import Office
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialects.base import Dialect

TEXT_BYTES = 50_000
Frames = AsyncGenerator[bytes, None]


async def make(_: int) -> Dialect:
    return Office()


@dataclass
class Shared:
    """A session and its projection."""

    log: Log
    session: str
    projection: DialectProjection

    async def say(self, *texts: str) -> None:
        events = [turnlog.event(AssistantMessage(text=text), origin="model") for text in texts]
        await self.log.append(self.session, events)


def run(scenario: Callable[[Shared], Awaitable[None]]) -> None:
    async def whole() -> None:
        log = await open_log("memory:")
        session = await log.create("t")
        await scenario(Shared(log, session, DialectProjection(log, await log.info(session), CATALOG, make)))
        await log.close()

    asyncio.run(asyncio.wait_for(whole(), HANG_S))


async def read_until(frames: Frames, text: str) -> bytes:
    """Read until a text has come."""
    read = b""
    while text.encode() not in read:
        read += await anext(frames)
    return read


async def hold_much(at: Shared) -> int:
    """Have a reader follow 5 MB of large frames; return the most that the window held."""
    frames = at.projection.frames(Cursor(), 0.01)
    assert await anext(frames) == b""
    most = 0
    for number in range(100):
        await at.say(f"<{number}>" + "x" * TEXT_BYTES)
        await read_until(frames, f"<{number}>")
        most = max(most, at.projection.window_bytes)
    await frames.aclose()
    return most


def test_window_of_large_frames_holds_at_most_its_bytes_and_a_page() -> None:
    async def scenario(at: Shared) -> None:
        assert TEXT_BYTES < await hold_much(at) <= MAX_WINDOW_BYTES + MAX_PAGE_BYTES
        assert at.projection.window_bytes == 0, "nothing is held without a reader"

    run(scenario)


def test_control_window_without_a_bound_holds_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(at: Shared) -> None:
        monkeypatch.setattr(projection, "MAX_WINDOW_BYTES", 1 << 40)
        assert await hold_much(at) >= 100 * TEXT_BYTES

    run(scenario)


def test_reader_that_fell_out_of_the_window_gets_every_frame_once() -> None:
    async def scenario(at: Shared) -> None:
        live, slow = at.projection.frames(Cursor(), 0.01), at.projection.frames(Cursor(), 0.01)
        assert (await anext(live), await anext(slow)) == (b"", b"")
        read = b""
        for number in range(60):
            await at.say(f"<{number}>" + "x" * TEXT_BYTES)
            read += await read_until(live, f"<{number}>")
        assert await read_until(slow, "<59>") == read
        for frames in (live, slow):
            await frames.aclose()

    run(scenario)


def test_filters_choose_among_the_frames_of_one_projection() -> None:
    async def scenario(at: Shared) -> None:
        whole = at.projection.frames(Cursor(), 0.01)
        chosen = at.projection.frames(Cursor(), 0.01, EventFilter(types=("ui",)))
        assert (await anext(whole), await anext(chosen)) == (b"", b"")
        await at.say("<a>", "<b>")
        await at.log.append(at.session, [turnlog.event(UiMessage(text="mine"), origin="ui")])
        everything, wanted = await read_until(whole, "mine"), await read_until(chosen, "mine")
        assert wanted in everything
        assert b"<a>" in everything
        assert b"<a>" not in wanted
        assert at.projection.converted_count == 3, "each event is converted once"
        for frames in (whole, chosen):
            await frames.aclose()

    run(scenario)


def test_reader_whose_filter_passes_everything_over_is_told_where_it_is() -> None:
    async def scenario(at: Shared) -> None:
        frames = at.projection.frames(Cursor(), 0.01, EventFilter(types=("nothing",)))
        await at.say("a", "b")
        read = await read_until(frames, "id: ")
        assert b"data:" not in read
        assert read.startswith(b"id: 1:")
        await frames.aclose()

    run(scenario)
