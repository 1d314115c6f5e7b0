"""The conversation in real Chromium: what loads, what is queued, who works, who did what, where it stands."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, expect

from tests.e2e.console import LIMIT_MS, chat, context_of, live, opened, say
from tests.e2e.harness import Server, running

APP = "tests.e2e.conversation_apps:app"
EMPTY = "No messages yet."
MARKDOWN = """Press <kbd>Esc</kbd> or<br>wait.

- [x] done

```diff
-old
+new
```

- שלום עולם
- ועוד

| שם | גיל |
|---|---|
| דן | 3 |"""
BOX = "(one) => { const box = one.getBoundingClientRect(); return [box.x, box.y, box.width, box.height]; }"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(APP, tmp_path_factory.mktemp("log")) as server:
        yield server


@pytest.fixture
def page(context: BrowserContext, server: Server) -> Page:
    """A page in a session of its own."""
    return opened(context, f"{server.url}/?session={server.session()}")


def shown(page: Page, text: str) -> None:
    expect(chat(page)).to_contain_text(text, timeout=LIMIT_MS)


def box(page: Page) -> Locator:
    return page.get_by_label("Message", exact=True)


def rect(element: Locator) -> list[float]:
    found: list[float] = element.evaluate(BOX)
    return found


def at_rest(page: Page) -> None:
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_disabled(timeout=LIMIT_MS)


def texts(page: Page) -> list[str]:
    return page.locator(".said, .prose").all_inner_texts()


def test_chat_before_its_history_came_shows_a_skeleton_and_no_suggestions(
    context: BrowserContext, server: Server
) -> None:
    session = server.session()
    server.send(session, "hello")
    page, held = context.new_page(), list[Route]()
    page.route("**/api/events*", lambda route: held.append(route))
    page.goto(f"{server.url}/?session={session}")
    expect(page.get_by_label("The conversation is loading")).to_be_visible(timeout=LIMIT_MS)
    expect(page.get_by_text(EMPTY)).to_have_count(0)
    expect(page.get_by_label("Suggestions")).to_have_count(0)
    held[0].continue_()
    shown(page, "hello")
    expect(page.get_by_label("The conversation is loading")).to_have_count(0)


def test_chat_of_a_new_session_says_that_it_is_empty_and_suggests(page: Page) -> None:
    expect(page.get_by_text(EMPTY)).to_be_visible()
    page.get_by_label("Suggestions").get_by_role("button").click()
    shown(page, "Tell me something")
    expect(page.get_by_text(EMPTY)).to_have_count(0)


def test_call_that_a_person_approved_says_what_the_risk_is_and_who_approved(page: Page) -> None:
    say(page, "delete")
    ask = page.locator("tl-ask")
    expect(ask).to_contain_text("It changes the database", timeout=LIMIT_MS)
    expect(ask.get_by_label("Arguments").locator("dt")).to_have_text("Entry ids")
    expect(ask.get_by_label("Arguments").locator("li")).to_have_text(["row_1", "row_2"])
    expect(ask.locator("button.strong")).to_have_count(0)
    ask.get_by_role("button", name="Approve").click()
    shown(page, "Approved by local")


def test_approval_of_a_call_that_only_reads_has_a_strong_button(page: Page) -> None:
    say(page, "read")
    ask = page.locator("tl-ask")
    expect(ask).to_contain_text("It reads data and changes nothing", timeout=LIMIT_MS)
    expect(ask.locator("button.strong")).to_have_text("Approve")
    ask.get_by_role("button", name="Deny").click()
    shown(page, "Denied by local")


def test_markdown_draws_keys_breaks_tasks_diffs_and_lists_from_right_to_left(page: Page) -> None:
    say(page, MARKDOWN)
    at_rest(page)
    prose = chat(page).locator(".prose").last
    expect(prose.locator("kbd")).to_have_text("Esc")
    expect(prose.locator("p br")).to_have_count(1)
    expect(prose.locator("li.task")).to_have_css("list-style-type", "none")
    expect(prose.locator("pre ins")).to_have_text("+new")
    expect(prose.locator("pre del")).to_have_text("-old")
    expect(prose.locator("ul", has_text="שלום")).to_have_css("direction", "rtl")
    expect(prose.locator("table")).to_have_css("direction", "rtl")
    expect(prose.locator("ul", has_text="done")).to_have_css("direction", "ltr")


def test_mark_of_an_event_stands_beside_the_words_also_inside_a_call(page: Page) -> None:
    say(page, "picture")
    shown(page, "Done.")
    content = rect(page.locator(".content > tl-flow"))
    for entry in chat(page).locator(".entry").all():
        entry.hover()
        mark = entry.locator(":scope > .seq")
        expect(mark).to_have_css("opacity", "1")
        x, y, width, _ = rect(mark)
        assert x >= content[0] + content[2], "left of it are words"
        assert x + width <= rect(page.locator(".scroller"))[0] + rect(page.locator(".scroller"))[2]
        assert abs(y - rect(entry)[1]) < 40


def hold_pictures(page: Page) -> list[Route]:
    held = list[Route]()
    page.route("**/api/blobs/**", lambda route: held.append(route))
    return held


def release(page: Page, held: list[Route]) -> None:
    while not held:
        page.evaluate("() => new Promise(requestAnimationFrame)")
    for route in held:
        route.continue_()
    expect(chat(page).locator("img.loaded")).to_have_count(len(held), timeout=LIMIT_MS)


def test_picture_has_room_before_it_is_loaded_and_its_own_size_afterwards(page: Page) -> None:
    held = hold_pictures(page)
    say(page, "picture")
    image = chat(page).locator("section.call img")
    expect(image).to_have_css("height", "240px", timeout=LIMIT_MS)
    release(page, held)
    natural = image.evaluate("(image) => image.naturalHeight")
    assert 0 < natural < 240
    assert rect(image)[3] == natural


def test_picture_that_comes_above_what_is_read_moves_nothing(page: Page) -> None:
    held = hold_pictures(page)
    say(page, "picture")
    shown(page, "Done.")
    say(page, "\n\n".join(f"Paragraph {number}" for number in range(60)))
    at_rest(page)
    chat(page).hover()
    page.mouse.wheel(0, -300)
    expect(chat(page)).not_to_have_class(re.compile(r"\bend\b"), timeout=LIMIT_MS)  # it no longer follows
    line = chat(page).locator(".prose").get_by_text("Paragraph 45", exact=True)
    before = rect(line)[1]
    release(page, held)
    page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    assert abs(rect(line)[1] - before) < 2


def test_table_header_keeps_its_star_and_a_deleted_date_stays_a_date(page: Page) -> None:
    say(page, "table")
    head = page.locator("tl-view-table th", has_text="Weight")
    expect(head).to_be_visible(timeout=LIMIT_MS)
    head.evaluate("(head) => head.style.setProperty('max-width', '4.5rem')")
    assert "(lbs)\u00a0*" in head.inner_text()
    page.get_by_role("button", name="Delete row 1").click()
    expect(page.locator("tr.gone s").first).to_have_text("2026-11-16 12:00 -05:00")


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of an application with several agents."""
    with running("tests.e2e.console_apps:app", tmp_path_factory.mktemp("team")) as server:
        yield server


