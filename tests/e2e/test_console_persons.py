"""A page of the console whose browser is signed in as another person since: real Chromium, two tabs."""

import http.client
import urllib.request
from collections.abc import Iterator
from http.cookies import SimpleCookie

import pytest
from playwright.sync_api import BrowserContext, Page, Request, Route, expect

from tests.e2e.console import LIMIT_MS, chat, live, opened, say
from tests.e2e.guests import wait_for_messages
from tests.e2e.harness import Server, running
from tests.support.invitations import FORM, redemption
from tests.support.limits import HANG_S

SECRET = "for the owner alone"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("tests.e2e.console_apps:book", tmp_path_factory.mktemp("persons")) as server:
        yield server


@pytest.fixture
def session(server: Server) -> str:
    return server.session()


def become_guest(context: BrowserContext, server: Server, session: str) -> None:
    """Sign the browser in as a guest of a session, as another tab does.

    The cookies change in one step: a page that sent a request without any would ask the person to sign in.
    """
    _, answer = server.post("/api/links", {"session": session, "roles": ["guest"]})
    address, body = redemption(answer["path"])
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG_S)
    connection.request("POST", address, body, {"content-type": FORM})
    response = connection.getresponse()
    connection.close()
    assert response.status == 303
    [cookie] = SimpleCookie(response.headers["set-cookie"]).values()
    context.add_cookies(
        [
            {
                "name": cookie.key,
                "value": cookie.value,
                "url": server.url,
                "httpOnly": True,
                "sameSite": "Strict",
            }
        ]
    )


def messages(server: Server, session: str) -> list[str]:
    request = urllib.request.Request(f"{server.url}/api/log?session={session}", headers=server.headers)
    with urllib.request.urlopen(request) as response:
        return [line for line in response.read().decode().split("\n") if '"ui.message"' in line]


def expect_notice(page: Page) -> None:
    expect(page.get_by_role("alert")).to_contain_text("You are signed in as guest_", timeout=LIMIT_MS)
    expect(chat(page)).to_have_count(0)


def test_console_after_another_tab_signed_in_sends_nothing_and_says_who_is_signed_in(
    context: BrowserContext, server: Server, session: str
) -> None:
    page = opened(context, f"{server.url}/?session={session}")
    become_guest(context, server, session)
    say(page, SECRET)
    expect_notice(page)
    assert messages(server, session) == []


def test_control_requests_that_name_nobody_are_sent_as_the_other_person(
    context: BrowserContext, server: Server, session: str
) -> None:
    page = context.new_page()
    page.route("**/api/**", pass_without_name)
    page.goto(f"{server.url}/?session={session}")
    live(page)
    become_guest(context, server, session)
    say(page, SECRET)
    expect(chat(page).get_by_text(SECRET)).to_be_visible()
    wait_for_messages(server, session, 1)
    [message] = messages(server, session)
    assert '"actor":"guest_' in message


def pass_without_name(route: Route, request: Request) -> None:
    headers = {name: value for name, value in request.headers.items() if name != "turnlog-principal"}
    route.continue_(headers=headers)


def test_console_notices_a_tab_of_another_person_and_goes_on_as_that_person_after_reload(
    context: BrowserContext, server: Server, session: str
) -> None:
    page = opened(context, f"{server.url}/?session={session}")
    page.get_by_label("Message").fill(SECRET)
    become_guest(context, server, session)
    opened(context, f"{server.url}/?session={session}")
    expect_notice(page)
    page.get_by_role("button", name="Reload").click()
    live(page)
    expect(page.locator(".account")).to_contain_text("Sarah")
    expect(page.get_by_label("Message")).to_have_value("")


def test_console_after_another_tab_signed_out_asks_to_sign_in(
    context: BrowserContext, server: Server, session: str
) -> None:
    page = opened(context, f"{server.url}/?session={session}")
    other = opened(context, f"{server.url}/?session={session}")
    other.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible(timeout=LIMIT_MS)
