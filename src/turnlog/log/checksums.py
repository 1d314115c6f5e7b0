"""Integrity of stored rows: checksums, a hash chain over durable events, and a verifier for gaps.

SQLite notices neither a flipped bit in a row nor a lost tail. So every row has a checksum over its frame and
`meta`, seeded with session and seq, and durable rows form a hash chain. `RowVerifier` accepts rows only while
they match and follow each other. A seq may be missing only if it was pruned (then the durable count shows
that only live rows are gone) or if its loss is recorded. Pages are verified at once; a page with a fault is
verified row by row.
"""

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Any

from turnlog.errors import SessionDamaged
from turnlog.log.records import Damage, RawRow, Row, SessionRecord, as_row

match_meta = re.compile(rb"[0-9]+\|[01]\|[0-9]+\|[^|]*\|[^|]*\|.", re.DOTALL).match
match_live_meta = re.compile(rb"[0-9]+\|1\|").match  # replay leaves out live rows only

META_CRC_MASK = 0x7FFFFFFF  # the upper half of a checksum has 31 bits: SQLite's integers are signed
BAD_EVENT = "the event is not what was written"


@lru_cache(1024)
def checksum_seed(session_id: str) -> int:
    return zlib.crc32(session_id.encode())


def make_row(session_id: str, seq: int, meta: bytes, frame: bytes) -> Row:
    """Build a row with its checksum.

    The upper half is the CRC of `meta`, which is also part of the lower half: so a frame can be verified
    without its `meta`.
    """
    return seal_row(checksum_seed(session_id), seq, meta, frame)


def seal_row(seed: int, seq: int, meta: bytes, frame: bytes) -> Row:
    """Build a row of the session with a `checksum_seed`."""
    meta_crc = zlib.crc32(meta) & META_CRC_MASK
    frame_crc = zlib.crc32(frame, seed ^ seq ^ meta_crc)
    return as_row((seq, meta, frame, meta_crc << 32 | frame_crc))


def parse_durable_count(meta: object) -> int | None:
    """Return the durable count in `meta`; None if `meta` is damaged."""
    if not isinstance(meta, bytes) or not match_meta(meta):
        return None
    return int(meta.split(b"|", 1)[0])


def values_checksum(*values: object) -> int:
    return zlib.crc32(repr(values).encode())


def chain_hash(chain: bytes, frame: bytes) -> bytes:
    return blake2b(chain + frame, digest_size=16).digest()


def blob_checksum(name: str, media_type: str, data: bytes, private: int) -> int:
    # The name of a public blob has the hash of its content: it is verified with the name.
    digest = sha256(data).hexdigest() if private else ""
    return values_checksum(name, media_type, private, digest)


def has_valid_blob_checksum(name: Any, media_type: Any, data: Any, private: Any, crc: int) -> bool:
    if not isinstance(name, str) or not isinstance(data, bytes):
        return False
    if not private and sha256(data).hexdigest() != name.rpartition("/")[2]:
        return False
    return blob_checksum(name, media_type, data, private) == crc


