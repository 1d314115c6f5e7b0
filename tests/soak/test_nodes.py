"""Web nodes and workers in full: a rolling restart under load, ten thousand readers, default times."""

import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.fan_out import read_all
from tests.cluster.nodes import Cluster, Follower, opened_cluster
from tests.cluster.restart import restart_all
from tests.soak.figures import Measure
from tests.support.postgres_server import running_server
from turnlog.log.postgres.store import LEASE_S

RUNNING, WAITING = 200, 2_000
SESSIONS, READERS_PER_SESSION = 1_000, 10
KILLED_WORKERS = 3
MAX_TAKEOVER_S = 30.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the nodes inherit it
    try:
        with running_server() as server, opened_cluster(server, tmp_path) as cluster:
            yield cluster
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_rolling_restart_with_2200_sessions_ends_no_turn(cluster: Cluster, measure: Measure) -> None:
    figures = restart_all(cluster, RUNNING, WAITING)
    measure(f"{RUNNING} running, {WAITING:,} waiting", **figures)


def test_10000_readers_of_1000_sessions_on_two_nodes_get_every_event(
    cluster: Cluster, measure: Measure
) -> None:
    figures = read_all(cluster, SESSIONS, READERS_PER_SESSION)
    measure(f"{SESSIONS:,} sessions, {SESSIONS * READERS_PER_SESSION:,} readers", **figures)


def test_a_killed_worker_is_replaced_within_30_s_at_default_times(cluster: Cluster, measure: Measure) -> None:
    cluster.lease_s = LEASE_S
    web, _ = cluster.start_all(a="web", w0="worker")
    takeovers_s = []
    for number in range(KILLED_WORKERS):
        cluster.start("worker", f"w{number + 1}")
        session = web.session()
        follower = Follower([web], session)
        web.send(session, f"say One; wait go{number}; say two")
        name = cluster.wait_for_effect("waits", f"go{number}")
        killed_at = time.monotonic()
        cluster.nodes[name].kill()
        cluster.wait_for_effect("waits", f"go{number}", count=2)
        takeovers_s.append(time.monotonic() - killed_at)
        cluster.open_gate(f"go{number}")
        end = follower.wait_for("agent.end")
        assert end["payload"]["stop_reason"] == "end_turn"
        follower.stop()
    measure(f"{KILLED_WORKERS} workers killed", lease_s=LEASE_S, longest_s=max(takeovers_s))
    assert max(takeovers_s) <= MAX_TAKEOVER_S
