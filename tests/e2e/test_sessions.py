"""Several people with tokens of their own on one real server: sessions, members, links, cookies, apps."""

import asyncio
import contextlib
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.e2e.forks import Fork
from tests.e2e.harness import ROOT, Reader, Server, kind
from tests.support.invitations import FORM, redemption
from tests.support.limits import HANG_S
from turnlog.server.auth.credentials import hash_token
from turnlog.wire.sse import ServerSentEvent

APPS = ("tests.e2e.apps:fast", "tests.e2e.apps:endless", "tests.e2e.apps:remote")
ROLES = {"ada": [], "bob": [], "eve": [], "root": ["operator"]}


Headers = Any  # of an answer


def token(name: str) -> str:
    return f"token-of-{name}-0123456789abcdef"


def write_tokens(folder: Path, *names: str) -> Path:
    """The file of tokens of some people."""
    said = {name: {"sha256": hash_token(token(name)), "roles": ROLES[name]} for name in names}
    (folder / "tokens.json").write_text(json.dumps(said))
    return folder / "tokens.json"


@contextlib.contextmanager
def serving(
    folder: Path, *more: str, names: tuple[str, ...] = tuple(ROLES), port: int = 0
) -> Iterator[Server]:
    """The applications on a log in a folder, for those who have tokens."""
    arguments = ["serve", *APPS, "--log", f"sqlite:///{folder}/log.db", "--port", str(port)]
    arguments += ["--tokens", str(write_tokens(folder, *names)), *more]
    env = {name: value for name, value in os.environ.items() if name != "TURNLOG_TOKEN"}
    process = Fork(arguments, ROOT, env)
    try:
        address = process.stdout.readline()
        link = process.stdout.readline().rpartition(" ")[2].strip()
        yield Server(process, int(address.split("127.0.0.1:")[1].split("/")[0]), link)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@dataclass
class Person(Server):
    """The server as somebody sees it: by a token, by a cookie, or as nobody."""

    cookie: str = ""

    @property
    def headers(self) -> dict[str, str]:
        if self.cookie:
            return {"cookie": self.cookie}
        return {"authorization": f"Bearer {self.token}"} if self.token else {}


def by_token(server: Server, name: str) -> Person:
    return Person(server.process, server.port, token=token(name))


def by_cookie(server: Server, cookie: str) -> Person:
    return Person(server.process, server.port, cookie=cookie)


class Stay(urllib.request.HTTPRedirectHandler):
    """Does not go where it is sent."""

    def redirect_request(self, *_: Any) -> None:
        return None


def redeemed(link: str) -> tuple[int, Headers, str]:
    """Send the form of the page that a link leads to."""
    url, body = redemption(link)
    return answered(urllib.request.Request(url, body, {"content-type": FORM}))


def opened(url: str, method: str = "GET", **headers: str) -> tuple[int, Headers, str]:
    return answered(urllib.request.Request(url, method=method, headers=headers))


def answered(request: urllib.request.Request) -> tuple[int, Headers, str]:
    """The answer to a request, without following where it leads."""
    try:
        with urllib.request.build_opener(Stay).open(request, timeout=HANG_S) as response:
            return response.status, response.headers, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


def cookie_of(headers: Headers) -> str:
    return str(headers["set-cookie"]).partition(";")[0]


def listed(person: Person, *settled: str) -> list[Any]:
    """The sessions of somebody; of some the server has taken everything into account."""
    for session in settled:
        assert person.get(f"/api/state?session={session}")[0] == 200
    status, answer = person.get("/api/sessions")
    assert status == 200
    found: list[Any] = answer["sessions"]
    return found


def joined(person: Person, session: str, *roles: str) -> Person:
    """A guest who came by a link."""
    status, answer = person.post("/api/links", {"session": session, "roles": list(roles)})
    assert status == 201
    status, headers, _ = redeemed(person.url + answer["path"])
    assert (status, headers["location"]) == (303, f"/talk/{session}")
    return by_cookie(person, cookie_of(headers))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("sessions")) as server:
        yield server


@pytest.fixture
def ada(server: Server) -> Person:
    return by_token(server, "ada")


@pytest.fixture
def bob(server: Server) -> Person:
    return by_token(server, "bob")


