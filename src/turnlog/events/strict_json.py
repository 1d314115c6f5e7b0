"""Strict JSON for input from outside: bytes in, a typed value out, or a `BadInput` with the JSON path.

Refused: over 1 MiB, deeper than 32 levels, not JSON (NaN, Infinity, lone surrogates, bad UTF-8 included), a
number that a double cannot hold, an object with a duplicate key, and what the requested type refuses.
Accepted input is never walked in Python: the C decoder reads it, then depth and keys are counted on its
skeleton, the bytes that remain without the strings. Refused input is walked to find the path, if it has at
most `MAX_PATH_SEARCH_BYTES`: larger refused input costs no more than accepted input.
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
MAX_MESSAGE_CHARS = 160  # the decoder's message and up to 80 characters of input
OUT_OF_RANGE_MESSAGE = "expected numbers that a double can hold, got one out of range"
MAX_PATH_SEARCH_BYTES = 16 * 1024  # finding the path in Python takes about 30 times as long as decoding
MAX_JSON_DEPTH = 32  # real payloads stay below 10; recursion limits begin near 1000

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+')  # the end is optional, to stay linear
_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG_DIGITS = b"0" * 309  # the number of digits of the largest double
_LONG_NUMBER = re.compile(rb"(?<![0-9.eE+])[0-9]{309,}+(?:\.[0-9]*+)?(?:[eE][+-]?[0-9]++)?")
_MAX_NUMBER_CHARS = 4096  # a longer number is refused without parsing it
_NOT_BRACKET = bytes(set(range(256)) - set(b"[]{}"))
_BRACKETS_TO_BRACES = bytes.maketrans(b"[]", b"{}")
_ESCAPED = re.compile(rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_PATH_PART = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


def decode_strict_json(data: bytes, type_: type[T], max_bytes: int = MAX_JSON_BYTES) -> T:
    """Decode JSON from outside as `type_`. Raise `BadInput`."""
    if len(data) > max_bytes:
        raise BadInput(f"expected at most {max_bytes} bytes of JSON, got {len(data)}")
    tree = parse_strict_json(data)

    skeleton = _STRING.sub(b"", data)
    if brackets_exceed_depth(skeleton, MAX_JSON_DEPTH):
        path = "$"
        if len(data) <= MAX_PATH_SEARCH_BYTES:
            path = one_line(next(iter_too_deep_paths(tree)))
        raise BadInput(f"expected at most {MAX_JSON_DEPTH} levels", path)
    if has_overflowing_number(skeleton):
        raise BadInput(OUT_OF_RANGE_MESSAGE, find_overflow_path(data))

    # The decoder keeps one of two equal keys, so the encoded tree has fewer colons than the input.
    encoded_skeleton = _STRING.sub(b"", msgspec.json.encode(tree))
    if skeleton.count(b":") != encoded_skeleton.count(b":"):
        raise make_duplicate_key_error(data)
    return convert_strict(tree, type_)


def parse_strict_json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise BadInput(f"expected at most {MAX_JSON_DEPTH} levels") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"expected UTF-8: {error.reason}") from None
    except msgspec.ValidationError:
        raise BadInput(OUT_OF_RANGE_MESSAGE, find_overflow_path(data)) from None
    except msgspec.DecodeError as error:
        # The decoder's own message would be "truncated".
        if _SURROGATE.search(_ESCAPED.sub(b"", data)):
            raise BadInput("expected Unicode text, got a lone surrogate") from None
        raise BadInput(f"expected JSON: {error}; it begins {quote(data[:60])}") from None


def convert_strict(tree: Any, type_: type[T]) -> T:
    try:
        value = msgspec.convert(tree, type_)
        check_names(type_, value)
    except msgspec.ValidationError as error:
        raise BadInput(*split_validation_error(error)) from None
    except InvalidEvent as error:
        raise BadInput(error.problem, error.path) from None
    return value


def split_validation_error(error: msgspec.ValidationError) -> tuple[str, str]:
    """Return the sentence and the JSON path of a validation error. The path is `$` if it names none."""
    sentence, separator, path = str(error).rpartition(" - at `")
    if not separator:
        sentence = str(error)
        path = "$"
    sentence = sentence[:1].lower() + sentence[1:].replace("`", "")
    return one_line(sentence), one_line(path.removesuffix("`"))


def split_json_path(path: str) -> list[str | int]:
    return [int(index) if index else key for key, index in _PATH_PART.findall(path)]


def one_line(text: str) -> str:
    """Return `text` as one printable line of at most `MAX_MESSAGE_CHARS` characters."""
    line = "".join(character if character.isprintable() else "�" for character in text[:MAX_MESSAGE_CHARS])
    return line if len(text) <= MAX_MESSAGE_CHARS else line + "…"


def may_overflow_double(data: bytes) -> bool:
    """Return False if `data` has fewer than 309 consecutive digits: no integer exceeds a double then."""
    return len(data) >= len(_LONG_DIGITS) and _LONG_DIGITS in data.translate(_DIGITS_TO_ZERO)


def has_overflowing_number(skeleton: bytes) -> bool:
    """Return True if an integer exceeds the largest double. The decoder reports all other numbers."""
    if not may_overflow_double(skeleton):
        return False
    numbers = (match.group() for match in _LONG_NUMBER.finditer(skeleton))
    return any(len(number) > _MAX_NUMBER_CHARS or float(number) == inf for number in numbers)


def exceeds_depth(data: bytes, max_depth: int) -> bool:
    if data.count(b"{") + data.count(b"[") <= max_depth:
        return False
    return brackets_exceed_depth(_STRING.sub(b"", data), max_depth)


def brackets_exceed_depth(skeleton: bytes, max_depth: int) -> bool:
    braces = skeleton.translate(_BRACKETS_TO_BRACES, _NOT_BRACKET)
    # Each pass removes the innermost level.
    for _ in range(max_depth):
        if not braces:
            return False
        braces = braces.replace(b"{}", b"")
    return bool(braces)


def iter_too_deep_paths(tree: Any, path: str = "$", depth: int = 1) -> Iterator[str]:
    for child_path, value in iter_children(tree, path):
        if not isinstance(value, dict | list):
            continue
        if depth == MAX_JSON_DEPTH:
            yield child_path
        else:
            yield from iter_too_deep_paths(value, child_path, depth + 1)


def iter_children(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, ObjectPairs):
        yield from ((f"{path}.{key}", value) for key, value in tree)
    elif isinstance(tree, dict):
        yield from ((f"{path}.{key}", value) for key, value in tree.items())
    elif isinstance(tree, list):
        yield from ((f"{path}[{index}]", value) for index, value in enumerate(tree))


class ObjectPairs(list[tuple[str, Any]]):
    """An object as the list of its keys and values, duplicate keys included."""


def iter_duplicate_paths(tree: Any, path: str = "$") -> Iterator[str]:
    seen: set[str] = set()
    for child_path, value in iter_children(tree, path):
        if isinstance(tree, ObjectPairs) and child_path in seen:
            yield child_path
        seen.add(child_path)
        yield from iter_duplicate_paths(value, child_path)


def make_duplicate_key_error(data: bytes) -> BadInput:
    path = "$"
    if len(data) <= MAX_PATH_SEARCH_BYTES:
        import json  # for refused input only, to keep `import turnlog` fast

        tree = json.loads(data, object_pairs_hook=ObjectPairs)
        path = one_line(next(iter_duplicate_paths(tree)))
    return BadInput("expected each key once in an object, got one twice", path)


def iter_overflow_paths(tree: Any, path: str = "$") -> Iterator[str]:
    if isinstance(tree, float) and abs(tree) == inf:
        yield path
    for child_path, value in iter_children(tree, path):
        yield from iter_overflow_paths(value, child_path)


def find_overflow_path(data: bytes) -> str:
    """Return the path of the first number that a double cannot hold; `$` if it cannot be found."""
    if len(data) > MAX_PATH_SEARCH_BYTES:
        return "$"
    import json  # for refused input only

    try:
        tree = json.loads(data, object_pairs_hook=ObjectPairs, parse_int=float)
    except (ValueError, RecursionError):  # the decoder stopped at the number: what follows may be no JSON
        return "$"
    return one_line(next(iter_overflow_paths(tree), "$"))
