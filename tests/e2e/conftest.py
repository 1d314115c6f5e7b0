"""Fixtures of the tests in a browser."""

import asyncio
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext

from tests.e2e.browser import browsing
from tests.e2e.console import context_of
from tests.e2e.harness import Server


@pytest.fixture(scope="session")
def shared_browser(chromium: str) -> Iterator[tuple[Browser, asyncio.AbstractEventLoop]]:
    """Start one browser for all files of a test process, and give it with the event loop of Playwright."""
    with browsing(chromium) as browser:
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        yield browser, loop
        asyncio._set_running_loop(loop)


@pytest.fixture(scope="module")
def chrome(shared_browser: tuple[Browser, asyncio.AbstractEventLoop]) -> Iterator[Browser]:
    """Return the shared browser; close the contexts that the tests of a file leave open.

    Playwright marks its loop as the running loop of the thread. The mark is removed at the end of the file:
    `asyncio.run` refuses to start beside a running loop, and other files call it.
    """
    browser, loop = shared_browser
    asyncio._set_running_loop(loop)
    yield browser
    for context in browser.contexts:
        context.close()
    asyncio._set_running_loop(None)


@pytest.fixture
def context(chrome: Browser, server: Server) -> Iterator[BrowserContext]:
    """A context that is signed in at the `server` of a file."""
    with context_of(chrome) as context:
        assert context.request.post(f"{server.url}/api/sign-in", headers=server.headers, data={}).ok
        yield context
