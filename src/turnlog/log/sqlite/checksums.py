"""How a store can vouch for what it hands out: checksums, a hash chain over durable events, and a walk that
notices what is missing.

SQLite does not notice a flipped bit in a row or a lost tail. So every row carries a checksum over its frame
and what stands beside it, seeded with its session and seq; durable rows are chained; and `Walk` passes rows
on only while they are whole and follow each other: a seq may be missing only if it was pruned (and then the
rank shows that only live rows went) or if its loss is known. Whole pages are checked at once; only a page
with a fault is looked at row by row.
"""

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from turnlog.errors import SessionDamaged
from turnlog.log.store import Damage, RawRow, Row, SessionRecord

match_meta = re.compile(rb"[0-9]+\|[01]\|[0-9]+\|[^|]*\|[^|]*\|.", re.DOTALL).match

match_live_meta = re.compile(rb"[0-9]+\|1\|").match  # only live rows are ever left out

META_CRC_MASK = 0x7FFFFFFF  # of a checksum's upper half: SQLite's integers have a sign
BAD_EVENT = "the event is not what was written"


@lru_cache(1024)
def checksum_seed(session_id: str) -> int:
    """The start of every checksum of a session: a row of another session does not match."""
    return zlib.crc32(session_id.encode())


def make_row(session_id: str, seq: int, meta: bytes, frame: bytes) -> Row:
    """A row with the checksum over everything a reader gets or is filtered by.

    Its upper half is that of `meta`, and part of the lower one: a frame can be checked without it.
    """
    beside = zlib.crc32(meta) & META_CRC_MASK
    return Row(seq, meta, frame, beside << 32 | zlib.crc32(frame, checksum_seed(session_id) ^ seq ^ beside))


def parse_durable_count(meta: object) -> int | None:
    """The rank in what stands beside a frame; None if it is not that."""
    return int(meta.split(b"|", 1)[0]) if isinstance(meta, bytes) and match_meta(meta) else None


def values_checksum(*values: object) -> int:
    """Over the columns of a row that is not an event."""
    return zlib.crc32(repr(values).encode())


def chain_hash(chain: bytes, frame: bytes) -> bytes:
    """The next link of the chain."""
    return blake2b(chain + frame, digest_size=16).digest()


