"""SIGSTOP of a worker until another one has its sessions: then it may write nothing and start nothing."""

import signal

import pytest

from tests.cluster.nodes import Cluster, Follower, Node, assert_read_once, wait_until

SCRIPT = "say One; wait go@; say late from@; call scribble tool@ | say Done"


def pause_until_replaced(cluster: Cluster, control: str = "") -> tuple[Node, Node, Follower, str]:
    """Pause worker v in its text until w has taken its turn over; w waits at its own gate."""
    web = cluster.start("web", "a")
    paused = cluster.start("worker", "v", control=control)
    session = web.session()
    follower = Follower([web], session)
    web.send(session, SCRIPT)
    cluster.wait_for_effect("waits", "go@v")
    follower.wait_for_text("One")
    cluster.start("worker", "w")
    paused.signal(signal.SIGSTOP)
    cluster.wait_for_effect("waits", "go@w")
    return web, paused, follower, session


def finish(cluster: Cluster, follower: Follower) -> None:
    cluster.open_gate("go@w", "tool@w", "tool@v")
    follower.wait_for("agent.end")


def test_a_paused_worker_appends_nothing_when_it_goes_on(cluster: Cluster) -> None:
    _, paused, follower, session = pause_until_replaced(cluster)
    before = cluster.events(session)
    cluster.open_gate("go@v")
    paused.signal(signal.SIGCONT)
    cluster.wait_for_effect("passes", "go@v")
    assert paused.stop() == 0  # by then it has tried to append
    assert cluster.events(session) == before

    finish(cluster, follower)
    assert [one["payload"]["text"] for one in follower.find("assistant.message")] == [
        "One late from@ ",
        "Done ",
    ]
    assert not follower.find("session.error")
    assert_read_once(follower, cluster.events(session))


def test_without_the_fence_a_paused_worker_goes_on_to_write(cluster: Cluster) -> None:
    """The control: the same worker without the fence of its lease."""
    _, paused, _, session = pause_until_replaced(cluster, "without fence")
    before = cluster.events(session)
    cluster.open_gate("go@v")
    paused.signal(signal.SIGCONT)
    late = wait_until(lambda: cluster.events(session)[len(before) :])
    assert late


@pytest.mark.parametrize("control", ["", "without confirmation"])
def test_a_paused_worker_starts_no_tool_of_the_turn_that_it_lost(cluster: Cluster, control: str) -> None:
    """Worker v reads the calls of w when it goes on. In the control it does not confirm its lease."""
    _, paused, follower, session = pause_until_replaced(cluster, control)
    cluster.open_gate("go@w")
    cluster.wait_for_effect("waits", "tool@w")
    paused.signal(signal.SIGCONT)
    if control:
        cluster.wait_for_effect("starts", "scribble", session, count=2)
        assert f"starts scribble {session} v" in cluster.effects
        return
    assert paused.stop() == 0
    finish(cluster, follower)
    assert [line for line in cluster.effects if "scribble" in line] == [
        f"starts scribble {session} w",
        f"ends scribble {session} w",
    ]
    assert_read_once(follower, cluster.events(session))


def test_a_paused_worker_starts_no_tool_that_waited_for_a_free_slot(cluster: Cluster) -> None:
    """Five tools run at once; the sixth is still to start when the worker is paused."""
    web = cluster.start("web", "a")
    paused = cluster.start("worker", "v")
    session = web.session()
    follower = Follower([web], session)
    web.send(session, "call look v; " * 5 + "call scribble | say Done")
    cluster.wait_for_effect("starts", "look", session, count=5)
    paused.signal(signal.SIGSTOP)
    cluster.open_gate("v")
    cluster.start("worker", "w")
    follower.wait_for("agent.end")
    paused.signal(signal.SIGCONT)
    cluster.wait_for_effect("ends", "look", session, count=10)
    assert paused.stop() == 0
    assert cluster.count_effects("starts", "scribble") == 0  # it may have run before the pause
    [result] = follower.find("tool.result", tool="scribble")
    assert result["payload"]["error"]["code"] == "CANCELLED"
    assert_read_once(follower, cluster.events(session))


def test_a_worker_that_was_paused_for_a_moment_goes_on(cluster: Cluster) -> None:
    """No other worker is there: the session is still its own after three lease times."""
    web = cluster.start("web", "a")
    paused = cluster.start("worker", "v")
    session = web.session()
    follower = Follower([web], session)
    web.send(session, "say One; wait go; say two; call scribble | say Done")
    cluster.wait_for_effect("waits", "go")
    paused.signal(signal.SIGSTOP)
    silent = "select 1 from turnlog.worker where until < now() - interval '3 s'"
    wait_until(lambda: cluster.engine.execute(silent))
    cluster.open_gate("go")
    paused.signal(signal.SIGCONT)
    follower.wait_for("agent.end", stop_reason="end_turn")
    assert not follower.find("block.retract")
    assert not follower.find("process.end")
    assert cluster.count_effects("starts", "scribble") == 1
    assert_read_once(follower, cluster.events(session))


def test_a_session_comes_back_to_the_worker_that_lost_it_without_noticing(cluster: Cluster) -> None:
    """Worker v still has its runner of the waiting session, with the fence of its lost lease."""
    web = cluster.start("web", "a")
    paused = cluster.start("worker", "v")
    session = web.session()
    follower = Follower([web], session)
    web.send(session, "call remove | say Done")
    request = follower.wait_for("approval.request")
    paused.signal(signal.SIGSTOP)
    other = cluster.start("worker", "w")
    cluster.wait_for_owner(session, "w")
    paused.signal(signal.SIGCONT)
    assert other.stop() == 0
    assert cluster.owner_node(session) == ""
    web.answer_approval(session, request)
    follower.wait_for("agent.end", stop_reason="end_turn")
    assert cluster.effects == [f"starts remove {session} v", f"ends remove {session} v"]
    assert_read_once(follower, cluster.events(session))
