"""Readers at the live end: what is handed to them, by whom, and what becomes of one that cannot keep up."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from tests.unit.log.delegates import scenario, soon, until
from turnlog.errors import SessionDamaged
from turnlog.log import Log, MemoryStore
from turnlog.log.subscription import Drain
from turnlog.log.tail import MAX_TAIL_ROWS
from turnlog.testing.factories import durable_event, durable_events

SESSION = "sess_1"


class Reader:
    """Takes what comes; while its gate is shut, it has to be waited for."""

    def __init__(self) -> None:
        self.pages: list[bytes] = []
        self.handed: list[bytes] = []  # those that came without a task
        self.gate: asyncio.Event | None = None
        self.waits = 0

    def take(self, data: bytes) -> Drain | None:
        self.pages.append(data)
        if asyncio.current_task() is None:
            self.handed.append(data)
        return None if self.gate is None else partial(self._wait, self.gate)

    async def _wait(self, gate: asyncio.Event) -> None:
        self.waits += 1
        await gate.wait()

    @property
    def seqs(self) -> list[int]:
        lines = b"".join(self.pages).split(b"\n")
        return [int(line[4:].partition(b":")[0]) for line in lines if line.startswith(b"id: ")]


def looking(log: Log) -> int:
    """How many are at the live end."""
    tail = log.tails.get(SESSION)
    return sum(len(waiting.listeners) for waiting in tail.wakeup._idle_groups.values()) if tail else 0


@asynccontextmanager
async def live(log: Log, reader: Reader, **options: float) -> AsyncIterator[asyncio.Task[None]]:
    """A reader at the end of the session."""
    others = looking(log)
    task = asyncio.create_task(log.push_frames(SESSION, reader.take, idle_s=options.get("idle_s")))
    await until(lambda: looking(log) > others)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def opened() -> AsyncIterator[Log]:
    log = Log(MemoryStore())
    await log.create("t", SESSION)
    await log.append(SESSION, durable_events("a", "b"))
    try:
        yield log
    finally:
        await log.close()


@scenario
async def test_history_is_taken_by_the_task_and_what_is_appended_without_it() -> None:
    async with opened() as log:
        reader = Reader()
        async with live(log, reader):
            assert reader.handed == []
            await log.append(SESSION, durable_events("c", "d"))
            await log.append(SESSION, durable_events("e"))
            await until(lambda: reader.seqs == [0, 1, 2, 3, 4])
            assert reader.handed == reader.pages[1:]
        assert log.tails == {}


@scenario
async def test_readers_share_the_bytes_and_what_is_appended_at_once_comes_at_once() -> None:
    async with opened() as log:
        first, second = Reader(), Reader()
        async with live(log, first), live(log, second):
            await asyncio.gather(*[log.append(SESSION, [durable_event(str(number))]) for number in range(32)])
            await until(lambda: second.seqs[-1] == 33)
            assert len(first.handed) == 1
            assert first.handed[0] is second.handed[0]


@scenario
async def test_one_that_must_wait_misses_nothing_and_is_handed_to_again() -> None:
    async with opened() as log:
        reader, other = Reader(), Reader()
        async with live(log, reader), live(log, other):
            reader.gate = asyncio.Event()
            for number in range(MAX_TAIL_ROWS + 10):  # it falls out of the tail, too
                await log.append(SESSION, [durable_event(str(number))])
            await until(lambda: reader.waits == 1)
            assert reader.seqs == [0, 1, 2]
            gate, reader.gate = reader.gate, None
            gate.set()
            await until(lambda: reader.seqs == other.seqs)
            assert reader.seqs == list(range(MAX_TAIL_ROWS + 12))
            before = len(reader.handed)
            await log.append(SESSION, [durable_event("last")])
            await until(lambda: len(reader.handed) == before + 1)


@scenario
async def test_one_that_the_tail_has_outrun_reads_the_store() -> None:
    async with opened() as log:
        reader = Reader()
        async with live(log, reader):
            await log.append(SESSION, durable_events(*range(MAX_TAIL_ROWS + 1)))
            await until(lambda: reader.seqs == list(range(MAX_TAIL_ROWS + 3)))
            assert reader.handed == []


@scenario
async def test_one_that_the_store_has_put_ahead_of_the_tail_hinders_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened() as log:
        publish, held = log._tail_registry.publish, list[Any]()
        first, ahead, late = Reader(), Reader(), Reader()
        async with live(log, first, idle_s=0.01):
            await log.append(SESSION, [durable_event("c")])
            monkeypatch.setattr(log._tail_registry, "publish", lambda *told: held.append(told))
            await log.append(SESSION, [durable_event("d")])
            await log.append(
                SESSION, [durable_event("e")]
            )  # both are in the store, and told of one after the other
            async with live(log, ahead, idle_s=0.01), live(log, late, idle_s=0.01):
                assert ahead.seqs == [0, 1, 2, 3, 4]
                publish(*held[0])
                await until(lambda: first.seqs == [0, 1, 2, 3])
                beats = ahead.pages.count(b"")
                await until(lambda: ahead.pages.count(b"") > beats)
                publish(*held[1])
                await until(lambda: first.seqs == ahead.seqs == late.seqs == [0, 1, 2, 3, 4])


@scenario
async def test_one_whose_tail_knows_of_more_than_it_has_reads_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened() as log:
        reader = Reader()
        async with live(log, reader):
            await log.append(SESSION, [durable_event("c")])
            monkeypatch.setattr(log._tail_registry, "publish", lambda *_: None)
            await log.append(SESSION, [durable_event("d")])
            log.tails[SESSION].catch_up(await log._read_record(SESSION), 0)  # as one who joins does
            await until(lambda: reader.seqs == [0, 1, 2, 3])


@scenario
async def test_silence_is_handed_on_as_nothing() -> None:
    async with opened() as log:
        reader = Reader()
        async with live(log, reader, idle_s=0.01):
            await until(lambda: reader.handed == [b"", b""])
            await log.append(SESSION, [durable_event("c")])
            await until(lambda: reader.seqs == [0, 1, 2])


@scenario
async def test_it_ends_with_the_session_when_everything_was_taken() -> None:
    async with opened() as log:
        reader = Reader()
        async with live(log, reader) as task:
            await log.append(SESSION, [durable_event("c")])
            await log.close_session(SESSION)
            await soon(task)
            assert reader.seqs == [0, 1, 2]


@scenario
async def test_it_ends_when_the_session_has_another_history() -> None:
    async with opened() as log:
        reader = Reader()
        async with live(log, reader) as task:
            log._tail_registry.end(SESSION)
            await soon(task)


@scenario
async def test_an_error_of_one_reader_is_its_own() -> None:
    def broken(data: bytes) -> None:
        raise SessionDamaged(SESSION, 0, 0, "it cannot be told")

    async with opened() as log:
        other = Reader()
        async with live(log, other):
            failing = asyncio.create_task(log.push_frames(SESSION, broken, after=1))
            await until(lambda: looking(log) == 2)
            await log.append(SESSION, [durable_event("c")])
            with pytest.raises(SessionDamaged):
                await soon(failing)
            await log.append(SESSION, [durable_event("d")])
            await until(lambda: other.seqs == [0, 1, 2, 3])


@scenario
async def test_one_that_leaves_while_it_is_handed_something_leaves_quietly() -> None:
    async with opened() as log:
        reader, other = Reader(), Reader()
        async with live(log, reader) as task, live(log, other):
            task.cancel()
            await log.close_session(SESSION)
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled()


@pytest.mark.parametrize("way", ["frames", "deliver"])
def test_who_waits_for_more_holds_on_to_nothing_that_was_sent(way: str) -> None:
    @scenario
    async def run() -> None:
        async with opened() as log:
            reader = Reader()
            task = asyncio.create_task(WAYS[way](log, reader))
            await until(lambda: looking(log) == 1)
            assert reader.seqs == [0, 1]
            sent = reader.pages.pop()
            assert sys.getrefcount(sent) == 2  # this name, and the question
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run()


async def pull(log: Log, reader: Reader) -> None:
    async for page in log.follow_frames(SESSION):
        reader.pages.append(page)
        del page


async def be_handed(log: Log, reader: Reader) -> None:
    await log.push_frames(SESSION, reader.take)


WAYS = {"frames": pull, "deliver": be_handed}
