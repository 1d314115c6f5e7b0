"""The model `anthropic:` with the real SDK against a scripted provider on loopback."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import anthropic
import msgspec
import pytest

from tests.e2e.provider import (
    Answer,
    Connection,
    Provider,
    cut,
    opened,
    problem,
    refusing,
    serving,
    sse,
    whole,
)
from tests.logs import entry, scope
from turnlog.agents.models import AnthropicModel, ModelFault, Request, ToolSpec, make_model
from turnlog.events import (
    CATALOG,
    AgentStart,
    BlockDelta,
    BlockEnd,
    Image,
    ParseReject,
    Payload,
    ToolCall,
    ToolResult,
    Usage,
)
from turnlog.log import Blob
from turnlog.parse.reply import Reply
from turnlog.state.history import History, Message

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "parse" / "messages_api.json").read_text())
STREAMS: dict[str, dict[str, Any]] = {
    vector["id"]: vector
    for vector in VECTORS["vectors"]
    if all(isinstance(event, dict) and isinstance(event.get("type"), str) for event in vector["events"])
    and not vector.get("dicts_only")
    and "demo.note" not in json.dumps(vector["expected"])
}
FAULTS = [name for name, vector in STREAMS.items() if "error" in vector["reply"]]
WHOLE = [name for name in STREAMS if name not in FAULTS and "after the end" not in name]
WAIT_S = 10.0  # no test waits for it: what it waits for has happened, or will not happen
KEY = "sk-ant-secret-0123456789"
HELLO = [Message("user", [{"type": "text", "text": "Grass?"}])]
PNG = b"\x89PNG\r\n\x1a\n green"

START = {"type": "message_start", "message": {"id": "msg_1", "model": "m", "usage": {"input_tokens": 3}}}
STOP = {"type": "message_stop"}


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any], stop: bool = True) -> list[Any]:
    events = [{"type": "content_block_start", "index": index, "content_block": content}]
    events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return events + ([{"type": "content_block_stop", "index": index}] if stop else [])


def text(*pieces: str, index: int = 0, stop: bool = True) -> list[Any]:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return block(index, {"type": "text", "text": ""}, *deltas, stop=stop)


def ending(reason: str, **more: Any) -> list[Any]:
    delta = {"stop_reason": reason, "stop_sequence": None, **more}
    return [{"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}}, STOP]


def message(*blocks: list[Any], reason: str = "end_turn", **more: Any) -> list[Any]:
    return [START, *(event for events in blocks for event in events), *ending(reason, **more)]


def new_reply() -> Reply:
    counts = {"blk_": count(1), "call_": count(1)}
    return Reply(
        lambda prefix: f"{prefix}{next(counts[prefix])}",
        executor=lambda tool: "frontend" if tool == "confirm" else "backend",
    )


class Talk:
    """A model that talks with a provider, and what came of it."""

    def __init__(self, provider: Provider, model: AnthropicModel) -> None:
        self.provider, self.model = provider, model
        self.reply = new_reply()
        self.said: list[Payload] = []
        self.fault: ModelFault | None = None

    async def ask(self, request: Request = Request("", HELLO)) -> None:  # noqa: B008
        self.reply, self.said, self.fault = new_reply(), [], None
        try:
            async for batch in self.model.stream(request, self.reply):
                self.said += batch
        except ModelFault as fault:
            self.fault = fault

    @property
    def body(self) -> Any:
        """What the provider was asked last."""
        return self.provider.asked[-1].body


@asynccontextmanager
async def talking(*answers: Answer, patience_s: float = WAIT_S, **settings: Any) -> AsyncIterator[Talk]:
    async with serving(*answers) as provider, asyncio.timeout(WAIT_S):
        client = anthropic.AsyncAnthropic(base_url=provider.url, api_key=KEY, timeout=patience_s)
        async with client:
            yield Talk(provider, AnthropicModel("claude-test", client=client, **settings))


def told(*answers: Answer, request: Request = Request("", HELLO), **settings: Any) -> Talk:  # noqa: B008
    """One request, and what came of it."""

    async def play() -> Talk:
        async with talking(*answers, **settings) as talk:
            await talk.ask(request)
            return talk

    return asyncio.run(play())


def shown(payload: Payload) -> dict[str, Any]:
    """A payload as it stands in a vector."""
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(payload))
    if isinstance(payload, ParseReject):
        fields = {name: fields[name] for name in ("reason", "name") if name in fields}
    return fields | {"type": CATALOG.name(type(payload))}


@pytest.mark.parametrize("name", WHOLE)
def test_every_stream_becomes_what_its_vector_says(name: str) -> None:
    talk = told(whole(STREAMS[name]["events"]))
    assert [shown(payload) for payload in talk.said] == STREAMS[name]["expected"]
    assert (talk.fault, talk.reply.complete) == (None, True)


@pytest.mark.parametrize("name", FAULTS)
def test_a_stream_that_fails_ends_with_what_closes_it_and_a_fault(name: str) -> None:
    talk = told(whole(STREAMS[name]["events"]))
    assert [shown(payload) for payload in talk.said] == STREAMS[name]["expected"]
    assert not talk.reply.complete
    assert talk.fault
    assert talk.reply.error
    assert talk.reply.error.code == talk.fault.code


@pytest.mark.parametrize(
    ("kind", "retriable"),
    [
        *((kind, True) for kind in ("overloaded_error", "api_error", "rate_limit_error", "timeout_error")),
        *((kind, False) for kind in ("invalid_request_error", "authentication_error", "permission_error")),
    ],
)
def test_an_error_in_mid_stream_is_as_retriable_as_its_type(kind: str, retriable: bool) -> None:
    talk = told(whole([START, *text("Gra", stop=False), problem(kind)]))
    assert talk.fault
    assert (talk.fault.code, talk.fault.retriable) == (kind, retriable)
    assert talk.said[-1] == BlockEnd(block_id="blk_1", status="aborted", text="Gra")
    assert talk.reply.block_ids == ("blk_1",)
    assert talk.reply.usage == Usage(input_tokens=3, output_tokens=0)


@pytest.mark.parametrize("how", [cut, whole])
def test_a_stream_without_its_end_is_a_fault_to_be_retried(how: Callable[[list[Any]], Answer]) -> None:
    talk = told(how([START, *text("Gra", stop=False)]))
    assert talk.fault
    assert (talk.fault.code, talk.fault.retriable) == ("incomplete", True)
    assert talk.said[-1] == BlockEnd(block_id="blk_1", status="aborted", text="Gra")


def test_what_cannot_be_read_is_a_fault_to_be_retried() -> None:
    async def answer(connection: Connection) -> None:
        await connection.send(opened())
        await connection.chunk(sse([START]) + b"event: content_block_start\ndata: {no json\n\n")

    talk = told(answer)
    assert talk.fault
    assert (talk.fault.code, talk.fault.retriable) == ("bad_stream", True)


@pytest.mark.parametrize(
    ("status", "kind", "code", "retriable"),
    [
        (400, "invalid_request_error", "invalid_request_error", False),
        (401, "authentication_error", "authentication_error", False),
        (403, "permission_error", "permission_error", False),
        (404, "not_found_error", "not_found_error", False),
        (413, "request_too_large", "request_too_large", False),
        (413, None, "request_too_large", False),
        (418, None, "invalid_request_error", False),
        (429, "rate_limit_error", "rate_limit_error", True),
        (429, None, "rate_limit_error", True),
        (500, "api_error", "api_error", True),
        (502, None, "api_error", True),
        (503, "invalid_request_error", "api_error", True),
        (504, None, "timeout_error", True),
        (529, "overloaded_error", "overloaded_error", True),
        (529, None, "overloaded_error", True),
    ],
)
def test_an_answer_that_is_no_stream(status: int, kind: str | None, code: str, retriable: bool) -> None:
    detail = f"x-api-key {KEY} is\nwrong"
    body = json.dumps(problem(kind, detail)).encode() if kind else b"<html>down</html>"
    talk = told(refusing(status, body, "content-type: application/json\r\n" if kind else ""))
    assert talk.fault
    assert (talk.fault.code, talk.fault.retriable, talk.said) == (code, retriable, [])
    assert len(talk.provider.asked) == 1, "retries are not the client's"
    assert "secret" not in f"{talk.fault} {talk.fault.message} {talk.model!r}"
    assert talk.provider.asked[0].headers["authorization"].endswith(KEY)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ("", None),
        ("retry-after: 7\r\n", 7.0),
        ("retry-after-ms: 250\r\n", 0.25),
        ("retry-after: soon\r\n", None),
    ],
)
def test_the_provider_says_how_long_to_wait(headers: str, seconds: float | None) -> None:
    talk = told(refusing(529, json.dumps(problem("overloaded_error")).encode(), headers))
    assert talk.fault
    assert talk.fault.retry_after_s == seconds


def test_a_refusal_says_why_in_the_providers_words() -> None:
    talk = told(refusing(400, json.dumps(problem("invalid_request_error", "max_tokens: too many")).encode()))
    assert talk.fault
    assert talk.fault.message == "The model's provider refused the request: max_tokens: too many"


def test_a_provider_that_is_not_there_and_one_that_is_silent() -> None:
    async def play() -> list[tuple[str, bool]]:
        found = []
        async with talking() as talk:
            gone = anthropic.AsyncAnthropic(base_url="http://127.0.0.1:9", api_key=KEY)
            async with gone:
                talk.model = AnthropicModel("claude-test", client=gone)
                await talk.ask()
                assert talk.fault
                found.append((talk.fault.code, talk.fault.retriable))
        for answer in (Connection.hung_up, silent):
            async with talking(answer, patience_s=0.05) as talk:
                await talk.ask()
                assert talk.fault
                found.append((talk.fault.code, talk.fault.retriable))
        return found

    async def silent(connection: Connection) -> None:
        await connection.send(opened())
        await connection.chunk(sse([START, *text("Gra", stop=False)]))
        await connection.hung_up()

    assert asyncio.run(play()) == [
        ("connection_error", True),
        ("timeout_error", True),
        ("timeout_error", True),
    ]


@pytest.mark.parametrize("place", ["HOME", "ANTHROPIC_CONFIG_DIR"])
def test_without_a_key_the_fault_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv(place, str(tmp_path))

    async def play() -> ModelFault | None:
        model = make_model("anthropic:claude-test")
        assert isinstance(model, AnthropicModel)
        talk = Talk(Provider(), model)
        await talk.ask()
        await model.aclose()
        await model.aclose()
        return talk.fault

    fault = asyncio.run(play())
    assert fault
    assert (fault.code, fault.retriable) == ("authentication_error", False)
    assert "ANTHROPIC_API_KEY" in fault.message


def test_the_key_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        async with serving(whole(message(text("Green.")))) as provider:
            monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
            monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
            model = make_model("anthropic:claude-test")
            assert isinstance(model, AnthropicModel)
            talk = Talk(provider, model)
            await talk.ask()
            assert (talk.reply.said, model.name) == ("Green.", "claude-test")
            assert provider.asked[0].headers["authorization"].endswith(KEY)
            await model.aclose()

    asyncio.run(play())


def test_pieces_are_there_before_the_next_one_is_sent() -> None:
    heard = asyncio.Event()

    async def answer(connection: Connection) -> None:
        events = message(text("One. ", "Two."))
        await connection.send(opened())
        await connection.chunk(sse(events[:3]))
        await heard.wait()
        await connection.chunk(sse(events[3:]))
        await connection.send(b"0\r\n\r\n")

    async def play() -> list[str]:
        pieces = []
        async with talking(answer) as talk:
            async for batch in talk.model.stream(Request("", HELLO), talk.reply):
                pieces += [payload.text for payload in batch if isinstance(payload, BlockDelta)]
                heard.set()
        return pieces

    assert asyncio.run(play()) == ["One.", " Two."]


def test_the_end_of_the_message_is_enough_and_the_connection_is_used_again() -> None:
    async def endless(connection: Connection) -> None:
        await connection.send(opened())
        await connection.chunk(sse(message(text("Two."))))
        await connection.hung_up()

    async def play() -> None:
        async with talking(whole(message(text("One."))), endless) as talk:
            await talk.ask()
            await talk.ask()
            assert (talk.reply.said, talk.fault) == ("Two.", None)
            assert [asked.connection for asked in talk.provider.asked] == [1, 1]

    asyncio.run(play())


Leave = Callable[[Talk, asyncio.Event], Coroutine[Any, Any, None]]


async def cancelling(talk: Talk, begun: asyncio.Event) -> None:
    task = asyncio.create_task(talk.ask())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def turning_away(talk: Talk, _: asyncio.Event) -> None:
    stream = talk.model.stream(Request("", HELLO), talk.reply)
    async for _batch in stream:
        break
    await stream.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("leave", "sent"),
    [
        (cancelling, []),
        (cancelling, [START]),
        (cancelling, [START, *text("One.")]),
        (turning_away, text("One.")),
    ],
    ids=["before the answer", "before the first block", "in mid-stream", "turning away"],
)
def test_leaving_closes_the_connection(leave: Leave, sent: list[Any]) -> None:
    begun, left = asyncio.Event(), asyncio.Event()

    async def answer(connection: Connection) -> None:
        if sent:
            await connection.send(opened())
            await connection.chunk(sse(sent))
        begun.set()
        await connection.hung_up()
        left.set()

    async def play() -> None:
        async with talking(answer) as talk:
            await leave(talk, begun)
            await left.wait()

    asyncio.run(play())


def test_a_pause_a_limit_in_mid_json_and_a_refusal() -> None:
    search = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    paused = told(whole(message(block(0, search), reason="pause_turn")))
    assert (paused.reply.stop_reason, paused.reply.calls) == ("pause_turn", [])
    half = {"type": "input_json_delta", "partial_json": '{"city": "Os'}
    weather = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
    limited = told(whole(message(block(0, weather, half), reason="max_tokens")))
    assert limited.reply.stop_reason == "max_tokens"
    assert [(call.args, call.incomplete) for call in limited.reply.calls] == [({}, '{"city": "Os')]
    refused = told(whole(message(text("I"), block(1, weather), reason="refusal")))
    assert (refused.reply.stop_reason, refused.reply.calls, refused.fault) == ("refusal", [], None)


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
    assert talk.reply.said == "Green."
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
            images = (Image(src="/api/blobs/ab12", media_type="image/png"),)
            result = ToolResult(call_id="toolu_1", tool="camera", ok=True, result="a lawn", images=images)
            history.apply(*entry(result, at))
            await talk.ask(Request("", history.messages("agt_1"), blob=blob))
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
    monkeypatch.setattr("turnlog.agents.models.anthropic.CONTAINERS", 1)
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
