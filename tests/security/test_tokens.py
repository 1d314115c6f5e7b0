"""Rows 2 and 4: links work once, and tokens, cookies and codes stand in no URL, no answer and no journal."""

import http.client
import json
import logging
import time
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.e2e.harness import TURNLOG, Server, running
from tests.security.apps import plain
from tests.security.desk import KEY, Answer, Desk, bare, desk, kind_of, run, token, tokens
from tests.security.routes import every_route
from tests.support.limits import HANG_S
from turnlog.server.access_log import AccessLogMiddleware
from turnlog.server.auth.credentials import COOKIE_LIFETIME_S, BuiltinAuth, Identity, hash_token
from turnlog.server.log_format import JsonFormatter


def auth_of(at: Desk) -> BuiltinAuth:
    auth: BuiltinAuth = at.application.state.auth
    return auth


async def sign_in(at: Desk, code: str) -> Answer:
    return await at.get(None, f"/sign-in?code={code}")


# links


def test_a_link_works_once_not_too_late_and_not_after_a_restart() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            auth, now_s = auth_of(at), time.time()
            code = auth.make_sign_in_code(now_s)
            assert [(await sign_in(at, code)).status for _ in range(3)] == [303, 403, 403]
            old = auth.make_sign_in_code(now_s - 15 * 60)
            before = BuiltinAuth(KEY, tokens()).make_sign_in_code(now_s)  # the same key, another start
            forged = BuiltinAuth(b"x" * 32).make_sign_in_code(now_s)
            cut = auth.make_sign_in_code(now_s)[:-1]
            for bad in (
                old,
                before,
                forged,
                cut,
                "",
                ".",
                "a.b",
                "%00",
                code + "x",
                auth.make_cookie(Identity(tokens()[hash_token(token("ada"))]), now_s)[0],
            ):
                answer = await sign_in(at, bad)
                assert (answer.status, answer.header("set-cookie")) == (403, ""), bad

    run(scenario())


def test_control_a_server_that_keeps_no_count_lets_them_in_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            auth, now_s = auth_of(at), time.time()
            monkeypatch.setattr(auth, "_use_code_once", lambda *_: True)
            code = auth.make_sign_in_code(now_s)
            assert [(await sign_in(at, code)).status for _ in range(2)] == [303, 303]
            other = BuiltinAuth(KEY, tokens(), start_id=auth.start_id)
            assert (await sign_in(at, other.make_sign_in_code(now_s))).status == 303
            monkeypatch.setattr(
                time, "time", lambda: now_s - 3600
            )  # to a clock that is late nothing is too old
            assert (await sign_in(at, auth.make_sign_in_code(now_s - 3600))).status == 303

    run(scenario())


# cookies


def weak(header: str, secure: bool = False) -> list[str]:
    """What a cookie lacks."""
    [cookie] = SimpleCookie(header).values()
    missing = [name for name in ("httponly", *(["secure"] if secure else [])) if not cookie[name]]
    missing += [] if cookie["samesite"].lower() == "strict" else ["samesite"]
    missing += [] if 0 < int(cookie["max-age"] or 0) <= COOKIE_LIFETIME_S else ["max-age"]
    return missing + (["domain"] if cookie["domain"] else [])


def test_cookies_are_for_this_server_and_no_script() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            by_link = await sign_in(at, auth_of(at).make_sign_in_code(time.time()))
            by_token = await at.post("ada", "/api/sign-in", None)
            for answer in (by_link, by_token):
                assert weak(answer.header("set-cookie")) == []
                assert answer.header("cache-control") == "no-store"

    run(scenario())


def test_control_a_cookie_as_frameworks_set_it_is_found_weak(monkeypatch: pytest.MonkeyPatch) -> None:
    set_cookie = Response.set_cookie

    def plainly(response: Response, key: str, value: str, **_: object) -> None:
        set_cookie(response, key, value)

    async def scenario() -> None:
        monkeypatch.setattr(Response, "set_cookie", plainly)
        async with desk(plain) as at:
            answer = await sign_in(at, auth_of(at).make_sign_in_code(time.time()))
            missing = weak(answer.header("set-cookie"), secure=True)
            assert missing == ["httponly", "secure", "samesite", "max-age"]

    run(scenario())


# URLs and answers


def test_a_token_in_a_url_is_not_taken() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            for name in ("token", "access_token", "authorization", "bearer", "code", "key"):
                for path in ("/api/me", "/api/events", "/api/log", "/metrics"):
                    assert (await at.get(None, f"{path}?{name}={token('ada')}")).status == 401, (path, name)

    run(scenario())


def test_control_a_server_that_looks_into_urls_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def careless(auth: BuiltinAuth, connection: HTTPConnection, now_s: float) -> Identity | None:
        return await auth._authenticate_bearer(connection.query_params.get("token", ""), now_s)

    async def scenario() -> None:
        monkeypatch.setattr(BuiltinAuth, "authenticate", careless)
        async with desk(plain) as at:
            assert (await at.get(None, f"/api/me?token={token('ada')}")).status == 200

    run(scenario())


