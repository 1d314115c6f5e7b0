"""New ids and the current time. The pure packages get both as values.

An id is a prefix and a UUIDv7, so ids sort by time. Nothing relies on that: the order of events is `seq`.
"""

import os
import re
import time
from typing import Literal

Prefix = Literal["evt_", "sess_", "tr_", "agt_", "blk_", "call_", "inv_", "part_"]

PRIVATE_BLOB_PREFIX = "private-"  # no hash begins with it: private and public blobs never share a name

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_VARIANT_DIGITS = {f"{value:x}": f"{0b1000 | value & 0b11:x}" for value in range(16)}  # the bits 10, then two
ID_RANDOM_BYTES = 10
RANDOM_PARTS = 256  # that are read at a time: 2.5 kB


class RandomParts:
    """The random bytes of ids, many of which are read from the system at a time.

    Each read lets other threads run. Beside a busy writer that took longer than the rest of an append.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def take(self) -> bytes:
        """Return random bytes that no other caller gets, in any thread or process."""
        try:
            return self._parts.pop()  # one step, so two threads never take the same
        except IndexError:
            data = os.urandom(ID_RANDOM_BYTES * RANDOM_PARTS)
            starts = range(ID_RANDOM_BYTES, len(data), ID_RANDOM_BYTES)
            self._parts.extend([data[start : start + ID_RANDOM_BYTES] for start in starts])
            return data[:ID_RANDOM_BYTES]

    def clear(self) -> None:
        self._parts.clear()


_random_parts = RandomParts()
if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_random_parts.clear)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def uuid7(ms: int, random: bytes) -> str:
    """Build a UUIDv7 (RFC 9562) from a time and ten random bytes."""
    time_digits = f"{ms & 0xFFFF_FFFF_FFFF:012x}"
    digits = random[:ID_RANDOM_BYTES].hex()
    variant = _VARIANT_DIGITS[digits[4]]
    return f"{time_digits[:8]}-{time_digits[8:]}-7{digits[:3]}-{variant}{digits[5:8]}-{digits[8:]}"


def new_id(prefix: Prefix) -> str:
    return prefix + uuid7(now_ms(), _random_parts.take())


def to_event_id(id: str) -> str:
    """Return the event id of a bare UUID, as `crypto.randomUUID()` makes it; any other id unchanged."""
    return f"evt_{id.lower()}" if _UUID.fullmatch(id) else id


def new_session_id() -> str:
    """Return a session id of 128 random bits. It must not be guessed: a request may name any id."""
    return "sess_" + os.urandom(16).hex()


def new_private_blob_name() -> str:
    """Return a name of 128 random bits: nothing about the content follows from it."""
    return PRIVATE_BLOB_PREFIX + os.urandom(16).hex()


def new_epoch() -> str:
    """Return a new epoch for a session's history: a letter from g to v and seven hexadecimal digits.

    With the letter first, no epoch is read as the seq of a cursor.
    """
    digits = os.urandom(4).hex()
    return chr(ord("g") + int(digits[0], 16)) + digits[1:]


def new_process_id() -> str:
    """Return a name for this process that no other process has had."""
    return os.urandom(8).hex()
