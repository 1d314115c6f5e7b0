"""A long session in the console: the page draws what is in sight, however long the session is.

`tests/soak/test_console_speed.py` measures how fast 20,000 events are drawn, scrolled and streamed into.
"""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.console import LIMIT_MS, chat, context_of, opened
from tests.e2e.console_logs import long_session
from tests.e2e.harness import running

COUNT = "selector => document.querySelectorAll(`${selector} *`).length"
HELD = "document.querySelector('tl-console').session.log.events.length"


def elements_of(browser: Browser, folder: Path, events: int) -> tuple[int, int]:
    """How many elements the list of events and the chat have for a session of so many events."""
    folder.mkdir()
    session = long_session(folder, "desk", events)
    with running("tests.e2e.console_apps:book", folder) as server, context_of(browser) as context:
        opened(context, server.link).close()
        page = opened(context, f"{server.url}/?session={session}&panel=events")
        expect(chat(page)).to_contain_text("the aide says", timeout=LIMIT_MS)
        expect(page.locator("tl-list [role=listbox]")).to_be_visible(timeout=LIMIT_MS)
        assert page.evaluate(HELD) >= events
        return page.evaluate(COUNT, "tl-list"), page.evaluate(COUNT, "tl-chat")


def test_a_session_that_is_four_times_as_long_has_no_more_elements(chrome: Browser, tmp_path: Path) -> None:
    short, long = (elements_of(chrome, tmp_path / str(events), events) for events in (500, 2_000))
    assert min(short) > 10
    assert long == pytest.approx(short, rel=0.5)


def test_a_long_session_opens_at_its_end_and_offers_the_way_back_to_it(
    chrome: Browser, tmp_path: Path
) -> None:
    session = long_session(tmp_path, "desk", 500)
    with running("tests.e2e.console_apps:book", tmp_path) as server, context_of(chrome) as context:
        opened(context, server.link).close()
        page = opened(context, f"{server.url}/?session={session}")
        last = chat(page).locator("tl-entry").last
        expect(last).to_be_in_viewport()
        latest = page.get_by_role("button", name="Latest")
        expect(latest).to_have_count(0)
        chat(page).hover()
        page.mouse.wheel(0, -700)
        expect(last).not_to_be_in_viewport()
        latest.click()
        expect(last).to_be_in_viewport()
        expect(latest).to_have_count(0)
