"""Readers who name no dialect get that of the application of the session (protocol sections 7 and 8.3)."""

import json
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from tests.e2e.broker_desk import token, tokens_file
from tests.e2e.console import chat, context_of, opened, say
from tests.e2e.harness import ROOT, TURNLOG, Server, running
from tests.e2e.test_responses import Answer, post
from tests.support.limits import HANG_S
from turnlog.wire.sse import Decoder, ServerSentEvent

APPS = "tests.e2e.dialect_apps:"

# What a page written for document 004 does: one EventSource without a session and a dialect, one POST.
OFFICE_PAGE = """() => new Promise((resolve, reject) => {
  const events = [];
  const source = new EventSource('/api/events?after=-1');
  source.onmessage = ({ data, lastEventId }) => {
    events.push({ ...JSON.parse(data), cursor: lastEventId });
    if (events.at(-1).type === 'claude_result') { source.close(); resolve(events); }
  };
  fetch('/api/send', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ message: 'Hi' }),
  }).catch(reject);
})"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The first application is the one that requests mean which name none."""
    folder = tmp_path_factory.mktemp("default_dialect")
    with running(APPS + "office", folder, options=[APPS + "xml", APPS + "plain"]) as server:
        yield server


def follow(server: Server, path: str, until: Callable[[str], bool]) -> list[ServerSentEvent]:
    """Read a stream up to the message that a condition accepts."""
    decoder = Decoder()
    messages: list[ServerSentEvent] = []
    request = urllib.request.Request(server.url + path, headers=server.headers)
    with urllib.request.urlopen(request, timeout=HANG_S) as response:
        while data := response.read1(65536):
            for message in decoder.feed(data):
                messages.append(message)
                if until(message.data):
                    return messages
    raise AssertionError(f"the stream ended: {messages}")


def say_hello(server: Server, app: str) -> str:
    """Send a message to the caller's own session of an application; return its id."""
    status, answer = server.post("/api/send", {"message": "Hi", "app": app})
    assert status == 202, answer
    return str(answer["session"])


def run(server: Server, app: str, query: str = "") -> Answer:
    """Run a turn in a new session of an application."""
    _, made = server.post("/api/sessions", {"app": app})
    answer = post(server, f"/agent/run?{query}", {"user_prompt": "Hi", "agent_uuid": made["session_id"]})
    assert answer.status == 200, answer.messages
    return answer


def first_type(data: str) -> Any:
    return json.loads(data)["type"]


def test_a_stream_without_a_session_and_a_dialect_is_the_office_of_the_first_app(server: Server) -> None:
    session = say_hello(server, "office")
    messages = follow(server, "/api/events?after=-1", lambda data: first_type(data) == "claude_result")
    events = [json.loads(message.data) for message in messages]
    types = [event["type"] for event in events]
    assert types == ["user_message", "claude_system", "claude_text", "claude_result"]
    assert {event["sessionId"] for event in events} == {session}
    assert [message.id.partition(":")[0] for message in messages] == [str(event["id"]) for event in events]


def test_a_page_of_document_004_works_unchanged(server: Server, context: BrowserContext) -> None:
    page = context.new_page()
    page.goto(server.url)
    events = page.evaluate(OFFICE_PAGE)
    assert {"user_message", "claude_system", "claude_text", "claude_result"} <= {
        event["type"] for event in events
    }
    assert all(event["cursor"].startswith(f"{event['id']}:") for event in events)


def test_the_default_is_that_of_the_application_of_the_session(server: Server) -> None:
    for app, ends in (
        ("plain", lambda data: first_type(data) == "agent.end"),
        ("xml", lambda data: data.startswith("<meta_final")),
    ):
        session = say_hello(server, app)
        for path in (f"/api/events?app={app}", f"/api/events?session={session}"):
            assert follow(server, path, ends)


def test_a_query_names_another_dialect(server: Server) -> None:
    say_hello(server, "office")
    messages = follow(server, "/api/events?dialect=turnlog", lambda data: first_type(data) == "agent.end")
    assert first_type(messages[0].data) == "session.member"


def test_sessions_with_different_dialects_on_one_stream_need_a_dialect(server: Server) -> None:
    both = f"{say_hello(server, 'office')},{say_hello(server, 'plain')}"
    status, answer = server.get(f"/api/events?session={both}")
    assert (status, answer["error"]) == (
        400,
        "these sessions have different dialects (office, turnlog): name one with dialect= (at dialect)",
    )
    assert follow(server, f"/api/events?session={both}&dialect=blocks", lambda data: "meta_init" in data)


def test_a_run_has_the_applications_dialect_if_it_is_one_of_document_003(server: Server) -> None:
    assert run(server, "xml").messages[0].data.startswith("<meta_init")
    assert run(server, "office").bodies[0]["type"] == "meta_init"
    assert run(server, "plain").bodies[0]["type"] == "meta_init"


