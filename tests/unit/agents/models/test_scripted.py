"""The offline model: its script, word by word."""

import asyncio
from collections.abc import Callable
from itertools import count

import pytest

from turnlog.agents import Model, Reply, Request, Scripted, ToolUse
from turnlog.events import BlockDelta, Payload, ToolCall, Usage
from turnlog.state.history import Message


def numbered() -> Callable[[str], str]:
    numbers = count(1)
    return lambda prefix: f"{prefix}{next(numbers)}"


async def streamed(model: Model, messages: list[Message], reply: Reply) -> list[list[Payload]]:
    return [batch async for batch in model.stream(Request("Be brief.", messages), reply)]


def spoken(*script: str | ToolUse) -> tuple[Reply, list[list[Payload]]]:
    reply = Reply(numbered())
    return reply, asyncio.run(streamed(Scripted(lambda messages: script), [], reply))


def texts(batches: list[list[Payload]]) -> list[str]:
    return [payload.text for batch in batches for payload in batch if isinstance(payload, BlockDelta)]


def test_a_text_comes_word_by_word_and_the_end_last() -> None:
    reply, batches = spoken("Let me see.")
    assert texts(batches) == ["Let", " me", " see."]
    assert len(batches) == 4
    assert (reply.complete, reply.stop_reason) == (True, "end_turn")
    assert reply.usage == Usage(input_tokens=0, output_tokens=0)


def test_texts_and_calls_keep_their_order() -> None:
    reply, batches = spoken("One.", ToolUse("weather", {"city": "Oslo"}), "Two.")
    kinds = [type(payload).TYPE for batch in batches for payload in batch]
    assert [kind for kind in kinds if kind.startswith(("assistant", "tool"))] == [
        "assistant.message",
        "tool.call",
        "assistant.message",
    ]
    assert isinstance(batches[-1][1], ToolCall)
    assert reply.calls == [batches[-1][1]]
    assert (reply.calls[0].args, reply.stop_reason) == ({"city": "Oslo"}, "tool_use")


@pytest.mark.parametrize("text", ["one", "one two\n\nthree ", "- a\n- b\n", "ünï €😀\u2028x", "a\u00a0b"])
def test_the_words_joined_are_the_text(text: str) -> None:
    reply, batches = spoken(text)
    assert "".join(texts(batches)) == reply.said == text


@pytest.mark.parametrize("script", [(), ("",), (" \n",)])
def test_a_blank_script_only_ends(script: tuple[str, ...]) -> None:
    reply, batches = spoken(*script)
    assert (batches, reply.complete) == ([[]], True)


def test_the_script_reads_the_conversation() -> None:
    conversation = [Message("user", [{"type": "text", "text": "Oslo"}])]
    model = Scripted(lambda messages: [str(messages[0].content[0]["text"])])
    assert texts(asyncio.run(streamed(model, conversation, Reply(numbered())))) == ["Oslo"]


def test_a_script_that_breaks_breaks_after_what_it_said() -> None:
    def script(messages: list[Message]) -> list[str | ToolUse]:
        raise ConnectionError("the line is dead")

    with pytest.raises(ConnectionError):
        asyncio.run(streamed(Scripted(script), [], Reply(numbered())))


def test_it_has_a_name_for_the_log() -> None:
    assert Scripted(lambda messages: []).name == "scripted"
    assert Scripted(lambda messages: [], name="rehearsed").name == "rehearsed"
