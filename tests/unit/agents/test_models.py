"""The offline model: its script, word by word."""

import asyncio

import pytest

from turnlog.agents.models import Done, Model, Part, Scripted, Text, ToolUse
from turnlog.events import Usage
from turnlog.state.history import Message

NOTHING = Done(Usage(input_tokens=0, output_tokens=0))


async def streamed(model: Model, messages: list[Message]) -> list[Part]:
    return [part async for part in model.stream("Be brief.", messages)]


def spoken(*script: str | ToolUse) -> list[Part]:
    return asyncio.run(streamed(Scripted(lambda messages: script), []))


def test_a_text_comes_word_by_word_and_the_usage_at_the_end() -> None:
    assert spoken("Let me see.") == [Text("Let "), Text("me "), Text("see."), NOTHING]


def test_texts_and_calls_keep_their_order() -> None:
    use = ToolUse("weather", {"city": "Oslo"})
    assert spoken("One.", use, "Two.") == [Text("One."), use, Text("Two."), NOTHING]


@pytest.mark.parametrize(
    "text", ["one", " one", "one two\n\nthree ", "\n- a\n- b\n", "ünï €😀\u2028x", "a\u00a0b"]
)
def test_the_words_joined_are_the_text(text: str) -> None:
    assert "".join(part.text for part in spoken(text) if isinstance(part, Text)) == text


@pytest.mark.parametrize("script", [(), ("",), (" \n",)])
def test_a_blank_script_only_ends(script: tuple[str, ...]) -> None:
    assert spoken(*script) == [NOTHING]


def test_the_script_reads_the_conversation() -> None:
    conversation = [Message("user", [{"type": "text", "text": "Oslo"}])]
    model = Scripted(lambda messages: [str(messages[0].content[0]["text"])])
    assert asyncio.run(streamed(model, conversation)) == [Text("Oslo"), NOTHING]


def test_a_script_that_breaks_breaks_after_what_it_said() -> None:
    def script(messages: list[Message]) -> list[str | ToolUse]:
        raise ConnectionError("the line is dead")

    with pytest.raises(ConnectionError):
        asyncio.run(streamed(Scripted(script), []))


def test_it_has_a_name_for_the_log() -> None:
    assert Scripted(lambda messages: []).name == "scripted"
    assert Scripted(lambda messages: [], name="rehearsed").name == "rehearsed"