@pytest.mark.parametrize(
    ("format", "formatter"), [("json", '"format":"json"'), ("xml", '"xml"'), ("raw", '"raw"')]
)
def test_a_run_has_the_format_that_the_query_names(server: Server, format: str, formatter: str) -> None:
    for app in ("plain", "xml"):
        answer = run(server, app, f"format={format}")
        same = run(server, app, f"dialect={'blocks' if format == 'json' else f'blocks-{format}'}")
        assert formatter in answer.messages[0].data.replace('\\"', '"').replace("&quot;", '"')
        assert len(answer.messages) == len(same.messages)


def test_tool_results_have_the_format_that_the_query_names(tmp_path: Path) -> None:
    with running("fast", tmp_path) as server:
        first = post(server, "/agent/run?format=xml", {"user_prompt": "Rome"})
        session = first.headers["turnlog-session"]
        _, state = server.get(f"/api/state?session={session}&include=open")
        [call] = state["open"]["calls"]
        results = [{"tool_use_id": call["call_id"], "content": True}]
        body = {"agent_uuid": session, "tool_results": results}
        second = post(server, "/agent/tool_results?format=xml", body)
        assert second.messages[0].data.startswith("<content-block")


def test_options_of_the_application_count_unless_the_query_names_them(server: Server) -> None:
    assert "meta_final" in [body["type"] for body in run(server, "office").bodies]
    silent = run(server, "office", "stream_meta_history_and_tool_results=false")
    assert "meta_final" not in [body["type"] for body in silent.bodies]
    assert "meta_final" not in [body["type"] for body in run(server, "plain").bodies]


@pytest.mark.parametrize("query", ["format=yaml", "format=xml&dialect=blocks", "dialect=klingon"])
def test_a_wrong_format_appends_nothing(server: Server, query: str) -> None:
    before = server.get("/api/sessions?limit=100")
    answer = post(server, f"/agent/run?{query}", {"user_prompt": "Hi"})
    assert answer.status == 400
    assert server.get("/api/sessions?limit=100") == before


def test_the_console_works_in_an_application_with_another_default(
    server: Server, context: BrowserContext
) -> None:
    _, made = server.post("/api/sessions", {"app": "office"})
    page = opened(context, f"{server.url}/?session={made['session_id']}")
    say(page, "Hi")
    expect(chat(page)).to_contain_text("Hello.")


def test_serve_replaces_the_default_of_every_application(tmp_path: Path) -> None:
    options = [APPS + "plain", "--dialect", "agentic"]
    with running(APPS + "office", tmp_path, options=options) as server:
        for app in ("office", "plain"):
            session = say_hello(server, app)
            messages = follow(server, f"/api/events?session={session}", lambda data: "Hello." in data)
            assert "claude_text" not in {first_type(message.data) for message in messages}
            assert all("session_id" not in json.loads(message.data) for message in messages)


def test_serve_refuses_an_unknown_dialect_at_the_start(tmp_path: Path) -> None:
    options = ["--dialect", "klingon", "--log", f"sqlite:///{tmp_path}/log.db", "--port", "0"]
    ended = subprocess.run(
        [TURNLOG, "serve", APPS + "office", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert ended.returncode == 1
    assert "expected one of the dialects turnlog, blocks, " in ended.stderr
    assert "got 'klingon'" in ended.stderr


# A page of document 004 that reads on: what it has got is in `events`.
FOLLOW = """() => {
  globalThis.events = [];
  new EventSource('/api/events?after=-1').onmessage = ({ data }) => events.push(JSON.parse(data));
}"""
SEND = """(message) => fetch('/api/send', {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ message }),
}).then(({ status }) => status)"""
SPEAKERS = "() => events.filter(({ type }) => type === 'user_message').map(({ speakerName }) => speakerName)"


def test_pages_of_two_people_see_one_office_if_the_application_shares_its_session(
    tmp_path: Path, chrome: Browser
) -> None:
    options = ["--tokens", str(tokens_file(tmp_path))]
    with running(APPS + "shared", tmp_path, options=options) as server, ExitStack() as stack:
        pages = []
        for name in ("ada", "bob"):
            context = stack.enter_context(context_of(chrome))
            headers = {"authorization": f"Bearer {token(name)}"}
            assert context.request.post(f"{server.url}/api/sign-in", headers=headers, data={}).ok
            page = context.new_page()
            page.goto(server.url)
            page.evaluate(FOLLOW)
            pages.append(page)
        assert [page.evaluate(SEND, "Hi") for page in pages] == [202, 202]
        for page in pages:
            page.wait_for_function(f"() => ({SPEAKERS})().length === 2")
            assert page.evaluate(SPEAKERS) == ["ada", "bob"]
        sessions = [
            page.evaluate("() => [...new Set(events.map((event) => event.sessionId))]") for page in pages
        ]
        assert len(sessions[0]) == 1
        assert sessions[0] == sessions[1]
