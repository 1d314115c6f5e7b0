"""The recipes for `useChat` and assistant-ui, as pages of another origin in a real browser."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.browser import browsing
from tests.e2e.harness import Server, running
from tests.foreign_clients.apps import GATE_VARIABLE
from tests.foreign_clients.pages import Visit, bundled, served

FOLDER = Path(__file__).parent
APP = "tests.foreign_clients.apps:app"
PAGES = ("use-chat-page", "assistant-ui-page")


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    with browsing(chromium) as browser:
        yield browser


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with bundled(FOLDER, tmp_path_factory.mktemp("pages"), *PAGES) as place, served(place / "out") as origin:
        yield origin


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, origin: str) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("react")
    os.environ[GATE_VARIABLE] = str(folder / "gate")
    with running(APP, folder, options=("--allow-origin", origin)) as server:
        yield server


@pytest.fixture
def gate(server: Server) -> Iterator[Path]:
    path = Path(os.environ[GATE_VARIABLE])
    path.unlink(missing_ok=True)
    yield path
    path.touch()


@pytest.fixture(params=PAGES)
def visit(browser: Browser, server: Server, origin: str, request: pytest.FixtureRequest) -> Iterator[Visit]:
    address = f"{origin}/{request.param}.html?server={server.url}&token={server.token}&id={request.node.name}"
    with browser.new_context() as context:
        visit = Visit(context.new_page(), address)
        visit.open()
        yield visit
        assert visit.problems == []


def texts(page: Page) -> list[str]:
    return page.locator(".assistant p").all_inner_texts()


def test_a_text_streams(visit: Visit, gate: Path) -> None:
    visit.say("wait")
    expect(visit.page.locator(".assistant p")).to_have_text("One two three ")
    gate.touch()
    expect(visit.page.locator(".assistant p")).to_have_text("One two three four.")


def test_a_tool_is_shown(visit: Visit) -> None:
    visit.say("add")
    expect(visit.page.locator(".tool")).to_contain_text("add: 3")
    expect(visit.page.locator(".assistant p").last).to_have_text("Got 3.")
    assert texts(visit.page) == ["Adding.", "Got 3."]


@pytest.mark.parametrize(("button", "answer"), [("Approve", "Got a.txt is deleted."), ("Deny", "said no")])
def test_an_approval_is_answered(visit: Visit, button: str, answer: str) -> None:
    visit.say("call delete_file a.txt")
    visit.page.get_by_role("button", name=button).click()
    expect(visit.page.locator(".assistant p").last).to_contain_text(answer)
    assert len(texts(visit.page)) == 1


def test_a_reload_in_mid_sentence_goes_on(visit: Visit, gate: Path) -> None:
    visit.say("hello")
    expect(visit.page.locator(".assistant p")).to_have_text("You said hello.")
    visit.say("wait")
    expect(visit.page.locator(".assistant p").last).to_have_text("One two three ")
    visit.open()
    expect(visit.page.locator(".assistant p").last).to_have_text("One two three ")
    gate.touch()
    expect(visit.page.locator(".assistant p").last).to_have_text("One two three four.")
    assert texts(visit.page) == ["You said hello.", "One two three four."]
    assert visit.page.locator(".user p").all_inner_texts() == ["hello", "wait"]
    visit.say("again")
    expect(visit.page.locator(".assistant p").last).to_have_text("You said again.")


def test_an_approval_survives_a_reload(visit: Visit) -> None:
    visit.say("call delete_file b.txt")
    expect(visit.page.get_by_role("button", name="Approve")).to_be_visible()
    visit.open()
    visit.page.get_by_role("button", name="Approve").click()
    expect(visit.page.locator(".assistant p").last).to_have_text("Got b.txt is deleted.")
