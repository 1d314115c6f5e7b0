"""Cursors: `<seq>:<epoch>` or `<seq>.<chunk>:<epoch>`, the `id:` of every frame (protocol section 7).

The seq is first, so `parseInt` of a page returns it. A bare number means "this epoch"; -1 or nothing means
the start. The chunk is the number of the last frame that the reader has of an event with several frames.
Epochs of the log begin with a letter, so no epoch is read as a seq.
"""

import re
from dataclasses import dataclass

from turnlog.errors import BadInput, quote

END = "end"  # in a request: only events that are appended after it
MAX_CURSOR_SEQ = 10**18 - 1  # no log is that long

_CURSOR_PATTERN = re.compile(r"(-1(?!\.)|[0-9]{1,18})(?:\.([0-9]{1,9}))?(?::([a-z0-9]{1,32}))?")
_LEADING_NUMBER = re.compile(r"\+?([0-9]+)")


@dataclass(frozen=True, slots=True)
class Cursor:
    """A reader's position: it has everything up to `seq`, or up to chunk `chunk` of it.

    The empty epoch is the epoch of no session.
    """

    seq: int = -1
    epoch: str | None = None
    chunk: int | None = None

    def __str__(self) -> str:
        return format_cursor(self.seq, self.epoch, self.chunk)


def format_cursor(seq: int, epoch: str | None, chunk: int | None = None) -> str:
    """Return the text of a cursor. Frames are encoded without making a `Cursor` of each."""
    position = str(seq) if chunk is None else f"{seq}.{chunk}"
    return position if epoch is None else f"{position}:{epoch}"


UNKNOWN_POSITION = Cursor(0, "")  # a position in no session: the reader gets everything again


def parse_cursor(text: str, path: str = "after") -> Cursor:
    """Parse a cursor; raise `BadInput` with `path` if it is malformed. No text is the start."""
    match = _CURSOR_PATTERN.fullmatch(text.strip() or "-1")
    if match is None:
        raise BadInput(f"expected a cursor like `41:k3x9` or `41`, got {quote(text)}", path)
    seq, chunk, epoch = match.groups()
    return Cursor(int(seq), epoch, int(chunk) if chunk else None)


def parse_request_cursor(text: str) -> Cursor:
    """Return the position that `after=` or `Last-Event-ID` names; never raise.

    Pages compute cursors with `parseInt` and send its result, NaN too. So a text that is no cursor counts as
    its leading number, and without one as the start.
    """
    try:
        return parse_cursor(text)
    except BadInput:
        pass

    number = _LEADING_NUMBER.match(text.strip())
    if number is None:
        return Cursor()
    # The text names an epoch or several sessions, but none of ours. Its number may belong to another history:
    # continuing there would skip events without a word.
    if ":" in text or "," in text:
        return UNKNOWN_POSITION
    # int() refuses thousands of digits
    digits = number[1].lstrip("0")[:19] or "0"
    return Cursor(min(int(digits), MAX_CURSOR_SEQ))
