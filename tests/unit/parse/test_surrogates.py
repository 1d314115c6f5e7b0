"""A pair of surrogates that is cut between two pieces is one character; half a pair is U+FFFD."""

from typing import Any

import pytest

from tests.support.claude_vectors import bytes_of, counting
from tests.support.tables import for_each_row
from turnlog.events import (
    AssistantBlock,
    AssistantMessage,
    AssistantThinking,
    BlockEnd,
    ParseReject,
    ToolCall,
)
from turnlog.parse import CliParser, MessagesParser, ReplyBuilder
from turnlog.parse.claude.lines import Line
from turnlog.parse.json_values import SurrogateJoiner
from turnlog.parse.open_agents import MAX_OPEN_AGENTS

PIECES = [
    (["a\ud83d", "\ude00b"], "a😀b"),
    (["a\ud83d\ude00b"], "a😀b"),
    (["a\ud83d", "", "\ude00b"], "a😀b"),
    (["a\ud83d", "b"], "a\ufffdb"),
    (["a\ud83d", "\ud83d", "\ude00b"], "a\ufffd😀b"),
    (["a", "\ude00b"], "a\ufffdb"),
    (["ab\ud83d"], "ab\ufffd"),
]


@for_each_row(("pieces", "text"), PIECES)
def test_joiner_gives_the_same_text_for_any_cut(pieces: list[str], text: str) -> None:
    joiner = SurrogateJoiner()
    assert "".join(map(joiner.feed, pieces)) + joiner.flush() == text


@for_each_row(("pieces", "text"), PIECES)
def test_text_of_a_reply_is_the_same_for_any_cut(pieces: list[str], text: str) -> None:
    reply = ReplyBuilder(lambda prefix: f"{prefix}1")
    batch = [payload for piece in pieces for payload in reply.text(piece)] + reply.done("end_turn")
    assert [payload.text for payload in batch if isinstance(payload, AssistantMessage)] == [text]


@for_each_row(("pieces", "text"), PIECES)
def test_thinking_of_a_reply_is_the_same_for_any_cut(pieces: list[str], text: str) -> None:
    reply = ReplyBuilder(lambda prefix: f"{prefix}1")
    batch = [payload for piece in pieces for payload in reply.think(piece)]
    batch += reply.sign("s\ud83d") + reply.done("end_turn")
    (thinking,) = [payload for payload in batch if isinstance(payload, AssistantThinking)]
    assert (thinking.text, thinking.signature) == (text, "s\ufffd")


@for_each_row(("pieces", "text"), PIECES)
def test_arguments_of_a_call_are_the_same_for_any_cut(pieces: list[str], text: str) -> None:
    reply = ReplyBuilder(lambda prefix: f"{prefix}1")
    batch = reply.start_call("t")
    for piece in ['{"x": "', *pieces, '"}']:
        batch += reply.arguments(piece)
    batch += reply.done("tool_use")
    assert [payload.args for payload in batch if isinstance(payload, ToolCall)] == [{"x": text}]


@for_each_row(("pieces", "text"), PIECES)
def test_block_of_another_kind_is_the_same_for_any_cut(pieces: list[str], text: str) -> None:
    parser = MessagesParser(ReplyBuilder(lambda prefix: f"{prefix}1"))
    parser.feed({"type": "content_block_start", "index": 0, "content_block": {"type": "odd"}})
    for piece in pieces:
        delta = {"type": "odd_delta", "x": piece}
        parser.feed({"type": "content_block_delta", "index": 0, "delta": delta})
    batch = parser.feed({"type": "content_block_stop", "index": 0})
    assert [payload.data["x"] for payload in batch if isinstance(payload, AssistantBlock)] == [text]


@pytest.mark.parametrize("begin", [
    lambda reply: reply.text("ab\ud83d"),
    lambda reply: reply.think("ab\ud83d"),
    lambda reply: [*reply.start_call("t"), *reply.arguments("ab\ud83d")],
], ids=["text", "thinking", "call"])  # fmt: skip
def test_aborted_block_that_ends_in_half_a_pair_shows_it_mended(begin: Any) -> None:
    reply = ReplyBuilder(lambda prefix: f"{prefix}1")
    batch = [*begin(reply), *reply.abort()]
    assert [payload.text for payload in batch if isinstance(payload, BlockEnd)] == ["ab\ufffd"]


def half_delta(parent: str | None = None) -> dict[str, Any]:
    delta = {"type": "text_delta", "text": "\ud83d"}
    event = {"type": "content_block_delta", "index": 0, "delta": delta}
    return {"type": "stream_event", "event": event, "parent_tool_use_id": parent}


def test_delta_with_half_a_pair_and_without_a_message_is_refused() -> None:
    said = CliParser(counting()).feed(bytes_of([half_delta()]))
    assert [item.payload.reason for item in said if isinstance(item.payload, ParseReject)] == ["no_message"]


def test_delta_with_half_a_pair_of_one_agent_too_many_is_stored_mended() -> None:
    parser = CliParser(counting())
    said = parser.feed(bytes_of(half_delta(f"call_{number}") for number in range(MAX_OPEN_AGENTS)))
    (line,) = [item.payload for item in said if isinstance(item.payload, Line)]
    assert line.data["event"]["delta"]["text"] == "\ufffd"
