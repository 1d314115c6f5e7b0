"""A page of document 003 in a real browser, against the example `assistant`: nothing in it knows Turnlog."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page

from tests.e2e.browser import watched
from tests.e2e.examples import APPS
from tests.e2e.harness import Server, running
from tests.support.limits import HANG_S

SCRIPT = (Path(__file__).parent / "blocks_page.js").read_text()
PROMPT = "Can we fly from Oslo?"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(f"{APPS}fast_assistant", tmp_path_factory.mktemp("page")) as server:
        yield server


@pytest.fixture
def page(context: BrowserContext, server: Server) -> Iterator[Page]:
    page = context.new_page()
    page.route(
        f"{server.url}/page.html", lambda route: route.fulfill(content_type="text/html", body="<body></body>")
    )
    errors = watched(page)
    page.goto(f"{server.url}/page.html")
    page.add_script_tag(content=SCRIPT)
    yield page
    page.unroute_all(behavior="wait")
    assert errors == []


def converse(page: Page, function: str, uuid: str, query: str = "", prompt: Any = PROMPT) -> Any:
    return page.evaluate(f"([prompt, uuid, query]) => {function}(prompt, uuid, query)", [prompt, uuid, query])


def logged(server: Server, uuid: str) -> list[Any]:
    """The events of the session in which an agent goes by this name."""
    for session in server.get("/api/sessions")[1]["sessions"]:
        request = urllib.request.Request(
            f"{server.url}/api/log?session={session['session_id']}", headers=server.headers
        )
        with urllib.request.urlopen(request, timeout=HANG_S) as response:
            lines = [json.loads(line) for line in response.read().decode().split("\n") if line]
        events = [line for line in lines if "payload" in line]
        if any(event["payload"].get("conversation_id") == uuid for event in events):
            return events
    raise AssertionError(f"no session of {uuid}")


def of(events: list[Any], name: str, *, depth: int | None = None) -> list[Any]:
    return [
        event["payload"]
        for event in events
        if event["type"] == name and (depth is None or event.get("depth", 0) == depth)
    ]


def text_of(result: Any) -> str:
    value = result["result"] if result["ok"] else result["error"]
    if value is None and result.get("images"):
        return ""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def test_reader_by_agent_and_type_alone_shows_a_whole_conversation(page: Page, server: Server) -> None:
    uuid = "6a1f0c9e-3d52-4c6b-9f0a-1f2e3d4c5b6a"
    blocks = converse(page, "converse", uuid, "?stream_meta_history_and_tool_results=true")
    again = converse(page, "converse", uuid, prompt="Can we fly from Göreme?")
    events = logged(server, uuid)
    first = of(events, "ui.message")[0]
    assert first["conversation_id"] == uuid

    assert all(block["complete"] for block in blocks)
    kinds = {block["type"] for block in blocks}
    assert {"meta_init", "thinking", "text", "tool_call", "tool_result", "meta_final"} <= kinds
    assert {"server_tool_call", "server_tool_result", "awaiting_frontend_tools", "meta_files"} <= kinds
    for block in blocks:
        if block["type"] in ("tool_call", "meta_init", "meta_final", "awaiting_frontend_tools"):
            json.loads(block["content"])

    # One subtree for the root agent over both turns, and one for each called agent.
    roots = [json.loads(block["content"]) for block in [*blocks, *again] if block["type"] == "meta_init"]
    mine = [meta for meta in roots if "parent_agent_uuid" not in meta]
    assert [meta["agent_uuid"] for meta in mine] == [uuid, uuid]
    called = [meta for meta in roots if "parent_agent_uuid" in meta]
    assert called
    assert {meta["parent_agent_uuid"] for meta in called} == {uuid}
    assert {block["agent"] for block in [*blocks, *again]} == {meta["agent_uuid"] for meta in roots}

    # Results are whole and apart, though tools ran beside each other.
    results = [result for result in of(events, "tool.result") if "kind" not in result]
    shown = [block for block in [*blocks, *again] if block["type"] == "tool_result"]
    assert sorted((block["extras"]["id"], block["content"]) for block in shown) == sorted(
        (result["call_id"], text_of(result)) for result in results
    )
    with_images = {result["call_id"]: len(result["images"]) for result in results if result.get("images")}
    assert {b["extras"]["id"]: len(b["images"]) for b in shown if b["images"]} == with_images != {}

    # Citations are at their texts.
    cited = [(m["text"], len(m["citations"])) for m in of(events, "assistant.message") if m.get("citations")]
    texts = [block for block in [*blocks, *again] if block["type"] == "text"]
    assert (
        [(block["content"], len(block["citations"])) for block in texts if block["citations"]] == cited != []
    )
    for message in of(events, "assistant.message"):
        assert message["text"] in [block["content"] for block in texts]


@pytest.mark.parametrize("query", ["", "?images=inline"])
def test_images_of_a_result_are_shown(page: Page, query: str) -> None:
    blocks = converse(page, "converse", f"images-{len(query)}", query)
    sources = [image["src"] for block in blocks for image in block["images"]]
    assert sources
    assert all(src.startswith("data:image/") for src in sources) or not query
    assert min(page.evaluate("(sources) => showImages(sources)", sources)) > 0


def test_reader_of_tags_shows_the_texts_as_the_model_wrote_them(page: Page, server: Server) -> None:
    told = converse(page, "converseInTags", "tags-1", "?dialect=blocks-xml")
    events = logged(server, "tags-1")
    assert (told["meta"]["format"], told["meta"]["agent_uuid"]) == ("xml", "tags-1")
    read = page.evaluate("(lines) => readTags(lines)", told["lines"])
    texts = [node["text"] for node in read["nodes"] if node["tag"] == "content-block-text"]
    for message in of(events, "assistant.message", depth=0):
        assert message["text"] in "".join(texts)
    shown = {
        node["attributes"]["id"]: node["text"]
        for node in read["nodes"]
        if node["tag"] == "content-block-tool_result"
    }
    for result in of(events, "tool.result", depth=0):
        if "kind" not in result and not result.get("images"):
            assert shown[result["call_id"]] == text_of(result)
    calls = [node for node in read["nodes"] if node["tag"] == "content-block-tool_call"]
    assert sorted(node["attributes"]["name"] for node in calls) == sorted(
        call["tool"] for call in of(events, "tool.call") if call.get("executor") != "provider"
    )


def test_reader_of_the_providers_events_shows_the_texts_and_the_tags_between(
    page: Page, server: Server
) -> None:
    told = converse(page, "converseInTags", "raw-1", "?dialect=blocks-raw")
    events = logged(server, "raw-1")
    assert (told["meta"]["format"], told["meta"]["agent_uuid"]) == ("raw", "raw-1")
    messages = page.evaluate("(lines) => readRaw(lines)", told["lines"])
    blocks = [block for message in messages for block in message["blocks"]]
    texts = {block["content"]: len(block["citations"]) for block in blocks if block["type"] == "text"}
    for message in of(events, "assistant.message"):
        assert texts[message["text"]] == len(message.get("citations", ()))
    tags = page.evaluate("(lines) => readTags(lines.filter((line) => line[0] === '<'))", told["lines"])
    assert tags["outside"].strip() == ""
    assert {"meta_init", "content-block-tool_result", "awaiting_frontend_tools"} <= {
        node["tag"] for node in tags["nodes"]
    }
