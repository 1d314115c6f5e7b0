"""Small pictures without a library: rows of pixels as a PNG."""

import struct
import zlib
from collections.abc import Sequence

Colour = tuple[int, int, int]

PAPER, CALM, STRONG = (250, 248, 242), (64, 128, 178), (200, 72, 56)
BAR, GAP, STEP = 20, 4, 8  # pixels: the width of a bar, the paper beside it, the height of one step


def png(rows: Sequence[Sequence[Colour]]) -> bytes:
    """Pixels, row by row, as a PNG."""
    lines = b"".join(b"\0" + bytes(value for colour in row for value in colour) for row in rows)
    head = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )


def bars(values: Sequence[int], limit: int) -> bytes:
    """A bar for each value; those above the limit stand out."""
    rows = []
    for level in range(max(*values, limit), -1, -1):
        inks = [PAPER if value <= level else STRONG if value > limit else CALM for value in values]
        row = [PAPER] * GAP + [pixel for ink in inks for pixel in [ink] * BAR + [PAPER] * GAP]
        rows += [row] * STEP
    return png(rows)


def sky(clouds: int) -> bytes:
    """The sky over a place: the more clouds (0 to 8), the greyer."""
    blue = 235 - 12 * clouds
    return png([[(90 + 12 * clouds + row, 140 + row, blue)] * 96 for row in range(64)])
