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
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]
# All tabs share one process, which takes a fifth less CPU time than a process for each.
ONE_RENDERER = [
    "--renderer-process-limit=1",
    "--disable-features=SpareRendererForSitePerProcess",
    "--disable-site-isolation-trials",
]


@contextlib.contextmanager
def browsing(chromium: str, *, scrollbars: bool = False, renderers: bool = False) -> Iterator[Browser]:
    """A browser; scroll bars have a width, and tabs a process of their own, only if asked."""
    hidden = ["--hide-scrollbars"] if scrollbars else None
    flags = FLAGS if renderers else FLAGS + ONE_RENDERER
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags, ignore_default_args=hidden)
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
