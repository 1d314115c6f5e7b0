"""A token that the server takes back in mid-stream: the page asks for another and goes on."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.harness import Server, running
from tests.e2e.react.conftest import APP, TakeSteps
from tests.foreign_clients.pages import Visit


def write_token(pages: Path, folder: Path, token: str) -> None:
    """Let the page's origin give out a token, and let the server accept this one alone."""
    (pages / "out/token.txt").write_text(token)
    entry = {"page": {"sha256": hashlib.sha256(token.encode()).hexdigest()}}
    (folder / "new.json").write_text(json.dumps(entry))
    (folder / "new.json").rename(folder / "tokens.json")


@pytest.fixture
def token_server(pages: Path, folder: Path, origin: str, tmp_path: Path) -> Iterator[Server]:
    write_token(pages, tmp_path, "first")
    options = ("--allow-origin", origin, "--tokens", str(tmp_path / "tokens.json"))
    with running(APP, tmp_path, options=options) as server:
        server.token = "first"
        yield server


@pytest.mark.parametrize("name", ["token-page", "token-state-page"])
def test_a_token_that_is_revoked_in_mid_stream_is_renewed_and_nothing_is_lost_or_doubled(
    chrome: Browser,
    pages: Path,
    origin: str,
    token_server: Server,
    tmp_path: Path,
    take_steps: TakeSteps,
    name: str,
) -> None:
    session = token_server.session()
    with chrome.new_context() as context:
        address = f"{origin}/out/{name}.html?server={token_server.url}&session={session}"
        visit = Visit(context.new_page(), address)
        visit.open()
        visit.say("step")
        take_steps(2)
        answer = visit.page.locator(".assistant p")
        expect(answer).to_have_text("One two ")

        if name == "token-state-page":
            visit.page.get_by_role("button", name="Sign in again").click()
        write_token(pages, tmp_path, "second")
        visit.page.wait_for_function("tokens.length > 1")
        take_steps(3)
        expect(answer).to_have_text("One two three four.")
        visit.say("hello")
        expect(answer).to_have_text(["One two three four.", "You said hello."])
        assert visit.page.evaluate("tokens") == ["first", "second"]
        assert [text for text in visit.problems if "401" not in text] == []
