"""A primary with standbys that fails over by hand, as a failover manager would do it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.support.postgres_server import SUPERUSER, PostgresServer, running_cluster

QUORUM = "'ANY 1 (primary, s1, s2)'"  # whichever is the primary, one of the others


class FailoverCluster:
    """Three servers, one of which is the primary."""

    def __init__(self, servers: Sequence[PostgresServer]) -> None:
        self.primary, *self.standbys = servers
        self._ports = [server.port for server in servers]
        self.promoted_at = 0.0  # the time of the last promotion, by the monotonic clock

    @property
    def url(self) -> str:
        """The address of all servers: a client takes the one that accepts writes."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        return f"postgresql://{SUPERUSER}@{hosts}/postgres"

    def promote(self) -> None:
        """Make the standby with the longest log the primary; the others follow it."""
        self.standbys.sort(key=received_bytes, reverse=True)
        self.primary, *others = self.standbys
        self.primary.promote()
        self.promoted_at = time.monotonic()
        for server in others:
            server.stop()
            server.follow(self.primary)
            server.start()
        self.standbys = others

    def rejoin(self, server: PostgresServer) -> None:
        """Make a killed server a standby of the primary."""
        server.remove_data()
        server.clone(self.primary)
        server.start()
        self.standbys.append(server)

    def kill_standbys(self) -> None:
        """Kill the standbys when they have received everything up to now: what follows they do not have."""
        [(position,)] = self.primary.execute("select pg_current_wal_lsn()")
        query = f"select 1 from pg_stat_replication where replay_lsn >= '{position}' offset 1"
        while not self.primary.execute(query):
            pass
        for standby in self.standbys:
            standby.kill()

    def replace_primary(self) -> None:
        """Kill the primary, start the killed standbys and promote one of them."""
        self.primary.kill()
        for standby in self.standbys:
            standby.start()
        self.promote()

    def fail_over(self) -> None:
        """Kill the primary, promote a standby, and let the killed one come back as a standby."""
        killed = self.primary
        killed.kill()
        self.promote()
        self.rejoin(killed)


def received_bytes(server: PostgresServer) -> int:
    query = "select pg_wal_lsn_diff(greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()), '0/0')"
    [(size_bytes,)] = server.execute(f"{query}::bigint")
    return int(size_bytes)


@contextmanager
def failover_cluster(*, has_quorum: bool) -> Iterator[FailoverCluster]:
    """Run a primary and two standbys, with or without a synchronous quorum."""
    with running_cluster(2) as servers:
        if has_quorum:
            for server in servers:
                server.set_option("synchronous_standby_names", QUORUM)
        yield FailoverCluster(servers)
