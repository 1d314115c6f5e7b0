"""Queries on a SQLite log: functions of a connection that return verified values.

Rows pass a `RowVerifier` before they are returned, records their checksum. There are two ways to read a page:
`read_frame_batch` verifies frames and joins them at once, and gives up at anything unusual; `read_page` reads
row by row, leaves out what replay skips and names the damage. One way for both would replay a log of short
events at 0.83 to 0.87 of the speed (`bench.replay`), so both stay.
"""

import sqlite3
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from itertools import accumulate
from typing import Any

from turnlog.errors import SessionDamaged
from turnlog.events import CATALOG, Payload, UnknownPayload, decode_envelope
from turnlog.log.append import RECORD_EVENT_TYPES
from turnlog.log.checksums import RowVerifier, make_row, parse_durable_count, values_checksum
from turnlog.log.filter import matches_any_type
from turnlog.log.leases import LeaseRow
from turnlog.log.records import (
    Damage,
    FrameBatch,
    ListPosition,
    Page,
    RawRow,
    SessionRecord,
    TypeQuery,
    envelope_json,
    with_id_lines,
)
from turnlog.log.sqlite.schema import (
    BAD_RECORD,
    EVENT_COLUMNS,
    RECORD_ROW_COLUMNS,
    SPAN_COLUMNS,
    decode_record,
    decode_valid_record,
)

SELECT_RECORDS = f"select {RECORD_ROW_COLUMNS} from session"
SELECT_SPANS = f"select {SPAN_COLUMNS} from span where session = ?"
SESSION_NUMBER = "(select id from session where name = ?)"
REPLAY_SKIPS = """span is not null and exists (select 1 from span
    where span.session = event.session and span.key = event.span and span.first > :replay_from
    and span.last is not null
    and intact(span.crc, span.session, span.key, span.trace, span.first, span.last, span.agent))"""
# The rows that replay does not leave out. The spans of the window are verified once, not once for each row;
# `REPLAY_SKIPS` finds the late events of spans before it. A row whose `meta` does not say that it is live is
# never left out: `span` has no checksum.
SELECT_REPLAYED = f"""select {EVENT_COLUMNS} from event
    where session = :number and seq > :after and seq <= :upto and not (
        span is not null
        and substr(meta, instr(meta, x'7c') + 1, 2) = x'317c'
        and (span in (select key from span
                where session = :number and first > :replay_from and first <= :upto and last > :after
                and intact(crc, session, key, trace, first, last, agent))
            or {REPLAY_SKIPS}))
    order by seq"""
COUNT_ROWS = "select count(*) from event where session = ? and seq > ? and seq <= ?"

REPLAY_WINDOW_SEQS = 32_768  # bounds the spans that are verified for one page
MAX_PAGE_ROWS = 256
SAMPLE_ROWS = 16  # the first read of a page, to learn how large the rows of this session are
RECORD_EVENT_SUFFIXES = tuple(f"|{type_name}".encode() for type_name in RECORD_EVENT_TYPES)  # of `meta`
DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_damage_error(error: BaseException | None) -> bool:
    if not isinstance(error, sqlite3.Error):
        return False
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGE_CODES


# session records


def read_all_records(connection: sqlite3.Connection) -> Iterator[tuple[int, SessionRecord, int]]:
    """Yield number, record and checksum of every session. Records that cannot be read are left out."""
    try:
        rows = connection.execute(f"{SELECT_RECORDS} order by id").fetchall()
    except sqlite3.DatabaseError as error:
        if not is_damage_error(error):
            raise
        rows = [row for number in session_numbers(connection) for row in read_record_rows(connection, number)]
    for row in rows:
        yield row[0], decode_record(row), row[-1]


def session_numbers(connection: sqlite3.Connection) -> list[int]:
    # From the index of names: reads no record, so damaged records do not matter.
    return sorted(number for (number,) in connection.execute("select id from session order by name"))


def read_record_rows(connection: sqlite3.Connection, number: int) -> list[tuple[Any, ...]]:
    try:
        return connection.execute(f"{SELECT_RECORDS} where id = ?", (number,)).fetchall()
    except sqlite3.DatabaseError:
        return []


