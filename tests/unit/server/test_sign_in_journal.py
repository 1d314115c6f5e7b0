"""Used codes and sign-outs in a log that servers share."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.limited_session import on_clock
from tests.support.manual_clock import move_on
from tests.unit.log.delegates import until
from turnlog.errors import StoreError
from turnlog.log import Log, MemoryStore
from turnlog.server.auth import sign_in_journal
from turnlog.server.auth.revocation import Revocation
from turnlog.server.auth.sign_in_journal import RETRY_S, SERVER_SESSION, SignInJournal

UNTIL = 2_000_000_000
ONE_COOKIE = Revocation("ada", UNTIL, "cookie-1")
ALL_COOKIES = Revocation("ada", UNTIL, made_ms=1_900_000_000_000)


@asynccontextmanager
async def opened(log: Log) -> AsyncIterator[tuple[SignInJournal, list[Revocation]]]:
    heard: list[Revocation] = []
    journal = SignInJournal(log, heard.append)
    await journal.open()
    try:
        yield journal, heard
    finally:
        await journal.close()


@on_clock
async def test_a_code_is_used_once_by_all_servers() -> None:
    log = Log(MemoryStore())
    async with opened(log) as (one, _), opened(log) as (two, _):
        uses = await asyncio.gather(*[journal.use_code("7", UNTIL) for journal in (one, two, one, two)])
        assert sorted(uses) == [False, False, False, True]
        assert not await two.use_code("7", UNTIL + 1)  # the same code with another end
        assert await two.use_code("8", UNTIL)
    await log.close()


@on_clock
async def test_a_sign_out_reaches_servers_that_run_and_those_that_start_later() -> None:
    log = Log(MemoryStore())
    async with opened(log) as (one, first_heard), opened(log) as (_, second_heard):
        await one.revoke(ONE_COOKIE)
        await one.revoke(ALL_COOKIES)
        await one.revoke(ONE_COOKIE)  # again: it is stored once
        await until(lambda: len(first_heard) == len(second_heard) == 2)
        assert second_heard == [ONE_COOKIE, ALL_COOKIES]
    async with opened(log) as (_, heard):
        assert heard == [ONE_COOKIE, ALL_COOKIES]
    assert (await log.info(SERVER_SESSION)).app == sign_in_journal.SERVER_APP
    await log.close()


@on_clock
async def test_a_journal_whose_store_fails_follows_again() -> None:
    log = Log(MemoryStore())
    follow = log.follow
    failures = 0

    def fail_once(session_id: str, after: int = -1) -> AsyncIterator[object]:
        nonlocal failures
        if failures == 0:
            failures += 1
            raise StoreError("the engine is away")
        return follow(session_id, after)

    log.follow = fail_once  # type: ignore[method-assign,assignment]
    async with opened(log) as (journal, heard):
        await until(lambda: failures == 1)
        await journal.revoke(ONE_COOKIE)
        assert heard == []
        move_on(RETRY_S)
        await until(lambda: heard == [ONE_COOKIE])
    await log.close()