@pytest.fixture
def team_page(chrome: Browser, team: Server) -> Iterator[Page]:
    with context_of(chrome) as context:
        assert context.request.post(f"{team.url}/api/sign-in", headers=team.headers, data={}).ok
        yield opened(context, f"{team.url}/?session={team.session()}")


def test_choice_of_whom_a_message_is_for_survives_a_reload(team_page: Page) -> None:
    to = team_page.locator("tl-composer").get_by_label("To")
    to.select_option("Scout")
    team_page.reload()
    live(team_page)
    expect(to).to_have_value("Scout")
    team_page.get_by_role("button", name="New session of desk").click()
    expect(to).to_have_value("")


def test_mark_of_an_event_of_an_agent_inside_a_call_stands_beside_the_words(team_page: Page) -> None:
    say(team_page, "team Oslo")
    expect(team_page.locator("tl-ask")).to_be_visible(timeout=LIMIT_MS)
    nested = chat(team_page).locator("tl-flow tl-flow tl-flow .entry")
    expect(nested.first).to_be_visible()
    content = rect(team_page.locator(".content > tl-flow"))
    for entry in nested.all():
        entry.hover()
        mark = entry.locator(":scope > .seq")
        expect(mark).to_have_css("opacity", "1")
        assert rect(mark)[0] >= content[0] + content[2], "left of it are words and borders"


def test_words_of_another_member_stand_at_the_left_with_a_name(page: Page) -> None:
    say(page, "mine")
    at_rest(page)
    mine = page.locator(".mine .said").evaluate("(said) => getComputedStyle(said).backgroundColor")
    page.evaluate(
        """() => {
          const console = document.querySelector("tl-console");
          console.session.me = { ...console.session.me, name: "grace" };
          for (const entry of document.querySelectorAll("tl-entry")) entry.requestUpdate();
        }"""
    )
    theirs = chat(page).locator(".theirs")
    expect(theirs).to_contain_text("local")
    assert rect(theirs.locator(".said"))[0] == rect(theirs)[0]
    expect(theirs.locator(".said")).not_to_have_css("background-color", mine)


def test_problem_is_told_in_words_and_its_detail_on_demand(page: Page) -> None:
    page.route("**/api/send", lambda route: route.fulfill(status=500, json={"error": "store is broken"}))
    say(page, "hello")
    problem = page.locator(".problems > div")
    expect(problem).to_contain_text("The server could not do this.", timeout=LIMIT_MS)
    expect(problem.get_by_text("store is broken")).to_be_hidden()
    problem.get_by_text("Details").click()
    expect(problem.get_by_text("store is broken")).to_be_visible()


