"""Several sessions on one stream: every id names them all; a resume at any frame gives each event once."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from tests.support.limits import HANG_S
from tests.support.manual_clock import move_on, run_on_clock
from turnlog.errors import SessionDamaged
from turnlog.server.streaming.merged_stream import MergedStream
from turnlog.wire import sse
from turnlog.wire.cursor import Cursor
from turnlog.wire.cursor import parse_cursor as parse_cursor
from turnlog.wire.dialects.framing import Framing

BEAT = sse.encode(b'{"type":"heartbeat"}', event="heartbeat")
CAUGHT_UP = sse.encode(b'{"type":"caught-up"}', event="caught-up")
FRAMING = Framing(heartbeat=BEAT, caught_up=CAUGHT_UP)
LONG_S = 60.0

Frames = AsyncGenerator[bytes, None]


def frame(session: str, seq: int, text: str = "") -> bytes:
    return sse.encode(f"{session}{seq}{text}".encode(), id=f"{seq}:{session}")


async def pages(*data: bytes) -> Frames:
    """Pages that come one after the other, and then an end."""
    for page in data:
        await asyncio.sleep(0)
        yield page


async def silent() -> Frames:
    """A session in which nothing happens."""
    await asyncio.Event().wait()
    yield b""


async def live(queue: "asyncio.Queue[bytes | Exception]") -> Frames:
    """A session in which happens what a test says."""
    while True:
        item = await queue.get()
        if isinstance(item, Exception):
            raise item
        yield item


def played(run: Callable[[], Awaitable[Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(HANG_S):
            return await run()

    return asyncio.run(bounded())


def merged(sources: Sequence[Frames | None], after: Sequence[str] = (), idle_s: float = LONG_S) -> Frames:
    cursors = [parse_cursor(text) for text in after] or [Cursor()] * len(sources)
    return MergedStream(sources, cursors).frames(FRAMING, idle_s)


async def messages(frames: Frames) -> list[sse.ServerSentEvent]:
    decoder = sse.Decoder()
    return [message async for page in frames for message in decoder.feed(page)]


def test_ids_are_the_cursors_of_all_in_the_order_of_the_sessions() -> None:
    async def run() -> None:
        told = await messages(
            merged([pages(frame("a", 0), frame("a", 1)), pages(frame("b", 7))], ["", "6:b"])
        )
        places = {"a": "-1", "b": "6:b"}
        for message in told:
            places[message.data[0]] = f"{message.data[1:]}:{message.data[0]}"
            assert message.id == f"{places['a']},{places['b']}"
        assert sorted(message.data for message in told) == ["a0", "a1", "b7"]

    played(run)


def test_a_page_of_several_events_names_each() -> None:
    async def run() -> None:
        page = frame("a", 0) + frame("a", 1) + b"id: 5:a\n\n"
        decoder = sse.Decoder()
        [data] = [data async for data in merged([pages(page), None], ["", "3:b"])]
        assert [message.id for message in decoder.feed(data)] == ["0:a,3:b", "1:a,3:b"]
        assert decoder.last_id == "5:a,3:b"

    played(run)


def test_only_lines_that_are_ids_are_changed() -> None:
    async def run() -> None:
        [message] = await messages(merged([pages(frame("a", 0, " id: x")), None], ["", "3:b"]))
        assert (message.data, message.id) == ("a0 id: x", "0:a,3:b")

    played(run)


def test_a_resume_at_every_frame_gives_every_event_once() -> None:
    counts = {"a": 4, "b": 3, "c": 5}

    def sources(places: Sequence[str]) -> list[Frames]:
        firsts = [parse_cursor(place).seq + 1 for place in places]
        return [
            pages(*[frame(name, seq) for seq in range(first, count)])
            for (name, count), first in zip(counts.items(), firsts, strict=True)
        ]

    async def run() -> None:
        everything = [f"{name}{seq}" for name, count in counts.items() for seq in range(count)]
        whole = await messages(merged(sources(["-1"] * 3)))
        assert sorted(message.data for message in whole) == everything
        for cut in range(1, len(whole)):
            places = whole[cut - 1].id.split(",")
            rest = await messages(merged(sources(places), places))
            assert sorted([message.data for message in [*whole[:cut], *rest]]) == everything, cut

    played(run)


def test_a_session_that_ends_leaves_the_others() -> None:
    async def run() -> None:
        queue: asyncio.Queue[bytes | Exception] = asyncio.Queue()
        frames = merged([pages(frame("a", 0)), live(queue), None], ["", "", "9:c"])
        assert b"id: 0:a,-1,9:c\n" in await anext(frames)
        queue.put_nowait(frame("b", 0))
        assert b"id: 0:a,0:b,9:c\n" in await anext(frames)
        await frames.aclose()

    played(run)


def test_the_stream_ends_when_all_have_ended() -> None:
    async def run() -> None:
        assert await messages(merged([pages(), None, pages()])) == []

    played(run)


def test_there_is_a_heartbeat_when_all_are_silent() -> None:
    async def run() -> None:
        frames = merged([silent(), silent()], idle_s=0.01)
        assert [await anext(frames) for _ in range(3)] == [b""] * 3
        await frames.aclose()

    played(run)


def test_heartbeats_of_one_are_left_out_and_its_cursor_is_kept() -> None:
    async def run() -> None:
        queue: asyncio.Queue[bytes | Exception] = asyncio.Queue()
        frames = merged([live(queue), silent()])
        for item in (BEAT, b"", BEAT + b"id: 3:a\n\n", frame("a", 4)):
            queue.put_nowait(item)
        assert [await anext(frames) for _ in range(2)] == [
            b"id: 3:a,-1\n\n",
            frame("a", 4).replace(b"4:a", b"4:a,-1"),
        ]
        await frames.aclose()

    played(run)


def test_the_end_of_the_history_is_told_once_when_all_sessions_have_told_theirs() -> None:
    async def run() -> None:
        first: asyncio.Queue[bytes | Exception] = asyncio.Queue()
        second: asyncio.Queue[bytes | Exception] = asyncio.Queue()
        frames = merged([live(first), live(second), None], ["", "", "9:c"])
        first.put_nowait(frame("a", 0) + CAUGHT_UP)
        assert await anext(frames) == frame("a", 0).replace(b"0:a", b"0:a,-1,9:c")
        second.put_nowait(CAUGHT_UP)
        assert await anext(frames) == CAUGHT_UP
        await frames.aclose()

    played(run)


def test_one_that_speaks_keeps_the_heart_of_all_from_beating() -> None:
    async def run() -> None:
        queue: asyncio.Queue[bytes | Exception] = asyncio.Queue()
        frames = merged([live(queue), silent()], idle_s=3600.0)
        for seq in range(20):
            queue.put_nowait(frame("a", seq))
            assert b"data:" in await anext(frames)
            move_on(3000)  # less than the silence after which a heart beats
        beat = asyncio.ensure_future(anext(frames))
        await asyncio.sleep(0)
        assert not beat.done()
        move_on(3600)
        assert await beat == b""
        await frames.aclose()

    run_on_clock(run)


def test_cursors_that_only_move_do_not_hide_the_silence() -> None:
    async def run() -> None:
        async def moving() -> Frames:
            for seq in range(1_000_000):
                await asyncio.sleep(0)
                yield BEAT + f"id: {seq}:a\n\n".encode()

        frames = merged([moving(), silent()], idle_s=0.05)
        seen: list[bytes] = []
        while not seen or seen[-1]:
            seen.append(await anext(frames))
        assert len(seen) > 1
        await frames.aclose()

    played(run)


@pytest.mark.parametrize("fault", [SessionDamaged("sess_a", 0, 1, "lost"), RuntimeError("broken")])
def test_the_fault_of_one_ends_the_stream_and_hangs_nobody(fault: Exception) -> None:
    async def run() -> None:
        closed = asyncio.Event()

        async def other() -> Frames:
            try:
                await asyncio.Event().wait()
                yield b""
            finally:
                closed.set()

        queue: asyncio.Queue[bytes | Exception] = asyncio.Queue()
        frames = merged([live(queue), other()])
        queue.put_nowait(frame("a", 0))
        assert b"a0" in await anext(frames)
        queue.put_nowait(fault)
        with pytest.raises(type(fault)):
            await anext(frames)
        assert closed.is_set()

    played(run)


def test_who_leaves_leaves_nothing_behind() -> None:
    async def run() -> None:
        frames = merged([silent(), silent()])
        reading = asyncio.ensure_future(anext(frames))
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    played(run)
