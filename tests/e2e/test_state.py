"""State, documents and chat over HTTP: rebuilt without changing a byte, and seen by whom they are for."""

import asyncio
import json
import sqlite3
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import RETRY, TURNLOG, Server, running
from tests.support.invitations import FORM, redemption
from tests.support.leases import rest_session
from tests.support.limits import HANG_S
from turnlog.log import open_log

APP = "tests.e2e.state_apps:app"
INCLUDE = "include=transcript,meters,open,roster"


def chat(server: Server, session: str, role: str = "front", **body: Any) -> tuple[int, Any]:
    key = body.pop("key", None)
    headers = {"idempotency-key": key} if key else {}
    return server.post(f"/api/chat/{role}", {"sessionId": session, **body}, headers)


def talk(server: Server, session: str, words: str | None = None, *notes: str, role: str = "front") -> Any:
    direct = [{"type": "note", "data": {"text": text}} for text in notes]
    status, answer = chat(server, session, role, userMessage=words, directEvents=direct)
    assert status == 200, answer
    return answer


def post_notes(server: Server, session: str, number: int) -> None:
    events = [{"type": "desk.note", "payload": {"text": f"n{count}"}} for count in range(number)]
    for first in range(0, number, 100):  # a body takes no more
        body = {"session": session, "events": events[first : first + 100]}
        status, answer = server.post("/api/events", body)
        assert status == 202, answer


NOTED: dict[str, Any] = {"type": "note", "data": {"text": "a"}}


def raw(server: Server, path: str) -> bytes:
    """The bytes of an answer, without the `retry:` that differs from reader to reader."""
    request = urllib.request.Request(server.url + path, headers=server.headers)
    with urllib.request.urlopen(request, timeout=HANG_S) as response:
        body: bytes = response.read()
    return RETRY.sub(b"", body)


@contextmanager
def desk(folder: Path) -> Iterator[tuple[Server, str]]:
    with running(APP, folder) as server:
        yield server, server.session()


def table(folder: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(folder / "log.db")) as connection, connection:
        return connection.execute(statement).fetchall()


def end_work(folder: Path, closed: str, resting: str) -> None:
    """Close a session, and release another as after a minute of quiet: no server writes into them."""

    async def end() -> None:
        log = await open_log(f"sqlite:///{folder}/log.db")
        await log.close_session(closed)
        await rest_session(log, resting)
        await log.close()

    asyncio.run(end())


def forget(folder: Path) -> None:
    table(folder, "delete from snapshot")
    table(folder, "delete from document")


