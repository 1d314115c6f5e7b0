"""Offsets: positions in a stream as clients send them back, `<position>_<tag of the epoch>`.

Both parts have 16 digits, so offsets of a stream sort like their positions. Position 0 is before the first
event. The tag is a hash of the session's epoch: an offset of a history that was lost, or of a deleted stream
under the same path, is recognised. `-1` and `now` are the start and the end of a stream.
"""

import re
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from turnlog.errors import BadInput, quote

ANY_TAG = 0  # of the start, which is the same in every history

_OFFSET = re.compile(r"([0-9]{16})_([0-9]{16})")


class Offset(NamedTuple):
    """A position and the tag of the epoch that it was made in."""

    position: int
    tag: int = ANY_TAG


START = Offset(0)
NOW = Offset(-1)  # the end of the stream when the request is served


@lru_cache(1024)  # every offset of a stream has it
def tag_epoch(epoch: str) -> int:
    """Return the tag of an epoch: 48 bits of its hash, never `ANY_TAG`."""
    return int.from_bytes(sha256(epoch.encode()).digest()[:6]) or 1


def format_offset(position: int, tag: int) -> str:
    return f"{position:016d}_{tag:016d}"


def parse_offset(text: str, name: str = "offset") -> Offset:
    """Parse the parameter or header `name`. Raise `BadInput` for another form."""
    if text == "-1":
        return START
    if text == "now":
        return NOW
    match = _OFFSET.fullmatch(text)
    if match is None or not text.isascii():
        raise BadInput(f"expected an offset of this stream, -1 or now, got {quote(text)}", name)
    return Offset(int(match[1]), int(match[2]))
