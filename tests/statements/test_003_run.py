"""Statements of document 003 about what its messages say, on a run of an agent and not on a log by hand."""

import html
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.statements.room import body, result_count, talk
from tests.statements.test_003 import projected
from turnlog import Agent, App, tool
from turnlog.agents import ImageContent, Scripted, ToolUse
from turnlog.agents.models.scripted import Cite, ProviderCall, ScriptPart, Thinking
from turnlog.events import CATALOG, Citation, Envelope
from turnlog.state.history import Message
from turnlog.wire.dialects.blocks_raw import BlocksRaw
from turnlog.wire.dialects.blocks_xml import BlocksXml

PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
FOUND = [{"title": "Result 1"}]


@tool
def screenshot(page: str) -> list[Any]:
    return ["Screenshot taken", ImageContent(PNG, "image/png"), ImageContent(JPEG, "image/jpeg")]


@tool
def count(pattern: str) -> dict[str, int]:
    return {pattern: 4}


@tool(executor="frontend")
def user_confirm(question: str) -> bool:
    raise NotImplementedError


def script(messages: list[Message]) -> Iterator[ScriptPart]:
    if result_count(messages) == 0:
        yield Thinking("I look.")
        yield "The grass is green."
        for text in ("First.", "Second."):
            yield Cite(Citation(type="char_location", cited_text=text, document_index=0))
        yield ProviderCall("web_search", {"query": "grass"}, FOUND, "web_search_tool_result")
        yield ToolUse("screenshot", {"page": "a"}, "toolu_01")
        yield ToolUse("count", {"pattern": "TODO"}, "toolu_02")
        yield ToolUse("user_confirm", {"question": "Continue?"}, "toolu_03")
    else:
        yield "Done."


@pytest.fixture(scope="module")
def run() -> list[Envelope]:
    agent = Agent("Guide", "", Scripted(script), tools=(screenshot, count, user_confirm))
    return talk(App("looking", agent), "Hello", True)


@pytest.fixture(scope="module")
def said(run: list[Envelope]) -> list[Any]:
    return [message for _, message in projected(run, stream_meta_history_and_tool_results=True)]


def of(said: list[Any], *names: str) -> list[Any]:
    return [message for message in said if message["type"] in names]


def test_the_start_tells_who_works_for_what(run: list[Envelope], said: list[Any]) -> None:
    [init] = of(said, "meta_init")
    [start] = [event for event in run if event.type == "agent.start"]
    told = json.loads(init["delta"])
    assert (told["format"], told["user_query"]) == ("json", "Hello")
    assert f"agt_{told['agent_uuid']}" == f"agt_{init['agent']}" == start.agent_id
    assert told["model"] == body(start)["model"] != ""


def test_the_other_formatters_name_themselves(run: list[Envelope]) -> None:
    made: list[BlocksXml | BlocksRaw] = [BlocksXml(), BlocksRaw()]
    xml, raw = (
        [text for event in run for text in one.convert(event, CATALOG.decode_payload(event))] for one in made
    )
    assert '<meta_init data="{"format":"xml",' in html.unescape(xml[0].decode())
    assert '<meta_init data="{"format":"raw",' in html.unescape(raw[0].decode())


def test_calls_and_results_have_their_ids_names_and_contents(said: list[Any]) -> None:
    calls = of(said, "tool_call", "server_tool_call")
    assert [(call["name"], json.loads(call["delta"])) for call in calls] == [
        ("web_search", {"query": "grass"}),
        ("screenshot", {"page": "a"}),
        ("count", {"pattern": "TODO"}),
        ("user_confirm", {"question": "Continue?"}),
    ]
    assert all(call["final"] for call in calls)
    assert [call["id"] for call in calls[1:]] == ["toolu_01", "toolu_02", "toolu_03"]
    [found] = of(said, "server_tool_result")
    assert (found["id"], found["name"]) == (calls[0]["id"], "web_search_tool_result")
    assert json.loads(found["delta"]) == FOUND
    results = {result["id"]: result for result in of(said, "tool_result") if result["name"] != "screenshot"}
    assert {key: (one["name"], one["delta"], one["final"]) for key, one in results.items()} == {
        "toolu_02": ("count", '{"TODO":4}', True),
        "toolu_03": ("user_confirm", "true", True),
    }


def test_a_result_with_pictures_is_text_pictures_and_an_end(said: list[Any]) -> None:
    shot = [message for message in said if message.get("id") == "toolu_01"][1:]
    at = said.index(shot[0])
    assert said[at : at + 4] == shot, "nothing comes in between"
    assert [(message["type"], message["name"], message["final"]) for message in shot] == [
        ("tool_result", "screenshot", False),
        ("tool_result_image", "screenshot", False),
        ("tool_result_image", "screenshot", False),
        ("tool_result", "screenshot", True),
    ]
    assert [message["delta"] for message in shot] == ["Screenshot taken", "", "", ""]
    assert [image["media_type"] for image in shot[1:3]] == ["image/png", "image/jpeg"]
    assert all(image["src"].startswith("api/blobs/sess_") for image in shot[1:3])


def test_citations_stand_behind_their_text(said: list[Any]) -> None:
    at = next(place for place, message in enumerate(said) if message["type"] == "citation")
    before, first, second, after = said[at - 1 : at + 3]
    assert (before["type"], before["final"], after["type"]) == ("text", True, "server_tool_call")
    assert [(one["delta"], one["final"], one["citation_type"]) for one in (first, second)] == [
        ("First.", False, "char_location"),
        ("Second.", True, "char_location"),
    ]


def test_the_pause_lists_the_calls_that_wait(said: list[Any]) -> None:
    [waiting] = of(said, "awaiting_frontend_tools")
    assert json.loads(waiting["delta"]) == [
        {"tool_use_id": "toolu_03", "name": "user_confirm", "input": {"question": "Continue?"}}
    ]


def test_the_summary_has_what_is_not_known_as_null(said: list[Any]) -> None:
    summary = json.loads("".join(message["delta"] for message in of(said, "meta_final")))
    assert (summary["stop_reason"], summary["generated_files"], summary["cost"]) == ("end_turn", None, None)


def test_thinking_and_text_are_what_the_model_thought_and_said(said: list[Any]) -> None:
    texts = ["".join(message["delta"] for message in of(said, name)) for name in ("thinking", "text")]
    assert texts == ["I look.", "The grass is green.Done."]
