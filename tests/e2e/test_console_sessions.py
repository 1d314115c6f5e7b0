"""Sessions in the console, in real Chromium: rename, close, delete, search, links with names."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, Route, expect

from tests.e2e.console import opened, say
from tests.e2e.harness import Server, running

APP = "tests.e2e.console_apps:app"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(APP, tmp_path_factory.mktemp("log")) as server:
        yield server


def create(server: Server, title: str) -> str:
    return str(server.post("/api/sessions", {"title": title})[1]["session_id"])


def listed(page: Page) -> Locator:
    return page.get_by_role("navigation", name="Sessions")


def settings(page: Page, name: str = "Session") -> Locator:
    return page.get_by_role("dialog", name=name)


def open_settings(page: Page) -> Locator:
    page.get_by_role("banner").get_by_role("button", name="Session", exact=True).click()
    return settings(page)


def refresh_list(page: Page) -> None:
    """Let the page ask for its sessions, as it does when a person comes back to it."""
    with page.expect_response(re.compile(r"/api/sessions(\?|$)")):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_session_that_is_renamed_has_its_title_in_the_list_and_in_the_tab(
    context: BrowserContext, server: Server
) -> None:
    page = opened(context, f"{server.url}/?session={create(server, 'Before')}")
    dialog = open_settings(page)
    expect(dialog.get_by_label("Title")).to_have_value("Before")
    dialog.get_by_label("Title").fill("A trip to Oslo")
    dialog.get_by_role("button", name="Rename").click()
    expect(dialog.get_by_text("Renamed")).to_be_visible()
    expect(listed(page)).to_contain_text("A trip to Oslo")
    expect(page).to_have_title(re.compile("A trip to Oslo"))


def test_title_that_the_server_does_not_take_is_refused_in_plain_words(
    context: BrowserContext, server: Server
) -> None:
    page = opened(context, f"{server.url}/?session={create(server, 'Before')}")
    dialog = open_settings(page)
    dialog.get_by_label("Title").fill("\u00e4" * 65)  # 130 bytes
    dialog.get_by_role("button", name="Rename").click()
    expect(dialog.get_by_role("alert")).to_have_text("This title is too long.")
    dialog.get_by_label("Title").fill("\u00e4" * 64)
    dialog.get_by_role("button", name="Rename").click()
    expect(dialog.get_by_text("Renamed")).to_be_visible()
    expect(dialog.get_by_text("too long")).to_have_count(0)


def test_session_that_is_closed_can_be_read_and_not_continued(
    context: BrowserContext, server: Server
) -> None:
    session = create(server, "To be closed")
    page = opened(context, f"{server.url}/?session={session}")
    other_tab = opened(context, f"{server.url}/?session={session}")
    page.bring_to_front()
    say(page, "note milk")
    expect(page.get_by_role("log")).to_contain_text("Noted.")
    open_settings(page).get_by_role("button", name="Close session").click()
    confirmation = settings(page, "Close this session?")
    expect(confirmation.get_by_role("button", name="Cancel")).to_be_focused()
    confirmation.get_by_role("button", name="Close session", exact=True).click()
    for tab in (page, other_tab):
        expect(tab.get_by_text("You closed this session. It can be read")).to_be_visible()
        expect(tab.locator("tl-composer")).to_have_count(0)
    expect(page.get_by_role("log")).to_contain_text("Noted.")
    assert server.post("/api/send", {"session": session, "message": "Hello"})[0] >= 400


def test_form_of_a_closed_session_cannot_be_sent(context: BrowserContext, server: Server) -> None:
    session = create(server, "A form")
    page = opened(context, f"{server.url}/?session={session}")
    say(page, "form")
    view = page.locator("tl-view")
    expect(view.get_by_role("button", name="Save")).to_be_enabled()
    assert server.post("/api/sessions/close", {"session": session})[0] == 204
    expect(view.locator("[data-state=closed]")).to_contain_text("Weighing Closed")
    expect(view.get_by_role("button", name="Save")).to_have_count(0)
    expect(listed(page)).not_to_contain_text("needs your answer")
    assert server.post("/api/sessions/delete", {"session": session})[0] == 204


def test_settings_offer_only_what_the_server_allows_the_member(
    context: BrowserContext, server: Server
) -> None:
    session = create(server, "Read only")

    def answer_without_rights(route: Route) -> None:
        response = route.fetch()
        listed = response.json()
        for info in listed["sessions"]:
            info["may"] = []
        route.fulfill(response=response, json=listed)

    context.route(re.compile(r"/api/sessions(\?|$)"), answer_without_rights)
    dialog = open_settings(opened(context, f"{server.url}/?session={session}"))
    expect(dialog.get_by_text("Only an owner can rename, close or delete this session.")).to_be_visible()
    expect(dialog.get_by_role("button")).to_have_count(1)  # the one that closes the dialog


def test_session_is_deleted_only_after_a_confirmation(context: BrowserContext, server: Server) -> None:
    session = create(server, "To be deleted")
    page = opened(context, f"{server.url}/?session={session}")
    open_settings(page).get_by_role("button", name="Delete session").click()
    confirmation = settings(page, "Delete this session?")
    confirmation.get_by_role("button", name="Cancel").click()
    assert server.get(f"/api/sessions?session={session}")[0] == 200

    settings(page).get_by_role("button", name="Delete session").click()
    confirmation.get_by_role("button", name="Delete session", exact=True).click()
    expect(listed(page)).not_to_contain_text("To be deleted")
    expect(page).not_to_have_url(re.compile(session))
    assert server.get(f"/api/sessions?session={session}")[0] == 404


def test_closed_session_that_is_deleted_elsewhere_is_told_as_one_that_does_not_exist(
    context: BrowserContext, server: Server
) -> None:
    session = create(server, "Closed, then deleted")
    page = opened(context, f"{server.url}/?session={session}")
    assert server.post("/api/sessions/close", {"session": session})[0] == 204
    expect(page.locator("#connection")).to_have_text("Closed")
    refresh_list(page)
    expect(page.get_by_text("You closed this session. It can be read")).to_be_visible()
    assert server.post("/api/sessions/delete", {"session": session})[0] == 204
    refresh_list(page)
    expect(page.get_by_text("There is no such session.")).to_be_visible()
    expect(listed(page)).not_to_contain_text("Closed, then deleted")


def test_search_lists_the_sessions_whose_titles_have_the_text(
    context: BrowserContext, server: Server
) -> None:
    for number in range(6):
        create(server, f"Report {number}")
    session = create(server, "Minutes of May")
    page = opened(context, f"{server.url}/?session={session}")
    box = page.get_by_role("searchbox", name="Search in titles")
    box.fill("rEPORT 3")
    expect(listed(page).get_by_role("link")).to_have_text([re.compile("Report 3")])
    box.fill("nothing like this")
    expect(listed(page)).to_contain_text("No title has this text.")
    box.fill("")
    expect(listed(page)).to_contain_text("Minutes of May")
    expect(listed(page)).to_contain_text("Report 3")


def test_link_has_the_name_that_its_creator_gave_it(context: BrowserContext, server: Server) -> None:
    page = opened(context, f"{server.url}/?session={create(server, 'Shared')}")
    page.get_by_role("button", name="Share").click()
    dialog = page.get_by_role("dialog", name="Members")
    dialog.get_by_label("For whom").fill("Sarah of the bank")
    dialog.get_by_role("button", name="Make a link").click()
    row = dialog.get_by_label("Open links and invitations").get_by_role("listitem")
    expect(row).to_contain_text("Sarah of the bank")
    row.get_by_role("button", name=re.compile("Revoke")).click()
    expect(row).to_have_count(0)
