"""SIGSTOP of a writer: outside a transaction it is replaced and refused, inside one it is ended."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.cluster.owner import RENEWALS
from tests.support.limits import HANG_S
from tests.support.postgres_server import PostgresServer
from turnlog.log import Lease, Log
from turnlog.log.postgres.store import PostgresStore
from turnlog.testing.factories import durable_event

SESSION = "sess_1"
LEASE_S = 2.0
LONGER_THAN_TIMEOUT_S = 5  # than `idle_in_transaction_session_timeout` of a writer


@asynccontextmanager
async def open_owner(server: PostgresServer, task: str) -> AsyncIterator[Process]:
    command = [sys.executable, "-m", "tests.cluster.owner", server.url(), SESSION, str(LEASE_S), task]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def wait_for_line(process: Process, text: str) -> None:
    assert process.stdout is not None
    while (line := await process.stdout.readline()) != f"{text}\n".encode():
        assert line, f"the process ended before it said {text}"


async def claim_when_dead(log: Log, owner: str) -> Lease:
    """Renew an owner until it may claim a session of a dead one, and claim it."""
    while True:
        await log.leases.renew(owner)
        leases = await log.leases.claim_wanted(owner)
        if leases:
            return leases[0]
        await asyncio.sleep(LEASE_S / RENEWALS)  # the pace of renewals


def test_an_owner_that_is_paused_is_replaced_and_its_later_appends_are_refused(
    server: PostgresServer,
) -> None:
    async def run() -> None:
        log = Log(PostgresStore(server.url(), lease_s=LEASE_S))
        await log.create("cluster", SESSION)
        async with open_owner(server, "append") as owner:
            for _ in range(5):
                await wait_for_line(owner, "appended")
            os.kill(owner.pid, signal.SIGSTOP)
            lease = await claim_when_dead(log, "next")
            assert (lease.session_id, lease.fence, lease.attempts) == (SESSION, 2, 1)
            [seq] = (await log.append(SESSION, [durable_event("next")], fence=lease.fence)).seqs
            os.kill(owner.pid, signal.SIGCONT)
            await wait_for_line(owner, "fenced")
        events = [entry async for entry in log.events(SESSION)]
        assert [entry.seq for entry in events] == list(range(seq + 1))
        assert events[-1].id == "evt_next"
        await log.close()

    asyncio.run(asyncio.wait_for(run(), HANG_S))


def test_a_writer_that_is_paused_inside_a_transaction_holds_others_up_until_the_engine_ends_it(
    server: PostgresServer,
) -> None:
    async def run() -> None:
        log = Log(PostgresStore(server.url()))
        await log.create("cluster", SESSION)
        async with open_owner(server, "lock") as owner:
            await wait_for_line(owner, "locked")
            assert (await log.append(SESSION, [durable_event("a")])).seqs == [0]
            os.kill(owner.pid, signal.SIGCONT)
            await wait_for_line(owner, "written")
        await log.close()

    asyncio.run(asyncio.wait_for(run(), HANG_S))


def test_without_the_timeout_of_the_engine_a_paused_writer_holds_others_up(server: PostgresServer) -> None:
    """The control: the same pause, with the timeout off."""
    query = f"""select 1 from pg_stat_activity where state = 'idle in transaction'
        and now() - state_change > interval '{LONGER_THAN_TIMEOUT_S} s'"""

    async def run() -> None:
        log = Log(PostgresStore(server.url()))
        await log.create("cluster", SESSION)
        async with open_owner(server, "lock-for-ever") as owner:
            await wait_for_line(owner, "locked")
            append = asyncio.create_task(log.append(SESSION, [durable_event("a")]))
            while not await asyncio.to_thread(server.execute, query):  # noqa: ASYNC110
                await asyncio.sleep(0.1)  # between two looks at the engine
            assert not append.done()
            os.kill(owner.pid, signal.SIGCONT)
            await wait_for_line(owner, "written")
            assert (await append).seqs == [0]
        await log.close()

    asyncio.run(asyncio.wait_for(run(), HANG_S))
