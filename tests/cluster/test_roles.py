"""Web nodes and workers: any web node takes a message, any worker runs it, every web node shows it."""

import os
import urllib.error
import urllib.request

import pytest

from tests.cluster.nodes import APP, Cluster, Follower, assert_read_once, run_refused, wait_until
from tests.support.postgres_server import PostgresServer

SCRIPT = "say One two three; wait go; say four five; call look; call helper | call remove | say Done"


def test_a_message_of_one_node_is_followed_on_another(cluster: Cluster) -> None:
    a, b, _ = cluster.start_all(a="web", b="web", w="worker")
    session = a.session()
    follower = Follower([b], session)
    wait_until(lambda: b.states() == {session: "idle"})
    a.send(session, SCRIPT)
    follower.wait_for_text("three")
    wait_until(lambda: b.states()[session] == "running")

    cluster.open_gate("go", "helper")
    request = follower.wait_for("approval.request")
    wait_until(lambda: b.states()[session] == "waiting")
    b.answer_approval(session, request)
    follower.wait_for("agent.end", count=2)
    wait_until(lambda: b.states()[session] == "idle")

    events = cluster.events(session)
    assert_read_once(follower, events)
    seqs = [event["seq"] for event in follower.events]
    assert seqs == list(range(seqs[0], seqs[-1] + 1))  # the live events, too
    assert [event.type for event in events].count("process.start") == 1
    assert not follower.find("session.error")


def test_a_worker_serves_its_health_and_metrics_only(cluster: Cluster) -> None:
    [worker] = cluster.start_all(w="worker")
    assert worker.get("/healthz")[0] == 200
    status, metrics = worker.get("/metrics")
    assert status == 200
    assert b"turnlog_" in metrics
    for path in ("/", "/api/sessions", "/api/me", "/api/events?session=sess_1", "/sign-in?code=x"):
        assert worker.get(path)[0] == 404, path
    assert worker.post("/api/sessions", {})[0] == 404


def test_metrics_of_a_worker_need_a_token(cluster: Cluster) -> None:
    [worker] = cluster.start_all(w="worker")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{worker.url}/metrics")


def test_a_message_waits_for_the_first_worker(cluster: Cluster) -> None:
    [web] = cluster.start_all(a="web")
    session = web.session()
    follower = Follower([web], session)
    web.send(session, "say Hello")
    follower.wait_for("ui.message")
    assert cluster.owner_node(session) == ""
    assert web.states() == {session: "running"}
    cluster.start("worker", "w")
    follower.wait_for("agent.end", stop_reason="end_turn")
    assert_read_once(follower, cluster.events(session))


@pytest.mark.parametrize("role", ["web", "worker"])
def test_a_role_needs_a_log_that_processes_share(role: str) -> None:
    message = run_refused(["serve", APP, "--role", role, "--log", "sqlite:///x.db"], dict(os.environ))
    assert f"a {role} needs a log that several processes share: --log postgresql://..." in message


@pytest.mark.parametrize("role", ["web", "worker", "both"])
def test_servers_that_share_a_log_need_a_key(role: str, server: PostgresServer) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TURNLOG_KEY"}
    arguments = ["serve", APP, "--role", role, "--log", server.url(), "--port", "0"]
    message = run_refused(arguments, environment)
    assert "need the same signing key: give each one --key-file or TURNLOG_KEY" in message
