"""How fast the console is, in real Chromium: a long session, scrolling in it, and text while it streams.

Each figure is the best of some: what the machine does beside it can only make it worse. It is divided by how
much slower than on the quiet machine the same browser does a fixed piece of work just then, if it is slower.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.e2e.browser import browsing
from tests.e2e.console import LIMIT_MS, chat, context_of, live, opened, say, session_of
from tests.e2e.console_logs import long_session
from tests.e2e.harness import Reader, Server, kind, running
from tests.e2e.web_client import run
from tests.soak.figures import Measure

EVENTS = 20_000
LOAD_MS = 500
FRAME_MS = 20
STREAM_MS = 1000
TASK_MS = 50
TRIES = 5
WORK_MS = 110.0  # what `WORK` takes on the quiet machine

# When the page asked for the log, the first frame in which it says that it is live, and what held it up.
WATCH = """
window.seen = { asked: null, live: null, long: [] };
const ask = window.fetch;
window.fetch = (url, options) => {
  if (String(url).includes("/api/events")) seen.asked ??= performance.now();
  return ask(url, options);
};
new PerformanceObserver((list) => seen.long.push(...list.getEntries().map(({ duration }) => duration)))
  .observe({ entryTypes: ["longtask"] });
const look = () => {
  if (document.querySelector("#connection")?.textContent.trim() === "Live") seen.live = performance.now();
  else requestAnimationFrame(look);
};
look();
"""

# How long each frame takes while a list is scrolled by so many pixels a frame.
SCROLL = """async ([selector, step, count]) => {
  const list = document.querySelector(selector);
  list.scrollTop = step > 0 ? 0 : list.scrollHeight;
  const frame = () => new Promise(requestAnimationFrame);
  await frame();
  const took = [];
  for (let last = await frame(); took.length < count; ) {
    list.scrollTop += step;
    const now = await frame();
    took.push(now - last);
    last = now;
  }
  return took;
}"""

# The next turn that ends in the session that is shown, and is drawn.
TURN = """() => {
  const { session } = document.querySelector("tl-console");
  let begun = false;
  window.turn = new Promise((ended) => session.watch(() => {
    begun ||= session.isOpen;
    if (begun && !session.isOpen) setTimeout(() => requestAnimationFrame(ended), 500);
  }));
}"""

# A fixed piece of work such as the console does: read, write, make elements, lay them out.
WORK = """() => {
  const begun = performance.now();
  const rows = Array.from({ length: 4000 }, (_, seq) => ({ seq, text: "word ".repeat(20), tags: [seq] }));
  for (let again = 0; again < 5; again += 1) JSON.parse(JSON.stringify(rows));
  const drawn = ({ text }) => Object.assign(document.createElement("p"), { textContent: text });
  document.body.replaceChildren(...rows.map(drawn));
  return document.body.offsetHeight && performance.now() - begun;
}"""


@pytest.fixture(scope="module")
def context(chromium: str) -> Iterator[BrowserContext]:
    with browsing(chromium) as browser, context_of(browser) as context:
        context.add_init_script(WATCH)
        yield context


@pytest.fixture(scope="module")
def long(context: BrowserContext, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a session of 20,000 events, for a browser that is signed in."""
    folder = tmp_path_factory.mktemp("long")
    session = long_session(folder, "desk", EVENTS)
    with running("tests.e2e.console_apps:book", folder) as server:
        signed_in(context, server)
        yield f"{server.url}/?session={session}&panel=events"


def signed_in(context: BrowserContext, server: Server) -> None:
    page = context.new_page()
    page.goto(server.link)
    live(page)
    page.close()


def best(context: BrowserContext, figure: Callable[[], float], goal: float) -> float:
    """The best of some, or the first that reaches the goal."""
    figures: list[float] = []
    while len(figures) < TRIES and not (figures and min(figures) <= goal):
        figures.append(figure() / slowness(context))
    return min(figures)


