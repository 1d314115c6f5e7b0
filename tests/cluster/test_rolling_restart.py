"""All nodes are replaced while turns run and wait: no turn ends because of it, no reader misses an event."""

from tests.cluster.nodes import Cluster
from tests.cluster.restart import restart_all

RUNNING = 20
WAITING = 200


def test_a_rolling_restart_ends_no_turn_and_loses_no_event(cluster: Cluster) -> None:
    figures = restart_all(cluster, RUNNING, WAITING)
    assert figures["streams"] >= 2 * figures["readers"]  # each reader had to move
