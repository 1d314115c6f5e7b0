"""Framing: what a dialect sends beside its messages.

Headers, the first bytes of a stream (`retry:`), the frames of a message with their ids, heartbeats, resets,
the end of the history, and the end of a response. The server sends these and knows no dialect. Readers of
Turnlog's own dialects get heartbeats and resets as named events, with the fields that every line of `blocks`
has (protocol 7.4); readers of `turnlog` also get `caught-up`. Clients of other protocols parse the data of
every event whatever its name, so they get comments.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from turnlog.wire import sse
from turnlog.wire.cursor import format_cursor
from turnlog.wire.dialects.base import DONE

HeartbeatEncoder = Callable[[int, int, str], bytes]  # of a seq, a time in ms and a session
EncodeFrames = Callable[[list[bytes], int, str | None], list[bytes]]  # of messages, their seq and the epoch

SSE_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
HEARTBEAT_FRAME = sse.encode(b'{"type":"heartbeat","agent":"","final":true,"delta":""}', event="heartbeat")
CAUGHT_UP_FRAME = sse.encode(b'{"type":"caught-up","agent":"","final":true,"delta":""}', event="caught-up")
COMMENT_FRAME = b": ping\n\n"
DONE_FRAME = sse.encode(DONE)


class StreamReset(NamedTuple):
    """Why a cursor cannot be continued, and the log that there is."""

    reason: str
    session_id: str
    epoch: str
    first: int
    last: int


def encode_reset(reset: StreamReset) -> bytes:
    """Return a `reset` event, which tells the reader to drop what it has."""
    fields = {"type": "reset", "agent": "", "final": True, "delta": "", **reset._asdict()}
    return sse.encode(msgspec.json.encode(fields), event="reset")


def encode_no_reset(reset: StreamReset) -> bytes:
    """Return nothing, for clients that take a stream from its start without being told."""
    return b""


def encode_frames(messages: list[bytes], seq: int, epoch: str | None = None) -> list[bytes]:
    """Return one SSE frame per message of an event. Only the last id has no chunk number."""
    frames = []
    last = len(messages) - 1
    for index, message in enumerate(messages):
        chunk = None if index == last else index
        frames.append(sse.encode(message, id=format_cursor(seq, epoch, chunk)))
    return frames


def encode_retry(retry_ms: int) -> bytes:
    """Return the time after which a browser reconnects."""
    return sse.encode_retry_field(retry_ms) + b"\n"


def encode_no_retry(retry_ms: int) -> bytes:
    """Return nothing, for clients that do not expect a frame without data."""
    return b""


class Framing(NamedTuple):
    """The framing of one dialect.

    `encode_opening` makes the first bytes of a stream, from the time after which its reader should reconnect
    if it is cut off: the server chooses another one for each. `caught_up` is sent once, when the reader has
    the history; b"" for readers that do not expect it. `heartbeat` is sent after a silence;
    `encode_heartbeat` replaces it where heartbeats carry the reader's position. `end` is what is left of a
    response that was read, `cut` what the server sends if it ends a stream before its end.
    """

    headers: tuple[tuple[bytes, bytes], ...] = SSE_HEADERS
    encode_opening: Callable[[int], bytes] = encode_retry
    caught_up: bytes = b""
    heartbeat: bytes = HEARTBEAT_FRAME
    encode_heartbeat: HeartbeatEncoder | None = None
    encode_frames: EncodeFrames = encode_frames
    encode_reset: Callable[[StreamReset], bytes] = encode_reset
    end: bytes = DONE_FRAME
    cut: bytes = b""


NATIVE_FRAMING = Framing()
ENVELOPE_FRAMING = Framing(caught_up=CAUGHT_UP_FRAME)
FOREIGN_FRAMING = Framing(
    encode_opening=encode_no_retry, heartbeat=COMMENT_FRAME, encode_reset=encode_no_reset, end=b""
)
