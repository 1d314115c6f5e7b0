"""Servers that share a log on PostgreSQL: one key, and sign-ins that hold on all of them."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha256
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from tests.security.apps import plain
from tests.support.postgres_server import PostgresServer, empty_log, running_server
from turnlog.agents import Agent, Scripted
from turnlog.app import App, Principal
from turnlog.cli import main
from turnlog.errors import CallerError
from turnlog.server import application, create_app
from turnlog.server.auth.credentials import BuiltinAuth, accept_code, hash_token
from turnlog.server.auth.revocation import Revocation
from turnlog.server.auth.sign_in_journal import SERVER_APP, SERVER_SESSION

KEY = b"k" * 32
TOKENS = {hash_token("ada"): Principal("ada"), hash_token("root"): Principal("root", frozenset({"operator"}))}
HOME = "http://localhost"


class Node(NamedTuple):
    """One server on the shared log."""

    client: TestClient
    auth: BuiltinAuth

    def status(self, path: str, cookie: str = "", token: str = "") -> int:
        headers = {"cookie": cookie} if cookie else {"authorization": f"Bearer {token}"}
        return self.client.get(path, headers=headers, follow_redirects=False).status_code

    def sign_in(self, token: str) -> str:
        """Return a cookie for a token."""
        answer = self.client.post("/api/sign-in", json={}, headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == 204
        self.client.cookies.clear()
        return str(answer.headers["set-cookie"].partition(";")[0])

    def sign_out(self, cookie: str) -> None:
        answer = self.client.post("/api/sign-out", json={}, headers={"cookie": cookie})
        assert answer.status_code == 204

    def follow_link(self, code: str) -> bool:
        """Return whether a sign-in link is accepted here."""
        answer = self.client.get(f"/sign-in?code={code}", follow_redirects=False)
        self.client.cookies.clear()
        return "set-cookie" in answer.headers


@pytest.fixture(scope="module")
def running() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def server(running: PostgresServer) -> PostgresServer:
    empty_log(running)
    return running


def start_nodes(closing: ExitStack, server: PostgresServer, *keys: bytes, app: App = plain) -> list[Node]:
    """Start a server for each key, as `turnlog serve --key-file` does."""
    nodes = []
    for key in keys:
        auth = BuiltinAuth(key, TOKENS, start_id=sha256(b"start:" + key).hexdigest())
        application = create_app(app, server.url(), auth=auth)
        client = closing.enter_context(TestClient(application, base_url=HOME))
        nodes.append(Node(client, auth))
    return nodes


def test_a_sign_in_link_works_once_on_all_servers_together(server: PostgresServer) -> None:
    with ExitStack() as closing:
        one, other = start_nodes(closing, server, KEY, KEY)
        code = one.auth.make_sign_in_code(time.time())
        assert other.follow_link(code)
        assert not one.follow_link(code)


def test_control_servers_that_do_not_share_used_links_accept_one_twice(server: PostgresServer) -> None:
    with ExitStack() as closing:
        one, other = start_nodes(closing, server, KEY, KEY)
        one.auth.use_code = other.auth.use_code = accept_code
        code = one.auth.make_sign_in_code(time.time())
        assert other.follow_link(code)
        assert one.follow_link(code)


def test_a_cookie_that_was_signed_out_on_one_server_is_refused_by_all(server: PostgresServer) -> None:
    with ExitStack() as closing:
        one, other = start_nodes(closing, server, KEY, KEY)
        cookie = one.sign_in("ada")
        assert other.status("/api/me", cookie) == 200
        one.sign_out(cookie)
        while other.status("/api/me", cookie) != 401:
            pass
        [late] = start_nodes(closing, server, KEY)  # one that starts afterwards
        assert late.status("/api/me", cookie) == 401


def test_control_a_sign_out_that_is_not_in_the_log_holds_on_one_server_only(server: PostgresServer) -> None:
    async def tell_no_other(record: Revocation) -> None:
        pass

    with ExitStack() as closing:
        one, other = start_nodes(closing, server, KEY, KEY)
        cookie, heard = one.sign_in("ada"), one.sign_in("root")
        publish = one.auth.revoked_cookies.publish
        one.auth.revoked_cookies.publish = tell_no_other
        one.sign_out(cookie)
        one.auth.revoked_cookies.publish = publish
        one.sign_out(heard)
        while other.status("/api/me", heard) != 401:  # a later one has arrived
            pass
        assert one.status("/api/me", cookie) == 401
        assert other.status("/api/me", cookie) == 200


def test_cookies_and_links_of_another_key_are_refused(server: PostgresServer) -> None:
    with ExitStack() as closing:
        one, other = start_nodes(closing, server, KEY, b"x" * 32)
        assert other.status("/api/me", one.sign_in("ada")) == 401
        assert not other.follow_link(one.auth.make_sign_in_code(time.time()))


def test_control_the_holder_of_the_key_makes_a_link_that_every_server_accepts(server: PostgresServer) -> None:
    with ExitStack() as closing:
        [one] = start_nodes(closing, server, KEY)
        stolen = BuiltinAuth(KEY, start_id=sha256(b"start:" + KEY).hexdigest())
        assert one.follow_link(stolen.make_sign_in_code(time.time()))


def test_a_server_on_a_shared_log_does_not_start_without_a_key(server: PostgresServer) -> None:
    words = ["serve", "turnlog_examples.tour:app", "--port", "0", "--log", server.url()]
    result = CliRunner(env={"TURNLOG_KEY": None}).invoke(main, words)
    assert result.exit_code != 0
    assert "need the same signing key" in result.output


def test_no_person_reads_the_journal_of_sign_ins(server: PostgresServer) -> None:
    with ExitStack() as closing:
        [one] = start_nodes(closing, server, KEY)
        one.sign_out(one.sign_in("ada"))
        for path in ("events", "log", "state"):
            for token in ("ada", "root"):
                assert one.status(f"/api/{path}?session={SERVER_SESSION}", token=token) == 404


def test_an_application_with_the_name_of_the_journal_is_refused() -> None:
    with pytest.raises(CallerError, match="turnlog-server is a name of the server"):
        create_app(App(SERVER_APP, Agent("Echo", "", Scripted(lambda messages: ["Yes."]))), "memory:")


def test_control_an_application_with_the_name_of_the_journal_shows_it_to_operators(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "RESERVED_APP_NAMES", frozenset())
    with ExitStack() as closing:
        [one] = start_nodes(
            closing, server, KEY, app=App(SERVER_APP, Agent("Echo", "", Scripted(lambda messages: ["Yes."])))
        )
        one.sign_out(one.sign_in("ada"))
        assert one.status(f"/api/log?session={SERVER_SESSION}", token="ada") == 404
        assert one.status(f"/api/log?session={SERVER_SESSION}", token="root") == 200
