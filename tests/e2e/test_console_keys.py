"""The console without a mouse, and for those who listen: focus is seen and never lost, messages are told."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.console import LIMIT_MS, chat, context_of, live, say, session_of
from tests.e2e.harness import Server, running
from tests.e2e.screen_apps import STORY, TRIES

APP = "tests.e2e.screen_apps:trips"
MOST_TABS = 60  # more stops than any screen of this test has
# What has the focus: its name, and whether a person sees that it has it.
FOCUS = """() => {
  const { activeElement: element } = document;
  if (element === document.body || !element.isConnected) return null;
  const box = element.closest(".composer:has(> textarea:focus)") ?? element; // it has its mark around it
  const { outlineStyle, borderColor } = getComputedStyle(box);
  const strong = getComputedStyle(document.querySelector("button.strong") ?? box).backgroundColor;
  const seen = element.matches(":focus-visible") && (outlineStyle !== "none" || borderColor === strong);
  const { width, height } = element.getBoundingClientRect();
  const name = element.getAttribute("aria-label") ?? (element.labels?.[0] ?? element).textContent;
  return { name: name.trim(), seen: seen && width > 0 && height > 0 };
}"""
TWO_FRAMES = "new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"
# What a screen reader is told from now on, whether it is to wait, and every text that was seen meanwhile.
LISTEN = """() => {
  Object.assign(window, { told: [], busy: ["false"], seen: new Set() });
  const differs = (list, value) => value !== (list.at(-1) ?? "") && list.push(value);
  new MutationObserver(() => {
    differs(told, document.querySelector("tl-chat [role=status]").textContent);
    differs(busy, document.querySelector("[role=log]").getAttribute("aria-busy"));
    seen.add(document.querySelector("[role=log]").textContent);
  }).observe(document.querySelector("tl-chat"), {
    subtree: true, childList: true, characterData: true, attributes: true,
  });
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(APP, tmp_path_factory.mktemp("log")) as server:
        yield server


@pytest.fixture
def page(chrome: Browser, server: Server) -> Iterator[Page]:
    with context_of(chrome) as context:
        page = context.new_page()
        page.goto(server.url)
        yield page


def focus(page: Page) -> str:
    """The name of what has the focus, which everybody sees; what was taken away gives it back in a frame."""
    found = page.evaluate(FOCUS)
    if found is None:
        page.evaluate(TWO_FRAMES)
        found = page.evaluate(FOCUS)
    assert found is not None, "the focus is lost"
    assert found["seen"], found
    return str(found["name"])


def tab_to(page: Page, name: str, key: str = "Tab") -> None:
    """Go on with a key until the focus is at something."""
    seen = []
    for _ in range(MOST_TABS):
        page.keyboard.press(key)
        seen.append(focus(page))
        if seen[-1] == name:
            return
    raise AssertionError(f"expected a way to {name!r}, went over {seen}")


def press(page: Page, name: str, key: str = "Tab") -> None:
    tab_to(page, name, key)
    page.keyboard.press("Enter")


def write(page: Page, text: str) -> None:
    """`/` leads to where one writes."""
    page.keyboard.press("/")
    assert focus(page) == "Message"
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def shown(page: Page, text: str) -> None:
    expect(chat(page)).to_contain_text(text, timeout=LIMIT_MS)


def until(page: Page, condition: str) -> None:
    """Wait, frame by frame: what Playwright has for it needs an eval, which the page forbids."""
    page.evaluate(f"async () => {{ while (!({condition})) await new Promise(requestAnimationFrame); }}")


def arrived(page: Page, before: str) -> None:
    """Wait for another session than the one that was open."""
    expect(page).not_to_have_url(before)
    until(page, f"document.querySelector('tl-console').session.id === {session_of(page)!r}")
    live(page)


def signed_in(page: Page, server: Server) -> None:
    """In a new session."""
    page.get_by_label("Token").fill(server.token)
    page.get_by_label("Token").press("Enter")
    live(page)
    before = page.url
    page.get_by_role("button", name="New session of Trips").press("Enter")
    arrived(page, before)


def test_everything_can_be_done_with_the_keyboard(page: Page, server: Server) -> None:
    expect(page.get_by_label("Token")).to_be_visible()
    tab_to(page, "Token")
    page.keyboard.type(server.token)
    page.keyboard.press("Enter")
    live(page)
    assert focus(page) == "Turnlog"
    before = page.url
    press(page, "New session of Trips")
    arrived(page, before)
    assert focus(page) == "New session of Trips"

    write(page, "Ask about the walk")
    shown(page, "more than ten kilometres")
    press(page, "Show confirm", "Shift+Tab")
    assert focus(page).startswith("Confirm")
    press(page, "Yes")
    shown(page, "Done: I was there in May.")
    assert focus(page).startswith("Confirm"), "what was answered, not the page"

    write(page, "Book the hotel")
    shown(page, "May this run?")
    press(page, "Show book hotel", "Shift+Tab")
    press(page, "Approve")
    shown(page, "Done: 2 nights at Harbour Hotel.")
    assert focus(page).startswith("Book hotel")

    tab_to(page, "Guide")
    for panel in ("Usage", "Guide", "Events"):
        page.keyboard.press("ArrowLeft" if panel == "Usage" else "ArrowRight")
        assert focus(page) == panel
        expect(page.get_by_role("tabpanel", name=panel)).to_be_visible()
    tab_to(page, "Events")
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="agent.usage")).to_be_visible()
    assert focus(page) == "Events"
    press(page, "Close event")
    expect(page.get_by_role("heading", name="agent.usage")).to_have_count(0)
    assert focus(page) == "Events"
    page.keyboard.press("Enter")
    press(page, "Show in chat")
    expect(chat(page).locator(".found:focus")).to_be_visible()
    assert focus(page).startswith("Done: 2 nights")


