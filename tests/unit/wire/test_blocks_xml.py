"""The dialect `blocks-xml`: vectors, what a reader of its tags gets back, the bounds of a message."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.legacy_readers import Node, read_tags
from tests.support.tables import check_laws, for_each_row
from tests.support.written_logs import Item, entry, log, scope, vector_log
from turnlog.events import (
    AgentEnd,
    AgentStart,
    AssistantMessage,
    BlockDelta,
    BlockEnd,
    BlockStart,
    Citation,
    ToolCall,
    ToolResult,
)
from turnlog.state.history import Message
from turnlog.vocabularies import FULL_CATALOG
from turnlog.wire.chunks import MAX_MESSAGE_BYTES
from turnlog.wire.dialects.base import DONE, DialectOptions
from turnlog.wire.dialects.blocks_xml import BlocksXml, split_model_text

VECTORS = Path(__file__).parents[2] / "vectors" / "wire" / "blocks_xml.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["cases"]
AGENT = scope("agt_" + "1" * 64)
START = AgentStart(name="Root", via="prompt")
LEGACY = {
    "meta_init",
    "content-block-thinking",
    "content-block-text",
    "content-block-tool_call",
    "content-block-server_tool_call",
    "content-block-tool_result",
    "content-block-server_tool_result",
    "citations",
    "awaiting_frontend_tools",
    "content-block-meta_files",
    "content-block-error",
    "meta_final",
}


def said(dialect: BlocksXml, items: list[Item]) -> list[bytes]:
    return [message for envelope, payload in items for message in dialect.convert(envelope, payload)]


def read(messages: list[bytes]) -> list[Node]:
    """The outer elements; between them there is nothing."""
    nodes = read_tags([message.decode() for message in messages])
    assert all(node.tag for node in nodes)
    return nodes


def dialect(case: dict[str, Any]) -> BlocksXml:
    return BlocksXml(msgspec.convert(case.get("options", {}), DialectOptions))


def check_messages(case: dict[str, Any]) -> None:
    converting = dialect(case)
    messages = said(converting, vector_log(case["events"]))
    assert [message.decode() for message in messages] == case["messages"]
    assert converting.idle


def check_every_message_is_a_line_and_together_they_are_tags(case: dict[str, Any]) -> None:
    messages = said(dialect(case), vector_log(case["events"]))
    for message in messages:
        assert message
        assert message != DONE
        assert b"\n" not in message
        assert b"\r" not in message
    for outer in read(messages):
        assert "agent" in outer.attributes


def test_every_legacy_tag_is_in_the_vectors() -> None:
    tags = {outer.tag for case in CASES for outer in read([text.encode() for text in case["messages"]])}
    assert tags == LEGACY | {"rollback"}


def test_nothing_of_one_turn_is_left_for_the_next() -> None:
    converting = BlocksXml()
    for case in CASES:
        if "options" not in case:
            messages = said(converting, vector_log(case["events"]))
            assert [message.decode() for message in messages] == case["messages"], case["name"]
            assert converting.idle


def check_a_reader_that_comes_back_gets_the_same_messages(case: dict[str, Any]) -> None:
    items = vector_log(case["events"])
    assert said(dialect(case), items) == said(dialect(case), items)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_vector(case: dict[str, Any]) -> None:
    laws = [
        check_messages,
        check_every_message_is_a_line_and_together_they_are_tags,
        check_a_reader_that_comes_back_gets_the_same_messages,
    ]
    check_laws(laws, case)


@for_each_row("kind", sorted(FULL_CATALOG.types))
def test_every_event_can_be_converted(kind: str) -> None:
    payload = FULL_CATALOG.get_event_type(kind).decoder.decode(
        json.dumps(FULL_CATALOG.get_event_type(kind).payload_class.EXAMPLE).encode()
    )
    for outer in read(said(BlocksXml(), [entry(payload, AGENT)])):
        assert outer.attributes["agent"] == "1" * 64


def test_a_history_is_told_when_it_is_wanted() -> None:
    wanted = DialectOptions(stream_meta_history_and_tool_results=True)
    converting = BlocksXml(wanted, lambda agent: [Message("user", [{"type": "text", "text": agent}])])
    first, last = read(said(converting, log((START, AGENT), (AgentEnd(stop_reason="end_turn"), AGENT))))
    told = [{"role": "user", "content": [{"type": "text", "text": AGENT.agent_id}]}]
    assert json.loads(first.attributes["data"])["message_history"] == told
    assert json.loads(last.attributes["data"])["conversation_history"] == told


def test_a_response_that_ends_in_the_middle_of_a_block_closes_it() -> None:
    converting = BlocksXml()
    block = BlockStart(block_id="blk_1", kind="text")
    messages = said(converting, log((block, AGENT), (BlockDelta(block_id="blk_1", text="Bas"), AGENT)))
    assert not converting.idle
    closed, done = converting.close()
    assert (closed, done) == (b"</content-block-text>", DONE)
    assert read([*messages, closed])[0].text == "Bas"


def test_a_response_that_ends_between_blocks() -> None:
    assert BlocksXml().close() == [DONE]


TEXTS = ["x" * 9_000, "\n" * 3_000, "<&>" * 2_000, "]]>" * 2_000, "[{" * 2_000, "€😀" * 999, "a\r\n" * 999]


@for_each_row("text", TEXTS)
def test_big_texts_are_cut_and_join_again(text: str) -> None:
    entries = [
        (START, AGENT),
        (BlockStart(block_id="blk_1", kind="thinking"), AGENT),
        (BlockDelta(block_id="blk_1", text=text), AGENT),
        (BlockEnd(block_id="blk_1", status="aborted", text=text), AGENT),
        (AssistantMessage(text=text, citations=(Citation(type="x", cited_text=text),)), AGENT),
        (ToolResult(call_id="c", tool="t", ok=True, result=text), AGENT),
    ]
    messages = said(BlocksXml(), log(*entries))
    assert max(map(len, messages)) <= MAX_MESSAGE_BYTES
    _, *outers = read(messages)
    assert [outer.text for outer in outers] == [text.replace("\r\n", "\n")] * 4


def test_only_a_tag_may_be_longer_than_the_limit() -> None:
    args = {"text": "<long> " * 2_000}
    [message] = said(BlocksXml(), [entry(ToolCall(call_id="c", tool="t", args=args), AGENT)])
    assert len(message) > MAX_MESSAGE_BYTES
    assert json.loads(read([message])[0].attributes["arguments"]) == args


def test_the_reader_of_these_tests_sees_a_forged_tag() -> None:
    forged = "x</content-block-text><rollback blocks='9' agent=''/><content-block-text agent=''>"
    honest = said(BlocksXml(), [entry(AssistantMessage(text=forged), AGENT)])
    assert [outer.tag for outer in read(honest)] == ["content-block-text"]
    careless = [b"<content-block-text agent=''>", forged.encode(), b"</content-block-text>"]
    assert "rollback" in [outer.tag for outer in read(careless)]


def streamed(*pieces: str) -> list[bytes]:
    deltas = [(BlockDelta(block_id="blk_1", text=piece), AGENT) for piece in pieces]
    text = "".join(pieces)
    block = [(BlockStart(block_id="blk_1", kind="text"), AGENT), *deltas]
    end = [(BlockEnd(block_id="blk_1", status="complete"), AGENT)]
    twin = [(AssistantMessage(text=text, block_id="blk_1"), AGENT)]
    return said(BlocksXml(), log(*block, *end, *twin))


@for_each_row("at", range(1, 40))
def test_a_tag_of_ours_in_a_text_is_text_wherever_it_is_cut(at: int) -> None:
    text = "a </content-block-text><x_tool_result> <![CDATA["
    messages = streamed(text[:at], text[at:])
    [outer] = read(messages)
    assert outer.text == text.replace("<", "&lt;")


@for_each_row(
    "pieces", [["<details>", "<b>x</b></details>"], ["<", "b>"], ["a <= b, 1 < 2"], ["<i class=", "'x'>"]]
)
def test_other_tags_and_comparisons_are_passed_on(pieces: list[str]) -> None:
    [outer] = read(streamed(*pieces))
    assert outer.text == "".join(pieces)


@for_each_row("pieces", [["if a <b"], ["if a <b", " and c" * 90], ["a <", "b"], ["<"]])
def test_a_bracket_without_its_end_does_not_swallow_the_end_of_the_block(pieces: list[str]) -> None:
    [outer] = read(streamed(*pieces))
    assert outer.text.replace("&lt;", "<") == "".join(pieces)


def test_blanks_alone_and_the_end_of_a_response_are_no_message() -> None:
    messages = streamed("a", "  ", "b", " " * 200, "[DONE]")
    assert all(message.strip() for message in messages)
    assert DONE not in messages
    assert read(messages)[0].text == "a  b" + " " * 200 + "[DONE]"


def test_a_text_that_is_the_end_of_a_response_is_cut_in_two() -> None:
    assert DONE not in streamed("x", "[DONE]")


def test_line_breaks_and_backslashes_are_escaped_as_their_readers_expect_it() -> None:
    text = "a\\b\nc"
    citation = Citation(type="x", cited_text=text)
    result = ToolResult(call_id="c", tool="t", ok=True, result=text)
    found = ToolResult(call_id="c", tool="t", ok=True, result=text, kind="web_search_tool_result")
    entries = [(AssistantMessage(text=text, citations=(citation,)), AGENT), (result, AGENT), (found, AGENT)]
    lines = b"".join(said(BlocksXml(), log(*entries))).decode()
    assert lines.count("a\\\\b\\nc") == 3
    assert lines.count("[a\\b\\nc]") == 1


def test_carriage_return_at_the_end_waits_for_its_line_feed() -> None:
    assert split_model_text("a\r") == ("a", "\r")
    assert split_model_text("a\r", is_last=True) == ("a\r", "")
