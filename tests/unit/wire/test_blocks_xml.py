"""The dialect `blocks-xml`: vectors, what an XML reader gets back, the bounds of a message."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from tests.support.tables import check_laws, for_each_row
from tests.support.written_logs import Item, entry, log, scope, vector_log
from turnlog.events import (
    CATALOG,
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
from turnlog.wire.chunks import MAX_MESSAGE_BYTES
from turnlog.wire.dialects.base import DONE, BlocksOptions
from turnlog.wire.dialects.blocks_xml import BlocksXml

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


def read(messages: list[bytes]) -> list[ElementTree.Element]:
    """The outer elements; between them there is nothing."""
    root = ElementTree.fromstring(b"<log>%b</log>" % b"".join(messages))
    assert root.text is None
    assert [outer.tail for outer in root] == [None] * len(root)
    return list(root)


def dialect(case: dict[str, Any]) -> BlocksXml:
    return BlocksXml(msgspec.convert(case.get("options", {}), BlocksOptions))


def check_messages(case: dict[str, Any]) -> None:
    converting = dialect(case)
    messages = said(converting, vector_log(case["events"]))
    assert [message.decode() for message in messages] == case["messages"]
    assert converting.idle


def check_every_message_is_a_line_and_together_they_are_xml(case: dict[str, Any]) -> None:
    messages = said(dialect(case), vector_log(case["events"]))
    for message in messages:
        assert message
        assert message != DONE
        assert b"\n" not in message
        assert b"\r" not in message
    for outer in read(messages):
        assert outer.get("agent") is not None


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
        check_every_message_is_a_line_and_together_they_are_xml,
        check_a_reader_that_comes_back_gets_the_same_messages,
    ]
    check_laws(laws, case)


@for_each_row("kind", sorted(CATALOG.types))
def test_every_event_can_be_converted(kind: str) -> None:
    payload = CATALOG.get_event_type(kind).decoder.decode(
        json.dumps(CATALOG.get_event_type(kind).payload_class.EXAMPLE).encode()
    )
    for outer in read(said(BlocksXml(), [entry(payload, AGENT)])):
        assert outer.get("agent") == "1" * 64


def test_a_history_is_told_when_it_is_wanted() -> None:
    wanted = BlocksOptions(stream_meta_history_and_tool_results=True)
    converting = BlocksXml(wanted, lambda agent: [Message("user", [{"type": "text", "text": agent}])])
    first, last = read(said(converting, log((START, AGENT), (AgentEnd(stop_reason="end_turn"), AGENT))))
    told = [{"role": "user", "content": [{"type": "text", "text": AGENT.agent_id}]}]
    assert json.loads(first.attrib["data"])["message_history"] == told
    assert json.loads(last.attrib["data"])["conversation_history"] == told


def test_a_response_that_ends_in_the_middle_of_a_block_is_xml() -> None:
    converting = BlocksXml()
    block = BlockStart(block_id="blk_1", kind="text")
    messages = said(converting, log((block, AGENT), (BlockDelta(block_id="blk_1", text="Bas"), AGENT)))
    assert not converting.idle
    closed, done = converting.close()
    assert (closed, done) == (b"</content-block-text>", DONE)
    assert read([*messages, closed])[0].text == "Bas"


def test_a_response_that_ends_between_blocks() -> None:
    assert BlocksXml().close() == [DONE]


@for_each_row(
    "text",
    ["x" * 9_000, "\n" * 3_000, "<&>" * 2_000, "]]>" * 2_000, "[{" * 2_000, "€😀" * 999, "a\r\n" * 999],
)
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
    assert ["".join(outer.itertext()) for outer in outers] == [text] * 4


def test_only_a_tag_may_be_longer_than_the_limit() -> None:
    args = {"text": "<long> " * 2_000}
    messages = said(BlocksXml(), [entry(ToolCall(call_id="c", tool="t", args=args), AGENT)])
    assert [message.count(b"<") for message in messages if len(message) > MAX_MESSAGE_BYTES] == [1]
    assert json.loads(read(messages)[0].attrib["arguments"]) == args


def test_text_that_utf8_cannot_say_arrives_marked() -> None:
    envelope, _ = entry(AssistantMessage(text=""), AGENT)
    messages = BlocksXml().convert(envelope, AssistantMessage(text="a\ud83db"))
    assert read(messages)[0].text == "a\N{REPLACEMENT CHARACTER}b"


def test_the_reader_of_these_tests_sees_a_forged_tag() -> None:
    forged = "x</content-block-text><rollback blocks='9' agent=''/><content-block-text agent=''>"
    honest = said(BlocksXml(), [entry(AssistantMessage(text=forged), AGENT)])
    assert [outer.tag for outer in read(honest)] == ["content-block-text"]
    careless = [b"<content-block-text agent=''>", forged.encode(), b"</content-block-text>"]
    assert "rollback" in [outer.tag for outer in read(careless)]
