"""Ways of cutting an input into pieces, for the law that no cutting changes a result."""

from collections.abc import Iterator
from typing import TypeVar

Text = TypeVar("Text", str, bytes)


def cut_every(data: Text, size: int) -> list[Text]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def cuttings(data: Text) -> Iterator[list[Text]]:
    """Yield the pieces of single characters, of a size that depends on the data, and with empty ones."""
    yield cut_every(data, 1)
    yield cut_every(data, 2 + len(data) % 7)
    middle = len(data) // 2
    yield [data[:0], data[:middle], data[:0], data[middle:], data[:0]]