def load_record(
    connection: sqlite3.Connection, session_id: str, *, verify_checksum: bool = True
) -> tuple[int, SessionRecord] | None:
    """Return number and record of a session, None if there is none. Raise `SessionDamaged`."""
    row = connection.execute(f"{SELECT_RECORDS} where name = ?", (session_id,)).fetchone()
    if row is None:
        return None

    if not verify_checksum:
        return row[0], decode_record(row)
    record = decode_valid_record(row)
    if record.session_id != session_id:
        # The index of names is damaged: it leads to the record of another session.
        raise SessionDamaged(session_id, -1, -1, BAD_RECORD)
    return row[0], record


def has_session(connection: sqlite3.Connection, session_id: str) -> bool:
    return load_record(connection, session_id, verify_checksum=False) is not None


def recorded_damage(connection: sqlite3.Connection, session_id: str | None = None) -> list[Damage]:
    if session_id is None:
        rows = connection.execute("select * from damage order by rowid")
    else:
        rows = connection.execute("select * from damage where session = ? order by rowid", (session_id,))
    return [Damage(*row) for row in rows]


def lease_row(stored: tuple[Any, ...]) -> LeaseRow:
    """Decode a row of `lease`. A damaged one has no owner and is wanted: the next owner reads all events."""
    *values, crc = stored
    if values_checksum(*values) != crc:
        return LeaseRow(str(values[0]), wanted_at_ms=0)
    return LeaseRow(*values)


# lists of sessions


def read_listing(
    connection: sqlite3.Connection, name: str, after: ListPosition | None, limit: int
) -> list[tuple[ListPosition, SessionRecord]]:
    """Return a page of a list, the last active first. Raise `SessionDamaged` for a damaged record."""
    values: list[Any] = [name, *(after or ()), limit]
    condition = "and (active, listing.session) < (?, ?)" if after else ""
    query = f"""select active, listing.session, {RECORD_ROW_COLUMNS} from listing
        left join session on session.name = listing.session
        where list = ? {condition} order by active desc, listing.session desc limit ?"""

    items = []
    for active_ms, session_id, *row in connection.execute(query, values):
        if row[0] is None:
            continue  # a damaged row of the list names no session: `turnlog verify` reports it
        record = decode_valid_record(tuple(row))
        items.append((ListPosition(active_ms, session_id), record))
    return items


# blobs and spans


def has_valid_span_checksum(crc: int, *values: Any) -> bool:
    """Verify a row of the span index. SQL calls this function `intact`."""
    return values_checksum(*values) == crc


def select_spans_around(
    connection: sqlite3.Connection, number: int, record: SessionRecord, at: int
) -> list[tuple[Any, ...]]:
    """Return the spans that decide which turns were open at a seq.

    At the end of a session these are the spans of turns that are open now. Before it, they are all spans.
    """
    if at < record.last:
        return connection.execute(SELECT_SPANS, (number,)).fetchall()

    # `agent in (0, 1)` makes SQLite use the index of open spans.
    query = f"{SELECT_SPANS} and agent in (0, 1) and last is null"
    spans = connection.execute(query, (number,)).fetchall()
    for trace in {span[2] for span in spans} - {None}:
        spans += connection.execute(f"{SELECT_SPANS} and trace = ?", (number, trace))
    return spans


def has_skippable_spans(connection: sqlite3.Connection, number: int, replay_from: int) -> bool:
    query = "select 1 from span where session = ? and first > ? and last is not null limit 1"
    return connection.execute(query, (number, replay_from)).fetchone() is not None


# events


def durable_count_at(connection: sqlite3.Connection, number: int, session_id: str, seq: int) -> int:
    """Return the number of durable events up to a seq; -1, which explains no gap, if the row is damaged."""
    query = f"select {EVENT_COLUMNS} from event where session = ? and seq <= ? order by seq desc limit 1"
    row = connection.execute(query, (number, seq)).fetchone()
    if row is None:
        return 0

    row_seq, meta, frame, crc = row
    durable_count = parse_durable_count(meta)
    if durable_count is None or not isinstance(row_seq, int) or not isinstance(frame, bytes):
        return -1
    if make_row(session_id, row_seq, meta, frame).checksum != crc:
        return -1
    return durable_count


