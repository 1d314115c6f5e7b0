"""Partitions between a node and the engine: of a worker, of a web node, of the bell alone, and of all."""

import signal
from collections.abc import Iterator

import pytest

from tests.cluster.nodes import LEASE_S, Cluster, Follower, assert_read_once, wait_until
from tests.support.faulty_proxy import FaultyProxy
from tests.support.postgres_server import PostgresServer

# The connection of the bell listens first, and then only notifies.
FIND_BELL = """select client_port from pg_stat_activity where application_name = 'deaf'
    and (query = 'listen turnlog' or query like '%pg_notify%')"""
SILENT = "select 1 from turnlog.worker having bool_and(until < now() - interval '{} s')"


@pytest.fixture
def second_proxy(server: PostgresServer) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(server.port)
    yield proxy
    proxy.close()


def test_a_worker_that_is_cut_off_is_replaced_and_starts_nothing(
    cluster: Cluster, proxy: FaultyProxy
) -> None:
    web = cluster.start("web", "a")
    cut_off = cluster.start("worker", "v", url=proxy.url())
    session = web.session()
    follower = Follower([web], session)
    web.send(session, "say One; wait go@; call scribble | say Done; call look | say End")
    cluster.wait_for_effect("waits", "go@v")
    cluster.start("worker", "w")
    proxy.freeze()
    cluster.wait_for_effect("waits", "go@w")
    cluster.open_gate("go@v")
    cluster.wait_for_effect("passes", "go@v")
    cluster.open_gate("go@w")
    follower.wait_for("agent.end", stop_reason="end_turn")
    before = cluster.events(session)
    proxy.open()
    assert cut_off.stop() == 0  # by then it has tried to append what it had
    assert cluster.events(session) == before
    assert [line for line in cluster.effects if line.startswith("starts")] == [
        f"starts scribble {session} w",
        f"starts look {session} w",
    ]
    assert_read_once(follower, before)


def test_readers_of_a_web_node_that_is_cut_off_go_on_at_another(cluster: Cluster, proxy: FaultyProxy) -> None:
    cut_off = cluster.start("web", "a", url=proxy.url())
    other, _ = cluster.start_all(b="web", w="worker")
    session = other.session()
    followers = [Follower([cut_off, other], session) for _ in range(3)]
    other.send(session, "say One two; wait go; say three")
    for follower in followers:
        follower.wait_for_text("two")
        assert not follower.ends
    proxy.freeze()
    cluster.open_gate("go")
    wait_until(lambda: cut_off.health() == 503)
    for follower in followers:
        follower.wait_for("agent.end", stop_reason="end_turn")
        assert follower.ends[0][0] == "a"
        assert_read_once(follower, cluster.events(session))
    assert other.health() == 200
    assert cut_off.get("/api/sessions")[0] == 503

    proxy.open()
    wait_until(lambda: cut_off.health() == 200)
    cut_off.send(session, "say Back")
    followers[0].wait_for("agent.end", count=2)


def test_a_node_whose_bell_is_cut_off_shows_every_event(cluster: Cluster, proxy: FaultyProxy) -> None:
    deaf = cluster.start("web", "a", url=f"{proxy.url()}?application_name=deaf")
    other, _ = cluster.start_all(b="web", w="worker")
    [(bell_port,)] = wait_until(lambda: cluster.engine.execute(FIND_BELL))
    session = other.session()
    follower = Follower([deaf], session)
    follower.wait_for("session.member")
    proxy.freeze(bell_port)
    for number in range(3):
        other.send(session, f"say Number {number}; call look | say Done")
        follower.wait_for("agent.end", count=number + 1)
    assert_read_once(follower, cluster.events(session))
    assert not follower.ends


def test_a_worker_whose_bell_is_cut_off_finds_its_work(cluster: Cluster, proxy: FaultyProxy) -> None:
    web = cluster.start("web", "a")
    cluster.start("worker", "v", url=f"{proxy.url()}?application_name=deaf")
    [(bell_port,)] = wait_until(lambda: cluster.engine.execute(FIND_BELL))
    proxy.freeze(bell_port)
    session = web.session()
    follower = Follower([web], session)
    web.send(session, "call remove | say Done")
    web.answer_approval(session, follower.wait_for("approval.request"))
    follower.wait_for("agent.end", stop_reason="end_turn")


def test_after_an_outage_longer_than_a_lease_each_worker_goes_on_with_its_own_turns(
    cluster: Cluster, proxy: FaultyProxy, second_proxy: FaultyProxy
) -> None:
    """All nodes lose the engine. The worker that is back first takes nothing from the other."""
    web = cluster.start("web", "a")
    first = cluster.start("worker", "v", url=proxy.url())
    session = web.session()
    follower = Follower([web], session)
    web.send(session, "say One; wait go; say two; call scribble | say Done")
    cluster.wait_for_effect("waits", "go")
    cluster.start("worker", "w", url=second_proxy.url())
    # The second worker renews in time for a lease time: it could take over.
    ready = f"select 1 from turnlog.worker where node = 'w' and since < now() - interval '{LEASE_S} s'"
    wait_until(lambda: cluster.engine.execute(ready))
    proxy.refuse()
    second_proxy.refuse()
    wait_until(lambda: cluster.engine.execute(SILENT.format(LEASE_S)))
    second_proxy.open()
    alive = "select 1 from turnlog.worker where node = 'w' and until > now()"
    wait_until(lambda: cluster.engine.execute(alive))
    assert cluster.owner_node(session) == "v"
    proxy.open()
    cluster.open_gate("go")
    follower.wait_for("agent.end", stop_reason="end_turn")
    assert first.is_running
    assert cluster.owner_node(session) == "v"
    assert cluster.count_effects("waits", "go") == 1
    for type_name in ("process.end", "block.retract", "session.error"):
        assert not follower.find(type_name), type_name
    assert len(follower.find("process.start", process="server")) == 1
    assert_read_once(follower, cluster.events(session))


def test_a_turn_waits_while_the_engine_is_paused(cluster: Cluster) -> None:
    web, _ = cluster.start_all(a="web", v="worker")
    session = web.session()
    follower = Follower([web], session)
    web.send(session, "say One; wait go; say two; call look | say Done")
    cluster.wait_for_effect("waits", "go")
    [(until,)] = cluster.engine.execute("select max(until)::text from turnlog.worker")
    cluster.engine.signal(signal.SIGSTOP)
    try:
        wait_until(lambda: web.health() == 503)  # after its silence
        cluster.open_gate("go")
        cluster.wait_for_effect("passes", "go")
    finally:
        cluster.engine.signal(signal.SIGCONT)
    wait_until(lambda: cluster.engine.execute(f"select 1 from turnlog.worker where until > '{until}'"))
    follower.wait_for("agent.end", stop_reason="end_turn")
    assert not follower.find("session.error")
    assert_read_once(follower, cluster.events(session))
    wait_until(lambda: web.health() == 200)
