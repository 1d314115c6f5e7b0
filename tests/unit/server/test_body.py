"""Bodies of requests: what they are is said in a header, in any case; they may come in any pieces."""

import asyncio
from types import SimpleNamespace

import msgspec
import pytest
from starlette.requests import Request
from starlette.types import Message

from turnlog.errors import BadInput
from turnlog.events import strict_json
from turnlog.server.request_body import OversizedBody, UnsupportedBody, make_decoder_executor, read_json_body


class Said(msgspec.Struct, forbid_unknown_fields=True):
    text: str


def read(pieces: list[bytes], **headers: str) -> Said:
    said = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    left: list[Message] = [*messages, {"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Message:
        return left.pop(0)

    served = SimpleNamespace(state=SimpleNamespace(decoder=make_decoder_executor()))
    scope = {"type": "http", "method": "POST", "headers": said, "app": served}
    return asyncio.run(read_json_body(Request(scope, receive), Said))


@pytest.mark.parametrize(
    "kind",
    ["application/json", "application/json; charset=utf-8", "Application/JSON", " application/json ;x=y"],
)
def test_json_is_json_however_it_is_said(kind: str) -> None:
    assert read([b'{"te', b"", b'xt":"\xc3', b'\xbc"}'], content_type=kind) == Said("ü")


@pytest.mark.parametrize("kind", ["", "text/plain", "application/jsonl", "application/x-json", "json"])
def test_what_is_not_said_to_be_json_is_not_read(kind: str) -> None:
    with pytest.raises(UnsupportedBody, match="application/json"):
        read([b'{"text":"x"}'], content_type=kind)


def test_a_body_that_is_packed_is_not_unpacked() -> None:
    with pytest.raises(UnsupportedBody, match="content encoding"):
        read([b"{}"], content_type="application/json", content_encoding="gzip")


@pytest.mark.parametrize(("more", "error"), [(0, BadInput), (1, OversizedBody)])
def test_a_body_has_a_limit(more: int, error: type[BadInput]) -> None:
    with pytest.raises(BadInput) as caught:
        read([b" " * strict_json.MAX_JSON_BYTES, b" " * more], content_type="application/json")
    assert type(caught.value) is error


def test_body_of_a_peer_that_leaves_is_bad_input() -> None:
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", b"application/json")]}
    with pytest.raises(BadInput, match="the peer disconnected"):
        asyncio.run(read_json_body(Request(scope, receive), Said))
