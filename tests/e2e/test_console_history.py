"""A session whose history comes late: the console says that it loads, and not that nothing has been said."""

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, expect

from tests.e2e.console import LIMIT_MS, chat, context_of, live, opened
from tests.e2e.harness import Server, running

WORDS = "Is there a field near Oslo?"
# Streams open, and give their first bytes when `release` is called.
HOLD = """
const ask = window.fetch;
const released = new Promise((resolve) => (window.release = resolve));
window.fetch = async (...given) => {
  const response = await ask(...given);
  if (!window.holds || !String(given[0]).includes("api/events")) return response;
  const held = new TransformStream({ transform: async (piece, out) => (await released, out.enqueue(piece)) });
  return new Response(response.body.pipeThrough(held), response);
};
"""
GO = """(session) => {
  history.pushState(null, "", `?session=${session}`);
  dispatchEvent(new PopStateEvent("popstate"));
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("tests.e2e.console_apps:book", tmp_path_factory.mktemp("history")) as server:
        yield server


@pytest.fixture
def context(chrome: Browser, server: Server) -> Iterator[BrowserContext]:
    with context_of(chrome) as context:
        context.add_init_script(HOLD)
        assert context.request.post(f"{server.url}/api/sign-in", headers=server.headers, data={}).ok
        yield context


def loading(page: Page) -> Locator:
    return page.get_by_role("img", name="The conversation is loading")


def expect_late_history(page: Page) -> None:
    """The stream is open without a row: the page loads, until the rows come."""
    expect(page.locator("#connection")).to_have_text("Catching up", timeout=LIMIT_MS)
    expect(loading(page)).to_be_visible()
    page.evaluate("release()")
    expect(chat(page)).to_contain_text(WORDS, timeout=LIMIT_MS)
    expect(loading(page)).to_have_count(0)
    live(page)


def test_console_whose_stream_is_open_before_its_first_row_says_that_it_loads(
    context: BrowserContext, server: Server
) -> None:
    session = server.session()
    server.send(session, WORDS)
    context.add_init_script("window.holds = true")
    page = context.new_page()
    page.goto(f"{server.url}/?session={session}")
    expect_late_history(page)


def test_console_with_a_list_that_is_older_than_the_session_says_that_it_loads(
    context: BrowserContext, server: Server
) -> None:
    session = server.session()
    page = opened(context, f"{server.url}/?session={server.session()}")
    server.send(session, WORDS)
    page.evaluate("window.holds = true")
    page.evaluate(GO, session)
    expect_late_history(page)


def test_console_of_a_member_who_is_not_told_the_last_seq_says_that_it_loads(
    context: BrowserContext, server: Server
) -> None:
    session = server.session()
    server.send(session, WORDS)
    context.add_init_script("window.holds = true")
    page = context.new_page()
    page.route("**/api/sessions*", answer_without_last)
    page.goto(f"{server.url}/?session={session}")
    expect_late_history(page)


def answer_without_last(route: Route) -> None:
    """Answer as to a member who sees some channels only."""
    answer = route.fetch().json()
    for session in answer["sessions"]:
        del session["last"]
    route.fulfill(body=json.dumps(answer), content_type="application/json")


def test_console_of_an_empty_session_says_that_nothing_has_been_said(
    context: BrowserContext, server: Server
) -> None:
    page = opened(context, f"{server.url}/?session={server.session()}")
    expect(chat(page)).to_contain_text("No messages yet")
