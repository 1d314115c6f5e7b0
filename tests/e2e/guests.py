"""Guests in a real browser: the link that invites one, the page that it leads to, its keys."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.e2e.axe import carry
from tests.e2e.console import LIMIT_MS, context_of
from tests.e2e.harness import Reader, Server, kind
from tests.e2e.web_client import run

PHONE = {"width": 390, "height": 844}
DESK = {"width": 1440, "height": 900}
MOST_STOPS = 60  # of the Tab key on one page


def make_link(server: Server, session: str) -> str:
    """Return the address of a link that makes one person a guest of a session."""
    status, made = server.post("/api/links", {"session": session, "roles": ["guest"]})
    assert status == 201, made
    return server.url + str(made["path"])


@contextmanager
def guest_context(browser: Browser, **options: Any) -> Iterator[BrowserContext]:
    """A browser of a guest on a phone, with axe on every page."""
    settings = {"viewport": PHONE, "locale": "en-GB", "reduced_motion": "reduce", **options}
    with context_of(browser, **settings) as context:
        carry(context)
        yield context


def join(context: BrowserContext, server: Server, session: str, name: str = "Ada", url: str = "") -> Page:
    """Redeem a link by its form, as a person does; return the page that it leads to.

    `url` is another address of the server.
    """
    page = context.new_page()
    page.goto(make_link(server, session).replace(server.url, url or server.url))
    page.get_by_label("name").fill(name)
    page.get_by_role("button").first.click()
    page.wait_for_url(f"**/talk/{session}")
    ready(page)
    return page


def ready(page: Page) -> None:
    """Wait until the page follows its session."""
    expect(box(page)).to_be_visible(timeout=LIMIT_MS)
    page.wait_for_function(
        """() => {
          const chat = document.querySelector("turnlog-chat");
          const list = chat.shadowRoot.querySelector("tl-talk-messages");
          return list?.snapshot.connection === "live";
        }"""
    )


def box(page: Page) -> Locator:
    return page.locator("tl-talk-composer textarea")


def log(page: Page) -> Locator:
    return page.get_by_role("log")


def write(page: Page, text: str) -> None:
    box(page).fill(text)
    box(page).press("Enter")


def is_focused(element: Locator) -> bool:
    return bool(element.evaluate("(element) => element.getRootNode().activeElement === element"))


def tab_to(page: Page, element: Locator, key: str = "Tab") -> None:
    """Press a key until an element has the focus."""
    for _ in range(MOST_STOPS):
        if is_focused(element):
            return
        page.keyboard.press(key)
    raise AssertionError(f"expected to reach {element} by {key}")


def wait_for_messages(server: Server, session: str, count: int) -> list[dict[str, Any]]:
    """Wait until a session has so many messages of persons, and return all that it has then.

    A page draws a message before the server has it.
    """
    run(read_messages(server, session, count))
    return [event["payload"] for event in read_events(server, session) if event["type"] == "ui.message"]


async def read_messages(server: Server, session: str, count: int) -> None:
    reader = Reader(server, session)
    for _ in range(count):
        assert await reader.read(kind("ui.message"))


def read_events(server: Server, session: str) -> list[dict[str, Any]]:
    """Return the events of a session, as its owner reads them."""
    address = f"{server.url}/api/log?session={session}"
    with urllib.request.urlopen(urllib.request.Request(address, headers=server.headers)) as response:
        return [json.loads(line) for line in response.read().decode().split("\n")[1:] if line]
