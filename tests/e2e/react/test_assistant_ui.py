"""assistant-ui's thread on the external store runtime of `@turnlog/react/assistant-ui`."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Locator, expect

from tests.e2e.harness import Server
from tests.e2e.react.conftest import TakeSteps
from tests.foreign_clients.pages import Visit


@pytest.fixture
def address(origin: str, server: Server) -> str:
    return f"{origin}/out/assistant-ui-page.html?server={server.url}&session={server.session()}"


@pytest.fixture
def visit(context: BrowserContext, address: str) -> Iterator[Visit]:
    visit = Visit(context.new_page(), address)
    visit.open()
    yield visit
    assert visit.problems == []


def answers(visit: Visit) -> Locator:
    return visit.page.locator(".assistant p")


def test_a_text_streams_and_goes_on_after_a_reload(visit: Visit, take_steps: TakeSteps) -> None:
    visit.say("step")
    take_steps(2)
    expect(answers(visit)).to_have_text("One two ")
    visit.open()
    expect(answers(visit)).to_have_text("One two ")
    take_steps(3)
    expect(answers(visit)).to_have_text("One two three four.")
    expect(visit.page.locator(".user p")).to_have_text("step")


def test_a_tool_is_shown_with_its_result(visit: Visit) -> None:
    visit.say("add")
    expect(visit.page.locator(".tool")).to_have_text("add: 3")
    expect(answers(visit)).to_have_text(["Adding.", "Got 3."])


@pytest.mark.parametrize(
    ("button", "answer"),
    [("Approve", "Got a.txt is deleted."), ("Deny", "Not today")],
    ids=["approve", "deny"],
)
def test_an_approval_of_one_tab_is_shown_in_the_other(
    visit: Visit, context: BrowserContext, address: str, button: str, answer: str
) -> None:
    other = Visit(context.new_page(), address)
    other.open()
    visit.say("call delete_file a.txt")
    for each in (visit, other):
        expect(each.page.get_by_role("button", name=button)).to_be_visible()
    other.page.get_by_role("button", name=button).click()
    for each in (visit, other):
        expect(answers(each)).to_contain_text(answer)
        expect(each.page.get_by_role("button", name=button)).to_have_count(0)
    assert other.problems == []


def test_a_call_of_a_sub_agent_is_approved(visit: Visit) -> None:
    visit.say("call helper call delete_file b.txt")
    visit.page.get_by_role("button", name="Approve").click()
    expect(answers(visit)).to_have_text(["Got b.txt is deleted.", "Got Got b.txt is deleted.."])


def test_a_tool_that_asks_for_input_gets_it(visit: Visit) -> None:
    visit.say("call order shirt")
    visit.page.get_by_role("button", name="Large").click()
    expect(answers(visit)).to_have_text("Got shirt in large.")


def test_stop_stops_the_turn(visit: Visit, take_steps: TakeSteps) -> None:
    visit.say("step")
    take_steps(1)
    expect(answers(visit)).to_have_text("One ")
    visit.page.get_by_role("button", name="Stop").click()
    expect(visit.page.get_by_role("button", name="Stop")).to_have_count(0)
    visit.say("hello")
    expect(answers(visit).last).to_have_text("You said hello.")


def test_the_composer_of_a_closed_session_is_disabled(visit: Visit, server: Server, address: str) -> None:
    visit.say("hello")
    expect(answers(visit)).to_have_text("You said hello.")
    expect(visit.page.get_by_role("textbox")).to_be_enabled()
    session = address.rpartition("=")[2]
    assert server.post("/api/sessions/close", {"session": session})[0] == 204
    expect(visit.page.get_by_role("textbox")).to_be_disabled()
    expect(answers(visit)).to_have_text("You said hello.")
