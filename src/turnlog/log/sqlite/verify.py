"""Verification of a SQLite log: quickly when it is opened, completely by `turnlog verify`.

Functions of a connection and of the watermarks. They yield damages, session by session, and repair nothing.
Opening checks the position of every session and the last event of some, whatever the length of the log;
`verify_all` reads everything.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress

from turnlog.errors import InvalidEvent, SessionDamaged
from turnlog.events import CATALOG, decode_envelope
from turnlog.log.checksums import (
    RowVerifier,
    broken_chain_seqs,
    has_valid_blob_checksum,
    values_checksum,
)
from turnlog.log.listing import listing_entries
from turnlog.log.records import LISTING_STEP_MS, Damage, Row, SessionRecord, envelope_json
from turnlog.log.spans import live_event_span
from turnlog.log.sqlite.queries import (
    MAX_PAGE_ROWS,
    SELECT_SPANS,
    is_damage_error,
    read_all_records,
    read_record_rows,
    recorded_damage,
    select_event_rows,
)
from turnlog.log.sqlite.schema import BAD_RECORD, EVENT_COLUMNS, decode_record, has_valid_record_checksum
from turnlog.log.sqlite.watermark import Watermark, WatermarkFile

MAX_CHECKED_TAILS = 200  # sessions whose last event is checked at opening: bounded, however many there are
BAD_INDEX = "the index of blocks and calls is damaged"
BAD_LISTING = "the lists of sessions are damaged; repair them with `turnlog rebuild`"
BAD_LEASE = "a lease is not what was written"
BAD_DERIVED = "a document, snapshot or blob is not what was written"


def verify_all(reader: sqlite3.Connection, watermarks: Mapping[int, Watermark]) -> Iterator[Damage]:
    for (line,) in reader.execute("pragma integrity_check"):
        if line != "ok":
            yield Damage("", -1, -1, f"SQLite: {line}")

    records = list(read_all_records(reader))
    for number in watermarks.keys() - {number for number, _, _ in records}:
        yield Damage(watermarks[number].session_id, 0, watermarks[number].last, "the session is missing")

    for number, record, crc in records:
        if not has_valid_record_checksum(record, crc):
            yield Damage(str(record.session_id), -1, -1, BAD_RECORD)
        else:
            yield from verify_session(reader, number, record, watermarks.get(number))
    yield from verify_derived(reader)


def verify_session(
    reader: sqlite3.Connection, number: int, record: SessionRecord, watermark: Watermark | None
) -> Iterator[Damage]:
    known_damage = recorded_damage(reader, record.session_id)
    damage = verify_rows(reader, number, record, known_damage)
    if damage:
        yield Damage(damage.session_id, damage.first, damage.last, damage.problem)

    yield from verify_against_watermark(record, watermark)
    if not damage:
        if not known_damage:
            yield from verify_chain(reader, number, record)
        yield from verify_index(reader, number, record, known_damage)
    yield from verify_listing(reader, record)


def verify_rows(
    reader: sqlite3.Connection, number: int, record: SessionRecord, known_damage: Sequence[Damage]
) -> SessionDamaged | None:
    verifier = RowVerifier(record, -1, 0, known_damage)
    with closing(select_event_rows(reader, number, -1, None)) as cursor:
        while stored := cursor.fetchmany(MAX_PAGE_ROWS):
            _, damage = verifier.verify(stored)
            if damage:
                return damage
    return verifier.verify_end()


def verify_chain(reader: sqlite3.Connection, number: int, record: SessionRecord) -> Iterator[Damage]:
    query = f"select {EVENT_COLUMNS}, chain from event where session = ? order by seq"
    links = ((Row(*values[:4]), values[4]) for values in reader.execute(query, (number,)))
    for seq in broken_chain_seqs(links):
        yield Damage(record.session_id, seq, seq, "the hash chain is broken")


def verify_index(
    reader: sqlite3.Connection, number: int, record: SessionRecord, known_damage: Sequence[Damage]
) -> Iterator[Damage]:
    query = f"select {EVENT_COLUMNS}, span from event where session = ? and span is not null"
    for *row, span in reader.execute(query, (number,)):
        with suppress(InvalidEvent, TypeError):  # a damaged row, which `verify_rows` has reported
            payload = CATALOG.decode_payload(decode_envelope(envelope_json(Row(*row))))
            if live_event_span(payload) != span:
                yield Damage(record.session_id, row[0], row[0], BAD_INDEX)

    for *values, crc in reader.execute(SELECT_SPANS, (number,)):
        if values_checksum(*values) != crc:
            yield Damage(record.session_id, -1, -1, BAD_INDEX)

    query = "select seq, type, meta from event where session = ? and span is null"
    for seq, type_name, meta in reader.execute(query, (number,)):
        if not is_lost(seq, known_damage) and not meta.endswith(f"|{type_name}".encode()):
            yield Damage(record.session_id, seq, seq, BAD_INDEX)


def is_lost(seq: int, damages: Sequence[Damage]) -> bool:
    return any(damage.first <= seq <= damage.last for damage in damages)


def verify_listing(reader: sqlite3.Connection, record: SessionRecord) -> Iterator[Damage]:
    query = "select list, active from listing where session = ?"
    stored = dict(reader.execute(query, (record.session_id,)))
    expected = listing_entries(record)
    if stored.keys() != expected.keys():
        yield Damage(record.session_id, -1, -1, BAD_LISTING)
        return

    for name, active_ms in expected.items():
        stored_ms = stored[name]
        if not isinstance(stored_ms, int) or not stored_ms <= active_ms < stored_ms + LISTING_STEP_MS:
            yield Damage(record.session_id, -1, -1, BAD_LISTING)
            return


def verify_derived(reader: sqlite3.Connection) -> Iterator[Damage]:
    for table, problem in (("document", BAD_DERIVED), ("snapshot", BAD_DERIVED), ("lease", BAD_LEASE)):
        for *values, crc in reader.execute(f"select * from {table}"):
            if values_checksum(*values) != crc:
                yield Damage(str(values[0]), -1, -1, problem)

    for name, *values in reader.execute("select name, media_type, data, private, crc from blob"):
        if not has_valid_blob_checksum(name, *values):
            yield Damage(str(name).partition("/")[0], -1, -1, BAD_DERIVED)


def verify_tails(connection: sqlite3.Connection, watermarks: WatermarkFile) -> Iterator[Damage]:
    """Verify at opening: positions against watermarks, and the last events of some sessions.

    Clears the watermark of a missing session, but only when the caller asks for the next damage: by then it
    has recorded this one.
    """
    positions, has_unreadable = session_positions(connection)
    for number, watermark in list(watermarks.watermarks(positions)):
        yield Damage(watermark.session_id, 0, watermark.last, "the session is missing")
        if not has_unreadable:
            watermarks.clear(number)

    suspects = positions.keys() - watermarks.matching_numbers(positions)
    newest = sorted(positions)[-MAX_CHECKED_TAILS:]
    for number in sorted(suspects.union(newest)):
        for row in read_record_rows(connection, number):
            yield from verify_tail(connection, number, decode_record(row), row[-1], watermarks.get(number))


def session_positions(connection: sqlite3.Connection) -> tuple[dict[int, tuple[int, int]], bool]:
    """Return (last seq, revision) of every session by number, and whether some could not be read."""
    try:
        rows = connection.execute("select id, last, revision from session").fetchall()
        return {number: (last, revision) for number, last, revision in rows}, False
    except sqlite3.DatabaseError as error:
        if not is_damage_error(error):
            raise
    readable = {number: (record.last, record.revision) for number, record, _ in read_all_records(connection)}
    return readable, True


def verify_tail(
    connection: sqlite3.Connection, number: int, record: SessionRecord, crc: int, watermark: Watermark | None
) -> Iterator[Damage]:
    if not has_valid_record_checksum(record, crc):
        yield Damage(str(record.session_id), -1, -1, BAD_RECORD)
        return

    missing = list(verify_against_watermark(record, watermark))
    if missing:
        yield from missing
    else:
        yield from verify_last_event(connection, number, record)


def verify_last_event(connection: sqlite3.Connection, number: int, record: SessionRecord) -> Iterator[Damage]:
    known_damage = recorded_damage(connection, record.session_id)
    if record.last < 0 or is_lost(record.last, known_damage):
        return

    stored = select_event_rows(connection, number, record.last - 1, None).fetchone()
    if stored is None and record.last <= record.pruned_through:
        return
    verifier = RowVerifier(record, record.last - 1, None, known_damage)
    if stored is None or not verifier.verify([stored])[0]:
        yield Damage(record.session_id, record.last, record.last, "the last event is not what was written")


def verify_against_watermark(record: SessionRecord, watermark: Watermark | None) -> Iterator[Damage]:
    if watermark is None:
        return
    if watermark.last > record.last:
        yield Damage(record.session_id, record.last + 1, watermark.last, "the end of the session is missing")
    elif watermark.revision > record.revision:
        problem = "the last change of the session is missing"
        yield Damage(record.session_id, record.last + 1, record.last, problem)
