"""kill -9 of the primary under load: with a synchronous quorum no acknowledged event is lost or doubled.

The control has no quorum: it loses what the standbys had not received, and says so by a new epoch.
"""

import asyncio

from tests.cluster.failover import failover_cluster
from tests.cluster.load import SESSIONS, Load, Losses, find_losses
from tests.support.limits import HANG_S
from turnlog.log import Log
from turnlog.log.postgres.store import PostgresStore

KILLS = 3
ACKS = 150  # between two kills


async def read_epochs(log: Log) -> list[str]:
    return [(await log.info(session_id)).epoch for session_id in SESSIONS]


def test_three_kills_of_the_primary_lose_nothing_with_a_synchronous_quorum() -> None:
    asyncio.run(asyncio.wait_for(kill_primaries(KILLS, ACKS), HANG_S))


async def kill_primaries(kills: int, acks: int) -> int:
    """Kill one primary after the other under load and check that nothing is lost.

    `acks` is the number of acknowledged events between two kills. Return their number in all.
    """
    with failover_cluster(has_quorum=True) as cluster:
        log = Log(PostgresStore(cluster.url))
        load = Load(log)
        await load.start()
        epochs = await read_epochs(log)
        for _ in range(kills):
            await load.wait_for_more(acks)
            await asyncio.to_thread(cluster.fail_over)
        await load.wait_for_more(acks)
        await load.stop()
        assert await find_losses(log, load.acknowledged) == Losses(lost=0, doubled=0, moved=0, gaps=0)
        assert await read_epochs(log) == epochs
        assert await log.verify() == []
        await log.close()
        return len(load.acknowledged.seqs)


def test_without_a_quorum_a_failover_loses_events_and_their_sessions_get_a_new_epoch() -> None:
    with failover_cluster(has_quorum=False) as cluster:

        async def run() -> None:
            log = Log(PostgresStore(cluster.url))
            load = Load(log)
            await load.start()
            await load.wait_for_more(ACKS)
            epochs = await read_epochs(log)
            # The standbys are away: the primary goes on without them, and its last events are its own.
            await asyncio.to_thread(cluster.kill_standbys)
            await load.wait_for_more(ACKS)
            await asyncio.to_thread(cluster.replace_primary)
            await load.wait_for_more(ACKS)
            await load.stop()
            losses = await find_losses(log, load.acknowledged)
            assert losses.lost > 0, "the control did not manage to lose anything"
            assert losses.gaps == 0
            assert not set(epochs) & set(await read_epochs(log))
            await log.close()

        asyncio.run(asyncio.wait_for(run(), HANG_S))


def test_followers_of_a_session_in_doubt_end_instead_of_missing_events() -> None:
    """A follower of the history that was lost must not go on with other events under the same seqs."""
    with failover_cluster(has_quorum=False) as cluster:

        async def run() -> None:
            writer, reader = Log(PostgresStore(cluster.url)), Log(PostgresStore(cluster.url))
            load = Load(writer)
            await load.start()
            follower = asyncio.create_task(follow_to_end(reader, SESSIONS[0]))
            await load.wait_for_more(ACKS)
            await asyncio.to_thread(cluster.kill_standbys)
            await load.wait_for_more(ACKS)
            await asyncio.to_thread(cluster.replace_primary)
            await load.wait_for_more(ACKS)
            seqs = await follower
            assert seqs == list(range(len(seqs)))
            await load.stop()
            await writer.close()
            await reader.close()

        asyncio.run(asyncio.wait_for(run(), HANG_S))


async def follow_to_end(log: Log, session_id: str) -> list[int]:
    return [entry.seq async for entry in log.events(session_id, follow=True)]
