"""Watermarks: the last seq of each session, in a file beside the database.

A damaged write-ahead log makes SQLite drop its last commits silently. After each commit the last seq of its
sessions is written here, into mapped memory, which outlives the process and costs no system call. Because it
is written after the commit, it can lag behind the database but never run ahead. A slot that does not match
its checksum is ignored. Reading processes poll the commit count to notice new events.
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
    """Position of a session: last seq and revision. The id names the session if it is lost."""

    last: int
    revision: int
    session_id: str


class WatermarkFile:
    """The mapped file. Slots have the numbers of the sessions in the store, from 1."""

    def __init__(self, path: Path, *, writable: bool, sessions: int = 0) -> None:
        self._path = path
        self._writable = writable
        self.is_missing = not path.exists()
        header = b"" if self.is_missing else path.read_bytes()[:FIRST_SLOT_OFFSET]
        has_header = len(header) == FIRST_SLOT_OFFSET and header.startswith(MAGIC)
        self.is_damaged = not self.is_missing and not has_header
        self._map: mmap.mmap | None = None
        if not has_header and not writable:
            return

        if not has_header:
            with open_private_file(path, "wb") as new_file:
                new_file.write(HEADER.pack(MAGIC, 0).ljust(FIRST_SLOT_OFFSET, b"\0"))
        self._file = path.open("r+b" if writable else "rb")
        self._map = self._map_file()
        if writable and FIRST_SLOT_OFFSET + (sessions + 1) * SLOT.size > len(self._map):
            self._grow(sessions)

    def _map_file(self) -> mmap.mmap:
        access = mmap.ACCESS_WRITE if self._writable else mmap.ACCESS_READ
        return mmap.mmap(self._file.fileno(), 0, access=access)

    @property
    def is_usable(self) -> bool:
        return self._map is not None

    @property
    def commit_count(self) -> int:
        """Return the number of commits; 0 if there is no usable file."""
        count: int = HEADER.unpack_from(self._map)[1] if self._map else 0
        return count

    def get(self, number: int) -> Watermark | None:
        """Return the watermark of a session; None if there is none or it is damaged."""
        offset = FIRST_SLOT_OFFSET + number * SLOT.size
        if self._map and offset + SLOT.size > len(self._map):
            self._remap()
        if self._map is None or offset + SLOT.size > len(self._map):
            return None

        last, revision, checksum, name = SLOT.unpack_from(self._map, offset)
        if checksum != slot_checksum(number, last, revision, name):
            return None
        return Watermark(last, revision, name.rstrip(b"\0").decode(errors="replace"))

    def watermarks(self, without: Container[int] = ()) -> Iterator[tuple[int, Watermark]]:
        for number, (_, _, checksum, _) in enumerate(self._read_slots()):
            if not checksum or number in without:  # no checksum: an empty slot
                continue
            watermark = self.get(number)
            if watermark is not None:
                yield number, watermark

    def matching_numbers(self, positions: Mapping[int, tuple[int, int]]) -> set[int]:
        """Return the numbers whose slot has the given (last, revision). Checksums are not verified."""
        slots = self._read_slots()
        return {
            number
            for number, position in positions.items()
            if number < len(slots) and slots[number][:2] == position
        }

    def _read_slots(self) -> list[tuple[int, int, int, bytes]]:
        if self._map is None:
            return []
        end = len(self._map) - (len(self._map) - FIRST_SLOT_OFFSET) % SLOT.size
        return list(SLOT.iter_unpack(self._map[FIRST_SLOT_OFFSET:end]))

    def reserve(self, number: int) -> None:
        # A write to mapped memory cannot report a full disk: so the blocks must exist before.
        assert self._map is not None
        if FIRST_SLOT_OFFSET + (number + 1) * SLOT.size > len(self._map):
            self._grow(number)

    def write_commit(self, watermarks: dict[int, Watermark]) -> None:
        """Write the watermarks of a commit, then count the commit."""
        assert self._map is not None
        for number, (last, revision, session_id) in watermarks.items():
            name = session_id.encode().ljust(72, b"\0")
            checksum = slot_checksum(number, last, revision, name)
            SLOT.pack_into(self._map, FIRST_SLOT_OFFSET + number * SLOT.size, last, revision, checksum, name)
        HEADER.pack_into(self._map, 0, MAGIC, self.commit_count + 1)

    def clear(self, number: int) -> None:
        assert self._map is not None
        SLOT.pack_into(self._map, FIRST_SLOT_OFFSET + number * SLOT.size, 0, 0, 0, b"")

    def _grow(self, number: int) -> None:
        assert self._map is not None
        size = FIRST_SLOT_OFFSET + (number // GROW_SLOTS + 1) * GROW_SLOTS * SLOT.size
        allocate_file(self._file, size)
        self._map.close()
        self._map = self._map_file()

    def _remap(self) -> None:
        assert self._map is not None
        if self._path.stat().st_size > len(self._map):
            self._map.close()
            self._map = self._map_file()

    def close(self) -> None:
        if self._map is not None:
            self._map.close()
            self._file.close()


def allocate_file(file: IO[bytes], size_bytes: int) -> None:
    """Extend a file with allocated blocks. Raise OSError if the disk is full."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size_bytes)
        return

    # macOS and Windows allocate a block when it is written.
    file.seek(0, os.SEEK_END)
    left_bytes = size_bytes - file.tell()
    while left_bytes > 0:
        left_bytes -= file.write(bytes(min(left_bytes, ZERO_CHUNK_BYTES)))
    file.flush()


def slot_checksum(number: int, last: int, revision: int, name: bytes) -> int:
    """Return the checksum of a slot. It is never 0: that marks an empty slot."""
    return zlib.crc32(name, zlib.crc32(b"%d:%d:%d" % (number, last, revision))) or 1