@pytest.fixture
def nobody(server: Server) -> Person:
    return Person(server.process, server.port)


def test_who_is_not_known_gets_nothing_but_the_page(nobody: Person, ada: Person) -> None:
    session = ada.session()
    paths = [
        "/api/me",
        "/api/sessions",
        f"/api/events?session={session}",
        f"/api/log?session={session}",
        "/metrics",
    ]
    for person in (nobody, replace(nobody, token="wrong"), by_cookie(nobody, "turnlog_00000000=x.y")):
        assert {person.get(path)[0] for path in paths} == {401}
        status, answer = person.post("/api/send", {"session": session, "message": "hi"})
        assert status == 401
        assert answer["error"].startswith("sign in first: open the link the server printed, or ")
    assert [nobody.get(path)[0] for path in ("/", "/console.js", "/console.css", "/healthz")] == [200] * 4


def test_sessions_are_listed_with_title_state_and_activity(ada: Person, bob: Person) -> None:
    status, made = bob.post("/api/sessions", {"title": "Bob's trip", "app": "tour"})
    assert status == 201
    first, second = made["session_id"], bob.session()
    bob.send(second, "Rome")
    assert asyncio.run(Reader(bob, second).read(kind("tool.await")))
    seen = {one["session_id"]: one for one in listed(bob, second)}
    assert [seen[name]["title"] for name in (first, second)] == ["Bob's trip", "Rome"]
    assert [seen[name]["state"] for name in (first, second)] == ["idle", "waiting"]
    assert [seen[name]["roles"] for name in (first, second)] == [["owner"]] * 2
    assert seen[second]["last_activity"] > seen[first]["last_activity"] >= seen[first]["created"]
    names = [one["session_id"] for one in listed(bob)]
    assert names.index(second) < names.index(first), "the last active first"
    assert not {first, second} & {one["session_id"] for one in listed(ada)}
    root = by_token(bob, "root")
    assert {first, second} <= {one["session_id"] for one in listed(root)}


def test_a_message_without_a_session_goes_to_ones_own(server: Server) -> None:
    eve, root = by_token(server, "eve"), by_token(server, "root")
    answers = [eve.post("/api/send", {"message": "Rome"}), eve.post("/api/send", {"message": "Oslo"})]
    assert [status for status, _ in answers] == [202, 202]
    [session] = {answer["session"] for _, answer in answers}
    other = eve.post("/api/send", {"message": "hello", "app": "remote"})[1]["session"]
    foreign = root.post("/api/send", {"message": "Rome"})[1]["session"]
    assert len({session, other, foreign}) == 3
    assert {one["session_id"]: one["app"] for one in listed(eve)} == {session: "tour", other: "remote"}
    status, answer = eve.post("/api/send", {"message": "hello", "app": "none"})
    assert (status, answer["error"]) == (
        400,
        "expected one of the applications tour, endless, remote (at $.app)",
    )


def test_members_come_and_go_and_their_streams_with_them(ada: Person, bob: Person) -> None:
    session = ada.session()
    assert bob.get(f"/api/state?session={session}")[0] == 404
    status, invited = ada.post("/api/members", {"session": session, "principal": "bob", "roles": ["guest"]})
    assert (status, bob.get(f"/api/state?session={session}")[0]) == (202, 404)
    assert bob.post("/api/invites/accept", {"session": session, "invite": invited["invite"]})[0] == 202
    reader = Reader(bob, session)

    async def watch() -> bool:
        begun = asyncio.Event()
        reading = asyncio.create_task(reader.read(lambda _: begun.set()))
        await begun.wait()
        await asyncio.to_thread(
            ada.post, "/api/members", {"session": session, "principal": "bob", "roles": []}
        )
        return await reading

    assert not asyncio.run(watch()), "the stream ended, and it was not the reader who left"
    assert bob.get(f"/api/events?session={session}")[0] == 404
    assert bob.post("/api/send", {"session": session, "message": "hi"})[0] == 404


