"""Bodies of requests: JSON of a declared shape, through the gate, within limits."""

import asyncio
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from turnlog.errors import BadInput
from turnlog.events import strict_json

T = TypeVar("T")

FORM_MEDIA_TYPE = "application/x-www-form-urlencoded"
MAX_FORM_BYTES = 16 * 1024  # a code and a name take less than one of these sixteen

MAX_MESSAGE_CHARS = 100_000
MAX_SMALL_BODY_BYTES = 16 * 1024  # of a body that has some names in it, and nothing else
MAX_INLINE_DECODE_BYTES = 64 * 1024  # a larger body is decoded in a thread, so that other requests go on


class UnsupportedBody(BadInput):
    """A body of another content type."""


class OversizedBody(BadInput):
    """A body over the limit."""


async def read_json_body(
    request: Request, type_: type[T], limit_bytes: int = strict_json.MAX_JSON_BYTES
) -> T:
    """A request's JSON body as `kind`, through the gate."""
    data = await read_body(request, "application/json", limit_bytes)
    if len(data) <= MAX_INLINE_DECODE_BYTES:
        return strict_json.decode_strict_json(bytes(data), type_)
    loop, decoder = asyncio.get_running_loop(), request.app.state.decoder
    return await loop.run_in_executor(decoder, strict_json.decode_strict_json, bytes(data), type_)


def make_decoder_executor() -> Executor:
    """Return what decodes large bodies: one thread, since 1 MiB of JSON takes 25 MiB while it is decoded, and
    each thread keeps the most that it ever had."""
    return ThreadPoolExecutor(1, "turnlog-decoder")


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form that a page sent; of a field that stands twice the first counts."""
    data = await read_body(request, FORM_MEDIA_TYPE, MAX_FORM_BYTES)
    try:
        pairs = parse_qsl(data.decode("ascii"), keep_blank_values=True, max_num_fields=8, errors="strict")
    except ValueError:
        raise BadInput("expected the fields of a form") from None
    return dict(reversed(pairs))


async def read_body(request: Request, content_type: str, limit_bytes: int) -> bytearray:
    """The bytes of a body of one content type, within a limit."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != content_type:
        raise UnsupportedBody(f"expected the content type {content_type}")
    if request.headers.get("content-encoding", "identity") != "identity":
        raise UnsupportedBody("expected a body without a content encoding")
    data = bytearray()
    try:
        async for piece in request.stream():
            data += piece
            if len(data) > limit_bytes:
                raise OversizedBody(f"expected at most {limit_bytes} bytes")
    except ClientDisconnect:  # no fault of the server's: its journal must not grow with such peers
        raise BadInput("the peer left before its body was there") from None
    return data


def check_message_text(text: str, path: str) -> str:
    """A message that says something and is not too long."""
    if not text.strip():
        raise BadInput("expected a message with some text", path)
    if len(text) > MAX_MESSAGE_CHARS:
        raise BadInput(f"expected at most {MAX_MESSAGE_CHARS} characters, got {len(text)}", path)
    return text
