"""The screens of the console: how each is reached, what it shows, which pictures of it are in the docs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.e2e.axe import carry
from tests.e2e.console import LIMIT_MS, WIDE, live
from tests.e2e.harness import Server
from tests.e2e.line import line_to
from tests.e2e.screen_talks import Talk

NOBODY = "sess_0000000000000000000000000000dead"
REFUSED = "Failed to load resource"  # what the browser says by itself of an answer that is an error


class Mode(NamedTuple):
    """How a screen is looked at."""

    name: str
    width: int
    height: int
    scheme: str


LIGHT = Mode("light", WIDE["width"], WIDE["height"], "light")
DARK = LIGHT._replace(name="dark", scheme="dark")
PHONE = Mode("phone", 360, 740, "light")
MODES = (LIGHT, DARK, PHONE)


@dataclass
class Stage:
    """A browser that is signed in, the sessions to look at, and what the pages have said was wrong."""

    server: Server
    browser: Browser
    talks: dict[str, Talk]
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.context = self.new_context()
        self.page(self.server.link.removeprefix(self.server.url)).close()

    def new_context(self) -> BrowserContext:
        """A browser of somebody who is not signed in."""
        context = self.browser.new_context(reduced_motion="reduce")
        context.set_default_timeout(LIMIT_MS)
        context.on("weberror", lambda error: self.errors.append(str(error.error)))
        context.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        carry(context)
        return context

    def page(self, path: str, url: str = "") -> Page:
        page = self.context.new_page()
        page.set_viewport_size({"width": LIGHT.width, "height": LIGHT.height})
        page.goto((url or self.server.url) + path)
        return page

    def at(self, talk: str, panel: str, seq: int | None = None) -> Page:
        """A session with a panel, when it follows."""
        place = "" if seq is None else f"&seq={seq}"
        page = self.page(f"/?session={self.talks[talk].session}&panel={panel}{place}")
        live(page)
        return page


class Screen(NamedTuple):
    """A screen, which on a phone has one column at a time, and what it shows."""

    name: str
    open: Callable[[Stage], Page]
    shows: tuple[str, ...]
    pictured: Mode = LIGHT
    columns: tuple[str, ...] = ("Chat", "Inspect")
    small: str = ""  # the column that is also pictured as on a phone
    noise: str = ""  # what the browser says by itself when this happens

    @property
    def pictures(self) -> dict[str, tuple[Mode, str]]:
        """The files of its pictures, each with how it is looked at, and which column."""
        small = {f"{self.name}-phone.png": (PHONE, self.small)} if self.small else {}
        return {f"{self.name}.png": (self.pictured, ""), **small}


def sign_in(stage: Stage) -> Page:
    page = stage.new_context().new_page()
    page.goto(stage.server.url)
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    return page


def home(stage: Stage) -> Page:
    return stage.page("/")


def start(stage: Stage) -> Page:
    return stage.at("fresh", "guide")


def briefing(stage: Stage) -> Page:
    return stage.at("briefing", "events", stage.talks["briefing"].seq("tool.result", "strongest"))


def conversation(stage: Stage) -> Page:
    """From its beginning, with what was thought."""
    page = stage.at("everything", "timeline")
    page.get_by_label("Turn", exact=True).select_option("all")
    page.get_by_role("log").locator("summary", has_text="Thinking").click()
    page.get_by_role("log").evaluate("(log) => log.scrollTo(0, 0)")
    return page


def running(stage: Stage) -> Page:
    return stage.at("everything", "usage")


def question(stage: Stage) -> Page:
    return stage.at("question", "agents")


def fields(stage: Stage) -> Page:
    """What is entered is not right, and not enough."""
    page = stage.at("fields", "timeline")
    page.get_by_label("Age", exact=True).fill("some")
    page.locator("tl-ask").get_by_role("button", name="Send").click()
    return page


def approval(stage: Stage) -> Page:
    return stage.at("team", "agents")


def share(stage: Stage) -> Page:
    page = stage.at("question", "agents")
    page.get_by_role("button", name="Share").click()
    page.get_by_role("button", name="Make a link").click()
    return page


def form(stage: Stage) -> Page:
    page = stage.at("form", "events", stage.talks["form"].seq("tool.result", "VALIDATION_ERROR"))
    page.get_by_label("Type", exact=True).select_option("tool.")
    return page


def table(stage: Stage) -> Page:
    page = stage.at("table", "documents")
    page.get_by_text("Messages").click()
    page.get_by_role("button", name="Saved: 4 entries.").click()
    return page


def loan(stage: Stage) -> Page:
    return stage.at("loan", "state", stage.talks["loan"].seq("broker.record_financial_facts"))


def ends(stage: Stage) -> Page:
    return stage.at("ends", "usage")


def reconnecting(stage: Stage) -> Page:
    """The line is gone, and what was there is still there."""
    with line_to(stage.server.port) as line:
        page = stage.page(f"/?session={stage.talks['briefing'].session}&panel=guide", line.url)
        live(page)
        for text in ("Please confirm", "What to break"):  # parts of the page that come a bit later
            expect(page.get_by_text(text)).to_be_visible()
        page.evaluate("() => Promise.all([...document.images].map((image) => image.decode()))")
    return page


def refused(stage: Stage) -> Page:
    return stage.page(f"/?session={NOBODY}")


def away(stage: Stage) -> Page:
    page = stage.context.new_page()
    page.route("**/api/**", lambda route: route.abort())
    page.goto(stage.server.url)
    return page


SCREENS = (
    Screen("sign-in", sign_in, ("does not know this token",), columns=(), noise=REFUSED),
    Screen("home", home, ("What would you like to see?",), columns=("Sessions", "Start"), small="Start"),
    Screen(
        "start", start, ("Can we fly from Oslo?", "What to break"), columns=("Chat", "Inspect", "Sessions")
    ),
    Screen("briefing", briefing, ("Please confirm", "Show in chat"), small="Chat"),
    Screen("conversation", conversation, ("On Sunday",), DARK),
    Screen("running", running, ("Queued", "3 of 8 lines have answered", "Time in tools")),
    Screen("question", question, ("Please confirm", "Scout")),
    Screen("fields", fields, ("The tool needs input", "Age must be a number"), DARK),
    Screen("approval", approval, ("May this run?", "Offer work"), DARK, small="Inspect"),
    Screen("share", share, ("Role of the guest", "It works once"), columns=()),
    Screen("form", form, ("Original view", "Weight (lbs) must be > 0", "This call")),
    Screen("table", table, ("Add row", "Export")),
    Screen("loan", loan, ("I do not agree", "Changed by this event")),
    Screen("ends", ends, ("has no more words", "was stopped", "2, 2 failed")),
    Screen("reconnecting", reconnecting, ("Reconnecting",), DARK, noise=REFUSED),
    Screen("refused", refused, ("There is no such session.",), columns=(), noise=REFUSED),
    Screen("away", away, ("The server does not answer",), columns=(), noise=REFUSED),
)


@contextmanager
def opened(stage: Stage, screen: Screen) -> Iterator[Page]:
    """A screen, when it shows what it has to."""
    page = screen.open(stage)
    try:
        for text in screen.shows:
            expect(page.get_by_text(text).first).to_be_visible(timeout=LIMIT_MS)
        yield page
    finally:
        page.close()
