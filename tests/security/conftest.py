"""Fixtures of the attacks."""

import pytest

from turnlog.log import Log, open_log
from turnlog.server import application


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[Log]:
    """The logs that servers of this test open, for what no route can put into them."""
    logs: list[Log] = []

    async def opened(url: str) -> Log:
        logs.append(await open_log(url))
        return logs[-1]

    monkeypatch.setattr(application, "open_log", opened)
    return logs
