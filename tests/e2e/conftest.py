"""Fixtures of the tests in a browser."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.e2e.browser import browsing


@pytest.fixture(scope="module")
def chrome(chromium: str) -> Iterator[Browser]:
    """A browser for the tests of a file."""
    with browsing(chromium) as browser:
        yield browser
