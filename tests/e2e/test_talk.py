"""The page of participants in real Chromium: what a guest says, answers, attaches, and what interrupts it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.e2e.browser import watched
from tests.e2e.guests import (
    box,
    guest_context,
    join,
    log,
    read_events,
    ready,
    tab_to,
    wait_for_messages,
    write,
)
from tests.e2e.harness import Server, running
from turnlog_examples.assistant.chart import bars

APP = "tests.e2e.guest_apps:app"
PICTURE = bars([2, 3, 9], 6)
# What a person does with the clipboard and the mouse; a page cannot make the browser do it.
GIVE = """(element, [type, name, mediaType, size]) => {
  const files = new DataTransfer();
  files.items.add(new File(["x".repeat(size)], name, { type: mediaType }));
  const options = { bubbles: true, cancelable: true, composed: true };
  element.dispatchEvent(type === "paste"
    ? new ClipboardEvent(type, { ...options, clipboardData: files })
    : new DragEvent(type, { ...options, dataTransfer: files }));
}"""

SNAPSHOT = "document.querySelector('turnlog-chat').shadowRoot.querySelector('tl-talk-messages').snapshot"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(APP, tmp_path_factory.mktemp("log")) as server:
        yield server


@pytest.fixture
def guest(chrome: Browser) -> Iterator[BrowserContext]:
    with guest_context(chrome) as context:
        yield context


def messages(server: Server, session: str) -> list[dict[str, Any]]:
    return [event["payload"] for event in read_events(server, session) if event["type"] == "ui.message"]


def question(page: Page) -> Locator:
    return page.locator("tl-talk-question form")


def tray(page: Page) -> Locator:
    return page.get_by_role("list", name="Files to send").get_by_role("listitem")


def test_link_leads_a_guest_to_the_conversation_with_the_names_of_all(
    guest: BrowserContext, server: Server
) -> None:
    session = server.session()
    page = join(guest, server, session, "Ada")
    errors = watched(page)
    expect(page.locator(".people")).to_have_text("You are Ada · also here: Host")
    expect(page.get_by_text("No messages yet.")).to_be_visible()
    write(page, "hello")
    expect(log(page)).to_contain_text("I heard: hello")
    server.post("/api/send", {"session": session, "message": "I am the host"})
    expect(log(page).get_by_role("article", name="Host")).to_contain_text("I am the host")
    expect(log(page).get_by_role("article", name="Reception").last).to_contain_text("I heard: I am the host")
    assert errors == []


def test_guest_who_opens_the_server_comes_to_the_conversation(guest: BrowserContext, server: Server) -> None:
    page = join(guest, server, server.session())
    address = page.url
    page.goto(server.url)
    page.wait_for_url(address)
    ready(page)
    write(page, "walk far")
    expect(page.get_by_text("A message cancels the question.")).to_be_visible()


def test_two_guests_see_each_other_by_name(chrome: Browser, guest: BrowserContext, server: Server) -> None:
    session = server.session()
    page = join(guest, server, session, "Ada")
    with guest_context(chrome) as other:
        second = join(other, server, session, "Bob")
        write(second, "hello from Bob")
        expect(log(page).get_by_role("article", name="Bob")).to_contain_text("hello from Bob")
        expect(log(second).get_by_role("article", name="You")).to_contain_text("hello from Bob")
        expect(page.locator(".people")).to_contain_text("also here: Host, Bob")


def test_indicator_says_who_writes_while_an_agent_writes(
    guest: BrowserContext, tmp_path: Path, allowance: int
) -> None:
    with running("tests.e2e.guest_apps:held", tmp_path) as server:
        page = join(guest, server, server.session())
        write(page, "tell me")
        expect(page.locator(".worker")).to_have_text("Reception is working")
        os.write(allowance, b"." * 5)
        expect(page.locator(".worker")).to_have_text("Reception is writing")
        expect(page.get_by_role("button", name="Stop")).to_be_visible()
        page.get_by_role("button", name="Stop").click()
        os.write(allowance, b"." * 5)
        expect(log(page)).to_contain_text("You stopped this")
        expect(page.locator(".worker")).to_have_count(0)


@pytest.fixture
def allowance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The pipe that lets models speak, a byte for a piece."""
    path = tmp_path / "allowance"
    os.mkfifo(path)
    monkeypatch.setenv("CONSOLE_ALLOWANCE", str(path))
    pipe = os.open(path, os.O_RDWR)
    yield pipe
    os.close(pipe)


