"""A session goes back to the node of its last owner: it has the files of a Claude Code process."""

import signal

import pytest

from tests.cluster.nodes import Cluster, Follower, Node, wait_until


@pytest.fixture
def web(cluster: Cluster) -> Node:
    [web] = cluster.start_all(a="web")
    return web


def prepare_waiting(cluster: Cluster, web: Node, worker: Node) -> tuple[str, Follower]:
    """Let a worker own a session and release it, as if it had been quiet: its node is the preferred one."""
    session = web.session()
    follower = Follower([web], session)
    web.send(session, "say One")
    follower.wait_for("agent.end")
    cluster.wait_for_owner(session, worker.name)
    return session, follower


def release(cluster: Cluster, session: str) -> None:
    """Release a session as its owner would after the quiet time; its runner must not hold it any more."""
    cluster.engine.execute(
        f"update turnlog.lease set owner = null, process = '', wanted_at = null where session = '{session}'"
    )


def test_a_wanted_session_goes_back_to_the_node_of_its_last_owner(cluster: Cluster, web: Node) -> None:
    workers = {name: cluster.start("worker", name) for name in ("v", "w")}
    for _ in range(4):  # with no preference each would come back by chance only
        session = web.session()
        follower = Follower([web], session)
        web.send(session, "say One")
        follower.wait_for("agent.end")
        owner = cluster.wait_for_owner(session, *workers)
        release(cluster, session)
        web.send(session, "wait go; say Two")
        assert cluster.wait_for_owner(session, *workers) == owner
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
