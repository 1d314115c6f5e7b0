"""Statements of document 003 (statements.md) that no other test says in so many words."""

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from tests.statements.room import result_count, talk
from tests.statements.test_001 import calling
from tests.support.written_logs import entry, scope, vector_log
from tests.test_seed_names import NAMES
from turnlog import Agent, App, events, tool
from turnlog.agents import Scripted, ToolUse
from turnlog.agents.models.scripted import Files
from turnlog.events import CATALOG, Envelope, Payload
from turnlog.state.history import Message
from turnlog.vocabularies import DIALECTS
from turnlog.wire.chunks import MAX_MESSAGE_BYTES, chunk
from turnlog.wire.dialects.base import DialectOptions
from turnlog.wire.dialects.blocks import Blocks
from turnlog.wire.dialects.blocks_xml import BlocksXml
from turnlog.wire.dialects.registry import DialectWithHistory

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "wire" / "blocks.json").read_text())["cases"]
SAID = {case["name"]: case["messages"] for case in VECTORS}  # what `blocks` says: shown by its own tests

CITATION = {
    "document_index": 0,
    "document_title": "My Document",
    "start_char_index": 0,
    "end_char_index": 20,
    "start_page_number": 1,
    "end_page_number": 2,
    "url": "https://example.com",
    "title": "Example",
}
EXTRA = {
    "citation": {"citation_type", *CITATION},
    "tool_call": {"id", "name"},
    "server_tool_call": {"id", "name"},
    "tool_result": {"id", "name"},
    "tool_result_image": {"id", "name", "src", "media_type"},
    "server_tool_result": {"id", "name"},
}
BASE = {"type": str, "agent": str, "final": bool, "delta": str}


def told(*payloads: Payload) -> list[Any]:
    """The messages of some events of one agent."""
    blocks = Blocks()
    converted = [blocks.convert(*entry(payload, scope("agt_1"), seq)) for seq, payload in enumerate(payloads)]
    return [json.loads(message) for messages in converted for message in messages]


def test_the_13_types_and_the_fields_of_each() -> None:
    found: dict[str, set[str]] = {}
    for message in (message for messages in SAID.values() for message in messages):
        assert {key: type(message[key]) for key in BASE} == BASE
        found.setdefault(message["type"], set()).update(set(message) - {*BASE, "index"})
    assert set(found) - {"rollback"} == set(NAMES["003"])
    assert len(NAMES["003"]) == 13
    for name, extra in found.items():
        assert extra <= EXTRA.get(name, set())
        assert extra == EXTRA.get(name, set()) or name == "citation", "which is tried with all of them"


def test_a_citation_with_every_field() -> None:
    cited = msgspec.convert({"type": "page_location", "cited_text": "x", **CITATION}, events.Citation)
    *_, citation = told(events.AssistantMessage(text="Green.", citations=(cited,)))
    assert citation.items() >= CITATION.items()
    assert (citation["citation_type"], citation["delta"]) == ("page_location", "x")


@pytest.mark.parametrize("name", NAMES["003"])
def test_streamed_types_end_with_an_empty_message_and_buffered_ones_with_content(name: str) -> None:
    for case, messages in SAID.items():
        mine = [message for message in messages if message["type"] == name]
        if name == "tool_result_image":
            assert not any(message["final"] or message["delta"] for message in mine)
        elif name in ("text", "thinking") or "image" in case:
            assert not any(message["delta"] for message in mine if message["final"])
        else:
            assert all(message["delta"] for message in mine if message["final"])


def test_two_deltas_and_a_stop_are_three_messages() -> None:
    deltas = [events.BlockDelta(block_id="b", text=text) for text in ("Hello", " world")]
    end = events.BlockEnd(block_id="b", status="complete")
    said = told(events.BlockStart(block_id="b", kind="text"), *deltas, end)
    finals = [(message["final"], message["delta"]) for message in said]
    assert finals == [(False, "Hello"), (False, " world"), (True, "")]