def test_reload_in_mid_sentence_shows_the_same_and_the_rest_follows(
    guest: BrowserContext, tmp_path: Path, allowance: int
) -> None:
    with running("tests.e2e.guest_apps:held", tmp_path) as server:
        page = join(guest, server, server.session())
        write(page, "tell me")
        os.write(allowance, b"." * 8)
        said = page.locator("tl-talk-text .prose")
        expect(said).to_contain_text("The ferry")
        page.reload()
        ready(page)
        expect(said).to_contain_text("The ferry")
        expect(said).not_to_contain_text("a bird")
        os.write(allowance, b"." * 200)
        expect(said).to_contain_text("only the sea, and a bird.")
        assert log(page).inner_text().count("The ferry leaves at eight") == 1
        expect(page.locator(".worker")).to_have_count(0)


def test_two_tabs_show_the_same_and_an_answer_in_one_closes_the_question_in_the_other(
    guest: BrowserContext, server: Server
) -> None:
    session = server.session()
    one = join(guest, server, session)
    two = guest.new_page()
    two.goto(one.url)
    ready(two)
    write(one, "walk far")
    expect(question(two)).to_contain_text("Do you walk more than ten kilometres a day?")
    two.get_by_role("button", name="Yes").click()
    for page in (one, two):
        expect(log(page).locator("[data-state=answered]")).to_contain_text("You answered: Yes")
        expect(question(page)).to_have_count(0)
        expect(log(page)).to_contain_text("Done: true.")


def test_server_restart_is_told_and_a_message_of_that_time_is_sent_once(
    guest: BrowserContext, tmp_path: Path
) -> None:
    with running(APP, tmp_path) as server:
        session = server.session()
        page = join(guest, server, session)
        write(page, "before")
        expect(log(page)).to_contain_text("I heard: before")
        port = server.port
        server.kill()
        expect(page.get_by_text("No connection.")).to_be_visible()
        write(page, "meanwhile")
        expect(log(page).get_by_role("article", name="You").last).to_contain_text("meanwhile")
    with running(APP, tmp_path, port) as server:
        # The page may connect by itself at any moment, and the button goes.
        page.get_by_role("button", name="Try now").evaluate_all("found => found.forEach((it) => it.click())")
        expect(log(page)).to_contain_text("I heard: meanwhile")
        expect(page.get_by_text("No connection.")).to_have_count(0)
        assert [message["text"] for message in messages(server, session)] == ["before", "meanwhile"]


def test_form_is_answered_by_keys_alone_and_its_errors_get_the_focus(
    guest: BrowserContext, server: Server
) -> None:
    session = server.session()
    page = join(guest, server, session)
    write(page, "form please")
    name = page.get_by_label("Name")
    expect(name).to_be_visible()
    expect(log(page)).to_contain_text("All is arranged.")
    tab_to(page, name, "Shift+Tab")
    page.keyboard.type("Ada Lovelace")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    persons = page.get_by_label("Persons")
    expect(page.get_by_text("Persons is required")).to_be_visible()
    expect(persons).to_be_focused()
    page.keyboard.type("9")
    page.keyboard.press("Enter")
    expect(log(page)).to_contain_text("That is too many for one room.")
    again = page.get_by_label("Persons").last
    expect(page.get_by_text("Persons must be <= 6")).to_be_visible()
    tab_to(page, again, "Shift+Tab")
    page.keyboard.press("Control+a")
    page.keyboard.type("2")
    page.keyboard.press("Enter")
    expect(log(page)).to_contain_text("Thank you, that is noted.")
    acts = [event["payload"] for event in read_events(server, session) if event["type"] == "ui.action"]
    assert [act["action"]["values"]["persons"] for act in acts] == [9, 2]


def test_typed_values_of_a_form_survive_a_reload(guest: BrowserContext, server: Server) -> None:
    page = join(guest, server, server.session())
    write(page, "form please")
    page.get_by_label("Name").fill("Ada")
    expect(log(page)).to_contain_text("All is arranged.")
    page.reload()
    ready(page)
    expect(page.get_by_label("Name")).to_have_value("Ada")


def test_approval_is_given_by_keys_alone(guest: BrowserContext, server: Server) -> None:
    page = join(guest, server, server.session())
    write(page, "book it")
    ask = question(page)
    expect(ask).to_contain_text("Harbour Hotel")
    expect(ask).to_contain_text("It costs money and cannot be undone.")
    tab_to(page, page.get_by_role("button", name="Show", exact=True), "Shift+Tab")
    page.keyboard.press("Enter")
    tab_to(page, page.get_by_label("Note (optional)"))
    page.keyboard.type("with a view")
    tab_to(page, page.get_by_role("button", name="Allow", exact=True))
    page.keyboard.press("Enter")
    expect(log(page)).to_contain_text("You allowed this")
    expect(log(page)).to_contain_text("with a view")
    expect(log(page)).to_contain_text("Done: 2 nights at Harbour Hotel.")


