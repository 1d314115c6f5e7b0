"""An owner of a session in a process of its own, there to be paused: `python -m tests.cluster.owner`.

Arguments: URL, session, lease seconds, and what to do. `append` claims the session and appends with its fence
until it is refused. `lock` and `lock-for-ever` stop the process inside a transaction that has locked the
session, the latter without the timeout of the engine. It prints a line for each step.
"""

import asyncio
import os
import signal
import sys
import time

from turnlog.errors import Fenced
from turnlog.log import Log
from turnlog.log.jobs import JobResult, RewriteRecord
from turnlog.log.local_jobs import rewrite_record
from turnlog.log.postgres.store import PostgresStore
from turnlog.log.postgres.transaction import EngineTransaction
from turnlog.testing.factories import durable_event

RENEWALS = 5  # within the lease time


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def renew(log: Log, owner: str, lease_s: float) -> None:
    while True:
        await log.leases.renew(owner)
        await asyncio.sleep(lease_s / RENEWALS)  # the pace of renewals


async def append_until_fenced(log: Log, session_id: str, lease_s: float) -> None:
    lease = await log.leases.claim(session_id, "paused")
    assert lease is not None
    renewals = asyncio.create_task(renew(log, "paused", lease_s))
    try:
        for number in range(1_000_000):
            await log.append(session_id, [durable_event(f"paused-{number}")], fence=lease.fence)
            say("appended")
            await asyncio.sleep(0.01)  # the pace of a model
    except Fenced:
        say("fenced")
    renewals.cancel()


def stop_inside(transaction: EngineTransaction, job: RewriteRecord) -> JobResult:
    """Stop this process while it has the row lock of a session; its second try goes on."""
    result = rewrite_record(transaction, job)
    if not stop_inside.__dict__.get("has_stopped"):
        stop_inside.__dict__["has_stopped"] = True
        say("locked")
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(0.5)  # the signal stops this thread a moment later: not before the commit, but here
    return result


async def run(url: str, session_id: str, lease_s: float, task: str) -> None:
    store = PostgresStore(url, lease_s=lease_s)
    log = Log(store)
    if task == "append":
        await append_until_fenced(log, session_id, lease_s)
    else:
        store._handlers = {**store._handlers, RewriteRecord: stop_inside}
        if task == "lock-for-ever":
            store._writer.open().execute("set idle_in_transaction_session_timeout = 0")
        await log.run_job(RewriteRecord(session_id))
        say("written")
    await log.close()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]))
