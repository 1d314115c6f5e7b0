"""The only builder of `ParseReject`: refused input in, its length and SHA-256 out. The input is not stored.

`make_text_reject` is for a refused text, `make_reject` for a value or an object of an SDK, `RejectedInput`
for input that comes in pieces and is dropped while it comes. Nothing here raises.
"""

import hashlib
import reprlib
from typing import Any

import msgspec

from turnlog.events import ParseReject
from turnlog.parse.json_values import printable_name, sdk_to_dict

MAX_REPR_CHARS = 1000  # of a value that JSON cannot express
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that begin no character

_deterministic_encoder = msgspec.json.Encoder(enc_hook=vars, order="deterministic")


class RejectedInput:
    """Counts and hashes refused input."""

    def __init__(self) -> None:
        self._chars = 0
        self._hash = hashlib.sha256()

    def add_text(self, text: str) -> None:
        self._chars += len(text)
        self._hash.update(text.encode(errors="surrogatepass"))

    def add_bytes(self, data: bytes) -> None:
        """Add UTF-8 that may be cut inside a character, or that is not valid."""
        self._chars += len(data.translate(None, _CONTINUATION_BYTES))
        self._hash.update(data)

    def to_reject(self, reason: str, name: str | None = None, block_id: str | None = None) -> ParseReject:
        sha256 = self._hash.hexdigest()
        return ParseReject(reason=reason, length=self._chars, sha256=sha256, name=name, block_id=block_id)


def make_text_reject(reason: str, text: str, name: str | None = None) -> ParseReject:
    rejected = RejectedInput()
    rejected.add_text(text)
    return rejected.to_reject(reason, name)


def make_reject(reason: str, value: Any, name: Any = None) -> ParseReject:
    """Build the reject of a value from its canonical JSON, or from its `repr` if it has none.

    `name` may be anything: it is dropped unless it is a string, and cut to a printable name.
    """
    try:
        body = _deterministic_encoder.encode(sdk_to_dict(value))
    except (TypeError, ValueError, RecursionError):
        body = reprlib.repr(value)[:MAX_REPR_CHARS].encode(errors="replace")

    rejected = RejectedInput()
    rejected.add_bytes(body)
    return rejected.to_reject(reason, printable_name(name))