def test_questions_are_answered_by_keys_alone(guest: BrowserContext, server: Server) -> None:
    page = join(guest, server, server.session())
    write(page, "room please")
    expect(question(page)).to_contain_text("Which room do you like?")
    tab_to(page, page.get_by_role("button", name="Garden"), "Shift+Tab")
    page.keyboard.press("Enter")
    expect(log(page)).to_contain_text("You answered: Garden")
    write(page, "travel on")
    tab_to(page, page.get_by_label("Full name"), "Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Full name is required")).to_be_visible()
    page.keyboard.type("Ada Lovelace")
    page.keyboard.press("Enter")
    expect(log(page)).to_contain_text("Done: Ada Lovelace.")


def test_table_is_edited_and_saved(guest: BrowserContext, server: Server) -> None:
    page = join(guest, server, server.session())
    write(page, "table please")
    page.get_by_label("Count, row 1").fill("6")
    page.get_by_role("button", name="Add row").click()
    page.get_by_label("What, row 2").fill("Flowers")
    page.get_by_role("button", name="Save").click()
    expect(log(page)).to_contain_text("Thank you, that is noted.")
    expect(log(page)).to_contain_text("You saved")


def test_file_is_attached_and_sent_by_keys_alone(
    guest: BrowserContext, server: Server, tmp_path: Path
) -> None:
    session = server.session()
    page = join(guest, server, session)
    picture = tmp_path / "harbour.png"
    picture.write_bytes(PICTURE)
    tab_to(page, page.get_by_role("button", name="Attach files"))
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Attach files").press("Enter")  # the page may have moved the focus
    chooser.value.set_files(picture)
    expect(tray(page)).to_contain_text("harbour.png")
    expect(tray(page)).to_have_attribute("data-state", "ready")
    tab_to(page, box(page))
    page.keyboard.type("our harbour")
    page.keyboard.press("Enter")
    image = log(page).get_by_role("img", name="harbour.png")
    expect(image).to_be_visible()
    expect(image).to_have_js_property("complete", True)
    assert image.evaluate("(image) => image.naturalWidth") > 0
    expect(tray(page)).to_have_count(0)
    [message] = wait_for_messages(server, session, 1)
    parts = [(part["type"], part.get("title")) for part in message["content"]]
    assert parts == [("text", None), ("image", "harbour.png")]
    page.reload()
    ready(page)
    expect(log(page).get_by_role("img", name="harbour.png")).to_be_visible()


def test_picture_in_a_text_is_loaded_from_the_server(
    guest: BrowserContext, server: Server, tmp_path: Path
) -> None:
    page = join(guest, server, server.session())
    picture = tmp_path / "chart.png"
    picture.write_bytes(bars([2, 3, 9], 6))
    page.locator("tl-attachments input").set_input_files(picture)
    expect(page.locator("tl-attachments li")).to_have_attribute("data-state", "ready")
    write(page, "a chart")
    address = log(page).get_by_role("link", name="Download chart.png").get_attribute("href")
    assert address is not None
    write(page, f"![the chart]({address.removeprefix(server.url)})")
    image = page.locator("tl-talk-text img")
    expect(image).to_have_attribute("src", address)
    page.wait_for_function("(image) => image.naturalWidth > 0", arg=image.element_handle())


def test_files_are_pasted_dropped_and_removed_before_they_are_sent(
    guest: BrowserContext, server: Server
) -> None:
    session = server.session()
    page = join(guest, server, session)
    box(page).evaluate(GIVE, ["paste", "notes.txt", "text/plain", 20])
    box(page).evaluate(GIVE, ["drop", "list.md", "", 30])
    expect(tray(page)).to_have_count(2)
    page.get_by_role("button", name="Remove notes.txt").press("Enter")
    expect(tray(page)).to_have_count(1)
    expect(page.get_by_role("button", name="Remove list.md")).to_be_focused()
    page.reload()
    ready(page)
    expect(tray(page)).to_contain_text("list.md")
    page.get_by_role("button", name="Send").click()
    expect(log(page).get_by_role("link", name="Download list.md")).to_be_visible()
    # the labels of the files are not what the person wrote
    expect(log(page).locator(".bubble")).to_have_count(0)
    [message] = wait_for_messages(server, session, 1)
    assert [part["title"] for part in message["content"]] == ["list.md"]
    with page.expect_download() as download:
        log(page).get_by_role("link", name="Download list.md").click()
    assert download.value.suggested_filename == "list.md"
    assert Path(download.value.path()).read_text() == "x" * 30