@pytest.mark.parametrize(
    ("case", "deltas"),
    [
        ("meta_init", '{"format":"json","user_query":"He|llo","model":"claude-sonnet-4-5"}'),
        ("tool_call", '{"pattern":"TODO","pa|th":"src/"}'),
        (
            "tool_result, lines of text",
            "Line 1: import os\nLine 2: import sy|s\nLine 3: from pathlib import Path",
        ),
        ("server_tool_result", '[{"title":"Resul|t 1"}]'),
        (
            "meta_files",
            '{"files":[{"file_id":"file_01","filename":"report.pdf","storage_lo|cation":"https://..."}]}',
        ),
    ],
)
def test_an_example_in_two_chunks_joins_to_what_one_message_says(case: str, deltas: str) -> None:
    [message] = SAID[case]
    fields = {key: value for key, value in message.items() if key not in ("delta", "final")}
    joined, whole = deltas.replace("|", ""), message["delta"]
    assert joined == whole or json.loads(joined).items() <= json.loads(whole).items()
    limit = len(chunk(**fields, payload="", final=False)[0]) + len(json.dumps(whole)) // 2 + 3
    first, second = (json.loads(part) for part in chunk(**fields, payload=whole, limit_bytes=limit))
    assert first == {**fields, "final": False, "delta": first["delta"]}
    assert second == {**fields, "final": True, "delta": whole.removeprefix(first["delta"])}


BIG = "long " * 2000
FILE = events.File(file_id="file_01", filename="report.pdf", storage_location="https://...")
LARGE: list[Payload] = [
    events.ToolCall(call_id="s", tool="web_search", args={"query": BIG}, executor="provider"),
    events.ToolResult(call_id="s", tool="web_search", ok=True, result=[BIG], kind="web_search_tool_result"),
    events.AssistantFiles(files=(FILE,) * 100),
    events.SessionError(code="api_error", message=BIG),
]


@pytest.mark.parametrize("payload", LARGE, ids=lambda payload: type(payload).__name__)
def test_what_is_large_is_cut_and_only_its_last_message_is_final(payload: Payload) -> None:
    messages = told(payload)
    assert [message["final"] for message in messages] == [False] * (len(messages) - 1) + [True]
    assert len({(message["type"], message.get("id"), message.get("name")) for message in messages}) == 1
    assert len(messages) > 3
    assert json.loads("".join(message["delta"] for message in messages))


@pytest.mark.parametrize("extra", [{}, {"id": "toolu_01", "name": "grep_search"}])
def test_the_room_for_a_delta_is_2048_bytes_less_the_empty_message(extra: dict[str, Any]) -> None:
    empty = len(chunk("tool_result", "abc-123", "", final=False, **extra)[0])
    first, *_ = chunk("tool_result", "abc-123", "x" * 5000, final=False, **extra)
    assert (MAX_MESSAGE_BYTES, len(first), len(json.loads(first)["delta"])) == (2048, 2048, 2048 - empty)
    assert (empty > 65) == bool(extra), "extra fields take their room from the delta"


@tool
def weather(city: str) -> str:
    return "rain"


@tool(executor="frontend")
def confirm(question: str) -> bool:
    raise NotImplementedError


def asking(messages: list[Message]) -> Iterator[str | ToolUse]:
    """A tool and a question at once, then a question alone, then an answer."""
    yield f"Step {result_count(messages)}."
    if result_count(messages) == 0:
        yield ToolUse("weather", {"city": "Oslo"})
    if result_count(messages) < 3:
        yield ToolUse("confirm", {"question": "Go?"})


@pytest.fixture(scope="module")
def run() -> list[Envelope]:
    agent = Agent("Guide", "", Scripted(asking), tools=(weather, confirm))
    return talk(App("asking", agent), "Hi", True, False)


def projected(happened: list[Envelope], **options: Any) -> list[tuple[str, Any]]:
    """The messages of a session, each with the origin of its event."""
    dialect = DialectWithHistory(DIALECTS.request("blocks", DialectOptions(**options)))
    converted = [(event.origin, dialect.convert(event, CATALOG.decode_payload(event))) for event in happened]
    return [(origin, json.loads(message)) for origin, messages in converted for message in messages]


def test_a_run_with_questions_to_the_page_has_the_order_of_the_document(run: list[Envelope]) -> None:
    messages = [message for _, message in projected(run, stream_meta_history_and_tool_results=True)]
    order = " ".join(name for name, _ in groupby(message["type"] for message in messages))
    first = "text tool_call tool_result awaiting_frontend_tools tool_result"
    second = "text tool_call awaiting_frontend_tools tool_result"
    assert order == f"meta_init {first} {second} text meta_final"
    results = [message for message in messages if message["type"] == "tool_result"]
    calls = [(message["id"], message["name"]) for message in messages if message["type"] == "tool_call"]
    assert calls == [(result["id"], result["name"]) for result in results]
    assert [result["delta"] for result in results] == ["rain", "true", "false"]
    assert {UUID(message["agent"]).version for message in messages} == {7}


