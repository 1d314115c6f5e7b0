"""Web nodes and workers in full: a rolling restart under load, and ten thousand readers."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.fan_out import read_all
from tests.cluster.nodes import Cluster, opened_cluster
from tests.cluster.restart import restart_all
from tests.soak.figures import Measure
from tests.support.postgres_server import running_server

RUNNING, WAITING = 200, 2_000
SESSIONS, READERS_PER_SESSION = 1_000, 10


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
