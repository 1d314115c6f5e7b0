"""The console in real Chromium where things go wrong or are done twice, as critical people try first."""

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, ViewportSize, expect

from tests.e2e.console import LIMIT_MS, chat, context_of, live, opened, panels, say, session_of
from tests.e2e.console_logs import long_session
from tests.e2e.harness import Reader, Server, kind, running
from tests.e2e.web_client import run
from tests.support.limits import HANG_S

APP = "tests.e2e.console_apps:app"
ENTER = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
LIVE = {"block.delta", "tool.progress"}
PHONE = ViewportSize(width=360, height=700)
# The pauses before a request is sent again take a twentieth of their time.
HASTE = """
const later = window.setTimeout;
window.setTimeout = (work, ms, ...rest) => later(work, ms >= 400 && ms <= 4000 ? ms / 20 : ms, ...rest);
"""
# What the page says of its line from now on.
LINES = """() => {
  const line = document.querySelector("#connection");
  window.lines = [];
  new MutationObserver(() => lines.push(line.textContent)).observe(line, {
    subtree: true, childList: true, characterData: true,
  });
}"""
PRESS_TWICE = "(button) => { button.click(); button.click(); }"
# Press a button when another tab presses its own, so that both do it at once.
PRESS = """([name, first]) => {
  const button = [...document.querySelectorAll("tl-ask button")].find((each) => each.textContent === name);
  const channel = new BroadcastChannel("press");
  channel.onmessage = () => button.click();
  if (!first) return;
  channel.postMessage("now");
  button.click();
}"""

# What is in the clipboard, as soon as it is something else than before.
CLIPBOARD = """async (before) => {
  for (let text = before; ; text = await navigator.clipboard.readText()) if (text !== before) return text;
}"""
# Where two characters of an element are, from the left.
PLACES = """(element, characters) => {
  const text = [...element.childNodes].find((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  return characters.map((one) => {
    const range = document.createRange();
    range.setStart(text, text.data.indexOf(one));
    range.setEnd(text, text.data.indexOf(one) + 1);
    return range.getBoundingClientRect().left;
  });
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(APP, tmp_path_factory.mktemp("edges")) as server:
        yield server


@pytest.fixture(scope="module")
def context(chrome: Browser, server: Server) -> Iterator[BrowserContext]:
    with context_of(chrome, permissions=["clipboard-read", "clipboard-write"]) as context:
        sign_in(context, server)
        yield context


@pytest.fixture
def page(context: BrowserContext, server: Server) -> Iterator[Page]:
    """A page in a session of its own."""
    page = opened(context, f"{server.url}/?session={server.session()}&panel=events")
    yield page
    page.close()


def sign_in(context: BrowserContext, server: Server) -> None:
    answer = context.request.post(f"{server.url}/api/sign-in", headers=server.headers, data={})
    assert answer.ok


def lines_of(server: Server, session: str) -> list[bytes]:
    """The log of a session as lines, after the one that describes it."""
    request = urllib.request.Request(f"{server.url}/api/log?session={session}", headers=server.headers)
    with urllib.request.urlopen(request, timeout=HANG_S) as response:
        return list(response.read().split(b"\n")[1:-1])


def logged(page: Page, server: Server, kind: str) -> list[Any]:
    """The payloads of a type that the log of a page's session has."""
    events = [json.loads(line) for line in lines_of(server, session_of(page))]
    return [event["payload"] for event in events if event["type"] == kind]


def box(page: Page) -> Locator:
    return page.get_by_label("Message", exact=True)


def shown(page: Page, text: str) -> None:
    expect(chat(page)).to_contain_text(text, timeout=LIMIT_MS)


def told(page: Page, text: str) -> None:
    """Somebody is told of a problem."""
    expect(page.locator(".problems")).to_contain_text(text, timeout=LIMIT_MS)


def card(page: Page, tool: str) -> Locator:
    return chat(page).get_by_label(f"Call of {tool}").last


def copied(page: Page, place: Locator) -> str:
    """What the button "Copy" of a place puts into the clipboard."""
    page.bring_to_front()  # a page without the focus may not use the clipboard
    before = page.evaluate("navigator.clipboard.readText()")
    place.get_by_role("button", name="Copy", exact=True).click()
    return str(page.evaluate(CLIPBOARD, before))


