"""The console in real Chromium: how a test opens it, talks in it and reads what it shows."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.e2e.harness import Server
from tests.support.limits import HANG_MS

LIMIT_MS = HANG_MS
WIDE = {"width": 1400, "height": 900}

# Every panel's text, one after the other, each when it is there and still.
READ = """async () => {
  const frames = async (count) => { while (count--) await new Promise(requestAnimationFrame); };
  const still = async (element) => {
    for (let last = null, calm = 0; calm < 2; ) {
      await frames(1);
      const busy = element.id === "panel"
        && (!element.firstElementChild?.childElementCount || element.querySelector("[aria-busy=true]"));
      calm = !busy && element.innerText === last ? calm + 1 : 0;
      last = element.innerText;
    }
    return element.innerText;
  };
  const shown = { chat: await still(document.querySelector("tl-chat")) };
  for (const tab of document.querySelectorAll("[role=tab]")) {
    tab.click();
    shown[tab.textContent.trim()] = await still(document.querySelector("#panel"));
  }
  return shown;
}"""


@contextmanager
def context_of(browser: Browser, **options: Any) -> Iterator[BrowserContext]:
    """A browser of its own, as wide as a desk's."""
    context = browser.new_context(viewport=options.pop("viewport", WIDE), **options)
    context.set_default_timeout(LIMIT_MS)
    try:
        yield context
    finally:
        # A handler of a route may still wait for its answer; its error would reach the next test.
        for page in context.pages:
            page.unroute_all(behavior="ignoreErrors")
        context.unroute_all(behavior="ignoreErrors")
        context.close()


def opened(context: BrowserContext, url: str) -> Page:
    """The console, when it follows its session."""
    page = context.new_page()
    page.goto(url)
    live(page)
    return page


def live(page: Page) -> None:
    """Wait until the page follows."""
    expect(page.locator("#connection")).to_have_text("Live", timeout=LIMIT_MS)


def say(page: Page, text: str) -> None:
    """Write something and send it."""
    page.locator("tl-composer textarea").fill(text)
    page.locator("tl-composer textarea").press("Enter")


def chat(page: Page) -> Locator:
    """What was said."""
    return page.get_by_role("log")


def panels(page: Page) -> dict[str, str]:
    """The text of the chat and of every panel."""
    shown: dict[str, str] = page.evaluate(READ)
    return shown


def session_of(page: Page) -> str:
    """The session that a page shows."""
    return page.url.split("session=")[1].split("&")[0]


def last_of(server: Server, session: str) -> int:
    """The last seq of a session."""
    _, answer = server.get("/api/sessions")
    return int(next(one["last"] for one in answer["sessions"] if one["session_id"] == session))


def has_all(page: Page) -> int:
    """The seq of the last event, live ones too, that this page was told."""
    return int(page.evaluate("document.querySelector('tl-console').session.snapshot.last"))