def rebuild(folder: Path) -> None:
    command = [TURNLOG, "rebuild", "--log", f"sqlite:///{folder}/log.db"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.endswith(" of 2 sessions\n")


def answers(server: Server, closed: str, other: str) -> dict[str, bytes]:
    """Everything there is to ask about two sessions, one of which is closed, and one of which rests."""
    paths = ["/api/sessions", "/api/documents", "/api/documents?category=operational"]
    for session in (closed, other):
        last = 1200 if session == closed else 10
        ats = [-1, 0, 3, 7, last // 2, last - 1, last]
        paths += [f"/api/state?session={session}&at={at}&{INCLUDE}" for at in ats]
        paths += [f"/api/state?session={session}&{INCLUDE}", f"/api/log?session={session}"]
        paths += [f"/api/documents?session={session}", f"/api/documents?session={session}&type=message"]
    paths += [f"/api/state?session={closed}"]
    paths += [f"/api/events?session={closed}&dialect={name}" for name in ("turnlog", "blocks", "blocks-xml")]
    return {path: raw(server, path) for path in paths}


def test_what_is_thrown_away_and_made_again_changes_no_byte_of_any_answer(tmp_path: Path) -> None:
    with desk(tmp_path) as (server, session):
        talk(server, session, "Hello", "a", "b")
        talk(server, session, "ask")
        for _ in range(3):
            post_notes(server, session, 400)
        talk(server, session, "long")
        other = server.session()
        talk(server, other, "Hello", "c", role="back")
        raw(server, f"/api/state?session={session}&{INCLUDE}"), raw(server, "/api/documents")  # are kept
        server.stop()
    end_work(tmp_path, session, other)
    seen = []
    for throw_away in (lambda _: None, forget, rebuild, forget):
        throw_away(tmp_path)
        with running(APP, tmp_path) as server:
            seen.append(answers(server, session, other))
            assert table(tmp_path, "select count(*) from snapshot where name = 'state'") != [(0,)]
            server.kill()
    first = seen[0]
    assert json.loads(first[f"/api/state?session={session}&at=1200&{INCLUDE}"])["state"]["notes"] > 1000
    shown = [json.loads(answer) for path, answer in first.items() if INCLUDE in path]
    assert any(one["open"]["agents"] for one in shown), "somebody was at work"
    assert first[f"/api/events?session={session}&dialect=blocks"]
    for again in seen[1:]:
        assert again == first


def test_a_byte_that_is_kept_is_shown(tmp_path: Path) -> None:
    """The control: answers do come from what is kept, so that they could differ."""
    with desk(tmp_path) as (server, session):
        talk(server, session, "Hello")
        [before] = json.loads(raw(server, "/api/documents?type=message"))["documents"][:1]
        server.stop()
    rebuild_one(tmp_path)
    found = table(tmp_path, "select count(*) from document where type = 'message'")
    assert found != [(0,)]
    table(tmp_path, "delete from document where type = 'message'")
    with running(APP, tmp_path) as server:
        assert before not in json.loads(raw(server, "/api/documents?type=message"))["documents"]
        server.stop()
    rebuild_one(tmp_path)
    with running(APP, tmp_path) as server:
        assert before in json.loads(raw(server, "/api/documents?type=message"))["documents"]


def rebuild_one(folder: Path) -> None:
    command = [TURNLOG, "rebuild", "--log", f"sqlite:///{folder}/log.db"]
    subprocess.run(command, capture_output=True, check=True)


def test_a_chat_says_what_became_of_it(tmp_path: Path) -> None:
    with desk(tmp_path) as (server, session):
        answer = talk(server, session, "Hello", *"abcdefghij")
        assert answer["displayText"] == "I read 12 parts.", "ten notes, the tally, the words"
        assert answer["state"]["notes"] == answer["state"]["tally"] == 10
        told = [(event["type"], event["origin"]) for event in answer["events"]]
        assert told == [("note", "ui")] * 10 + [("tally", "app")]
        assert [bubble["who"] for bubble in answer["messages"]] == ["note"] * 10 + ["user", "assistant"]
        assert answer["seq"] == json.loads(raw(server, f"/api/state?session={session}"))["seq"]

        quiet = talk(server, session, "quiet now")
        assert quiet["displayText"] == ""
        assert [bubble["who"] for bubble in quiet["messages"]][-1] == "user", "no prose, no bubble"
        assert quiet["events"] == [{"type": "note", "data": {"text": "quiet now"}, "origin": "model"}]

        waits = talk(server, session, "ask")
        assert waits["displayText"] == "One moment. "
        state = json.loads(raw(server, f"/api/state?session={session}&include=open"))
        [call] = state["open"]["calls"]
        assert (call["tool"], call["waits_for"]) == ("confirm", "page")
        aside = talk(server, session, None, "aside")
        assert aside["turn"] == waits["turn"], "what comes while somebody waits is told in its turn"
        onward = talk(server, session, "Never mind.", "b")
        assert onward["turn"] == waits["turn"]
        assert onward["displayText"].startswith("I read")


@pytest.mark.parametrize(
    ("role", "body", "status", "words"),
    [
        ("front", {}, 400, "expected a userMessage or directEvents"),
        ("front", {"userMessage": ""}, 400, "$.userMessage"),
        ("front", {"userMessage": " \n"}, 400, "$.userMessage"),
        ("front", {"directEvents": []}, 400, "expected a userMessage"),
        ("front", {"userMessage": "a", "state": {}}, 400, "state"),
        ("side", {"userMessage": "a"}, 404, "no role side of yours"),
        ("front", {"directEvents": [{"type": "unheard"}]}, 400, "got 'unheard' (at $.directEvents[0].type)"),
        ("front", {"directEvents": [{"type": "ui.message", "data": {"text": "a"}}]}, 400, "ui.message"),
        ("front", {"directEvents": [{"type": "agent.end", "data": {}}]}, 400, "expected an event of desk"),
        (
            "front",
            {"directEvents": [NOTED, {"type": "note", "data": {"text": 3}}]},
            400,
            "$.directEvents[1].data.text",
        ),
        ("front", {"directEvents": [NOTED | {"id": ""}]}, 400, "$.directEvents[0].id"),
        ("front", {"directEvents": [{"type": "tally", "data": {"notes": 3}}]}, 400, "tally"),
        ("front", {"userMessage": "a", "sessionId": "sess_none"}, 404, "no session"),
    ],
)
def test_a_chat_that_is_refused_leaves_nothing(
    tmp_path: Path, role: str, body: Any, status: int, words: str
) -> None:
    with desk(tmp_path) as (server, session):
        before = raw(server, f"/api/log?session={session}")
        got, answer = chat(server, session, role, **body)
        assert (got, words in answer["error"]) == (status, True), answer
        assert raw(server, f"/api/log?session={session}") == before


def test_rules_that_cannot_be_followed_are_the_servers_fault_and_leave_nothing(tmp_path: Path) -> None:
    with desk(tmp_path) as (server, session):
        before = raw(server, f"/api/log?session={session}")
        for word, rule in (("loop", "loops"), ("break", "breaks")):
            direct = [{"type": "note", "data": {"text": word}}]
            events = [{"type": "desk.note", "payload": {"text": word}}]
            for status, answer in (
                chat(server, session, userMessage="Hello", directEvents=direct),
                server.post("/api/events", {"session": session, "events": events}),
            ):
                assert (status, rule in answer["error"]) == (500, True), answer
                assert "ZeroDivisionError: " not in answer["error"]
        assert raw(server, f"/api/log?session={session}") == before
        assert talk(server, session, "Hello")["displayText"] == "I read 1 parts."


def test_a_chat_again_is_the_same_chat(tmp_path: Path) -> None:
    with desk(tmp_path) as (server, session):
        body: Any = {"userMessage": "ask", "directEvents": [{"type": "note", "data": {"text": "a"}}]}
        first = chat(server, session, key="k1", **body)
        log = raw(server, f"/api/log?session={session}")
        assert first[0] == 200
        assert chat(server, session, key="k1", **body) == first
        assert raw(server, f"/api/log?session={session}") == log
        onward = chat(server, session, key="k2", userMessage="Never mind.")
        assert onward[1]["turn"] == first[1]["turn"], "it went to the agent that waited"
        assert chat(server, session, key="k2", userMessage="Never mind.") == onward
        status, answer = chat(server, session, key="k2", userMessage="Or do.")
        assert (status, "key is that of another" in answer["error"]) == (409, True)
        server.kill()
    with running(APP, tmp_path) as server:
        again = chat(server, session, key="k2", userMessage="Never mind.")[1]
        assert again["displayText"] == onward[1]["displayText"]
        assert again["messages"] == onward[1]["messages"]


def test_a_key_is_that_of_one_roles_page(tmp_path: Path) -> None:
    with desk(tmp_path) as (server, session):
        roles = ("front", "back", "front")
        turns = [chat(server, session, role, key="k", directEvents=[NOTED])[1]["turn"] for role in roles]
        assert turns[0] == turns[2] != turns[1]


def test_who_hangs_up_cancels_nothing_and_may_ask_again(tmp_path: Path) -> None:
    with desk(tmp_path) as (server, session):
        hang_up(server, {"sessionId": session, "userMessage": "long"}, "k1")
        answer = chat(server, session, key="k1", userMessage="long")[1]
        assert answer["displayText"].count("word") == 400
        lines = raw(server, f"/api/log?session={session}").splitlines()
        types = [json.loads(line).get("type") for line in lines]
        assert types.count("ui.message") == types.count("agent.start") == 1


def hang_up(server: Server, body: Any, key: str) -> None:
    """Send a request and leave before its answer, when its message is there."""

    async def run() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        data = json.dumps(body).encode()
        fields = {
            "host": "127.0.0.1",
            "content-type": "application/json",
            "content-length": len(data),
            "idempotency-key": key,
            **server.headers,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        writer.write(f"POST /api/chat/front HTTP/1.1\r\n{head}\r\n".encode() + data)
        await writer.drain()
        while b"ui.message" not in await asyncio.to_thread(
            raw, server, f"/api/log?session={body['sessionId']}"
        ):
            pass
        writer.transport.abort()

    asyncio.run(asyncio.wait_for(run(), HANG_S))


def test_a_server_that_stops_leaves_no_chat_waiting(tmp_path: Path) -> None:
    with desk(tmp_path) as (server, session):
        got: list[tuple[int, Any]] = []

        def ask() -> None:
            try:
                got.append(chat(server, session, userMessage="longer"))
            except OSError as error:  # the connection was closed
                got.append((0, str(error)))

        asking = threading.Thread(target=ask)
        asking.start()
        while b"block.start" not in raw(server, f"/api/log?session={session}"):
            pass
        assert server.stop() == 0
        asking.join(10)
        assert not asking.is_alive()
        assert got[0][0] != 200


def test_each_role_sees_its_own_in_every_answer(tmp_path: Path) -> None:
    with desk(tmp_path) as (server, session):
        talk(server, session, "secret words", "secret note")
        status, answer = server.post("/api/links", {"session": session, "roles": ["back"]})
        assert status == 201, answer
        guest = Guest(server.process, server.port, token=server.token, cookie=cookie(server, answer["path"]))
        talk(guest, session, "ask", "my note", role="back")
        talk(server, session, "ask")
        own = raw(guest, f"/api/state?session={session}&{INCLUDE}")
        told = json.loads(own)
        assert told["state"] == {"tally": 0}
        assert {bubble["channel"] for bubble in told["transcript"]} == {"back"}
        assert [call["channel"] for call in told["open"]["calls"]] == ["back"]
        assert len(told["meters"]["turns"]) == len(told["meters"]["agents"]) == 1
        last = told["seq"]
        paths = [f"/api/state?session={session}&at={at}&{INCLUDE}" for at in range(-1, last + 1)]
        paths += [f"/api/documents?session={session}", "/api/documents", f"/api/log?session={session}"]
        for path in paths:
            got = raw(guest, path)
            assert b"secret" not in got, path
            assert b"Front" not in got, path
        again = talk(guest, session, None, "again", role="back")
        assert b"secret" not in json.dumps(again).encode()
        assert again["state"] == {"tally": 0}
        assert b"secret" in raw(server, f"/api/state?session={session}&{INCLUDE}"), "the owner sees all"
        assert chat(guest, session, "front", userMessage="a")[0] == 404


class Guest(Server):
    """Somebody who came by a link."""

    cookie = ""

    def __init__(self, *args: Any, cookie: str, **more: Any) -> None:
        super().__init__(*args, **more)
        self.cookie = cookie

    @property
    def headers(self) -> dict[str, str]:
        return {"cookie": self.cookie}


def cookie(server: Server, path: str) -> str:
    """The cookie that a link is exchanged for."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any, **__: Any) -> None:
            return None

    try:
        request = urllib.request.Request(*redemption(server.url + path), {"content-type": FORM})
        urllib.request.build_opener(Stay).open(request, timeout=HANG_S)
    except urllib.error.HTTPError as answer:
        found = answer.headers["set-cookie"].partition(";")[0]
        answer.close()
        return str(found)
    raise AssertionError("no redirection came")


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("at=nine", 400, "(at at)"),
        ("at=999", 410, "ahead"),
        ("at=3:zzz", 410, "epoch"),
        ("include=transcript,everything", 400, "expected some of transcript, meters, open, roster"),
    ],
)
def test_questions_about_the_state_that_have_no_answer(
    tmp_path: Path, query: str, status: int, words: str
) -> None:
    with desk(tmp_path) as (server, session):
        got, answer = server.get(f"/api/state?session={session}&{query}")
        assert (got, words in answer["error"]) == (status, True), answer


def test_the_state_as_of_an_event_that_was_pruned_is_gone(tmp_path: Path) -> None:
    with desk(tmp_path) as (server, session):
        talk(server, session, "Hello")
        lines = [json.loads(line) for line in raw(server, f"/api/log?session={session}").splitlines()]
        [first, *_] = [line["seq"] for line in lines if line.get("type") == "block.delta"]
        path = f"/api/state?session={session}&at="
        before = raw(server, f"{path}{first - 1}&{INCLUDE}")
        server.stop()
    prune = [TURNLOG, "prune", "--older-than", "0s", "--log", f"sqlite:///{tmp_path}/log.db"]
    subprocess.run(prune, capture_output=True, check=True)
    with running(APP, tmp_path) as server:
        assert server.get(f"{path}{first}")[0] == 410
        assert raw(server, f"{path}{first - 1}&{INCLUDE}") == before
