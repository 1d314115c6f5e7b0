"""Visits to consoles: everything is opened, looked at and counted, one layer after the other in one browser.

What leaves is counted where it arrives and where it starts: at a listener that the evil names lead to, in the
requests that Playwright sees, and in the browser's own log of its network, which knows of names that were
only looked up. A browser that looks nothing up ahead would hide that, so it is told to; and both the page and
the listener are on loopback, or else Chromium would not let one ask the other.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import BrowserContext, Dialog, Page, ViewportSize, sync_playwright

from tests.e2e.browser import FLAGS
from tests.e2e.console import LIMIT_MS, WIDE, say
from tests.e2e.harness import Server
from tests.security.console_layers import Layer
from tests.security.console_listener import Listener
from tests.security.console_payloads import CANARY, DOMAIN, EVERY, Attack, Hit, hits, payloads_of
from tests.security.console_server import PLAIN

PROBE = Path(__file__).parent / "console_probe.js"
AHEAD = {"net": {"network_prediction_options": 0}}  # look up and connect ahead, as browsers do by default
PATIENCE = 6000  # looks, 20 ms apart, at what has come: two minutes, as for every other guard
POLICY = ("Content Security Policy", "TrustedHTML", "Trusted Type")


@dataclass
class Seen:
    """What happened during a visit. A hit is a payload and the way it came by."""

    ran: set[Hit] = field(default_factory=set)
    loaded: set[Hit] = field(default_factory=set)
    shown: set[Hit] = field(default_factory=set)
    looked_up: set[str] = field(default_factory=set)
    stood: list[tuple[str, str]] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)
    popups: list[str] = field(default_factory=list)
    connections: int = 0
    texts: int = 0
    time_ms: tuple[float, float] = (0, 0)

    @property
    def standing(self) -> set[str]:
        """The payloads of what must not be in a page."""
        return {payload for _, markup in self.stood for payload, _ in hits(markup)}


def rules(port: int) -> str:
    """Evil names lead to the listener, each under a name that the log of the network tells from others."""
    hosts = [attack.host for attack in (*EVERY, CANARY)]
    evil = [f"MAP {host} {host.removesuffix(DOMAIN)}localhost:{port}" for host in hosts]
    return ", ".join([*evil, "MAP * ~NOTFOUND", "EXCLUDE 127.0.0.1", "EXCLUDE localhost"])


@contextmanager
def evil_browser(chromium: str, folder: Path, port: int) -> Iterator[BrowserContext]:
    """A browser that writes down what its network does, in `net.json` once it is closed."""
    preferences = folder / "profile" / "Default" / "Preferences"
    preferences.parent.mkdir(parents=True)
    preferences.write_text(json.dumps(AHEAD))
    flags = [
        flag for flag in FLAGS if not flag.startswith(("--host-resolver-rules", "--disable-background-n"))
    ]
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            folder / "profile",
            executable_path=chromium,
            args=[*flags, f"--host-resolver-rules={rules(port)}", f"--log-net-log={folder / 'net.json'}"],
            ignore_default_args=["--disable-background-networking"],
            viewport=ViewportSize(width=WIDE["width"], height=WIDE["height"]),
            permissions=["clipboard-read", "clipboard-write"],
        )
        context.set_default_timeout(LIMIT_MS)
        try:
            yield context
        finally:
            context.close()


class Visitor:
    """Visits layers and writes down what it sees."""

    def __init__(self, context: BrowserContext, server: Server, listener: Listener) -> None:
        self._context, self._server, self._listener = context, server, listener
        self._page: Page | None = None
        self.seen: dict[str, Seen] = {}
        self._now = Seen()
        context.expose_function("pwned", self._ran)
        context.add_init_script(path=PROBE)
        context.on("request", lambda request: self._asked(request.url))
        context.on("page", self._opened)
        answer = context.request.post(f"{server.url}/api/sign-in", headers=server.headers)
        assert answer.ok

    def _ran(self, mark: str = "") -> None:
        payload, _, way = mark.partition("/")
        self._now.ran.add((payload, way))

    def _asked(self, url: str) -> None:
        if not url.startswith((self._server.url, "data:", "blob:", "about:", CANARY.by(""))):
            self._now.foreign.append(url)

    def _opened(self, page: Page) -> None:
        now = self._now
        if self._page is not None:
            now.popups.append(page.url)
            page.close()
            return
        page.on("dialog", self._asked_person)
        page.on("pageerror", lambda error: now.errors.append(str(error)))
        page.on("console", lambda said: now.refused.append(said.text) if _is_policy(said.text) else None)

    def _asked_person(self, dialog: Dialog) -> None:
        self._now.dialogs.append(dialog.message)
        dialog.dismiss()

    def visit(self, layer: Layer, plan: Callable[["Visit"], None]) -> None:
        """Visit the console of a layer."""
        self._now = self.seen[layer.name] = Seen()
        self._listener.forget()
        began = time.time()
        self._page = None
        self._page = self._context.new_page()
        plan(Visit(layer, f"{self._server.url}/{layer.name}/", self._page, self._now, self._listener))
        self._load_canary(self._page)
        self._page.close()
        self._now.time_ms = (began * 1000, time.time() * 1000)
        self._now.loaded = self._listener.hits - {CANARY_HIT}
        self._now.connections = self._listener.connections - 1

    def show(self, name: str, markup: str) -> None:
        """Put markup into a page without any defence."""
        self.visit(Layer(name, frozenset()), lambda visit: visit.insert(f"{self._server.url}{PLAIN}", markup))

    def _load_canary(self, page: Page) -> None:
        """Load something from the evil host: whatever was asked for before has come when this has."""
        page.goto(f"{self._server.url}{PLAIN}")
        page.evaluate("url => { new Image().src = url; }", CANARY.by(CANARY_HIT[1]))
        self._listener.wait_for(CANARY_HIT, LIMIT_MS / 1000)


CANARY_HIT = (CANARY.id, "canary")


def _is_policy(words: str) -> bool:
    return any(name in words for name in POLICY)


@dataclass
class Visit:
    """A console that is being visited."""

    layer: Layer
    url: str
    page: Page
    seen: Seen
    listener: Listener

    def home(self, problems: Sequence[str]) -> None:
        """What there is to start, all sessions with their titles, and problems that the page is told of."""
        self.page.goto(self.url)
        self._take("problems => probe.home(problems)", problems)

    def open(self, session: str) -> None:
        """Open a session of the log."""
        self.page.goto(f"{self.url}?session={session}")
        self.page.evaluate("probe.live()")

    def chat(self) -> None:
        """All that was said, with all that can be opened open."""
        self._take("probe.chat()")

    def panels(self, deep: bool = True) -> None:
        """All panels; `deep` is with every choice that they offer."""
        self._take(f"probe.panels({json.dumps(deep)})")

    def broken(self) -> None:
        """What is left of a page that may be broken."""
        self._take("probe.broken()")

    def talk(self) -> None:
        """Let the model say everything, and look at every frame of it."""
        self.page.evaluate("probe.watch()")
        say(self.page, "Go on")
        self._take("probe.watched()")

    def insert(self, url: str, markup: str) -> None:
        """Put markup into a page, as it is."""
        self.page.goto(url)
        self._take("markup => probe.insert(markup)", markup)

    def export(self) -> str:
        """The session as Markdown, as a person gets it."""
        self.page.locator("#tab-documents").click()
        with self.page.expect_download() as download:
            self.page.get_by_role("button", name="Markdown").click()
        return download.value.path().read_text()

    def until(self, attacks: Iterable[Attack]) -> None:
        """Wait for what those that get through are known to do; whether it came is for a test to say."""
        through = [attack for attack in attacks if attack.id in self.layer.lets]
        runs = {attack.id for attack in through if "run" in attack.seen}
        loads = {attack.id for attack in through if "load" in attack.seen}
        for _ in range(PATIENCE):
            if runs <= payloads_of(self.seen.ran) and loads <= payloads_of(self.listener.hits):
                return
            self.page.wait_for_timeout(20)  # the page works while this test waits

    def _take(self, script: str, given: Sequence[str] | str = ()) -> None:
        found = self.page.evaluate(script, given)
        self.seen.stood += [(rule, markup) for rule, markup in found["stood"]]
        self.seen.shown |= hits(found["shown"])
        self.seen.texts = max(self.seen.texts, found["texts"])


def looked_up(log: Path, visits: Iterable[Seen]) -> None:
    """Add to visits whose names the network was asked for in their time, as the browser's log of it says."""
    told = json.loads(log.read_text())
    kind = told["constants"]["logEventTypes"]["HOST_RESOLVER_MANAGER_REQUEST"]
    offset_ms = told["constants"]["timeTickOffset"]
    asked = [
        (int(event["time"]) + offset_ms, json.dumps(event))
        for event in told["events"]
        if event["type"] == kind
    ]
    for seen in visits:
        first, last = seen.time_ms
        hosts = " ".join(what for time_ms, what in asked if first <= time_ms <= last)
        seen.looked_up = {*re.findall(r"([a-z0-9-]+)\.localhost", hosts)} - {CANARY.id}
