"""Verification of a PostgreSQL log by `turnlog verify`: every checksum, the hash chains and the indexes.

Yields damages, session by session, and repairs nothing. A lost end of the log cannot be noticed here: the
engine's own durability and its standbys prevent it, and `failover` notices what a failover lost.
"""

from collections.abc import Iterator, Sequence

from turnlog.errors import InvalidEvent, SessionDamaged
from turnlog.events import CATALOG, decode_envelope
from turnlog.log.checksums import (
    RowVerifier,
    broken_chain_seqs,
    has_valid_blob_checksum,
    values_checksum,
)
from turnlog.log.listing import listing_entries
from turnlog.log.postgres.reading import EngineReader, is_span_intact
from turnlog.log.postgres.schema import LISTING_STEP_S, SPAN_COLUMNS, StoredRecord
from turnlog.log.records import Damage, Row, SessionRecord, envelope_json
from turnlog.log.spans import live_event_span

VERIFY_ROWS = 256  # that are read at a time
VERIFY_BYTES = (
    1 << 23
)  # of their frames, and at least one row: the engine ends a transaction that rests for 3 s
SPAN_INDEX_PROBLEM = "the index of blocks and calls is damaged"
LISTING_PROBLEM = "the lists of sessions are damaged; repair them with `turnlog rebuild`"
DERIVED_PROBLEM = "a document, snapshot or blob is not what was written"

StoredEvent = tuple[Row, bytes | None, str | None, str | None]  # row, chain, span, type


def verify_engine(reader: EngineReader) -> Iterator[Damage]:
    with reader.read_transaction():
        for item in list(reader.records()):
            if isinstance(item, SessionDamaged):
                yield Damage(item.session_id, item.first, item.last, item.problem)
            else:
                yield from verify_stored_session(reader, item)
        yield from verify_side_data(reader)


class EventCheck:
    """Checks the events of a session on their way to the check of the hash chain, page by page."""

    def __init__(self, reader: EngineReader, stored: StoredRecord, known_damage: Sequence[Damage]) -> None:
        self.damage: SessionDamaged | None = None
        self.index_damages: list[Damage] = []
        self._reader = reader
        self._stored = stored
        self._known_damage = known_damage

    def links(self) -> Iterator[tuple[Row, bytes | None]]:
        """Yield each row with its link of the chain, up to the first damage."""
        record = self._stored.record
        verifier = RowVerifier(record, -1, 0, self._known_damage)
        for events in read_stored_events(self._reader, self._stored.number, record.last):
            _, self.damage = verifier.verify([event[0] for event in events])
            if self.damage is not None:
                return
            self.index_damages += verify_event_columns(record, events, self._known_damage)
            yield from [(row, chain) for row, chain, _, _ in events]
        self.damage = verifier.verify_end()


def verify_stored_session(reader: EngineReader, stored: StoredRecord) -> Iterator[Damage]:
    session_id = stored.record.session_id
    known_damage = reader.damages(session_id)
    check = EventCheck(reader, stored, known_damage)
    broken_seqs = list(broken_chain_seqs(check.links()))
    if check.damage is not None:
        yield Damage(session_id, check.damage.first, check.damage.last, check.damage.problem)
    else:
        if not known_damage:
            for seq in broken_seqs:
                yield Damage(session_id, seq, seq, "the hash chain is broken")
        yield from check.index_damages
        for span in reader.select(f"select {SPAN_COLUMNS} from span where session = %b", [stored.number]):
            if not is_span_intact(span):
                yield Damage(session_id, -1, -1, SPAN_INDEX_PROBLEM)
    if not has_exact_lists(reader, stored):
        yield Damage(session_id, -1, -1, LISTING_PROBLEM)


def read_stored_events(reader: EngineReader, number: int, last: int) -> Iterator[list[StoredEvent]]:
    """Yield the events of a session up to a seq, in pages; later ones are newer than its record."""
    after = -1
    query = """select seq, meta, frame, crc, chain, span, type from (
            select *, sum(octet_length(frame)) over (order by seq) - octet_length(frame) as before from (
                select * from event
                where session = %b and seq > %b and seq <= %b order by seq limit %b) as row
        ) as sized where before < %b order by seq"""
    while rows := reader.select(query, [number, after, last, VERIFY_ROWS, VERIFY_BYTES]):
        yield [(Row(*row[:4]), row[4], row[5], row[6]) for row in rows]
        after = rows[-1][0]


def verify_event_columns(
    record: SessionRecord, events: Sequence[StoredEvent], known_damage: Sequence[Damage]
) -> Iterator[Damage]:
    """Compare the columns that indexes use with the events."""
    for row, _, span, type_name in events:
        if any(damage.first <= row.seq <= damage.last for damage in known_damage):
            continue
        if span is None and row.meta.endswith(f"|{type_name}".encode()):
            continue
        if span is None or not is_span_of(row, span):
            yield Damage(record.session_id, row.seq, row.seq, SPAN_INDEX_PROBLEM)


def is_span_of(row: Row, span: str) -> bool:
    try:
        return live_event_span(CATALOG.decode_payload(decode_envelope(envelope_json(row)))) == span
    except InvalidEvent:
        return False


def has_exact_lists(reader: EngineReader, stored: StoredRecord) -> bool:
    record = stored.record
    rows = reader.select("select list, active from listing where session = %b", [record.session_id])
    entries = dict(rows)
    expected = listing_entries(record)
    if entries.keys() != expected.keys():
        return False
    step_ms = int(LISTING_STEP_S * 1000)
    return all(entries[name] <= active_ms < entries[name] + step_ms for name, active_ms in expected.items())


def verify_side_data(reader: EngineReader) -> Iterator[Damage]:
    for query in (
        "select session, id, type, category, body, version, stored, crc from document",
        "select session, name, seq, body, version, stored, crc from snapshot",
    ):
        for *values, crc in reader.select(query):
            if values_checksum(*values) != crc:
                yield Damage(str(values[0]), -1, -1, DERIVED_PROBLEM)
    for (name,) in reader.select("select name from blob order by name"):
        [values] = reader.select("select media_type, data, private, crc from blob where name = %b", [name])
        if not has_valid_blob_checksum(name, *values):
            yield Damage(name.partition("/")[0], -1, -1, DERIVED_PROBLEM)
