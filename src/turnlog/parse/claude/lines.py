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
from turnlog.events.payload import NAME_BYTES, Name, Origins
from turnlog.events.strict_json import LIMIT_DEPTH, nests
from turnlog.parse.json_values import Data, field, name_of, plain

LINE_BYTES = 15 << 20  # an image comes as base64, and twice; its event fits into an SSE message of 16 MiB
_CONTINUED = bytes(range(0x80, 0xC0))  # bytes that begin no character


class Line(Payload, frozen=True, kw_only=True):
    """A line of the process that has no event of its own, as it came: nothing is lost, no fold minds it."""

    ORIGINS: ClassVar[Origins] = frozenset({"system"})
    EXAMPLE: ClassVar = {"kind": "system.notification", "data": {"type": "system"}}

    kind: Name
    data: Data


CLI = Vocabulary("claude_cli", [Line])


def kept(line: Data) -> Line:
    """A line as an event of its own."""
    names = (name_of(line.get(field)) for field in ("type", "subtype"))
    kind = ".".join(name for name in names if name).encode()[:NAME_BYTES].decode(errors="ignore")
    return Line(kind=kind or "unknown", data=line)


class Refused:
    """A line that is not taken: counted and hashed, not kept."""

    def __init__(self, reason: str, pieces: list[bytes]) -> None:
        self._reason = reason
        self._chars = 0
        self._hash = hashlib.sha256()
        for piece in pieces:
            self.add(piece)

    def add(self, piece: bytes) -> None:
        """Take in more of the line."""
        self._chars += len(piece.translate(None, _CONTINUED))
        self._hash.update(piece)

    def reject(self) -> ParseReject:
        """Return the trace of the line."""
        return ParseReject(reason=self._reason, length=self._chars, sha256=self._hash.hexdigest())


class Lines:
    """Cuts bytes into lines and reads them. A good line is neither hashed nor counted."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._held: list[bytes] = []
        self._size = 0
        self._too_long: Refused | None = None

    def feed(self, data: bytes) -> list[Data | ParseReject]:
        """The lines that are whole by now."""
        *ended, rest = data.split(b"\n")
        found: list[Data | ParseReject] = []
        for piece in ended:
            self._take(piece)
            found += self._end("bad_line")
        self._take(rest)
        return found

    def flush(self) -> list[Data | ParseReject]:
        """The bytes are over; a last line without its end counts if it is whole."""
        return self._end("cut_line")

    def _take(self, piece: bytes) -> None:
        if self._too_long:
            self._too_long.add(piece)
            return
        self._held.append(piece)
        self._size += len(piece)
        if self._size > LINE_BYTES:
            self._too_long, self._held = Refused("too_long", self._held), []

    def _end(self, problem: str) -> list[Data | ParseReject]:
        held, too_long = self._held, self._too_long
        self._reset()
        if too_long:
            return [too_long.reject()]
        line = b"".join(held).strip()
        if not line:
            return []
        value = read_line(line)
        return [Refused(problem, held).reject() if value is None else value]


def read_line(line: bytes) -> Data | None:
    """The object of a line; None if it is none that the log can hold."""
    try:
        value = msgspec.json.decode(line)
        if nests(line, LIMIT_DEPTH):
            return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = mended_line(line)
    return value if type(value) is dict else None


def mended_line(line: bytes) -> Any:
    """The value of a line that holds what is no Unicode: a program that cuts texts cuts characters too."""
    import json  # such lines only: `import turnlog` does not pay for it

    try:
        raw = json.loads(line.decode(errors="replace"))
        value = plain(raw)
    except (ValueError, RecursionError, BadInput):
        return None
    event = field(value, "event")
    if field(value, "type") == "stream_event" and field(event, "type") == "content_block_delta":
        event.update(delta=raw["event"].get("delta"))  # the next line may bring the other half of a pair
    return value


def encode(line: Data) -> bytes:
    """A line for stdin."""
    return msgspec.json.encode(line) + b"\n"


def message_line(text: str, uuid: str) -> bytes:
    """What a person said; the answer comes back with this UUID (`CliParser.expect`)."""
    message = {"role": "user", "content": [{"type": "text", "text": text}]}
    return encode({"type": "user", "message": message, "uuid": uuid})


def interrupt_line(request_id: str) -> bytes:
    """Stop the turn that runs; its `result` follows."""
    request = {"subtype": "interrupt"}
    return encode({"type": "control_request", "request_id": request_id, "request": request})


def allow_line(request_id: str, args: Data) -> bytes:
    """A tool may run, with these arguments; answers to questions stand in them as `answers`."""
    return _answer(request_id, {"behavior": "allow", "updatedInput": args})


def deny_line(request_id: str, message: str) -> bytes:
    """A tool may not run; the model reads why."""
    return _answer(request_id, {"behavior": "deny", "message": message})


def _answer(request_id: str, response: Data) -> bytes:
    body = {"subtype": "success", "request_id": request_id, "response": response}
    return encode({"type": "control_response", "response": body})


def unable_line(request_id: str) -> bytes:
    """The host does not know this request: without an answer the process would wait for ever."""
    body = {"subtype": "error", "request_id": request_id, "error": "not supported"}
    return encode({"type": "control_response", "response": body})
