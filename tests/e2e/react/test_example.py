"""`examples/react_chat` in a browser, with the packages as npm packs them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, expect

from tests.e2e.harness import ROOT, Server, running
from tests.e2e.react.conftest import APP, TakeSteps
from tests.e2e.react.npm_packages import run_node
from tests.e2e.react.pages import EXAMPLE, HERE, HOW_TO, render_example
from tests.foreign_clients.pages import Visit

MAX_LINES = 60  # of the application, formatted; the page around it has 11


def open_chat(context: BrowserContext, origin: str, server: Server, session: str) -> Visit:
    visit = Visit(context.new_page(), f"{origin}/index.html?server={server.url}&session={session}")
    visit.open()
    return visit


def sign_in(context: BrowserContext, server: Server) -> None:
    assert context.request.post(f"{server.url}/api/sign-in", headers=server.headers, data={}).ok


@pytest.fixture
def session(server: Server) -> str:
    return server.session()


@pytest.fixture
def visit(context: BrowserContext, origin: str, server: Server, session: str) -> Iterator[Visit]:
    visit = open_chat(context, origin, server, session)
    yield visit
    assert visit.problems == []


def answers(visit: Visit) -> Locator:
    return visit.page.locator(".assistant p")


def test_a_text_streams(visit: Visit, take_steps: TakeSteps) -> None:
    visit.say("step")
    take_steps(2)
    expect(answers(visit)).to_have_text("One two ")
    expect(answers(visit)).to_have_attribute("data-state", "streaming")
    take_steps(3)
    expect(answers(visit)).to_have_text("One two three four.")
    expect(answers(visit)).to_have_attribute("data-state", "done")
    expect(visit.page.locator(".user p")).to_have_text("step")


def test_a_tool_is_shown_with_its_result(visit: Visit) -> None:
    visit.say("add")
    expect(visit.page.locator("code[data-state=done]")).to_have_text("add: 3")
    expect(answers(visit)).to_have_text(["Adding.", "Got 3."])


def test_a_sub_agent_is_shown_inside_its_call(visit: Visit) -> None:
    visit.say("call helper hello")
    expect(answers(visit)).to_have_text(["You said hello.", "Got You said hello.."])


def test_stop_stops_the_turn(visit: Visit, take_steps: TakeSteps) -> None:
    visit.say("step")
    take_steps(1)
    expect(answers(visit)).to_have_text("One ")
    visit.page.get_by_role("button", name="Stop").click()
    expect(visit.page.locator("main[data-status=idle]")).to_be_visible()
    expect(answers(visit)).to_have_attribute("data-state", "aborted")


@pytest.mark.parametrize(
    ("button", "decision", "answer"),
    [("Approve", "approve", "Got a.txt is deleted."), ("Deny", "deny", "said no")],
    ids=["approve", "deny"],
)
def test_an_approval_of_one_tab_is_shown_in_the_other(
    visit: Visit,
    context: BrowserContext,
    origin: str,
    server: Server,
    session: str,
    button: str,
    decision: str,
    answer: str,
) -> None:
    other = open_chat(context, origin, server, session)
    visit.say("call delete_file a.txt")
    for each in (visit, other):
        expect(each.page.get_by_role("button", name=button)).to_be_visible()
    other.page.get_by_role("button", name=button).click()
    for each in (visit, other):
        expect(each.page.locator("em")).to_have_text(f"delete_file: {decision}")
        expect(answers(each)).to_have_count(1)
        expect(answers(each)).to_contain_text(answer)
        expect(each.page.get_by_role("button", name=button)).to_have_count(0)
    assert other.problems == []


def test_a_reload_in_mid_sentence_loses_and_doubles_nothing(visit: Visit, take_steps: TakeSteps) -> None:
    visit.say("hello")
    expect(answers(visit)).to_have_text("You said hello.")
    visit.say("step")
    take_steps(2)
    expect(answers(visit)).to_have_text(["You said hello.", "One two "])
    visit.page.reload()
    expect(answers(visit)).to_have_text(["You said hello.", "One two "])
    take_steps(3)
    expect(answers(visit)).to_have_text(["You said hello.", "One two three four."])
    expect(visit.page.locator(".user p")).to_have_text(["hello", "step"])


def test_a_page_without_a_session_creates_one_that_a_reload_shows(
    context: BrowserContext, origin: str, server: Server
) -> None:
    visit = Visit(context.new_page(), f"{origin}/index.html?server={server.url}")
    visit.open()
    visit.say("hello")
    expect(answers(visit)).to_have_text("You said hello.")
    visit.page.reload()
    expect(answers(visit)).to_have_text("You said hello.")
    assert visit.problems == []


def test_a_server_that_was_killed_in_mid_run_goes_on_in_two_tabs(
    chrome: Browser, folder: Path, origin: str, take_steps: TakeSteps, tmp_path: Path
) -> None:
    options = ("--allow-origin", origin)
    with running(APP, tmp_path, options=options) as server, chrome.new_context() as context:
        sign_in(context, server)
        session = server.session()
        tabs = [open_chat(context, origin, server, session) for _ in range(2)]
        tabs[0].say("step")
        take_steps(2)
        for tab in tabs:
            expect(answers(tab)).to_have_text("One two ")
        server.kill()
        for tab in tabs:
            expect(tab.page.locator("main[data-connection=reconnecting]")).to_be_visible()
        with running(APP, tmp_path, server.port, options=options):
            take_steps(3)
            for tab in tabs:
                expect(tab.page.locator("main[data-connection=live]")).to_be_visible()
                # the model answers anew, so the words from before the kill are taken back
                expect(answers(tab)).to_have_text(["One two three four."])
            tabs[1].say("hello")
            for tab in tabs:
                expect(answers(tab).last).to_have_text("You said hello.")
                expect(answers(tab)).to_have_count(2)


def test_a_message_to_a_server_that_is_away_is_sent_again(
    chrome: Browser, folder: Path, origin: str, tmp_path: Path
) -> None:
    options = ("--allow-origin", origin)
    with running(APP, tmp_path, options=options) as server, chrome.new_context() as context:
        sign_in(context, server)
        visit = open_chat(context, origin, server, server.session())
        visit.say("hello")
        expect(answers(visit)).to_have_text("You said hello.")
        server.kill()
        visit.say("again")
        again = visit.page.get_by_role("button", name="Not sent. Try again")
        expect(again).to_be_visible()
        with running(APP, tmp_path, server.port, options=options):
            again.click()
            expect(answers(visit)).to_have_text(["You said hello.", "You said again."])
            expect(visit.page.locator(".user p")).to_have_text(["hello", "again"])
            expect(again).to_have_count(0)


def test_the_application_of_the_example_refunds_an_order(
    chrome: Browser, origin: str, tmp_path: Path
) -> None:
    with (
        running("examples.react_chat.app:app", tmp_path, options=("--allow-origin", origin)) as server,
        chrome.new_context() as context,
    ):
        sign_in(context, server)
        visit = open_chat(context, origin, server, server.session())
        visit.say("Please refund order 17")
        visit.page.get_by_role("button", name="Approve").click()
        expect(answers(visit).last).to_have_text("Done: 480 euros for order 17 are on their way back.")
        expect(visit.page.locator("code[data-state=done]")).to_have_count(2)
        assert visit.problems == []


def test_the_example_is_rendered_without_a_document(pages: Path) -> None:
    assert render_example(pages) == (
        '<main data-status="idle" data-connection="connecting"><form>'
        '<input aria-label="Message" autoComplete="off" required="" name="text"/></form></main>'
    )


def test_the_types_of_the_example_and_of_the_documents_are_right(pages: Path) -> None:
    run_node(pages, "node_modules/typescript/bin/tsc")


def test_the_example_is_short_and_uses_public_packages_alone() -> None:
    chat = (EXAMPLE / "chat.tsx").read_text()
    assert chat.count("\n") <= MAX_LINES
    assert f"in {chat.count(chr(10))} lines" in HOW_TO.read_text()
    imports = {line.rpartition(" from ")[2] for line in chat.splitlines() if line.startswith("import ")}
    assert imports == {'"@turnlog/client";', '"@turnlog/react";', '"react";'}
    packages = json.loads((EXAMPLE / "package.json").read_text())["dependencies"]
    assert set(packages) == {"@turnlog/client", "@turnlog/react", "react", "react-dom"}
    for name in ("client", "react"):
        version = json.loads((ROOT / "web" / name / "package.json").read_text())["version"]
        assert packages[f"@turnlog/{name}"] == f"^{version}"


def test_the_tests_install_the_versions_that_the_types_are_checked_with() -> None:
    web = json.loads((ROOT / "web/package.json").read_text())
    checked = web["dependencies"] | web["devDependencies"]
    installed = json.loads((HERE / "package.json").read_text())["dependencies"]
    assert installed.pop("@types/react-dom") == checked["@types/react"]
    assert installed == {name: checked[name] for name in installed}
