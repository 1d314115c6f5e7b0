"""One delta renders one component: counted in React, in a browser."""

from playwright.sync_api import BrowserContext, expect

from tests.e2e.harness import Server
from tests.e2e.react.conftest import TakeSteps
from tests.foreign_clients.pages import Visit


def test_one_delta_renders_one_part(
    context: BrowserContext, origin: str, server: Server, take_steps: TakeSteps
) -> None:
    session = server.session()
    server.send(session, "add")
    visit = Visit(context.new_page(), f"{origin}/out/renders-page.html?server={server.url}&session={session}")
    visit.open()
    texts = visit.page.locator("p")
    expect(texts).to_have_text(["add", "Adding.", "Got 3."])
    server.send(session, "step")
    take_steps(1)
    expect(texts).to_have_text(["add", "Adding.", "Got 3.", "step", "One "])

    for shown in ("One two ", "One two three "):
        before = visit.page.evaluate("({...renders})")
        take_steps(1)
        expect(texts.last).to_have_text(shown)
        after = visit.page.evaluate("({...renders})")
        changes = {name: number - before[name] for name, number in after.items() if number != before[name]}
        # `whole` reads the whole session: the control, which shows that the page was told once
        assert changes == {"text 5": 1, "whole": 1}
    assert visit.problems == []
