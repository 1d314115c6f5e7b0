"""Real Chromium, driven by Playwright, closed off from every network but loopback."""

import contextlib
from collections.abc import Iterator

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.support.limits import HANG_MS

expect.set_options(timeout=HANG_MS)

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--renderer-process-limit=1",  # a process for each tab takes a fifth more CPU time
    "--disable-features=SpareRendererForSitePerProcess",
    "--disable-site-isolation-trials",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]


@contextlib.contextmanager
def browsing(chromium: str, *, scrollbars: bool = False) -> Iterator[Browser]:
    """A browser; scroll bars have a width only if asked."""
    hidden = ["--hide-scrollbars"] if scrollbars else None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS, ignore_default_args=hidden)
        try:
            yield browser
        finally:
            browser.close()


def watched(page: Page) -> list[str]:
    """The errors a page reports from now on."""
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    return errors
