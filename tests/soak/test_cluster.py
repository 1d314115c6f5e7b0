"""PostgreSQL in full: many kills of the primary, their stall, and a paused primary that comes back."""

import asyncio
import signal
import time

from tests.cluster.failover import failover_cluster
from tests.cluster.load import SESSIONS, Load, Losses, find_losses
from tests.cluster.test_failover import kill_primaries
from tests.soak.figures import Measure
from turnlog.log import Log
from turnlog.log.postgres.store import PostgresStore

KILLS = 20
ACKS = 2_000  # between two kills
PAUSES = 5
STALLS = 3
MAX_STALL_S = 3.0  # after the promotion


def test_20_kills_of_the_primary_lose_nothing_with_a_synchronous_quorum(measure: Measure) -> None:
    acknowledged = asyncio.run(kill_primaries(KILLS, ACKS))
    measure(f"{KILLS} kills", acknowledged=acknowledged)


def test_a_paused_primary_that_comes_back_after_a_promotion_acknowledges_nothing(measure: Measure) -> None:
    """The paused one has clients that wait for it; its commits wait for standbys that have left it."""

    async def run() -> int:
        with failover_cluster(has_quorum=True) as cluster:
            log = Log(PostgresStore(cluster.url))
            load = Load(log)
            await load.start()
            for _ in range(PAUSES):
                await load.wait_for_more(ACKS)
                paused = cluster.primary
                paused.signal(signal.SIGSTOP)
                await asyncio.to_thread(cluster.promote)
                paused.signal(signal.SIGCONT)
                # The failover manager fences the old primary; until then it can only wait.
                await asyncio.to_thread(paused.kill)
                await asyncio.to_thread(cluster.rejoin, paused)
            await load.wait_for_more(ACKS)
            await load.stop()
            assert await find_losses(log, load.acknowledged) == Losses(lost=0, doubled=0, moved=0, gaps=0)
            await log.close()
            return len(load.acknowledged.seqs)

    measure(f"{PAUSES} pauses", acknowledged=asyncio.run(run()))


def test_appends_go_on_within_3_s_of_a_promotion(measure: Measure) -> None:
    async def run() -> list[float]:
        stalls_s = []
        with failover_cluster(has_quorum=True) as cluster:
            log = Log(PostgresStore(cluster.url))
            load = Load(log)
            await load.start()
            for _ in range(STALLS):
                await load.wait_for_more(ACKS)
                killed = cluster.primary
                await asyncio.to_thread(killed.kill)
                go_on = asyncio.create_task(wait_for_acks(load))
                await asyncio.to_thread(cluster.promote)
                stalls_s.append(await go_on - cluster.promoted_at)
                await asyncio.to_thread(cluster.rejoin, killed)
            await load.stop()
            await log.close()
        return stalls_s

    stalls_s = asyncio.run(run())
    measure(f"{STALLS} kills", longest_stall_after_promotion_s=max(stalls_s))
    assert max(stalls_s) <= MAX_STALL_S


async def wait_for_acks(load: Load) -> float:
    """Return the time at which each session has an acknowledged event again."""
    await load.wait_for_more(len(SESSIONS))
    return time.monotonic()
