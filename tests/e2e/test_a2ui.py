"""A surface of A2UI in the console: a real agent shows it, a person answers it, other tabs show the same."""

from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.e2e.browser import watched
from tests.e2e.console import chat, context_of, live, opened, say
from tests.e2e.harness import running

CONSOLE = Path(__file__).parents[2] / "src" / "turnlog" / "server" / "console"
MARK = "a2ui-surface"  # the element that the renderer defines
IS_DEFINED = f"customElements.get('{MARK}') !== undefined"


def events(page: Page, type_name: str) -> list[dict[str, Any]]:
    """The events of a type that a page has."""
    found: list[dict[str, Any]] = page.evaluate(
        "type => document.querySelector('tl-console').session.log.events.filter(one => one.type === type)",
        type_name,
    )
    return found


def test_person_fills_in_a_form_of_a2ui_and_every_tab_shows_what_the_agent_answers(
    chrome: Browser, tmp_path: Path
) -> None:
    with running("tests.e2e.a2ui_apps:restaurant", tmp_path) as server, context_of(chrome) as context:
        page = opened(context, server.link)
        errors = watched(page)
        say(page, "form")
        name = page.get_by_label("Name")
        expect(name).to_have_value("")
        surface = page.locator("tl-surface")
        expect(surface.get_by_text("A name, please")).to_be_visible()
        expect(page.get_by_role("button", name="Book", exact=True)).to_be_disabled()
        expect(surface.get_by_text("Soup")).to_be_visible()
        assert page.locator("tl-surface img").count() == 0  # the markup in a text is text

        other = opened(context, page.url)
        expect(other.locator("tl-surface").get_by_text("Not booked yet")).to_be_visible()

        name.fill("Ada")
        page.get_by_label("Garden").check()
        page.get_by_role("button", name="Book", exact=True).click()
        for tab in (page, other):
            expect(tab.locator("tl-surface").get_by_text("Your table is booked.")).to_be_visible()
            expect(chat(tab)).to_contain_text("chose Book table")
        expect(name).to_have_value("Ada")  # the update of the agent has not disturbed the form

        [action] = events(page, "ui.action")
        [created, _] = events(page, "assistant.view")
        assert action["payload"] == {
            "view_id": "booking",
            "shown": created["id"],
            "action": {
                "kind": "a2ui.action",
                "name": "book_table",
                "component_id": "book",
                "context": {"guest": "Ada", "day": "2026-03-01", "table": ["garden"], "price": 12},
            },
        }

        other.reload()
        live(other)
        expect(other.locator("tl-surface").get_by_text("Your table is booked.")).to_be_visible()
        say(other, "end")
        for tab in (page, other):
            expect(tab.locator("tl-surface")).to_have_count(0)
            expect(tab.locator("tl-view [data-state=closed]")).to_be_visible()
        assert errors == []


def test_call_of_open_url_shows_a_link_and_opens_no_page(chrome: Browser, tmp_path: Path) -> None:
    with running("tests.e2e.a2ui_apps:restaurant", tmp_path) as server, context_of(chrome) as context:
        page = opened(context, server.link)
        say(page, "form")
        page.get_by_role("button", name="Help").click()
        link = page.locator("tl-surface").get_by_role("link", name="example.com")
        expect(link).to_have_attribute("href", "https://example.com/help")
        expect(link).to_have_attribute("rel", "noopener noreferrer")
        assert context.pages == [page]


def test_renderer_is_loaded_with_the_first_surface_only(chrome: Browser, tmp_path: Path) -> None:
    renderer = {path.name for path in CONSOLE.glob("chunk-*.js") if f'"{MARK}"' in path.read_text()}
    assert renderer, "the chunk of the renderer has another mark"
    with running("tests.e2e.a2ui_apps:restaurant", tmp_path) as server, context_of(chrome) as context:
        page = context.new_page()
        requested: list[str] = []
        page.on("request", lambda request: requested.append(request.url.rpartition("/")[2]))
        page.goto(server.link)
        live(page)
        say(page, "hello")
        expect(chat(page)).to_contain_text("Hello.")
        assert renderer.isdisjoint(requested)
        assert page.evaluate(IS_DEFINED) is False

        # control: a surface brings it, once
        say(page, "form")
        expect(page.get_by_label("Name")).to_be_visible()
        say(page, "form")
        expect(page.locator("tl-view [data-state=replaced]")).to_be_visible()
        assert page.evaluate(IS_DEFINED) is True
        assert sorted(name for name in requested if name in renderer) == sorted(renderer)


def test_model_repairs_a_message_that_the_server_refused(chrome: Browser, tmp_path: Path) -> None:
    with running("tests.e2e.a2ui_apps:restaurant", tmp_path) as server, context_of(chrome) as context:
        page = opened(context, server.link)
        say(page, "wrong")
        expect(page.get_by_label("Name")).to_be_visible()
        refused, shown = (event["payload"] for event in events(page, "tool.result"))
        assert shown["ok"] is True
        assert refused["error"]["code"] == "VALIDATION_ERROR"
        assert "unknown component 'Html': expected one of Text, Image," in refused["error"]["message"]
        place = ["messages", 1, "updateComponents", "components", 0, "component"]
        assert refused["error"]["details"] == {"path": ["view", "tree", *place]}


def test_update_of_a_surface_that_is_not_open_is_refused(chrome: Browser, tmp_path: Path) -> None:
    with running("tests.e2e.a2ui_apps:restaurant", tmp_path) as server, context_of(chrome) as context:
        page = opened(context, server.link)
        say(page, "update")
        expect(chat(page)).to_contain_text("surface 'booking' is not open")
        assert events(page, "assistant.view") == []


def test_view_of_another_kind_is_shown_as_json(chrome: Browser, tmp_path: Path) -> None:
    with running("tests.e2e.a2ui_apps:charts", tmp_path) as server, context_of(chrome) as context:
        page = opened(context, server.link)
        say(page, "show it")
        expect(page.locator("tl-view .view")).to_contain_text("points")
        expect(page.locator("tl-view .view")).to_contain_text("acme.chart")
        assert page.evaluate(IS_DEFINED) is False
