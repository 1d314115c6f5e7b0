"""kill -9 of a worker in the middle of a turn: another worker finishes it, and it ends once."""

from collections import Counter

import pytest

from tests.cluster.nodes import Cluster, Follower, Node, assert_read_once, wait_until


def others(cluster: Cluster, name: str) -> str:
    return {"v": "w", "w": "v"}[name]


def assert_ended_once(cluster: Cluster, follower: Follower, session: str, agents: int = 1) -> None:
    """Check that each agent of the turn has ended once, and not with an error; and that the reader saw it."""
    events = cluster.events(session)
    assert_read_once(follower, events)
    ends = [event for event in follower.events if event["type"] == "agent.end"]
    assert [end["payload"]["stop_reason"] for end in ends] == ["end_turn"] * agents
    assert not follower.find("session.error")


@pytest.fixture
def web(cluster: Cluster) -> Node:
    web, _, _ = cluster.start_all(a="web", v="worker", w="worker")
    return web


def test_a_worker_killed_in_its_text_is_replaced(cluster: Cluster, web: Node) -> None:
    session = web.session()
    follower = Follower([web], session)
    web.send(session, "say One two; wait go; say three | say unused")
    name = cluster.wait_for_effect("waits", "go")
    follower.wait_for_text("two")
    cluster.nodes[name].kill()

    assert cluster.wait_for_effect("waits", "go", count=2) == others(cluster, name)
    cluster.open_gate("go")
    follower.wait_for("agent.end")
    assert_ended_once(cluster, follower, session)
    assert follower.find("block.retract")  # what the dead worker has said is said again
    assert [one["payload"]["text"] for one in follower.find("assistant.message")] == ["One two three "]
    ends = follower.find("process.end", process="server")
    assert [end["payload"]["reason"] for end in ends] == ["process_crash"]


def test_tools_of_a_killed_worker_run_again_if_they_only_read_or_have_a_key(
    cluster: Cluster, web: Node
) -> None:
    session = web.session()
    follower = Follower([web], session)
    web.send(session, "call look go; call scribble go; call pay go; call helper | say Done")
    for tool in ("look", "scribble", "pay"):
        cluster.wait_for_effect("starts", tool, session)
    name = cluster.wait_for_effect("waits", "helper")
    cluster.nodes[name].kill()

    cluster.wait_for_effect("starts", "look", session, count=2)
    cluster.wait_for_effect("starts", "pay", session, count=2)
    cluster.open_gate("go", "helper")
    follower.wait_for("agent.end", count=2)
    assert_ended_once(cluster, follower, session, agents=2)
    starts = Counter(line.split()[1] for line in cluster.effects if line.startswith("starts"))
    assert starts == {"look": 3, "scribble": 1, "pay": 2}  # the helper looks once
    assert not any(line.startswith("ends scribble") for line in cluster.effects)
    [result] = follower.find("tool.result", tool="scribble")
    assert result["payload"]["error"]["code"] == "CANCELLED"


def test_an_approval_of_a_killed_worker_is_answered_by_another(cluster: Cluster, web: Node) -> None:
    session = web.session()
    follower = Follower([web], session)
    web.send(session, "call remove | say Done")
    request = follower.wait_for("approval.request")
    name = cluster.owner_node(session)
    cluster.nodes[name].kill()
    web.answer_approval(session, request)

    follower.wait_for("agent.end")
    assert cluster.effects == [
        f"starts remove {session} {others(cluster, name)}",
        f"ends remove {session} {others(cluster, name)}",
    ]
    assert_ended_once(cluster, follower, session)


def test_an_approval_whose_workers_are_all_dead_waits_for_the_next_one(cluster: Cluster, web: Node) -> None:
    session = web.session()
    follower = Follower([web], session)
    web.send(session, "call remove | say Done")
    request = follower.wait_for("approval.request")
    for name in ("v", "w"):
        cluster.nodes[name].kill()
    web.answer_approval(session, request)
    follower.wait_for("approval.decision")
    cluster.start("worker", "x")
    follower.wait_for("agent.end")
    assert cluster.effects == [f"starts remove {session} x", f"ends remove {session} x"]
    assert_ended_once(cluster, follower, session)


def test_a_turn_that_kills_its_workers_is_closed_and_the_third_worker_lives(
    cluster: Cluster, web: Node
) -> None:
    third = cluster.start("worker", "x")
    session = web.session()
    follower = Follower([web], session)
    web.send(session, "call explode | say Alive")
    error = follower.wait_for("session.error")
    assert error["payload"]["code"] == "worker_lost"
    follower.wait_for("agent.end", stop_reason="error")
    assert cluster.count_effects("starts", "explode") == 2
    alive = [node for node in cluster.nodes.values() if node.is_running]
    assert len(alive) == 2

    # The session and the worker are as good as before.
    web.send(session, "say Hello again")
    follower.wait_for("agent.end", stop_reason="end_turn")
    assert_read_once(follower, cluster.events(session))
    assert wait_until(lambda: any(node.health() == 200 for node in alive if node is not web))
    assert third.process.poll() in (None, -9)
