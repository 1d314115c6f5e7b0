"""A proxy between a log and its engine: bytes that wait, answers that are lost, connections that end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest
from msgspec import structs

from tests.cluster.owner import renew
from tests.cluster.test_paused_writer import LEASE_S, SESSION, claim_when_dead
from tests.support.faulty_proxy import FaultyProxy
from tests.support.limits import HANG_S
from tests.support.postgres_server import PostgresServer
from turnlog.errors import Fenced, StoreAway, StoreError
from turnlog.ids import new_id
from turnlog.log import Log
from turnlog.log.postgres.connections import EngineAway
from turnlog.log.postgres.store import PostgresStore
from turnlog.testing.closing import close_event
from turnlog.testing.factories import durable_events


@asynccontextmanager
async def opened(*urls: str, lease_s: float = 10.0, patience_s: float = 60.0) -> AsyncIterator[list[Log]]:
    logs = [Log(PostgresStore(url, lease_s=lease_s, patience_s=patience_s)) for url in urls]
    try:
        yield logs
    finally:
        for log in logs:
            await log.close()


async def wait_until(server: PostgresServer, query: str) -> None:
    """Wait until a query returns a row."""
    while not await asyncio.to_thread(server.execute, query):  # noqa: ASYNC110  the engine has no event
        await asyncio.sleep(0.02)  # between two looks at the engine


async def seqs_of(log: Log, session_id: str = SESSION) -> list[int]:
    return [entry.seq async for entry in log.events(session_id)]


def run_bounded(work: object) -> None:
    asyncio.run(asyncio.wait_for(work, HANG_S))  # type: ignore[arg-type]


def test_an_append_waits_while_the_engine_refuses_and_is_stored_once(
    server: PostgresServer, proxy: FaultyProxy
) -> None:
    async def run() -> None:
        async with opened(proxy.url()) as [log]:
            await log.create("cluster", SESSION)
            await log.append(SESSION, durable_events("a"))
            proxy.refuse()
            append = asyncio.create_task(log.append(SESSION, durable_events("b", "c")))
            read = asyncio.create_task(seqs_of(log))
            await asyncio.sleep(0.2)  # the first tries fail
            assert not append.done()
            proxy.open()
            assert (await append).seqs == [1, 2]
            assert (await read)[:1] == [0]
            assert await seqs_of(log) == [0, 1, 2]

    run_bounded(run())


def test_an_engine_that_stays_away_is_a_store_error_and_the_log_recovers(
    server: PostgresServer, proxy: FaultyProxy
) -> None:
    async def run() -> None:
        async with opened(proxy.url(), patience_s=0.1) as [log]:
            await log.create("cluster", SESSION)
            proxy.refuse()
            with pytest.raises(StoreAway, match="PostgreSQL cannot be used"):
                await log.append(SESSION, durable_events("a"))
            with pytest.raises(StoreAway):
                await log.info(SESSION)
            assert log.health.is_failing
            proxy.open()
            assert (await log.append(SESSION, durable_events("a"))).seqs == [0]
            assert not log.health.is_failing

    run_bounded(run())


def test_a_commit_whose_answer_is_lost_is_recognised(server: PostgresServer, proxy: FaultyProxy) -> None:
    """The engine has committed: the repetition finds its own events and says that they were new."""

    async def run() -> None:
        async with opened(proxy.url(), server.url()) as [log, direct]:
            await log.create("cluster", SESSION)
            await log.append(SESSION, durable_events("a"))
            proxy.freeze_answers()
            # New ids by time need no look whether they are stored: the first statement commits.
            events = [structs.replace(event, id=new_id("evt_")) for event in durable_events("b", "c")]
            append = asyncio.create_task(log.append(SESSION, events, expected_last=0))
            await wait_until(server, f"select 1 from turnlog.event where id = '{events[1].id}'")
            proxy.refuse()
            proxy.open()
            result = await append
            assert (result.seqs, result.new) == ([1, 2], [True, True])
            assert await seqs_of(direct) == [0, 1, 2]
            assert (await direct.append(SESSION, events[1:])).new == [False]

    run_bounded(run())


def test_a_session_whose_creation_was_not_answered_is_created_once(
    server: PostgresServer, proxy: FaultyProxy
) -> None:
    async def run() -> None:
        async with opened(proxy.url()) as [log]:
            await log.create("cluster", "sess_other")
            proxy.freeze_answers()
            creation = asyncio.create_task(log.create("cluster", SESSION, durable_events("a")))
            # A transaction takes several answers: they arrive until the row is there.
            query = f"select 1 from turnlog.session where name = '{SESSION}'"
            for _ in range(50):
                if await asyncio.to_thread(server.execute, query):
                    break
                proxy.open()
                proxy.freeze_answers()
                await asyncio.sleep(0.02)  # for the next statement of the transaction
            proxy.refuse()
            proxy.open()
            assert await creation == SESSION
            assert await seqs_of(log) == [0]

    run_bounded(run())


def test_a_close_that_was_not_answered_is_stored_once_and_told_as_new(
    server: PostgresServer, proxy: FaultyProxy
) -> None:
    async def run() -> None:
        async with opened(proxy.url(), server.url()) as [log, direct]:
            await log.create("cluster", SESSION, durable_events("a"))
            proxy.freeze_answers()
            closing = asyncio.create_task(log.close_session(SESSION, [close_event()]))
            # A transaction takes several answers: they arrive until the session is closed.
            query = f"select 1 from turnlog.session where name = '{SESSION}' and closed"
            for _ in range(50):
                if await asyncio.to_thread(server.execute, query):
                    break
                proxy.open()
                proxy.freeze_answers()
                await asyncio.sleep(0.02)  # for the next statement of the transaction
            proxy.refuse()
            proxy.open()
            result = await closing
            assert (result.seqs, result.new) == ([1], [True])
            assert await seqs_of(direct) == [0, 1]
            assert (await direct.close_session(SESSION, [close_event("bob")])).seqs == [-1]

    run_bounded(run())


def test_claims_that_were_not_answered_reach_their_owner(server: PostgresServer, proxy: FaultyProxy) -> None:
    async def run() -> None:
        async with opened(proxy.url()) as [log]:
            await log.create("cluster", SESSION, wants_work=True)
            proxy.freeze_answers()
            claims = asyncio.create_task(log.leases.claim_wanted("one"))
            query = "select 1 from turnlog.lease where owner = 'one'"
            for _ in range(50):
                if await asyncio.to_thread(server.execute, query):
                    break
                proxy.open()
                proxy.freeze_answers()
                await asyncio.sleep(0.02)  # for the next statement of the transaction
            proxy.refuse()
            proxy.open()
            [lease] = await claims
            assert (lease.session_id, lease.fence, lease.attempts) == (SESSION, 1, 0)
            assert (await log.append(SESSION, durable_events("a"), fence=lease.fence)).seqs == [0]

    run_bounded(run())


def test_claims_whose_caller_gave_up_reach_it_with_its_next_claim(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session has a live owner, which would otherwise not know of it, so no other could claim it."""

    async def run() -> None:
        store = PostgresStore(server.url(), patience_s=0.1)
        log = Log(store)
        await log.create("cluster", SESSION, wants_work=True)

        def lose_answer() -> None:
            raise EngineAway("the commit was not answered")

        with monkeypatch.context() as patch:
            patch.setattr(store._writer, "check_quorum", lose_answer)
            with pytest.raises(StoreError, match="was not answered"):
                await log.leases.claim_wanted("one")
        assert server.execute("select fence from turnlog.lease where owner = 'one'") == [(1,)]
        [lease] = await log.leases.claim_wanted("one")
        assert (lease.session_id, lease.fence, lease.attempts) == (SESSION, 1, 0)
        assert await log.leases.claim_wanted("one") == []
        await log.close()

    run_bounded(run())


