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

from turnlog.errors import Damaged
from turnlog.log.store import Damage, Head, Row, Stored

META = re.compile(rb"[0-9]+\|[01]\|[0-9]+\|[^|]*\|[^|]*\|.", re.DOTALL).match

LIVE = re.compile(rb"[0-9]+\|1\|").match  # only live rows are ever left out

BESIDE = 0x7FFFFFFF  # of a checksum's upper half: SQLite's integers have a sign
BAD_EVENT = "the event is not what was written"


@lru_cache(1024)
def seed(session_id: str) -> int:
    """The start of every checksum of a session: a row of another session does not match."""
    return zlib.crc32(session_id.encode())


def make_row(session_id: str, seq: int, meta: bytes, frame: bytes) -> Row:
    """A row with the checksum over everything a reader gets or is filtered by.

    Its upper half is that of `meta`, and part of the lower one: a frame can be checked without it.
    """
    beside = zlib.crc32(meta) & BESIDE
    return Row(seq, meta, frame, beside << 32 | zlib.crc32(frame, seed(session_id) ^ seq ^ beside))


def rank_of(meta: object) -> int | None:
    """The rank in what stands beside a frame; None if it is not that."""
    return int(meta.split(b"|", 1)[0]) if isinstance(meta, bytes) and META(meta) else None


def values_checksum(*values: object) -> int:
    """Over the columns of a row that is not an event."""
    return zlib.crc32(repr(values).encode())


def link(chain: bytes, frame: bytes) -> bytes:
    """The next link of the chain."""
    return blake2b(chain + frame, digest_size=16).digest()


class Walk:
    """Passes on rows of one session that are whole and follow each other."""

    def __init__(
        self,
        head: Head,
        after: int,
        rank: int | None,
        lost: Iterable[Damage],
        *,
        leaves_out: bool = False,
    ) -> None:
        self._head = head
        self.epoch = head.epoch
        self._seed = seed(head.session_id)
        self._lost = list(lost)
        self._rank = rank
        self._leaves_out = leaves_out  # rows without a frame are expected: replay leaves them out
        self.seq = after

    def take(self, stored: Sequence[Stored]) -> tuple[list[Stored], Damaged | None]:
        """The rows that may be handed out, up to the first fault, and the fault."""
        dense = stored[0][0] == self.seq + 1 and stored[-1][0] == self.seq + len(stored)
        if self._lost or not dense or not self._whole(stored):
            return self._one_by_one(stored)
        self.seq, self._rank = stored[-1][0], rank_of(stored[-1][1])
        return [row for row in stored if row[2] is not None] if self._leaves_out else list(stored), None

    def _whole(self, stored: Sequence[Stored]) -> bool:
        """Whether every row is what was written; the C functions do nearly all of the work."""
        crc32, start = zlib.crc32, self._seed
        if self._leaves_out:
            passed = [row for row in stored if row[2] is None]
            stored = [row for row in stored if row[2] is not None] if passed else stored
            if not all(isinstance(row[1], bytes) and LIVE(row[1]) for row in passed):
                return False
        try:
            sums = [
                (beside := crc32(meta) & BESIDE) << 32 | crc32(frame, start ^ seq ^ beside)
                for seq, meta, frame, _ in stored
            ]
        except TypeError:  # a column of another type than was written
            return False
        return sums == [row[3] for row in stored]

    def in_order(self, frames: Sequence[tuple[Any, Any, Any]]) -> bool:
        """Whether rows (seq, frame, checksum) are whole and come next with nothing missing: the quick way."""
        crc32, start = zlib.crc32, self._seed
        dense = frames[0][0] == self.seq + 1 and frames[-1][0] == self.seq + len(frames)
        if self._lost or not dense:
            return False
        try:
            sums = [crc32(frame, start ^ seq ^ (crc >> 32)) for seq, frame, crc in frames]
            whole = sums == [crc & 0xFFFFFFFF for _, _, crc in frames]
        except TypeError:  # a column of another type than was written
            return False
        self.seq, self._rank = (frames[-1][0], None) if whole else (self.seq, self._rank)
        return whole

    def _one_by_one(self, stored: Sequence[Stored]) -> tuple[list[Stored], Damaged | None]:
        rows: list[Stored] = []
        for seq, meta, frame, checksum in stored:
            if not isinstance(seq, int):
                return rows, self._damaged(self.seq + 1, self.seq + 1, BAD_EVENT)
            if self._known(seq):
                continue
            if not isinstance(frame, bytes | None) or rank_of(meta) is None:
                return rows, self._damaged(seq, seq, BAD_EVENT)
            row = Row(seq, meta, frame or b"", checksum)
            if seq != self.seq + 1 and not self._explained(row):
                return rows, self._damaged(self.seq + 1, seq - 1, "events are missing")
            if not self._whole([(seq, meta, frame, checksum)]):
                return rows, self._damaged(seq, seq, BAD_EVENT)
            self.seq, self._rank = seq, row.rank
            if frame is not None:
                rows.append(row)
        return rows, None

    @property
    def complete(self) -> bool:
        """Whether the last row has been there."""
        return self.seq >= self._head.last

    def end(self) -> Damaged | None:
        """The store has no more rows: the last one must have been there."""
        missing = self._unknown(self.seq + 1, self._head.last)
        only_live = self._partly_known(self.seq + 1, self._head.last) or self._rank in (None, self._head.rank)
        if missing is None or (missing[1] <= self._head.pruned and only_live):
            return None
        return self._damaged(missing[0], self._head.last, "the end of the session is missing")

    def unreadable(self, problem: str) -> Damaged:
        """What to say when the store itself cannot go on from here."""
        return self._damaged(self.seq + 1, max(self.seq + 1, self._head.last), problem)

    def _damaged(self, first: int, last: int, problem: str) -> Damaged:
        return Damaged(self._head.session_id, first, last, problem)

    def _known(self, seq: int) -> bool:
        return any(damage.first <= seq <= damage.last for damage in self._lost)

    def _explained(self, row: Row) -> bool:
        """Whether the jump to this row is pruned live rows, or a loss that is known."""
        missing = self._unknown(self.seq + 1, row.seq - 1)
        only_live = (
            self._rank is None
            or self._partly_known(self.seq + 1, row.seq - 1)
            or row.rank == self._rank + (not row.live)
        )
        return missing is None or (missing[1] <= self._head.pruned and only_live)

    def _partly_known(self, first: int, last: int) -> bool:
        return any(damage.first <= last and first <= damage.last for damage in self._lost)

    def _unknown(self, first: int, last: int) -> tuple[int, int] | None:
        """From the first to the last seq of a range whose loss is not known."""
        for damage in sorted(self._lost, key=lambda damage: damage.first):
            if damage.first <= first <= damage.last:
                first = damage.last + 1
        for damage in sorted(self._lost, key=lambda damage: -damage.last):
            if damage.first <= last <= damage.last:
                last = damage.first - 1
        return (first, last) if first <= last else None


def broken_links(rows: Iterable[tuple[Row, bytes | None]]) -> Iterator[int]:
    """The seqs of durable rows whose link does not follow from the one before."""
    chain = b""
    for row, stored in rows:
        if not row.live:
            if link(chain, row.frame) != stored:
                yield row.seq
            chain = stored if isinstance(stored, bytes) else b""
