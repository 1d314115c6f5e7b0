"""The engine itself goes away, for a moment and for longer than its clients repeat their work."""

import signal

import pytest

from tests.cluster.nodes import Cluster, Follower, assert_read_once, wait_until
from tests.support.limits import HANG_S
from turnlog.server.error_responses import STORE_FAILED_MESSAGE

AWAY = (503, {"error": "the database of the log does not answer; try again"})

FAILED = (507, {"error": STORE_FAILED_MESSAGE})


@pytest.fixture
def impatient(cluster: Cluster) -> Cluster:
    """Repeat work for a second only: an outage of two is longer than that."""
    cluster.patience_s = 1.0
    return cluster


def test_nodes_stop_while_the_engine_is_away(cluster: Cluster) -> None:
    cluster.patience_s = 100 * HANG_S  # a node that waited for the engine would not end
    web = cluster.start("web", "a", drain_s=0.1)
    worker = cluster.start("worker", "v", drain_s=0.1)
    session = web.session()
    web.send(session, "say One; wait go; say two")
    cluster.wait_for_effect("waits", "go")
    cluster.engine.kill()
    try:
        for node in (web, worker):
            node.signal(signal.SIGTERM)
        for node in (web, worker):
            wait_until(lambda: not node.is_running)  # noqa: B023  called at once
            assert node.process.poll() == 0
    finally:
        cluster.engine.start()
    other = cluster.start("both", "b")
    cluster.open_gate("go")
    follower = Follower([other], session)
    follower.wait_for("agent.end", stop_reason="end_turn")
    assert_read_once(follower, cluster.events(session))


def test_nodes_stop_while_the_engine_hangs(cluster: Cluster) -> None:
    web = cluster.start("web", "a", drain_s=0.1)
    worker = cluster.start("worker", "v", drain_s=0.1)
    control = cluster.start("worker", "c", drain_s=0.1, control="without cut")
    session = web.session()
    web.send(session, "say One; wait go; say two")
    cluster.wait_for_effect("waits", "go")
    cluster.engine.signal(signal.SIGSTOP)
    try:
        for node in (web, worker, control):
            wait_until(lambda: node.health() == 503)  # noqa: B023  each waits for an answer
        for node in (web, worker, control):
            node.signal(signal.SIGTERM)
        for node in (web, worker):
            wait_until(lambda: not node.is_running)  # noqa: B023  called at once
            assert node.process.poll() == 0
        wait_until(lambda: control.health() == 0)
        assert control.is_running
        control.signal(signal.SIGTERM)
        wait_until(lambda: not control.is_running)
    finally:
        cluster.engine.signal(signal.SIGCONT)
    other = cluster.start("both", "b")
    cluster.open_gate("go")
    follower = Follower([other], session)
    follower.wait_for("agent.end", stop_reason="end_turn")
    assert_read_once(follower, cluster.events(session))


def test_a_turn_goes_on_after_a_crash_of_the_engine(cluster: Cluster) -> None:
    web, worker = cluster.start_all(a="web", v="worker")
    session = web.session()
    follower = Follower([web], session)
    web.send(session, "say One; wait go; say two; call scribble | say Done")
    cluster.wait_for_effect("waits", "go")
    cluster.engine.kill()
    cluster.open_gate("go")
    cluster.wait_for_effect("passes", "go")
    cluster.engine.start()
    follower.wait_for("agent.end", stop_reason="end_turn")
    assert cluster.count_effects("starts", "scribble") == 1
    assert not follower.find("session.error")
    assert_read_once(follower, cluster.events(session))
    assert worker.is_running


def test_a_turn_waits_for_an_engine_that_is_away_longer_than_appends_are_repeated(
    impatient: Cluster,
) -> None:
    web, worker = impatient.start_all(a="web", v="worker")
    session = web.session()
    follower = Follower([web], session)
    web.send(session, "say One; wait go; say two; call scribble | say Done")
    impatient.wait_for_effect("waits", "go")
    impatient.engine.kill()
    try:
        # The append is repeated for a second. What its client is told names no host of the database.
        message = {"type": "ui.message", "payload": {"text": "say Later"}}
        assert web.post("/api/events", {"session": session, "events": [message]}) == AWAY
        impatient.open_gate("go")
        impatient.wait_for_effect("passes", "go")
        wait_until(lambda: web.health() == 503)
        # A write has failed for good by then: no append is repeated as long as this.
        wait_until(lambda: worker.health() == 503)
        assert web.get("/api/sessions") == AWAY
        assert web.post("/api/sessions", {}) == AWAY
    finally:
        impatient.engine.start()
    follower.wait_for("agent.end", stop_reason="end_turn")
    assert not follower.find("session.error")
    assert_read_once(follower, impatient.events(session))
    wait_until(lambda: (web.health(), worker.health()) == (200, 200))


def test_members_are_not_told_what_the_engine_refuses(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    web = cluster.start("web", "a")
    cluster.engine.execute("alter table turnlog.session rename to session_of_old")
    try:
        assert web.get("/api/sessions") == FAILED
        assert web.post("/api/sessions", {}) == FAILED
    finally:
        cluster.engine.execute("alter table turnlog.session_of_old rename to session")
    assert web.get("/api/sessions")[0] == 200
    assert 'relation \\"session\\" does not exist' in capfd.readouterr().err
