"""What the block dialects share: what can be retracted, how a response ends, calls that came in pieces."""

import json
import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support.folds import root_messages
from tests.support.tables import for_each_row
from tests.support.written_logs import Item, log, scope
from turnlog import events as ev
from turnlog.parse.messages_api import MessagesParser
from turnlog.parse.reply import ReplyBuilder
from turnlog.state.history import Message
from turnlog.vocabularies import DIALECTS
from turnlog.wire.chunks import MAX_MESSAGE_BYTES
from turnlog.wire.dialects.base import DONE, Dialect, DialectOptions
from turnlog.wire.dialects.block_tracker import BlockTracker
from turnlog.wire.dialects.blocks import Blocks
from turnlog.wire.dialects.blocks_raw import BlocksRaw
from turnlog.wire.dialects.blocks_xml import BlocksXml
from turnlog.wire.dialects.registry import DialectWithHistory

AGENT = scope("agt_1")
START = ev.AgentStart(name="Root", via="prompt")
USAGE = ev.AgentUsage(model="m", usage=ev.Usage(input_tokens=1, output_tokens=2))
CALL = ev.ToolCall(call_id="c1", tool="grep", args={"pattern": "TODO"}, block_id="blk_2")
PIECES: list[ev.Payload] = [
    ev.BlockStart(block_id="blk_2", kind="tool_call", call_id="c1", tool="grep"),
    ev.BlockDelta(block_id="blk_2", text='{"pattern":'),
    ev.BlockDelta(block_id="blk_2", text='"TODO"}'),
]
COMPLETE = ev.BlockEnd(block_id="blk_2", status="complete")
ABORTED = ev.BlockEnd(block_id="blk_2", status="aborted", text='{"pattern":')
RETRACTED = ev.BlockRetract(block_ids=("blk_1", "blk_2"), reason="overloaded_error")
OPEN_TEXT: list[ev.Payload] = [
    START,
    ev.BlockStart(block_id="blk_1", kind="text"),
    ev.BlockDelta(block_id="blk_1", text="Bas"),
]

VECTORS = Path(__file__).parents[2] / "vectors" / "parse" / "messages_api.json"
STREAMS: list[dict[str, Any]] = json.loads(VECTORS.read_text())["vectors"]
BLOCK_DIALECTS = ("blocks", "blocks-xml", "blocks-raw")
EACH = pytest.mark.parametrize("name", BLOCK_DIALECTS)


def items(*payloads: ev.Payload) -> list[Item]:
    return log(*((payload, AGENT) for payload in payloads))


def said(dialect: Dialect, *payloads: ev.Payload) -> list[bytes]:
    return [message for item in items(*payloads) for message in dialect.convert(*item)]


def fresh(name: str) -> Dialect:
    return DIALECTS.definitions[name].factory(DialectOptions(), lambda _: [])


@for_each_row("name", sorted(DIALECTS.definitions))
def test_a_checkpoint_is_no_message_of_any_dialect(name: str) -> None:
    checkpoint = ev.AgentCheckpoint(source="f", version="1", blob="sess_1/private-1", paused=True)
    answer = items(START, checkpoint, *OPEN_TEXT[1:], checkpoint, ev.AgentEnd(stop_reason="error"))
    whole, without = fresh(name), fresh(name)
    for item in answer:
        messages = whole.convert(*item)
        assert messages == ([] if item[1] is checkpoint else without.convert(*item))


def without_ids(messages: list[bytes]) -> list[bytes]:
    """Messages without the id that `blocks-raw` makes of the event's own."""
    return [message.split(b'"id":"msg_')[0] for message in messages]


@EACH
def test_a_call_that_came_in_pieces_is_said_like_one_that_came_whole(name: str) -> None:
    whole = said(fresh(name), START, CALL, USAGE)
    pieces = said(fresh(name), START, *PIECES, COMPLETE, CALL, USAGE)
    assert without_ids(pieces) == without_ids(whole)


@EACH
@for_each_row("end", [ABORTED, RETRACTED, COMPLETE])
def test_a_call_that_never_came_whole_is_not_said(name: str, end: ev.Payload) -> None:
    assert said(fresh(name), START, *PIECES, end) == said(fresh(name), START)


@EACH
def test_a_retraction_counts_the_call_once_it_was_said(name: str) -> None:
    text = ev.AssistantMessage(text="Let me see.", block_id="blk_1")
    unsaid = said(fresh(name), START, text, *PIECES, RETRACTED)
    called = said(fresh(name), START, text, *PIECES, COMPLETE, CALL, RETRACTED)
    counts = [re.findall(rb"rollback.*blocks\D+(\d)", messages[-1]) for messages in (unsaid, called)]
    assert counts == [[b"1"], [b"2"]]


def test_a_response_ends_between_turns_with_its_sign_alone() -> None:
    for name in BLOCK_DIALECTS:
        dialect = fresh(name)
        said(dialect, START, ev.AssistantMessage(text="Hi."), ev.AgentEnd(stop_reason="end_turn"))
        assert dialect.close() == [DONE]


def test_what_comes_in_pairs_is_closed_with_the_response() -> None:
    xml, raw, blocks = BlocksXml(), BlocksRaw(), Blocks()
    for dialect in (xml, raw, blocks):
        said(dialect, *OPEN_TEXT)
    assert xml.close() == [b"</content-block-text>", DONE]
    *closed, done = raw.close()
    kinds = [json.loads(message)["type"] for message in closed]
    assert (kinds, done) == (["content_block_stop", "message_delta", "message_stop"], DONE)
    assert json.loads(closed[1])["delta"]["stop_reason"] is None
    assert blocks.close() == [DONE], "a block that goes on elsewhere is not final"


