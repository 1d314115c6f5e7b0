"""Tabs of one browser share one connection, and none of them misses anything or is told it twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.e2e.harness import Reader, Server, kind, running
from tests.e2e.line import line_to
from tests.e2e.streams import add_notes, metric
from tests.e2e.web_client import LIMIT_MS, all_have, check, reading, run, signed_in, streams

APP = "tests.e2e.stream_apps:slow_duo"
TABS = 7  # more than the six connections that HTTP/1.1 has for a server
FEW = 3
QUICK = {"retryMs": 50, "maxRetryMs": 200}


@pytest.fixture
def context(chrome: Browser) -> Iterator[BrowserContext]:
    context = chrome.new_context()
    context.set_default_timeout(LIMIT_MS)
    yield context
    context.close()


def turn_over(server: Server, session: str, after: int) -> None:
    assert run(Reader(server, session, f"&after={after}").read(kind("agent.end", "Lead")))


@pytest.mark.parametrize(("transport", "tabs"), [("eventsource", FEW), ("fetch", TABS)])
def test_tabs_are_live_with_one_connection(
    context: BrowserContext, tmp_path: Path, transport: str, tabs: int
) -> None:
    with running(APP, tmp_path) as server:
        signed_in(context, server)
        errors: list[str] = []
        context.on("weberror", lambda error: errors.append(str(error.error)))
        context.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
        session = server.session()
        add_notes(server, session, 30, 100)
        pages = [reading(context, server.url, session, transport=transport) for _ in range(tabs)]
        for page in pages:
            expect(page.locator("#state")).to_have_text("live", timeout=LIMIT_MS)
        streams(server, 1)
        sent = server.send(session, "Go and look")["eventId"]
        turn_over(server, session, sent)
        all_have(pages, add_notes(server, session, 3, 100))
        assert metric(server, "turnlog_subscribers") == 1
        for page in pages:
            check(page, server, session)
        assert errors == []


def test_without_sharing_the_seventh_tab_waits(context: BrowserContext, tmp_path: Path) -> None:
    """The control: HTTP/1.1 has six connections for a server."""
    with running(APP, tmp_path) as server:
        signed_in(context, server)
        session = server.session()
        pages = [reading(context, server.url, session, share=False) for _ in range(6)]
        for page in pages:
            expect(page.locator("#state")).to_have_text("live", timeout=LIMIT_MS)
        assert metric(server, "turnlog_subscribers") == 6
        seventh = context.new_page()
        seventh.evaluate("url => { location.href = url; }", f"{server.url}/healthz")
        all_have(pages, add_notes(server, session, 1, 10))
        assert seventh.url == "about:blank", "the other pages get an event, the seventh waits"
        pages[0].close()
        seventh.wait_for_url("**/healthz")


def test_tabs_of_as_many_sessions_have_one_connection_too(context: BrowserContext, tmp_path: Path) -> None:
    with running(APP, tmp_path) as server:
        signed_in(context, server)
        sessions = [server.session() for _ in range(FEW)]
        for session in sessions:
            add_notes(server, session, 5, 100)
        pages = [reading(context, server.url, session) for session in sessions]
        for page in pages:
            expect(page.locator("#state")).to_have_text("live", timeout=LIMIT_MS)
        streams(server, 1)
        for session in sessions:
            add_notes(server, session, 5, 100)
        for page, session in zip(pages, sessions, strict=True):
            all_have([page], add_notes(server, session, 1, 100))
            check(page, server, session)
        assert metric(server, "turnlog_subscribers") == 1


def test_a_page_of_two_sessions_and_a_page_of_one_of_them(context: BrowserContext, tmp_path: Path) -> None:
    with running(APP, tmp_path) as server:
        signed_in(context, server)
        one, other = server.session(), server.session()
        add_notes(server, one, 5, 100)
        single = reading(context, server.url, one)
        expect(single.locator("#state")).to_have_text("live", timeout=LIMIT_MS)
        both = reading(context, server.url, one, other)
        expect(both.locator("#state")).to_have_text("live", timeout=LIMIT_MS)
        streams(server, 1)
        all_have([single, both], add_notes(server, one, 5, 100))
        all_have([both], add_notes(server, other, 7, 100))
        for page, session in ((single, one), (both, one), (both, other)):
            check(page, server, session)


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_tabs_in_mid_turn_go_on_with_the_turn_when_the_server_was_away(
    context: BrowserContext, tmp_path: Path, end: str
) -> None:
    with running(APP, tmp_path) as server:
        signed_in(context, server)
        session = server.session()
        pages = [reading(context, server.url, session, timing=QUICK) for _ in range(FEW)]
        for page in pages:
            expect(page.locator("#state")).to_have_text("live", timeout=LIMIT_MS)
        server.send(session, "Go and look")
        assert run(Reader(server, session).read(kind("block.delta")))
        getattr(server, end)()
        for page in pages:
            expect(page.locator("#state")).to_have_text("reconnecting", timeout=LIMIT_MS)
    with running(APP, tmp_path, server.port) as again:
        for page in pages:
            expect(page.locator("#state")).to_have_text("live", timeout=LIMIT_MS)
        assert run(Reader(again, session).read(kind("agent.end", "Lead"))), "the turn goes on"
        all_have(pages, add_notes(again, session, 3, 100))
        for page in pages:
            check(page, again, session)
            assert page.evaluate("reader.resets") == []
        streams(again, 1)


@pytest.mark.parametrize("leads", [True, False])
def test_a_reload_in_mid_stream(context: BrowserContext, tmp_path: Path, leads: bool) -> None:
    with running(APP, tmp_path) as server:
        signed_in(context, server)
        session = server.session()
        pages = [reading(context, server.url, session) for _ in range(3)]
        for page in pages:
            expect(page.locator("#state")).to_have_text("live", timeout=LIMIT_MS)
        streams(server, 1)
        before = page_last(pages[1])
        sent = server.send(session, "Go and look")["eventId"]
        expect(pages[1].locator("#last")).not_to_have_text(before, timeout=LIMIT_MS)
        pages[0 if leads else 2].reload()
        turn_over(server, session, sent)
        all_have(pages, add_notes(server, session, 1, 100))
        for page in pages:
            check(page, server, session)
        streams(server, 1)


def test_the_tab_that_leads_is_closed_in_mid_stream(context: BrowserContext, tmp_path: Path) -> None:
    with running(APP, tmp_path) as server:
        signed_in(context, server)
        session = server.session()
        pages = [reading(context, server.url, session) for _ in range(3)]
        for page in pages:
            expect(page.locator("#state")).to_have_text("live", timeout=LIMIT_MS)
        streams(server, 1)
        while len(pages) > 1:
            before = page_last(pages[0])
            sent = server.send(session, "Go and look")["eventId"]
            expect(pages[-1].locator("#last")).not_to_have_text(before, timeout=LIMIT_MS)
            pages.pop(0).close()
            turn_over(server, session, sent)
            all_have(pages, add_notes(server, session, 1, 100))
            for page in pages:
                check(page, server, session)
        streams(server, 1)


@pytest.mark.parametrize("transport", ["eventsource", "fetch"])
def test_a_tab_that_may_not_read_disturbs_nobody(
    context: BrowserContext, tmp_path: Path, transport: str
) -> None:
    with running(APP, tmp_path) as server:
        signed_in(context, server)
        session = server.session()
        strangers = [reading(context, server.url, "sess_unknown", transport=transport)]
        expect(strangers[0].locator("#state")).to_have_text("refused", timeout=LIMIT_MS)
        page = reading(context, server.url, session, transport=transport)
        expect(page.locator("#state")).to_have_text("live", timeout=LIMIT_MS)
        strangers.append(reading(context, server.url, "sess_unknown", transport=transport))
        expect(strangers[1].locator("#state")).to_have_text("refused", timeout=LIMIT_MS)
        for stranger in strangers:
            assert stranger.evaluate("reader.errors") == [["NotFound", 404]]
        all_have([page], add_notes(server, session, 3, 100))
        assert page.evaluate("reader.states") == ["catching-up", "live"]


@pytest.mark.parametrize("transport", ["eventsource", "fetch"])
def test_a_line_that_goes_silent_is_noticed(context: BrowserContext, tmp_path: Path, transport: str) -> None:
    with running(APP, tmp_path) as server, line_to(server.port) as line:
        signed_in(context, server)
        session = server.session()
        patient = reading(context, line.url, session, transport=transport, share="patient")
        page = reading(context, line.url, session, transport=transport, timing={**QUICK, "heartbeatMs": 400})
        other = reading(context, line.url, session, transport=transport, timing={**QUICK, "heartbeatMs": 400})
        for each in (patient, page, other):
            expect(each.locator("#state")).to_have_text("live", timeout=LIMIT_MS)
        line.silence()
        before = page_last(patient)
        last = add_notes(server, session, 3, 100)
        all_have([page, other], last)
        assert page_last(patient) == before, "the control: who does not watch the line waits on"
        for each in (page, other):
            check(each, server, session)


def page_last(page: Page) -> str:
    return page.inner_text("#last")


def test_who_may_not_read_any_more_is_told_and_the_others_go_on(
    context: BrowserContext, tmp_path: Path
) -> None:
    """One tab reads for a member that is sent away from one of two sessions."""
    with running(APP, tmp_path) as server:
        lost, kept = server.session(), server.session()
        link = server.post("/api/links", {"session": lost, "roles": ["owner"]})[1]["path"]
        signed_in(context, server, server.url + link)
        pages = [reading(context, server.url, lost, timing=QUICK)]
        guest = pages[0].evaluate("reader.client.me()")["name"]
        member = {"session": kept, "principal": guest, "roles": ["owner"]}
        invite = server.post("/api/members", member)[1]["invite"]
        pages[0].evaluate("named => reader.client.acceptInvite(...named)", [kept, invite])
        pages += [reading(context, server.url, kept, timing=QUICK) for _ in range(2)]
        for page in pages:
            expect(page.locator("#state")).to_have_text("live", timeout=LIMIT_MS)
        streams(server, 1)
        sent_away = {"session": lost, "principal": guest, "roles": []}
        assert server.post("/api/members", sent_away)[0] == 202
        expect(pages[0].locator("#state")).to_have_text("refused", timeout=LIMIT_MS)
        all_have(pages[1:], add_notes(server, kept, 3, 100))
        for page in pages[1:]:
            check(page, server, kept)
