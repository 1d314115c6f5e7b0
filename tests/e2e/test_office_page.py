"""A page of document 004 in a browser: it is written from the document and needs only the address."""

from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Page

from tests.e2e.browser import browsing
from tests.e2e.harness import Server
from tests.e2e.office_desk import serving
from tests.e2e.web_client import LIMIT_MS
from tests.test_seed_names import NAMES

PAGE = Path(__file__).with_name("office_page.html")
BEATING = ("--heartbeat", "0.2")


def opened(context: BrowserContext, server: Server) -> Page:
    page = context.new_page()
    page.goto(f"{server.url}/office-page/")
    return page


def signed_in(context: BrowserContext, server: Server) -> None:
    context.set_default_timeout(LIMIT_MS)
    context.route(
        "**/office-page/", lambda route: route.fulfill(body=PAGE.read_text(), content_type="text/html")
    )
    page = context.new_page()
    page.goto(server.link)
    page.close()


def say(page: Page, text: str, target: str = "") -> None:
    """Send a message as a person does, and wait for the end of its turn."""
    before = page.evaluate("office.types.claude_result ?? 0")
    page.fill("#message", text)
    page.fill("#target", target)
    page.click("#form button")
    ended(page, before)


def ended(page: Page, before: int) -> None:
    page.wait_for_function("before => (office.types.claude_result ?? 0) > before", arg=before)


def press(page: Page, button: str) -> None:
    before = page.evaluate("office.types.claude_result ?? 0")
    page.click(f"#{button}")
    ended(page, before)


def lines(page: Page, id: str) -> list[str]:
    return [line.inner_text() for line in page.locator(f"#{id} li").all()]


def caught_up(*pages: Page) -> int:
    """Wait until all tabs have what the first one has; its cursor."""
    cursor = pages[0].evaluate("office.cursor")
    for page in pages:
        page.wait_for_function("cursor => office.cursor >= cursor", arg=cursor)
    return int(cursor)


def shown(page: Page) -> Any:
    assert page.evaluate("problems") == []
    return lines(page, "agents"), lines(page, "conversation")


def test_the_page_shows_the_office_in_two_tabs_after_a_reload_and_a_restart(
    chromium: str, tmp_path: Path
) -> None:
    with browsing(chromium) as browser:
        context = browser.new_context()
        with serving(tmp_path) as server:
            signed_in(context, server)
            first, second = opened(context, server), opened(context, server)
            assert first.inner_text("#status") == "none, 0 restarts", "the server is not Claude"
            press(first, "summon")
            say(first, "Write about ships")
            say(second, "How are you?", "Lyra")
            caught_up(first, second)
            caught_up(second, first)
            agents, conversation = shown(first)
            assert shown(second) == (agents, conversation)
            assert agents == ["0 Lyra alive", "1 Orin alive", "2 Wren alive"]
            assert conversation[-2:] == ["Ada: @Lyra How are you?", "Lyra: Lyra here. You said: How are you?"]
            assert any("[Write file_path content]" in line for line in conversation)
            assert not [line for line in conversation if "AGENT_" in line]
            second.reload()
            assert shown(second) == (agents, conversation), "from its own storage and its cursor"
            third = opened(context, server)
            caught_up(first, third)
            assert shown(third) == (agents, conversation), "from the start of the log"
            server.stop()
        with serving(tmp_path, port=server.port):
            for page in (first, second, third):
                page.wait_for_function("() => office.restarts === 1")
            caught_up(first, second, third)
            asleep = [line.replace("alive", "sleeping") for line in agents]
            assert [shown(page) for page in (first, second, third)] == [(asleep, conversation)] * 3
            say(second, "Good morning!")
            caught_up(second, first)
            awake, continued = shown(first)
            assert (awake, continued[: len(conversation)]) == (agents, conversation)
            assert continued[len(conversation)] == "Ada: Good morning!"
            assert continued[-1] == "Julian: I am back.", "the same conversation"


def test_the_page_knows_every_type_that_the_server_sends(chromium: str, tmp_path: Path) -> None:
    with browsing(chromium) as browser, serving(tmp_path, options=BEATING) as server:
        context = browser.new_context()
        signed_in(context, server)
        page = opened(context, server)
        page.click("#start")
        page.wait_for_function("() => office.session === 'active'")
        press(page, "summon")
        for text in ("Please look happy", "Write about ships", "Who is here?", "/login", "/compact", "/auth"):
            say(page, text)
        say(page, "How are you?", "Lyra")
        session = server.post("/api/send", {"message": "Hello"})[1]["session"]
        offer = {"kind": "offer_work", "agent": "Orin", "jobs": ["librarian"]}
        for command in (offer, {"kind": "job_help", "form": {"name": "Librarian"}}):
            event = {"type": "ui.command", "payload": {"command": command}}
            assert server.post("/api/events", {"session": session, "events": [event]})[0] == 202
        page.wait_for_function("() => office.help && office.offer")
        press(page, "wake")
        page.click("#end")
        page.wait_for_function("() => office.session === 'user_ended'")
        page.wait_for_function("() => office.types.heartbeat > 0")
        assert page.evaluate("problems") == []
        assert set(page.evaluate("Object.keys(office.types)")) == set(NAMES["004"])
        assert page.evaluate("office.types.claude_system") == 1
        assert page.evaluate("office.types.session_start") == 1
        assert (page.evaluate("office.face"), page.evaluate("office.offer")) == ("happy", "Orin: librarian")
