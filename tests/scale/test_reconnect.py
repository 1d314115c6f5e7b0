"""A reconnect converts only the turn that is open, however long the log is (protocol section 7): counted.

`tests/soak/test_growth.py` has the same after 100,000 events.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import turnlog
from tests.support.limits import HANG_S
from turnlog import events as ev
from turnlog.log import Log, SessionRecord, open_log
from turnlog.server.streaming.projection import DialectProjection
from turnlog.wire import sse
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialects.base import Dialect
from turnlog.wire.dialects.blocks import Blocks

TURNS, DELTAS = 100, 95  # a turn has five events more
BATCH = 5_000


class Counted(Blocks):
    """The dialect, which counts what it converts."""

    converted = 0

    def convert(self, envelope: ev.Envelope, payload: ev.Payload | ev.UnknownPayload) -> list[bytes]:
        type(self).converted += 1
        return super().convert(envelope, payload)


def turn(number: int) -> Iterator[ev.Event]:
    """A turn that goes on: an agent in the middle of a text."""
    at = ev.Scope(trace_id=f"tr_{number}", agent_id=f"agt_{number}", depth=0)
    payloads: list[ev.Payload] = [
        ev.AgentStart(name="Guide", via="prompt", prompt="Hello"),
        ev.BlockStart(block_id=f"blk_{number}", kind="text"),
        *(ev.BlockDelta(block_id=f"blk_{number}", text=f"{at} ") for at in range(DELTAS)),
    ]
    for payload in payloads:
        origin: ev.Origin = "system" if isinstance(payload, ev.AgentStart) else "model"
        yield turnlog.event(payload, origin=origin, scope=at)


def ended(number: int) -> Iterator[ev.Event]:
    """A whole turn."""
    *begun, last = turn(number)
    text = "".join(f"{at} " for at in range(DELTAS))
    yield from (*begun, last)
    yield turnlog.event(
        ev.BlockEnd(block_id=f"blk_{number}", status="complete"), origin="model", scope=last.scope
    )
    yield turnlog.event(
        ev.AssistantMessage(text=text, block_id=f"blk_{number}"), origin="model", scope=last.scope
    )
    yield turnlog.event(ev.AgentEnd(stop_reason="end_turn"), origin="system", scope=last.scope)


@asynccontextmanager
async def filled(path: Path, turns: int) -> AsyncIterator[tuple[Log, SessionRecord]]:
    """A log with finished turns, and one turn that goes on."""
    log = await open_log(f"sqlite:///{path / 'log.db'}")
    session = await log.create("t")
    events = [event for number in range(turns) for event in ended(number)]
    for start in range(0, len(events), BATCH):
        await log.append(session, events[start : start + BATCH])
    await log.append(session, list(turn(turns)))
    try:
        yield log, await log.info(session)
    finally:
        await log.close()


async def resumed(log: Log, head: SessionRecord, at: Cursor, last: int) -> tuple[list[str], int]:
    """The ids a reader gets from a cursor up to a seq, and how many events were converted for it."""

    async def make(_: int) -> Dialect:
        return Counted()

    Counted.converted = 0
    projection = DialectProjection(log, head, ev.CATALOG, make)
    frames, decoder, ids = projection.frames(at, HANG_S), sse.Decoder(), list[str]()
    async for page in frames:
        messages = decoder.feed(page)
        assert all(json.loads(message.data) for message in messages)
        ids += [message.id for message in messages]
        if ids and ids[-1] == f"{last}:{head.epoch}":
            break
    await frames.aclose()
    assert projection.converted_count == Counted.converted
    return ids, Counted.converted


def reconnect(path: Path, turns: int) -> None:
    """Check what is converted for readers who come back to a log of so many turns."""

    async def run() -> None:
        async with filled(path, turns) as (log, head):
            size, first = DELTAS + 2, turns * (DELTAS + 5)
            assert head.last == first + size - 1
            ids, converted = await resumed(log, head, Cursor(head.last - 9, head.epoch), head.last)
            assert ids == [f"{seq}:{head.epoch}" for seq in range(head.last - 8, head.last + 1)]
            assert size <= converted <= 2 * size, "once for the reader, once for all who come after"
            ids, converted = await resumed(log, head, Cursor(first + 3, head.epoch, 0), head.last)
            assert ids[0] == f"{first + 4}:{head.epoch}"
            assert converted <= 2 * size
            back = 10 * (DELTAS + 5)
            _, converted = await resumed(log, head, Cursor(first - back - 1, head.epoch), head.last)
            assert back < converted <= back + 2 * size + 256, "the count sees a reader that is further behind"

    asyncio.run(run())


def test_a_reconnect_after_10_000_events_converts_only_the_open_turn(tmp_path: Path) -> None:
    reconnect(tmp_path, TURNS)
