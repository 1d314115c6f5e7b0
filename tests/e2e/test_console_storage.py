"""The console in a browser that refuses storage, as with all cookies blocked."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.e2e.console import chat, opened, say
from tests.e2e.harness import Server, running

REFUSE = """
for (const name of ["localStorage", "sessionStorage"]) {
  Object.defineProperty(window, name, { get() { throw new DOMException("refused", "SecurityError"); } });
}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("storage")
    with running("tests.e2e.console_apps:app", folder) as server:
        yield server


def test_console_storage_refused_shows_the_session_and_sends(context: BrowserContext, server: Server) -> None:
    context.add_init_script(REFUSE)
    page = opened(context, f"{server.url}/?session={server.session()}&panel=events")
    say(page, "hello there")
    expect(chat(page)).to_contain_text("hello there")
    page.get_by_role("button", name="Theme: auto").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")


def test_console_title_with_ctrl_click_opens_a_tab(context: BrowserContext, server: Server) -> None:
    page = opened(context, f"{server.url}/?session={server.session()}")
    address = page.url
    with context.expect_page() as tab:
        page.get_by_role("link", name="Turnlog", exact=True).click(modifiers=["ControlOrMeta"])
    tab.value.wait_for_url(lambda url: url.startswith(f"{server.url}/?"))
    assert page.url == address
