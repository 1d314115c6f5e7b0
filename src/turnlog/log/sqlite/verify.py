"""Whether a SQLite log is what was written: at once when it is opened, everything by `turnlog verify`.

Functions of a connection and of what the mark remembers. They yield what is lost, session by session; they
repair nothing. Opening looks at every session's standing and at the last event of some, whatever the length
of the log; verifying reads all of it.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress

from turnlog.errors import InvalidEvent, StoreError
from turnlog.events import CATALOG, decode_envelope
from turnlog.log.sqlite.checksums import RowVerifier, broken_chain_seqs, values_checksum
from turnlog.log.sqlite.queries import (
    BAD_INDEX,
    BAD_RECORD,
    EVENT_COLUMNS,
    MAX_PAGE_ROWS,
    SCHEMA,
    decode_record,
    has_valid_blob_checksum,
    has_valid_record_checksum,
    is_damage_error,
    listing_entries,
    read_all_records,
    read_record_rows,
    recorded_damage,
    select_event_rows,
)
from turnlog.log.sqlite.watermark import Watermark, WatermarkFile
from turnlog.log.store import LISTING_STEP_MS, Damage, Row, SessionRecord, envelope_json, live_event_span

MAX_CHECKED_TAILS = 200  # sessions whose last event is checked at opening: bounded, however many there are
BAD_LISTING = "the lists of sessions are damaged; `turnlog rebuild` makes them anew"
BAD_DERIVED = "a document, snapshot or blob is not what was written"


def check_schema(connection: sqlite3.Connection) -> None:
    """Refuse a file that has no tables yet, or whose tables are not defined as they were."""
    version: int = connection.execute("pragma user_version").fetchone()[0]
    if version == 0:
        raise StoreError("there is no log in this file yet")
    plain = sqlite3.connect(":memory:")
    plain.executescript(SCHEMA)
    query = "select type, name, tbl_name, sql from sqlite_schema where name not like 'sqlite_%' order by name"
    wanted = plain.execute(query).fetchall()
    plain.close()
    if connection.execute(query).fetchall() != wanted:
        raise StoreError("the definitions of the log's tables are damaged")


def verify_all(reader: sqlite3.Connection, watermarks: Mapping[int, Watermark]) -> Iterator[Damage]:
    """All of it, within one transaction."""
    for (line,) in reader.execute("pragma integrity_check"):
        if line != "ok":
            yield Damage("", -1, -1, f"SQLite: {line}")
    heads = list(read_all_records(reader))
    for number in watermarks.keys() - {number for number, _, _ in heads}:
        yield Damage(watermarks[number].session_id, 0, watermarks[number].last, "the session is missing")
    for number, head, crc in heads:
        if not has_valid_record_checksum(head, crc):
            yield Damage(str(head.session_id), -1, -1, BAD_RECORD)
        else:
            yield from verify_session(reader, number, head, watermarks.get(number))
    yield from verify_derived(reader)


def verify_session(
    reader: sqlite3.Connection, number: int, record: SessionRecord, watermark: Watermark | None
) -> Iterator[Damage]:
    """One session: its rows, how far it had come, its chain, and what is indexed about it."""
    lost = recorded_damage(reader, record.session_id)
    walk, fault = RowVerifier(record, -1, 0, lost), None
    with closing(select_event_rows(reader, number, -1, None)) as cursor:
        while fault is None and (stored := cursor.fetchmany(MAX_PAGE_ROWS)):
            fault = walk.verify(stored)[1]
    if fault := fault or walk.verify_end():
        yield Damage(fault.session_id, fault.first, fault.last, fault.problem)
    yield from verify_against_watermark(record, watermark)
    if not fault:
        yield from verify_chain(reader, number, record) if not lost else ()
        yield from verify_index(reader, number, record, lost)
    yield from verify_listing(reader, record)


def verify_chain(reader: sqlite3.Connection, number: int, record: SessionRecord) -> Iterator[Damage]:
    """The hash chain, from the first durable event to the last."""
    query = f"select {EVENT_COLUMNS}, chain from event where session = ? order by seq"
    links = ((Row(*values[:4]), values[4]) for values in reader.execute(query, (number,)))
    for seq in broken_chain_seqs(links):
        yield Damage(record.session_id, seq, seq, "the hash chain is broken")


def verify_index(
    reader: sqlite3.Connection, number: int, record: SessionRecord, damages: Sequence[Damage]
) -> Iterator[Damage]:
    """Which live event belongs to which span, where spans begin and end, and of which type events are."""
    query = f"select {EVENT_COLUMNS}, span from event where session = ? and span is not null"
    for *row, span in reader.execute(query, (number,)):
        with suppress(InvalidEvent, TypeError):  # lost, and told above
            if live_event_span(CATALOG.decode_payload(decode_envelope(envelope_json(Row(*row))))) != span:
                yield Damage(record.session_id, row[0], row[0], BAD_INDEX)
    query = "select session, key, trace, first, last, agent, crc from span where session = ?"
    for *values, crc in reader.execute(query, (number,)):
        if values_checksum(*values) != crc:
            yield Damage(record.session_id, -1, -1, BAD_INDEX)
    query = "select seq, type, meta from event where session = ? and span is null"
    for seq, name, meta in reader.execute(query, (number,)):
        if not is_lost(seq, damages) and not meta.endswith(f"|{name}".encode()):
            yield Damage(record.session_id, seq, seq, BAD_INDEX)


def is_lost(seq: int, damages: Sequence[Damage]) -> bool:
    """Whether a seq is in a part that is known to be lost."""
    return any(one.first <= seq <= one.last for one in damages)


def verify_listing(reader: sqlite3.Connection, record: SessionRecord) -> Iterator[Damage]:
    """Whose lists a session is in, and where."""
    query = "select list, active from listing where session = ?"
    found, wanted = dict(reader.execute(query, (record.session_id,))), listing_entries(record)
    places = [(found.get(name), active_ms) for name, active_ms in wanted.items()]
    near = [isinstance(at, int) and at <= active_ms < at + LISTING_STEP_MS for at, active_ms in places]
    if found.keys() != wanted.keys() or not all(near):
        yield Damage(record.session_id, -1, -1, BAD_LISTING)


def verify_derived(reader: sqlite3.Connection) -> Iterator[Damage]:
    """What stands beside the events."""
    for table in ("document", "snapshot"):
        for *values, crc in reader.execute(f"select * from {table}"):
            if values_checksum(*values) != crc:
                yield Damage(str(values[0]), -1, -1, BAD_DERIVED)
    for name, media_type, data, crc in reader.execute("select name, media_type, data, crc from blob"):
        if not has_valid_blob_checksum(name, media_type, data, crc):
            yield Damage(str(name).partition("/")[0], -1, -1, BAD_DERIVED)


def verify_tails(connection: sqlite3.Connection, watermarks: WatermarkFile) -> Iterator[Damage]:
    """What can be seen at once: sessions that do not stand where their mark says, and some last events.

    Lazy: a session that is missing is forgotten only when whoever asks comes back for more.
    """
    standing, unreadable = session_positions(connection)
    for number, slot in list(watermarks.watermarks(standing)):
        yield Damage(slot.session_id, 0, slot.last, "the session is missing")
        if not unreadable:
            watermarks.clear(number)
    suspects = standing.keys() - watermarks.matching_numbers(standing)
    for number in sorted(suspects.union(sorted(standing)[-MAX_CHECKED_TAILS:])):
        for row in read_record_rows(connection, number):
            yield from verify_tail(connection, number, decode_record(row), row[-1], watermarks.get(number))


def session_positions(connection: sqlite3.Connection) -> tuple[dict[int, tuple[int, int]], bool]:
    """Last seq and revision of every session by number, and whether some could not be read."""
    try:
        rows = connection.execute("select id, last, revision from session").fetchall()
        return {number: (last, revision) for number, last, revision in rows}, False
    except sqlite3.DatabaseError as error:
        if not is_damage_error(error):
            raise
        return {number: (head.last, head.revision) for number, head, _ in read_all_records(connection)}, True


def verify_tail(
    connection: sqlite3.Connection, number: int, record: SessionRecord, crc: int, watermark: Watermark | None
) -> Iterator[Damage]:
    """The record of a session, how far it had come, and its last event."""
    if not has_valid_record_checksum(record, crc):
        yield Damage(str(record.session_id), -1, -1, BAD_RECORD)
    elif shorter := list(verify_against_watermark(record, watermark)):
        yield from shorter
    else:
        yield from verify_last_event(connection, number, record)


def verify_last_event(connection: sqlite3.Connection, number: int, record: SessionRecord) -> Iterator[Damage]:
    """The last event of a session, unless it was pruned or its loss is known."""
    lost = recorded_damage(connection, record.session_id)
    if record.last < 0 or any(damage.first <= record.last <= damage.last for damage in lost):
        return
    stored = select_event_rows(connection, number, record.last - 1, None).fetchone()
    if stored is None and record.last <= record.pruned_through:
        return
    if stored is None or not RowVerifier(record, record.last - 1, None, lost).verify([stored])[0]:
        yield Damage(record.session_id, record.last, record.last, "the last event is not what was written")


def verify_against_watermark(record: SessionRecord, watermark: Watermark | None) -> Iterator[Damage]:
    """What a session had when it was last written, and has no more."""
    if watermark is not None and watermark.last > record.last:
        yield Damage(record.session_id, record.last + 1, watermark.last, "the end of the session is missing")
    elif watermark is not None and watermark.revision > record.revision:
        yield Damage(
            record.session_id, record.last + 1, record.last, "the last change of the session is missing"
        )
