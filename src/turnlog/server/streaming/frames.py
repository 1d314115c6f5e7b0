"""SSE frames as the server streams them: positions, and the `id:` lines of encoded pages.

Pages of frames are bytes: a page of the log is sent as it is stored. Where a cursor is needed again it is
read from the `id:` lines, here only. A frame's data is one line that begins with `data:`, so a line that
begins with `id:` is always a cursor.
"""

import math
import re
from collections.abc import AsyncGenerator

from turnlog.wire.cursor import Cursor, parse_cursor

Frames = AsyncGenerator[bytes, None]  # pages of frames; an empty page is a silence
FramePosition = tuple[float, float]  # a seq, and the index of a message within its event

_ID_LINE = re.compile(rb"^id: ([^\n]*)$", re.MULTILINE)


def position_of(cursor: Cursor) -> FramePosition:
    return cursor.seq, math.inf if cursor.chunk is None else cursor.chunk


def cursor_line(seq: int, epoch: str) -> bytes:
    return f"id: {Cursor(seq, epoch)}\n\n".encode()


def last_cursor(page: bytes) -> Cursor | None:
    ids = _ID_LINE.findall(page)
    return parse_cursor(ids[-1].decode()) if ids else None


def with_all_cursors(page: bytes, cursors: list[bytes], index: int) -> bytes:
    """Return a page of one session with the cursors of all sessions in every id.

    `cursors[index]` moves to the last id of the page.
    """

    def join_cursors(match: re.Match[bytes]) -> bytes:
        cursors[index] = match[1]
        return b"id: " + b",".join(cursors)

    return _ID_LINE.sub(join_cursors, page)
