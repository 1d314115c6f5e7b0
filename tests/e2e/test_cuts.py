"""A stream of agents that talk at once, cut at every byte, in dialects and filters (protocol section 7)."""

import asyncio
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.e2e.harness import Dechunker, Reader, Server, kind, running
from tests.e2e.streams import WISHES, Told, Wish, finish, keep_reading, log_lines, place, told_by
from turnlog.wire.sse import Decoder, ServerSentEvent

STEPS = ((11, 97, 4999), (613, 2003), (1201, 7, 3001))  # bytes between cuts; one of each gets past any frame


@dataclass
class Taken:
    """A stream as it came, byte by byte, and what it said."""

    wish: Wish
    reader: Reader
    raw: bytes = b""
    messages: list[ServerSentEvent] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self) -> None:
        decoder, dechunker = Decoder(), Dechunker()
        async for piece in self.reader.pieces():
            self.raw += piece
            self.messages += decoder.feed(dechunker.feed(piece))
            self.news.set()

    @property
    def is_live(self) -> bool:
        """Whether the server follows the log for this reader, and what happens now comes as it happens."""
        if self.wish.dialect == "turnlog":
            return any(message.event == "caught-up" for message in self.messages)
        return bool(self.raw)  # the other dialects replay everything, live events too

    async def until(self, holds: Any) -> None:
        while not holds():
            await self.news.wait()
            self.news.clear()


@dataclass
class Turn:
    """A turn that was read while it happened."""

    server: Server
    session: str
    lines: list[bytes]
    taken: dict[Wish, Taken]
    cut: list[tuple[Wish, Reader]]


async def live_turn(server: Server) -> Turn:
    """One turn: taken whole by a reader of each kind, and by others that are cut all the time."""
    session = server.session()
    taken = {wish: Taken(wish, Reader(server, session, wish.query)) for wish in WISHES}
    cut = [(wish, Reader(server, session, wish.query)) for wish in WISHES for _ in STEPS]
    tasks = [asyncio.create_task(stream.take()) for stream in taken.values()]
    for stream in taken.values():
        await stream.until(lambda stream=stream: stream.is_live)
    for (_, reader), steps in zip(cut, itertools.cycle(STEPS)):
        tasks.append(asyncio.create_task(keep_reading(reader, itertools.cycle(steps))))
    server.send(session, "Go and look")
    assert await Reader(server, session).read(kind("agent.end", "Lead"))
    lines = await asyncio.to_thread(log_lines, server, session)
    for wish, stream in taken.items():
        last = wish.expected(lines)[-1][0]
        await stream.until(
            lambda stream=stream, last=last: stream.messages and place(stream.messages[-1].id) == last
        )
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for wish, reader in cut:
        await finish(reader, wish.expected(lines)[-1][0])
    return Turn(server, session, lines, taken, cut)


@pytest.fixture(scope="module")
def turn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Turn]:
    with running("tests.e2e.stream_apps:duo", tmp_path_factory.mktemp("cuts")) as server:
        yield asyncio.run(live_turn(server))


def test_the_turn_is_long_enough_and_its_agents_talk_at_once(turn: Turn) -> None:
    events = [json.loads(line) for line in turn.lines]
    assert len([event for event in events if event["type"] != "block.delta"]) >= 40
    open_at_once, most = set[str](), 0
    for event in events:
        if event["type"] in ("block.start", "block.end") and event["depth"]:
            change = open_at_once.add if event["type"] == "block.start" else open_at_once.discard
            change(event["payload"]["block_id"])
            most = max(most, len(open_at_once))
    assert most == 2
    assert sum(event["type"] == "tool.call" for event in events) >= 5


@pytest.mark.parametrize("wish", WISHES, ids=str)
def test_whoever_is_there_is_told_everything_as_it_happens(turn: Turn, wish: Wish) -> None:
    assert told_by(turn.taken[wish].messages) == wish.expected(turn.lines)


def replayed(lines: list[bytes], told: list[Told], cursor: int) -> list[Told]:
    """What a `turnlog` reader is told after a cursor once all is over: no deltas of later blocks."""
    events = {str(event["seq"]): event for event in map(json.loads, lines)}
    began = {
        event["payload"]["block_id"]: event["seq"]
        for event in events.values()
        if event["type"] == "block.start"
    }

    def comes(seq: str) -> bool:
        event = events[seq]
        skipped = event["type"] == "block.delta" and began[event["payload"]["block_id"]] > cursor
        return event["seq"] > cursor and not skipped

    return [item for item in told if comes(item[0])]


async def resumed(turn: Turn, wish: Wish, last_id: str) -> list[Told]:
    """What a reader is told after the last id it has seen, over a new connection."""
    reader = Reader(turn.server, turn.session, wish.query, last_id=last_id)
    await finish(reader, wish.expected(turn.lines)[-1][0])
    return told_by(reader.messages)


async def all_resumed(turn: Turn, wish: Wish) -> dict[str, list[Told]]:
    ids = ["", *dict.fromkeys(message.id for message in turn.taken[wish].messages)]
    return {last_id: await resumed(turn, wish, last_id) for last_id in ids}


@pytest.mark.parametrize("wish", WISHES, ids=str)
def test_a_stream_cut_at_every_byte_goes_on_where_it_was(turn: Turn, wish: Wish) -> None:
    whole = wish.expected(turn.lines)
    after = asyncio.run(all_resumed(turn, wish))
    decoder, dechunker, seen = Decoder(), Dechunker(), list[ServerSentEvent]()
    checked = -1
    for position in range(len(turn.taken[wish].raw)):
        messages = decoder.feed(dechunker.feed(turn.taken[wish].raw[position : position + 1]))
        seen += [message for message in messages if message.event != "caught-up"]
        if len(seen) == checked:
            continue  # the byte has completed nothing: the cut is the same as the one before
        checked = len(seen)
        before, last_id = told_by(seen), seen[-1].id if seen else ""
        wish.check(before + after[last_id], whole)
        if wish.dialect == "turnlog":
            cursor = int(place(last_id) or -1)
            assert after[last_id] == replayed(turn.lines, whole, cursor), f"after {last_id}"
    assert checked == len(whole)


def test_readers_that_are_cut_while_it_happens_miss_nothing_and_get_nothing_twice(turn: Turn) -> None:
    for wish, reader in turn.cut:
        wish.check(told_by(reader.messages), wish.expected(turn.lines))


@pytest.mark.parametrize("wish", WISHES, ids=str)
def test_the_check_itself_sees_what_is_missing_doubled_or_out_of_order(turn: Turn, wish: Wish) -> None:
    whole = wish.expected(turn.lines)
    wish.check(whole, whole)
    for wrong in (whole[:-1], whole[1:], [*whole, whole[-1]], [whole[1], whole[0], *whole[2:]]):
        with pytest.raises(AssertionError):
            wish.check(wrong, whole)
