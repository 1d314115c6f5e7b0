"""What a tool returns, as JSON values of a bounded size. Pure.

A value is measured before it is converted or encoded, and measuring stops at the limit: a result that is far
too large costs no copy of it. A container counts its items when it is met, a text its characters. The measure
is a lower bound; what passes is encoded once, to some six times the limit at most.
"""

import math
from collections.abc import Iterator, Sized
from dataclasses import fields, is_dataclass
from itertools import chain
from typing import Any

import msgspec

from turnlog.events import strict_json

FIXED_SIZE_TYPES = frozenset({int, bool, type(None)})  # the container that holds them has counted them
MAX_DEPTH = 1000  # what Python and the encoder can take; an iterator is held for each level


class ResultTooLarge(ValueError):
    """A value that is larger than a limit."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"larger than {limit_bytes} bytes")


def result_to_json(result: Any, limit_bytes: int = strict_json.MAX_JSON_BYTES) -> Any:
    """Return a result as JSON values. Raise TooLarge for one above the limit, and ValueError or TypeError for
    what JSON cannot say, NaN and lone surrogates too."""
    check_json_size(result, limit_bytes)
    value = msgspec.to_builtins(result)
    check_json_size(
        value, limit_bytes
    )  # what only the conversion opens: sets, attrs classes, types with a hook
    if len(msgspec.json.encode(value)) > limit_bytes:
        raise ResultTooLarge(limit_bytes)
    return value


def check_json_size(value: Any, limit_bytes: int) -> None:
    """Raise TooLarge as soon as a value is known to need more bytes as JSON, and ValueError for a number that
    JSON does not have."""
    size_bytes = 0
    open_items = [iter((value,))]
    while open_items:
        for item in open_items[-1]:
            if type(item) in FIXED_SIZE_TYPES:
                continue
            size_bytes += len(item) if isinstance(item, Sized) else 1
            if size_bytes > limit_bytes or len(open_items) > MAX_DEPTH:
                raise ResultTooLarge(limit_bytes)
            if isinstance(item, float) and not math.isfinite(item):
                raise ValueError(f"expected a number that JSON has, got {item}")
            if (inside := iter_items(item)) is not None:
                open_items.append(inside)
                break  # what comes after this item is looked at when its inside is done
        else:
            open_items.pop()


def iter_items(value: Any) -> Iterator[Any] | None:
    """Return what a container holds, keys too, without a copy; None for what is no container."""
    if isinstance(value, list | tuple | set | frozenset):
        return iter(value)
    if isinstance(value, dict):
        return chain.from_iterable(value.items())
    if isinstance(value, msgspec.Struct):
        return (getattr(value, name, None) for name in value.__struct_fields__)
    if is_dataclass(value) and not isinstance(value, type):
        return (getattr(value, field.name, None) for field in fields(value))
    return None
