"""Server-Sent Events, both ways: `encode` writes one frame, `Decoder` reads a stream in any pieces.

Both follow the EventSource chapter of the HTML standard. A line ends with CR, LF or CRLF and nothing else:
U+2028, U+0085 and form feeds are ordinary text. The encoder refuses ids and event names that would forge
fields (CR, LF, NUL). The decoder never fails on bad text: it replaces bad UTF-8 and ignores unknown fields. A
line, with the data lines before it, may have `limit_bytes`; more raises `BadInput`, after the messages before
it were returned. Messages and errors do not depend on how the stream is cut into pieces.
"""

import re
from collections.abc import Callable

from msgspec import Struct

from turnlog.errors import BadInput, InvalidEvent, quote

MAX_SSE_MESSAGE_BYTES = 16 << 20  # 1 MiB of strict JSON is at most 6 MiB escaped, a 5 MB image 7 MB of base64
MAX_RETRY_DIGITS = 15  # 30,000 years; int() refuses thousands of digits

BOM = b"\xef\xbb\xbf"

# As numbers: searching bytes for a number is ten times faster than for bytes.
_CR = ord("\r")
_LF = ord("\n")
_UNSAFE_IN_FIELD = re.compile("[\r\n\0\ud800-\udfff]")


class ServerSentEvent(Struct, frozen=True):
    """One dispatched message. `id` is the last one of the stream, `retry_ms` that of this message."""

    data: str
    event: str = "message"
    id: str = ""
    retry_ms: int | None = None


def encode(
    data: bytes | None,
    *,
    id: str | None = None,
    event: str | None = None,
    retry_ms: int | None = None,
) -> bytes:
    """Encode one frame. Without data a reader only moves its cursor. Line ends in data arrive as LF."""
    # Nearly every frame: the general case below gives the same bytes.
    if data is not None and event is None and retry_ms is None and _LF not in data and _CR not in data:
        if id is None:
            return b"data: %b\n\n" % data
        if id.isprintable():
            return b"".join((b"id: ", id.encode(), b"\ndata: ", data, b"\n\n"))

    lines = []
    if id is not None:
        lines.append(encode_field("id", id))
    if event is not None:
        lines.append(encode_field("event", event))
    if retry_ms is not None:
        lines.append(encode_retry_field(retry_ms))
    if data is not None:
        lines += [b"data: %b\n" % line for line in split_lines(data)]
    return b"".join(lines) + b"\n"


def encode_field(name: str, value: str) -> bytes:
    if _UNSAFE_IN_FIELD.search(value):
        raise InvalidEvent(f"expected no CR, LF, NUL or lone surrogate, got {quote(value)}", name)
    return f"{name}: {value}\n".encode()


def encode_retry_field(retry_ms: int) -> bytes:
    if retry_ms < 0:
        raise InvalidEvent(f"expected milliseconds from 0, got {retry_ms}", "retry")
    return b"retry: %d\n" % retry_ms


def split_lines(data: bytes) -> list[bytes]:
    """Split on CR, LF and CRLF only. The last item is the text after the last line end."""
    if _CR in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data.split(b"\n")


class Decoder:
    """Reads a stream fed in any pieces.

    `last_id` is the id to reconnect with: it moves when a message is complete, with data or without.
    `retry_ms` is the last reconnection time that the server sent.
    """

    def __init__(self, limit_bytes: int = MAX_SSE_MESSAGE_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.last_id = ""
        self.retry_ms: int | None = None
        self._has_overflowed = False
        self._reset()

    def _reset(self) -> None:
        self._at_stream_start = True
        self._after_cr = False
        self._line = bytearray()
        self._data = bytearray()
        self._event = ""
        self._id = self.last_id
        self._retry_ms: int | None = None

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Take the next piece of the stream. Return the messages it completed."""
        self._raise_if_overflowed()
        messages = []
        for line in self._take_complete_lines(chunk):
            if not self._fits_or_overflow(line):
                break
            message = self._read_line(line)
            if message is not None:
                messages.append(message)
        else:
            self._fits_or_overflow(self._line)

        # Messages before an overflow are returned first; the next call raises.
        if not messages:
            self._raise_if_overflowed()
        return messages

    def flush(self) -> list[ServerSentEvent]:
        """End the stream: drop an unfinished message, and expect the next stream."""
        self._raise_if_overflowed()
        self._reset()
        return []

    def _raise_if_overflowed(self) -> None:
        if self._has_overflowed:
            raise BadInput(f"expected an SSE message of at most {self.limit_bytes} bytes, got more", "stream")

    def _take_complete_lines(self, chunk: bytes) -> list[bytes]:
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        *lines, rest = split_lines(chunk)
        if lines:
            lines[0] = bytes(self._line + lines[0])
            self._line.clear()
        self._line += rest
        return lines

    def _fits_or_overflow(self, line: bytes | bytearray) -> bool:
        """Return True if the line fits. Otherwise drop everything and mark the overflow."""
        if len(self._data) + len(line) <= self.limit_bytes:
            return True
        self._reset()
        self._has_overflowed = True
        return False

    def _read_line(self, line: bytes) -> ServerSentEvent | None:
        if self._at_stream_start:
            self._at_stream_start = False
            line = line.removeprefix(BOM)
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        read_field = FIELD_READERS.get(name)  # a comment has no name
        if read_field is not None:
            read_field(self, value.removeprefix(b" "))
        return None

    def _dispatch(self) -> ServerSentEvent | None:
        self.last_id = self._id
        event = self._event or "message"
        retry_ms = self._retry_ms
        self._event = ""
        self._retry_ms = None
        if not self._data:
            return None
        text = self._data[:-1].decode(errors="replace")
        self._data.clear()
        return ServerSentEvent(text, event, self.last_id, retry_ms)

    def _read_data(self, value: bytes) -> None:
        self._data += value
        self._data += b"\n"

    def _read_event(self, value: bytes) -> None:
        self._event = value.decode(errors="replace")

    def _read_id(self, value: bytes) -> None:
        if b"\0" not in value:
            self._id = value.decode(errors="replace")

    def _read_retry(self, value: bytes) -> None:
        if value.isdigit() and len(value) <= MAX_RETRY_DIGITS:
            self._retry_ms = int(value)
            self.retry_ms = self._retry_ms


FIELD_READERS: dict[bytes, Callable[[Decoder, bytes], None]] = {
    b"data": Decoder._read_data,
    b"event": Decoder._read_event,
    b"id": Decoder._read_id,
    b"retry": Decoder._read_retry,
}