def test_a_link_makes_one_guest_who_sees_its_session_only(ada: Person) -> None:
    session, other = ada.session(), ada.session()
    guest = joined(ada, session, "guest")
    assert [one["session_id"] for one in listed(guest)] == [session]
    assert guest.get("/api/me")[1]["name"].startswith("guest_")
    for path in ("state", "events", "log"):
        assert guest.get(f"/api/{path}?session={other}")[0] == 404
    assert guest.post("/api/links", {"session": session, "roles": ["guest"]})[0] == 403
    sent = guest.send(session, "Rome")
    reader = Reader(guest, session)
    assert asyncio.run(reader.read(kind("tool.await")))
    [message] = [event for event in reader.events if event["type"] == "ui.message"]
    assert (message["trace_id"], message["actor"]) == (sent["turn"], guest.get("/api/me")[1]["name"])


def test_a_link_is_good_once(ada: Person) -> None:
    path = ada.post("/api/links", {"session": ada.session(), "roles": ["guest"]})[1]["path"]
    assert opened(ada.url + path, "HEAD")[0] == 204
    assert opened(ada.url + path)[0] == 200, "to look at it does not use it up"
    assert redeemed(ada.url + path)[0] == 303
    status, headers, text = opened(ada.url + path)
    assert (status, headers["set-cookie"]) == (403, None)
    assert "This link was used before" in text


