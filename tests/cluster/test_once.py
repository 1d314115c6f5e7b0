"""What may happen once happens once, whichever node is asked, also if both are asked at the same moment."""

import json
import re
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import pytest

from tests.cluster.nodes import Cluster, Follower, Node, wait_until
from turnlog.server.auth.credentials import hash_token

T = TypeVar("T")
ROUNDS = 15  # of two requests at the same moment: in most of them both nodes see the state before
BOB_TOKEN = "the token of Bob in these tests"


class Answer(NamedTuple):
    """The status of a response, its headers and its body."""

    status: int
    cookie: str
    body: bytes


class NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def fetch(url: str, form: dict[str, str] | None = None, **headers: str) -> Answer:
    """Send a request as a browser without a token would; do not follow redirects."""
    data = urllib.parse.urlencode(form).encode() if form is not None else None
    opener = urllib.request.build_opener(NoRedirects)
    try:
        with opener.open(urllib.request.Request(url, data, headers)) as response:
            status, found, body = response.status, response.headers, response.read()
    except urllib.error.HTTPError as error:
        status, found, body = error.code, error.headers, error.read()
    return Answer(status, (found.get("set-cookie") or "").partition(";")[0], body)


def at_once(work: Callable[..., T], nodes: Sequence[Node], *args: Any) -> list[T]:
    """Call a function for each node in a thread of its own; all begin at the same moment."""
    barrier = threading.Barrier(len(nodes))

    def run(node: Node) -> T:
        barrier.wait()
        return work(node, *args)

    with ThreadPoolExecutor(len(nodes)) as threads:
        return list(threads.map(run, nodes))


def open_link(node: Node, code: str) -> Answer:
    return fetch(f"{node.url}/sign-in?code={code}")


def join(node: Node, code: str) -> Answer:
    return fetch(f"{node.url}/sign-in", {"code": code, "name": f"A guest at {node.name}"})


def send(node: Node, session: str, key: str) -> tuple[int, Any]:
    return node.post("/api/send", {"session": session, "message": f"say {key}"}, {"idempotency-key": key})


def send_to_default(node: Node) -> tuple[int, Any]:
    return node.post("/api/send", {"message": "say Hello"})


def start_run(node: Node) -> tuple[int, Any]:
    run = {
        "threadId": "thread-1",
        "runId": "run-1",
        "messages": [{"id": "m1", "role": "user", "content": "say Hello"}],
        "tools": [],
        "context": [],
        "state": {},
        "forwardedProps": {},
    }
    return node.post("/ag-ui/cluster", run)


@pytest.fixture
def nodes(cluster: Cluster) -> tuple[Node, Node]:
    tokens = cluster.folder / "tokens.json"
    tokens.write_text(json.dumps({"bob": {"sha256": hash_token(BOB_TOKEN)}}))
    options = ["--tokens", str(tokens)]
    return cluster.start("web", "a", options=options), cluster.start("web", "b", options=options)


def as_bob(node: Node) -> Node:
    return Node(node.process, node.port, token=BOB_TOKEN, name=node.name)


def test_a_sign_in_link_used_on_two_nodes_at_once_signs_in_once(
    cluster: Cluster, nodes: tuple[Node, Node]
) -> None:
    a, b = nodes
    code = a.link.partition("code=")[2]
    answers = at_once(open_link, (a, b, a, b), code)
    assert sorted(answer.status for answer in answers).count(303) == 1
    assert len([answer for answer in answers if answer.cookie]) == 1
    [cookie] = [answer.cookie for answer in answers if answer.cookie]
    assert fetch(f"{a.url}/api/me", cookie=cookie).status == 200
    assert fetch(f"{b.url}/api/me", cookie=cookie).status == 200
    assert fetch(f"{b.url}/sign-in?code={code}").status != 303


def test_a_join_link_used_on_two_nodes_at_once_lets_one_person_in(
    cluster: Cluster, nodes: tuple[Node, Node]
) -> None:
    a, _ = nodes
    session = a.session()
    for _ in range(ROUNDS):
        status, link = a.post("/api/links", {"session": session, "roles": ["guest"]})
        assert status == 201, link
        code = link["path"].partition("code=")[2]
        answers = at_once(join, nodes, code)
        assert [answer.status for answer in answers].count(303) == 1, answers
        assert len([answer for answer in answers if answer.cookie]) == 1
    joined = [event for event in cluster.events(session) if event.type == "session.member"]
    assert len(joined) == ROUNDS + 1