def test_an_owner_behind_a_frozen_wire_is_replaced_and_its_hanging_append_is_refused(
    server: PostgresServer, proxy: FaultyProxy
) -> None:
    async def run() -> None:
        async with opened(proxy.url(), server.url(), lease_s=LEASE_S) as [one, two]:
            await one.create("cluster", SESSION)
            lease = await one.leases.claim(SESSION, "one")
            assert lease is not None
            await one.append(SESSION, durable_events("a"), fence=lease.fence)
            proxy.freeze()
            hanging = asyncio.create_task(one.append(SESSION, durable_events("b"), fence=lease.fence))
            successor = await claim_when_dead(two, "two")
            assert (successor.fence, successor.attempts) == (2, 1)
            await two.append(SESSION, durable_events("c"), fence=successor.fence)
            proxy.open()
            with pytest.raises(Fenced):
                await hanging
            assert await seqs_of(two) == [0, 1]

    run_bounded(run())


def test_after_an_outage_nothing_is_claimed_from_owners_that_could_not_renew(
    server: PostgresServer, proxy: FaultyProxy
) -> None:
    """Both owners are cut off for longer than a lease time; the one that is back first takes nothing over."""

    async def run() -> None:
        async with opened(proxy.url(), proxy.url(), lease_s=LEASE_S) as [one, two]:
            await one.create("cluster", SESSION)
            lease = await one.leases.claim(SESSION, "one")
            assert lease is not None
            renewals = asyncio.create_task(renew(two, "two", LEASE_S))
            query = "select 1 from turnlog.worker where owner = 'two' and since < now() - "
            await wait_until(server, f"{query} interval '{LEASE_S} s'")
            await one.leases.renew("one")
            proxy.refuse()
            await wait_until(server, "select 1 from turnlog.worker having bool_and(until < now())")
            proxy.open()
            assert await two.leases.claim_wanted("two") == []
            assert await two.leases.claim(SESSION, "two") is None
            assert (await one.append(SESSION, durable_events("a"), fence=lease.fence)).seqs == [0]

            # The control: if the other owner had not been cut off, it would take over.
            renewals.cancel()
            server.execute(
                """update turnlog.worker set since = '-infinity' where owner = 'two';
                update turnlog.worker set until = now() where owner = 'one'"""
            )
            [successor] = await two.leases.claim_wanted("two")
            assert (successor.session_id, successor.attempts) == (SESSION, 1)

    run_bounded(run())


