"""The gate for JSON from outside: bytes in, a typed value out, or a `BadInput` that names the path.

Refused: over 1 MiB, deeper than 32, not JSON (NaN, Infinity, lone surrogates, bad UTF-8 included), a number
that no double holds, an object that names a key twice, and whatever the wanted type refuses. Ordinary input
is never walked in Python: after the C decoder accepted it, depth and keys are counted on its skeleton, the
bytes that remain when strings are removed. Only refused input up to `NAMED_BYTES` is walked, to name the
place: larger input that is refused costs no more than input that is accepted.
"""

import re
from collections.abc import Iterator
from math import inf
from typing import Any, TypeVar

import msgspec

from turnlog.errors import BadInput, InvalidEvent, quote
from turnlog.events.names import check_names

T = TypeVar("T")

MAX_JSON_BYTES = 1 << 20  # a larger body is a blob or an attack
MAX_MESSAGE_CHARS = 160  # the decoder's words and up to 80 characters of input
OUT_OF_RANGE_MESSAGE = "expected numbers that a double can hold, got one out of range"
MAX_PATH_SEARCH_BYTES = 16 * 1024  # to find the place in Python takes about 30 times as long as to decode
MAX_JSON_DEPTH = 32  # real payloads stay below 10; recursion limits begin near 1000

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+')  # without its end: linear, whatever comes
_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG_DIGITS = b"0" * 309  # the largest double has as many digits
_LONG_NUMBER = re.compile(rb"(?<![0-9.eE+])[0-9]{309,}+(?:\.[0-9]*+)?(?:[eE][+-]?[0-9]++)?")
_MAX_NUMBER_CHARS = 4096  # a number that is longer is refused unread
_NOT_BRACKET = bytes(set(range(256)) - set(b"[]{}"))
_BRACKETS_TO_BRACES = bytes.maketrans(b"[]", b"{}")
_ESCAPED = re.compile(rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_PATH_PART = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


def decode_strict_json(data: bytes, type_: type[T], max_bytes: int = MAX_JSON_BYTES) -> T:
    """Decode JSON from outside as `kind`."""
    if len(data) > max_bytes:
        raise BadInput(f"expected at most {max_bytes} bytes of JSON, got {len(data)}")
    tree = parse_strict_json(data)
    skeleton = _STRING.sub(b"", data)
    if brackets_exceed_depth(skeleton, MAX_JSON_DEPTH):
        path = one_line(next(iter_too_deep_paths(tree))) if len(data) <= MAX_PATH_SEARCH_BYTES else "$"
        raise BadInput(f"expected at most {MAX_JSON_DEPTH} levels", path)
    if has_overflowing_number(skeleton):
        raise BadInput(OUT_OF_RANGE_MESSAGE, find_overflow_path(data))
    if skeleton.count(b":") != _STRING.sub(b"", msgspec.json.encode(tree)).count(b":"):
        raise make_duplicate_key_error(data)
    return convert_strict(tree, type_)


def parse_strict_json(data: bytes) -> Any:
    """Strict JSON to plain values; every failure is a `BadInput`."""
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise BadInput(f"expected at most {MAX_JSON_DEPTH} levels") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"expected UTF-8: {error.reason}") from None
    except msgspec.ValidationError:
        raise BadInput(OUT_OF_RANGE_MESSAGE, find_overflow_path(data)) from None
    except msgspec.DecodeError as error:
        if _SURROGATE.search(_ESCAPED.sub(b"", data)):  # the decoder's own words would be "truncated"
            raise BadInput("expected Unicode text, got a lone surrogate") from None
        raise BadInput(f"expected JSON: {error}; it begins {quote(data[:60])}") from None


def convert_strict(tree: Any, type_: type[T]) -> T:
    """Plain values to `kind`, strictly."""
    try:
        value = msgspec.convert(tree, type_)
        check_names(type_, value)
    except msgspec.ValidationError as error:
        raise BadInput(*split_validation_error(error)) from None
    except InvalidEvent as error:
        raise BadInput(error.problem, error.path) from None
    return value


def split_validation_error(error: msgspec.ValidationError) -> tuple[str, str]:
    """The sentence and the JSON path of a validation error."""
    sentence, found, path = str(error).rpartition(" - at `")
    sentence, path = (sentence, path.removesuffix("`")) if found else (path, "$")
    return one_line(sentence[:1].lower() + sentence[1:].replace("`", "")), one_line(path)


