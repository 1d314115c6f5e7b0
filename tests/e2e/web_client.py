"""Pages in real Chromium that read with the client library, from the server's origin and under its CSP."""

import asyncio
import json
import re
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlencode

from playwright.sync_api import BrowserContext, Page, Route, expect

from tests.e2e.harness import ROOT, Server
from tests.e2e.streams import Wish, log_lines, metric, place, until
from tests.support.limits import HANG_MS
from turnlog.server.console_files import CONSOLE_HEADERS

FOLDERS = (ROOT / "web/tests/page", ROOT / "web/client/dist")
LIMIT_MS = HANG_MS
T = TypeVar("T")
KINDS = {".html": "text/html", ".js": "text/javascript"}


class Evaluates(Protocol):
    """A page in which a function can run: of Playwright, or of Firefox."""

    def evaluate(self, script: str, argument: Any, /) -> Any: ...


def find_page_file(path: str) -> Path:
    """Return the file of the page, or of the client, at a path below `/reader/`."""
    name = path.partition("/reader/")[2] or "index.html"
    return next(folder / name for folder in FOLDERS if (folder / name).is_file())


def fulfil(route: Route) -> None:
    """A file, with the headers of the server's own page."""
    path = find_page_file(route.request.url.partition("?")[0])
    route.fulfill(body=path.read_text(), content_type=KINDS[path.suffix], headers=CONSOLE_HEADERS)


def signed_in(context: BrowserContext, server: Server, link: str = "") -> None:
    """Let every page of this browser read as the owner, or as a link says."""
    page = context.new_page()
    page.goto(link or server.link)
    if link:
        page.get_by_label("Your name").fill("Sarah")
        page.get_by_role("button", name="Join").click()
        page.wait_for_url(re.compile("session=|/talk/"))
    page.close()
    context.route("**/reader/**", fulfil)


def reading(context: BrowserContext, url: str, *sessions: str, **options: Any) -> Page:
    """A page that follows some sessions."""
    page = context.new_page()
    query = urlencode({"sessions": ",".join(sessions), "options": json.dumps(options)})
    page.goto(f"{url}/reader/?{query}")
    return page


def check(page: Evaluates, server: Server, session: str) -> None:
    """The page was told everything once and in order."""
    told = page.evaluate("session => reader.seen[session]", session)
    expected = Wish().expected(log_lines(server, session))
    Wish().check(alike([(place(cursor), data) for cursor, data in told]), alike(expected))


def alike(told: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Data as every language writes it."""
    return [(at, json.dumps(json.loads(data), sort_keys=True)) for at, data in told]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Await something where Playwright's own loop is running."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def streams(server: Server, count: int) -> None:
    """Wait until so many streams are open."""
    run(until(lambda: metric(server, "turnlog_subscribers") == count))


def all_have(pages: list[Page], seq: int) -> None:
    """Wait until this was the last event of all of them."""
    for page in pages:
        expect(page.locator("#last")).to_have_text(str(seq), timeout=LIMIT_MS)
