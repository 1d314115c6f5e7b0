"""A contract, and what it is run on: a log over the store under test, with a clock that is set by hand."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from turnlog.errors import TurnlogError
from turnlog.events import Event
from turnlog.log import Log, Page, Row, Store

CONTRACT_TIMEOUT_S = (
    20.0  # a contract takes well under a second; what takes longer waits for what never comes
)

StoreFactory = Callable[[], Store]
E = TypeVar("E", bound=TurnlogError)


@dataclass(frozen=True)
class Contract:
    """One promise, and the code that tries to break it."""

    number: int
    statement: str
    name: str
    run: Callable[[StoreFactory], Awaitable[None]]

    def check(self, make: StoreFactory) -> None:
        """Run it against a store."""

        async def bounded() -> None:
            async with asyncio.timeout(CONTRACT_TIMEOUT_S):
                await self.run(make)

        asyncio.run(bounded())

    def __str__(self) -> str:
        return f"{self.number:02d}-{self.name}"


@dataclass
class LogHarness:
    """A log on the store under test, its one session, and its clock."""

    log: Log
    session: str = "sess_1"
    now_ms: int = 1_767_875_696_000

    async def append(self, *events: Event, session: str = "", **options: Any) -> list[int]:
        """Append to the session."""
        return await self.log.append(session or self.session, events, **options)

    async def read_rows(self, after: int = -1, session: str = "", **options: Any) -> list[Row]:
        """Everything after a seq, page by page."""
        found: list[Row] = []
        while page := await self.log.read(session or self.session, after, **options):
            found += page
            after = page[-1].seq
        return found

    async def read_seqs(self, after: int = -1, session: str = "", **options: Any) -> list[int]:
        """The seqs of everything after a seq."""
        return [row.seq for row in await self.read_rows(after, session, **options)]

    async def follow_until(self, until: int, after: int = -1, **options: Any) -> list[Row]:
        """What a follower gets, up to a seq or to its end."""
        found: list[Row] = []
        async with open_follower(self.log, self.session, after, **options) as pages:
            async for page in pages:
                found += page
                if found and found[-1].seq >= until:
                    break
        return found


@asynccontextmanager
async def open_harness(make: StoreFactory) -> AsyncIterator[LogHarness]:
    """A log on the store, with one session; its clock stands still until it is set."""
    made = LogHarness(Log(make(), lambda: made.now_ms))
    try:
        if not await made.log.sessions():
            await made.log.create("contract", made.session)
        yield made
    finally:
        await made.log.close()


@asynccontextmanager
async def open_follower(
    log: Log, session: str, after: int = -1, **options: Any
) -> AsyncIterator[AsyncIterator[Page]]:
    """A follower that leaves when the block ends."""
    pages = log.follow(session, after, **options)
    try:
        yield pages
    finally:
        await pages.aclose()


async def expect_raises(error: type[E], work: Awaitable[object]) -> E:
    """The error that the work must raise."""
    try:
        await work
    except error as refusal:
        return refusal
    raise AssertionError(f"expected {error.__name__}, nothing was raised")
