"""New ids and the current time. The pure packages get both as values.

An id is a prefix and a UUIDv7, so ids sort by time. Nothing relies on that: the order of events is `seq`.
"""

import os
import re
import time
from typing import Literal

Prefix = Literal["evt_", "sess_", "tr_", "agt_", "blk_", "call_", "inv_"]

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def uuid7(ms: int, random: bytes) -> str:
    """Build a UUIDv7 (RFC 9562) from a time and ten random bytes."""
    tail = int.from_bytes(random[:10])
    value = (ms & 0xFFFF_FFFF_FFFF) << 80 | 0x7 << 76 | (tail >> 68) << 64 | 0b10 << 62 | tail & (1 << 62) - 1
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def new_id(prefix: Prefix) -> str:
    return prefix + uuid7(now_ms(), os.urandom(10))


def to_event_id(id: str) -> str:
    """Return the event id of a bare UUID, as `crypto.randomUUID()` makes it; any other id unchanged."""
    return f"evt_{id.lower()}" if _UUID.fullmatch(id) else id


def new_session_id() -> str:
    """Return a session id of 128 random bits. It must not be guessed: a request may name any id."""
    return "sess_" + os.urandom(16).hex()


def new_epoch() -> str:
    """Return a new epoch for a session's history: a letter from g to v and seven hexadecimal digits.

    With the letter first, no epoch is read as the seq of a cursor.
    """
    digits = os.urandom(4).hex()
    return chr(ord("g") + int(digits[0], 16)) + digits[1:]


def new_process_id() -> str:
    """Return a name for this process that no other process has had."""
    return os.urandom(8).hex()
