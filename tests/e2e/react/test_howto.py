"""The recipes of docs/howto/react.md in a browser."""

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.e2e.harness import Server
from tests.foreign_clients.pages import Visit


def open_recipe(context: BrowserContext, origin: str, server: Server, recipe: str, session: str) -> Visit:
    query = f"server={server.url}&session={session}&recipe={recipe}"
    visit = Visit(context.new_page(), f"{origin}/out/howto-page.html?{query}")
    visit.open()
    return visit


def test_the_chat_sends_and_approves(context: BrowserContext, origin: str, server: Server) -> None:
    visit = open_recipe(context, origin, server, "chat", server.session())
    field = visit.page.locator("input:not([type])")
    field.fill("call delete_file a.txt")
    field.press("Enter")
    visit.page.get_by_role("button", name="Approve").click()
    expect(visit.page.locator("p")).to_have_text(["call delete_file a.txt", "Got a.txt is deleted."])
    expect(visit.page.locator("code")).to_have_text('delete_file: "a.txt is deleted"')
    assert visit.problems == []


@pytest.mark.parametrize("recipe", ["parts", "assistant"])
def test_a_recipe_shows_the_messages(
    context: BrowserContext, origin: str, server: Server, recipe: str
) -> None:
    session = server.session()
    server.send(session, "hello")
    visit = open_recipe(context, origin, server, recipe, session)
    expect(visit.page.locator("p")).to_have_text(["hello", "You said hello."])
    assert visit.problems == []
