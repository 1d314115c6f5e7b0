"""The console on paper: the conversation, whole, without what can be pressed."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.console import chat, context_of, opened
from tests.e2e.console_logs import long_session
from tests.e2e.harness import running

EVENTS = 24 * 20  # twenty turns: more entries than a page shows at once
A4_PX = 1122  # high, at 96 dots per inch


@pytest.fixture(scope="module")
def printed(chrome: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A long conversation when it is about to be printed."""
    folder = tmp_path_factory.mktemp("log")
    session = long_session(folder, "desk", EVENTS)
    with running("tests.e2e.console_apps:app", folder) as server, context_of(chrome) as context:
        opened(context, server.link).close()
        page = opened(context, f"{server.url}/?session={session}&panel=events")
        expect(chat(page)).to_contain_text("Question 19")
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        yield page


def test_print_has_the_conversation_from_its_beginning(printed: Page) -> None:
    expect(chat(printed).get_by_text("Question 0:")).to_be_attached()


def test_print_is_as_long_as_the_conversation(printed: Page) -> None:
    expect(chat(printed).get_by_text("Question 0:")).to_be_attached()
    assert printed.evaluate("document.documentElement.scrollHeight") > 2 * A4_PX
    assert chat(printed).evaluate("(log) => log.scrollHeight - log.clientHeight") <= 1


def test_print_has_nothing_to_press(printed: Page) -> None:
    for place in ("tl-composer", "tl-sessions", "tl-inspector", ".bar", ".screens"):
        expect(printed.locator(place)).to_be_hidden()
