"""Cursors: `<epoch>:<seq>` or `<epoch>:<seq>.<chunk>`, the `id:` of every frame (protocol section 7).

A bare number means "this epoch"; -1 or nothing means the start. The chunk part says how much of an event that
became several frames has been seen.
"""

import re
from dataclasses import dataclass

from turnlog.errors import BadInput, quote

_CURSOR_PATTERN = re.compile(r"(?:([a-z0-9]{1,32}):)?(-1(?!\.)|[0-9]{1,18})(?:\.([0-9]{1,9}))?")


@dataclass(frozen=True, slots=True)
class Cursor:
    """A reader's position: everything up to `seq` has been seen, or up to chunk `chunk` of it."""

    seq: int = -1
    epoch: str | None = None
    chunk: int | None = None

    def __str__(self) -> str:
        chunk = "" if self.chunk is None else f".{self.chunk}"
        return f"{self.epoch}:{self.seq}{chunk}" if self.epoch else f"{self.seq}{chunk}"


def parse_cursor(text: str, path: str = "after") -> Cursor:
    """Read a cursor from a header or a query."""
    match = _CURSOR_PATTERN.fullmatch(text.strip()) if text.strip() else _CURSOR_PATTERN.fullmatch("-1")
    if match is None:
        raise BadInput(f"expected a cursor like `k3x9:41` or `41`, got {quote(text)}", path)
    epoch, seq, chunk = match.groups()
    return Cursor(int(seq), epoch, int(chunk) if chunk else None)
