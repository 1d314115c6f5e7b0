"""The plain page in real Chromium: a whole turn, two tabs, a reload in mid-sentence, a killed server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.e2e.browser import browsing, bubbles, watched
from tests.e2e.harness import Server, running


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[BrowserContext]:
    with browsing(chromium) as browser:
        yield browser.new_context()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with running("slow", tmp_path) as server:
        yield server


def opened(browser: BrowserContext, url: str) -> Page:
    page = browser.new_page()
    page.goto(url)
    expect(page.locator("#connection")).to_have_text("live")
    return page


def say(page: Page, text: str) -> None:
    page.fill("#text", text)
    page.click("button[type=submit]")


def test_a_whole_turn_with_a_question_and_the_state(
    browser: BrowserContext, server: Server, tmp_path: Path
) -> None:
    page = opened(browser, server.link)
    errors = watched(page)
    say(page, "Oslo")
    page.get_by_role("button", name="Yes").click(timeout=20_000)
    expect(page.locator("#messages > .agent").last).to_contain_text("Have a good time!", timeout=20_000)
    expect(page.locator("#state")).to_contain_text('"city": "Oslo"')
    expect(page.locator("#messages > .child")).to_contain_text("do not miss")
    expect(page.locator("#stop")).to_be_disabled()
    assert "agent-event" not in page.inner_text("#messages")
    page.screenshot(path=tmp_path / "turn.png")
    assert errors == []
    page.close()


def test_two_tabs_and_a_reload_in_mid_stream_show_the_same_text(
    browser: BrowserContext, server: Server
) -> None:
    first = opened(browser, server.link)
    say(first, "Rome")
    expect(first.locator("#messages > .agent")).to_contain_text("Let me see", timeout=20_000)
    second = opened(browser, first.url)
    first.reload()
    expect(first.locator("#connection")).to_have_text("live")
    for page in (first, second):
        expect(page.get_by_role("button", name="Yes")).to_be_visible(timeout=20_000)
    assert bubbles(first) == bubbles(second)
    second.get_by_role("button", name="No").click()
    for page in (first, second):
        expect(page.locator("#messages > .agent").last).to_contain_text("when you want one.", timeout=20_000)
    third = opened(browser, first.url)
    expect(third.locator("#messages > .agent").last).to_contain_text("when you want one.")
    assert bubbles(first) == bubbles(second) == bubbles(third)
    for page in (first, second, third):
        page.close()


def test_the_page_goes_on_by_itself_when_the_server_was_killed(
    browser: BrowserContext, tmp_path: Path
) -> None:
    with running("slow", tmp_path) as server:
        page = opened(browser, server.link)
        say(page, "Lima")
        expect(page.get_by_role("button", name="Yes")).to_be_visible(timeout=20_000)
        before = bubbles(page)
        server.kill()
        expect(page.locator("#connection")).to_have_text("reconnecting", timeout=20_000)
    with running("slow", tmp_path, server.port):
        expect(page.locator("#connection")).to_have_text("live", timeout=20_000)
        assert bubbles(page) == before
        page.get_by_role("button", name="Yes").click()
        expect(page.locator("#messages > .agent").last).to_contain_text("Have a good time!", timeout=20_000)
        page.close()


def test_stop_in_mid_sentence(browser: BrowserContext, tmp_path: Path) -> None:
    with running("endless", tmp_path) as server:
        page = opened(browser, server.link)
        say(page, "talk")
        expect(page.locator("#messages > .agent")).to_contain_text("word word", timeout=20_000)
        page.click("#stop")
        expect(page.locator("#messages > .agent")).to_contain_text("(stopped)", timeout=20_000)
        shown = bubbles(page)
        page.reload()
        expect(page.locator("#messages > .agent")).to_contain_text("(stopped)", timeout=20_000)
        assert bubbles(page) == shown
        page.close()


def test_text_is_never_markup(browser: BrowserContext, server: Server) -> None:
    page = opened(browser, server.link)
    errors = watched(page)
    say(page, "<img src=x onerror=alert(1)><b>bold</b>")
    expect(page.locator("#messages > .user")).to_contain_text("<b>bold</b>", timeout=20_000)
    assert page.locator("#messages img, #messages b").count() == 0
    assert errors == []
    page.close()