def saved(page: Page, name: str) -> bytes:
    """The file that a button gives."""
    with page.expect_download() as download:
        button(page, name).click()
    return Path(download.value.path()).read_bytes()


def plain(text: str) -> str:
    """Words without what makes them Markdown."""
    return " ".join(re.sub(r"[\\*`|_>-]", "", text).split())


def button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)


def test_a_server_that_comes_back_with_another_log_leaves_nothing_of_the_old_one(
    chrome: Browser, tmp_path: Path
) -> None:
    with context_of(chrome) as context:
        context.add_init_script(HASTE)
        with running(APP, tmp_path) as server:
            sign_in(context, server)
            page = opened(context, f"{server.url}/?session={server.session()}")
            say(page, "note milk")
            shown(page, "Noted.")
            expect(button(page, "Stop")).to_be_disabled()
            expect(page).to_have_title(re.compile("note milk"))
            last = json.loads(lines_of(server, session_of(page))[-1])["seq"]
            page.goto(f"{page.url}&panel=state&seq={last}")  # a place that the other log has too
            live(page)
            expect(page.get_by_role("tabpanel")).to_contain_text("milk")
            other = opened(context, page.url.replace("state", "events"))
            for each in (page, other):
                each.evaluate(LINES)
            server.kill()
        expect(page.locator("#connection")).to_have_text("Reconnecting", timeout=LIMIT_MS)
        say(page, "Are you there?")
        expect(page.get_by_text("Your message will be sent when the connection is back.")).to_be_visible()
        expect(box(page)).to_have_value("Are you there?")
        for file in tmp_path.glob("log.db*"):
            if file.suffix != ".key":
                file.unlink()
        long_session(tmp_path, "desk", 48, session_of(page))
        with running(APP, tmp_path, server.port):
            for each in (page, other):
                each.evaluate("dispatchEvent(new Event('online'))")  # do not wait longer
                told(each, "log was replaced")
                shown(each, "Question 1")
                live(each)
                assert "Reset: reading again" in each.evaluate("lines")
            expect(page.get_by_role("tabpanel")).to_contain_text("notes: []")
            expect(page).not_to_have_title(re.compile("milk"))
            for each in (page, other):
                each.bring_to_front()
                assert [name for name, text in panels(each).items() if "milk" in text] == []
            for each in (page, other):
                shown(each, "I heard: Are you there?")
            expect(chat(page).locator(".said", has_text="Are you there?")).to_have_count(1)
            expect(box(page)).to_have_value("")


def test_what_waits_two_agents_deep_is_in_sight_and_answered_once(
    context: BrowserContext, page: Page, server: Server
) -> None:
    say(page, "dare Oslo")
    for name in ("Approve", "Yes"):
        expect(button(page, name)).to_be_visible(timeout=LIMIT_MS)  # nobody has unfolded anything
    expect(page.get_by_text("2 questions need your answer")).to_be_visible()
    other = opened(context, page.url)
    for name in ("Approve", "Yes"):
        expect(button(other, name)).to_be_visible(timeout=LIMIT_MS)
    # Not a double click: its second half would hit what moves to the place of an answered question.
    button(page, "Approve").evaluate(PRESS_TWICE)
    button(other, "Yes").evaluate(PRESS_TWICE)
    for each in (page, other):
        shown(each, "Done: The expert says true, then.")
        calls = card(each, "scout").locator("tl-call")
        for tool in ("shred", "confirm"):
            expect(calls.get_by_label(f"Call of {tool}")).to_have_attribute("data-state", "done")
        expect(calls.get_by_label("Call of shred")).to_contain_text("Approved by local")
        expect(each.locator("tl-ask form")).to_have_count(0)
        expect(each.locator(".waits, .problems > div")).to_have_count(0)
    other.close()
    assert len(logged(page, server, "approval.decision")) == 1
    assert len([one for one in logged(page, server, "tool.result") if one["tool"] == "confirm"]) == 1