def split_json_path(path: str) -> list[str | int]:
    """A JSON path like `$.rows[0].weight` as its keys and indexes."""
    return [int(index) if index else key for key, index in _PATH_PART.findall(path)]


def one_line(text: str) -> str:
    """A piece of a message: one line, bounded, however the input looked."""
    line = "".join(character if character.isprintable() else "�" for character in text[:MAX_MESSAGE_CHARS])
    return line if len(text) <= MAX_MESSAGE_CHARS else line + "…"


def may_overflow_double(data: bytes) -> bool:
    """Whether as many digits stand in a row as the largest double has; without, no number is larger."""
    return len(data) >= len(_LONG_DIGITS) and _LONG_DIGITS in data.translate(_DIGITS_TO_ZERO)


def has_overflowing_number(skeleton: bytes) -> bool:
    """Whether an integer is larger than every double; the decoder reports the other numbers that are."""
    if not may_overflow_double(skeleton):
        return False
    numbers = (match.group() for match in _LONG_NUMBER.finditer(skeleton))
    return any(len(number) > _MAX_NUMBER_CHARS or float(number) == inf for number in numbers)


def exceeds_depth(data: bytes, max_depth: int) -> bool:
    """Whether the objects and lists of valid JSON lie deeper in each other than this."""
    if data.count(b"{") + data.count(b"[") <= max_depth:
        return False
    return brackets_exceed_depth(_STRING.sub(b"", data), max_depth)


def brackets_exceed_depth(skeleton: bytes, max_depth: int) -> bool:
    """Whether brackets nest deeper than this: each pass removes the innermost level."""
    braces = skeleton.translate(_BRACKETS_TO_BRACES, _NOT_BRACKET)
    for _ in range(max_depth):
        if not braces:
            return False
        braces = braces.replace(b"{}", b"")
    return bool(braces)


def iter_too_deep_paths(tree: Any, path: str = "$", depth: int = 1) -> Iterator[str]:
    """The paths at which the depth limit is passed."""
    for place, value in iter_children(tree, path):
        if isinstance(value, dict | list):
            if depth == MAX_JSON_DEPTH:
                yield place
            else:
                yield from iter_too_deep_paths(value, place, depth + 1)


def iter_children(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The values inside an object (also as pairs) or a list, each with its path."""
    if isinstance(tree, ObjectPairs):
        yield from ((f"{path}.{key}", value) for key, value in tree)
    elif isinstance(tree, dict):
        yield from ((f"{path}.{key}", value) for key, value in tree.items())
    elif isinstance(tree, list):
        yield from ((f"{path}[{index}]", value) for index, value in enumerate(tree))


class ObjectPairs(list[tuple[str, Any]]):
    """An object with every key it named, in order."""


def iter_duplicate_paths(tree: Any, path: str = "$") -> Iterator[str]:
    """The paths of the keys that an object names again."""
    seen: set[str] = set()
    for place, value in iter_children(tree, path):
        if isinstance(tree, ObjectPairs) and place in seen:
            yield place
        seen.add(place)
        yield from iter_duplicate_paths(value, place)


def make_duplicate_key_error(data: bytes) -> BadInput:
    """Name the first key that stands twice in one object."""
    path = "$"
    if len(data) <= MAX_PATH_SEARCH_BYTES:
        import json  # refused input only: `import turnlog` does not pay for it

        path = one_line(next(iter_duplicate_paths(json.loads(data, object_pairs_hook=ObjectPairs))))
    return BadInput("expected each key once in an object, got one twice", path)


def iter_overflow_paths(tree: Any, path: str = "$") -> Iterator[str]:
    """The paths of infinite numbers."""
    if isinstance(tree, float) and abs(tree) == inf:
        yield path
    for place, value in iter_children(tree, path):
        yield from iter_overflow_paths(value, place)


def find_overflow_path(data: bytes) -> str:
    """The path of the first number that no double holds; `$` where it cannot be told."""
    if len(data) > MAX_PATH_SEARCH_BYTES:
        return "$"
    import json  # refused input only

    try:
        tree = json.loads(data, object_pairs_hook=ObjectPairs, parse_int=float)
    except (ValueError, RecursionError):  # the decoder stopped at the number: the rest may be no JSON
        return "$"
    return one_line(next(iter_overflow_paths(tree), "$"))
