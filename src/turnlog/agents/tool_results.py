"""Convert what a tool returns to JSON values of a bounded size. Pure.

A value is measured before it is converted or encoded, and measuring stops at the limit, so a result that is
far too large is never copied. A container counts its items, a text its characters. The measure is a lower
bound: a value that passes is encoded once, to at most some six times the limit.
"""

import math
from collections.abc import Iterator, Sized
from dataclasses import fields, is_dataclass
from itertools import chain
from typing import Any

import msgspec

from turnlog.events import strict_json

FIXED_SIZE_TYPES = frozenset({int, bool, type(None)})  # their container has counted them
MAX_DEPTH = 1000  # what Python and the encoder can process; each level needs an iterator


class ResultTooLarge(ValueError):
    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"larger than {limit_bytes} bytes")


def result_to_json(result: Any, limit_bytes: int = strict_json.MAX_JSON_BYTES) -> Any:
    """Return a result as JSON values.

    Raise `ResultTooLarge` above the limit, and ValueError or TypeError for values that JSON does not have,
    among them NaN and lone surrogates.
    """
    check_json_size(result, limit_bytes)
    value = msgspec.to_builtins(result)
    # again: only the conversion opens sets, attrs classes and types with a hook
    check_json_size(value, limit_bytes)
    if len(msgspec.json.encode(value)) > limit_bytes:
        raise ResultTooLarge(limit_bytes)
    return value


def check_json_size(value: Any, limit_bytes: int) -> None:
    """Raise `ResultTooLarge` as soon as a value is known to need more bytes as JSON or is nested too deeply,
    and ValueError for a number that JSON does not have."""
    size_bytes = 0
    iterators = [iter((value,))]
    while iterators:
        for item in iterators[-1]:
            if type(item) in FIXED_SIZE_TYPES:
                continue
            size_bytes += len(item) if isinstance(item, Sized) else 1
            if size_bytes > limit_bytes or len(iterators) > MAX_DEPTH:
                raise ResultTooLarge(limit_bytes)
            if isinstance(item, float) and not math.isfinite(item):
                raise ValueError(f"expected a number that JSON has, got {item}")
            items = iter_items(item)
            if items is not None:
                # the items of this container come first, then the rest of its parent
                iterators.append(items)
                break
        else:
            iterators.pop()


def iter_items(value: Any) -> Iterator[Any] | None:
    """Return the items of a container, with the keys of a dict, without a copy; None for other values."""
    if isinstance(value, list | tuple | set | frozenset):
        return iter(value)
    if isinstance(value, dict):
        return chain.from_iterable(value.items())
    if isinstance(value, msgspec.Struct):
        return (getattr(value, name, None) for name in value.__struct_fields__)
    if is_dataclass(value) and not isinstance(value, type):
        return (getattr(value, field.name, None) for field in fields(value))
    return None