class RowVerifier:
    """Passes on rows of one session that are whole and follow each other."""

    def __init__(
        self,
        record: SessionRecord,
        after: int,
        durable_count: int | None,
        known_damage: Iterable[Damage],
        *,
        allow_skipped: bool = False,
    ) -> None:
        self._record = record
        self.epoch = record.epoch
        self._checksum_seed = checksum_seed(record.session_id)
        self._known_damage = list(known_damage)
        self._durable_count = durable_count
        self._allow_skipped = allow_skipped  # rows without a frame are expected: replay leaves them out
        self.seq = after

    def verify(self, stored: Sequence[RawRow]) -> tuple[list[RawRow], SessionDamaged | None]:
        """The rows that may be handed out, up to the first fault, and the fault."""
        dense = stored[0][0] == self.seq + 1 and stored[-1][0] == self.seq + len(stored)
        if self._known_damage or not dense or not self._checksums_match(stored):
            return self._verify_each(stored)
        self.seq, self._durable_count = stored[-1][0], parse_durable_count(stored[-1][1])
        return [row for row in stored if row[2] is not None] if self._allow_skipped else list(stored), None

    def _checksums_match(self, stored: Sequence[RawRow]) -> bool:
        """Whether every row is what was written; the C functions do nearly all of the work."""
        crc32, start = zlib.crc32, self._checksum_seed
        if self._allow_skipped:
            passed = [row for row in stored if row[2] is None]
            stored = [row for row in stored if row[2] is not None] if passed else stored
            if not all(isinstance(row[1], bytes) and match_live_meta(row[1]) for row in passed):
                return False
        try:
            sums = [
                (beside := crc32(meta) & META_CRC_MASK) << 32 | crc32(frame, start ^ seq ^ beside)
                for seq, meta, frame, _ in stored
            ]
        except TypeError:  # a column of another type than was written
            return False
        return sums == [row[3] for row in stored]

    def verify_dense(self, frames: Sequence[tuple[Any, Any, Any]]) -> bool:
        """Whether rows (seq, frame, checksum) are whole and come next with nothing missing: the quick way."""
        crc32, start = zlib.crc32, self._checksum_seed
        dense = frames[0][0] == self.seq + 1 and frames[-1][0] == self.seq + len(frames)
        if self._known_damage or not dense:
            return False
        try:
            sums = [crc32(frame, start ^ seq ^ (crc >> 32)) for seq, frame, crc in frames]
            whole = sums == [crc & 0xFFFFFFFF for _, _, crc in frames]
        except TypeError:  # a column of another type than was written
            return False
        self.seq, self._durable_count = (frames[-1][0], None) if whole else (self.seq, self._durable_count)
        return whole

    def _verify_each(self, stored: Sequence[RawRow]) -> tuple[list[RawRow], SessionDamaged | None]:
        rows: list[RawRow] = []
        for seq, meta, frame, checksum in stored:
            if not isinstance(seq, int):
                return rows, self._make_damage(self.seq + 1, self.seq + 1, BAD_EVENT)
            if self._is_known_damage(seq):
                continue
            if not isinstance(frame, bytes | None) or parse_durable_count(meta) is None:
                return rows, self._make_damage(seq, seq, BAD_EVENT)
            row = Row(seq, meta, frame or b"", checksum)
            if seq != self.seq + 1 and not self._is_explained_gap(row):
                return rows, self._make_damage(self.seq + 1, seq - 1, "events are missing")
            if not self._checksums_match([(seq, meta, frame, checksum)]):
                return rows, self._make_damage(seq, seq, BAD_EVENT)
            self.seq, self._durable_count = seq, row.durable_count
            if frame is not None:
                rows.append(row)
        return rows, None

    @property
    def is_complete(self) -> bool:
        """Whether the last row has been there."""
        return self.seq >= self._record.last

    def verify_end(self) -> SessionDamaged | None:
        """The store has no more rows: the last one must have been there."""
        missing = self._unknown_range(self.seq + 1, self._record.last)
        only_live = self._overlaps_known_damage(self.seq + 1, self._record.last) or self._durable_count in (
            None,
            self._record.durable_count,
        )
        if missing is None or (missing[1] <= self._record.pruned_through and only_live):
            return None
        return self._make_damage(missing[0], self._record.last, "the end of the session is missing")

    def unreadable_damage(self, problem: str) -> SessionDamaged:
        """What to say when the store itself cannot go on from here."""
        return self._make_damage(self.seq + 1, max(self.seq + 1, self._record.last), problem)

    def _make_damage(self, first: int, last: int, problem: str) -> SessionDamaged:
        return SessionDamaged(self._record.session_id, first, last, problem)

    def _is_known_damage(self, seq: int) -> bool:
        return any(damage.first <= seq <= damage.last for damage in self._known_damage)

    def _is_explained_gap(self, row: Row) -> bool:
        """Whether the jump to this row is pruned live rows, or a loss that is known."""
        missing = self._unknown_range(self.seq + 1, row.seq - 1)
        only_live = (
            self._durable_count is None
            or self._overlaps_known_damage(self.seq + 1, row.seq - 1)
            or row.durable_count == self._durable_count + (not row.live)
        )
        return missing is None or (missing[1] <= self._record.pruned_through and only_live)

    def _overlaps_known_damage(self, first: int, last: int) -> bool:
        return any(damage.first <= last and first <= damage.last for damage in self._known_damage)

    def _unknown_range(self, first: int, last: int) -> tuple[int, int] | None:
        """From the first to the last seq of a range whose loss is not known."""
        for damage in sorted(self._known_damage, key=lambda damage: damage.first):
            if damage.first <= first <= damage.last:
                first = damage.last + 1
        for damage in sorted(self._known_damage, key=lambda damage: -damage.last):
            if damage.first <= last <= damage.last:
                last = damage.first - 1
        return (first, last) if first <= last else None


def broken_chain_seqs(rows: Iterable[tuple[Row, bytes | None]]) -> Iterator[int]:
    """The seqs of durable rows whose link does not follow from the one before."""
    chain = b""
    for row, stored in rows:
        if not row.live:
            if chain_hash(chain, row.frame) != stored:
                yield row.seq
            chain = stored if isinstance(stored, bytes) else b""
