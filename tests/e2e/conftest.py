"""Fixtures of the tests in a browser."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext

from tests.e2e.browser import browsing
from tests.e2e.console import context_of
from tests.e2e.harness import Server


@pytest.fixture(scope="module")
def chrome(chromium: str) -> Iterator[Browser]:
    """A browser for the tests of a file."""
    with browsing(chromium) as browser:
        yield browser


@pytest.fixture
def context(chrome: Browser, server: Server) -> Iterator[BrowserContext]:
    """A context that is signed in at the `server` of a file."""
    with context_of(chrome) as context:
        assert context.request.post(f"{server.url}/api/sign-in", headers=server.headers, data={}).ok
        yield context
