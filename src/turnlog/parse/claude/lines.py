"""The lines of a Claude CLI process: bytes of stdout in, JSON objects out; and the lines for its stdin.

A line is one JSON object. A line that is none becomes a `ParseReject`, never an exception. Bytes that are no
UTF-8 and lone surrogates are replaced, except in the delta of a block: two lines may share a surrogate pair.
Invariant: however the bytes are cut, the lines are the same. Limits: 15 MiB and 32 levels per line; a longer
line is refused and skipped to its end without being stored.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from turnlog.errors import BadInput
from turnlog.events import ParseReject, Payload, Vocabulary
from turnlog.events.payload import MAX_NAME_BYTES, Name, Origins
from turnlog.events.strict_json import MAX_JSON_DEPTH, exceeds_depth
from turnlog.parse.json_values import JsonObject, get_field, printable_name, to_json_value
from turnlog.parse.rejects import RejectedInput

MAX_LINE_BYTES = 15 << 20  # an image comes as base64, twice; its event fits into an SSE message of 16 MiB


class Line(Payload, frozen=True, kw_only=True):
    """A line of an unmapped type, stored unchanged. Folds and dialects ignore it."""

    ORIGINS: ClassVar[Origins] = frozenset({"system"})
    EXAMPLE: ClassVar = {"kind": "system.notification", "data": {"type": "system"}}

    kind: Name
    data: JsonObject


CLAUDE_CLI = Vocabulary("claude_cli", [Line])


def make_raw_line_event(line: JsonObject) -> Line:
    names = [printable_name(line.get("type")), printable_name(line.get("subtype"))]
    kind = ".".join(name for name in names if name)
    kind = kind.encode()[:MAX_NAME_BYTES].decode(errors="ignore")
    return Line(kind=kind or "unknown", data=line)


class LineDecoder:
    """Splits bytes into lines and decodes them. Only refused lines are hashed and counted."""

    def __init__(self) -> None:
        self._start_line()

    def _start_line(self) -> None:
        self._pieces: list[bytes] = []
        self._size_bytes = 0
        self._oversized_line: RejectedInput | None = None

    def feed(self, data: bytes) -> list[JsonObject | ParseReject]:
        *ends, rest = data.split(b"\n")
        lines: list[JsonObject | ParseReject] = []
        for piece in ends:
            self._append(piece)
            lines += self._finish_line("bad_line")
        self._append(rest)
        return lines

    def flush(self) -> list[JsonObject | ParseReject]:
        """Return the last line, which may lack its newline. If it is cut, it becomes a reject."""
        return self._finish_line("cut_line")

    def _append(self, piece: bytes) -> None:
        if self._oversized_line is not None:
            self._oversized_line.add_bytes(piece)
            return

        self._pieces.append(piece)
        self._size_bytes += len(piece)
        if self._size_bytes > MAX_LINE_BYTES:
            self._oversized_line = reject_pieces(self._pieces)
            self._pieces = []

    def _finish_line(self, problem: str) -> list[JsonObject | ParseReject]:
        pieces = self._pieces
        oversized_line = self._oversized_line
        self._start_line()
        if oversized_line is not None:
            return [oversized_line.to_reject("too_long")]

        line = b"".join(pieces).strip()
        if not line:
            return []
        value = decode_stdout_line(line)
        if value is None:
            return [reject_pieces(pieces).to_reject(problem)]
        return [value]


def reject_pieces(pieces: list[bytes]) -> RejectedInput:
    rejected = RejectedInput()
    for piece in pieces:
        rejected.add_bytes(piece)
    return rejected


def decode_stdout_line(line: bytes) -> JsonObject | None:
    """Return the object of a line; None if it is no JSON object or too deep."""
    try:
        value = msgspec.json.decode(line)
        if exceeds_depth(line, MAX_JSON_DEPTH):
            return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = decode_line_lossy(line)
    return value if type(value) is dict else None


def decode_line_lossy(line: bytes) -> Any:
    """Decode a line with bytes that are no UTF-8 or with lone surrogates. Return None if that fails.

    The process cuts texts without regard to characters.
    """
    import json  # for such lines only, to keep `import turnlog` fast

    try:
        raw = json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return clean_line(raw)


def clean_line(raw: Any) -> Any:
    """Return a decoded line with values that the log can hold; None if that fails."""
    try:
        value = to_json_value(raw)
    except BadInput:
        return None
    event = get_field(value, "event")
    if get_field(value, "type") == "stream_event" and get_field(event, "type") == "content_block_delta":
        # The delta stays as it came: the next line may hold the other half of a surrogate pair.
        event.update(delta=raw["event"].get("delta"))
    return value


def encode_stdin_line(line: JsonObject) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def message_line(text: str, uuid: str, files: Sequence[JsonObject] = ()) -> bytes:
    """Return the line of a message. `files` are content blocks of the Messages API, behind the text."""
    message = {"role": "user", "content": [{"type": "text", "text": text}, *files]}
    return encode_stdin_line({"type": "user", "message": message, "uuid": uuid})


def interrupt_line(request_id: str) -> bytes:
    request = {"subtype": "interrupt"}
    return encode_stdin_line({"type": "control_request", "request_id": request_id, "request": request})


def allow_line(request_id: str, args: JsonObject) -> bytes:
    """Return the line that lets a tool run with these arguments. `answers` in them answer its questions."""
    return _control_response_line(request_id, {"behavior": "allow", "updatedInput": args})


def deny_line(request_id: str, message: str) -> bytes:
    return _control_response_line(request_id, {"behavior": "deny", "message": message})


def _control_response_line(request_id: str, response: JsonObject) -> bytes:
    body = {"subtype": "success", "request_id": request_id, "response": response}
    return encode_stdin_line({"type": "control_response", "response": body})


def unsupported_line(request_id: str) -> bytes:
    """Return the answer to an unknown request: without one the process would wait for ever."""
    body = {"subtype": "error", "request_id": request_id, "error": "not supported"}
    return encode_stdin_line({"type": "control_response", "response": body})
