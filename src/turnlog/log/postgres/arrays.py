"""Columns of values as arrays in PostgreSQL's binary format.

psycopg encodes an array with some calls for each value. A group has thousands of values of known types:
here a column costs a few calls. An array is a header (dimensions, whether there are nulls, the type of the
values, how many, the first index), then length and bytes of each value. The length of a null is -1.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain, repeat
from struct import Struct
from typing import Any, TypeVar

from psycopg import postgres
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

A = TypeVar("A", bound=bytes)
EncodeArray = Callable[[Sequence[Any]], bytes]

ONE_DIMENSION = Struct("!iiIii").pack
NO_DIMENSION = Struct("!iiI").pack
pack_length = Struct("!i").pack
NULL_LENGTH = pack_length(-1)
BIGINT_BYTES = 8


class BigintArray(bytes):
    """`bigint[]`."""


class TextArray(bytes):
    """`text[]`."""


class ByteaArray(bytes):
    """`bytea[]`."""


class BooleanArray(bytes):
    """`boolean[]`."""


ELEMENT_TYPES = {BigintArray: "int8", TextArray: "text", ByteaArray: "bytea", BooleanArray: "bool"}
ELEMENT_OIDS = {array: postgres.types[name].oid for array, name in ELEMENT_TYPES.items()}


class ArrayDumper(Dumper):
    """Sends the bytes of an array as they are."""

    format = Format.BINARY

    def dump(self, obj: bytes) -> Buffer | None:
        return obj


def register_arrays(adapters: AdaptersMap) -> None:
    """Make a connection take the arrays of this module as values of statements."""
    for array, name in ELEMENT_TYPES.items():
        dumper = type(f"{array.__name__}Dumper", (ArrayDumper,), {"oid": postgres.types[name].array_oid})
        adapters.register_dumper(array, dumper)


def escape_nul(text: str) -> str:
    """Replace NUL, which text of PostgreSQL cannot contain (`connections`)."""
    return text.replace("\1", "\0011").replace("\0", "\0010")


def bigint_array(values: Sequence[Any]) -> BigintArray:
    """Encode integers or None."""
    if None in values:
        pack_bigint = Struct("!q").pack
        return join_values(BigintArray, [None if value is None else pack_bigint(value) for value in values])

    count = len(values)
    items = chain.from_iterable(zip(repeat(BIGINT_BYTES, count), values, strict=True))
    return BigintArray(array_header(BigintArray, count, False) + bigints_struct(count).pack(*items))


# Most groups have one of a few sizes: 1, or as many events as are usually in flight.
@lru_cache(256)
def bigints_struct(count: int) -> Struct:
    return Struct("!" + "iq" * count)


def text_array(values: Sequence[Any]) -> TextArray:
    """Encode strings or None. Raise `UnicodeEncodeError` for a lone surrogate."""
    if None in values:
        texts = [None if value is None else escape_nul(value).encode() for value in values]
        return join_values(TextArray, texts)

    joined = "".join(values)
    if "\0" in joined or "\1" in joined:
        values = [escape_nul(value) for value in values]
    return join_values(TextArray, [value.encode() for value in values])


def bytea_array(values: Sequence[Any]) -> ByteaArray:
    """Encode bytes or None."""
    return join_values(ByteaArray, values)


def boolean_array(values: Sequence[Any]) -> BooleanArray:
    """Encode True and False."""
    return join_values(BooleanArray, [b"\1" if value else b"\0" for value in values])


def join_values(array: type[A], values: Sequence[bytes | None]) -> A:
    """Return the array of some encoded values."""
    count = len(values)
    has_nulls = None in values
    if has_nulls and values.count(None) == count:
        return array(array_header(array, count, True) + NULL_LENGTH * count)

    parts = [b""] * (2 * count + 1)
    parts[0] = array_header(array, count, has_nulls)
    if has_nulls:
        parts[1::2] = [NULL_LENGTH if value is None else pack_length(len(value)) for value in values]
        parts[2::2] = [value or b"" for value in values]
    else:
        parts[1::2] = [pack_length(len(value)) for value in values]  # type: ignore[arg-type]
        parts[2::2] = values  # type: ignore[assignment]
    return array(b"".join(parts))


def array_header(array: type[bytes], count: int, has_nulls: bool) -> bytes:
    if not count:
        return NO_DIMENSION(0, 0, ELEMENT_OIDS[array])
    return ONE_DIMENSION(1, has_nulls, ELEMENT_OIDS[array], count, 1)
