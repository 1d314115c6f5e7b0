"""Bodies and SSE frames of streams: stored appends come in, the bytes of a response come out.

A JSON stream is read as one array, any other as its bytes. In SSE a `control` event follows every `data`
event; both have an `id:` line with the offset after the data, so that a plain `EventSource` resumes too.
Bytes that are not text are sent as base64.
"""

from base64 import b64encode
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import msgspec

from turnlog.wire.durable_streams.events import StreamAppend, StreamClose, StreamDelete
from turnlog.wire.durable_streams.requests import JSON_TYPE, media_type_of

CURSOR_EPOCH_MS = 1_728_432_000_000  # 2024-10-09T00:00:00Z: where the protocol counts from
CURSOR_INTERVAL_MS = 20_000
MAX_JITTER_INTERVALS = 180  # 3600 s


class StreamFormat(Enum):
    """How the content of a stream is stored and sent."""

    JSON = "json"
    TEXT = "text"
    BINARY = "binary"


class StoredPayload(msgspec.Struct):
    """The fields of a stored event of a stream that readers get."""

    messages: msgspec.Raw = msgspec.Raw(b"[]")
    data: bytes = b""
    closes: bool = False


class StoredEnvelope(msgspec.Struct):
    """An envelope of which only the payload is read."""

    payload: StoredPayload


class StoredContent(NamedTuple):
    """What readers get of a stored event. `content` is None for one that is no append.

    JSON messages have commas between them. Nothing follows an event that `ends` the stream; `is_deleted`
    means that the stream is gone.
    """

    content: bytes | None
    ends: bool = False
    is_deleted: bool = False


NO_CONTENT = StoredContent(None)


class Control(msgspec.Struct, omit_defaults=True, rename="camel"):
    """A `control` event."""

    stream_next_offset: str
    stream_cursor: str | None = None
    up_to_date: bool = False
    stream_closed: bool = False


_decoder = msgspec.json.Decoder(StoredEnvelope)


def format_of(content_type: str) -> StreamFormat:
    media_type = media_type_of(content_type)
    if media_type == JSON_TYPE:
        return StreamFormat.JSON
    return StreamFormat.TEXT if media_type.startswith("text/") else StreamFormat.BINARY


def decode_content(type: str, line: bytes, stream_format: StreamFormat) -> StoredContent:
    """Return what readers get of a stored event of a type."""
    if type == StreamClose.TYPE:
        return StoredContent(None, ends=True)
    if type == StreamDelete.TYPE:
        return StoredContent(None, ends=True, is_deleted=True)
    if type != StreamAppend.TYPE:
        return NO_CONTENT
    payload = _decoder.decode(line).payload
    is_json = stream_format is StreamFormat.JSON
    return StoredContent(bytes(payload.messages)[1:-1] if is_json else payload.data, payload.closes)


def take_prefix(content: bytes, stream_format: StreamFormat, count: int) -> StreamAppend | None:
    """Return the first messages or bytes of a stored content as an append; None if it has fewer."""
    if stream_format is StreamFormat.JSON:
        messages = msgspec.json.decode(join_contents([content], stream_format))
        return StreamAppend(messages=tuple(messages[:count])) if count <= len(messages) else None
    return StreamAppend(data=content[:count]) if count <= len(content) else None


def join_contents(contents: Sequence[bytes], stream_format: StreamFormat) -> bytes:
    """Return the body of a response."""
    if stream_format is StreamFormat.JSON:
        return b"[" + b",".join(contents) + b"]"
    return b"".join(contents)


def encode_data_event(body: bytes, stream_format: StreamFormat, offset: str) -> bytes:
    """Return a `data` event with a body, as `join_contents` returns it."""
    if stream_format is StreamFormat.BINARY:
        body = b64encode(body)
    # Every line break of SSE begins a new line here: content cannot end its event.
    lines = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return encode_event(b"data", lines, offset)


def encode_control_event(control: Control) -> bytes:
    return encode_event(b"control", [msgspec.json.encode(control)], control.stream_next_offset)


def encode_event(name: bytes, lines: Sequence[bytes], offset: str) -> bytes:
    """Return one event in the order and spacing that clients of the protocol search for: data, then id."""
    data = b"".join(b"data:" + protect_space(line) + b"\n" for line in lines)
    return b"event: " + name + b"\n" + data + b"id: " + offset.encode() + b"\n\n"


def protect_space(line: bytes) -> bytes:
    """Return a line whose first space is not lost: a reader of SSE removes one space after the colon."""
    return b" " + line if line.startswith(b" ") else line


def next_cursor(client_cursor: int | None, now_ms: int, jitter: int) -> int:
    """Return the cursor of a live response: the number of the current interval.

    A client that has this one or a later one gets its own and a jitter of 1 to `MAX_JITTER_INTERVALS`: a
    cache would otherwise answer its next request with the same response.
    """
    interval = (now_ms - CURSOR_EPOCH_MS) // CURSOR_INTERVAL_MS
    if client_cursor is None or client_cursor < interval:
        return interval
    return client_cursor + jitter
