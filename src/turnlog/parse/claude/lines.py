"""The lines between a Claude CLI process and its host: bytes of stdout in, objects out; lines for stdin back.

A line is one JSON object. What is none leaves a `ParseReject`, never an exception. Bytes that are no UTF-8
and lone surrogates are mended, except in the delta of a block, which joins a pair that two lines share.
Limits: a line of 15 MiB, 32 levels; a longer line is refused and skipped to its end without being kept. Any
cutting of the bytes gives the same lines.
"""

import hashlib
from typing import Any, ClassVar

import msgspec

from turnlog.errors import BadInput
from turnlog.events import ParseReject, Payload, Vocabulary
from turnlog.events.payload import MAX_NAME_BYTES, Name, Origins
from turnlog.events.strict_json import MAX_JSON_DEPTH, exceeds_depth
from turnlog.parse.json_values import JsonObject, get_field, printable_name, to_json_value

MAX_LINE_BYTES = 15 << 20  # an image comes as base64, and twice; its event fits into an SSE message of 16 MiB
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))  # bytes that begin no character


class Line(Payload, frozen=True, kw_only=True):
    """A line of the process that has no event of its own, as it came: nothing is lost, no fold minds it."""

    ORIGINS: ClassVar[Origins] = frozenset({"system"})
    EXAMPLE: ClassVar = {"kind": "system.notification", "data": {"type": "system"}}

    kind: Name
    data: JsonObject


CLAUDE_CLI = Vocabulary("claude_cli", [Line])


def make_raw_line_event(line: JsonObject) -> Line:
    """A line as an event of its own."""
    names = (printable_name(line.get(field)) for field in ("type", "subtype"))
    kind = ".".join(name for name in names if name).encode()[:MAX_NAME_BYTES].decode(errors="ignore")
    return Line(kind=kind or "unknown", data=line)


class RejectedLine:
    """A line that is not taken: counted and hashed, not kept."""

    def __init__(self, reason: str, pieces: list[bytes]) -> None:
        self._reason = reason
        self._chars = 0
        self._hash = hashlib.sha256()
        for piece in pieces:
            self.add(piece)

    def add(self, piece: bytes) -> None:
        """Take in more of the line."""
        self._chars += len(piece.translate(None, _CONTINUATION_BYTES))
        self._hash.update(piece)

    def to_reject(self) -> ParseReject:
        """Return the trace of the line."""
        return ParseReject(reason=self._reason, length=self._chars, sha256=self._hash.hexdigest())


class LineDecoder:
    """Cuts bytes into lines and reads them. A good line is neither hashed nor counted."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._oversized_line: RejectedLine | None = None

    def feed(self, data: bytes) -> list[JsonObject | ParseReject]:
        """The lines that are whole by now."""
        *ended, rest = data.split(b"\n")
        found: list[JsonObject | ParseReject] = []
        for piece in ended:
            self._append(piece)
            found += self._finish_line("bad_line")
        self._append(rest)
        return found

    def flush(self) -> list[JsonObject | ParseReject]:
        """The bytes are over; a last line without its end counts if it is whole."""
        return self._finish_line("cut_line")

    def _append(self, piece: bytes) -> None:
        if self._oversized_line:
            self._oversized_line.add(piece)
            return
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > MAX_LINE_BYTES:
            self._oversized_line, self._pieces = RejectedLine("too_long", self._pieces), []

    def _finish_line(self, problem: str) -> list[JsonObject | ParseReject]:
        held, too_long = self._pieces, self._oversized_line
        self._reset()
        if too_long:
            return [too_long.to_reject()]
        line = b"".join(held).strip()
        if not line:
            return []
        value = decode_stdout_line(line)
        return [RejectedLine(problem, held).to_reject() if value is None else value]


def decode_stdout_line(line: bytes) -> JsonObject | None:
    """The object of a line; None if it is none that the log can hold."""
    try:
        value = msgspec.json.decode(line)
        if exceeds_depth(line, MAX_JSON_DEPTH):
            return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = decode_line_lossy(line)
    return value if type(value) is dict else None


def decode_line_lossy(line: bytes) -> Any:
    """The value of a line that holds what is no Unicode: a program that cuts texts cuts characters too."""
    import json  # such lines only: `import turnlog` does not pay for it

    try:
        raw = json.loads(line.decode(errors="replace"))
        value = to_json_value(raw)
    except (ValueError, RecursionError, BadInput):
        return None
    event = get_field(value, "event")
    if get_field(value, "type") == "stream_event" and get_field(event, "type") == "content_block_delta":
        event.update(delta=raw["event"].get("delta"))  # the next line may bring the other half of a pair
    return value


def encode_stdin_line(line: JsonObject) -> bytes:
    """A line for stdin."""
    return msgspec.json.encode(line) + b"\n"


def message_line(text: str, uuid: str) -> bytes:
    """What a person said; the answer comes back with this UUID (`CliParser.expect`)."""
    message = {"role": "user", "content": [{"type": "text", "text": text}]}
    return encode_stdin_line({"type": "user", "message": message, "uuid": uuid})


def interrupt_line(request_id: str) -> bytes:
    """Stop the turn that runs; its `result` follows."""
    request = {"subtype": "interrupt"}
    return encode_stdin_line({"type": "control_request", "request_id": request_id, "request": request})


def allow_line(request_id: str, args: JsonObject) -> bytes:
    """A tool may run, with these arguments; answers to questions stand in them as `answers`."""
    return _control_response_line(request_id, {"behavior": "allow", "updatedInput": args})


def deny_line(request_id: str, message: str) -> bytes:
    """A tool may not run; the model reads why."""
    return _control_response_line(request_id, {"behavior": "deny", "message": message})


def _control_response_line(request_id: str, response: JsonObject) -> bytes:
    body = {"subtype": "success", "request_id": request_id, "response": response}
    return encode_stdin_line({"type": "control_response", "response": body})


def unsupported_line(request_id: str) -> bytes:
    """The host does not know this request: without an answer the process would wait for ever."""
    body = {"subtype": "error", "request_id": request_id, "error": "not supported"}
    return encode_stdin_line({"type": "control_response", "response": body})