def test_the_same_idempotency_key_on_two_nodes_at_once_gives_one_event_and_one_answer(
    cluster: Cluster, nodes: tuple[Node, Node]
) -> None:
    session = nodes[0].session()

    for number in range(ROUNDS):
        key = f"key-{number}"
        answers = at_once(send, nodes, session, key)
        assert [status for status, _ in answers] == [202, 202], answers
        assert answers[0] == answers[1]
        assert answers[0][1]["turn"]
        assert send(nodes[1], session, key) == answers[0]
    messages = [event for event in cluster.events(session) if event.type == "ui.message"]
    assert len(messages) == ROUNDS


def test_default_sessions_requested_on_two_nodes_at_once_exist_once(
    cluster: Cluster, nodes: tuple[Node, Node]
) -> None:
    for node in nodes:
        node.token = BOB_TOKEN
    answers = at_once(send_to_default, (*nodes, *nodes))
    assert [status for status, _ in answers] == [202] * 4, answers
    [session] = {answer["session"] for _, answer in answers}
    events = Counter(event.type for event in cluster.events(session))
    assert (events["session.member"], events["ui.message"]) == (1, 4)
    assert set(nodes[0].states()) == {session}


def test_a_thread_requested_on_two_nodes_at_once_is_one_session(
    cluster: Cluster, nodes: tuple[Node, Node]
) -> None:
    cluster.start("worker", "w")
    answers = at_once(start_run, nodes)
    assert [status for status, _ in answers] == [200, 200], answers
    assert all(b"RUN_FINISHED" in body for _, body in answers)
    [session] = nodes[0].states()
    assert Counter(event.type for event in cluster.events(session))["ui.message"] == 1


def test_a_sign_out_on_one_node_ends_the_streams_of_others(
    cluster: Cluster, nodes: tuple[Node, Node]
) -> None:
    a, b = nodes
    session = a.session()
    cookie = fetch(f"{a.url}/sign-in?code={a.link.partition('code=')[2]}").cookie
    reader = CookieReader(b, cookie)
    follower = Follower([reader], session)
    follower.wait_for("session.member")
    assert fetch(f"{b.url}/api/me", cookie=cookie).status == 200
    assert fetch(f"{a.url}/api/sign-out", {}, cookie=cookie, origin=a.url).status == 204
    wait_until(lambda: follower.ends)
    wait_until(lambda: fetch(f"{b.url}/api/me", cookie=cookie).status == 401)

    # A node that starts later knows it, too.
    c = cluster.start("web", "c")
    assert fetch(f"{c.url}/api/me", cookie=cookie).status == 401
    other = fetch(f"{c.url}/sign-in?code={c.link.partition('code=')[2]}").cookie
    assert fetch(f"{a.url}/api/me", cookie=other).status == 200


class CookieReader(Node):
    """A node as a browser with a cookie sees it."""

    def __init__(self, node: Node, cookie: str) -> None:
        super().__init__(node.process, node.port, name=node.name)
        self._cookie = cookie

    @property
    def headers(self) -> dict[str, str]:
        return {"cookie": self._cookie}


def test_a_member_removed_on_one_node_loses_the_stream_on_another(
    cluster: Cluster, nodes: tuple[Node, Node]
) -> None:
    a, b = nodes
    session = a.session()
    status, link = a.post("/api/links", {"session": session, "roles": ["guest"]})
    assert status == 201, link
    code = link["path"].partition("code=")[2]
    page = fetch(f"{b.url}/sign-in?code={code}", authorization=f"Bearer {BOB_TOKEN}")
    assert re.search(rb"signed_in_as", page.body)
    form = {"code": code, "signed_in_as": "bob"}
    assert fetch(f"{b.url}/sign-in", form, authorization=f"Bearer {BOB_TOKEN}").status == 303
    follower = Follower([as_bob(b)], session)
    follower.wait_for("session.member", principal="bob")
    status, answer = a.post("/api/members", {"session": session, "principal": "bob", "roles": []})
    assert status in (200, 202), answer
    wait_until(lambda: follower.ends)
    wait_until(lambda: as_bob(b).get(f"/api/events?session={session}")[0] == 404)
