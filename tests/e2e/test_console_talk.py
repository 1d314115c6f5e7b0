"""The console in real Chromium: a conversation with everything in it, reloads, a restart, eight tabs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.e2e.browser import watched
from tests.e2e.console import LIMIT_MS, chat, context_of, live, opened, say, session_of
from tests.e2e.harness import Server, running
from tests.e2e.web_client import streams

APP = "tests.e2e.console_apps:app"
TABS = 3


@pytest.fixture
def context(chrome: Browser) -> Iterator[BrowserContext]:
    with context_of(chrome) as context:
        yield context


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with running(APP, tmp_path) as server:
        yield server


def card(page: Page, tool: str) -> Locator:
    """The card of the last call of a tool."""
    return chat(page).get_by_label(f"Call of {tool}").last


def shown(page: Page, text: str) -> None:
    expect(chat(page)).to_contain_text(text, timeout=LIMIT_MS)


def test_a_sub_agent_asks_the_page_from_inside_the_call_of_its_caller(
    context: BrowserContext, server: Server
) -> None:
    page = opened(context, server.link)
    errors = watched(page)
    say(page, "team Oslo")
    asked = card(page, "scout").locator("tl-call").get_by_label("Call of confirm")
    expect(asked).to_have_attribute("data-state", "waiting", timeout=LIMIT_MS)
    expect(asked).to_contain_text("Is Oslo far?")
    expect(page.get_by_text("1 question needs your answer")).to_be_visible()
    card(page, "scout").locator("summary", has_text="Scout").first.click()
    expect(asked.get_by_role("button", name="Yes")).to_be_visible()  # what waits cannot be folded away
    asked.get_by_role("button", name="Yes").click()
    shown(page, "Done: The expert says true, then.")
    expect(asked).to_have_attribute("data-state", "done")
    expect(page.get_by_text("question needs your answer")).to_have_count(0)
    assert errors == []


def test_a_form_is_refused_at_its_field_by_the_page_by_the_agent_and_then_taken(
    context: BrowserContext, server: Server
) -> None:
    page = opened(context, server.link)
    say(page, "form")
    form = chat(page).locator("[data-form=weight_form]").last
    form.get_by_label("Name").fill("Ada", timeout=LIMIT_MS)
    form.get_by_label("Weight").fill("-3")
    form.get_by_role("button", name="Save").click()
    expect(form).to_contain_text("must be > 0")
    expect(form.get_by_label("Weight")).to_be_focused()
    form.get_by_label("Weight").fill("300")
    page.reload()  # what was typed and not sent is still there
    live(page)
    expect(form.get_by_label("Weight")).to_have_value("300")
    form.get_by_role("button", name="Save").click()
    shown(page, "That cannot be.")
    expect(form).to_contain_text("Weight must be at most 100", timeout=LIMIT_MS)
    expect(chat(page).locator("[data-state=replaced]")).to_contain_text("local sent “Weighing”")
    form.get_by_label("Weight").fill("72.5")
    form.get_by_role("button", name="Save").click()
    shown(page, "Thank you, Ada: 72.5.")
    expect(form.get_by_role("button", name="Save")).to_be_disabled()


def test_an_approval_counts_once_in_whichever_tab_it_was_given(
    context: BrowserContext, server: Server
) -> None:
    first = opened(context, server.link)
    say(first, "shred paper")
    expect(card(first, "shred")).to_have_attribute("data-state", "waiting", timeout=LIMIT_MS)
    second = opened(context, first.url)
    expect(card(second, "shred")).to_contain_text("It cannot be undone.", timeout=LIMIT_MS)
    card(second, "shred").get_by_role("button", name="Approve").click()
    for page in (first, second):
        shown(page, "Done: paper is gone")
        expect(page.get_by_role("button", name="Approve")).to_have_count(0)
        expect(card(page, "shred")).to_contain_text("Approved by local")


def test_a_stop_in_mid_sentence_and_what_waits_for_its_turn(context: BrowserContext, server: Server) -> None:
    page = opened(context, server.link)
    say(page, "long")
    shown(page, "Part 2")
    say(page, "hello")
    expect(page.get_by_label("Queued messages")).to_contain_text("hello")
    page.get_by_role("button", name="Stop", exact=True).click()
    shown(page, "I heard: hello")
    shown(page, "topped")
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_disabled()
    before = chat(page).inner_text()
    page.reload()
    live(page)
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_disabled()
    assert chat(page).inner_text() == before


def test_page_in_mid_turn_loses_nothing_by_a_reload_and_by_a_kill_of_the_server(
    context: BrowserContext, tmp_path: Path
) -> None:
    with running(APP, tmp_path) as server:
        page = opened(context, server.link)
        say(page, "team Bergen")
        expect(page.get_by_role("button", name="Yes")).to_be_visible(timeout=LIMIT_MS)
        page.reload()
        live(page)
        expect(page.get_by_role("button", name="Yes")).to_be_visible(timeout=LIMIT_MS)
        before = chat(page).inner_text()
        other = opened(context, server.url)
        server.kill()
        for each in (page, other):
            expect(each.locator("#connection")).to_have_text("Reconnecting", timeout=LIMIT_MS)
    with running(APP, tmp_path, server.port) as again:
        for each in (page, other):
            live(each)
        assert chat(page).inner_text().startswith(before)
        page.get_by_role("button", name="Yes").click()
        for each in (page, other):
            shown(each, "Done: The expert says true, then.")
        say(page, "long")
        shown(page, "Part 2")
        again.kill()
    with running(APP, tmp_path, server.port):
        live(page)
        shown(page, "Part 39")  # the turn goes on, with the same text from the start
        expect(chat(page).get_by_role("heading", name="Part 1", exact=True)).to_have_count(1)
        say(page, "hello")
        shown(page, "I heard: hello")


def test_page_shows_that_a_restart_cut_off_a_turn_if_the_application_closes_it(
    context: BrowserContext, tmp_path: Path
) -> None:
    with running("closing", tmp_path) as server:
        page = opened(context, server.link)
        say(page, "talk")
        shown(page, "word word")
        server.kill()
    with running("closing", tmp_path, server.port):
        live(page)
        shown(page, "Cut off by a restart")
        shown(page, "word word")


def test_tabs_follow_one_run_over_one_connection(context: BrowserContext, server: Server) -> None:
    pages = [opened(context, server.link)]
    pages += [opened(context, pages[0].url) for _ in range(TABS - 1)]
    assert len({session_of(page) for page in pages}) == 1
    say(pages[0], "everything")
    for page in pages:
        shown(page, "Done: In Bergen, see the harbour.")
    streams(server, 1)
    say(pages[-1], "hello")
    for page in pages:
        shown(page, "I heard: hello")
        expect(page.get_by_role("button", name="Stop", exact=True)).to_be_disabled()
    assert len({chat(page).inner_text() for page in pages}) == 1


def test_a_handoff_an_event_and_the_way_between_chat_and_log(context: BrowserContext, server: Server) -> None:
    page = opened(context, server.link)
    say(page, "hand over")
    shown(page, "I close this.")
    shown(page, "handed over to Closer")
    say(page, "note milk")
    shown(page, "Noted.")
    assert "agent-event" not in chat(page).inner_text()
    chat(page).locator("[data-type='desk.note']").click()
    detail = page.get_by_role("tabpanel")
    expect(detail).to_contain_text('text: "milk"')
    detail.get_by_role("button", name="Show in chat").click()
    expect(chat(page).locator(".found")).to_be_visible()
    page.get_by_role("tab", name="State").click()
    expect(detail).to_contain_text("milk")


def test_who_is_not_signed_in_is_told_how(chrome: Browser, server: Server) -> None:
    with context_of(chrome) as context:
        page = context.new_page()
        page.goto(server.url)
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("does not know this token")
        page.get_by_label("Token").fill(server.token)
        page.get_by_role("button", name="Sign in").click()
        live(page)
