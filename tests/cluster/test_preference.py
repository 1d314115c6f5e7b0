"""A session goes back to the node of its last owner: it has the files of a Claude Code process."""

import signal

import pytest

from tests.cluster.nodes import Cluster, Follower, Node, wait_until


@pytest.fixture
def web(cluster: Cluster) -> Node:
    [web] = cluster.start_all(a="web")
    return web


def prepare_waiting(cluster: Cluster, web: Node, worker: Node) -> tuple[str, Follower]:
    """Let a worker own a session in which nothing runs: its node is the preferred one."""
    session = web.session()
    follower = Follower([web], session)
    web.send(session, "say One")
    follower.wait_for("agent.end")
    cluster.wait_for_owner(session, worker.name)
    return session, follower


def wait_for_release(cluster: Cluster, session: str) -> str:
    """Wait until the owner of a session has released it. Return the node that it had."""
    query = (
        f"select node from turnlog.lease where session = '{session}' and owner is null and wanted_at is null"
    )
    [(node,)] = wait_until(lambda: cluster.engine.execute(query))
    return str(node)


def test_a_wanted_session_goes_back_to_the_node_of_its_last_owner(cluster: Cluster) -> None:
    cluster.quiet_s = 0.05
    web, *_ = cluster.start_all(a="web", v="worker", w="worker")
    for _ in range(6):  # with no preference each would come back by chance only
        session = web.session()
        follower = Follower([web], session)
        web.send(session, "say One")
        follower.wait_for("agent.end")
        node = wait_for_release(cluster, session)
        web.send(session, "wait go; say Two")
        assert cluster.wait_for_owner(session, "v", "w") == node
    cluster.open_gate("go")


def test_a_wanted_session_goes_elsewhere_at_once_if_its_node_is_dead_or_drains(
    cluster: Cluster, web: Node
) -> None:
    first = cluster.start("worker", "v")
    session, follower = prepare_waiting(cluster, web, first)
    busy = web.session()
    web.send(busy, "wait go; say Done")
    cluster.wait_for_effect("waits", "go")
    cluster.start("worker", "w")
    first.signal(signal.SIGTERM)
    wait_until(lambda: cluster.owner_node(session) == "")
    draining = "select 1 from turnlog.worker where node = ''"
    wait_until(lambda: cluster.engine.execute(draining))
    assert first.is_running
    web.send(session, "say Two")
    follower.wait_for("agent.end", count=2)
    assert cluster.wait_for_owner(session, "w")
    assert first.is_running