def session_level_payloads(
    connection: sqlite3.Connection, number: int, session_id: str
) -> Iterator[tuple[Payload | UnknownPayload, str | None, int]]:
    query = f"select {EVENT_COLUMNS} from event where session = ? order by seq"
    with suppress(sqlite3.DatabaseError), closing(connection.execute(query, (number,))) as cursor:
        for seq, meta, frame, crc in cursor:
            has_types = isinstance(seq, int) and isinstance(meta, bytes) and isinstance(frame, bytes)
            if not has_types or not meta.endswith(RECORD_EVENT_SUFFIXES):
                continue
            row = make_row(session_id, seq, meta, frame)
            if row.checksum == crc:
                envelope = decode_envelope(envelope_json(row))
                yield CATALOG.decode_payload(envelope), envelope.actor, seq


def select_event_rows(
    connection: sqlite3.Connection, number: int, after: int, replay_from: int | None
) -> sqlite3.Cursor:
    """Select rows after a seq. Those that replay leaves out come without their frame."""
    if replay_from is None:
        query = f"select {EVENT_COLUMNS} from event where session = ? and seq > ? order by seq"
        return connection.execute(query, (number, after))

    query = f"""select seq, meta, case when {REPLAY_SKIPS} then null else ifnull(frame, '') end, crc
        from event
        where session = :number and seq > :after order by seq"""
    return connection.execute(query, {"number": number, "after": after, "replay_from": replay_from})


def read_typed_page(
    connection: sqlite3.Connection,
    number: int,
    record: SessionRecord,
    damages: Sequence[Damage],
    type_query: TypeQuery,
) -> Page:
    """Return durable rows of some types, found by the index of types.

    Each row is verified alone: a loss between two of them is not noticed here.
    """
    seqs = select_seqs_of_types(connection, number, type_query)
    upto = seqs[-1] if len(seqs) == MAX_PAGE_ROWS else record.last

    rows: list[RawRow] = []
    size_bytes = 0
    query = f"select {EVENT_COLUMNS} from event where session = ? and seq = ?"
    for seq in seqs:
        stored = connection.execute(query, (number, seq)).fetchone()
        verified, damage = RowVerifier(record, seq - 1, None, damages).verify([stored])
        if damage is not None and not rows:
            raise damage
        if damage is not None:
            return Page(rows, record.epoch, seq - 1)

        rows += verified
        size_bytes += sum(len(row[2]) for row in verified)
        if size_bytes >= type_query.limit_bytes:
            return Page(rows, record.epoch, seq)
    return Page(rows, record.epoch, upto)


def select_seqs_of_types(connection: sqlite3.Connection, number: int, type_query: TypeQuery) -> list[int]:
    query = "select seq from event where session = ? and type = ? and seq > ? order by seq limit ?"
    seqs: list[int] = []
    for type_name in iter_event_types(connection, number):
        if matches_any_type(type_name, type_query.types):
            rows = connection.execute(query, (number, type_name, type_query.after, MAX_PAGE_ROWS))
            seqs += [seq for (seq,) in rows]
    return sorted(seqs)[:MAX_PAGE_ROWS]


def iter_event_types(connection: sqlite3.Connection, number: int) -> Iterator[str]:
    query = "select min(type) from event where session = ? and type > ?"
    type_name: str | None = ""
    while True:
        type_name = connection.execute(query, (number, type_name)).fetchone()[0]
        if not type_name:
            return
        yield type_name


def read_page(verifier: RowVerifier, cursor: sqlite3.Cursor, limit_bytes: int) -> Page:
    """Return verified rows, about `limit_bytes` and at least one.

    Rows before a damage are returned. Raise `SessionDamaged` if the page would begin with the damage.
    """
    rows: list[RawRow] = []
    damage: SessionDamaged | None = None
    size_bytes = 0
    count = SAMPLE_ROWS
    limit_bytes = max(limit_bytes, 1)  # an empty page would mean the end
    try:
        while damage is None and size_bytes < limit_bytes:
            stored = cursor.fetchmany(count)
            if not stored:
                damage = verifier.verify_end()
                break

            verified, damage = verifier.verify(stored)
            frames = clip_to_bytes([row[2] for row in verified], size_bytes, limit_bytes)
            rows += verified[: len(frames)]
            size_bytes += sum(map(len, frames))
            count = next_row_count(len(rows), size_bytes, limit_bytes)
    except sqlite3.DatabaseError as error:
        if not is_damage_error(error):
            raise
        damage = verifier.unreadable_damage(str(error))

    if damage and not rows:
        raise damage
    return Page(rows, verifier.epoch)


