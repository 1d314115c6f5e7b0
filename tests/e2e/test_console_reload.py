"""A reload shows the same: the text of every panel, at random moments of a live run."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.e2e.console import LIMIT_MS, context_of, has_all, last_of, live, opened, panels, say, session_of
from tests.e2e.harness import Server, running

MOMENTS = 3
CALM = 10  # times that the page and the server say the same
ORDERS = ("everything", "note milk", "team Oslo", "hand over", "form", "shred paper")
# What is open is shown as old as it was at the last event: a reload must not be seen by its time. And what
# has come is drawn: a busy page rests between two drawings of a text that grows.
STAND_STILL = """async () => {
  document.querySelector("tl-console").session.elapsed = () => 0;
  const elements = () => [...document.querySelectorAll("*")].filter((element) => element.requestUpdate);
  for (const element of elements()) element.requestUpdate();
  while (elements().some(({ isUpdatePending }) => isUpdatePending)) {
    await Promise.all(elements().map(({ updateComplete }) => updateComplete));
  }
}"""
PIECES = 90  # that all answers to the orders have, with some to spare


@pytest.fixture(scope="module")
def browser(chrome: Browser) -> Iterator[BrowserContext]:
    with context_of(chrome) as context:
        yield context


@pytest.fixture
def allowance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The pipe that lets models speak, a byte for a piece."""
    path = tmp_path / "allowance"
    os.mkfifo(path)
    monkeypatch.setenv("CONSOLE_ALLOWANCE", str(path))
    pipe = os.open(path, os.O_RDWR)
    yield pipe
    os.close(pipe)


def at_rest(page: Page, server: Server) -> None:
    """Wait until the page has been told everything, and nothing more comes."""
    session, calm, last = session_of(page), 0, -1
    for _ in range(LIMIT_MS // 20):
        now = last_of(server, session)
        calm = calm + 1 if has_all(page) == now == last else 0
        last = now
        if calm == CALM:
            return
        page.wait_for_timeout(20)  # the page works while this test waits
    raise AssertionError(f"expected the page to have {last}, it has {has_all(page)}")


def still_panels(page: Page) -> dict[str, str]:
    page.evaluate(STAND_STILL)
    return panels(page)


def reload_at(count: int, browser: BrowserContext, allowance: int, folder: Path) -> None:
    """Reload the console at so many moments of a run, and compare every panel before and after."""
    moments = sorted(random.Random(11).sample(range(1, PIECES), count))
    with running("tests.e2e.console_apps:held", folder) as server:
        page = opened(browser, server.link)
        for order in ORDERS:
            say(page, order)
        before: dict[str, str] = {}
        for moment, said in zip(moments, [0, *moments], strict=False):
            os.write(allowance, b"." * (moment - said))
            at_rest(page, server)
            before = still_panels(page)
            page.reload()
            live(page)
            at_rest(page, server)
            assert still_panels(page) == before, moment
        assert "Oslo" in before["chat"]
        assert before["Events"]
        page.close()


def test_every_panel_reads_the_same_after_a_reload(
    browser: BrowserContext, allowance: int, tmp_path: Path
) -> None:
    reload_at(MOMENTS, browser, allowance, tmp_path)