@pytest.mark.parametrize(
    ("name", "media_type", "size", "words"),
    [
        (
            "program.exe",
            "application/x-msdownload",
            10,
            "program.exe cannot be sent. These files can: images, PDF, and text files.",
        ),
        ("long.txt", "text/plain", 2001, "long.txt is too large. Files of this kind may have up to 1.9 kB."),
        (
            "scan.pdf",
            "application/pdf",
            2_000_001,
            "scan.pdf is too large. Files of this kind may have up to 1.9 MB.",
        ),
        ("nothing.txt", "text/plain", 0, "nothing.txt is empty."),
    ],
    ids=["type", "text", "size", "empty"],
)
def test_limit_of_files_is_told_in_plain_words_before_an_upload(
    name: str, media_type: str, size: int, words: str, guest: BrowserContext, server: Server
) -> None:
    page = join(guest, server, server.session())
    box(page).evaluate(GIVE, ["paste", name, media_type, size])
    expect(page.locator("tl-attachments").get_by_role("alert")).to_have_text(words)
    expect(tray(page)).to_have_count(0)


def test_more_files_than_a_message_takes_are_refused_in_plain_words(
    guest: BrowserContext, server: Server
) -> None:
    page = join(guest, server, server.session())
    for number in range(4):
        box(page).evaluate(GIVE, ["paste", f"{number}.txt", "text/plain", 5])
    expect(tray(page)).to_have_count(3)
    expect(page.locator("tl-attachments").get_by_role("alert")).to_have_text(
        "One message can have up to 3 files."
    )


def test_upload_shows_its_progress_and_a_message_waits_for_it(guest: BrowserContext, server: Server) -> None:
    session = server.session()
    page = join(guest, server, session)
    waiting = []
    page.route("**/api/blobs?*", lambda route: waiting.append(route))
    box(page).evaluate(GIVE, ["paste", "notes.txt", "text/plain", 20])
    expect(tray(page).get_by_role("progressbar")).to_be_visible()
    write(page, "with a file")
    expect(page.get_by_text("The files are still uploading.")).to_be_visible()
    assert messages(server, session) == []
    waiting[0].continue_()
    expect(log(page).get_by_role("link", name="Download notes.txt")).to_be_visible()
    assert len(wait_for_messages(server, session, 1)) == 1


def test_upload_that_fails_is_told_and_can_be_removed(guest: BrowserContext, server: Server) -> None:
    page = join(guest, server, server.session())
    page.route("**/api/blobs?*", lambda route: route.abort())
    box(page).evaluate(GIVE, ["paste", "notes.txt", "text/plain", 20])
    expect(tray(page)).to_contain_text("notes.txt was not uploaded.")
    page.get_by_role("button", name="Remove notes.txt").click()
    expect(tray(page)).to_have_count(0)
    expect(box(page)).to_be_focused()


def test_message_that_the_server_refuses_is_told_and_sent_again_or_discarded(
    guest: BrowserContext, server: Server
) -> None:
    session = server.session()
    page = join(guest, server, session)
    page.route("**/api/events", lambda route: route.fulfill(status=400, json={"error": "no"}))
    write(page, "first")
    write(page, "second")
    failed = log(page).locator("[data-state=failed]")
    expect(failed).to_have_count(2)
    failed.last.get_by_role("button", name="Discard").click()
    expect(failed).to_have_count(1)
    page.unroute("**/api/events")
    failed.get_by_role("button", name="Try again").click()
    expect(log(page)).to_contain_text("I heard: first")
    assert [message["text"] for message in messages(server, session)] == ["first"]


def test_guest_of_no_session_and_of_a_closed_one_is_told_what_to_do(
    guest: BrowserContext, server: Server
) -> None:
    session = server.session()
    page = join(guest, server, session)
    page.goto(f"{server.url}/talk/sess_0000000000000000000000000000dead")
    expect(page.get_by_role("alert")).to_contain_text(
        "This conversation does not exist, or you have no access to it."
    )
    page.goto(f"{server.url}/talk/{session}")
    expect(box(page)).to_be_visible()
    reason = "The trip is booked."
    assert server.post("/api/sessions/close", {"session": session, "reason": reason})[0] == 204
    for _ in ("while the page is open", "after a reload"):
        expect(page.get_by_text(f"Host closed this conversation. Reason: {reason}")).to_be_visible()
        expect(box(page)).to_have_count(0)
        page.reload()
    page.goto(f"{server.url}/talk/{session}?lang=de")
    expect(page.get_by_text(f"hat diese Unterhaltung geschlossen. Grund: {reason}")).to_be_visible()


