"""Values of a foreign stream: plain dicts and objects of an SDK look alike from here on. Pure.

`field` reads one field, `plain` gives JSON values that the log can hold: at most 12 MiB, 32 levels, as at the
gate (docs/protocol.md 2). What JSON cannot say is refused, except lone surrogates, which are replaced, and
NaN, which becomes null. `refused` is the trace of what was not taken. Nothing here raises but `BadInput`.
"""

import hashlib
import reprlib
from collections.abc import Callable
from typing import Any

import msgspec

from turnlog.errors import BadInput, InvalidEvent
from turnlog.events import ParseReject
from turnlog.events.names import check_names
from turnlog.events.payload import NAME_BYTES, Key, Name
from turnlog.events.strict_json import LIMIT_DEPTH, nests

Data = dict[str, Any]

WHOLE_BYTES = 12 << 20  # a document of 9 MB as base64; fits into one SSE message of 16 MiB
SHOWN_CHARS = 1000  # of something that JSON cannot say
NAME_CHARS = 32  # of a foreign name in a reject: at most 128 bytes of UTF-8

_deterministic = msgspec.json.Encoder(enc_hook=vars, order="deterministic")


def field(thing: Any, name: str) -> Any:
    """A field of a dict or of an object; None if it is not there."""
    return thing.get(name) if type(thing) is dict else getattr(thing, name, None)


def tree_of(thing: Any) -> Any:
    """An object of an SDK as the dict it was made from."""
    dump = getattr(thing, "to_dict", None)
    return thing if dump is None else dump(mode="json", warnings=False)


def plain(thing: Any, fields: Callable[[Any], Any] | None = None) -> Any:
    """JSON values that the log can hold; else `BadInput`. `fields` says what other objects are made of."""
    try:
        body = json_of(tree_of(thing), fields)
    except (TypeError, ValueError, RecursionError):
        raise BadInput("expected what JSON can say") from None
    return read(body)


def json_of(tree: Any, fields: Callable[[Any], Any] | None) -> bytes:
    """The JSON of a tree, lone surrogates replaced."""
    try:
        return msgspec.json.encode(tree, enc_hook=fields)
    except UnicodeEncodeError:
        import json  # such input only: `import turnlog` does not pay for it

        return mended(json.dumps(tree, ensure_ascii=False, default=fields)).encode()


def read(body: bytes) -> Any:
    """The value of strict JSON; of a key that stands twice the last one counts. Else `BadInput`."""
    if len(body) > WHOLE_BYTES:
        raise BadInput(f"expected at most {WHOLE_BYTES} bytes of JSON, got {len(body)}")
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadInput("expected JSON") from None
    if nests(body, LIMIT_DEPTH):
        raise BadInput(f"expected at most {LIMIT_DEPTH} levels")
    return value


def mended(text: str) -> str:
    """The text, lone surrogates replaced: no store and no socket can carry them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class SurrogateJoiner:
    """Mends a text that comes in pieces: a pair of surrogates that was cut in two is one character."""

    def __init__(self) -> None:
        self._half = ""

    def feed(self, piece: str) -> str:
        """Return what is decided of the text; half a pair at its end waits for the next piece."""
        if not self._half and piece.isascii():
            return piece
        text, self._half = self._half + piece, ""
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return mended(text)

    def flush(self) -> str:
        """Return the rest: no second half came."""
        text, self._half = mended(self._half), ""
        return text


def refused(reason: str, thing: Any, name: Any = None, block_id: str | None = None) -> ParseReject:
    """The trace of something that was not taken: how long it was, its hash, what it called itself."""
    try:
        body = _deterministic.encode(tree_of(thing))
    except (TypeError, ValueError, RecursionError):
        body = reprlib.repr(thing)[:SHOWN_CHARS].encode(errors="replace")
    label = name_of(name)
    sha256 = hashlib.sha256(body).hexdigest()
    length = len(body.decode())
    return ParseReject(reason=reason, length=length, sha256=sha256, name=label, block_id=block_id)


def valid(value: Any, kind: Any) -> Any:
    """The value, if it is of this kind; else None."""
    try:
        found = msgspec.convert(value, kind)
        check_names(kind, found)
    except (msgspec.ValidationError, InvalidEvent, UnicodeEncodeError):
        return None
    return found


def as_key(value: Any) -> str | None:
    """The value, if it can be an id."""
    found: str | None = valid(value, Key)
    return found


def as_name(value: Any) -> str | None:
    """The value, if it can be a name."""
    found: str | None = valid(value, Name)
    return found if found and len(mended(found).encode()) <= NAME_BYTES and mended(found) == found else None


def name_of(name: Any) -> str | None:
    """A foreign name as it may stand in a reject."""
    if not isinstance(name, str):
        return None
    return "".join(character for character in mended(name) if character.isprintable())[:NAME_CHARS] or None
