"""Decode JSON so that Python and JavaScript hold the same value, and read messages of `blocks` from it.

A value on which the two languages would differ stays text, and `read_value` returns UNSET: numbers beyond
2**53 - 1, lone surrogates, more than 128 levels. Nothing here raises. `web/client` has the same rules in
JavaScript.
"""

import json
import math
import re
from typing import TypeGuard

from msgspec import UNSET, Struct

from turnlog.events.surrogates import replace_lone_surrogates
from turnlog.wire.chunks import Scalar

MAX_DEPTH = 128  # strict JSON has at most 32 levels, histories wrap it; far below any stack limit
MAX_SAFE_INTEGER = 2**53 - 1  # JavaScript rounds larger numbers

COMMON_FIELDS = frozenset({"type", "agent", "final", "delta", "index"})

_OBJECT_START = re.compile(r"[ \t\r\n]*\{")
_SURROGATE = re.compile("[\ud800-\udfff]")

JsonObject = dict[str, object]


class BlocksMessage(Struct, frozen=True):
    """A message whose common fields have the right types. `extra` holds the other scalar fields."""

    type: str
    agent: str
    final: bool
    delta: str
    index: int | None
    extra: dict[str, Scalar]

    def get_text(self, key: str) -> str | None:
        """Return an extra field; None if it is missing, empty or not a text."""
        value = self.extra.get(key)
        return value if isinstance(value, str) and value else None


def read_fields(text: str) -> JsonObject | None:
    """Return the fields of a message: {} for a line that is not an object, None for a broken object."""
    if not _OBJECT_START.match(text):
        return {}
    fields = read_json(text)
    return fields if isinstance(fields, dict) else None


def read_message(fields: JsonObject) -> BlocksMessage | None:
    """Return the message; None if a common field is missing or has the wrong type."""
    kind = fields.get("type")
    agent = fields.get("agent")
    final = fields.get("final")
    delta = fields.get("delta")
    if not isinstance(kind, str) or not isinstance(agent, str):
        return None
    if not isinstance(final, bool) or not isinstance(delta, str):
        return None

    extra: dict[str, Scalar] = {}
    for key, value in fields.items():
        scalar = None if key in COMMON_FIELDS else to_scalar(value)
        if scalar is not None:
            extra[replace_lone_surrogates(key)] = scalar

    index = fields.get("index")
    return BlocksMessage(
        type=kind,
        agent=replace_lone_surrogates(agent),
        final=final,
        delta=delta,
        index=index if is_count(index) else None,
        extra=extra,
    )


def to_scalar(value: object) -> Scalar:
    """Return a value that an extra field may have; None for arrays, objects, null and NaN."""
    if isinstance(value, str):
        return replace_lone_surrogates(value)
    if isinstance(value, bool | int | float) and not math.isnan(value):
        return value
    return None


def read_value(text: str) -> object:
    """Return the value of a JSON text; UNSET if it is not JSON, or not the same in every language."""
    value = read_json(text)
    if value is UNSET:
        return UNSET
    try:
        canonical = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return UNSET
    return UNSET if _SURROGATE.search(canonical) else value


def read_json(text: str) -> object:
    """Return the decoded value; UNSET if the text is not JSON or too deep. Large numbers are NaN."""
    try:
        value: object = DECODER.decode(text)
        may_be_deep = text.count("[") + text.count("{") > MAX_DEPTH
        if may_be_deep and measure_depth(value) > MAX_DEPTH:
            return UNSET
    except (ValueError, RecursionError):
        return UNSET
    return value


def measure_depth(value: object) -> int:
    items = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(items, list):
        return 0
    return 1 + max(map(measure_depth, items), default=0)


def parse_number(text: str) -> int | float:
    """Return a number as JavaScript has it: 1.0 is 1. Return NaN for one that JavaScript would change."""
    value = float(text)
    if abs(value) > MAX_SAFE_INTEGER:
        return math.nan
    return int(value) if value.is_integer() else value


# `int` raises ValueError for NaN and Infinity, which are not JSON.
DECODER = json.JSONDecoder(parse_int=parse_number, parse_float=parse_number, parse_constant=int)


def is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def read_files(text: str) -> object:
    value = read_value(text)
    files = value.get("files") if isinstance(value, dict) else None
    return files if isinstance(files, list) else UNSET


def read_calls(text: str) -> object:
    """Return the list of awaited calls; UNSET unless every call has a `tool_use_id`."""
    calls = read_value(text)
    if not isinstance(calls, list):
        return UNSET
    for call in calls:
        if not isinstance(call, dict) or not isinstance(call.get("tool_use_id"), str):
            return UNSET
    return calls
