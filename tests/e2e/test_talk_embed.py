"""`<turnlog-chat>` in a page of another origin: a token, the styles of that page, a theme, a language."""

import hashlib
import http.server
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.e2e.axe import violations
from tests.e2e.broker_desk import person, token, tokens_file
from tests.e2e.browser import watched
from tests.e2e.guests import box, guest_context, log, ready, write
from tests.e2e.harness import Server, running
from turnlog_examples.assistant.chart import bars

PAGE = """<!doctype html>
<html lang="en">
<title>A shop</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
  * {{ color: rgb(255, 0, 0); letter-spacing: 9px; }}
  button, textarea, .message {{ display: none !important; }}
  turnlog-chat {{ height: 40rem; {theme} }}
</style>
<script type="module" src="{server}/turnlog-chat.js"></script>
<main><h1>A shop</h1>
<turnlog-chat server="{server}" session="{session}" {more}></turnlog-chat>
</main>
</html>"""


class Shop:
    """A web server of another origin with one page. It allows every request and keeps its headers."""

    def __init__(self) -> None:
        shop = self
        self.html = ""
        self.requests: list[dict[str, str]] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                shop.requests.append({name.lower(): text for name, text in self.headers.items()})
                self.send_response(200)
                self.send_header("content-type", "text/html")
                self.send_header("access-control-allow-origin", "*")
                self.send_header("access-control-allow-headers", "authorization, turnlog-principal")
                self.end_headers()
                self.wfile.write(shop.html.encode())

            def do_OPTIONS(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None: ...

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.close()


@pytest.fixture
def thief() -> Iterator[Shop]:
    thief = Shop()
    yield thief
    thief.close()


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Server]:
    with running(
        "tests.e2e.guest_apps:app", folder, options=["--tokens", str(tokens_file(folder)), *options]
    ) as server:
        yield server


@pytest.fixture(scope="module")
def server(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("log"), "--allow-origin", shop.url) as server:
        yield server


@pytest.fixture
def guest(chrome: Browser) -> Iterator[BrowserContext]:
    with guest_context(chrome) as context:
        yield context


def invite(server: Server) -> str:
    """A session of bob's with ada as a guest."""
    bob, ada = (person(server, "", "", token=token(name)) for name in ("bob", "ada"))
    session = str(bob.post("/api/sessions", {"title": "Your order"})[1]["session_id"])
    assert bob.post("/api/members", {"session": session, "principal": "ada", "roles": ["guest"]})[0] == 202
    [invite] = [each for each in ada.get("/api/invites")[1]["invites"] if each["session_id"] == session]
    assert ada.post("/api/invites/accept", {"session": session, "invite": invite["invite"]})[0] == 202
    return session


def open_shop(context: BrowserContext, shop: Shop, server: Server, more: str = "", theme: str = "") -> Page:
    more = more or f'token="{token("ada")}"'
    shop.html = PAGE.format(server=server.url, session=invite(server), more=more, theme=theme)
    page = context.new_page()
    page.goto(shop.url)
    return page


def colour(page: Page, selector: str, name: str = "color") -> str:
    style: str = page.locator(selector).first.evaluate(
        "(element, name) => getComputedStyle(element)[name]", name
    )
    return style


def test_element_in_a_page_of_another_origin_talks_with_a_token(
    guest: BrowserContext, shop: Shop, server: Server, tmp_path: Path
) -> None:
    page = open_shop(guest, shop, server)
    errors = watched(page)
    ready(page)
    expect(page.get_by_role("heading", name="Your order")).to_be_visible()
    write(page, "hello")
    expect(log(page)).to_contain_text("I heard: hello")
    picture = tmp_path / "chart.png"
    picture.write_bytes(bars([2, 3, 9], 6))
    page.locator("tl-attachments input").set_input_files(picture)
    expect(page.locator("tl-attachments li")).to_have_attribute("data-state", "ready")
    write(page, "a chart")
    image = log(page).get_by_role("img", name="chart.png")
    expect(image).to_be_visible()
    assert str(image.get_attribute("src")).startswith(f"blob:{shop.url}/")
    with page.expect_download() as download:
        log(page).get_by_role("link", name="Download chart.png").click()
    assert Path(download.value.path()).read_bytes() == picture.read_bytes()
    session = page.locator("turnlog-chat").get_attribute("session")
    digest = hashlib.sha256(picture.read_bytes()).hexdigest()
    write(page, f"![the chart](api/blobs/{session}/{digest})")
    expect(page.locator("tl-talk-text img")).to_have_attribute("src", re.compile(f"^blob:{shop.url}/"))
    assert errors == []
    assert violations(page) == []


def test_control_a_page_whose_origin_is_not_allowed_gets_no_element(
    guest: BrowserContext, shop: Shop, tmp_path: Path
) -> None:
    with serving(tmp_path) as server:
        page = open_shop(guest, shop, server)
        errors = watched(page)
        page.reload()
        page.wait_for_load_state("networkidle")
        assert page.evaluate("customElements.get('turnlog-chat') === undefined")
        assert any("CORS" in error or "Failed to load" in error for error in errors)


