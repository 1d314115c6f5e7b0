"""Messages in the console, in real Chromium: copies, footers, finished work, colours, files."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, FilePayload, Page, expect

from tests.e2e.console import chat, opened, say
from tests.e2e.harness import Server, running

APP = "tests.e2e.console_apps:app"
COLOUR = "(element) => getComputedStyle(element).color"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(APP, tmp_path_factory.mktemp("log")) as server:
        yield server


@pytest.fixture
def page(context: BrowserContext, server: Server) -> Page:
    return opened(context, f"{server.url}/?session={server.session()}")


def test_message_is_copied_as_it_was_written(context: BrowserContext, page: Page) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    say(page, "hello")
    expect(chat(page)).to_contain_text("I heard: hello")
    page.get_by_role("button", name="Copy this message").last.click()
    expect(page.get_by_role("button", name="Copy this message").last).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "I heard: hello"


def test_turn_that_has_ended_shows_its_time_tokens_and_cost_and_a_running_one_does_not(page: Page) -> None:
    say(page, "team Oslo")
    expect(page.get_by_text("1 question needs your answer")).to_be_visible()
    expect(page.locator(".turn-foot")).to_have_count(0)
    page.get_by_role("button", name="Yes", exact=True).click()
    expect(page.locator(".turn-foot")).to_have_text(re.compile(r"\d\d:\d\d,\s+.+ tokens, "))


def test_finished_work_of_a_turn_is_one_line_that_opens(page: Page) -> None:
    say(page, "everything")
    fold = chat(page).locator(".work").first
    expect(fold.locator("> summary")).to_contain_text(re.compile("call"))
    card = fold.locator("section.call").first
    expect(card).to_be_hidden()
    fold.locator("> summary").click()
    expect(card).to_be_visible()


def test_agent_has_one_colour_in_chat_events_and_timeline(page: Page) -> None:
    say(page, "hello")
    expect(chat(page)).to_contain_text("I heard: hello")
    name = chat(page).locator(".entry > .name", has_text="Lead").first
    page.get_by_role("tab", name="Events").click()
    row = page.locator("tl-events .who", has_text="Lead").first
    expect(row).to_be_visible()
    colours = [name.evaluate(COLOUR), row.evaluate(COLOUR)]
    page.get_by_role("tab", name="Timeline").click()
    span = page.locator("[data-kind=agent] .title", has_text="Lead").first
    expect(span).to_be_visible()
    assert {*colours, span.evaluate(COLOUR)} == {colours[0]}
    assert colours[0] != chat(page).evaluate(COLOUR)


def test_file_is_attached_to_a_message_and_the_chat_links_it(page: Page) -> None:
    file: FilePayload = {"name": "list.txt", "mimeType": "text/plain", "buffer": b"milk and bread"}
    page.locator("tl-attachments input").set_input_files([file])
    expect(page.get_by_label("Files to send").get_by_role("listitem")).to_have_attribute(
        "data-state", "ready"
    )
    say(page, "hello")
    expect(chat(page).locator(".attached")).to_contain_text("list.txt")
    expect(page.get_by_label("Files to send")).to_have_count(0)
    with page.expect_download() as download:
        chat(page).locator(".attached a").click()
    assert download.value.path().read_bytes() == b"milk and bread"


def test_file_that_the_application_does_not_take_is_refused_before_it_is_uploaded(page: Page) -> None:
    uploads = []
    page.on("request", lambda request: uploads.append(request.url) if "api/blobs" in request.url else None)
    file: FilePayload = {"name": "tool.exe", "mimeType": "application/x-msdownload", "buffer": b"MZ"}
    page.locator("tl-attachments input").set_input_files([file])
    expect(page.get_by_role("alert").filter(has_text="tool.exe cannot be sent")).to_be_visible()
    assert uploads == []
