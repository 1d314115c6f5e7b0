"""Scripts in JSON: what they say, and what is wrong with them."""

import asyncio
import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from turnlog.agents.models import ModelError, Request, Scripted
from turnlog.agents.models.script import __doc__ as guide
from turnlog.agents.models.script import load_script, read_script, tool_result_text
from turnlog.errors import CallerError
from turnlog.events import AssistantFiles, AssistantMessage, AssistantThinking, Payload, ToolCall, Usage
from turnlog.parse.reply import ReplyBuilder
from turnlog.state.history import Message

VECTORS = json.loads((Path(__file__).parents[3] / "vectors" / "models" / "scripts.json").read_text())


def conversation(said: list[str | list[str]]) -> list[Message]:
    messages: list[Message] = []
    for number, item in enumerate(said):
        if isinstance(item, str):
            if messages:
                messages.append(Message("assistant", [{"type": "text", "text": "So."}]))
            messages.append(Message("user", [{"type": "text", "text": item}]))
            continue
        tool, result = item
        call = {"type": "tool_use", "id": f"c{number}", "name": tool, "input": {}}
        answer = {"type": "tool_result", "tool_use_id": f"c{number}", "content": result, "is_error": False}
        messages += [Message("assistant", [call]), Message("user", [answer])]
    return messages


@pytest.fixture
def model(tmp_path: Path) -> Scripted:
    path = tmp_path / "demo.json"
    path.write_text(json.dumps(VECTORS["script"]))
    return load_script(str(path))


def speak(model: Scripted, said: list[str | list[str]]) -> tuple[ReplyBuilder, list[Payload]]:
    numbers = count(1)
    reply = ReplyBuilder(lambda prefix: f"{prefix}{next(numbers)}")

    async def play() -> list[Payload]:
        stream = model.stream(Request("", conversation(said)), reply)
        return [payload async for batch in stream for payload in batch]

    return reply, asyncio.run(play())


@pytest.mark.parametrize("talk", VECTORS["talks"], ids=lambda talk: str(talk["said"]))
def test_vector(model: Scripted, talk: dict[str, Any]) -> None:
    if "fault" in talk:
        with pytest.raises(ModelError) as caught:
            speak(model, talk["said"])
        assert (caught.value.code, caught.value.retriable) == (talk["fault"], False)
        return
    reply, _ = speak(model, talk["said"])
    assert (reply.text_so_far, [call.tool for call in reply.calls]) == (talk["say"], talk["calls"])


def test_every_part_is_said(model: Scripted) -> None:
    reply, said = speak(model, ["everything"])
    [message] = [payload for payload in said if isinstance(payload, AssistantMessage)]
    assert [citation.cited_text for citation in message.citations] == ["so"]
    assert [payload.args for payload in said if isinstance(payload, ToolCall)] == [{"query": "everything"}]
    assert any(isinstance(payload, AssistantFiles) for payload in said)
    assert (reply.usage, reply.stop_reason) == (Usage(input_tokens=1, output_tokens=2), "max_tokens")


def test_names_are_filled_into_arguments_too(model: Scripted) -> None:
    reply, said = speak(model, ["a trip to Oslo"])
    assert reply.calls[0].args == {"of": ["Oslo"], "zoom": 3}
    [thinking] = [payload for payload in said if isinstance(payload, AssistantThinking)]
    assert (thinking.text, thinking.signature) == ("A trip.", "c2ln")


def test_a_retry_succeeds_and_another_turn_fails_again(model: Scripted) -> None:
    for said in (["fail"], ["hello", "fail"]):
        with pytest.raises(ModelError) as caught:
            speak(model, list(said))
        assert caught.value.retriable
        assert speak(model, list(said))[0].text_so_far == "One. Two."


def test_what_nobody_foresaw_is_named(model: Scripted) -> None:
    with pytest.raises(ModelError, match=r"demo\.json has no step for 'hello' after odd"):
        speak(model, ["hello", ["odd", "1"]])


@pytest.mark.parametrize("case", VECTORS["wrong"], ids=lambda case: case["at"])
def test_what_is_wrong_is_named_with_its_place(case: dict[str, str]) -> None:
    with pytest.raises(CallerError) as caught:
        read_script(case["script"].encode(), "demo.json")
    assert str(caught.value).startswith("demo.json")
    assert case["at"] in str(caught.value)


@pytest.mark.parametrize("data", [b"\xff", b""])
def test_bytes_that_are_no_text_are_not_json(data: bytes) -> None:
    with pytest.raises(CallerError, match=r"^demo\.json is not JSON"):
        read_script(data, "demo.json")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match=r"cannot read the script .*none\.json: No such file"):
        load_script(str(tmp_path / "none.json"))


def test_the_timing_is_the_files(tmp_path: Path) -> None:
    path = tmp_path / "slow.json"
    path.write_text('{"pace_s": 0.5, "first_s": 2, "steps": [{"say": ["Hi."]}]}')
    model = load_script(str(path))
    assert (model.word_delay_s, model.initial_delay_s, model.name) == (0.5, 2, "scripted:slow")


def test_the_words_of_a_result_with_images() -> None:
    image = {"type": "image", "src": "api/blobs/1", "media_type": "image/png"}
    assert tool_result_text([{"type": "text", "text": "a"}, image, {"type": "text", "text": "b"}]) == "a\nb"


def test_the_example_of_the_guide_is_a_script() -> None:
    assert guide
    example = guide[guide.index("{") : guide.index("A file may also")]
    play = read_script(example.encode(), "guide")
    assert (len(play.steps), play.pace_s, play.first_s) == (4, 0.03, 0.4)


def test_a_step_without_a_condition_always_fits(tmp_path: Path) -> None:
    path = tmp_path / "always.json"
    path.write_text('[{"say": ["{text}{result}"]}]')
    model = load_script(str(path))
    assert speak(model, ["hi"])[0].text_so_far == "hi"
    assert speak(model, ["hi", ["odd", "1"]])[0].text_so_far == "hi1"