class RowVerifier:
    """Accepts the rows of one session that match their checksums and follow each other.

    `durable_count` is that of the event at `after`; None if unknown: then gaps of pruned rows are accepted.
    `allow_skipped` accepts rows without a frame, which replay leaves out.
    """

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
        self._allow_skipped = allow_skipped
        # Events before the first one were erased with the whole session.
        is_before_first = after < record.first - 1
        self._durable_count = None if is_before_first else durable_count
        self.seq = record.first - 1 if is_before_first else after

    @property
    def last(self) -> int:
        """Return the last seq of the session."""
        return self._record.last

    @property
    def is_complete(self) -> bool:
        return self.seq >= self._record.last

    def verify(self, stored: Sequence[RawRow]) -> tuple[list[RawRow], SessionDamaged | None]:
        """Verify the next rows. Return the good rows before the first damage, and the damage."""
        if self._known_damage or not self._is_dense(stored) or not self._checksums_match(stored):
            return self._verify_each(stored)

        self.seq = stored[-1][0]
        self._durable_count = parse_durable_count(stored[-1][1])
        if self._allow_skipped:
            return [row for row in stored if row[2] is not None], None
        return list(stored), None

    def verify_dense(self, stored: Sequence[tuple[Any, Any, Any]]) -> bool:
        """Verify the next rows as (seq, frame, checksum): the fast way, without `meta`.

        Return False, and do not advance, if a row is damaged or missing, or if a loss is recorded.
        """
        if self._known_damage or not self._is_dense(stored):
            return False

        crc32 = zlib.crc32
        seed = self._checksum_seed
        try:
            sums = [crc32(frame, seed ^ seq ^ (crc >> 32)) for seq, frame, crc in stored]
            if sums != [crc & 0xFFFFFFFF for _, _, crc in stored]:
                return False
        except TypeError:  # a column has another type than was written
            return False

        self.seq = stored[-1][0]
        self._durable_count = None
        return True

    def verify_replayed(self, stored: Sequence[RawRow], upto: int, row_count: int) -> bool:
        """Verify the rows of a replay up to a seq, where the store has `row_count` rows with those left out.

        Return False, and do not advance, if a row is damaged or missing, or if a loss is recorded.
        """
        if self._known_damage or row_count != upto - self.seq or not self._checksums_match(stored):
            return False

        self.seq = upto
        self._durable_count = None
        return True

    def _is_dense(self, stored: Sequence[RawRow]) -> bool:
        return bool(stored[0][0] == self.seq + 1 and stored[-1][0] == self.seq + len(stored))

    def _checksums_match(self, stored: Sequence[RawRow]) -> bool:
        # The C functions do nearly all of the work: this runs for every row of every replay.
        if self._allow_skipped:
            skipped = [row for row in stored if row[2] is None]
            if not all(isinstance(row[1], bytes) and match_live_meta(row[1]) for row in skipped):
                return False
            if skipped:
                stored = [row for row in stored if row[2] is not None]

        crc32 = zlib.crc32
        seed = self._checksum_seed
        try:
            sums = [
                (meta_crc := crc32(meta) & META_CRC_MASK) << 32 | crc32(frame, seed ^ seq ^ meta_crc)
                for seq, meta, frame, _ in stored
            ]
        except TypeError:  # a column has another type than was written
            return False
        return sums == [row[3] for row in stored]

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

            self.seq = seq
            self._durable_count = row.durable_count
            if frame is not None:
                rows.append(row)
        return rows, None

    def verify_end(self) -> SessionDamaged | None:
        first = self.seq + 1
        last = self._record.last
        missing = self._unknown_range(first, last)
        if missing is None:
            return None

        only_live = (
            self._durable_count in (None, self._record.durable_count)
            or self._overlaps_known_damage(first, last)
        )  # fmt: skip
        if missing[1] <= self._record.pruned_through and only_live:
            return None
        return self._make_damage(missing[0], last, "the end of the session is missing")

    def unreadable_damage(self, problem: str) -> SessionDamaged:
        return self._make_damage(self.seq + 1, max(self.seq + 1, self._record.last), problem)

    def _make_damage(self, first: int, last: int, problem: str) -> SessionDamaged:
        return SessionDamaged(self._record.session_id, first, last, problem)

    def _is_known_damage(self, seq: int) -> bool:
        return self._overlaps_known_damage(seq, seq)

    def _is_explained_gap(self, row: Row) -> bool:
        first = self.seq + 1
        last = row.seq - 1
        missing = self._unknown_range(first, last)
        if missing is None:
            return True
        if missing[1] > self._record.pruned_through:
            return False

        if self._durable_count is None or self._overlaps_known_damage(first, last):
            return True
        expected_count = self._durable_count if row.live else self._durable_count + 1
        return row.durable_count == expected_count

    def _overlaps_known_damage(self, first: int, last: int) -> bool:
        return any(damage.first <= last and first <= damage.last for damage in self._known_damage)

    def _unknown_range(self, first: int, last: int) -> tuple[int, int] | None:
        for damage in sorted(self._known_damage, key=lambda damage: damage.first):
            if damage.first <= first <= damage.last:
                first = damage.last + 1
        for damage in sorted(self._known_damage, key=lambda damage: -damage.last):
            if damage.first <= last <= damage.last:
                last = damage.first - 1
        return (first, last) if first <= last else None


def broken_chain_seqs(rows: Iterable[tuple[Row, bytes | None]]) -> Iterator[int]:
    chain = b""
    for row, stored in rows:
        if row.live:
            continue
        if chain_hash(chain, row.frame) != stored:
            yield row.seq
        chain = stored if isinstance(stored, bytes) else b""


def verified_row(record: SessionRecord, stored: RawRow) -> Row:
    """Return one stored row. Raise `SessionDamaged` if it is not what was written."""
    rows, damage = RowVerifier(record, stored[0] - 1, None, []).verify([stored])
    if damage:
        raise damage
    return Row(*rows[0])
