"""The recipe for CopilotKit: its React page, its runtime in Node.js, and Turnlog behind."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.e2e.browser import browsing
from tests.e2e.harness import Server, running
from tests.foreign_clients.apps import GATE_VARIABLE
from tests.foreign_clients.node import find_node
from tests.foreign_clients.pages import Visit, bundled

FOLDER = Path(__file__).parent
APP = "tests.foreign_clients.apps:app"
PAGE = "copilotkit-page"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("copilotkit")
    os.environ[GATE_VARIABLE] = str(folder / "gate")
    with running(APP, folder) as server:
        yield server


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with bundled(FOLDER, tmp_path_factory.mktemp("pages"), PAGE) as place:
        yield place


@pytest.fixture(scope="module")
def origin(place: Path, server: Server) -> Iterator[str]:
    command = [*find_node().node, "runtime.mjs", server.url, server.token, str(place / "out")]
    environment = os.environ | {"COPILOTKIT_TELEMETRY_DISABLED": "true"}
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            yield next(line.strip() for line in process.stdout if line.startswith("http"))
        finally:
            process.kill()


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    with browsing(chromium) as browser:
        yield browser


@pytest.fixture
def gate(server: Server) -> Iterator[Path]:
    path = Path(os.environ[GATE_VARIABLE])
    path.unlink(missing_ok=True)
    yield path
    path.touch()


@pytest.fixture
def visit(browser: Browser, origin: str, request: pytest.FixtureRequest) -> Iterator[Visit]:
    with browser.new_context() as context:
        visit = Visit(context.new_page(), f"{origin}/{PAGE}.html?id={request.node.name}")
        visit.open()
        yield visit
        assert visit.problems == []


def answers(visit: Visit) -> Locator:
    return visit.page.locator(".copilotKitAssistantMessage p")


def test_a_text_streams(visit: Visit, gate: Path) -> None:
    visit.say("wait")
    expect(answers(visit)).to_have_text("One two three")
    gate.touch()
    expect(answers(visit)).to_have_text("One two three four.")


def test_a_tool_is_shown(visit: Visit) -> None:
    visit.say("add")
    expect(visit.page.locator(".tool")).to_have_text("add: 3")
    expect(answers(visit)).to_have_text(["Adding.", "Got 3."])


@pytest.mark.parametrize(("button", "answer"), [("Approve", "Got a.txt is deleted."), ("Deny", "said no")])
def test_an_approval_is_answered(visit: Visit, button: str, answer: str) -> None:
    visit.say("call delete_file a.txt")
    visit.page.get_by_role("button", name=button).click()
    expect(answers(visit).last).to_contain_text(answer)


def test_a_reload_in_mid_sentence_goes_on(visit: Visit, gate: Path) -> None:
    visit.say("hello")
    expect(answers(visit)).to_have_text("You said hello.")
    visit.say("wait")
    expect(answers(visit)).to_have_text(["You said hello.", "One two three"])
    visit.open()
    expect(answers(visit)).to_have_text(["You said hello.", "One two three"])
    gate.touch()
    expect(answers(visit)).to_have_text(["You said hello.", "One two three four."])
    expect(visit.page.locator(".copilotKitUserMessage")).to_have_text(["hello", "wait"])
    visit.say("again")
    expect(answers(visit)).to_have_text(["You said hello.", "One two three four.", "You said again."])


def test_an_approval_survives_a_reload(visit: Visit) -> None:
    visit.say("call delete_file b.txt")
    expect(visit.page.get_by_role("button", name="Approve")).to_be_visible()
    visit.open()
    visit.page.get_by_role("button", name="Approve").click()
    expect(answers(visit).last).to_have_text("Got b.txt is deleted.")


def test_the_stop_button_stops_the_turn(visit: Visit, gate: Path) -> None:
    visit.say("wait")
    expect(answers(visit)).to_have_text("One two three")
    visit.page.get_by_test_id("copilot-send-button").click()
    expect(visit.page.locator("[data-copilot-running=false]")).to_be_visible()
    visit.say("hello")
    expect(answers(visit).last).to_have_text("You said hello.")
