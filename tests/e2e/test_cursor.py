"""Cursors as pages of document 004 compute them: `parseInt` of an id, NaN, and `end` for new events only.

The pages use nothing but the browser's own EventSource.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.e2e.console import context_of
from tests.e2e.harness import Reader, Server, kind, running
from tests.e2e.streams import add_notes
from tests.e2e.web_client import fulfil, reading, run, signed_in, streams
from tests.support.limits import HANG_S
from turnlog.events import Scope, SessionTitle
from turnlog.log import open_log
from turnlog.testing.factories import make_event

APP = "tests.e2e.stream_apps:duo"
EMPTY_PAGE = "<!doctype html><title>plain</title>"

# As the page of 004 would: it computes a number from the last id, and connects with it.
FOLLOW = """(url) => {
  window.seen = [];
  window.resets = 0;
  window.opened = 0;
  window.source = new EventSource(url);
  source.onopen = () => (opened += 1);
  source.addEventListener("reset", () => (resets += 1));
  source.onmessage = ({ data, lastEventId }) => {
    const event = JSON.parse(data);
    if (event.type !== "heartbeat") seen.push({ after: parseInt(lastEventId), event });
  };
}"""
RECONNECT_AT_EACH = """async ([url, count]) => {
  const readRest = (after, count) => new Promise((resolve) => {
    const events = [];
    const source = new EventSource(`${url}&after=${after}`);
    source.onmessage = ({ data }) => {
      const event = JSON.parse(data);
      if (event.type !== "heartbeat") events.push(event);
      if (events.length < count) return;
      source.close();
      resolve(events);
    };
  });
  const rests = [];
  for (const { after } of seen.slice(0, -1)) rests.push(await readRest(after, count - 1 - rests.length));
  return rests;
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(APP, tmp_path_factory.mktemp("cursor")) as server:
        yield server


def follow(context: BrowserContext, server: Server, query: str) -> Page:
    """Return a page that follows `/api/events` with a query by itself."""
    page = context.new_page()
    page.route("**/plain/", lambda route: route.fulfill(body=EMPTY_PAGE, content_type="text/html"))
    page.goto(f"{server.url}/plain/")
    page.evaluate(FOLLOW, f"/api/events?{query}")
    page.wait_for_function("() => opened > 0")
    return page


def seen_by(page: Page, count: int) -> list[Any]:
    """Wait until a page has so many events; return them."""
    page.wait_for_function("count => seen.length >= count", arg=count)
    return [item["event"] for item in page.evaluate("seen")]


def end_turn(server: Server, session: str) -> None:
    """Let the agent of a session answer once."""
    sent = server.send(session, "Go and look")["eventId"]
    assert run(Reader(server, session, f"&after={sent}").read(kind("agent.end", "Lead")))


def office_events(server: Server, session: str) -> list[Any]:
    """Return the events of a session in `office`, from the start to the newest one with a message."""

    async def read() -> list[Any]:
        reader = Reader(server, session, "&dialect=office&after=-1")
        assert await reader.read(kind("claude_result"))
        return reader.events

    return run(read())


def test_page_that_reconnects_after_parseint_of_an_id_gets_exactly_the_events_after_it(
    context: BrowserContext, server: Server
) -> None:
    session = server.session()
    end_turn(server, session)
    whole = office_events(server, session)
    assert len(whole) > 5

    page = follow(context, server, f"session={session}&dialect=office&after=-1")
    assert seen_by(page, len(whole)) == whole
    assert page.evaluate("seen.map(({ after }) => after)") == [event["id"] for event in whole]
    rests = page.evaluate(RECONNECT_AT_EACH, [f"/api/events?session={session}&dialect=office", len(whole)])
    assert rests == [whole[index + 1 :] for index in range(len(whole) - 1)]


@pytest.mark.parametrize("after", ["NaN", "undefined", "null", "-1", ""])
def test_page_that_connects_after_no_number_gets_all_events(
    context: BrowserContext, server: Server, after: str
) -> None:
    session = server.session()
    last = add_notes(server, session, 3, 10)
    page = follow(context, server, f"session={session}&after={after}")
    assert [event["seq"] for event in seen_by(page, last + 1)] == list(range(last + 1))
    assert page.evaluate("resets") == 0


def test_page_that_connects_after_end_gets_new_events_only(context: BrowserContext, server: Server) -> None:
    session = server.session()
    add_notes(server, session, 5, 10)
    page = follow(context, server, f"session={session}&after=end")
    last = add_notes(server, session, 2, 10)
    assert [event["seq"] for event in seen_by(page, 2)] == [last - 1, last]
    assert page.evaluate("resets") == 0


def test_page_after_end_that_is_cut_before_its_first_event_gets_the_events_of_the_meantime(
    chrome: Browser, tmp_path: Path
) -> None:
    """The first id says where the page began: the browser reconnects there, not at a later end."""

    async def append_meanwhile(session: str) -> int:
        log = await open_log(f"sqlite:///{tmp_path}/log.db")
        event = make_event(SessionTitle(title="while the server was down"), "meanwhile", Scope())
        [seq] = (await log.append(session, [event])).seqs
        await log.close()
        return seq

    with context_of(chrome) as context:
        with running(APP, tmp_path) as server:
            signed_in(context, server)
            session = server.session()
            last = add_notes(server, session, 5, 10)
            page = follow(context, server, f"session={session}&after=end")
            streams(server, 1)
            server.kill()
        assert run(append_meanwhile(session)) > last
        with running(APP, tmp_path, server.port) as again:
            newest = add_notes(again, session, 1, 10)
            # the new process records itself in the session, before or after this note
            seqs = [event["seq"] for event in seen_by(page, newest - last)]
            assert seqs[: newest - last] == list(range(last + 1, newest + 1))
            assert page.evaluate("[opened > 1, resets]") == [True, 0]


def test_client_after_end_gets_new_events_only_and_its_cursor_continues(
    context: BrowserContext, server: Server
) -> None:
    session, other = server.session(), server.session()
    for name in (session, other):
        add_notes(server, name, 5, 10)
    context.route("**/reader/**", fulfil)
    page = reading(context, server.url, session, other, after="end,1", share=False)
    page.wait_for_function("other => reader.seen[other].length === 5", arg=other)
    last = add_notes(server, session, 2, 10)
    page.wait_for_function("session => reader.seen[session].length === 2", arg=session)
    told = page.evaluate("reader.seen")
    assert [int(cursor.partition(":")[0]) for cursor, _ in told[session]] == [last - 1, last]
    assert [int(cursor.partition(":")[0]) for cursor, _ in told[other]] == [2, 3, 4, 5, 6]


# Other readers, without a browser.


def log_seqs(server: Server, session: str, after: str) -> list[int]:
    """Return the seqs of the events that `/api/log` has after a cursor."""
    path = f"{server.url}/api/log?session={session}&after={after}"
    with urlopen(Request(path, headers=server.headers), timeout=HANG_S) as response:
        _, *events = response.read().splitlines()  # the first line is about the session
    return [json.loads(line)["seq"] for line in events]


def test_log_after_end_has_no_event(server: Server) -> None:
    session = server.session()
    last = add_notes(server, session, 3, 10)
    assert log_seqs(server, session, "end") == log_seqs(server, session, str(last)) == []
    assert log_seqs(server, session, "1x") == list(range(2, last + 1))
    for after in ("NaN", "undefined", "-5"):
        assert log_seqs(server, session, after) == list(range(last + 1)), after


@pytest.mark.parametrize("after", ["3:", "3:ABC", "57c58c72:18", "1,2", "9" * 18, "9" * 5000])
def test_stream_after_a_position_of_no_history_begins_with_a_reset(server: Server, after: str) -> None:
    session = server.session()
    last = add_notes(server, session, 3, 10)
    for reader in (Reader(server, session, f"&after={after}"), Reader(server, session, last_id=after)):
        assert run(reader.read(lambda message: f'"seq":{last},' in message.data))
        assert [message.event for message in reader.messages[:2]] == ["reset", "message"]
        assert [event["seq"] for event in reader.events] == list(range(last + 1))
    assert server.get(f"/api/log?session={session}&after={after}")[0] == 410


def test_stream_of_several_sessions_after_one_number_resets_each(server: Server) -> None:
    sessions = [server.session(), server.session()]
    lasts = [add_notes(server, session, 3, 10) for session in sessions]
    reader = Reader(server, ",".join(sessions), "&after=3")
    count = sum(lasts) + 2
    assert run(reader.read(lambda _: len(reader.events) == count))
    resets = [json.loads(message.data) for message in reader.messages if message.event == "reset"]
    assert {reset["session_id"] for reset in resets} == set(sessions)


def test_turn_after_end_is_over_when_the_turn_is(server: Server) -> None:
    session = server.session()
    sent = server.send(session, "Go and look")
    path = f"/api/events?session={session}&turn={sent['turn']}"
    assert server.get(path)[0] == 200, "a response ends with its turn"
    assert server.get(f"{path}&after=end")[0] == 204
    status, body = server.get(f"{path}&after=NaN")
    assert (status, b"data: [DONE]" in body) == (200, True)


def test_turn_with_depth_and_types_has_only_these_events(server: Server) -> None:
    session = server.session()
    sent = server.send(session, "Go and look")
    path = f"/api/events?session={session}&turn={sent['turn']}"

    def read(query: str) -> list[Any]:
        status, body = server.get(path + query)
        assert status == 200
        *events, done = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
        assert done == b"[DONE]"
        return [json.loads(data) for data in events]

    whole = [event for event in read("") if event["type"] != "block.delta"]
    assert {event.get("depth", 0) for event in whole} == {0, 1}
    assert read("&depth=0&types=agent,tool") == [
        event
        for event in whole
        if event.get("depth", 0) == 0 and event["type"].partition(".")[0] in ("agent", "tool")
    ]
    assert read("&depth=0&types=agent,tool") != read("&types=agent,tool") != whole
