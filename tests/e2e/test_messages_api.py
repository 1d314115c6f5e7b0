"""The real `anthropic` client reads a scripted server on loopback; what it hands out becomes the events."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import anthropic
import msgspec
import pytest

from turnlog.events import CATALOG, ErrorInfo, ParseReject, Payload, Vocabulary
from turnlog.parse import MessagesParser, ReplyBuilder
from turnlog.parse.reply import tag_parser_factory

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "parse" / "messages_api.json").read_text())[
    "vectors"
]
STREAMS: dict[str, dict[str, Any]] = {
    vector["id"]: vector
    for vector in VECTORS
    if all(isinstance(event, dict) and isinstance(event.get("type"), str) for event in vector["events"])
    and not vector.get("dicts_only")
    and "demo.note" not in json.dumps(vector["expected"])
}
FAULTS = [name for name, vector in STREAMS.items() if "error" in vector["reply"]]
WHOLE = [name for name in STREAMS if name not in FAULTS and "after the end" not in name]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"
BUSY = b"HTTP/1.1 529 Overloaded\r\ncontent-type: application/json\r\nconnection: close\r\nretry-after: 0\r\n"
OVERLOADED = json.dumps({"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}}).encode()

KINDS = [
    *("text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "container_upload"),
    *("web_search_tool_result", "web_fetch_tool_result", "tool_search_tool_result"),
    *("code_execution_tool_result", "bash_code_execution_tool_result"),
    *("text_editor_code_execution_tool_result", "mcp_tool_use", "mcp_tool_result", "compaction"),
    *("char_location", "page_location", "content_block_location"),
    *("web_search_result_location", "search_result_location"),
]

Answer = Callable[[asyncio.StreamWriter], None]


def sse(name: str) -> bytes:
    events = STREAMS[name]["events"]
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json.dumps(event).encode()) for event in events
    )


def stream(body: bytes) -> Answer:
    """An answer that ends as HTTP says."""
    head = HEAD + b"content-length: %d\r\n\r\n" % len(body)
    return lambda writer: writer.write(head + body)


def cut(body: bytes) -> Answer:
    """An answer whose connection breaks off: the promised end of the chunked body never comes."""
    chunk = b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(body), body)
    return lambda writer: writer.write(HEAD + chunk)


def busy(writer: asyncio.StreamWriter) -> None:
    writer.write(BUSY + b"content-length: %d\r\n\r\n" % len(OVERLOADED) + OVERLOADED)


@asynccontextmanager
async def serving(*answers: Answer) -> AsyncIterator[tuple[str, list[str]]]:
    """A server with one answer per request, and the requests it got."""
    requests: list[str] = []
    left = iter(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = head.partition("content-length:")[2].split("\r\n")[0]
        await reader.readexactly(int(length or 0))
        requests.append(head.split("\r\n")[0])
        next(left)(writer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", requests


def parser() -> MessagesParser:
    counts = {"blk_": count(1), "call_": count(1)}
    reply = ReplyBuilder(
        lambda prefix: f"{prefix}{next(counts[prefix])}",
        tag_parser_factory(Vocabulary("none", [])),
        executor_for=lambda tool: "frontend" if tool == "confirm" else "backend",
    )
    return MessagesParser(reply)


async def ask(url: str, parsing: MessagesParser, said: list[Payload], retries: int = 0) -> None:
    """One request with the real client, read as a model of Turnlog would."""
    async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=retries) as client:
        events = await client.messages.create(
            model="scripted",
            max_tokens=100,
            messages=[{"role": "user", "content": "Grass?"}],
            stream=True,
        )
        async for event in events:
            said += parsing.feed(event)


def read(*answers: Answer, retries: int = 0) -> tuple[MessagesParser, list[Payload], list[str], str | None]:
    """What was said, the requests it took, and the exception that ended it."""

    async def play() -> tuple[MessagesParser, list[Payload], list[str], str | None]:
        parsing, said, failure = parser(), list[Payload](), None
        async with serving(*answers) as (url, requests):
            try:
                await ask(url, parsing, said, retries)
            except Exception as error:  # noqa: BLE001  whatever the client raises: its class is the finding
                failure = type(error).__name__
                code = str(getattr(error, "type", None) or failure)
                said += parsing.flush(ErrorInfo(code=code, message=code))
            said += parsing.flush()
        return parsing, said, requests, failure

    return asyncio.run(play())


def shown(payload: Payload) -> dict[str, Any]:
    """A payload as it stands in a vector."""
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(payload))
    if isinstance(payload, ParseReject):
        fields = {name: fields[name] for name in ("reason", "name") if name in fields}
    return fields | {"type": CATALOG.get_type_name(type(payload))}


@pytest.mark.parametrize("name", WHOLE)
def test_the_client_gives_what_the_vectors_say(name: str) -> None:
    parsing, said, _, failure = read(stream(sse(name)))
    assert [shown(payload) for payload in said] == STREAMS[name]["expected"]
    assert (failure, parsing.reply.complete) == (None, True)


@pytest.mark.parametrize("name", FAULTS)
def test_an_error_or_a_clean_end_without_message_stop_is_a_failure(name: str) -> None:
    parsing, said, _, failure = read(stream(sse(name)))
    vector = STREAMS[name]
    assert [shown(payload) for payload in said] == vector["expected"]
    assert not parsing.reply.complete
    assert parsing.reply.error is not None
    sent = [event["type"] for event in vector["events"]]
    assert failure == ("APIStatusError" if "error" in sent else None)
    if vector["reply"]["error"]["code"] != "error":
        assert parsing.reply.error.code == vector["reply"]["error"]["code"]


@pytest.mark.parametrize("name", ["a stream that ends in a text", "a stream that ends in arguments"])
def test_a_connection_that_breaks_keeps_what_there_was(name: str) -> None:
    parsing, said, _, failure = read(cut(sse(name)))
    assert failure == "RemoteProtocolError"
    assert [shown(payload) for payload in said] == STREAMS[name]["expected"]
    assert parsing.reply.error == ErrorInfo(code="RemoteProtocolError", message="RemoteProtocolError")


def test_an_overloaded_server_says_nothing_and_fails() -> None:
    parsing, said, requests, failure = read(busy)
    assert (said, len(requests), failure) == ([], 1, "OverloadedError")
    assert parsing.reply.error == ErrorInfo(code="overloaded_error", message="overloaded_error")


def test_a_retry_of_the_client_is_one_message() -> None:
    parsing, said, requests, failure = read(busy, stream(sse("a text")), retries=1)
    assert (len(requests), failure, parsing.reply.complete) == (2, None, True)
    assert [shown(payload) for payload in said] == STREAMS["a text"]["expected"]


def test_every_kind_of_block_and_citation_was_there() -> None:
    sent = json.dumps([STREAMS[name]["events"] for name in WHOLE])
    for kind in KINDS:
        assert f'"type": "{kind}"' in sent