def test_who_makes_the_messages_of_a_run(run: list[Envelope]) -> None:
    made = {(m["type"], origin) for origin, m in projected(run, stream_meta_history_and_tool_results=True)}
    by_runtime = {(name, "system") for name in ("meta_init", "awaiting_frontend_tools", "meta_final")}
    by_others = {("text", "model"), ("tool_call", "model"), ("tool_result", "tool"), ("tool_result", "ui")}
    assert made == by_runtime | by_others


def test_each_agent_has_a_uuid_of_its_own_under_which_its_messages_stand() -> None:
    top = calling("Agent A", calling("Agent B", calling("Agent D")), calling("Agent C"))
    messages = [message for _, message in projected(talk(App("tree", top), "go"))]
    starts = [message for message in messages if message["type"] == "meta_init"]
    names = {UUID(start["agent"]): json.loads(start["delta"])["agent_name"] for start in starts}
    assert sorted(names.values()) == ["Agent A", "Agent B", "Agent C", "Agent D"]
    said = dict.fromkeys(names.values(), "")
    for message in messages:
        if message["type"] == "text":
            said[names[UUID(message["agent"])]] += message["delta"]
    assert said == {
        name: f"{name} begins." + f"{name} ends." * (name in ("Agent A", "Agent B")) for name in said
    }


def drawing(messages: list[Message]) -> Iterator[str | ToolUse | Files]:
    """A file in the first step, an answer in the second."""
    if not result_count(messages):
        yield Files((FILE,))
        yield ToolUse("weather", {"city": "Oslo"})
    else:
        yield "Done."


def test_files_are_told_when_they_are_made_and_all_again_in_the_summary() -> None:
    happened = talk(App("drawing", Agent("Guide", "", Scripted(drawing), tools=(weather,))), "Hi")
    messages = [message for _, message in projected(happened, stream_meta_history_and_tool_results=True)]
    order = [name for name, _ in groupby(message["type"] for message in messages)]
    assert order == ["meta_init", "meta_files", "tool_call", "tool_result", "text", "meta_final"]
    told = json.loads(messages[1]["delta"])["files"]
    assert json.loads(messages[-1]["delta"])["generated_files"] == told == [msgspec.to_builtins(FILE)]


def test_histories_are_told_on_request_and_the_summary_at_the_end_of_the_run(run: list[Envelope]) -> None:
    plain = [message for _, message in projected(run)]
    assert "message_history" not in json.loads(plain[0]["delta"])
    assert "meta_final" not in {message["type"] for message in plain}
    full = [message for _, message in projected(run, stream_meta_history_and_tool_results=True)]
    assert json.loads(full[0]["delta"])["message_history"] == []
    summary = json.loads(full[-1]["delta"])
    assert (summary["stop_reason"], summary["total_steps"]) == ("end_turn", 3)
    assert [turn["role"] for turn in summary["conversation_history"]] == ["user", "assistant"] * 3


@pytest.mark.parametrize(
    ("tag", "names"),
    [
        ('<meta_init data="', {"meta_init"}),
        ("<content-block-thinking ", {"thinking"}),
        ("<content-block-text ", {"text"}),
        ("<citations ", {"citation"}),
        ("<citation ", {"citation"}),
        ("<content-block-tool_call ", {"tool_call"}),
        ("<content-block-server_tool_call ", {"server_tool_call"}),
        ("<content-block-tool_result ", {"tool_result", "tool_result_image"}),
        ("<content-block-server_tool_result ", {"server_tool_result"}),
        ('<awaiting_frontend_tools data="', {"awaiting_frontend_tools"}),
        ("<content-block-meta_files", {"meta_files"}),
        ("<content-block-error", {"error"}),
        ('<meta_final data="', {"meta_final"}),
    ],
)
def test_the_xml_from_before_has_a_tag_where_blocks_has_the_type(tag: str, names: set[str]) -> None:
    found = 0
    for case in VECTORS:
        xml = BlocksXml(msgspec.convert(case.get("options", {}), DialectOptions))
        said = b"".join(message for item in vector_log(case["events"]) for message in xml.convert(*item))
        wanted = any(message["type"] in names and message["delta"] for message in case["messages"])
        assert (tag in said.decode()) == wanted, case["name"]
        found += wanted
    assert found