def test_closed_conversation_that_is_deleted_leaves_the_page(guest: BrowserContext, server: Server) -> None:
    session = server.session()
    page = join(guest, server, session)
    write(page, "before")
    expect(log(page)).to_contain_text("I heard: before")
    assert server.post("/api/sessions/close", {"session": session})[0] == 204
    page.wait_for_function(f"() => {SNAPSHOT}.connection === 'closed'")
    assert server.post("/api/sessions/delete", {"session": session})[0] == 204
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(log(page)).to_have_count(0)
    told = page.get_by_role("alert").inner_text()
    page.reload()
    expect(page.get_by_role("alert")).to_have_text(told)


def test_browser_without_a_network_is_told_at_once_and_a_message_of_that_time_is_sent_once(
    guest: BrowserContext, server: Server
) -> None:
    session = server.session()
    page = join(guest, server, session)
    guest.set_offline(True)
    expect(page.get_by_text("No connection.")).to_be_visible()
    write(page, "meanwhile")
    expect(log(page).get_by_role("article", name="You")).to_contain_text("meanwhile")
    guest.set_offline(False)
    expect(log(page)).to_contain_text("I heard: meanwhile")
    expect(page.get_by_text("No connection.")).to_have_count(0)
    assert [message["text"] for message in messages(server, session)] == ["meanwhile"]


def test_closed_conversation_has_no_open_form_and_nothing_to_send_again(
    guest: BrowserContext, server: Server
) -> None:
    session = server.session()
    page = join(guest, server, session)
    write(page, "form please")
    expect(page.get_by_role("button", name="Book")).to_be_enabled()
    page.route("**/api/events", lambda route: route.fulfill(status=400, json={"error": "no"}))
    write(page, "never sent")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    word = "Donaudampfschifffahrtsgesellschaft" * 5
    assert server.post("/api/sessions/close", {"session": session, "reason": word})[0] == 204
    expect(page.get_by_text(word)).to_be_visible()
    expect(page.get_by_role("button", name="Book")).to_have_count(0)
    expect(page.locator("tl-view")).to_contain_text("Closed")
    expect(page.get_by_role("button", name="Try again")).to_have_count(0)
    expect(page.get_by_role("button", name="Discard")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_person_without_a_cookie_is_told_to_open_the_link(guest: BrowserContext, server: Server) -> None:
    page = guest.new_page()
    page.goto(f"{server.url}/talk/{server.session()}")
    expect(page.get_by_role("alert")).to_contain_text("You are not signed in, or your invitation has ended.")


def test_german_browser_gets_german_texts_and_german_errors(chrome: Browser, server: Server) -> None:
    with guest_context(chrome, locale="de-DE") as context:
        page = join(context, server, server.session())
        assert page.locator("html").get_attribute("lang") == "de"
        expect(page.locator(".people")).to_have_text("Sie sind Ada · auch hier: Gastgeber")
        write(page, "form bitte")
        expect(log(page)).to_contain_text("All is arranged.")
        page.get_by_role("button", name="Book").click()
        expect(page.get_by_text("Persons wird gebraucht")).to_be_visible()
        box(page).evaluate(GIVE, ["paste", "nichts.txt", "text/plain", 0])
        expect(page.get_by_role("alert")).to_have_text("nichts.txt ist leer.")
        write(page, "walk far")
        expect(question(page)).to_contain_text("Bitte bestätigen Sie")
        page.get_by_role("button", name="Nein").click()
        expect(log(page)).to_contain_text("Sie haben geantwortet: Nein")
        write(page, "book it")
        expect(question(page)).to_contain_text("214,5")
        page.goto(page.url + "?lang=en")
        ready(page)
        expect(question(page)).to_contain_text("214.5")
        expect(page.locator(".people")).to_have_text("You are Ada · also here: Host")


def test_page_of_a_long_conversation_draws_earlier_messages_on_demand(
    guest: BrowserContext, server: Server
) -> None:
    session = server.session()
    for number in range(70):
        assert server.post("/api/send", {"session": session, "message": f"number {number}"})[0] == 202
    page = join(guest, server, session)
    expect(log(page)).to_contain_text("I heard: number 69")
    expect(page.locator("tl-talk-message")).to_have_count(60)
    page.get_by_role("button", name="Show earlier messages").click()
    expect(page.locator("tl-talk-message")).to_have_count(120)
    page.get_by_role("button", name="Latest messages").click()
    expect(log(page).get_by_text("I heard: number 69")).to_be_in_viewport()