def test_file_that_cannot_be_loaded_is_told_and_loaded_later(
    guest: BrowserContext, shop: Shop, server: Server
) -> None:
    page = open_shop(guest, shop, server)
    ready(page)
    page.locator("tl-attachments input").set_input_files(
        {"name": "list.txt", "mimeType": "text/plain", "buffer": b"milk"}
    )
    expect(page.locator("tl-attachments li")).to_have_attribute("data-state", "ready")
    write(page, "a list")
    link = log(page).get_by_role("link", name="Download list.txt")
    page.route("**/api/blobs/**", lambda route: route.abort())
    link.click()
    alert = log(page).get_by_role("alert")
    expect(alert).to_have_text("This file could not be loaded. Please try again.")
    page.unroute("**/api/blobs/**")
    with page.expect_download() as download:
        link.click()
    assert Path(download.value.path()).read_bytes() == b"milk"
    expect(alert).to_have_count(0)


def file_part(kind: str, src: str, title: str, media_type: str) -> dict[str, str]:
    return {"type": kind, "src": src, "title": title, "media_type": media_type}


def test_file_on_another_server_is_a_link_and_gets_no_token(
    guest: BrowserContext, shop: Shop, thief: Shop, server: Server
) -> None:
    page = open_shop(guest, shop, server)
    ready(page)
    session = page.locator("turnlog-chat").get_attribute("session")
    script = "javascript:document.title='run'"
    content = [
        {"type": "text", "text": "Look"},
        file_part("image", f"{thief.url}/api/blobs/a.png", "a.png", "image/png"),
        file_part("document", f"//127.0.0.1:{thief.url.rpartition(':')[2]}/b", "b.pdf", "application/pdf"),
        file_part("document", script, "c.pdf", "application/pdf"),
    ]
    event = {"type": "ui.message", "payload": {"text": "Look", "content": content}}
    bob = person(server, "", "", token=token("bob"))
    assert bob.post("/api/events", {"session": session, "events": [event]})[0] == 202
    expect(log(page)).to_contain_text("I heard: Look")
    link = log(page).get_by_role("link", name="a.png")
    expect(link).to_have_attribute("href", f"{thief.url}/api/blobs/a.png")
    expect(link).to_contain_text(thief.url.removeprefix("http://"))
    expect(log(page).locator("tl-talk-file").nth(2)).to_have_text("c.pdf")
    expect(log(page).locator("tl-talk-file a")).to_have_count(1)
    assert thief.requests == []


def test_control_another_server_gets_the_token_if_a_page_sends_it(
    guest: BrowserContext, shop: Shop, thief: Shop, server: Server
) -> None:
    page = open_shop(guest, shop, server)
    ready(page)
    headers = {"authorization": f"Bearer {token('ada')}"}
    page.evaluate("([url, headers]) => fetch(url, { headers })", [thief.url, headers])
    assert thief.requests[-1]["authorization"] == headers["authorization"]


def test_styles_of_the_page_stay_outside_and_theme_properties_reach_inside(
    guest: BrowserContext, shop: Shop, server: Server
) -> None:
    theme = "--turnlog-accent: rgb(0, 90, 60); --turnlog-text: rgb(10, 20, 30); --turnlog-radius: 0px"
    page = open_shop(guest, shop, server, theme=theme)
    ready(page)
    write(page, "hello")
    expect(log(page)).to_contain_text("I heard: hello")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    assert colour(page, "tl-talk-text .prose") == "rgb(10, 20, 30)"
    assert colour(page, "button.strong", "backgroundColor") == "rgb(0, 90, 60)"
    assert colour(page, ".bubble", "letterSpacing") == "normal"
    assert colour(page, ".bubble", "borderTopLeftRadius") == "0px"


def test_theme_and_language_are_attributes(guest: BrowserContext, shop: Shop, server: Server) -> None:
    more = f'token="{token("ada")}" theme="dark" lang="de-AT"'
    page = open_shop(guest, shop, server, more)
    ready(page)
    expect(box(page)).to_have_attribute("placeholder", "Nachricht schreiben")
    dark = colour(page, ".chat", "backgroundColor")
    page.locator("turnlog-chat").evaluate("(chat) => chat.setAttribute('theme', 'light')")
    assert colour(page, ".chat", "backgroundColor") != dark


def test_token_of_a_function_is_asked_for_when_the_element_starts(
    guest: BrowserContext, shop: Shop, server: Server
) -> None:
    page = open_shop(guest, shop, server, more="hidden")
    page.wait_for_function("customElements.get('turnlog-chat') !== undefined")
    page.locator("turnlog-chat").evaluate(
        """async (chat, token) => {
          chat.token = async () => token;
          chat.hidden = false;
        }""",
        token("ada"),
    )
    ready(page)
    write(page, "hello")
    expect(log(page)).to_contain_text("I heard: hello")


def test_element_that_is_moved_and_removed_closes_its_connection(
    guest: BrowserContext, shop: Shop, server: Server
) -> None:
    page = open_shop(guest, shop, server)
    ready(page)
    page.locator("turnlog-chat").evaluate("(chat) => document.querySelector('main').prepend(chat)")
    ready(page)
    write(page, "hello")
    expect(log(page)).to_contain_text("I heard: hello")
    with page.expect_event("requestfailed", lambda request: "/api/events?" in request.url):
        page.locator("turnlog-chat").evaluate("(chat) => chat.remove()")
