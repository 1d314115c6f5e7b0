"""A rolling restart of two web nodes and two workers, with turns that run and turns that wait.

`tests/cluster/test_rolling_restart.py` has a tenth of the sessions of `tests/soak/test_nodes.py`.
"""

import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.cluster.nodes import Cluster, Follower, Node, assert_read_once, wait_until

RUNNING_SCRIPT = """say One; wait first; say two; call look |
    say three; wait second; call scribble | wait third; say Done"""
WAITING_SCRIPT = "say May I?; call remove | say Removed"
THREADS = 8
DRAIN_S = 2.0  # of web nodes


def restart_all(cluster: Cluster, running_count: int, waiting_count: int) -> dict[str, int]:
    """Replace every node while turns run and wait; check each turn and each reader. Return figures."""
    webs = [cluster.start("web", name, drain_s=DRAIN_S) for name in ("a", "b")]
    workers = [cluster.start("worker", name) for name in ("v", "w")]
    with ThreadPoolExecutor(THREADS) as threads:
        running = list(threads.map(lambda _: start_turn(webs[0], RUNNING_SCRIPT), range(running_count)))
        waiting = list(threads.map(lambda _: start_turn(webs[1], WAITING_SCRIPT), range(waiting_count)))
    web_list = list(webs)  # shared by all readers: nodes that start are added
    followers = {session: Follower(web_list, session) for session in running}
    watched = waiting[:: max(1, waiting_count // 20)]
    followers |= {session: Follower(web_list, session) for session in watched}
    cluster.wait_for_effect("waits", "first", "model", count=running_count)
    for session in watched:
        followers[session].wait_for("approval.request")

    # the workers, each while the turns are in the middle of a step
    stages = zip(workers, ("v2", "w2"), ("first", "second"), ("second", "third"), strict=True)
    for old, name, gate, next_gate in stages:
        cluster.start("worker", name)
        stop_with_gate(cluster, old, gate)
        cluster.wait_for_effect("waits", next_gate, "model", count=running_count)
    # the web nodes, while the turns are in their last step
    for name, old in zip(("a2", "b2"), webs, strict=True):
        web_list.append(cluster.start("web", name, drain_s=DRAIN_S))
        web_list.remove(old)
        assert old.stop() == 0
    web = web_list[0]
    cluster.open_gate("third")
    for session in running:
        followers[session].wait_for("agent.end")
    requests = [(session, followers[session].wait_for("approval.request")) for session in watched]
    for session, request in requests:
        web.answer_approval(session, request)
    for session in watched:
        followers[session].wait_for("agent.end")

    for session, follower in followers.items():
        check_turn(cluster, session, follower)
    assert cluster.count_effects("starts", "scribble") == running_count
    assert cluster.count_effects("starts", "look") == running_count
    assert cluster.count_effects("starts", "remove") == len(watched)
    states = Counter(web.states().values())
    assert states["waiting"] == waiting_count - len(watched), states
    return {
        "readers": len(followers),
        "streams": sum(len(follower.ends) + 1 for follower in followers.values()),
        "events": sum(len(follower.events) for follower in followers.values()),
    }


def start_turn(node: Node, script: str) -> str:
    session = node.session()
    node.send(session, script)
    return session


def stop_with_gate(cluster: Cluster, worker: Node, gate: str) -> None:
    """Stop a worker whose turns wait at a gate, which opens when the worker drains."""
    worker.signal(signal.SIGTERM)
    wait_until(lambda: worker.health() == 503)
    cluster.open_gate(gate)
    assert worker.process.wait() == 0


def check_turn(cluster: Cluster, session: str, follower: Follower) -> None:
    assert_read_once(follower, cluster.events(session))
    assert [end["payload"]["stop_reason"] for end in follower.find("agent.end")] == ["end_turn"]
    for type_name in ("session.error", "block.retract", "process.end"):
        assert not follower.find(type_name), (session, type_name)
