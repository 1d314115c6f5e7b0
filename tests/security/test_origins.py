"""Pages of other origins: those that were allowed get in and read with credentials, and no others do."""

import itertools

import pytest
from click.testing import CliRunner

from tests.security.apps import plain
from tests.security.desk import Answer, Desk, desk, run
from tests.security.routes import FOR_SOURCES, every_route
from turnlog.cli import main
from turnlog.errors import CallerError
from turnlog.server.auth.allowed_origins import AllowedOrigins

PAGE = "https://app.example.org"
LOCAL = "http://localhost:3000"
LIKE_IT = (  # origins that a careless comparison would take for the allowed ones
    "https://app.example.org.evil.test",
    "https://evil.test/https://app.example.org",
    "http://app.example.org",
    "https://app.example.org:8443",
    "https://xapp.example.org",
    "https://app_example.org",
    "https://APP.example.org",
    "https://app.example.org/",
    "https://app.example.org, https://evil.test",
    "http://localhost:30000",
    "http://localhost",
    "null",
    "*",
)
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}


def allows(answer: Answer) -> tuple[str, str]:
    origin = answer.header("access-control-allow-origin")
    return origin, answer.header("access-control-allow-credentials")


async def ask(at: Desk, method: str, path: str, **headers: str) -> Answer:
    return await at.ask("ada", method, path, None, headers)


def test_an_allowed_page_reads_with_credentials_on_every_route() -> None:
    async def scenario() -> None:
        async with desk(plain, origins=(PAGE, LOCAL)) as at:
            for origin in (PAGE, LOCAL):
                answer = await ask(at, "GET", "/api/me", origin=origin, **{"sec-fetch-site": "cross-site"})
                assert (answer.status, allows(answer)) == (200, (origin, "true"))
                assert "origin" in answer.header("vary")
            for one in await every_route(at, "root"):
                answer = await at.ask("root", one.method, one.path, one.body, {"origin": PAGE})
                assert answer.status < 400 or one.route in FOR_SOURCES, one
                assert allows(answer) == (PAGE, "true"), one

    run(scenario())


def test_other_pages_are_refused_and_told_nothing() -> None:
    async def scenario() -> None:
        async with desk(plain, origins=(PAGE, LOCAL)) as at:
            for origin, more in itertools.product(LIKE_IT, ({}, PREFLIGHT)):
                method = "OPTIONS" if more else "GET"
                answer = await ask(at, method, "/api/me", origin=origin, **more)
                assert (answer.status, allows(answer)) == (403, ("", "")), origin

    run(scenario())


def test_control_an_origin_that_is_allowed_gets_in() -> None:
    async def scenario() -> None:
        for origin in ("http://app.example.org", "https://app.example.org:8443"):
            async with desk(plain, origins=(origin,)) as at:
                answer = await ask(at, "GET", "/api/me", origin=origin)
                assert (answer.status, allows(answer)) == (200, (origin, "true"))

    run(scenario())


def test_without_the_option_there_is_no_header() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            answer = await ask(at, "GET", "/api/me")
            assert answer.status == 200
            assert not [name for name, _ in answer.headers if name.startswith("access-control")]
            assert (await ask(at, "OPTIONS", "/api/me", origin=PAGE, **PREFLIGHT)).status == 403

    run(scenario())


def test_a_preflight_is_answered_before_sign_in_and_everything_else_is_not() -> None:
    async def scenario() -> None:
        async with desk(plain, origins=(PAGE,)) as at:
            answer = await at.ask(None, "OPTIONS", "/ag-ui/plain", None, {"origin": PAGE, **PREFLIGHT})
            assert (answer.status, allows(answer)) == (204, (PAGE, "true"))
            assert "authorization" in answer.header("access-control-allow-headers")
            assert "POST" in answer.header("access-control-allow-methods")
            answer = await at.ask(None, "GET", "/api/me", None, {"origin": PAGE})
            assert (answer.status, allows(answer)) == (401, (PAGE, "true"))
            answer = await at.ask(None, "OPTIONS", "/api/me", None, {"origin": PAGE})
            assert answer.status == 401

    run(scenario())


def test_a_page_of_a_wrong_host_is_refused_whatever_its_origin() -> None:
    async def scenario() -> None:
        async with desk(plain, origins=(PAGE,)) as at:
            assert (await ask(at, "GET", "/api/me", origin=PAGE, host="evil.test")).status == 421

    run(scenario())


@pytest.mark.parametrize(
    "origin",
    [
        "*",
        "app.example.org",
        "https://app.example.org/x",
        "https://*.org",
        "",
        "https://app.example.org:443",
        "http://localhost:80",
    ],
)
def test_what_is_no_origin_cannot_be_allowed(origin: str) -> None:
    with pytest.raises(CallerError, match="expected an origin"):
        AllowedOrigins([origin])
    result = CliRunner().invoke(main, ["serve", "tests.security.apps:plain", "--allow-origin", origin])
    assert result.exit_code == 2
    assert "expected an origin" in result.output
