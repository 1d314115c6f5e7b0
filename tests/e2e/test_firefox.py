"""The client library, the console and the participant page in real Firefox."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from tests.e2e.firefox import Firefox, Tab, run_firefox
from tests.e2e.guests import make_link, read_events
from tests.e2e.harness import Reader, Server, kind, running
from tests.e2e.streams import add_notes
from tests.e2e.web_client import FOLDERS, KINDS, check, find_page_file, run, streams
from turnlog.server.console_files import CONSOLE_HEADERS

QUICK = {"retryMs": 50, "maxRetryMs": 200}


def read_page_file(url: str) -> tuple[bytes, dict[str, str]]:
    """Return a file of the page that reads, with the headers of the server's own pages."""
    path = find_page_file(urlsplit(url).path)
    return path.read_bytes(), {"content-type": KINDS[path.suffix], **CONSOLE_HEADERS}


@pytest.fixture(scope="module")
def firefox(firefox_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    with run_firefox(firefox_program, tmp_path_factory.mktemp("firefox"), read_page_file) as browser:
        yield browser


def sign_in(firefox: Firefox, server: Server) -> None:
    """Let every page of the browser read as the owner."""
    firefox.clear_cookies()
    firefox.open(server.link).close()
    names = [path.relative_to(folder) for folder in FOLDERS for path in folder.rglob("*.js")]
    firefox.intercept(server.port, ["/reader/", *(f"/reader/{name}" for name in names)])


def follow(firefox: Firefox, server: Server, session: str, **options: object) -> Tab:
    """Open a page that follows a session, and wait until it has the history."""
    query = urlencode({"sessions": session, "options": json.dumps(options)})
    tab = firefox.open(f"{server.url}/reader/?{query}")
    expect_state(tab, "live")
    return tab


def expect_state(tab: Tab, state: str) -> None:
    tab.wait_for(f"() => globalThis.reader?.feed.state === {json.dumps(state)}")


def expect_last(tabs: list[Tab], seq: int) -> None:
    """Wait until this was the last event of all of them."""
    for tab in tabs:
        tab.wait_for(f"() => document.getElementById('last').textContent === '{seq}'")


@pytest.mark.parametrize("transport", ["fetch", "eventsource"])
def test_reader_when_the_server_was_killed_continues_and_misses_nothing(
    firefox: Firefox, tmp_path: Path, transport: str
) -> None:
    with running("tests.e2e.stream_apps:slow_duo", tmp_path) as server:
        sign_in(firefox, server)
        session = server.session()
        tab = follow(firefox, server, session, transport=transport, timing=QUICK)
        server.send(session, "Go and look")
        assert run(Reader(server, session).read(kind("block.delta")))
        server.kill()
        expect_state(tab, "reconnecting")
    with running("tests.e2e.stream_apps:slow_duo", tmp_path, server.port) as again:
        assert run(Reader(again, session).read(kind("agent.end", "Lead"))), "the turn goes on"
        expect_last([tab], add_notes(again, session, 3, 100))
        check(tab, again, session)
        assert tab.evaluate("reader.resets") == []
        tab.close()


def test_tabs_share_one_connection_and_go_on_when_the_leader_closes(firefox: Firefox, tmp_path: Path) -> None:
    with running("tests.e2e.stream_apps:duo", tmp_path) as server:
        sign_in(firefox, server)
        session = server.session()
        tabs = [follow(firefox, server, session, timing=QUICK) for _ in range(3)]
        streams(server, 1)
        expect_last(tabs, add_notes(server, session, 5, 100))
        tabs.pop(0).close()
        expect_last(tabs, add_notes(server, session, 5, 100))
        streams(server, 1)
        for tab in tabs:
            check(tab, server, session)
            tab.close()


def test_console_streams_an_answer_takes_an_approval_and_shows_both_after_a_reload(
    firefox: Firefox, tmp_path: Path
) -> None:
    with running("tests.e2e.conversation_apps:app", tmp_path) as server:
        sign_in(firefox, server)
        session = server.session()
        firefox.errors.clear()
        tab = firefox.open(f"{server.url}/?session={session}")
        tab.expect_text("#connection", "Live")
        tab.focus("tl-composer textarea")
        tab.press("delete", "Enter")
        tab.expect_text("tl-ask", "It changes the database")
        tab.click("tl-ask button", "Approve")
        tab.expect_text("tl-chat", "Approved by local")
        tab.reload()
        tab.expect_text("tl-chat", "Approved by local")
        decisions = [event for event in read_events(server, session) if event["type"] == "approval.decision"]
        assert [event["payload"]["decision"] for event in decisions] == ["approve"]
        assert firefox.errors == []
        tab.close()


def test_console_reloaded_in_mid_sentence_shows_the_whole_answer(firefox: Firefox, tmp_path: Path) -> None:
    with running("tests.e2e.stream_apps:slow_duo", tmp_path) as server:
        sign_in(firefox, server)
        session = server.session()
        tab = firefox.open(f"{server.url}/?session={session}")
        tab.expect_text("#connection", "Live")
        server.send(session, "Go and look")
        tab.wait_for("() => document.querySelector('tl-text .prose')?.textContent")
        tab.reload()
        assert run(Reader(server, session).read(kind("agent.end", "Lead")))
        texts = [
            event["payload"]["text"]
            for event in read_events(server, session)
            if event["type"] == "assistant.message" and not event.get("depth")
        ]
        for text in texts:
            tab.expect_text("tl-chat", text)
        tab.close()


def test_guest_fills_a_form_by_keys_alone_and_sees_only_the_conversation(
    firefox: Firefox, tmp_path: Path
) -> None:
    with running("tests.e2e.guest_apps:app", tmp_path) as server:
        firefox.clear_cookies()
        session = server.session()
        firefox.errors.clear()
        tab = firefox.open(make_link(server, session))
        tab.resize(390, 844)
        tab.focus("input[name=name]")
        tab.press("Ada", "Enter")
        tab.wait_for("() => location.pathname.startsWith('/talk/')")
        tab.focus("tl-talk-composer textarea")
        tab.press("form please", "Enter")
        tab.expect_text("tl-view", "Your stay")
        tab.focus("tl-view form input")
        tab.press("Ada", "Tab", "2", "Enter")
        assert run(Reader(server, session).read(kind("ui.action")))
        [action] = [
            event["payload"] for event in read_events(server, session) if event["type"] == "ui.action"
        ]
        assert action["action"]["values"]["name"] == "Ada"
        assert tab.evaluate("document.querySelector('tl-console')") is None
        assert firefox.errors == []
        tab.close()


def test_closing_every_tab_ends_the_connection(firefox: Firefox, tmp_path: Path) -> None:
    with running("tests.e2e.stream_apps:duo", tmp_path) as server:
        sign_in(firefox, server)
        session = server.session()
        tab = follow(firefox, server, session)
        streams(server, 1)
        tab.close()
        streams(server, 0)
