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
from hashlib import blake2b

from turnlog.errors import Damaged
from turnlog.log.store import Damage, Head, Row

META = re.compile(rb"[0-9]+\|[01]\|[0-9]+\|[^|]*\|.", re.DOTALL).match

LIVE = re.compile(rb"[0-9]+\|1\|").match  # only live rows are ever left out

Stored = tuple[int, bytes, bytes | None, int]  # seq, meta, frame (None: replay leaves it out), checksum


def seed(session_id: str) -> int:
    """The start of every checksum of a session: a row of another session does not match."""
    return zlib.crc32(session_id.encode())


def row_checksum(start: int, row: Row) -> int:
    """Over everything a reader gets or is filtered by."""
    return zlib.crc32(row.frame, zlib.crc32(row.meta, start ^ row.seq))


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

    def __init__(self, head: Head, after: int, rank: int | None, lost: Iterable[Damage]) -> None:
        self._head = head
        self._seed = seed(head.session_id)
        self._lost = list(lost)
        self._rank = rank
        self.seq = after

    def take(self, stored: Sequence[Stored]) -> tuple[list[Row], Damaged | None]:
        """The rows that may be handed out, up to the first fault, and the fault."""
        crc32, start = zlib.crc32, self._seed
        dense = stored[0][0] == self.seq + 1 and stored[-1][0] == self.seq + len(stored)
        try:
            wrong = [
                seq
                for seq, meta, frame, checksum in stored
                if (
                    crc32(frame, crc32(meta, start ^ seq)) != checksum
                    if frame is not None
                    else not LIVE(meta)
                )
            ]
        except TypeError:  # a column of another type than was written
            return self._one_by_one(stored)
        if wrong or not dense:
            return self._one_by_one(stored)
        self.seq, self._rank = stored[-1][0], rank_of(stored[-1][1])
        return [Row(seq, meta, frame) for seq, meta, frame, _ in stored if frame is not None], None

    def _one_by_one(self, stored: Sequence[Stored]) -> tuple[list[Row], Damaged | None]:
        rows: list[Row] = []
        for seq, meta, frame, checksum in stored:
            row = Row(seq, meta, frame or b"")
            if self._known(seq):
                continue
            if not all(isinstance(part, bytes) for part in row[1:]) or not META(meta):
                return rows, self._damaged(seq, seq, "the event is not what was written")
            if seq != self.seq + 1 and not self._explained(row):
                return rows, self._damaged(self.seq + 1, seq - 1, "events are missing")
            if row_checksum(self._seed, row) != checksum if frame is not None else not LIVE(meta):
                return rows, self._damaged(seq, seq, "the event is not what was written")
            self.seq, self._rank = seq, row.rank
            if frame is not None:
                rows.append(row)
        return rows, None

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
            chain = stored or b""