def read_replayed_page(
    connection: sqlite3.Connection, verifier: RowVerifier, number: int, replay_from: int, limit_bytes: int
) -> Page | None:
    """Return what replay does not leave out after the verifier's position, `limit_bytes` or less.

    The rows that it leaves out are only counted. Return None for anything unusual (damage, a gap):
    `read_page` finds out what it is.
    """
    rows: list[RawRow] = []
    while not rows and not verifier.is_complete:
        after = verifier.seq
        upto = min(after + REPLAY_WINDOW_SEQS, verifier.last)
        values = {"number": number, "after": after, "upto": upto, "replay_from": replay_from}
        try:
            with closing(connection.execute(SELECT_REPLAYED, values)) as cursor:
                rows, is_clipped = fetch_rows(cursor, max(limit_bytes, 1))
            if is_clipped:
                upto = rows[-1][0]
            row_count = connection.execute(COUNT_ROWS, (number, after, upto)).fetchone()[0]
        except (sqlite3.DatabaseError, TypeError):  # TypeError: a frame of another type than was written
            return None
        if not verifier.verify_replayed(rows, upto, row_count):
            return None
    return Page(rows, verifier.epoch)


def fetch_rows(cursor: sqlite3.Cursor, limit_bytes: int) -> tuple[list[RawRow], bool]:
    """Return rows of about `limit_bytes`, not verified, and whether the limit has ended them."""
    rows: list[RawRow] = []
    size_bytes = 0
    count = SAMPLE_ROWS
    while size_bytes < limit_bytes:
        stored = cursor.fetchmany(count)
        if not stored:
            return rows, False
        frames = clip_to_bytes([row[2] for row in stored], size_bytes, limit_bytes)
        rows += stored[: len(frames)]
        size_bytes += sum(map(len, frames))
        count = next_row_count(len(rows), size_bytes, limit_bytes)
    return rows, True


def next_row_count(row_count: int, size_bytes: int, limit_bytes: int) -> int:
    """Return how many rows fill a page, judged by those so far: large rows must not all be in memory."""
    if not size_bytes:
        return MAX_PAGE_ROWS
    return min((limit_bytes - size_bytes) * row_count // size_bytes + 1, MAX_PAGE_ROWS)


def read_frame_batch(
    connection: sqlite3.Connection, verifier: RowVerifier, number: int, limit_bytes: int
) -> FrameBatch | None:
    """Return the rows after the verifier's position as they are sent, about `limit_bytes`.

    Return None for anything unusual (damage, a gap, an empty page): `read_page` finds out what it is.
    """
    first = verifier.seq + 1
    last = verifier.seq
    parts: list[bytes] = []
    size_bytes = 0
    count = SAMPLE_ROWS
    query = "select seq, frame, crc from event where session = ? and seq > ? order by seq"
    try:
        with closing(connection.execute(query, (number, verifier.seq))) as cursor:
            while size_bytes < limit_bytes:
                stored = cursor.fetchmany(count)
                if not stored:
                    break
                if not verifier.verify_dense(stored):
                    return None

                frames = clip_to_bytes([row[1] for row in stored], size_bytes, limit_bytes)
                seqs = [row[0] for row in stored[: len(frames)]]
                parts += with_id_lines(verifier.epoch, seqs, frames)
                last = seqs[-1]
                size_bytes += sum(map(len, frames))
                count = next_row_count(len(parts) // 2, size_bytes, limit_bytes)
    except sqlite3.DatabaseError:
        return None

    is_complete = size_bytes >= limit_bytes or verifier.is_complete
    if not parts or not is_complete:
        return None
    return FrameBatch(first, last, b"".join(parts), verifier.epoch)


def clip_to_bytes(frames: list[bytes], size_bytes: int, limit_bytes: int) -> list[bytes]:
    """Return the frames that a page of `size_bytes` still takes. It may exceed its limit by one frame."""
    sizes = list(map(len, frames))
    if size_bytes + sum(sizes) <= limit_bytes:
        return frames
    return frames[: bisect_left(list(accumulate(sizes, initial=size_bytes)), limit_bytes)]
