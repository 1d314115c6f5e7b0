"""The high-water mark: how far each session had come, in a file beside the database.

A damaged write-ahead log makes SQLite forget its last commits without a word. The mark remembers: after
each commit the last seq of every session in it is written here, into mapped memory, which outlives the
process but costs no system call. It is written after the commit, so it can lag behind and never run ahead.
A slot that does not match its checksum says nothing. Other processes watch the counter to learn that there
is something new.
"""

import mmap
import os
import struct
import zlib
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

from turnlog.log.sqlite.files import open_private_file

MAGIC = b"turnlog1"
HEADER = struct.Struct("<8sQ")
SLOT = struct.Struct("<qqI72s")  # session ids have at most 69 characters
FIRST_SLOT_OFFSET = 64
GROW_SLOTS = 4096
ZERO_CHUNK_BYTES = 1 << 16


class Watermark(NamedTuple):
    """How far a session had come: its last seq, how often it changed, and its id, to name it when lost."""

    last: int
    revision: int
    session_id: str


class WatermarkFile:
    """The mapped file; slots are numbered like the sessions of the store, from 1."""

    def __init__(self, path: Path, *, writable: bool, sessions: int = 0) -> None:
        self._path = path
        self._writable = writable
        head = path.read_bytes()[:FIRST_SLOT_OFFSET] if path.exists() else b""
        self.is_missing = not path.exists()
        self.is_damaged = not self.is_missing and (
            len(head) < FIRST_SLOT_OFFSET or not head.startswith(MAGIC)
        )
        self._map: mmap.mmap | None = None
        if writable and (self.is_damaged or not head):
            with open_private_file(path, "wb") as new:
                new.write(HEADER.pack(MAGIC, 0).ljust(FIRST_SLOT_OFFSET, b"\0"))
        elif self.is_damaged or not head:
            return
        self._file = path.open("r+b" if writable else "rb")
        self._map = self._map_file()
        if writable and FIRST_SLOT_OFFSET + (sessions + 1) * SLOT.size > len(self._map):
            self._grow(sessions)

    def _map_file(self) -> mmap.mmap:
        access = mmap.ACCESS_WRITE if self._writable else mmap.ACCESS_READ
        return mmap.mmap(self._file.fileno(), 0, access=access)

    @property
    def is_usable(self) -> bool:
        """Whether there is a file to look at."""
        return self._map is not None

    @property
    def commit_count(self) -> int:
        """How many commits there were; it changes when there is something new."""
        count: int = HEADER.unpack_from(self._map)[1] if self._map else 0
        return count

    def get(self, number: int) -> Watermark | None:
        """What is remembered of a session."""
        place = FIRST_SLOT_OFFSET + number * SLOT.size
        if self._map and place + SLOT.size > len(self._map):
            self._remap()
        if self._map is None or place + SLOT.size > len(self._map):
            return None
        last, revision, checksum, name = SLOT.unpack_from(self._map, place)
        if checksum != slot_checksum(number, last, revision, name):
            return None
        return Watermark(last, revision, name.rstrip(b"\0").decode(errors="replace"))

    def watermarks(self, without: Container[int] = ()) -> Iterator[tuple[int, Watermark]]:
        """What is remembered, by number, without some numbers."""
        for number, (_, _, checksum, _) in enumerate(self._read_slots()):
            if checksum and number not in without and (slot := self.get(number)):
                yield number, slot

    def matching_numbers(self, positions: Mapping[int, tuple[int, int]]) -> set[int]:
        """The numbers whose last seq and revision are as given; quick, nothing else is looked at."""
        raw = self._read_slots()
        return {
            number
            for number, (last, revision) in positions.items()
            if number < len(raw) and raw[number][0] == last and raw[number][1] == revision
        }

    def _read_slots(self) -> list[tuple[int, int, int, bytes]]:
        if self._map is None:
            return []
        end = len(self._map) - (len(self._map) - FIRST_SLOT_OFFSET) % SLOT.size
        return list(SLOT.iter_unpack(self._map[FIRST_SLOT_OFFSET:end]))

    def reserve(self, number: int) -> None:
        """Make room for a new session, on the disk too: mapped memory must never meet a full disk."""
        assert self._map is not None
        if FIRST_SLOT_OFFSET + (number + 1) * SLOT.size > len(self._map):
            self._grow(number)

    def write_commit(self, watermarks: dict[int, Watermark]) -> None:
        """Remember the sessions of a commit, then count it."""
        assert self._map is not None
        for number, (last, revision, session_id) in watermarks.items():
            name = session_id.encode().ljust(72, b"\0")
            checksum = slot_checksum(number, last, revision, name)
            SLOT.pack_into(self._map, FIRST_SLOT_OFFSET + number * SLOT.size, last, revision, checksum, name)
        HEADER.pack_into(self._map, 0, MAGIC, self.commit_count + 1)

    def clear(self, number: int) -> None:
        """A session that is lost is not remembered any more; its number may be used again."""
        assert self._map is not None
        SLOT.pack_into(self._map, FIRST_SLOT_OFFSET + number * SLOT.size, 0, 0, 0, b"")

    def _grow(self, number: int) -> None:
        assert self._map is not None
        size = FIRST_SLOT_OFFSET + (number // GROW_SLOTS + 1) * GROW_SLOTS * SLOT.size
        allocate_file(self._file, size)
        self._map.close()
        self._map = self._map_file()

    def _remap(self) -> None:
        """Follow a file that another process has made longer."""
        assert self._map is not None
        if self._path.stat().st_size > len(self._map):
            self._map.close()
            self._map = self._map_file()

    def close(self) -> None:
        """Let go of the file."""
        if self._map is not None:
            self._map.close()
            self._file.close()


def allocate_file(file: IO[bytes], size_bytes: int) -> None:
    """Make a file longer, with its blocks on the disk; raise OSError where the disk is full."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size_bytes)
        return
    # macOS and Windows: a block is on the disk once it was written
    file.seek(0, os.SEEK_END)
    while (left := size_bytes - file.tell()) > 0:
        file.write(bytes(min(left, ZERO_CHUNK_BYTES)))
    file.flush()


def slot_checksum(number: int, last: int, revision: int, name: bytes) -> int:
    """Never 0, which is what an empty slot holds."""
    return zlib.crc32(name, zlib.crc32(b"%d:%d:%d" % (number, last, revision))) or 1
