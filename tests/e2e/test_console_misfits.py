"""The console says which stored events no longer fit their class."""

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.e2e.console import context_of
from tests.e2e.harness import running

APPS = "tests.e2e.misfit_apps"


def test_state_with_events_that_no_longer_fit_names_them(chrome: Browser, tmp_path: Path) -> None:
    weigh = {"type": "scale.weigh", "payload": {"pounds": "187"}}
    with running(f"{APPS}:before", tmp_path) as server:
        session = server.session()
        assert server.post("/api/events", {"session": session, "events": [weigh, weigh]})[0] == 202
        assert server.stop() == 0

    with running(f"{APPS}:after", tmp_path) as server, context_of(chrome) as context:
        page = context.new_page()
        page.goto(server.link)
        page.goto(f"{server.url}/?session={session}&panel=state")
        expect(page.locator("tl-state .problem")).to_contain_text("2 events of scale.weigh no longer fit")
