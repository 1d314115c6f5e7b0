"""Fixtures for the property tests."""

from collections.abc import Iterator

import pytest

from tests.support.blocks_readers import Ask, asking


@pytest.fixture(scope="session")
def ask(node: str) -> Iterator[Ask]:
    """The readers in JavaScript."""
    with asking(node) as answer:
        yield answer