def test_a_message_that_waits_for_its_calls_was_not_cut() -> None:
    raw = BlocksRaw()
    said(raw, START, CALL)
    stopped, *_ = raw.close()
    assert json.loads(stopped)["delta"]["stop_reason"] == "tool_use"
    cut = BlocksRaw()
    said(cut, START, ev.ToolCall(call_id="c1", tool="grep", args={}, incomplete='{"pat'))
    stopped, *_ = cut.close()
    assert json.loads(stopped)["delta"]["stop_reason"] is None


def test_a_page_that_waits_ends_its_response_after_the_question() -> None:
    call = ev.ToolCall(call_id="c1", tool="confirm", args={}, executor="frontend")
    asked = ev.ToolAwait(calls=(ev.AwaitedCall(call_id="c1", tool="confirm", args={}),))
    for name in BLOCK_DIALECTS:
        dialect = fresh(name)
        *_, last = said(dialect, START, call, USAGE, asked)
        assert b"awaiting_frontend_tools" in last
        assert dialect.close() == [DONE]


def test_a_block_that_only_the_provider_knows_is_content_in_its_own_format() -> None:
    data = {"type": "compaction", "content": "They talked about grass."}
    block = ev.AssistantBlock(kind="compaction", data=data, block_id="blk_2")
    retract = ev.BlockRetract(block_ids=("blk_2",), reason="overloaded_error")
    _, *events = said(BlocksRaw(), START, block, retract)
    _, started, stopped, *_, rollback = map(json.loads, events)
    assert (started["content_block"], stopped["type"]) == (data, "content_block_stop")
    assert json.loads(rollback["delta"]) == {"blocks": 1}
    for dialect in (Blocks(), BlocksXml()):
        assert len(said(dialect, START, block, retract)) == 1


def test_what_no_agent_said_is_not_kept() -> None:
    blocks = Blocks()
    for item in log(
        *[(ev.AssistantMessage(text="Hi.", block_id=f"blk_{at}"), ev.Scope()) for at in range(3)]
    ):
        assert len(blocks.convert(*item)) == 2
    assert blocks.idle


def test_shown_blocks_are_retracted_from_the_first_void_one_on() -> None:
    shown = BlockTracker()
    for block_id in ("a", "b", None, "c"):
        shown.record_output(block_id)
    assert shown.retract(("x",)) == 0
    assert shown.retract(("c", "b")) == 3
    shown.record_output("b")
    assert shown.retract(("b",)) == 1
    assert shown.retract(("a",)) == 1
    assert shown.retract(("a", "b", "c")) == 0


def test_a_dialect_tells_the_history_before_the_event() -> None:
    told = DialectWithHistory(
        DIALECTS.request("blocks", DialectOptions(stream_meta_history_and_tool_results=True))
    )
    first = ev.AgentStart(name="Root", via="prompt", prompt="one")
    end = ev.AgentEnd(stop_reason="end_turn")
    *_, meta = said(told, first, ev.AssistantMessage(text="1"), end)
    turns = json.loads(json.loads(meta)["delta"])["conversation_history"]
    assert [turn["role"] for turn in turns] == ["user", "assistant"]
    assert root_messages(told.history)[0] == Message("user", [{"type": "text", "text": "one"}])
    assert told.idle
    assert told.close() == [DONE]
    assert DIALECTS.names == (
        "turnlog",
        "blocks",
        "blocks-xml",
        "blocks-raw",
        "agentic",
        "ag-ui",
        "ai-sdk",
        "office",
    )


def test_the_history_of_an_agent_that_is_called_is_its_own() -> None:
    told = DialectWithHistory(
        DIALECTS.request("blocks", DialectOptions(stream_meta_history_and_tool_results=True))
    )
    call: dict[str, Any] = {"name": "Scout", "via": "call", "parent_id": "agt_1"}
    over = ev.AgentEnd(stop_reason="end_turn")
    entries: list[tuple[ev.Payload, ev.Scope]] = [
        (ev.AgentStart(name="Root", via="prompt", prompt="a secret"), AGENT),
        (ev.AgentStart(prompt="one", call_id="c1", **call), scope("agt_2", 1)),
        (ev.AssistantMessage(text="1"), scope("agt_2", 1)),
        (over, scope("agt_2", 1)),
        (ev.AgentStart(prompt="two", call_id="c2", resumes="agt_2", **call), scope("agt_3", 1)),
        (ev.AgentStart(name="Writer", via="handoff", prompt="three"), scope("agt_4")),
    ]
    messages = [json.loads(text) for item in log(*entries) for text in told.convert(*item)]
    metas = [json.loads(message["delta"]) for message in messages if message["type"] == "meta_init"]
    words = [[part["content"][0]["text"] for part in meta["message_history"]] for meta in metas]
    assert words == [[], [], ["one", "1"], ["a secret"]]


@for_each_row("name", BLOCK_DIALECTS)
@pytest.mark.parametrize("vector", STREAMS, ids=lambda vector: vector["id"])
def test_whatever_a_provider_streams_is_said_and_nothing_is_left(name: str, vector: dict[str, Any]) -> None:
    numbers = count(1)
    parser = MessagesParser(ReplyBuilder(lambda prefix: f"{prefix}{next(numbers)}"))
    payloads = [payload for event in vector["events"] for payload in parser.feed(event)]
    end = ev.AgentEnd(stop_reason="end_turn")
    dialect = fresh(name)
    messages = said(dialect, START, *payloads, *parser.flush(), end)
    assert dialect.idle
    assert name != "blocks" or all(len(message) <= MAX_MESSAGE_BYTES for message in messages)
    assert dialect.close() == [DONE]