async def leaks(at: Desk) -> tuple[list[str], list[str]]:
    """The routes whose answers hold what signs somebody in, and whose pages send others a Referer."""
    code = auth_of(at).make_sign_in_code(time.time())
    first = await sign_in(at, code)
    cookie = first.header("set-cookie").partition(";")[0].partition("=")
    secrets = [code, cookie[2], token("root")]
    held, referred = [], []
    for ask in await every_route(at, "root"):
        said = {"cookie": f"{cookie[0]}={cookie[2]}"}
        answer = await at.ask("root", ask.method, ask.path, ask.body, said)
        text = answer.header("location") + answer.body.decode("latin-1")
        held += [ask.route for secret in secrets if secret in text]
        referred += [] if answer.header("referrer-policy") in ("no-referrer", "same-origin") else [ask.route]
    assert first.header("location") == "/"
    return held, referred


def test_no_answer_holds_a_secret_and_no_page_hands_its_address_on() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            assert await leaks(at) == ([], [])

    run(scenario())


def test_control_without_the_headers_browsers_would_hand_addresses_on() -> None:
    async def scenario() -> None:
        async with desk(plain, change=bare) as at:
            held, referred = await leaks(at)
            assert held == []
            assert len(referred) > 15

    run(scenario())


# the journal


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server that writes everything it does into a file."""
    folder = tmp_path_factory.mktemp("journal")
    shell = f'exec "{TURNLOG}" "$@" --journal info 2>"{folder}/journal"'
    with running("tests.security.apps:plain", folder, program=("/bin/sh", "-c", shell, "sh")) as server:
        yield server, folder / "journal"


def answer_of(server: Server, method: str, path: str, headers: dict[str, str]) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG_S)
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    response.read()
    connection.close()
    return response


def test_the_journal_of_a_server_tells_no_secret(told: tuple[Server, Path]) -> None:
    server, journal = told
    link = urlsplit(server.link)
    first = answer_of(server, "GET", f"{link.path}?{link.query}", {"x-forwarded-proto": "https"})
    header = first.getheader("set-cookie") or ""
    assert (first.status, first.getheader("location"), weak(header, secure=True)) == (303, "/", [])
    cookie = header.partition(";")[0]
    secrets = [link.query.partition("=")[2], cookie.partition("=")[2], server.token, "guess-0123456789abcdef"]
    sayings: list[dict[str, str]] = [
        {"cookie": cookie},
        {"authorization": f"Bearer {server.token}"},
        {"authorization": f"Bearer {secrets[3]}"},
        {"cookie": f"turnlog={secrets[3]}; {cookie}"},
        {"host": "evil.example", "authorization": f"Bearer {server.token}"},
        {"cookie": cookie, "referer": f"{server.link}", "origin": f"http://{secrets[3]}"},
    ]
    paths = (
        "/api/me",
        "/api/sessions",
        f"{link.path}?{link.query}",
        f"/nowhere?token={server.token}",
        "/metrics",
    )
    for said in sayings:
        for path in paths:
            answer_of(server, "GET", path, said)
            answer_of(server, "POST", path, said)
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert len(lines) > 2 * len(paths) * len(sayings)
    assert not [line for line in lines for secret in secrets if secret in json.dumps(line)]


class Chatty:
    """A part of a server that logs everything it sees, as access logs do."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            logging.getLogger("turnlog.server").warning(
                "%s?%s %s", scope["path"], scope["query_string"], scope["headers"]
            )
        await self._app(scope, receive, send)


def chatted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, formatter: logging.Formatter) -> str:
    """What is in the journal when something inside the server logs its request whole."""
    file = tmp_path / "journal"
    handler = logging.FileHandler(file)
    handler.setFormatter(formatter)
    logger = logging.getLogger("turnlog.server")
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "propagate", False)

    def change(application: Starlette) -> None:
        assert AccessLogMiddleware in [kind_of(gate) for gate in application.user_middleware]
        application.user_middleware.append(Middleware(Chatty))

    async def scenario() -> None:
        async with desk(plain, change=change) as at:
            await sign_in(at, auth_of(at).make_sign_in_code(time.time()))
            await at.get("ada", f"/api/me?code={token('bob')}")

    run(scenario())
    handler.close()
    return file.read_text()


def test_what_others_log_during_a_request_is_struck_out_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = chatted(monkeypatch, tmp_path, JsonFormatter())
    assert "/sign-in?" in text
    assert not [secret for secret in ("token-of-ada", "token-of-bob", "code=ey") if secret in text]


def test_control_a_log_that_strikes_nothing_out_tells_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = chatted(monkeypatch, tmp_path, logging.Formatter())
    assert [secret for secret in ("token-of-ada", "token-of-bob", "code=ey") if secret in text] == [
        "token-of-ada",
        "token-of-bob",
        "code=ey",
    ]
