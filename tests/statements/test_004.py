"""Statements of document 004 (statements.md) that no other test says in so many words."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from playwright.sync_api import BrowserContext, Page
from starlette.testclient import TestClient

from tests.e2e import harness
from tests.e2e.browser import browsing
from tests.e2e.streams import add_notes, log_lines
from tests.e2e.web_client import LIMIT_MS, streams
from tests.statements.room import opened, saying
from tests.support.limits import HANG_S
from tests.test_seed_names import NAMES, mapping
from turnlog import Agent, App
from turnlog.agents import Scripted
from turnlog.app import Principal
from turnlog.events import UiMessage, decode_envelope
from turnlog.log import envelope_json
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog.team.office import Office
from turnlog.vocabularies import FULL_CATALOG
from turnlog.wire.sse import Decoder

ARCHITECTURE = harness.ROOT / "docs/architecture.md"

CATEGORIES = {
    "session lifecycle": "session_start session_end auth_state",
    "model output": "claude_system claude_text claude_tool_result claude_result claude_compact",
    "user input": "user_message user_summon user_wake user_session_start user_session_end",
    "agent lifecycle": "agent_registered agent_status agent_work_offered agent_message",
    "artifacts": "artifact_written",
    "screen": "screen_command",
    "jobs": "job_help",
    "server health": "heartbeat server_error",
}


def test_the_22_event_types_in_8_categories_are_said_by_the_vocabulary() -> None:
    names = " ".join(CATEGORIES.values()).split()
    assert (len(names), len(CATEGORIES), set(names)) == (22, 8, set(NAMES["004"]))
    homes: dict[str, set[str]] = {}
    for row in mapping():
        for name in re.findall(r"`([^`]+)`", row[6]):
            homes.setdefault(name, set()).update(re.findall(r"`(\w+\.\w+)`", row[0]))
    assert {home for name in names for home in homes[name]} <= set(FULL_CATALOG.types)
    assert [name for name in names if not homes[name]] == ["heartbeat"], "that one is on the wire only"


def followed(server: harness.Server, path: str, turn: str) -> list[Any]:
    """The events of a stream up to the first text of a turn."""
    asked = Request(server.url + path, headers=server.headers)
    events: list[Any] = []
    with urlopen(asked, timeout=HANG_S) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream:
            if line.startswith(b"data: {"):
                events.append(json.loads(line.removeprefix(b"data: ")))
                if events[-1]["type"] == "assistant.message" and events[-1]["trace_id"] == turn:
                    break
    return events


def test_a_message_is_accepted_at_once_and_answered_on_the_stream(tmp_path: Path) -> None:
    async def raw(reader: harness.Reader) -> bytes:
        data, dechunker = b"", harness.Dechunker()
        async for piece in reader.pieces():
            data += dechunker.feed(piece)
            if b'"tool.await"' in data and data.endswith(b"\n\n"):
                break
        return data

    with harness.running("fast", tmp_path) as server:
        sent = {"message": "Oslo", "targetAgent": "Lyra"}
        status, answer = server.post("/api/send", sent)
        assert (status, type(answer["eventId"])) == (202, int)
        session = answer["session"]
        assert followed(server, "/api/events?after=1", answer["turn"])[0]["seq"] == 2, "as it stands there"
        reader = harness.Reader(server, session)
        assert asyncio.run(reader.read(harness.kind("assistant.message")))
        assert reader.events[answer["eventId"]]["payload"] == {"text": "Oslo", "target": "Lyra"}
        assert reader.events[-1]["trace_id"] == answer["turn"]
        frames = asyncio.run(raw(harness.Reader(server, session)))
        # a page that listens to `onmessage` does not see named events
        named, message = (
            rb"event: caught-up\ndata: \{.*\}\n\n",
            rb'id: \d+:[a-z][0-9a-f]+\ndata: \{"type":.*\}\n\n',
        )
        assert re.fullmatch(rb"retry: \d+\n\n(%b|%b)+" % (named, message), frames)
        assert server.post("/api/chat", sent)[0] == 404


def test_who_names_no_session_follows_its_own_one_of_the_application() -> None:
    apps = [App(name, Agent("Guide", "", Scripted(lambda _: ["Hi."]))) for name in ("desk", "shop")]
    known = {hash_token(name): Principal(name) for name in ("ada", "guest_1")}
    server = create_app(apps, "memory:", auth=BuiltinAuth(b"k" * 32, known))
    with TestClient(server, base_url="http://localhost", headers={"authorization": "Bearer ada"}) as client:
        sessions = []
        for app in ("desk", "shop"):
            sent = client.post("/api/send", json={"message": "hello", "app": app}).json()
            told = client.get("/api/events", params={"app": app, "turn": sent["turn"]})  # a turn ends
            *messages, done = [message.data for message in Decoder().feed(told.content)]
            assert ({json.loads(text)["session_id"] for text in messages}, done) == (
                {sent["session"]},
                "[DONE]",
            )
            sessions.append(sent["session"])
        assert len(set(sessions)) == 2
        assert client.get("/api/events?app=none").status_code == 400
        guest = {"authorization": "Bearer guest_1"}
        assert client.get("/api/events", headers=guest).status_code == 403, "it has the one it was invited to"


def test_the_speaker_of_a_message_is_who_is_signed_in() -> None:
    async def play(principal: Principal) -> Any:
        async with opened(saying(lambda messages: ["Hi."])) as room:
            seat = await room.sessions.create(principal)
            await room.sessions.send(seat, UiMessage(text="Hello"))
            rows = await room.log.read(seat.session_id)
            [sent] = [decode_envelope(envelope_json(row)) for row in rows if row.type == "ui.message"]
            [message] = Office().convert(sent, FULL_CATALOG.decode_payload(sent))
            return json.loads(message)["speakerName"]

    assert [asyncio.run(play(Principal(name))) for name in ("ada", "bob")] == ["ada", "bob"]


# A page that has nothing but the browser's own means.
PLAIN = "<!doctype html><title>plain</title>"
SUBSCRIBE = """(url) => {
  window.seen = [];
  window.opened = 0;
  const source = new EventSource(url);
  source.onopen = () => (window.opened += 1);
  source.onmessage = ({ data, lastEventId }) => window.seen.push([lastEventId, data]);
}"""


def subscribed(context: BrowserContext, server: harness.Server, session: str) -> Page:
    """A tab that follows a session by itself."""
    page = context.new_page()
    page.goto(f"{server.url}/plain/")
    page.evaluate(SUBSCRIBE, f"/api/events?session={session}&after=-1")
    return page


def told(page: Page, last: int) -> list[Any]:
    """The events that a tab has got, when it has got the last one; each id is that of its event."""
    page.wait_for_function("last => seen.length && JSON.parse(seen.at(-1)[1]).seq >= last", arg=last)
    seen = page.evaluate("seen")
    events = [json.loads(data) for _, data in seen]
    assert [int(cursor.partition(":")[0]) for cursor, _ in seen] == [event["seq"] for event in events]
    return events


def test_tabs_read_with_the_eventsource_of_the_browser_which_comes_back_by_itself(
    chromium: str, tmp_path: Path
) -> None:
    app = "tests.e2e.stream_apps:slow_duo"
    with browsing(chromium) as browser:
        context = browser.new_context()
        context.set_default_timeout(LIMIT_MS)
        context.route("**/plain/", lambda route: route.fulfill(body=PLAIN, content_type="text/html"))
        with harness.running(app, tmp_path) as server:
            session, page = server.session(), context.new_page()
            page.goto(server.link)  # signs in
            page.close()
            first, second, gone = (subscribed(context, server, session) for _ in range(3))
            last = add_notes(server, session, 20, 100)
            assert told(first, last) == told(second, last) == told(gone, last)
            streams(server, 3)  # each has its own
            gone.close()
            add_notes(server, session, 20, 100)
            server.kill()
        with harness.running(app, tmp_path, server.port) as again:
            last = add_notes(again, session, 20, 100)
            events = told(first, last)
            assert events == told(second, last), "the one that was closed changed nothing for them"
            assert events == [json.loads(line) for line in log_lines(again, session)], (
                "none twice, none missed"
            )
            assert first.evaluate("opened") > 1, "no script of the page has connected again"


def test_the_architecture_document_describes_the_log_that_there_is() -> None:
    text, source = ARCHITECTURE.read_text(), harness.ROOT / "src/turnlog"
    assert "sources only append, clients only read. The two share nothing but the log" in text
    table = text.partition("## Packages")[2].partition("## Glossary")[0]
    rooms = {path.name + "/" for path in source.iterdir() if (path / "__init__.py").exists()}
    rooms |= {path.name for path in source.glob("*.py") if not path.name.startswith("__")}
    assert rooms <= set(re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE))
    way = text.partition("## One message, file by file")[2].partition("\n## ")[0]
    files = re.findall(r"`(\w+/[\w/]+\.py)`", way)
    assert len(files) > 20
    assert [name for name in files if not (source / name).exists()] == []
    steps = (
        "/api/send",
        "answers 202",
        "`log/log.py`",
        "followers wake",
        "`GET /api/events`",
        "after a cursor",
    )
    places = [way.index(step) for step in steps]
    assert places == sorted(places), "a message is accepted, appended, and read by everybody from a cursor"
    words = text.partition("## Glossary")[2].partition("## One message")[0]
    assert {"event", "envelope", "seq", "cursor", "store"} <= set(re.findall(r"^\| (\w+) \|", words, re.M))
