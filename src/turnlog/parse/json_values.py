"""Values of a foreign stream: dicts and objects of an SDK in, JSON values that the log can hold out. Pure.

Limits: 12 MiB, 32 levels, as for strict JSON (docs/protocol.md 2). Lone surrogates are replaced, NaN becomes
null, everything else that JSON cannot express is refused. Nothing here raises but `BadInput`.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from turnlog.errors import BadInput, InvalidEvent
from turnlog.events.names import check_names
from turnlog.events.payload import MAX_NAME_BYTES, Name, OpaqueId
from turnlog.events.strict_json import MAX_JSON_DEPTH, exceeds_depth
from turnlog.events.surrogates import replace_lone_surrogates

JsonObject = dict[str, Any]

MAX_VALUE_BYTES = 12 << 20  # a document of 9 MB as base64; fits into one SSE message of 16 MiB
MAX_REJECT_NAME_CHARS = 32  # of a foreign name in a reject: at most 128 bytes of UTF-8


def get_field(item: Any, name: str) -> Any:
    if type(item) is dict:
        return item.get(name)
    return getattr(item, name, None)


def sdk_to_dict(item: Any) -> Any:
    to_dict = getattr(item, "to_dict", None)
    if to_dict is None:
        return item
    return to_dict(mode="json", warnings=False)


def to_json_value(item: Any, enc_hook: Callable[[Any], Any] | None = None) -> Any:
    """Return plain JSON values. `enc_hook` converts other objects. Raise `BadInput`."""
    try:
        body = encode_json(sdk_to_dict(item), enc_hook)
    except (TypeError, ValueError, RecursionError):
        raise BadInput("expected a value that JSON can express") from None
    return decode_json(body)


def encode_json(tree: Any, enc_hook: Callable[[Any], Any] | None) -> bytes:
    try:
        return msgspec.json.encode(tree, enc_hook=enc_hook)
    except UnicodeEncodeError:
        import json  # for such input only, to keep `import turnlog` fast

        return replace_lone_surrogates(json.dumps(tree, ensure_ascii=False, default=enc_hook)).encode()


def decode_json(body: bytes) -> Any:
    """Decode JSON. The last of duplicate keys counts. Raise `BadInput`."""
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
    """Joins surrogate pairs that are cut between two pieces of a text, and replaces lone surrogates."""

    def __init__(self) -> None:
        self._high_surrogate = ""

    def feed(self, piece: str) -> str:
        """Return the text so far. The first half of a pair at its end is kept for the next piece."""
        if not self._high_surrogate and piece.isascii():
            return piece

        text = self._high_surrogate + piece
        self._high_surrogate = ""
        if "\ud800" <= text[-1:] <= "\udbff":
            self._high_surrogate = text[-1]
            text = text[:-1]
        return replace_lone_surrogates(text)

    def flush(self) -> str:
        text = replace_lone_surrogates(self._high_surrogate)
        self._high_surrogate = ""
        return text


def convert_or_none(value: Any, type_: Any) -> Any:
    try:
        converted = msgspec.convert(value, type_)
        check_names(type_, converted)
    except (msgspec.ValidationError, InvalidEvent, UnicodeEncodeError):
        return None
    return converted


def as_opaque_id(value: Any) -> str | None:
    opaque_id: str | None = convert_or_none(value, OpaqueId)
    return opaque_id


def as_name(value: Any) -> str | None:
    name: str | None = convert_or_none(value, Name)
    if not name:
        return None
    if replace_lone_surrogates(name) != name or len(name.encode()) > MAX_NAME_BYTES:
        return None
    return name


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def printable_name(name: Any) -> str | None:
    """Return the printable characters of a foreign name, at most 32; None if there are none."""
    if not isinstance(name, str):
        return None
    characters = [character for character in replace_lone_surrogates(name) if character.isprintable()]
    return "".join(characters[:MAX_REJECT_NAME_CHARS]) or None
