"""What the model `anthropic:` asks: requests as they arrive at a scripted provider on loopback."""

import asyncio
import base64
from typing import Any

import pytest

from tests.e2e.provider import whole
from tests.e2e.talk import HELLO, block, message, talking, text, told
from tests.support.written_logs import entry, scope
from turnlog.agents.models import Request, ToolSpec
from turnlog.events import AgentStart, Image, ToolCall, ToolResult
from turnlog.log import Blob
from turnlog.state.history import History, Message

PNG = b"\x89PNG\r\n\x1a\n green"


def test_the_request_says_what_the_agent_has() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    request = Request("Be brief.", HELLO, (ToolSpec("weather", "The weather.", schema),), max_tokens=77)
    search = {"type": "web_search_20250305", "name": "web_search"}
    talk = told(
        whole(message(text("Green."))),
        request=request,
        provider_tools=(search,),
        thinking={"type": "enabled", "budget_tokens": 1024},
        options={"cache_control": {"type": "ephemeral"}},
    )
    assert talk.body == {
        "model": "claude-test",
        "max_tokens": 77,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Grass?"}]}],
        "tools": [{"name": "weather", "description": "The weather.", "input_schema": schema}, search],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "cache_control": {"type": "ephemeral"},
        "stream": True,
    }
    assert talk.provider.asked[0].path == "/v1/messages"


def test_betas_are_asked_for() -> None:
    talk = told(whole(message(text("Green."))), betas=("mcp-client-2025-11-20",))
    assert talk.reply.text_so_far == "Green."
    assert talk.provider.asked[0].headers["anthropic-beta"] == "mcp-client-2025-11-20"


def test_the_conversation_goes_back_as_it_came_and_images_arrive() -> None:
    """Through the log and back: what one answer said is in the next request."""
    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    thought = [
        {"type": "thinking_delta", "thinking": "Hm."},
        {"type": "signature_delta", "signature": "c2ln"},
    ]
    search = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "grass"}}
    page = {"type": "web_search_result", "url": "https://a.example", "title": "A", "encrypted_content": "ZQ"}
    found = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [page]}
    where: dict[str, Any] = {"url": "https://a.example", "title": None, "encrypted_index": "ZQ"}
    source = {"type": "web_search_result_location", "cited_text": "green", **where}
    cites = {"type": "citations_delta", "citation": source}
    camera = {"type": "tool_use", "id": "toolu_1", "name": "camera", "input": {}}
    first = message(
        block(0, thinking, *thought),
        block(1, {"type": "redacted_thinking", "data": "ZW5j"}),
        block(2, search),
        block(3, found),
        block(4, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Green."}, cites),
        block(5, camera, {"type": "input_json_delta", "partial_json": '{"of": "grass"}'}),
        reason="tool_use",
    )
    history, at = History(), scope("agt_1")
    history.apply(*entry(AgentStart(name="Guide", via="prompt", prompt="Grass?"), at))

    async def blob(digest: str) -> Blob:
        assert digest == "ab12"
        return Blob("image/png", PNG)

    async def play() -> Any:
        async with talking(whole(first), whole(message(text("Yes.")))) as talk:
            await talk.ask(Request("", history.messages("agt_1")))
            for payload in talk.said:
                history.apply(*entry(payload, at))
            assert [call.tool for call in talk.reply.calls] == ["camera"]
            images = (Image(src="api/blobs/ab12", media_type="image/png"),)
            result = ToolResult(call_id="toolu_1", tool="camera", ok=True, result="a lawn", images=images)
            history.apply(*entry(result, at))
            await talk.ask(Request("", history.messages("agt_1"), read_blob=blob))
            return talk.body["messages"]

    picture = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}
    content = [{"type": "text", "text": "a lawn"}, {"type": "image", "source": picture}]
    assert asyncio.run(play())[1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "ZW5j"},
                search,
                found,
                {"type": "text", "text": "Green.", "citations": [source]},
                camera | {"input": {"of": "grass"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, "is_error": False}
            ],
        },
    ]


def test_what_goes_on_in_a_container_names_it_and_another_turn_does_not() -> None:
    code = {"type": "server_tool_use", "id": "srv_1", "name": "code_execution", "input": {}}
    box = {"id": "container_1", "expires_at": "2026-01-08T12:00:00Z"}
    paused = [*HELLO, Message("assistant", [code])]
    spoken = [*paused, Message("user", [{"type": "text", "text": "Now?"}])]

    async def play() -> list[Any]:
        first = whole(message(block(0, code), reason="pause_turn", container=box))
        async with talking(first, *[whole(message(text("Done.")))] * 2) as talk:
            await talk.ask()
            assert isinstance(talk.said[-1], ToolCall)
            await talk.ask(Request("", paused))
            await talk.ask(Request("", spoken))
            return [asked.body.get("container") for asked in talk.provider.asked]

    assert asyncio.run(play()) == [None, "container_1", None]


def test_only_so_many_containers_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnlog.agents.models.anthropic.MAX_CONTAINERS", 1)
    codes = [{"type": "server_tool_use", "id": f"srv_{n}", "name": "bash", "input": {}} for n in range(2)]
    first = message(
        block(0, codes[0]), block(1, codes[1]), reason="pause_turn", container={"id": "container_1"}
    )

    async def play() -> list[Any]:
        async with talking(whole(first), *[whole(message(text("Done.")))] * 2) as talk:
            await talk.ask()
            for code in codes:
                await talk.ask(Request("", [*HELLO, Message("assistant", [code])]))
            return [asked.body.get("container") for asked in talk.provider.asked]

    assert asyncio.run(play()) == [None, None, "container_1"]


def test_an_option_that_the_client_does_not_know_is_the_programs_fault() -> None:
    with pytest.raises(TypeError, match="nonsense"):
        told(options={"nonsense": 1})
