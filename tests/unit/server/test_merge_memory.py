"""What a stream of many sessions holds for a reader that has stopped reading: one page of all of them."""

import asyncio
from collections.abc import AsyncGenerator

import turnlog
from tests.support.limits import HANG_S
from turnlog.events import CATALOG, AssistantMessage
from turnlog.log import Log, open_log
from turnlog.log.subscription import NO_PAGE_LOCK, PageLock
from turnlog.server.streaming.merged_stream import MergedStream
from turnlog.server.streaming.projection import DialectProjection
from turnlog.team.office import Office
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialects.base import Dialect
from turnlog.wire.dialects.framing import NATIVE_FRAMING

SESSIONS = 32
TEXT_BYTES = 5_000
EVENTS = 8
ROUNDS = 500  # turns of the event loop, in which readers that may read have read

Frames = AsyncGenerator[bytes, None]


class Pages:
    """Pages that were read and not taken yet."""

    def __init__(self) -> None:
        self.held = 0

    async def count(self, frames: Frames) -> Frames:
        async for page in frames:
            self.held += bool(page)
            yield page
            self.held -= bool(page)


async def make(_: int) -> Dialect:
    return Office()


async def source(log: Log, session: str, dialect: str, gate: PageLock) -> Frames:
    if dialect == "turnlog":
        return log.follow_frames(session, idle_s=60.0, page_lock=gate)
    head = await log.info(session)
    return DialectProjection(log, head, CATALOG, make).frames(Cursor(), 60.0, page_lock=gate)


async def hold(gate: PageLock, dialect: str) -> tuple[int, int]:
    """Read one page of many sessions and stop; return the pages held, and the messages read afterwards."""
    log, pages = await open_log("memory:"), Pages()
    text = AssistantMessage(text="x" * TEXT_BYTES)
    sources: list[Frames] = []
    for _ in range(SESSIONS):
        session = await log.create("t")
        await log.append(session, [turnlog.event(text, origin="model") for _ in range(EVENTS)])
        sources.append(pages.count(await source(log, session, dialect, gate)))
    frames = MergedStream(sources, [Cursor()] * SESSIONS).frames(NATIVE_FRAMING, 60.0)

    messages = (await anext(frames)).count(b"data:")
    for _ in range(ROUNDS):
        await asyncio.sleep(0)
    held = pages.held
    while messages < SESSIONS * EVENTS:
        messages += (await anext(frames)).count(b"data:")

    await frames.aclose()
    await log.close()
    return held, messages


def test_reader_that_stops_holds_one_page_of_all_sessions() -> None:
    for dialect in ("turnlog", "office"):
        held = asyncio.run(asyncio.wait_for(hold(asyncio.Lock(), dialect), HANG_S))
        assert held == (1, SESSIONS * EVENTS)


def test_control_without_a_gate_it_holds_a_page_of_every_session() -> None:
    for dialect in ("turnlog", "office"):
        held, _ = asyncio.run(asyncio.wait_for(hold(NO_PAGE_LOCK, dialect), HANG_S))
        assert held == SESSIONS
