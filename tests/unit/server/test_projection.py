"""A projection that lost its last reader serves whoever comes next, also one that already held it."""

import asyncio

import pytest

import turnlog
from tests.support.limits import HANG_S
from turnlog.events import CATALOG, AssistantMessage, Envelope, Payload, UnknownPayload
from turnlog.log import open_log
from turnlog.server.streaming.projection import DialectProjection
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialects.base import Dialect
from turnlog.wire.dialects.blocks import Blocks


async def make(_: int) -> Dialect:
    return Blocks()


class Faulty(Blocks):
    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        raise ValueError


def test_a_dialect_that_fails_ends_its_readers_instead_of_keeping_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def faulty(_: int) -> Dialect:
        return Faulty()

    async def run() -> list[bytes]:
        log = await open_log("memory:")
        session = await log.create("t")
        frames = DialectProjection(log, await log.info(session), CATALOG, faulty).frames(Cursor(), 0.01)
        assert await anext(frames) == b""
        await log.append(session, [turnlog.event(AssistantMessage(text="hello"), origin="model")])
        pages = [page async for page in frames if page]
        await log.close()
        return pages

    assert asyncio.run(asyncio.wait_for(run(), HANG_S)) == []
    [told] = [vars(record) for record in caplog.records if record.name == "turnlog.server"]
    assert told["exception"].endswith("builtins.ValueError\n")


def test_a_reader_that_begins_after_the_last_one_left_is_served() -> None:
    async def run() -> bytes:
        log = await open_log("memory:")
        session = await log.create("t")
        projection = DialectProjection(log, await log.info(session), CATALOG, make)
        first, second = projection.frames(Cursor(), 0.01), projection.frames(Cursor(), 0.01)
        assert await anext(first) == b""
        await first.aclose()
        assert projection.reader_count == 0
        assert await anext(second) == b""
        await log.append(session, [turnlog.event(AssistantMessage(text="hello"), origin="model")])
        while not (page := await anext(second)):
            pass
        await second.aclose()
        await log.close()
        return page

    page = asyncio.run(asyncio.wait_for(run(), HANG_S))
    assert b'"delta":"hello"' in page


def test_what_was_ready_is_let_go_of_with_the_last_reader_and_made_again_for_the_next() -> None:
    async def run() -> None:
        log = await open_log("memory:")
        session = await log.create("t")
        projection = DialectProjection(log, await log.info(session), CATALOG, make)
        read = list[bytes]()
        for text in ("a", "b"):
            frames = projection.frames(Cursor(), 0.01)
            await log.append(session, [turnlog.event(AssistantMessage(text=text), origin="model")])
            read.append(b"")
            while f'"delta":"{text}"'.encode() not in read[-1]:
                read[-1] += await anext(frames)
            await frames.aclose()
            assert not projection._window
        assert read[1].startswith(read[0])
        await log.close()

    asyncio.run(asyncio.wait_for(run(), HANG_S))