def test_escape_stops_and_no_button_that_goes_takes_the_focus_along(page: Page, server: Server) -> None:
    signed_in(page, server)
    page.keyboard.press("/")
    press(page, TRIES[0], "Shift+Tab")  # a suggestion, which is taken away
    shown(page, "Two days in Bergen")
    assert focus(page) == "Conversation"
    write(page, "Look for ferries")
    shown(page, "3 of 8 lines")
    page.keyboard.press("Escape")
    shown(page, "Planner was stopped")
    assert focus(page) == "Message"
    page.keyboard.type("Look again")
    page.keyboard.press("Enter")
    expect(chat(page).get_by_text("3 of 8 lines")).to_have_count(1, timeout=LIMIT_MS)
    press(page, "Stop")
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_disabled(timeout=LIMIT_MS)
    until(page, "document.activeElement !== document.body")
    assert focus(page) == "Conversation"


def test_control_focus_that_is_lost_or_not_seen_is_noticed(page: Page, server: Server) -> None:
    signed_in(page, server)
    page.keyboard.press("/")
    assert focus(page) == "Message"
    page.keyboard.press("Tab")
    page.evaluate("document.activeElement.style.outline = 'none'")
    with pytest.raises(AssertionError, match="'seen': False"):
        focus(page)
    page.evaluate("document.activeElement.blur()")
    with pytest.raises(AssertionError, match="the focus is lost"):
        focus(page)


def test_who_listens_is_told_a_message_once_when_it_is_complete(page: Page, server: Server) -> None:
    signed_in(page, server)
    page.evaluate(LISTEN)
    say(page, "Tell me something")
    shown(page, "a bird.")
    until(page, "told.length > 0")
    say(page, "Well")
    until(page, "told.length > 1")
    assert page.evaluate("told") == [STORY, "I heard: Well"]
    assert page.evaluate("seen.size") > len(page.evaluate("told")) + 3, "the words came one by one"
    assert chat(page).get_attribute("aria-live") == "off"


def test_chat_is_busy_from_the_start_of_a_turn_to_its_end(page: Page, server: Server) -> None:
    signed_in(page, server)
    page.evaluate(LISTEN)
    say(page, "Look for a ferry")
    shown(page, "3 of 8 lines have answered")  # the tool waits until the turn is stopped
    expect(chat(page)).to_have_attribute("aria-busy", "true")
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(chat(page)).to_have_attribute("aria-busy", "false", timeout=LIMIT_MS)
    assert page.evaluate("busy") == ["false", "true", "false"]
