"""Model `anthropic:` with the real SDK against a scripted provider on loopback: streams and their ends."""

import asyncio
import json
from collections.abc import Callable, Coroutine
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
from tests.e2e.talk import HELLO, KEY, START, Talk, block, message, talking, text, told
from turnlog.agents.models import AnthropicModel, ModelError, Request, make_model
from turnlog.events import CATALOG, BlockDelta, BlockEnd, ParseReject, Payload, Usage

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


def shown(payload: Payload) -> dict[str, Any]:
    """A payload as it stands in a vector."""
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(payload))
    if isinstance(payload, ParseReject):
        fields = {name: fields[name] for name in ("reason", "name") if name in fields}
    return fields | {"type": CATALOG.get_type_name(type(payload))}


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

    async def play() -> ModelError | None:
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
            assert (talk.reply.text_so_far, model.name) == ("Green.", "claude-test")
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
            assert (talk.reply.text_so_far, talk.fault) == ("Two.", None)
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
