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
from turnlog.events.payload import MAX_NAME_BYTES, Name, OpaqueId
from turnlog.events.strict_json import MAX_JSON_DEPTH, exceeds_depth
from turnlog.events.surrogates import replace_lone_surrogates

JsonObject = dict[str, Any]

MAX_VALUE_BYTES = 12 << 20  # a document of 9 MB as base64; fits into one SSE message of 16 MiB
MAX_REPR_CHARS = 1000  # of something that JSON cannot say
MAX_REJECT_NAME_CHARS = 32  # of a foreign name in a reject: at most 128 bytes of UTF-8

_deterministic_encoder = msgspec.json.Encoder(enc_hook=vars, order="deterministic")


def get_field(thing: Any, name: str) -> Any:
    """A field of a dict or of an object; None if it is not there."""
    return thing.get(name) if type(thing) is dict else getattr(thing, name, None)


def sdk_to_dict(thing: Any) -> Any:
    """An object of an SDK as the dict it was made from."""
    dump = getattr(thing, "to_dict", None)
    return thing if dump is None else dump(mode="json", warnings=False)


def to_json_value(thing: Any, fields: Callable[[Any], Any] | None = None) -> Any:
    """JSON values that the log can hold; else `BadInput`. `fields` says what other objects are made of."""
    try:
        body = encode_json(sdk_to_dict(thing), fields)
    except (TypeError, ValueError, RecursionError):
        raise BadInput("expected what JSON can say") from None
    return decode_json(body)


def encode_json(tree: Any, fields: Callable[[Any], Any] | None) -> bytes:
    """The JSON of a tree, lone surrogates replaced."""
    try:
        return msgspec.json.encode(tree, enc_hook=fields)
    except UnicodeEncodeError:
        import json  # such input only: `import turnlog` does not pay for it

        return replace_lone_surrogates(json.dumps(tree, ensure_ascii=False, default=fields)).encode()


def decode_json(body: bytes) -> Any:
    """The value of strict JSON; of a key that stands twice the last one counts. Else `BadInput`."""
    if len(body) > MAX_VALUE_BYTES:
        raise BadInput(f"expected at most {MAX_VALUE_BYTES} bytes of JSON, got {len(body)}")
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadInput("expected JSON") from None
    if exceeds_depth(body, MAX_JSON_DEPTH):
        raise BadInput(f"expected at most {MAX_JSON_DEPTH} levels")
    return value


class SurrogateJoiner:
    """Mends a text that comes in pieces: a pair of surrogates that was cut in two is one character."""

    def __init__(self) -> None:
        self._high_surrogate = ""

    def feed(self, piece: str) -> str:
        """Return what is decided of the text; half a pair at its end waits for the next piece."""
        if not self._high_surrogate and piece.isascii():
            return piece
        text, self._high_surrogate = self._high_surrogate + piece, ""
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._high_surrogate = text[:-1], text[-1]
        return replace_lone_surrogates(text)

    def flush(self) -> str:
        """Return the rest: no second half came."""
        text, self._high_surrogate = replace_lone_surrogates(self._high_surrogate), ""
        return text


def make_reject(reason: str, thing: Any, name: Any = None, block_id: str | None = None) -> ParseReject:
    """The trace of something that was not taken: how long it was, its hash, what it called itself."""
    try:
        body = _deterministic_encoder.encode(sdk_to_dict(thing))
    except (TypeError, ValueError, RecursionError):
        body = reprlib.repr(thing)[:MAX_REPR_CHARS].encode(errors="replace")
    label = printable_name(name)
    sha256 = hashlib.sha256(body).hexdigest()
    length = len(body.decode())
    return ParseReject(reason=reason, length=length, sha256=sha256, name=label, block_id=block_id)


def convert_or_none(value: Any, type_: Any) -> Any:
    """The value, if it is of this kind; else None."""
    try:
        found = msgspec.convert(value, type_)
        check_names(type_, found)
    except (msgspec.ValidationError, InvalidEvent, UnicodeEncodeError):
        return None
    return found


def as_opaque_id(value: Any) -> str | None:
    """The value, if it can be an id."""
    found: str | None = convert_or_none(value, OpaqueId)
    return found


def as_name(value: Any) -> str | None:
    """The value, if it can be a name."""
    found: str | None = convert_or_none(value, Name)
    return (
        found
        if found
        and len(replace_lone_surrogates(found).encode()) <= MAX_NAME_BYTES
        and replace_lone_surrogates(found) == found
        else None
    )


def printable_name(name: Any) -> str | None:
    """A foreign name as it may stand in a reject."""
    if not isinstance(name, str):
        return None
    return (
        "".join(character for character in replace_lone_surrogates(name) if character.isprintable())[
            :MAX_REJECT_NAME_CHARS
        ]
        or None
    )
