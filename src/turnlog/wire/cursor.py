"""Cursors: `<epoch>:<seq>` or `<epoch>:<seq>.<chunk>`, the `id:` of every frame (protocol section 7).

A bare number means "this epoch"; -1 or nothing means the start. The chunk is the number of the last frame
that the reader has of an event with several frames.
"""

import re
from dataclasses import dataclass

from turnlog.errors import BadInput, quote

_CURSOR_PATTERN = re.compile(r"(?:([a-z0-9]{1,32}):)?(-1(?!\.)|[0-9]{1,18})(?:\.([0-9]{1,9}))?")


@dataclass(frozen=True, slots=True)
class Cursor:
    """A reader's position: it has everything up to `seq`, or up to chunk `chunk` of it."""

    seq: int = -1
    epoch: str | None = None
    chunk: int | None = None

    def __str__(self) -> str:
        position = str(self.seq) if self.chunk is None else f"{self.seq}.{self.chunk}"
        return f"{self.epoch}:{position}" if self.epoch else position


def parse_cursor(text: str, path: str = "after") -> Cursor:
    """Parse a cursor from a header or a query; raise `BadInput` with `path` if it is malformed."""
    match = _CURSOR_PATTERN.fullmatch(text.strip() or "-1")
    if match is None:
        raise BadInput(f"expected a cursor like `k3x9:41` or `41`, got {quote(text)}", path)
    epoch, seq, chunk = match.groups()
    return Cursor(int(seq), epoch, int(chunk) if chunk else None)