def test_a_follower_whose_bell_is_cut_off_gets_every_event(
    server: PostgresServer, proxy: FaultyProxy
) -> None:
    async def run() -> None:
        reader_url = f"{proxy.url()}?application_name=reader"
        async with opened(server.url(), reader_url) as [writer, reader]:
            await writer.create("cluster", SESSION)
            query = """select client_port from pg_stat_activity
                where application_name = 'reader' and query = 'listen turnlog'"""
            await wait_until(server, query)
            [(bell_port,)] = server.execute(query)
            proxy.freeze(bell_port)
            follower = asyncio.create_task(follow(reader, 20))
            for number in range(20):
                await writer.append(SESSION, durable_events(number))
            assert await follower == list(range(20))
            proxy.open()

    run_bounded(run())


async def follow(log: Log, count: int) -> list[int]:
    seqs: list[int] = []
    async for entry in log.events(SESSION, follow=True):
        seqs.append(entry.seq)
        if len(seqs) == count:
            break
    return seqs


def test_a_cancelled_wait_for_a_standby_is_not_durable(server: PostgresServer) -> None:
    """The engine reports success after such a cancel; the log goes on waiting for the standby."""
    cancel = "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'"

    async def run() -> None:
        async with opened(server.url()) as [log]:
            await log.create("cluster", SESSION)
            server.set_option("synchronous_standby_names", "'ANY 1 (absent)'")
            try:
                await wait_until(server, "select 1 where current_setting('synchronous_standby_names') <> ''")
                append = asyncio.create_task(log.append(SESSION, durable_events("a")))
                for _ in range(3):
                    await wait_until(server, cancel)
                await wait_until(server, "select 1 from pg_stat_activity where wait_event = 'SyncRep'")
                assert not append.done()

                # The control: without the log a cancelled commit is a success.
                bare = asyncio.create_task(asyncio.to_thread(insert_bare, server.url()))
                while not bare.done():
                    await asyncio.to_thread(server.execute, cancel)
                await bare
                assert not append.done()
            finally:
                server.set_option("synchronous_standby_names", "''")
            result = await append
            assert (result.seqs, result.new) == ([0], [True])

    run_bounded(run())


def insert_bare(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "insert into turnlog.damage (session, first, last, problem) values ('x', 0, 0, '')"
        )
