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

LIMIT_BYTES = 1 << 20  # a larger body is a blob or an attack
SENTENCE_CHARS = 160  # the decoder's words and up to 80 characters of input
OUT_OF_RANGE = "expected numbers that a double can hold, got one out of range"
NAMED_BYTES = 16 * 1024  # to find the place in Python takes about 30 times as long as to decode
LIMIT_DEPTH = 32  # real payloads stay below 10; recursion limits begin near 1000

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+')  # without its end: linear, whatever comes
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LONG = b"0" * 309  # the largest double has as many digits
_LONG_NUMBER = re.compile(rb"(?<![0-9.eE+])[0-9]{309,}+(?:\.[0-9]*+)?(?:[eE][+-]?[0-9]++)?")
_LONG_NUMBER_CHARS = 4096  # a number that is longer is refused unread
_NOT_BRACKET = bytes(set(range(256)) - set(b"[]{}"))
_BRACES = bytes.maketrans(b"[]", b"{}")
_ESCAPED = re.compile(rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_PART = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


def decode(data: bytes, kind: type[T], limit_bytes: int = LIMIT_BYTES) -> T:
    """Decode JSON from outside as `kind`."""
    if len(data) > limit_bytes:
        raise BadInput(f"expected at most {limit_bytes} bytes of JSON, got {len(data)}")
    tree = parse(data)
    skeleton = _STRING.sub(b"", data)
    if too_deep(skeleton, LIMIT_DEPTH):
        path = short(next(deep_paths(tree))) if len(data) <= NAMED_BYTES else "$"
        raise BadInput(f"expected at most {LIMIT_DEPTH} levels", path)
    if has_large_number(skeleton):
        raise BadInput(OUT_OF_RANGE, large_number(data))
    if skeleton.count(b":") != _STRING.sub(b"", msgspec.json.encode(tree)).count(b":"):
        raise duplicate_key(data)
    return convert(tree, kind)


def parse(data: bytes) -> Any:
    """Strict JSON to plain values; every failure is a `BadInput`."""
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise BadInput(f"expected at most {LIMIT_DEPTH} levels") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"expected UTF-8: {error.reason}") from None
    except msgspec.ValidationError:
        raise BadInput(OUT_OF_RANGE, large_number(data)) from None
    except msgspec.DecodeError as error:
        if _SURROGATE.search(_ESCAPED.sub(b"", data)):  # the decoder's own words would be "truncated"
            raise BadInput("expected Unicode text, got a lone surrogate") from None
        raise BadInput(f"expected JSON: {error}; it begins {quote(data[:60])}") from None


def convert(tree: Any, kind: type[T]) -> T:
    """Plain values to `kind`, strictly."""
    try:
        value = msgspec.convert(tree, kind)
        check_names(kind, value)
    except msgspec.ValidationError as error:
        raise BadInput(*problem(error)) from None
    except InvalidEvent as error:
        raise BadInput(error.problem, error.path) from None
    return value


def problem(error: msgspec.ValidationError) -> tuple[str, str]:
    """The sentence and the JSON path of a validation error."""
    sentence, found, path = str(error).rpartition(" - at `")
    sentence, path = (sentence, path.removesuffix("`")) if found else (path, "$")
    return short(sentence[:1].lower() + sentence[1:].replace("`", "")), short(path)


def path_parts(path: str) -> list[str | int]:
    """A JSON path like `$.rows[0].weight` as its keys and indexes."""
    return [int(index) if index else key for key, index in _PART.findall(path)]


def short(text: str) -> str:
    """A piece of a message: one line, bounded, however the input looked."""
    line = "".join(character if character.isprintable() else "�" for character in text[:SENTENCE_CHARS])
    return line if len(text) <= SENTENCE_CHARS else line + "…"


def has_long_number(data: bytes) -> bool:
    """Whether as many digits stand in a row as the largest double has; without, no number is larger."""
    return len(data) >= len(_LONG) and _LONG in data.translate(_ZEROS)


def has_large_number(skeleton: bytes) -> bool:
    """Whether an integer is larger than every double; the decoder reports the other numbers that are."""
    if not has_long_number(skeleton):
        return False
    numbers = (match.group() for match in _LONG_NUMBER.finditer(skeleton))
    return any(len(number) > _LONG_NUMBER_CHARS or float(number) == inf for number in numbers)


def nests(data: bytes, levels: int) -> bool:
    """Whether the objects and lists of valid JSON lie deeper in each other than this."""
    if data.count(b"{") + data.count(b"[") <= levels:
        return False
    return too_deep(_STRING.sub(b"", data), levels)


def too_deep(skeleton: bytes, levels: int) -> bool:
    """Whether brackets nest deeper than this: each pass removes the innermost level."""
    braces = skeleton.translate(_BRACES, _NOT_BRACKET)
    for _ in range(levels):
        if not braces:
            return False
        braces = braces.replace(b"{}", b"")
    return bool(braces)


def deep_paths(tree: Any, path: str = "$", depth: int = 1) -> Iterator[str]:
    """The paths at which the depth limit is passed."""
    for place, value in children(tree, path):
        if isinstance(value, dict | list):
            if depth == LIMIT_DEPTH:
                yield place
            else:
                yield from deep_paths(value, place, depth + 1)


def children(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The values inside an object (also as pairs) or a list, each with its path."""
    if isinstance(tree, Pairs):
        yield from ((f"{path}.{key}", value) for key, value in tree)
    elif isinstance(tree, dict):
        yield from ((f"{path}.{key}", value) for key, value in tree.items())
    elif isinstance(tree, list):
        yield from ((f"{path}[{index}]", value) for index, value in enumerate(tree))


class Pairs(list[tuple[str, Any]]):
    """An object with every key it named, in order."""


def duplicate_paths(tree: Any, path: str = "$") -> Iterator[str]:
    """The paths of the keys that an object names again."""
    seen: set[str] = set()
    for place, value in children(tree, path):
        if isinstance(tree, Pairs) and place in seen:
            yield place
        seen.add(place)
        yield from duplicate_paths(value, place)


def duplicate_key(data: bytes) -> BadInput:
    """Name the first key that stands twice in one object."""
    path = "$"
    if len(data) <= NAMED_BYTES:
        import json  # refused input only: `import turnlog` does not pay for it

        path = short(next(duplicate_paths(json.loads(data, object_pairs_hook=Pairs))))
    return BadInput("expected each key once in an object, got one twice", path)


def large_paths(tree: Any, path: str = "$") -> Iterator[str]:
    """The paths of infinite numbers."""
    if isinstance(tree, float) and abs(tree) == inf:
        yield path
    for place, value in children(tree, path):
        yield from large_paths(value, place)


def large_number(data: bytes) -> str:
    """The path of the first number that no double holds; `$` where it cannot be told."""
    if len(data) > NAMED_BYTES:
        return "$"
    import json  # refused input only

    try:
        tree = json.loads(data, object_pairs_hook=Pairs, parse_int=float)
    except (ValueError, RecursionError):  # the decoder stopped at the number: the rest may be no JSON
        return "$"
    return short(next(large_paths(tree), "$"))
