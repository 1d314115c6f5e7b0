"""Tabs that come, go, reload and freeze at random moments while agents talk: none misses anything."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.e2e.browser import browsing
from tests.e2e.harness import Server, running
from tests.e2e.streams import add_notes, until
from tests.e2e.web_client import LIMIT_MS, all_have, check, reading, run, signed_in, streams

STEPS = 30
QUICK = {"retryMs": 50, "maxRetryMs": 200, "heartbeatMs": 400}


@pytest.fixture(scope="module")
def chrome(chromium: str) -> Iterator[Browser]:
    """A browser whose tabs do not share a process: one that is frozen would hold the others."""
    with browsing(chromium, renderers=True) as browser:
        yield browser


@pytest.fixture
def context(chrome: Browser) -> Iterator[BrowserContext]:
    context = chrome.new_context()
    context.set_default_timeout(LIMIT_MS)
    yield context
    context.close()


class Frozen:
    """A page that is held in its next step, as browsers hold tabs in the background, until it may go on."""

    def __init__(self, page: Page) -> None:
        self._debugger = page.context.new_cdp_session(page)
        self._debugger.send("Debugger.enable")
        self._debugger.send("Debugger.pause")

    def thaw(self) -> None:
        self._debugger.send("Debugger.disable")
        self._debugger.detach()


def test_who_follows_a_tab_that_is_frozen_goes_on_alone(context: BrowserContext, tmp_path: Path) -> None:
    with running("tests.e2e.stream_apps:duo", tmp_path) as server:
        signed_in(context, server)
        session = server.session()
        pages = list[Page]()
        for _ in range(3):  # the first one leads
            pages.append(reading(context, server.url, session, timing=QUICK))
            expect(pages[-1].locator("#state")).to_have_text("live", timeout=LIMIT_MS)
        streams(server, 1)
        frozen = Frozen(pages[0])
        # the leader is silent, so these can only come over streams of their own
        all_have(pages[1:], add_notes(server, session, 5, 100))
        frozen.thaw()
        all_have(pages, add_notes(server, session, 5, 100))
        for page in pages:
            check(page, server, session)


class Walk:
    """A browser whose tabs do something at random."""

    def __init__(self, context: BrowserContext, server: Server, seed: int) -> None:
        self.context = context
        self.server = server
        self.random = random.Random(seed)
        self.sessions = [server.session(), server.session()]
        self.tabs: list[tuple[Page, list[str]]] = []
        self.frozen: Frozen | None = None

    def open(self) -> None:
        wanted = self.random.sample(self.sessions, self.random.choice([1, 1, 2]))
        page = reading(self.context, self.server.url, *wanted, timing=QUICK)
        self.tabs.append((page, wanted))

    def close(self) -> None:
        self.thaw()
        if self.tabs:
            self.tabs.pop(self.random.randrange(len(self.tabs)))[0].close()

    def reload(self) -> None:
        self.thaw()
        if self.tabs:
            self.random.choice(self.tabs)[0].reload()

    def freeze(self) -> None:
        if self.tabs and self.frozen is None:
            self.frozen = Frozen(self.tabs[0][0])

    def thaw(self) -> None:
        if self.frozen is not None:
            self.frozen.thaw()
            self.frozen = None

    def talk(self) -> None:
        session = self.random.choice(self.sessions)
        self.server.send(session, "Go and look")

    def note(self) -> None:
        add_notes(self.server, self.random.choice(self.sessions), self.random.randint(1, 40), 100)

    def step(self) -> None:
        full = len(self.tabs) >= 7
        steps = [self.close, self.reload, self.talk, self.talk, self.note, self.note, self.freeze, self.thaw]
        self.random.choice(steps if full else [*steps, self.open, self.open])()

    def rests(self) -> bool:
        """Whether every turn is over."""
        listed = self.server.get("/api/sessions")[1]["sessions"]
        return all(session["state"] == "idle" for session in listed)

    def settle(self) -> None:
        """Let everything be said, then look at every tab."""
        self.thaw()
        run(until(self.rests))
        ends = {session: add_notes(self.server, session, 1, 100) for session in self.sessions}
        for page, wanted in self.tabs:
            for session in wanted:
                expect(page.locator(f"#{session}")).to_have_text(str(ends[session]), timeout=LIMIT_MS)
                check(page, self.server, session)


def walk_at_random(context: BrowserContext, folder: Path, seed: int) -> None:
    """Let tabs come, go, reload and freeze, and check what each has."""
    with running("tests.e2e.stream_apps:slow_duo", folder) as server:
        signed_in(context, server)
        walk = Walk(context, server, seed)
        walk.open()
        for _ in range(STEPS):
            walk.step()
        walk.settle()


def test_tabs_at_random_miss_nothing(context: BrowserContext, tmp_path: Path) -> None:
    walk_at_random(context, tmp_path, 1)
