"""What browsers see where there is no page, and the icon; programs get JSON there."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from tests.unit.server.test_signin import HOME, Site, make_auth, plain
from turnlog.server import create_app
from turnlog.server.console_files import console_routes

BROWSER = "text/html,application/xhtml+xml,*/*;q=0.8"


@pytest.fixture
def site() -> Iterator[Site]:
    auth = make_auth()
    with TestClient(create_app(plain(), "memory:", auth=auth), base_url=HOME) as client:
        yield Site(client, auth)


@pytest.mark.parametrize(
    ("who", "status", "title"), [("ada", 404, "no such page"), ("", 401, "Sign in first")]
)
def test_an_address_that_is_not_there_is_a_page_for_a_browser(
    site: Site, who: str, status: int, title: str
) -> None:
    answer = site.ask(who, "GET", "/nopage", headers={"accept": BROWSER})
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert title in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(("who", "status"), [("ada", 404), ("", 401)])
def test_an_address_that_is_not_there_is_json_for_a_program(site: Site, who: str, status: int) -> None:
    answer = site.ask(who, "GET", "/nopage", headers={"accept": "application/json"})
    assert (answer.status_code, list(answer.json())) == (status, ["error"])


def test_the_console_has_an_icon(site: Site) -> None:
    if "/favicon.svg" not in [route.path for route in console_routes()]:
        pytest.skip("the console is not built: run `python hatch_build.py`")
    answer = site.get("", "/favicon.svg")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/svg+xml")
    assert answer.text.startswith("<svg ")
    assert 'href="favicon.svg"' in site.get("", "/").text
