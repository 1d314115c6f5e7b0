"""Cursors: a text is refused, or is a position that is written and read again as the same."""

from turnlog.errors import BadInput
from turnlog.wire import cursor

MAX_SEQ = 10**18


def parse_or_refuse(text: str) -> cursor.Cursor | None:
    try:
        return cursor.parse_cursor(text)
    except BadInput:
        return None


def target(data: bytes) -> None:
    text = data.decode(errors="surrogateescape")
    position = parse_or_refuse(text)
    if position is None:
        return
    assert -1 <= position.seq < MAX_SEQ
    assert position.chunk is None or position.seq >= 0
    assert cursor.parse_cursor(str(position)) == position
    assert len(str(position)) <= max(2, len(text))
