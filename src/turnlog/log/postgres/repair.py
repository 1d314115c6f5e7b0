"""Repair of a session record that is not what was written: it is built again from the session's events."""

from turnlog.events import CATALOG, decode_envelope
from turnlog.log.append import RECORD_EVENT_TYPES, apply_to_record
from turnlog.log.checksums import make_row
from turnlog.log.postgres.reading import EngineReader
from turnlog.log.records import SessionRecord, envelope_json


def recover_lost_record(
    reader: EngineReader, number: int, session_id: str, app: str, last: int, durable_count: int
) -> SessionRecord:
    """Build the record of a session from its events. Damaged events are left out."""
    record = SessionRecord(session_id, "", app, last=last, pruned_through=last, durable_count=durable_count)
    rows = reader.select(
        "select seq, meta, frame, crc from event where session = %b and type = any(%b) order by seq",
        [number, list(RECORD_EVENT_TYPES)],
    )
    for seq, meta, frame, crc in rows:
        row = make_row(session_id, seq, meta, frame)
        if row.checksum == crc:
            envelope = decode_envelope(envelope_json(row))
            payload = CATALOG.decode_payload(envelope)
            record = apply_to_record(record, payload, envelope.actor, seq)
    # The event that ended an invite may be lost: no invite is open again.
    return record.replace(invites={})