def test_two_tabs_that_decide_at_once_show_the_one_decision(
    context: BrowserContext, page: Page, server: Server
) -> None:
    other = opened(context, page.url)
    say(page, "shred paper")
    for each, name in ((page, "Approve"), (other, "Deny")):
        expect(button(each, name)).to_be_visible(timeout=LIMIT_MS)
    page.evaluate(PRESS, ["Approve", False])
    other.evaluate(PRESS, ["Deny", True])
    for each in (page, other):
        shown(each, "Done: ")
        expect(each.locator("tl-ask form")).to_have_count(0)
    [decided] = logged(page, server, "approval.decision")
    state = {"approve": "done", "deny": "denied"}[decided["decision"]]
    for each in (page, other):
        expect(card(each, "shred")).to_have_attribute("data-state", state)
        expect(each.locator(".note", has_text="by local")).to_have_count(1)
    other.close()


def test_the_export_is_the_log_and_the_conversation(page: Page, server: Server) -> None:
    say(page, "everything é <b>\u2028")
    shown(page, "Done: In Bergen, see the harbour.")
    expect(button(page, "Stop")).to_be_disabled()
    page.get_by_role("tab", name="Documents").click()
    log = saved(page, "JSONL")
    session = session_of(page)
    assert log.split(b"\n")[1:-1] == lines_of(server, session)
    reader = Reader(server, session)
    run(reader.read(kind("agent.end", "Lead")))
    lasting = [line for line in lines_of(server, session) if json.loads(line)["type"] not in LIVE]
    assert lasting == [message.data.encode() for message in reader.messages if message.event == "message"]
    words = plain(saved(page, "Markdown").decode())
    said = chat(page).locator(".said, .block, .thinking p, .call b, .call .chip").all_text_contents()
    assert len(said) > 10
    assert [text for text in said if plain(text) not in words] == []


def test_copying_gives_exactly_what_is_shown(page: Page) -> None:
    code = "if (a < b && c) {\n\treturn '&amp;  ';\n\n}  "
    say(page, f"code\n\n```js\n{code}\n```")
    shown(page, "I heard: code")
    expect(button(page, "Stop")).to_be_disabled()
    assert copied(page, chat(page).locator(".prose")).removesuffix("\n") == code
    page.get_by_role("listbox").locator("[data-row]", has_text="ui.message").click()
    detail = page.get_by_role("tabpanel")
    event = json.loads(copied(page, detail))
    assert (event["type"], event["payload"]["text"]) == ("ui.message", f"code\n\n```js\n{code}\n```")
    expect(detail.get_by_role("button", name="Copied")).to_be_visible()
    button(page, "Share").click()
    detail = page.get_by_role("dialog", name="Members")
    detail.get_by_label("Role of the guest").select_option("guest")
    detail.get_by_role("button", name="Make a link").click()
    assert copied(page, detail) == detail.get_by_label("The link").input_value()
    expect(detail.get_by_role("button", name="Copied")).to_be_visible()


def test_enter_ends_a_composition_and_does_not_send(
    context: BrowserContext, page: Page, server: Server
) -> None:
    tools = context.new_cdp_session(page)
    box(page).focus()
    tools.send("Input.imeSetComposition", {"text": "にほん", "selectionStart": 3, "selectionEnd": 3})
    tools.send("Input.dispatchKeyEvent", {"type": "rawKeyDown", **ENTER})  # the input method takes its text
    tools.send("Input.dispatchKeyEvent", {"type": "keyUp", **ENTER})
    tools.send("Input.insertText", {"text": "日本"})
    expect(box(page)).to_have_value("日本")
    page.keyboard.type("!")
    page.keyboard.press("Enter")
    shown(page, "I heard: 日本!")
    assert [message["text"] for message in logged(page, server, "ui.message")] == ["日本!"]


def test_composer_with_a_lost_answer_is_cleared_by_the_event_of_its_message(
    page: Page, server: Server
) -> None:
    unanswered: list[Route] = []

    def deliver(route: Route) -> None:
        route.fetch()
        unanswered.append(route)

    page.route("**/api/send", deliver)
    say(page, "Only once")
    shown(page, "I heard: Only once")
    expect(box(page)).to_have_value("")
    expect(box(page)).to_be_editable()
    unanswered[0].fulfill(status=500, json={"error": "the line broke"})
    expect(page.locator(".problems > div")).to_have_count(0)
    assert len(logged(page, server, "ui.message")) == 1


