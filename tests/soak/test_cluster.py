"""PostgreSQL in full: many kills of the primary, and a paused one that comes back after a promotion."""

import asyncio
import signal

from tests.cluster.failover import failover_cluster
from tests.cluster.load import Load, Losses, find_losses
from tests.cluster.test_failover import kill_primaries
from tests.soak.figures import Measure
from turnlog.log import Log
from turnlog.log.postgres.store import PostgresStore

KILLS = 20
ACKS = 2_000  # between two kills
PAUSES = 5


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
