"""The history that `meta_init` and `meta_final` tell: the newest messages, within a bound in bytes."""

import json
from typing import Any

import pytest

import turnlog.events as ev
from turnlog.state.history import Message
from turnlog.wire.dialects import blocks_meta
from turnlog.wire.dialects.agent_names import AgentNames
from turnlog.wire.dialects.base import DialectOptions
from turnlog.wire.dialects.blocks_meta import MAX_HISTORY_BYTES, AgentMetaBuilder

WITH_HISTORY = DialectOptions(stream_meta_history_and_tool_results=True)
START = ev.AgentStart(name="Clerk", via="prompt", prompt="hello")
END = ev.AgentEnd(stop_reason="end_turn")


def conversation(count: int, size: int = 1000) -> list[Message]:
    texts = [f"<{number}>" + "x" * size for number in range(count)]
    return [Message("user", [{"type": "text", "text": text}]) for text in texts]


def tell(messages: list[Message]) -> dict[str, Any]:
    return AgentMetaBuilder(WITH_HISTORY, lambda _: messages, AgentNames()).build_init("1", START, "json")


def told_bytes(turns: int) -> int:
    """How many bytes the histories of so many turns have, each of which adds 10 kB to the conversation."""
    messages = conversation(10 * turns)
    return sum(len(json.dumps(tell(messages[: 10 * turn]))) for turn in range(1, turns + 1))


def test_history_within_the_bound_is_told_whole() -> None:
    told = tell(conversation(100))
    assert len(told["message_history"]) == 100
    assert "omitted_messages" not in told


def test_history_over_the_bound_has_the_newest_messages_and_says_how_many_are_left_out() -> None:
    told = tell(conversation(1000))
    texts = [message["content"][0]["text"] for message in told["message_history"]]
    assert texts[-1].startswith("<999>")
    assert texts[0].startswith(f"<{told['omitted_messages']}>")
    assert (
        len(json.dumps(told["message_history"], separators=(",", ":"))) <= MAX_HISTORY_BYTES + len(texts) + 1
    )


def test_newest_message_over_the_bound_is_told_whole() -> None:
    told = tell(conversation(3, size=2 * MAX_HISTORY_BYTES))
    assert len(told["message_history"]) == 1
    assert told["omitted_messages"] == 2


def test_end_of_an_agent_tells_as_much_as_its_start() -> None:
    messages = conversation(1000)
    final = AgentMetaBuilder(WITH_HISTORY, lambda _: messages, AgentNames()).build_final("1", END)
    assert final is not None
    assert final["conversation_history"] == tell(messages)["message_history"]
    assert final["omitted_messages"] == tell(messages)["omitted_messages"]


def test_histories_of_four_times_the_turns_have_about_four_times_the_bytes() -> None:
    assert told_bytes(240) < 5 * told_bytes(60)


def test_control_whole_histories_grow_with_the_square_of_the_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_meta, "MAX_HISTORY_BYTES", 1 << 40)
    assert told_bytes(120) > 3.5 * told_bytes(60)
