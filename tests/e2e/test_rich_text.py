"""Coloured code and formulas in the console and on the participant page: loaded with the first of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Request, expect

from tests.e2e.axe import carry, violations
from tests.e2e.console import context_of, opened, say
from tests.e2e.guests import join, write
from tests.e2e.harness import Server, running

CODE = "for x in range(3):  # three times\n    print('hi', 1.5)\n"
RICH = f"""Some code:

```python
{CODE}```

Energy is $E = mc^2$, at a price of $5 or $10.

$$\\int_0^1 x\\,dx = \\frac{{1}}{{2}}$$

Repeated: $\\def\\b#1{{#1#1#1}}\\b{{\\b{{x}}}}$ and $\\newcommand\\c[1]{{#1#1}}\\c{{\\c{{x}}}}$

Broken: $\\frac{{1}}$"""
PLAIN = "Some `code`, a price of 5 dollars, and\n\n```text\nno language\n```"

LINES = """(rows) => rows.map((row) => {
  const { lineHeight } = getComputedStyle(row);
  return Math.floor(row.clientHeight / parseFloat(lineHeight));
})"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("tests.e2e.guest_apps:app", tmp_path_factory.mktemp("log")) as server:
        yield server


def record_scripts(page: Page) -> list[str]:
    """Return the list of the scripts that a page loads from now on."""
    loaded: list[str] = []

    def record(request: Request) -> None:
        if request.resource_type == "script":
            loaded.append(request.url)

    page.on("request", record)
    return loaded


def expect_rich_text(prose: Locator) -> None:
    expect(prose.locator("pre .code-keyword").first).to_have_text("for")
    expect(prose.locator("pre .code-comment")).to_have_text("# three times")
    expect(prose.locator("pre .code-string")).to_have_text("'hi'")
    assert prose.locator("pre code").evaluate("(code) => code.textContent") == CODE
    expect(prose.locator("math")).to_have_count(2)
    expect(prose.locator(".formula.display math[display=block] mfrac")).to_have_count(1)
    expect(prose).to_contain_text("at a price of $5 or $10.")
    expect(prose.locator("var").last).to_have_text("$\\frac{1}$")
    # a formula that defines commands could draw without end
    expect(prose.locator("var").nth(2)).to_have_text(r"$\def\b#1{#1#1#1}\b{\b{x}}$")


def expect_rest(page: Page) -> None:
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_disabled()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_console_loads_what_colours_code_and_draws_formulas_with_the_first_of_them(
    chrome: Browser, server: Server, scheme: str
) -> None:
    with context_of(chrome, color_scheme=scheme) as context:
        carry(context)
        assert context.request.post(f"{server.url}/api/sign-in", headers=server.headers, data={}).ok
        page = opened(context, f"{server.url}/?session={server.session()}")
        prose = page.get_by_role("log").locator(".prose")
        say(page, "The first message loads what every message needs.")
        expect(prose).to_have_count(1)
        expect_rest(page)
        loaded = record_scripts(page)
        say(page, PLAIN)
        expect(prose.last).to_contain_text("no language")
        expect_rest(page)
        assert loaded == []
        say(page, RICH)
        expect_rich_text(prose.last)
        assert len(loaded) == 2
        assert violations(page) == []
        page.reload()
        expect_rich_text(prose.last)


def test_participant_page_colours_code_and_draws_formulas(
    chrome: Browser, server: Server, tmp_path: Path
) -> None:
    with context_of(chrome, viewport={"width": 390, "height": 844}, color_scheme="dark") as context:
        carry(context)
        page = join(context, server, server.session())
        write(page, PLAIN)
        prose = page.locator("tl-talk-text .prose")
        expect(prose.last).to_contain_text("no language")
        loaded = record_scripts(page)
        write(page, RICH)
        expect_rich_text(prose.last)
        assert len(loaded) == 2
        assert violations(page) == []


def test_code_is_copied_as_it_was_written(context: BrowserContext, server: Server) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = opened(context, f"{server.url}/?session={server.session()}")
    say(page, RICH)
    figure = page.get_by_role("log").locator(".prose figure").last
    expect(figure.locator(".code-keyword").first).to_be_visible()
    page.bring_to_front()
    figure.get_by_role("button", name="Copy").click()
    expect(figure.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()").rstrip("\n") == CODE.rstrip("\n")


def test_formula_stays_in_its_text_and_a_wide_one_scrolls(chrome: Browser, server: Server) -> None:
    with context_of(chrome, viewport={"width": 390, "height": 844}) as context:
        carry(context)
        page = join(context, server, server.session())
        write(page, f"tall $\\raisebox{{20em}}{{x}}$ and wide ${'a+' * 200}b$ end")
        text = page.locator("tl-talk-text .block").last
        expect(text.locator("math")).to_have_count(2)
        expect(text).to_have_attribute("tabindex", "0")
        assert text.evaluate("(block) => { block.scrollLeft = 50; return block.scrollLeft; }") == 50
        # a raised symbol would show in the message above
        assert text.evaluate("(block) => getComputedStyle(block).overflowY") == "hidden"
        assert violations(page) == []


def test_wide_table_on_a_phone_scrolls_and_keeps_its_cells_wide(chrome: Browser, server: Server) -> None:
    session = server.session()
    words = "The opera, whose roof one may walk on, and the fjord"
    columns = 6
    rows = [["column"] * columns, ["---"] * columns, [words] * columns]
    wide = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    narrow = f"| a | b |\n|---|---|\n| 1 | {words} |"
    message = f"Two tables:\n\n{wide}\n\n{narrow}\n"
    assert server.post("/api/send", {"session": session, "message": message})[0] == 202
    phone = {"width": 390, "height": 844}
    with context_of(chrome, viewport=phone) as guest, context_of(chrome, viewport=phone) as host:
        host.new_page().goto(server.link)
        for page in (join(guest, server, session), opened(host, f"{server.url}/?session={session}")):
            boxes = page.locator(".prose .scroll")
            expect(boxes).to_have_count(2)
            lines = boxes.locator("tbody tr").evaluate_all(LINES)
            assert max(lines) <= 4, lines
            overflows = boxes.evaluate_all("(boxes) => boxes.map((box) => box.scrollWidth > box.clientWidth)")
            assert overflows == [True, False]
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


# Draw a text in two pieces, as it streams: the box of the first task is cut.
DRAW_IN_PIECES = """async ([before, text]) => {
  const element = document.createElement("tl-text");
  const part = { type: "text", id: "p", seq: 1, ts: "", aborted: null, citations: [], speaker: null };
  document.querySelector("tl-chat").append(element);
  for (const [shown, state] of [[before, "streaming"], [text, "done"]]) {
    element.textPart = { ...part, text: shown, state };
    await element.updateComplete;
    while (element.isUpdatePending) await new Promise(requestAnimationFrame);
  }
  return [...element.querySelectorAll("li")].map((item) => [item.textContent.trim(), item.className]);
}"""


def test_task_whose_box_comes_in_two_pieces_is_drawn_like_the_others(
    context: BrowserContext, server: Server
) -> None:
    page = opened(context, f"{server.url}/?session={server.session()}")
    say(page, "hello")
    expect(page.get_by_role("log")).to_contain_text("I heard: hello")
    items = page.evaluate(DRAW_IN_PIECES, ["- [x", "- [x] done\n- [ ] open"])
    assert items == [["\u2611 done", "task"], ["\u2610 open", "task"]]
