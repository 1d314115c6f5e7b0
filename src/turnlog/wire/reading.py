"""JSON read so that Python and JavaScript hold the same value, and messages of `blocks` read from it.

Where the two could not agree (numbers beyond 2**53 - 1, lone surrogates, more than 128 levels) a value stays
text: `read_value` gives UNSET. Nothing here raises; `web/client/blocks/json.js` is the same in JavaScript.
"""

import json
import math
import re
from typing import TypeGuard

from msgspec import UNSET, Struct

from turnlog.wire.chunks import Scalar, well_formed

DEPTH = 128  # the gate stops at 32, histories wrap what passed it; far below any stack
SAFE = 2**53 - 1  # beyond it a JavaScript number is not the one that was written

COMMON = frozenset({"type", "agent", "final", "delta", "index"})

_OBJECT = re.compile(r"[ \t\r\n]*\{")
_SURROGATE = re.compile("[\ud800-\udfff]")

Json = dict[str, object]


class Message(Struct, frozen=True):
    """A message whose common fields are as they should be; `extra` holds the other scalars."""

    type: str
    agent: str
    final: bool
    delta: str
    index: int | None
    extra: dict[str, Scalar]

    def text(self, key: str) -> str | None:
        """An extra field that is a text, and not empty."""
        value = self.extra.get(key)
        return value if isinstance(value, str) and value else None


def read_fields(text: str) -> Json | None:
    """The fields of a message: none for a line that is no object, None for an object that is broken."""
    if not _OBJECT.match(text):
        return {}
    fields = read_json(text)
    return fields if isinstance(fields, dict) else None


def read_message(fields: Json) -> Message | None:
    """A message; None when a common field is missing or of another type."""
    kind, agent, delta, final = map(fields.get, ("type", "agent", "delta", "final"))
    if not (isinstance(kind, str) and isinstance(agent, str) and isinstance(delta, str)):
        return None
    found = {key: scalar(value) for key, value in fields.items() if key not in COMMON}
    extra: dict[str, Scalar] = {clean(key): value for key, value in found.items() if value is not None}
    index = place if is_count(place := fields.get("index")) else None
    return Message(kind, clean(agent), final, delta, index, extra) if isinstance(final, bool) else None


def scalar(value: object) -> Scalar:
    """A value that may stand beside a delta; None for every other."""
    if isinstance(value, str):
        return clean(value)
    return value if isinstance(value, bool | int | float) and not math.isnan(value) else None


def clean(text: str) -> str:
    """Text without lone surrogates, which UTF-8 cannot say."""
    return str(well_formed(text)) if _SURROGATE.search(text) else text


def read_value(text: str) -> object:
    """What a JSON text says; UNSET when it is no JSON, or not the same in every language."""
    value = read_json(text)
    try:
        again = "" if value is UNSET else json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return UNSET
    return UNSET if _SURROGATE.search(again) else value


def read_json(text: str) -> object:
    try:
        value: object = DECODER.decode(text)
        deep = text.count("[") + text.count("{") > DEPTH and depth(value) > DEPTH
    except (ValueError, RecursionError):
        return UNSET
    return UNSET if deep else value


def depth(value: object) -> int:
    """How many arrays and objects stand around the innermost value."""
    items = list(value.values()) if isinstance(value, dict) else value
    return 1 + max(map(depth, items), default=0) if isinstance(items, list) else 0


def number(text: str) -> int | float:
    """A number as JavaScript has it: 1.0 is 1. One that it would change is not a number."""
    value = float(text)
    if abs(value) > SAFE:
        return math.nan
    return int(value) if value.is_integer() else value


# int refuses NaN and Infinity, which are not JSON
DECODER = json.JSONDecoder(parse_int=number, parse_float=number, parse_constant=int)


def is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def read_files(text: str) -> object:
    value = read_value(text)
    files = value.get("files") if isinstance(value, dict) else None
    return files if isinstance(files, list) else UNSET


def read_calls(text: str) -> object:
    value = read_value(text)
    calls = value if isinstance(value, list) else [None]
    named = all(isinstance(call, dict) and isinstance(call.get("tool_use_id"), str) for call in calls)
    return calls if named else UNSET
