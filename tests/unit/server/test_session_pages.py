"""Pages of sessions and of documents: what a caller gets, and which heads are read for it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.unit.log.delegates import Counting
from turnlog import Agent, App
from turnlog.agents import Scripted
from turnlog.app import Principal
from turnlog.log import MemoryStore
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token

PEOPLE = {
    "ada": Principal("ada"),
    "eve": Principal("eve"),
    "root": Principal("root", frozenset({"operator"})),
}
SESSIONS = 5


class Site:
    """A server with sessions of ada's, each with a message, and a store that counts."""

    def __init__(self, client: TestClient, store: Counting) -> None:
        self._client = client
        self.store = store
        self.made = [self._make(number) for number in range(SESSIONS)]

    def _make(self, number: int) -> str:
        headers = {"authorization": "Bearer ada"}
        made = self._client.post("/api/sessions", json={"title": f"trip {number}"}, headers=headers).json()
        sent = {"session": made["session_id"], "message": "hello"}
        turn = self._client.post("/api/send", json=sent, headers=headers).json()["turn"]
        name: str = made["session_id"]
        self._client.get(f"/api/events?session={name}&turn={turn}", headers=headers)  # ends with the turn
        return name

    def get(self, who: str, path: str, status: int = 200) -> Any:
        answer = self._client.get(path, headers={"authorization": f"Bearer {who}"})
        assert answer.status_code == status, answer.text
        return answer.json()

    def pages(self, who: str, path: str, limit: int) -> list[Any]:
        found, after = [], ""
        while True:
            page = self.get(who, f"{path}?limit={limit}{after}")
            found.append(page)
            if "next" not in page:
                return found
            after = f"&after={page['next']}"

    def reads(self, who: str, path: str) -> dict[str, int]:
        """Which calls of the store a request makes, but for the first event of a process that looks at it."""
        self.store.calls.clear()
        self.get(who, path)
        return dict(self.store.calls)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    app = App("plain", Agent("Clerk", "", Scripted(lambda _: ["Good day."])))
    auth = BuiltinAuth(b"k" * 32, {hash_token(name): principal for name, principal in PEOPLE.items()})
    store = Counting(MemoryStore())
    with TestClient(create_app(app, store.store, auth=auth), base_url="http://localhost") as client:
        yield Site(client, store)


@pytest.mark.parametrize("who", ["ada", "root"])
def test_sessions_come_in_pages_each_once(site: Site, who: str) -> None:
    pages = site.pages(who, "/api/sessions", 2)
    assert [len(page["sessions"]) for page in pages] == [2, 2, 1]
    assert sorted(one["session_id"] for page in pages for one in page["sessions"]) == sorted(site.made)


def test_sessions_without_a_limit_come_in_one_page(site: Site) -> None:
    page = site.get("ada", "/api/sessions")
    assert len(page["sessions"]) == SESSIONS
    assert "next" not in page


def test_sessions_by_name_are_one(site: Site) -> None:
    [one] = site.get("ada", f"/api/sessions?session={site.made[2]}")["sessions"]
    assert one["title"] == "trip 2"
    site.get("eve", f"/api/sessions?session={site.made[2]}", 404)


def test_list_of_a_stranger_reads_no_head(site: Site) -> None:
    assert site.reads("eve", "/api/sessions") == {"listing": 1}
    assert site.reads("eve", "/api/documents") == {"listing": 1}


def test_list_reads_its_page_once(site: Site) -> None:
    assert site.reads("ada", "/api/sessions?limit=2") == {"listing": 1}


def test_list_is_in_the_same_order_after_its_sessions_were_read(site: Site) -> None:
    before = site.pages("ada", "/api/sessions", 2)
    for name in site.made[:2]:
        for path in ("state", "log", "documents"):
            site._client.get(f"/api/{path}?session={name}", headers={"authorization": "Bearer ada"})
    after = site.pages("ada", "/api/sessions", 2)
    assert [[one["session_id"] for one in page["sessions"]] for page in after] == [
        [one["session_id"] for one in page["sessions"]] for page in before
    ]


def test_documents_come_in_pages_of_sessions(site: Site) -> None:
    pages = site.pages("ada", "/api/documents", 2)
    sessions = [list(dict.fromkeys(one["session_id"] for one in page["documents"])) for page in pages]
    assert [len(page) for page in sessions] == [2, 2, 1]
    assert sorted(name for page in sessions for name in page) == sorted(site.made)


def test_documents_of_all_sessions_are_not_written(site: Site) -> None:
    site.store.calls.clear()
    site.pages("ada", "/api/documents", 2)
    assert "commit" not in site.store.calls


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=501", "limit=x", "limit=", "after=x", "after=1-x", "after=-sess_1", "after=1"]
)
def test_page_that_cannot_be_is_refused(site: Site, query: str) -> None:
    name = query.partition("=")[0]
    assert site.get("ada", f"/api/sessions?{query}", 400)["error"].endswith(f"(at {name})")


def test_agent_that_is_unknown_is_looked_up_once(site: Site) -> None:
    site.store.calls.clear()
    result = {"tool_use_id": "toolu_1", "content": "hi"}
    body = {"tool_results": [result], "agent_uuid": "00000000-0000-0000-0000-000000000000"}
    for who in ("ada", "eve"):
        headers = {"authorization": f"Bearer {who}"}
        answer = site._client.post("/agent/tool_results", json=body, headers=headers)
        assert answer.status_code == 404
    assert dict(site.store.calls) == {"agent_starts": 2, "info": 2}


def test_agent_of_a_session_finds_it_for_its_member_only(site: Site) -> None:
    log = site._client.get(f"/api/log?session={site.made[0]}", headers={"authorization": "Bearer ada"}).text
    lines = [json.loads(line) for line in log.strip().split("\n")]
    [agent] = [line["agent_id"] for line in lines if line["type"] == "agent.start"]
    body = {"user_prompt": "hi", "agent_uuid": agent.removeprefix("agt_")}
    found = {}
    for who in ("ada", "eve"):
        answer = site._client.post("/agent/run", json=body, headers={"authorization": f"Bearer {who}"})
        found[who] = answer.headers["turnlog-session"]
    assert found["ada"] == site.made[0]
    assert found["eve"] not in site.made, "a session of its own"