def test_the_printed_link_and_a_token_give_cookies_and_signing_out_takes_them(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        status, headers, _ = opened(server.link)
        assert (status, headers["location"]) == (303, "/")
        local = by_cookie(server, cookie_of(headers))
        apps = ["tour", "endless", "remote"]
        me = {"name": "local", "roles": ["operator"], "apps": apps, "may_create_sessions": True}
        assert local.get("/api/me") == (200, me)
        assert opened(server.link)[0] == 403
        status, headers, _ = opened(
            f"{server.url}/api/sign-in", "POST", Authorization=f"Bearer {token('bob')}"
        )
        bob, port = by_cookie(server, cookie_of(headers)), server.port
        assert (status, bob.get("/api/me")[1]["name"]) == (204, "bob")
        assert {"HttpOnly", "SameSite=strict"} <= set(headers["set-cookie"].split("; "))
        status, headers, _ = opened(f"{server.url}/api/sign-out", "POST", Cookie=bob.cookie)
        assert status == 204
        assert "Max-Age=0" in headers["set-cookie"]
    with serving(tmp_path, names=("ada",), port=port) as server:
        assert local.get("/api/me")[0] == 200, "the key is in a file: a restart signs nobody out"
        assert bob.get("/api/me")[0] == 401, "its token is not there any more"
        assert (tmp_path / "log.db.key").stat().st_mode & 0o777 == 0o600


def test_behind_a_proxy_with_tls_cookies_are_secure(ada: Person) -> None:
    for proto, secure in (("https", True), ("http", False)):
        more = {"Authorization": f"Bearer {token('ada')}", "X-Forwarded-Proto": proto}
        status, headers, _ = opened(f"{ada.url}/api/sign-in", "POST", **more)
        assert (status, "Secure" in headers["set-cookie"].split("; ")) == (204, secure)


def test_a_log_is_not_continued_from_a_cursor_that_is_not_its_own(ada: Person) -> None:
    session = ada.session()
    counts = []
    for cursor in ("", "-1", "0", "1", "end", "x"):
        status, _, lines = opened(f"{ada.url}/api/log?session={session}&after={cursor}", **ada.headers)
        assert status == 200
        counts.append(len(lines.splitlines()))
    assert counts == [3, 3, 2, 1, 1, 3], "the first line is about the session"
    for cursor in ("99", "0:old", "99:old"):
        status, answer = ada.get(f"/api/log?session={session}&after={cursor}")
        assert status == 410
        assert answer["error"].startswith("this cursor cannot be continued")


def test_each_application_has_its_own_agent_and_state(ada: Person) -> None:
    names = {
        app: ada.post("/api/sessions", {"app": app})[1]["session_id"] for app in ("tour", "endless", "remote")
    }
    agents = {}
    for app, session in names.items():
        ada.send(session, "one two")
        reader = Reader(ada, session)
        assert asyncio.run(reader.read(kind("tool.call" if app == "remote" else "agent.start")))
        agents[app] = reader.events[-1]["agent_name"]
    assert (agents["endless"], agents["remote"]) == ("Talker", "Counter")
    assert agents["tour"] not in ("Talker", "Counter")
    assert {one["session_id"]: one["app"] for one in listed(ada) if one["session_id"] in names.values()} == {
        session: app for app, session in names.items()
    }
    states = {one["session_id"]: one["state"] for one in listed(ada, *names.values())}
    assert (states[names["endless"]], states[names["remote"]]) == ("running", "waiting")
    assert ada.post("/api/stop", {"session": names["endless"]})[0] == 202


def test_several_sessions_on_one_stream_live_and_resumed_at_every_message(ada: Person) -> None:
    sessions = [ada.session() for _ in range(3)]
    reader = Reader(ada, ",".join(sessions), "&types=ui.message,session")

    async def follow() -> bool:
        begun = asyncio.Event()

        def last(message: ServerSentEvent) -> bool:
            begun.set()
            return '"last one"' in message.data

        reading = asyncio.create_task(reader.read(last))
        await begun.wait()
        for number, session in enumerate([*sessions, *sessions[:2]]):
            await asyncio.to_thread(ada.send, session, f"number {number}")
        await asyncio.to_thread(ada.send, sessions[2], "last one")
        return await reading

    assert asyncio.run(follow())
    whole = [(event["session_id"], event["seq"]) for event in reader.events]
    assert len(whole) == len(set(whole))
    assert {name for name, _ in whole} == set(sessions)
    assert sum(event["type"] == "ui.message" for event in reader.events) == 6
    for cut, message in enumerate(reader.messages[:-1]):
        again = Reader(ada, reader.session, reader.query, message.id)
        wanted = sorted(whole[cut + 1 :])
        asyncio.run(again.read(lambda _, again=again, wanted=wanted: len(again.events) == len(wanted)))
        assert sorted((event["session_id"], event["seq"]) for event in again.events) == wanted, cut


def test_a_stream_of_several_sessions_is_for_who_has_a_seat_in_all(ada: Person, bob: Person) -> None:
    mine, other = ada.session(), bob.session()
    assert ada.get(f"/api/events?session={mine},{other}")[0] == 404
    assert ada.get(f"/api/events?session={mine},{mine}")[0] == 400
    assert ada.get(f"/api/events?session={mine},{ada.session()}&turn=tr_1")[0] == 400


def test_names_that_are_too_long_are_refused_and_nothing_breaks(ada: Person) -> None:
    session, name = ada.session(), "ü" * 65
    wrong = [
        ("/api/sessions", {"title": name}),
        ("/api/send", {"session": session, "message": "hi", "targetAgent": name}),
        ("/api/send", {"session": session, "message": "hi", "channel": name}),
        ("/api/members", {"session": session, "principal": name, "roles": ["guest"]}),
        ("/agent/run", {"user_prompt": "hi", "agent_type": name}),
    ]
    for path, body in wrong:
        status, answer = ada.post(path, body)
        assert (status, list(answer)) == (400, ["error"]), path


def test_tokens_of_a_provider_let_people_in(tmp_path: Path) -> None:
    secret = b"a secret of the provider and the server"
    (tmp_path / "secret").write_bytes(secret)
    (tmp_path / "jwt.toml").write_text(
        'key_file = "secret"\nalgorithms = ["HS256"]\naudience = "turnlog"\nissuer = "https://id.example"\n'
        '[roles]\nadmins = "operator"\n'
    )
    claims = {"sub": "zoe", "aud": "turnlog", "iss": "https://id.example", "roles": ["admins"]}
    good = jwt.encode({**claims, "exp": time.time() + 60}, secret)
    late = jwt.encode({**claims, "exp": time.time() - 1}, secret)
    with serving(tmp_path, "--jwt", str(tmp_path / "jwt.toml")) as server:
        zoe = Person(server.process, server.port, token=good)
        assert zoe.get("/api/me")[1]["name"] == "jwt:zoe"
        session = by_token(server, "ada").session()
        assert [one["session_id"] for one in listed(zoe)] == [session], "its role holds everywhere"
        assert replace(zoe, token=late).get("/api/me")[0] == 401
        _, headers, _ = opened(f"{server.url}/api/sign-in", "POST", Authorization=f"Bearer {good}")
        age_s = int(headers["set-cookie"].split("Max-Age=")[1].split(";")[0])
        assert 50 <= age_s <= 60, "the cookie ends with the token"
