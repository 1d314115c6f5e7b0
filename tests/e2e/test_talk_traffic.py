"""What the page of a guest receives and shows has nothing of how the application works."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Browser, Page, expect

from tests.e2e.guest_apps import SECRET
from tests.e2e.guests import guest_context, join, log, read_events, ready, write
from tests.e2e.harness import running
from tests.e2e.line import line_to

# Types that a log has and that no guest gets, as they are in the JSON of an event.
INTERNAL_TYPES = ("agent.usage", "tool.progress", "assistant.thinking", "hotel.remark", "process.start")
# All that the page asks the server for, beside its own files.
REQUESTS = {"/api/me", "/api/sessions", "/api/events"}
ORDERS = {
    "plan it": "All is arranged.",
    "form please": "Please fill this in.",
    "tell me": "only the sea, and a bird.",
    "fail now": "Something went wrong.",
}
ALL_TEXT = """() => {
  const read = (root) => [...root.querySelectorAll("*")]
    .map((element) => (element.shadowRoot ? read(element.shadowRoot) : "")).join("") + root.innerHTML;
  return read(document.documentElement);
}"""


class Visit(NamedTuple):
    """What a guest's browser received and shows, the addresses that it asked for, and its session."""

    received: str
    page: str
    addresses: list[str]
    session: str
    log: str


@contextmanager
def visit(app: str, browser: Browser, folder: Path) -> Iterator[Visit]:
    """Let a guest use everything that has inner work, reload, and read all of it."""
    with running(app, folder) as server, line_to(server.port) as line, guest_context(browser) as context:
        addresses: list[str] = []
        context.on("request", lambda request: addresses.append(request.url))
        session = server.session()
        page = join(context, server, session, url=line.url)
        for order, answer in ORDERS.items():
            write(page, order)
            expect(log(page)).to_contain_text(answer)
        page.reload()
        ready(page)
        expect(log(page)).to_contain_text(ORDERS["plan it"])
        shown = read_page(page)
        events = "\n".join(str(event) for event in read_events(server, session))
        yield Visit(line.received.decode(errors="replace"), shown, addresses, session, events)


def read_page(page: Page) -> str:
    text: str = page.evaluate(ALL_TEXT)
    return text


def find_internals(text: str) -> set[str]:
    found = {name for name in INTERNAL_TYPES if f'"type":"{name}"' in text}
    return found | ({SECRET} if SECRET in text else set())


def test_guest_receives_and_sees_no_internal_event(chrome: Browser, tmp_path: Path) -> None:
    with visit("tests.e2e.guest_apps:app", chrome, tmp_path) as seen:
        assert SECRET in seen.log
        assert "All is arranged." in seen.received
        assert find_internals(seen.received) == set()
        assert SECRET not in seen.page


def test_control_a_role_that_sees_everything_receives_internal_events(
    chrome: Browser, tmp_path: Path
) -> None:
    with visit("tests.e2e.guest_apps:shown", chrome, tmp_path) as seen:
        assert {SECRET, "agent.usage", "tool.progress"} <= find_internals(seen.received)
        # The page shows the conversation, whatever its reader may see.
        assert SECRET not in seen.page


def test_page_asks_for_its_own_session_and_for_nothing_else(chrome: Browser, tmp_path: Path) -> None:
    with visit("tests.e2e.guest_apps:app", chrome, tmp_path) as seen:
        asked = [urlsplit(address) for address in seen.addresses if "/api/" in address]
        assert {url.path for url in asked} <= REQUESTS
        sessions = {name for url in asked for name in parse_qs(url.query).get("session", [])}
        assert sessions == {seen.session}
        files = {urlsplit(address).path for address in seen.addresses if "/api/" not in address}
        assert not any("console" in path for path in files)
