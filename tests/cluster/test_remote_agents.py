"""Agents that run elsewhere, on a shared log: the node that runs a session offers its parts to workers."""

import asyncio
import signal

from tests.cluster.nodes import Cluster, Follower, Node, assert_read_once
from tests.e2e.test_record import token_options
from tests.e2e.test_serve import Effects, working

REMOTE = "tests.e2e.serve_apps:support"


def start(cluster: Cluster, role: str, name: str) -> Node:
    return cluster.start(role, name, options=[REMOTE, *token_options(cluster.folder)])


def make_session(web: Node) -> str:
    status, answer = web.post("/api/sessions", {"app": "support"})
    assert status == 201, answer
    return str(answer["session_id"])


def test_a_worker_of_the_log_has_the_work_and_every_web_node_shows_it(cluster: Cluster) -> None:
    web, node = start(cluster, "web", "a"), start(cluster, "worker", "v")
    bot = {"authorization": f"Bearer {'bot' * 12}"}
    question = {"app": "support", "worker": "worker-1", "free": 0}
    assert web.post("/api/parts", question, bot)[0] == 404
    session = make_session(web)
    follower = Follower([web], session)
    web.send(session, "delete /a")
    with working(node, cluster.folder):
        web.answer_approval(session, follower.wait_for("approval.request"))
        follower.wait_for("agent.end", stop_reason="end_turn")
    assert_read_once(follower, cluster.events(session))


def test_a_drain_hands_over_what_no_worker_has_taken(cluster: Cluster) -> None:
    web, first = start(cluster, "web", "a"), start(cluster, "worker", "v")
    queued, answered = make_session(web), make_session(web)
    followers = [Follower([web], session) for session in (queued, answered)]
    web.send(answered, "delete /a")
    with working(first, cluster.folder):
        request = followers[1].wait_for("approval.request")
    web.answer_approval(answered, request)
    web.send(queued, "hi")
    for session in (queued, answered):
        cluster.wait_for_owner(session, "v")

    second = start(cluster, "worker", "w")
    first.signal(signal.SIGTERM)
    assert first.process.wait() == 0
    with working(second, cluster.folder):
        for follower in followers:
            follower.wait_for("agent.end", stop_reason="end_turn")
    assert not followers[0].find("session.error")
    assert Effects(cluster.folder).all().count("delete /a") == 1


def test_a_killed_node_leaves_no_turn_open_and_the_next_has_the_work(cluster: Cluster) -> None:
    web, first = start(cluster, "web", "a"), start(cluster, "worker", "v")
    session = make_session(web)
    follower = Follower([web], session)
    web.send(session, "hang")
    with working(first, cluster.folder) as worker:
        asyncio.run(worker.wait_for("hangs"))
        first.kill()
        second = start(cluster, "worker", "w")
        follower.wait_for("agent.end", stop_reason="error")
    web.send(session, "hi")
    with working(second, cluster.folder):
        follower.wait_for("agent.end", stop_reason="end_turn")
    assert_read_once(follower, cluster.events(session))
