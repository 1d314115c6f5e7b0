"""Bodies of requests: JSON of a declared shape, through the gate, within limits."""

import asyncio
from typing import TypeVar

from starlette.requests import Request

from turnlog.errors import BadInput
from turnlog.events import gate

T = TypeVar("T")

MESSAGE_CHARS = 100_000
INLINE_BYTES = 64 * 1024  # a larger body is decoded in a thread, so that other requests go on


class UnsupportedBody(BadInput):
    """A body that is not JSON."""


class OversizedBody(BadInput):
    """A body over the limit."""


async def body(request: Request, kind: type[T]) -> T:
    """A request's JSON body as `kind`, through the gate."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise UnsupportedBody("expected the content type application/json")
    if request.headers.get("content-encoding", "identity") != "identity":
        raise UnsupportedBody("expected a body without a content encoding")
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > gate.LIMIT_BYTES:
            raise OversizedBody(f"expected at most {gate.LIMIT_BYTES} bytes")
    if len(data) <= INLINE_BYTES:
        return gate.decode(bytes(data), kind)
    return await asyncio.to_thread(gate.decode, bytes(data), kind)


def checked_text(text: str, path: str) -> str:
    """A message that says something and is not too long."""
    if not text.strip():
        raise BadInput("expected a message with some text", path)
    if len(text) > MESSAGE_CHARS:
        raise BadInput(f"expected at most {MESSAGE_CHARS} characters, got {len(text)}", path)
    return text
