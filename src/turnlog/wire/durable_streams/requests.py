"""The headers and parameters of Durable Streams requests.

Mappings come in, with names in lower case. Typed requests come out, or `BadInput` is raised.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from turnlog.errors import BadInput, quote
from turnlog.events.payload import MAX_COUNT
from turnlog.wire.durable_streams.events import (
    MAX_CONTENT_TYPE_CHARS,
    MAX_PRODUCER_ID_CHARS,
    MAX_WRITER_SEQ_CHARS,
    Producer,
)
from turnlog.wire.durable_streams.offsets import NOW, START, Offset, parse_offset

DEFAULT_CONTENT_TYPE = "application/octet-stream"
JSON_TYPE = "application/json"
# A page of another origin may send these headers, and may read those of responses.
REQUEST_HEADERS = (
    "content-type",
    "authorization",
    "if-none-match",
    "last-event-id",
    "stream-seq",
    "stream-ttl",
    "stream-expires-at",
    "stream-closed",
    "producer-id",
    "producer-epoch",
    "producer-seq",
    "stream-forked-from",
    "stream-fork-offset",
    "stream-fork-sub-offset",
)
RESPONSE_HEADERS = (
    "stream-next-offset",
    "stream-cursor",
    "stream-up-to-date",
    "stream-closed",
    "stream-ttl",
    "stream-expires-at",
    "stream-sse-data-encoding",
    "producer-epoch",
    "producer-seq",
    "producer-expected-seq",
    "producer-received-seq",
    "etag",
    "location",
)

_MEDIA_TYPE = re.compile(r"[\w-]+/[\w-]+")
_WHOLE_NUMBER = re.compile(r"0|[1-9][0-9]*")
# RFC 3339, section 5.6; `fromisoformat` also takes other forms of ISO 8601
_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_DIGITS = re.compile(r"[0-9]{1,16}")


class ForkRequest(NamedTuple):
    """A fork: the source as the header names it, the offset (None: its end), and what to take after it."""

    source: str
    offset: Offset | None
    sub_offset: int


class CreateRequest(NamedTuple):
    """A PUT. Without a content type a fork inherits that of its source."""

    content_type: str | None
    ttl_s: int | None
    expires_at: str | None
    closed: bool
    fork: ForkRequest | None


class AppendHeaders(NamedTuple):
    """The headers of a POST."""

    content_type: str | None
    closes: bool
    producer: Producer | None
    writer_seq: str | None


class LiveMode(Enum):
    """How a GET waits for new data."""

    NONE = ""
    LONG_POLL = "long-poll"
    SSE = "sse"


class ReadRequest(NamedTuple):
    """The parameters of a GET. `cursor` is what the client got with an earlier response."""

    offset: Offset
    live: LiveMode
    cursor: int | None


def parse_create(headers: Mapping[str, str]) -> CreateRequest:
    content_type: str | None = headers.get("content-type", "").strip()
    fork = parse_fork(headers)
    if not content_type or not _MEDIA_TYPE.match(content_type):
        content_type = None if fork else DEFAULT_CONTENT_TYPE
    elif len(content_type) > MAX_CONTENT_TYPE_CHARS:
        raise BadInput(f"expected at most {MAX_CONTENT_TYPE_CHARS} characters", "Content-Type")

    ttl = headers.get("stream-ttl")
    expires_at = headers.get("stream-expires-at")
    if ttl is not None and expires_at is not None:
        raise BadInput("expected Stream-TTL or Stream-Expires-At, got both", "Stream-TTL")
    ttl_s = None if ttl is None else parse_whole_number(ttl, "Stream-TTL")
    if expires_at is not None:
        parse_time_ms(expires_at)
    return CreateRequest(content_type, ttl_s, expires_at, is_closed_header(headers), fork)


def parse_fork(headers: Mapping[str, str]) -> ForkRequest | None:
    source = headers.get("stream-forked-from")
    offset = headers.get("stream-fork-offset")
    sub_offset = headers.get("stream-fork-sub-offset")
    if source is None:
        if sub_offset is not None:
            raise BadInput("expected Stream-Forked-From with it", "Stream-Fork-Sub-Offset")
        return None
    fork_offset = None if offset is None else parse_offset(offset, "Stream-Fork-Offset")
    if fork_offset == NOW:
        fork_offset = None
    number = 0 if sub_offset is None else parse_whole_number(sub_offset, "Stream-Fork-Sub-Offset")
    return ForkRequest(source, fork_offset, number)


def parse_append(headers: Mapping[str, str]) -> AppendHeaders:
    writer_seq = headers.get("stream-seq")
    if writer_seq is not None and len(writer_seq) > MAX_WRITER_SEQ_CHARS:
        raise BadInput(f"expected at most {MAX_WRITER_SEQ_CHARS} characters", "Stream-Seq")
    content_type = headers.get("content-type")
    return AppendHeaders(content_type, is_closed_header(headers), parse_producer(headers), writer_seq)


def parse_producer(headers: Mapping[str, str]) -> Producer | None:
    """Return the producer; None without one. All three headers are needed, or none."""
    values = [headers.get(name) for name in ("producer-id", "producer-epoch", "producer-seq")]
    producer_id, epoch, seq = values
    if producer_id is None or epoch is None or seq is None:
        if any(value is not None for value in values):
            raise BadInput("expected Producer-Id, Producer-Epoch and Producer-Seq together", "Producer-Id")
        return None
    if not 0 < len(producer_id) <= MAX_PRODUCER_ID_CHARS:
        raise BadInput(f"expected 1 to {MAX_PRODUCER_ID_CHARS} characters", "Producer-Id")
    return Producer(
        id=producer_id,
        epoch=parse_count(epoch, "Producer-Epoch"),
        seq=parse_count(seq, "Producer-Seq"),
    )


def parse_read(offsets: list[str], live: str, cursor: str | None, last_event_id: str | None) -> ReadRequest:
    """Parse the parameters `offset` (each one), `live` and `cursor`, and the header Last-Event-ID.

    The header wins: a browser reconnects with its old URL.
    """
    if len(offsets) > 1:
        raise BadInput("expected one offset", "offset")
    try:
        mode = LiveMode(live)
    except ValueError:
        raise BadInput(f"expected long-poll or sse, got {quote(live)}", "live") from None

    if mode is LiveMode.SSE and last_event_id:
        offset = parse_offset(last_event_id, "Last-Event-ID")
    elif offsets:
        offset = parse_offset(offsets[0])
    elif mode is not LiveMode.NONE:
        raise BadInput("expected an offset to wait at; -1 is the start, now is the end", "offset")
    else:
        offset = START
    is_cursor = cursor is not None and _DIGITS.fullmatch(cursor)
    return ReadRequest(offset, mode, int(cursor) if cursor is not None and is_cursor else None)


def is_closed_header(headers: Mapping[str, str]) -> bool:
    return headers.get("stream-closed") == "true"


def parse_whole_number(text: str, name: str) -> int:
    """Parse a number without sign, leading zeros or decimals, of at most 2^53 - 1."""
    if not _WHOLE_NUMBER.fullmatch(text):
        raise BadInput(f"expected a whole number without leading zeros, got {quote(text)}", name)
    return parse_count(text, name)


def parse_count(text: str, name: str) -> int:
    if not _DIGITS.fullmatch(text) or int(text) > MAX_COUNT:
        raise BadInput(f"expected a whole number of at most {MAX_COUNT}, got {quote(text)}", name)
    return int(text)


def parse_time_ms(text: str) -> int:
    """Return an RFC 3339 time in milliseconds since 1970. Raise `BadInput` for another form."""
    time: datetime | None = None
    if _RFC_3339.fullmatch(text):
        with suppress(ValueError):  # no such day or hour
            time = datetime.fromisoformat(text.upper())
    if time is None:
        raise BadInput(f"expected a time like 2026-01-08T12:34:56Z, got {quote(text)}", "Stream-Expires-At")
    return int(time.timestamp() * 1000)


def media_type_of(content_type: str) -> str:
    """Return a content type without parameters, in lower case: two streams of it are of one type."""
    return content_type.partition(";")[0].strip().lower()
