"""The JSON gate: accepts what a strict reader of the standard library accepts, with the same value."""

import json
from math import isinf
from typing import Any

import msgspec

from turnlog.errors import BadInput
from turnlog.events.strict_json import MAX_JSON_DEPTH, decode_strict_json
from turnlog.vocabularies import FULL_CATALOG

MAX_MESSAGE_CHARS = 600  # a sentence, a path and what the input begins with
MAX_GROWTH = 8  # `9e15` is written as `9000000000000000.0`
TYPES = [kind.payload_class for kind in FULL_CATALOG]
ANYTHING: Any = Any


class NotStrict(ValueError):
    """JSON that Python reads and the gate refuses."""


def read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise NotStrict("a key twice")
    return value


def read_float(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise NotStrict("out of range")
    return number


def read_int(text: str) -> int:
    read_float(text)  # no double holds it: out of range
    return int(text)


def refuse_constant(text: str) -> None:
    raise NotStrict(text)


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


def read_strictly(data: bytes) -> tuple[bool, Any]:
    """Return whether a strict reader accepts the data, and the value."""
    try:
        value = json.loads(
            data.decode(),
            object_pairs_hook=read_object,
            parse_float=read_float,
            parse_int=read_int,
            parse_constant=refuse_constant,
        )
        json.dumps(value, ensure_ascii=False).encode()  # lone surrogates
    except (ValueError, RecursionError):
        return False, None
    return depth_of(value) <= MAX_JSON_DEPTH, value


def decode_or_refuse(data: bytes, kind: type[Any]) -> tuple[Any, BadInput | None]:
    try:
        return decode_strict_json(data, kind), None
    except BadInput as error:
        return None, error


def check_message(error: BadInput | None) -> None:
    assert error is None or len(str(error)) <= MAX_MESSAGE_CHARS
    assert error is None or str(error).isprintable()


def target(data: bytes) -> None:
    accepted, expected = read_strictly(data)
    value, refusal = decode_or_refuse(data, ANYTHING)
    assert (refusal is None) == accepted, refusal
    check_message(refusal)
    if accepted:
        assert value == expected
        assert len(msgspec.json.encode(value)) <= MAX_GROWTH * len(data)

    for kind in TYPES:
        check_message(decode_or_refuse(data, kind)[1])
