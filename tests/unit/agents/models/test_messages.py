"""Requests as bodies of the Messages API."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from turnlog.agents.models import Request, ToolSpec
from turnlog.agents.models.messages import MAX_IMAGE_CHARS, build_messages_body, may_think, parts_since_user
from turnlog.errors import NotFound
from turnlog.log import Blob
from turnlog.state.history import Message

VECTORS = json.loads((Path(__file__).parents[3] / "vectors" / "models" / "requests.json").read_text())
CALL = {"type": "tool_use", "id": "c1", "name": "weather", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "rain", "is_error": False}
WORDS = {"type": "text", "text": "Hi. \n"}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}


def said(*turns: list[dict[str, Any]]) -> list[Message]:
    return [Message(("user", "assistant")[place % 2], list(turn)) for place, turn in enumerate(turns)]


async def blob(digest: str) -> Blob:
    if digest not in VECTORS["blobs"]:
        raise NotFound(digest)
    media_type, text = VECTORS["blobs"][digest]
    return Blob(media_type, text.encode())


def body(*turns: list[dict[str, Any]], tools: tuple[ToolSpec, ...] = (), instructions: str = "") -> Any:
    return asyncio.run(build_messages_body(Request(instructions, said(*turns), tools, blob)))


@pytest.mark.parametrize("case", VECTORS["parts"], ids=lambda case: case["part"]["type"])
def test_vector(case: dict[str, Any]) -> None:
    before = json.dumps(case["part"])
    assert body([case["part"]])["messages"] == [{"role": "user", "content": [case["sent"]]}]
    assert json.dumps(case["part"]) == before, "the history is not changed"


def test_an_image_that_is_too_large_is_said_in_words() -> None:
    image = {
        "type": "image",
        "src": "data:image/png;base64," + "A" * (MAX_IMAGE_CHARS + 1),
        "media_type": "image/png",
    }
    [message] = body([image])["messages"]
    assert message["content"] == [{"type": "text", "text": "[an image that is too large to be shown]"}]


@pytest.mark.parametrize(
    ("content", "sent"),
    [
        ("rain", "rain\n[agent_id: agt_2]"),
        ("", "[agent_id: agt_2]"),
        ([WORDS], [WORDS, {"type": "text", "text": "[agent_id: agt_2]"}]),
    ],
)
def test_the_agent_that_gave_a_result_is_named_to_the_model(content: Any, sent: Any) -> None:
    result = RESULT | {"content": content, "agent_id": "agt_2"}
    message = body([{"type": "text", "text": "Go."}], [CALL], [result])["messages"][2]
    assert message["content"] == [RESULT | {"content": sent}]


def test_only_what_there_is_is_sent() -> None:
    assert set(body([WORDS])) == {"messages"}
    assert body([WORDS], instructions=" \n") == body([WORDS])
    assert body([WORDS], instructions="Be brief.")["system"] == "Be brief."
    assert body() == {"messages": []}


def test_a_conversation_with_calls_names_its_tools_even_if_none_may_be_called() -> None:
    sent = body([WORDS], [CALL, CALL | {"id": "c2"}], [RESULT, RESULT | {"tool_use_id": "c2"}])
    assert [tool["name"] for tool in sent["tools"]] == ["weather"]
    assert sent["tool_choice"] == {"type": "none"}
    given = body([WORDS], [CALL], [RESULT], tools=(ToolSpec("map", "A map.", {"type": "object"}),))
    assert given["tools"] == [{"name": "map", "description": "A map.", "input_schema": {"type": "object"}}]
    assert "tool_choice" not in given


def test_words_that_the_model_goes_on_with_have_no_white_space_at_their_end() -> None:
    assert body([WORDS], [WORDS])["messages"][1]["content"] == [{"type": "text", "text": "Hi."}]
    assert body([WORDS], [WORDS], [WORDS])["messages"][1]["content"] == [WORDS]
    assert body([WORDS], [CALL])["messages"][1]["content"] == [CALL]


@pytest.mark.parametrize(
    ("turns", "own", "may"),
    [
        ([], 0, True),
        ([[WORDS]], 0, True),
        ([[WORDS], [CALL], [RESULT]], 1, False),
        ([[WORDS], [THOUGHT, CALL], [RESULT]], 2, True),
        ([[WORDS], [THOUGHT, CALL], [RESULT], [CALL], [RESULT]], 3, True),
        ([[WORDS], [CALL], [RESULT], [THOUGHT, CALL], [RESULT]], 3, False),
        ([[WORDS], [CALL], [RESULT, WORDS]], 0, True),
        ([[WORDS], [WORDS], [WORDS]], 0, True),
    ],
)
def test_a_turn_that_began_without_a_thinking_goes_on_without_one(
    turns: list[list[dict[str, Any]]], own: int, may: bool
) -> None:
    messages = said(*turns)
    assert (len(parts_since_user(messages)), may_think(messages)) == (own, may)
