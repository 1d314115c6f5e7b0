"""Rows 1 to 3: no page of another site reaches the server, by no route and under no name."""

import itertools
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.e2e.harness import ROOT, TURNLOG, Server, running
from tests.security.apps import plain
from tests.security.desk import Desk, desk, everybody, run, without
from tests.security.routes import FOR_SOURCES, PERSONAL, Ask, every_route
from tests.support.limits import HANG_S
from turnlog.cli import main, serve
from turnlog.server.auth.host_check import HostOriginCheck

REBOUND = (  # a name of the attacker, or one that is not exactly ours
    "evil.example",
    "evil.example:8765",
    "127.0.0.1.evil.example",
    "localhost.evil.example:8765",
    "127.0.0.1:8765@evil.example",
    "evil.example@127.0.0.1",
    "localhost.",
    "LOCALHOST.",
    "LocalHost",
    "127.0.0.1.",
    "127.1",
    "2130706433",
    "0x7f.1",
    "0.0.0.0",
    "[::]",
    "[::ffff:127.0.0.1]",
    "::1",
    "[::1].evil.example",
    "localhost:8765:80",
    "localhost:",
    "localhost:http",
    "localhost/evil",
    "localhost,evil.example",
    " localhost",
    "",
)
FOREIGN = (  # who is asking for a page
    "null",
    "http://evil.example",
    "https://evil.example:8765",
    "http://127.0.0.1:1",
    "http://localhost",
    "http://127.0.0.1.evil.example",
    "http://127.0.0.1@evil.example",
    "http://evil.example@127.0.0.1",
    "http://127.0.0.1.",
    "http://[::1]",
    "file://127.0.0.1",
    "chrome-extension://127.0.0.1",
    "127.0.0.1",
    "http://127.0.0.1/",
)
SITES = ("cross-site", "same-site", "something-else")
FORM = "application/x-www-form-urlencoded"
FORMS = ("text/plain", FORM, "multipart/form-data", "", "text/plain; application/json", "application/jsonp")


async def asked(at: Desk, ask: Ask, headers: dict[str, str]) -> int:
    """The status of a request that is right but for its headers."""
    return (await at.ask("root", ask.method, ask.path, ask.body, headers)).status


def attacks() -> Iterator[dict[str, str]]:
    yield from ({"host": host} for host in REBOUND)
    yield from ({"host": host, "origin": f"http://{host}"} for host in REBOUND[:6])
    yield from ({"origin": origin} for origin in FOREIGN)
    yield from ({"sec-fetch-site": site} for site in SITES)


def test_every_route_refuses_every_foreign_name_and_page() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            asks = await every_route(at, "root")
            assert len(asks) > 20
            for ask, headers in itertools.product(asks, attacks()):
                expected = 421 if "host" in headers else 403
                assert await asked(at, ask, headers) == expected, (ask, headers)
            for ask in asks:
                assert await asked(at, ask, {}) < 400 or ask.route in FOR_SOURCES, ask

    run(scenario())


def test_control_without_the_guard_every_one_of_them_gets_in() -> None:
    async def scenario() -> None:
        async with desk(plain, change=without(HostOriginCheck)) as at:
            asks = await every_route(at, "root")
            for ask in asks:
                is_served = await asked(at, ask, {"host": "evil.example"}) < 400
                assert is_served or ask.route in FOR_SOURCES, ask
            for headers in attacks():
                assert await asked(at, asks[0], headers) < 400, headers

    run(scenario())


def test_names_that_were_allowed_are_let_in_and_only_they() -> None:
    async def scenario() -> None:
        async with desk(plain, hosts=("box.example",)) as at:
            assert (await at.get("ada", "/api/me", host="box.example:80")).status == 200
            assert (await at.get("ada", "/api/me", host="127.0.0.1")).status == 421

    run(scenario())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("tests.security.apps:plain", tmp_path_factory.mktemp("hosts")) as started:
        yield started


