"""The hooks in a browser: strict mode, a page that changes its session, and HTML from a server."""

from pathlib import Path

from playwright.sync_api import BrowserContext, expect

from tests.e2e.harness import Server
from tests.e2e.react.pages import render_example
from tests.e2e.web_client import streams
from tests.foreign_clients.pages import PAGE, Visit


def test_a_page_in_strict_mode_changes_its_session(
    context: BrowserContext, origin: str, server: Server
) -> None:
    sessions = [server.session(), server.session()]
    server.send(sessions[0], "one")
    server.send(sessions[1], "two")
    visit = Visit(
        context.new_page(),
        f"{origin}/out/switch-page.html?server={server.url}&sessions={','.join(sessions)}",
    )
    visit.open()
    texts = visit.page.locator("li")
    expect(texts).to_have_text(["one", "You said one."])
    visit.page.get_by_role("button", name="Session 2").click()
    expect(texts).to_have_text(["two", "You said two."])
    visit.page.get_by_role("button", name="Send").click()
    expect(texts).to_have_text(["two", "You said two.", "hello", "You said hello."])
    visit.page.get_by_role("button", name="Session 1").click()
    expect(texts).to_have_text(["one", "You said one."])

    visit.page.get_by_role("button", name="None").click()
    streams(server, 0)  # a store without a component disconnects
    server.send(sessions[0], "three")
    visit.page.get_by_role("button", name="Session 1").click()
    expect(texts).to_have_text(["one", "You said one.", "three", "You said three."])
    assert visit.problems == []


def test_the_html_of_a_server_becomes_the_page(
    context: BrowserContext, pages: Path, origin: str, server: Server
) -> None:
    session = server.session()
    server.send(session, "hello")
    page = PAGE.format(name="hydrate-page")
    (pages / "out/hydrate-page.html").write_text(
        page.replace('id="root">', f'id="root">{render_example(pages)}')
    )

    visit = Visit(context.new_page(), f"{origin}/out/hydrate-page.html?server={server.url}&session={session}")
    visit.open()
    expect(visit.page.locator(".assistant p")).to_have_text("You said hello.")
    expect(visit.page.locator("main")).to_have_count(1)
    assert visit.problems == []
