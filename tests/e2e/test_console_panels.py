"""The panels and lists of the console in real Chromium: times, the end of a list, the axis, names, guests."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect

from tests.e2e.browser import browsing
from tests.e2e.console import chat, context_of, live, opened, say
from tests.e2e.console_logs import long_session
from tests.e2e.harness import Server, running

APP = "tests.e2e.console_apps:app"
EVENTS = 60  # more than a list shows at once
LOW = ViewportSize(width=1400, height=400)
PHONE = ViewportSize(width=360, height=700)
TALL = ViewportSize(width=1400, height=1300)
# Where the bars of the axis and of the first row begin, and how wide they are.
BARS = """() => [".axis .bars", "[role=option] .bars"].map((place) => {
  const { x, width } = document.querySelector(place).getBoundingClientRect();
  return [x, width];
})"""
# How wide the scroll bar of the list is.
SCROLLBAR = """() => {
  const { offsetWidth, clientWidth } = document.querySelector("[role=listbox]");
  return offsetWidth - clientWidth;
}"""
# The window grows: the browser moves what was scrolled further than the list now goes, and says so, before
# the page has measured the list again.
GROW = """() => {
  const list = document.querySelector("[role=listbox]");
  const before = list.scrollTop;
  document.querySelector("tl-console").style.height = "1300px";
  const moved = before - list.scrollTop;
  list.dispatchEvent(new Event("scroll"));
  return moved;
}"""
# Whether a tree of JSON begins at the top of its box, and its first field follows the brace.
LINES = """(box) => {
  const place = (name) => box.querySelector(name).getBoundingClientRect();
  const [outer, brace, field] = [box.getBoundingClientRect(), place("summary"), place("tl-json tl-json")];
  return [brace.top - outer.top < brace.height, field.top - brace.bottom < brace.height / 2];
}"""
BOTTOM_LINE = "(tab) => getComputedStyle(tab).borderBottomColor"


@pytest.fixture(scope="module")
def chrome(chromium: str) -> Iterator[Browser]:
    with browsing(chromium, scrollbars=True) as browser:
        yield browser


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(APP, tmp_path_factory.mktemp("log")) as server:
        yield server


@pytest.fixture(scope="module")
def context(chrome: Browser, server: Server) -> Iterator[BrowserContext]:
    with context_of(chrome) as context:
        sign_in(context, server)
        yield context


def sign_in(context: BrowserContext, server: Server) -> None:
    assert context.request.post(f"{server.url}/api/sign-in", headers=server.headers, data={}).ok


def at(context: BrowserContext, server: Server, panel: str) -> Page:
    """A new session with a panel."""
    return opened(context, f"{server.url}/?session={server.session()}&panel={panel}")


def ended(page: Page) -> None:
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_disabled()


def test_timeline_while_a_question_waits_counts_the_time_that_passes(chrome: Browser, server: Server) -> None:
    with context_of(chrome) as context:
        sign_in(context, server)
        page = context.new_page()
        page.clock.install()
        page.goto(f"{server.url}/?session={server.session()}&panel=timeline")
        live(page)
        say(page, "team Oslo")
        row = page.get_by_role("option").filter(has_text="confirm")
        expect(row).to_contain_text("waiting")
        page.clock.fast_forward("20:00")
        expect(row).to_contain_text(re.compile(r"waiting\s*[2-9]\d min"))
        page.get_by_role("tab", name="Usage").click()
        facts = page.locator(".facts")
        expect(facts).to_contain_text(re.compile(r"Waiting for people\s*[2-9]\d min"))
        expect(facts).to_contain_text(re.compile(r"Time in turns\s*[2-9]\d min"))
        expect(facts).not_to_contain_text(re.compile(r"Time in tools\s*[2-9]\d min"))


def test_timeline_with_a_scroll_bar_has_its_axis_over_the_bars(
    context: BrowserContext, server: Server
) -> None:
    page = at(context, server, "timeline")
    page.set_viewport_size(LOW)
    for number in range(3):
        say(page, f"team {number}")
        page.get_by_role("button", name="Yes", exact=True).click()
        ended(page)
    page.get_by_label("Turn", exact=True).select_option("all")
    expect(page.get_by_role("listbox", name="Timeline").get_by_role("option").nth(5)).to_be_attached()
    assert page.evaluate(SCROLLBAR) > 0
    axis, bars = page.evaluate(BARS)
    assert axis == pytest.approx(bars, abs=0.5)


def test_events_after_the_window_has_grown_still_follow(chrome: Browser, tmp_path: Path) -> None:
    long_session(tmp_path, "desk", EVENTS, "sess_1")
    with running(APP, tmp_path) as server, context_of(chrome) as context:
        sign_in(context, server)
        page = opened(context, f"{server.url}/?session=sess_1&panel=events")
        rows = page.get_by_role("listbox", name="Events")
        expect(rows.get_by_role("option").last).to_be_in_viewport()
        assert page.evaluate(GROW) > 0
        page.set_viewport_size(TALL)
        say(page, "hello")
        expect(chat(page)).to_contain_text("I heard: hello")
        ended(page)
        expect(rows.get_by_role("option").filter(has_text="agent.end").last).to_be_in_viewport()
        expect(page.locator(".fresh")).to_have_count(0)


def test_times_are_those_of_the_machine_and_a_tooltip_has_utc(chrome: Browser, server: Server) -> None:
    with context_of(chrome, timezone_id="America/Los_Angeles") as context:
        sign_in(context, server)
        page = at(context, server, "events")
        say(page, "hello")
        ended(page)
        time = page.get_by_role("listbox", name="Events").get_by_role("option").first.locator("time")
        there = page.evaluate(
            "(ts) => new Date(ts).toLocaleTimeString('en-GB')", time.get_attribute("datetime")
        )
        expect(time).to_contain_text(there)
        expect(time).to_have_attribute("title", re.compile(r" UTC, .*America/Los_Angeles"))
        listed = page.locator(".sessions [aria-current] time")
        expect(listed).to_have_text(there[:5])


def test_mark_and_copy_button_beside_a_message_are_one_line_each(
    context: BrowserContext, server: Server
) -> None:
    page = at(context, server, "events")
    say(page, "hello")
    expect(chat(page)).to_contain_text("I heard: hello")
    ended(page)
    entry = chat(page).locator(".entry").last
    entry.hover()
    mark, copy = (entry.locator(name).bounding_box() for name in (".seq", ".copy"))
    assert mark is not None
    assert copy is not None
    assert mark["height"] < 2 * 16
    assert copy["height"] < 2 * 16
    assert mark["y"] + mark["height"] <= copy["y"] + 1


def test_bar_of_a_phone_is_one_line_whatever_it_says_of_the_connection(
    context: BrowserContext, server: Server
) -> None:
    page = at(context, server, "events")
    page.set_viewport_size(PHONE)
    bar = page.get_by_role("banner")
    height = bar.evaluate("(bar) => bar.clientHeight")
    page.locator("#connection").evaluate("(line) => { line.textContent = 'Reset: reading again'; }")
    assert bar.evaluate("(bar) => bar.clientHeight") == height
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0


def test_tab_that_is_chosen_keeps_its_line_under_a_pointer(context: BrowserContext, server: Server) -> None:
    page = at(context, server, "events")
    tab = page.get_by_role("tab", name="Events")
    page.mouse.move(0, 0)
    line = tab.evaluate(BOTTOM_LINE)
    tab.hover()
    assert tab.evaluate(BOTTOM_LINE) == line


def test_session_list_with_a_form_that_waits_says_so_and_marks_the_title(
    context: BrowserContext, server: Server
) -> None:
    page = at(context, server, "events")
    say(page, "form")
    listed = page.locator(".sessions [aria-current]")
    expect(listed).to_contain_text("needs your answer")
    expect(page).to_have_title(re.compile("^● "))
    page.get_by_label("Weight").fill("70")
    page.get_by_label("Name").fill("Ada")
    page.get_by_role("button", name="Save").click()
    expect(chat(page)).to_contain_text("Thank you, Ada: 70.")
    expect(listed).not_to_contain_text("needs your answer")


def test_session_list_has_the_session_on_top_in_which_something_happened_last(
    context: BrowserContext, server: Server
) -> None:
    page = at(context, server, "events")
    old = page.url
    first = page.locator(".sessions li").first.locator("a")
    page.get_by_role("button", name="New session of desk").click()
    expect(page).not_to_have_url(old)
    expect(first).to_have_attribute("aria-current", "page")
    page.goto(old)
    live(page)
    say(page, "hello")
    ended(page)
    expect(first).to_have_attribute("aria-current", "page")


def test_sign_out_leads_to_the_form_for_tokens(chrome: Browser, server: Server) -> None:
    with context_of(chrome) as context:
        sign_in(context, server)
        page = at(context, server, "events")
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        page.reload()
        expect(page.get_by_label("Token")).to_be_visible()


def test_share_makes_a_link_for_a_role_of_the_application(context: BrowserContext, server: Server) -> None:
    page = at(context, server, "events")
    page.get_by_role("button", name="Share").click()
    dialog = page.get_by_role("dialog", name="Members")
    expect(dialog.locator(".rows")).to_contain_text("local")
    role = dialog.get_by_label("Role of the guest")
    assert role.get_by_role("option").all_text_contents() == ["guest", "owner"]
    dialog.get_by_role("button", name="Make a link").click()
    expect(dialog.get_by_label("The link")).to_have_value(re.compile("/sign-in"))
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("button", name="Share")).to_be_focused()


def test_share_in_another_session_has_nothing_of_the_one_before(
    context: BrowserContext, server: Server
) -> None:
    page = at(context, server, "events")
    page.get_by_role("button", name="Share").click()
    dialog = page.get_by_role("dialog", name="Members")
    dialog.get_by_label("Role of the guest").select_option("owner")
    dialog.get_by_role("button", name="Make a link").click()
    expect(dialog.get_by_label("The link")).to_be_visible()
    page.evaluate(
        "(session) => { history.pushState(null, '', `?session=${session}`);"
        " dispatchEvent(new PopStateEvent('popstate')); }",
        server.session(),
    )
    expect(dialog).to_be_hidden()
    live(page)
    page.get_by_role("button", name="Share").click()
    expect(dialog.get_by_label("Role of the guest")).to_have_value("guest")
    expect(dialog.get_by_label("The link")).to_have_count(0)


def test_guest_is_led_to_its_session_and_sees_no_buttons_that_it_may_not_use(
    chrome: Browser, server: Server
) -> None:
    session = server.session()
    _, answer = server.post("/api/links", {"session": session, "roles": ["guest"]})
    with context_of(chrome) as context:
        page = context.new_page()
        page.goto(server.url + answer["path"])
        page.get_by_label("Your name").fill("Sarah")
        page.get_by_role("button", name="Join").click()
        page.wait_for_url(f"**/talk/{session}*")
        page.goto(server.url)
        page.wait_for_url(f"**/talk/{session}*")
        page.goto(f"{server.url}/?session={session}")
        live(page)
        expect(page.locator(".account")).to_contain_text("Sarah")
        expect(page.get_by_role("button", name=re.compile("Start|New session"))).to_have_count(0)
        page.get_by_role("button", name="Share").click()
        dialog = page.get_by_role("dialog", name="Members")
        expect(dialog).to_contain_text("Sarah")
        expect(dialog.get_by_label("Role of the guest")).to_have_count(0)


def test_counts_of_events_say_that_live_pieces_are_left_out(context: BrowserContext, server: Server) -> None:
    page = at(context, server, "events")
    say(page, "hello")
    ended(page)
    expect(page.get_by_label("Events shown")).to_contain_text(re.compile(r"\d+ without live pieces"))
    page.get_by_role("tab", name="State").click()
    expect(page.locator(".where")).to_contain_text(re.compile(r"(\d+) of \1, without live pieces"))


def test_json_tree_of_the_state_has_no_blank_lines(context: BrowserContext, server: Server) -> None:
    page = at(context, server, "state")
    say(page, "note milk")
    expect(chat(page)).to_contain_text("Noted.")
    tree = page.get_by_role("region", name="State")
    expect(tree).to_contain_text("milk")
    assert tree.evaluate(LINES) == [True, True]


def test_agents_of_one_name_show_what_each_was_asked(context: BrowserContext, server: Server) -> None:
    page = at(context, server, "agents")
    for place in ("Oslo", "Bergen"):
        say(page, f"team {place}")
        page.get_by_role("button", name="Yes", exact=True).click()
        ended(page)
    panel = page.get_by_role("tabpanel")
    for place in ("Oslo", "Bergen"):
        expect(panel.locator(".agent", has_text="Expert").filter(has_text=place)).to_have_count(1)
    page.get_by_role("tab", name="Usage").click()
    for place in ("Oslo", "Bergen"):
        expect(panel.get_by_role("row").filter(has_text="Expert").filter(has_text=place)).to_have_count(1)
    page.get_by_role("tab", name="Timeline").click()
    expect(panel.get_by_role("option").filter(has_text="Expert").filter(has_text="Bergen")).to_have_count(1)