@pytest.fixture
def allowance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The pipe that lets models speak, a byte for a piece."""
    path = tmp_path / "allowance"
    os.mkfifo(path)
    monkeypatch.setenv("CONSOLE_ALLOWANCE", str(path))
    pipe = os.open(path, os.O_RDWR)
    yield pipe
    os.close(pipe)


def test_queued_message_waits_above_the_field_and_then_stands_before_its_answer(
    chrome: Browser, allowance: int, tmp_path: Path
) -> None:
    with running("tests.e2e.console_apps:held", tmp_path) as server, context_of(chrome) as context:
        page = opened(context, server.link)
        say(page, "first")
        expect(page.get_by_text("Lead is thinking")).to_be_visible(timeout=LIMIT_MS)
        expect(page.locator(".seconds[data-seconds='· 2 s']")).to_be_attached(timeout=LIMIT_MS)  # it counts
        say(page, "second")
        queue = page.get_by_label("Queued messages")
        expect(queue).to_contain_text("second", timeout=LIMIT_MS)
        assert texts(page) == ["first"]
        os.write(allowance, b"." * 50)
        shown(page, "I heard: second")
        at_rest(page)
        expect(queue).to_have_count(0)
        expect(page.get_by_text("is thinking")).to_have_count(0)
        expected = ["first", "I heard: first", "second", "I heard: second"]
        assert texts(page) == expected
        page.reload()
        live(page)
        shown(page, "I heard: second")
        assert texts(page) == expected


def test_question_that_was_answered_says_what_by_whom_and_when(chrome: Browser, tmp_path: Path) -> None:
    with running("tests.e2e.console_apps:fast", tmp_path) as server, context_of(chrome) as context:
        page = opened(context, server.link)
        say(page, "team Oslo")
        page.get_by_role("button", name="Yes").click(timeout=LIMIT_MS)
        answer = chat(page).get_by_label("Call of confirm").locator(".answer")
        expect(answer).to_contain_text("Yes · local ·", timeout=LIMIT_MS)
        expect(answer.locator("time")).to_be_visible()


def test_message_without_a_line_is_sent_once_when_the_line_is_back(chrome: Browser, tmp_path: Path) -> None:
    with context_of(chrome) as context:
        with running(APP, tmp_path) as server:
            page = opened(context, server.link)
            server.kill()
        expect(page.locator("#connection")).to_have_text("Reconnecting", timeout=LIMIT_MS)
        expect(page.locator(".columns")).to_have_attribute("data-offline", "")
        say(page, "later")
        expect(page.get_by_text("Your message will be sent when the connection is back.")).to_be_visible()
        expect(box(page)).to_have_value("later")
        with running(APP, tmp_path, server.port):
            page.evaluate("dispatchEvent(new Event('online'))")
            live(page)
            expect(chat(page).locator(".prose", has_text="later")).to_be_visible(timeout=LIMIT_MS)
            expect(chat(page).locator(".said", has_text="later")).to_have_count(1)
            expect(box(page)).to_have_value("")


def test_browser_without_a_network_keeps_a_message_and_sends_it_once(chrome: Browser, tmp_path: Path) -> None:
    with running(APP, tmp_path) as server, context_of(chrome) as context:
        page = opened(context, server.link)
        context.set_offline(True)
        state = page.locator("#connection")
        expect(state).to_have_text("Reconnecting")
        page.set_viewport_size({"width": 360, "height": 740})
        assert state.evaluate("(label) => label.scrollWidth <= label.clientWidth")  # not cut off
        say(page, "later")
        expect(page.get_by_text("Your message will be sent when the connection is back.")).to_be_visible()
        context.set_offline(False)
        live(page)
        expect(chat(page).locator(".prose", has_text="later")).to_be_visible(timeout=LIMIT_MS)
        expect(chat(page).locator(".said", has_text="later")).to_have_count(1)


def test_server_that_still_answers_a_browser_without_a_network_is_live_again(
    chrome: Browser, tmp_path: Path
) -> None:
    with running(APP, tmp_path) as server, context_of(chrome) as context:
        page = opened(context, server.link)
        # set_offline would block loopback too, which a browser without a network does not
        state = "document.querySelector('tl-console').session.connection"
        assert page.evaluate(f"(dispatchEvent(new Event('offline')), {state})") == "reconnecting"
        live(page)


def test_session_with_only_a_title_is_empty_and_has_its_title_in_the_list(
    chrome: Browser, tmp_path: Path
) -> None:
    with running("turnlog_examples.broker:app", tmp_path) as server, context_of(chrome) as context:
        page = opened(context, server.link)
        expect(page.get_by_text(EMPTY)).to_be_visible(timeout=LIMIT_MS)
        expect(chat(page).locator(".events")).to_have_count(0)
        expect(page.get_by_role("navigation", name="Sessions")).to_contain_text("A new project")