def raw(server: Server, *lines: str) -> int:
    """The status of a request that is written by hand."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=HANG_S) as connection:
        connection.sendall("".join(f"{line}\r\n" for line in (*lines, "Connection: close", "")).encode())
        head = connection.makefile("rb").readline()
    return int(head.split()[1])


def test_over_sockets_names_are_refused_as_well(server: Server) -> None:
    who = f"Authorization: Bearer {server.token}"
    for host in REBOUND:
        assert raw(server, "GET /api/me HTTP/1.1", f"Host:{host}", who) in (
            (421,) if host[:1] != " " else (200,)
        )
    assert raw(server, "GET /api/me HTTP/1.1", who) in (400, 421)
    assert raw(server, "GET /api/me HTTP/1.0", who) in (400, 421)
    assert raw(server, "GET http://evil.example/api/me HTTP/1.1", "Host: evil.example", who) == 421
    twice = raw(server, "GET /api/me HTTP/1.1", "Host: 127.0.0.1", "Host: evil.example", who)
    assert twice in (400, 421)
    for host in ("127.0.0.1", "localhost:1", "[::1]:80"):
        assert raw(server, "GET /api/me HTTP/1.1", f"Host: {host}", who) == 200, host


# row 2


def test_no_answer_allows_another_origin_anything() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            for ask in await every_route(at, "root"):
                preflight = {
                    "origin": "http://127.0.0.1",
                    "access-control-request-method": ask.method,
                    "access-control-request-headers": "authorization,content-type",
                }
                answers = [
                    await at.ask(None, "OPTIONS", ask.path, None, preflight),
                    await at.ask("root", ask.method, ask.path, ask.body, {"origin": "http://127.0.0.1"}),
                    await at.ask(
                        None, "OPTIONS", ask.path, None, preflight | {"origin": "http://evil.example"}
                    ),
                ]
                names = [name for answer in answers for name, _ in answer.headers]
                assert not [name for name in names if name.startswith("access-control")], ask
                assert answers[0].status in (401, 405), ask
                assert answers[2].status == 403, ask

    run(scenario())


def test_control_a_server_with_cors_is_noticed() -> None:
    from starlette.applications import Starlette
    from starlette.middleware.cors import CORSMiddleware

    def open_wide(application: Starlette) -> None:
        without(HostOriginCheck)(application)
        application.add_middleware(CORSMiddleware, allow_origins=["*"])

    async def scenario() -> None:
        async with desk(plain, change=open_wide) as at:
            answer = await at.get("ada", "/api/me", origin="http://evil.example")
            assert answer.header("access-control-allow-origin") == "*"

    run(scenario())


def test_a_server_for_others_does_not_start_without_tokens(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "127.0.0.2", "localhost.example"):
        command = [TURNLOG, "serve", "tests.security.apps:plain", "--port", "0", "--host", host]
        done = subprocess.run(
            [*command, "--log", f"sqlite:///{tmp_path}/log.db"],
            cwd=ROOT,
            capture_output=True,
            timeout=HANG_S,
            env={"PATH": "/usr/bin:/bin"},
        )
        assert done.returncode != 0, host
        assert b"--tokens" in done.stderr, host
    assert not list(tmp_path.iterdir())


def test_control_an_address_that_counts_as_loopback_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(serve, "run_server", lambda apps, log, host, port, **more: started.append(host))
    monkeypatch.setattr(serve, "LOOPBACK", ("0.0.0.0",))
    command = ["serve", "tests.security.apps:plain", "--host", "0.0.0.0"]
    assert CliRunner().invoke(main, command, env={"TURNLOG_TOKEN": ""}).exit_code == 0
    assert started == ["0.0.0.0"]


def test_without_a_token_nothing_but_the_page_answers() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            asks = await every_route(at, "root")
            closed = [ask for ask in asks if not ask.public]
            assert len(closed) >= 15
            for ask in closed:
                for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic cm9vdDpy"}):
                    answer = await at.ask(None, ask.method, ask.path, ask.body, headers)
                    assert answer.status == 401, ask

    run(scenario())


def test_control_without_the_entry_everybody_is_served() -> None:
    async def scenario() -> None:
        async with desk(plain, change=everybody) as at:
            for ask in await every_route(at, "root"):
                if ask.route not in (
                    *PERSONAL,
                    *FOR_SOURCES,
                ):  # everybody is one person, who invites itself
                    assert (await at.ask(None, ask.method, ask.path, ask.body)).status < 400, ask

    run(scenario())


# row 3


def test_what_a_form_can_send_is_refused_by_every_route_that_takes_a_body() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            asks = [ask for ask in await every_route(at, "root") if ask.takes_json]
            assert len(asks) >= 8
            for ask, kind in itertools.product(asks, FORMS):
                assert await asked(at, ask, {"content-type": kind}) == 415, (ask, kind)

    run(scenario())


def test_control_a_body_that_is_not_looked_at_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    from starlette.requests import Request

    from turnlog.events import strict_json
    from turnlog.server.routes import messages

    async def trusting(request: Request, kind: type) -> object:
        return strict_json.decode_strict_json(await request.body(), kind)

    async def scenario() -> None:
        async with desk(plain) as at:
            monkeypatch.setattr(messages, "read_json_body", trusting)
            answer = await at.post("ada", "/api/send", {"message": "hi"}, **{"content-type": "text/plain"})
            assert answer.status == 202

    run(scenario())


def test_posts_without_a_body_are_refused_to_other_sites_too() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            for path in ("/api/sign-in", "/api/sign-out"):
                for headers in ({"origin": "null"}, {"sec-fetch-site": "cross-site"}):
                    answer = await at.ask("ada", "POST", path, None, {"content-type": FORM, **headers})
                    assert answer.status == 403
            link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
            assert (await at.get(None, "/", **link)).status == 200
            assert (await at.ask("ada", "POST", "/api/sign-out", None, link)).status == 403

    run(scenario())