def test_a_message_that_was_refused_stays_and_is_delivered_once(page: Page, server: Server) -> None:
    page.route("**/api/send", lambda route: route.fulfill(status=500, json={"error": "the line broke"}))
    say(page, "Only once")
    told(page, "the line broke")
    expect(box(page)).to_have_value("Only once")
    expect(box(page)).to_be_editable()
    button(page, "Send").click(trial=True)  # what is told does not cover it
    page.unroute("**/api/send")
    page.reload()
    expect(box(page)).to_have_value("Only once")
    button(page, "Send").click()
    expect(box(page)).to_have_value("")
    shown(page, "I heard: Only once")
    assert len(logged(page, server, "ui.message")) == 1


def test_stop_is_asked_for_once_however_often_it_is_pressed(page: Page, server: Server) -> None:
    say(page, "long")
    shown(page, "Part 2")
    button(page, "Stop").evaluate(PRESS_TWICE)
    shown(page, "Lead was stopped")
    assert len(logged(page, server, "ui.command")) == 1


def test_any_text_is_text_and_fits_a_phone(page: Page, server: Server) -> None:
    page.set_viewport_size(PHONE)
    box(page).fill(" \n ")
    box(page).press("Enter")
    say(page, "<img src=x onerror=alert(1)><b>bold</b>")
    shown(page, "I heard: <img src=x onerror=alert(1)><b>bold</b>")
    expect(chat(page).locator("img, .said b, .prose b")).to_have_count(0)
    say(page, "w" * 3000)
    shown(page, "I heard: www")
    say(page, "שלום, עולם!")
    shown(page, "שלום, עולם!")
    for screen in ("Sessions", "Inspect", "Chat"):
        button(page, screen).click()
        for element in ("html", ".scroller", ".sessions"):
            assert page.locator(element).evaluate("(one) => one.scrollWidth - one.clientWidth") == 0
    mark = page.locator(".said").last.evaluate(PLACES, ["ש", "!"])
    assert mark[0] > mark[1], "what ends a sentence from right to left is at its left"
    big = "x" * 100_001
    say(page, big)
    told(page, "at most 100000 characters")
    expect(box(page)).to_have_value(big)
    box(page).press("Backspace")
    button(page, "Send").click()
    shown(page, f"I heard: {big[1:]}")
    assert len(logged(page, server, "ui.message")) == 4


def test_back_and_forth_between_sessions_each_with_what_is_written_there(page: Page, server: Server) -> None:
    say(page, "hello")
    shown(page, "I heard: hello")
    first = page.url
    box(page).fill("for the first")
    button(page, "New session of desk").click()
    shown(page, "No messages yet.")
    second = page.url
    box(page).fill("for the second")
    for url, text, words in (
        (first, "I heard: hello", "for the first"),
        (second, "No messages yet", "for the second"),
    ):
        page.evaluate("history.back()" if url == first else "history.forward()")
        expect(page).to_have_url(url)
        shown(page, text)
        live(page)
        expect(box(page)).to_have_value(words)


def test_an_address_of_no_session_says_so_and_leads_on(page: Page, server: Server) -> None:
    say(page, "hello")
    shown(page, "I heard: hello")
    page.goto(f"{server.url}/?session=sess_nobody")
    expect(page.get_by_role("main")).to_have_text("There is no such session.", timeout=LIMIT_MS)
    page.go_back()
    live(page)
    shown(page, "I heard: hello")


def test_who_is_signed_out_in_the_middle_signs_in_and_goes_on(chrome: Browser, server: Server) -> None:
    with context_of(chrome) as context:
        sign_in(context, server)
        other, mine = server.session(), server.session()
        page = opened(context, f"{server.url}/?session={mine}")
        box(page).fill("Still me")
        link = page.locator(f"a[href$='{other}']")
        for refused in (button(page, "Send"), button(page, "New session of desk"), link):
            context.clear_cookies()
            refused.click()
            page.get_by_label("Token").fill(server.token)
            button(page, "Sign in").click()
            live(page)
            expect(box(page)).to_have_value("" if refused is link else "Still me")
        page.go_back()
        live(page)
        expect(box(page)).to_have_value("Still me")
        box(page).press("Enter")
        shown(page, "I heard: Still me")
        assert len(logged(page, server, "ui.message")) == 1
