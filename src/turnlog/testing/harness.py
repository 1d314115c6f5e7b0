"""A contract, and its harness: a log on the store under test, with a clock that is set by hand."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from turnlog.errors import Conflict, TurnlogError
from turnlog.events import Event
from turnlog.log import Log, Page, Row, SessionRecord, Store

CONTRACT_TIMEOUT_S = 120.0  # a contract takes seconds on a busy machine: a longer one waits in vain

StoreFactory = Callable[[], Store]
E = TypeVar("E", bound=TurnlogError)


@dataclass(frozen=True)
class Contract:
    """One statement about stores, and the code that checks it."""

    number: int
    statement: str
    name: str
    run: Callable[[StoreFactory], Awaitable[None]]

    def check(self, make_store: StoreFactory) -> None:
        """Run the contract against new stores of `make_store`. Raise AssertionError or TimeoutError."""

        async def bounded() -> None:
            async with asyncio.timeout(CONTRACT_TIMEOUT_S):
                await self.run(make_store)

        asyncio.run(bounded())

    def __str__(self) -> str:
        return f"{self.number:02d}-{self.name}"


@dataclass
class LogHarness:
    """A log on the store under test, its one session, and its clock."""

    log: Log
    session: str = "sess_1"
    now_ms: int = 1_767_875_696_000

    async def info(self) -> SessionRecord:
        return await self.log.info(self.session)

    async def append(self, *events: Event, session: str = "", **options: Any) -> list[int]:
        return (await self.log.append(session or self.session, events, **options)).seqs

    async def read_rows(self, after: int = -1, session: str = "", **options: Any) -> list[Row]:
        rows: list[Row] = []
        while page := await self.log.read(session or self.session, after, **options):
            rows += page
            after = page[-1].seq
        return rows

    async def read_seqs(self, after: int = -1, session: str = "", **options: Any) -> list[int]:
        return [row.seq for row in await self.read_rows(after, session, **options)]

    async def follow_until(self, until: int, after: int = -1, **options: Any) -> list[Row]:
        rows: list[Row] = []
        async with open_follower(self.log, self.session, after, **options) as pages:
            async for page in pages:
                rows += page
                if rows and rows[-1].seq >= until:
                    break
        return rows

    async def closing_event(self, key: str) -> Row | None:
        return await self.log.closing_event(self.session, key)

    async def turn_bounds(self, trace: str) -> tuple[int, int | None] | None:
        return await self.log.turn_bounds(self.session, trace)

    async def oldest_open_turn_start(self, at: int) -> int:
        return await self.log.oldest_open_turn_start(self.session, at)

    async def close_session(self) -> None:
        await self.log.close_session(self.session)

    async def prune(self, before_ms: int) -> int:
        return await self.log.prune(self.session, before_ms)

    async def put_blob(self, data: bytes, media_type: str) -> str:
        return await self.log.put_blob(self.session, data, media_type)

    async def put_snapshot(self, name: str, seq: int, body: bytes) -> None:
        await self.log.put_snapshot(self.session, name, seq, body)

    async def snapshot(self, name: str, at: int) -> tuple[int, bytes] | None:
        return await self.log.snapshot(self.session, name, at)

    async def expect_undamaged(self) -> None:
        """Raise AssertionError if the store reports or has recorded a damage."""
        assert await self.log.verify() == []
        assert await self.log.damages() == []


@asynccontextmanager
async def open_harness(make_store: StoreFactory) -> AsyncIterator[LogHarness]:
    """Open a log on a new store with one session. Its clock does not move until it is set."""
    harness = LogHarness(Log(make_store(), lambda: harness.now_ms))
    try:
        if not await harness.log.sessions():
            await harness.log.create("contract", harness.session)
        yield harness
    finally:
        await harness.log.close()


@asynccontextmanager
async def open_follower(
    log: Log, session: str, after: int = -1, **options: Any
) -> AsyncIterator[AsyncIterator[Page]]:
    pages = log.follow(session, after, **options)
    try:
        yield pages
    finally:
        await pages.aclose()


async def expect_raises(error: type[E], work: Awaitable[object]) -> E:
    """Await work and return the error that it raises. Raise AssertionError if it does not."""
    try:
        await work
    except error as refusal:
        return refusal
    raise AssertionError(f"expected {error.__name__}, nothing was raised")


async def expect_conflict(work: Awaitable[object]) -> int:
    """Await work that must raise `Conflict`. Return the last seq that the conflict names."""
    return (await expect_raises(Conflict, work)).last


async def next_seqs(pages: AsyncIterator[Page]) -> list[int]:
    return [row.seq for row in await anext(pages)]
