"""Many readers over two web nodes, a tenth of what `make soak` has."""

from tests.cluster.fan_out import read_all
from tests.cluster.nodes import Cluster

SESSIONS = 100
READERS_PER_SESSION = 10


def test_readers_on_two_nodes_get_every_event_of_many_sessions(cluster: Cluster) -> None:
    figures = read_all(cluster, SESSIONS, READERS_PER_SESSION)
    assert figures["readers"] == SESSIONS * READERS_PER_SESSION
