"""SIGTERM: a worker hands its turns over between two steps, a web node sends its readers away one by one."""

import signal

import pytest

from tests.cluster.nodes import Cluster, Follower, Node, assert_read_once, wait_until

READERS = 16
DRAIN_S = 30.0  # of a web node: its streams end within this time
MOMENTS = 3  # at which streams have ended, of as many as there are readers


@pytest.fixture
def web(cluster: Cluster) -> Node:
    [web] = cluster.start_all(a="web")
    return web


def assert_handed_over(cluster: Cluster, follower: Follower, session: str, nodes: int = 2) -> None:
    """Check that a turn ended once, that nothing of it was taken back, and that readers saw no crash."""
    assert_read_once(follower, cluster.events(session))
    for type_name in ("block.retract", "process.end", "session.error"):
        assert not follower.find(type_name), type_name
    assert [end["payload"]["stop_reason"] for end in follower.find("agent.end")] == ["end_turn"]
    assert len(follower.find("process.start", process="server")) == nodes


def test_a_worker_hands_its_turn_over_when_its_step_is_complete(cluster: Cluster, web: Node) -> None:
    first = cluster.start("worker", "v")
    session = web.session()
    follower = Follower([web], session)
    web.send(session, "say One; wait go; say two; call look tool; call scribble tool | say three; wait end")
    cluster.wait_for_effect("waits", "go")
    cluster.start("worker", "w")
    first.signal(signal.SIGTERM)
    wait_until(lambda: first.health() == 503)
    cluster.open_gate("go")
    # The step has two tools: they end where they began.
    cluster.wait_for_effect("starts", "look", session)
    cluster.wait_for_effect("starts", "scribble", session)
    cluster.open_gate("tool")
    assert cluster.wait_for_effect("waits", "end") == "w"
    assert first.process.wait() == 0
    cluster.open_gate("end")
    follower.wait_for("agent.end")
    assert {line for line in cluster.effects if line.startswith("ends")} == {
        f"ends look {session} v",
        f"ends scribble {session} v",
    }
    assert cluster.count_effects("starts", "scribble") == 1
    assert_handed_over(cluster, follower, session)


def test_a_worker_lets_waiting_sessions_go_at_once(cluster: Cluster, web: Node) -> None:
    first = cluster.start("worker", "v")
    running, waiting = web.session(), web.session()
    follower = Follower([web], waiting)
    web.send(running, "wait go; say Done")
    web.send(waiting, "call remove | say Removed")
    request = follower.wait_for("approval.request")
    cluster.wait_for_effect("waits", "go")
    first.signal(signal.SIGTERM)
    wait_until(lambda: cluster.owner_node(waiting) == "")
    assert cluster.owner_node(running) == "v"
    assert first.is_running

    # The other worker takes the waiting one when it is answered, and not before.
    cluster.start("worker", "w")
    web.answer_approval(waiting, request)
    follower.wait_for("agent.end")
    assert f"starts remove {waiting} w" in cluster.effects
    assert_handed_over(cluster, follower, waiting)
    assert first.is_running
    cluster.open_gate("go")
    assert first.process.wait() == 0


def test_a_turn_that_does_not_reach_its_next_step_in_time_is_continued_elsewhere(
    cluster: Cluster, web: Node
) -> None:
    first = cluster.start("worker", "v", drain_s=0.5)
    session = web.session()
    follower = Follower([web], session)
    web.send(session, "say One; wait go; say two")
    cluster.wait_for_effect("waits", "go")
    cluster.start("worker", "w")
    assert first.stop() == 0
    assert cluster.wait_for_effect("waits", "go", count=2) == "w"
    attempts = cluster.engine.execute(f"select attempts from turnlog.lease where session = '{session}'")
    assert attempts == [(0,)]  # it counts as no crash
    cluster.open_gate("go")
    follower.wait_for("agent.end")
    assert not follower.find("process.end")
    assert not follower.find("session.error")
    assert_read_once(follower, cluster.events(session))


def test_a_second_signal_ends_a_drain(cluster: Cluster, web: Node) -> None:
    first = cluster.start("worker", "v")
    session = web.session()
    follower = Follower([web], session)
    web.send(session, "say One; wait go; say two")
    cluster.wait_for_effect("waits", "go")
    cluster.start("worker", "w")
    first.signal(signal.SIGTERM)
    wait_until(lambda: first.health() == 503)
    assert first.is_running
    first.signal(signal.SIGTERM)
    assert first.process.wait() == 0
    cluster.wait_for_effect("waits", "go", count=2)
    cluster.open_gate("go")
    follower.wait_for("agent.end", stop_reason="end_turn")
    assert_read_once(follower, cluster.events(session))


def test_the_streams_of_a_web_node_end_one_after_another(cluster: Cluster, web: Node) -> None:
    cluster.start("worker", "w")
    draining = cluster.start("web", "b", drain_s=DRAIN_S)
    session = web.session()
    followers = [Follower([draining, web], session) for _ in range(READERS)]
    web.send(session, "say Hello")
    for follower in followers:
        follower.wait_for("agent.end")
    draining.signal(signal.SIGTERM)
    wait_until(lambda: draining.health() == 503)
    assert not all(follower.ends for follower in followers), "all streams ended with the first"

    # Each turn is a tick of a clock: where a stream ends among them is when it ended.
    turns = 0
    moments: set[str] = set()
    while len(moments) < MOMENTS:
        web.send(session, f"say tick {turns}")
        turns += 1
        followers[0].wait_for("agent.end", turns + 1)
        moments = {follower.ends[0][1] for follower in followers if follower.ends}
        assert len(moments) >= MOMENTS or not all(follower.ends for follower in followers), moments
    draining.signal(signal.SIGTERM)  # the rest of the drain shows nothing more
    assert draining.process.wait() == 0
    for follower in followers:
        follower.wait_for("agent.end", turns + 1)
        assert_read_once(follower, cluster.events(session))
        assert follower.ends[0][0] == "b"


def test_a_second_signal_ends_all_streams_of_a_web_node(cluster: Cluster, web: Node) -> None:
    """The control of the test before: without a drain all end at once."""
    draining = cluster.start("web", "b")
    session = web.session()
    followers = [Follower([draining, web], session) for _ in range(READERS)]
    for follower in followers:
        follower.wait_for("session.member")
    draining.signal(signal.SIGTERM)
    wait_until(lambda: draining.health() == 503)
    draining.signal(signal.SIGTERM)
    assert draining.process.wait() == 0
    last_ids = {wait_until(lambda one=follower: one.ends)[0][1] for follower in followers}  # type: ignore[misc]
    assert len(last_ids) == 1