def slowness(context: BrowserContext) -> float:
    """How much slower than on the quiet machine this browser works just now, if it is slower."""
    page = context.new_page()
    took_ms = median(page.evaluate(WORK) for _ in range(8))
    page.close()
    return float(max(1.0, took_ms / WORK_MS))


def p95(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)]


def shown(page: Page) -> int:
    """The number of durable events that a page has."""
    return int(page.evaluate("document.querySelector('tl-console').session.log.events.length"))


def test_a_session_of_20000_events_is_there_in_half_a_second(
    context: BrowserContext, long: str, measure: Measure
) -> None:
    def load() -> float:
        page = opened(context, long)
        assert shown(page) >= EVENTS
        expect(chat(page)).to_contain_text("the aide says", timeout=LIMIT_MS)
        figure = float(page.evaluate("seen.live - seen.asked"))
        measure(f"{EVENTS:,} events", from_the_address_ms=page.evaluate("seen.live"))
        page.close()
        return figure

    figure = best(context, load, LOAD_MS)
    measure(f"{EVENTS:,} events", load_ms=figure)
    assert figure <= LOAD_MS


@pytest.mark.parametrize(("selector", "step"), [("tl-list [role=listbox]", 48), (".scroller", -48)])
def test_scrolling_keeps_to_its_frames(
    context: BrowserContext, long: str, selector: str, step: int, measure: Measure
) -> None:
    page = opened(context, long)
    expect(page.locator(selector).first).to_be_visible(timeout=LIMIT_MS)

    def scroll() -> float:
        return p95(page.evaluate(SCROLL, [selector, step, 150]))

    before = page.locator(selector).inner_text()
    figure = best(context, scroll, FRAME_MS)
    assert page.locator(selector).inner_text() != before
    measure(f"{EVENTS:,} events", frame_p95_ms=figure)
    page.close()
    assert figure <= FRAME_MS


@pytest.mark.parametrize("panel", ["events", "guide"])
def test_nothing_holds_a_session_of_20000_events_up_while_text_streams_into_it(
    context: BrowserContext, long: str, panel: str, measure: Measure
) -> None:
    page = opened(context, long.replace("panel=events", f"panel={panel}"))
    expect(page.get_by_role("tabpanel").locator("> *")).to_be_visible(timeout=LIMIT_MS)

    def stream() -> float:
        page.evaluate("seen.long.length = 0")
        page.evaluate(TURN)
        say(page, "go on")
        page.evaluate("turn")
        return max(page.evaluate("seen.long"), default=0.0)

    figure = best(context, stream, TASK_MS)
    measure(f"{EVENTS:,} events", longest_task_ms=figure)
    assert chat(page).get_by_text("part 290").count() > 0
    page.close()
    assert figure <= TASK_MS


def test_50_kb_of_markdown_take_a_second_of_the_page_and_never_hold_it_up(
    context: BrowserContext, tmp_path: Path, measure: Measure
) -> None:
    with running("tests.e2e.console_apps:book", tmp_path) as server:
        page = opened(context, server.link)
        reader = Reader(server, session_of(page))
        tools = context.new_cdp_session(page)
        tools.send("Performance.enable")

        def busy() -> float:
            """Milliseconds of the main thread so far, without those that looking at it takes."""
            told = tools.send("Performance.getMetrics")["metrics"]
            metrics = {one["name"]: float(one["value"]) for one in told}
            return (metrics["TaskDuration"] - metrics["DevToolsCommandDuration"]) * 1000

        def stream() -> float:
            page.evaluate("seen.long.length = 0")
            before = busy()
            say(page, "go on")
            run(reader.read(kind("agent.end")))  # looking at the page would cost what is measured
            page.evaluate("new Promise((drawn) => setTimeout(() => requestAnimationFrame(drawn), 500))")
            took_ms, longest_ms = busy() - before, max(page.evaluate("seen.long"), default=0.0)
            return took_ms if longest_ms <= TASK_MS * slowness(context) else math.inf

        figure = best(context, stream, STREAM_MS)
        measure("50 KB", main_thread_ms=figure)
        assert "part 290" in chat(page).inner_text()
        assert figure <= STREAM_MS
