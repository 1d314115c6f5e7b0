"""A projection whose first rows take longer than a silence: the reader's cursor waits for them."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from tests.scale.test_reconnect import DELTAS, turn
from tests.unit.log.delegates import scenario, soon
from turnlog.events import CATALOG
from turnlog.log import Log, MemoryStore
from turnlog.log.records import Page
from turnlog.server.streaming.projection import DialectProjection
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialects.base import Dialect
from turnlog.wire.dialects.blocks import Blocks


class Held(Log):
    """A log whose followers wait for their first page until they may go on."""

    may_go_on: asyncio.Event

    async def follow(self, *args: Any, **options: Any) -> AsyncGenerator[Page, None]:
        await self.may_go_on.wait()
        async for page in super().follow(*args, **options):
            yield page


async def make(_: int) -> Dialect:
    return Blocks()


@scenario
async def test_projection_silent_before_its_first_rows_moves_no_cursor_and_skips_nothing() -> None:
    log = Held(MemoryStore())
    log.may_go_on = asyncio.Event()
    session = await log.create("t")
    last = (await log.append(session, list(turn(1)))).seqs[-1]
    head = await log.info(session)
    frames = DialectProjection(log, head, CATALOG, make).frames(Cursor(0, head.epoch), 0.001)
    received = b""
    while page := await soon(anext(frames)):  # what the reader gets for itself, and then a silence
        received += page
    assert received.count(b"id: ") == received.count(b"data: "), "no id passes over the rows to come"
    log.may_go_on.set()
    while f"id: {Cursor(last, head.epoch)}\n".encode() not in received:
        received += await soon(anext(frames))
    assert received.count(b"data: ") == DELTAS
    await frames.aclose()
    await log.close()
