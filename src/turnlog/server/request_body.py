"""Bodies of requests: strict JSON of a declared type, or a form, within limits of size."""

import asyncio
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from turnlog.errors import BadInput
from turnlog.events import strict_json

T = TypeVar("T")

FORM_MEDIA_TYPE = "application/x-www-form-urlencoded"
MAX_FORM_BYTES = 16 * 1024  # a code and a name take less than 1 KiB
MAX_FORM_FIELDS = 8

MAX_MESSAGE_CHARS = 100_000
MAX_SMALL_BODY_BYTES = 16 * 1024  # for a body that has only names
MAX_LARGE_BODY_COMMAS = 20_000  # values are separated by commas; base64 has none
MAX_INLINE_DECODE_BYTES = 64 * 1024  # a larger body is decoded in a thread: it would block the event loop


class UnsupportedBody(BadInput):
    """A body of another content type or with a content encoding (415)."""


class OversizedBody(BadInput):
    """A body over the limit (413)."""


async def read_json_body(
    request: Request, type_: type[T], limit_bytes: int = strict_json.MAX_JSON_BYTES
) -> T:
    """Read and decode a JSON body; raise `BadInput` or one of its subclasses.

    Above 1 MiB a body may have large texts, but not many values: those take many times their bytes in memory.
    """
    data = await read_body(request, "application/json", limit_bytes)
    return await decode_json_body(request, data, type_, limit_bytes)


async def decode_json_body(
    request: Request, data: bytearray, type_: type[T], limit_bytes: int = strict_json.MAX_JSON_BYTES
) -> T:
    """Decode a JSON body that was read; raise `BadInput`. A large one is decoded in a thread."""
    if len(data) <= MAX_INLINE_DECODE_BYTES:
        return strict_json.decode_strict_json(bytes(data), type_)
    if len(data) > strict_json.MAX_JSON_BYTES and data.count(b",") > MAX_LARGE_BODY_COMMAS:
        limit = strict_json.MAX_JSON_BYTES
        raise OversizedBody(f"expected at most {limit} bytes beside images and documents")

    loop = asyncio.get_running_loop()
    decoder: Executor = request.app.state.decoder
    return await loop.run_in_executor(
        decoder, strict_json.decode_strict_json, bytes(data), type_, limit_bytes
    )


def make_decoder_executor() -> Executor:
    """Return the executor of large bodies.

    It has one thread: 1 MiB of JSON takes 25 MiB while it is decoded, and a thread never frees its peak.
    """
    return ThreadPoolExecutor(1, "turnlog-decoder")


async def read_form(request: Request) -> dict[str, str]:
    """Read the fields of a form. The first of two fields with one name wins."""
    data = await read_body(request, FORM_MEDIA_TYPE, MAX_FORM_BYTES)
    try:
        pairs = parse_qsl(
            data.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS, errors="strict"
        )
    except ValueError:
        raise BadInput("expected the fields of a form") from None
    return dict(reversed(pairs))


async def read_body(request: Request, content_type: str, limit_bytes: int) -> bytearray:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != content_type:
        raise UnsupportedBody(f"expected the content type {content_type}")
    return await read_bytes(request, limit_bytes)


async def read_bytes(request: Request, limit_bytes: int) -> bytearray:
    """Read a body of any content type; raise `OversizedBody` over the limit, or `UnsupportedBody`."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise UnsupportedBody("expected a body without a content encoding")
    data = bytearray()
    try:
        async for piece in request.stream():
            data += piece
            if len(data) > limit_bytes:
                raise OversizedBody(f"expected at most {limit_bytes} bytes")
    except ClientDisconnect:  # not an error of the server: such peers must not fill its log
        raise BadInput("the peer disconnected before it sent the whole body") from None
    return data


def check_message_text(text: str, path: str) -> str:
    """Return the text. Raise `BadInput` if it is blank or too long."""
    if not text.strip():
        raise BadInput("expected a message with some text", path)
    if len(text) > MAX_MESSAGE_CHARS:
        raise BadInput(f"expected at most {MAX_MESSAGE_CHARS} characters, got {len(text)}", path)
    return text
