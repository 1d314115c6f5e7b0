"""Cursors: a text is refused, or is a position that is written and read again as the same.

A request refuses no text: it begins at the start, at a position, or with a reset. It never begins past the
number that its text has, because that would skip events.
"""

import re

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
    begins = cursor.parse_request_cursor(text)
    assert -1 <= begins.seq < MAX_SEQ
    assert begins.chunk is None or begins.seq >= 0
    assert cursor.parse_request_cursor(str(begins)) == begins

    position = parse_or_refuse(text)
    if position is None:
        number = re.match(r"\s*\+?0*([0-9]*)", text)
        assert number is not None
        assert begins.epoch in (None, "")
        assert begins.seq <= 0 or str(begins.seq) == number[1] or len(number[1]) > 18
        return
    assert begins == position
    assert cursor.parse_cursor(str(position)) == position
    assert len(str(position)) <= max(2, len(text))
