"""A transaction of a PostgreSQL log: runs jobs one after the other under row locks (`local_jobs.LocalStore`).

It locks the sessions of its jobs first, in the order of their numbers, so two transactions never wait for
each other. Its records are those of the database, whatever is cached. Records are written when it ends.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from turnlog.ids import new_epoch
from turnlog.log.append import HIGHEST_EVENT_ID, is_timed_id
from turnlog.log.checksums import blob_checksum, parse_durable_count, values_checksum, verified_row
from turnlog.log.jobs import JobResult, Snapshot
from turnlog.log.leases import LeaseRow
from turnlog.log.listing import listing_entries
from turnlog.log.postgres.connections import Connection, LostRace, Query
from turnlog.log.postgres.reading import EngineReader
from turnlog.log.postgres.repair import recover_lost_record
from turnlog.log.postgres.rows import (
    END_ARRAYS,
    END_SPANS,
    EVENT_ARRAYS,
    INSERT_EVENTS,
    INSERT_SPANS,
    LISTING_ARRAYS,
    LISTING_SOURCE,
    REPLACE_SPANS,
    START_ARRAYS,
    UPSERT_LISTING,
    SpanColumns,
    encode_columns,
    event_row,
    is_listing_due,
    listing_rows,
)
from turnlog.log.postgres.schema import (
    LEASE_COLUMNS,
    NEVER_LISTED_MS,
    RECORD_COLUMNS,
    StoredRecord,
    decode_record_row,
    encode_record_row,
)
from turnlog.log.records import Blob, BlobInfo, Damage, Document, NewRow, Row, SessionRecord
from turnlog.log.spans import SpanEdge

NO_RESULTS: Mapping[str, JobResult] = {}
RECORD_VALUES: Query = "%b, %b, %b, %b, %b, %b, %b, %b, %b, %b"
INSERT_STORED_RECORD: Query = f"""
    insert into session (name, epoch, revision, fence, closed, app, newest, listed, record, crc)
    values ({RECORD_VALUES}) on conflict (name) do nothing returning id"""
UPDATE_STORED_RECORD: Query = f"""
    update session set (name, epoch, revision, fence, closed, app, newest, listed, record, crc)
    = row({RECORD_VALUES}) where id = %b"""
SELECT_LOCKED: Query = f"select {RECORD_COLUMNS} from session where name = any(%b) order by id for update"
UPSERT_LEASE: Query = f"""insert into lease ({LEASE_COLUMNS})
    values (%b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b)
    on conflict (session) do update set (owner, process, fence, seen, wake_at, wanted_at, wanted_seq,
    attempts, claimed_at, state, claim) = row(excluded.owner, excluded.process, excluded.fence, excluded.seen,
    excluded.wake_at, excluded.wanted_at, excluded.wanted_seq, excluded.attempts, excluded.claimed_at,
    excluded.state, '')"""
UPSERT_DOCUMENT: Query = """
    insert into document (session, id, type, category, body, version, stored, crc)
    values (%b, %b, %b, %b, %b, %b, %b, %b) on conflict (session, version, id) do update set
    type = excluded.type, category = excluded.category, body = excluded.body, stored = excluded.stored,
    crc = excluded.crc"""
UPSERT_SNAPSHOT: Query = """
    insert into snapshot (session, name, seq, body, version, stored, crc)
    values (%b, %b, %b, %b, %b, %b, %b) on conflict (session, name, version, seq) do update set
    body = excluded.body, stored = excluded.stored, crc = excluded.crc"""
PRUNABLE: Query = """session = %(number)b and span is not null and ts < %(before_ms)b and exists (
    select 1 from span where span.session = event.session and span.key = event.span
    and span.last is not null)"""


class EngineTransaction:
    """The state of one transaction, which the caller begins and ends on the connection.

    `job_key` names the job that is run now. `unconfirmed` are the results of an earlier try, by job key, that
    may have committed them.
    """

    def __init__(self, connection: Connection, unconfirmed: Mapping[str, JobResult] = NO_RESULTS) -> None:
        self.connection = connection
        self.reader = EngineReader(connection)
        self.records: dict[str, StoredRecord] = {}  # that this transaction has locked
        self.dirty: dict[str, SessionRecord] = {}  # the record before, of sessions that were changed
        self.claimed: set[str] = set()  # sessions that a statement has claimed
        self.unconfirmed = unconfirmed
        self.job_key = ""
        self.is_wanted = False  # a session without an owner was marked as wanted

    def lock_sessions(self, session_ids: Iterable[str]) -> None:
        """Lock sessions in the order of their numbers. Records that are damaged are locked, too."""
        names = sorted(set(session_ids) - {""})
        if names:
            self.connection.execute(
                "select id from session where name = any(%b) order by id for update", [names]
            )

    # session records

    def get_record(self, session_id: str) -> SessionRecord | None:
        if session_id not in self.records:
            rows = self.reader.select(SELECT_LOCKED, [[session_id]])
            if not rows:
                return None
            self.records[session_id] = decode_record_row(rows[0])
        return self.records[session_id].record

    def put_record(self, record: SessionRecord) -> None:
        session_id = record.session_id
        if session_id in self.records:
            before = self.records[session_id].record
        else:
            # A job that creates a session has found none. It must not look again: another process may have
            # created it meanwhile.
            before = record
            self._insert_record(record)
        self.dirty.setdefault(session_id, before)
        self.records[session_id] = self.records[session_id]._replace(record=record)

    def _insert_record(self, record: SessionRecord) -> None:
        rows = self.reader.select(INSERT_STORED_RECORD, encode_record_row(record, "", NEVER_LISTED_MS))
        if not rows:
            raise LostRace(f"{record.session_id} was created by another process at the same time")
        self.records[record.session_id] = StoredRecord(rows[0][0], record, "", NEVER_LISTED_MS)

    def note_claim(self, stored: StoredRecord) -> None:
        """Take over a record that a statement has changed in the database."""
        session_id = stored.record.session_id
        self.claimed.add(session_id)
        if session_id not in self.dirty:
            self.records[session_id] = stored
            return
        # The record here has changes that are not written yet.
        changed = self.records[session_id]
        record = changed.record.replace(fence=stored.record.fence, revision=changed.record.revision + 1)
        self.records[session_id] = changed._replace(record=record)

    def changed_records(self) -> list[StoredRecord]:
        return [self.records[session_id] for session_id in self.claimed.union(self.dirty)]

    def flush(self) -> None:
        """Write the records that were changed, and their entries in lists."""
        for session_id, before in sorted(self.dirty.items()):
            stored = self.records[session_id]
            record = stored.record
            if is_listing_due(before, stored.listed_ms, record):
                stored = stored._replace(listed_ms=record.updated_ms)
                self.records[session_id] = stored
                self.write_listing(record)
            values = encode_record_row(record, stored.newest, stored.listed_ms)
            self.connection.execute(UPDATE_STORED_RECORD, [*values, stored.number])

    def write_listing(self, record: SessionRecord) -> None:
        session_id = record.session_id
        names = list(listing_entries(record))
        self.connection.execute(
            "delete from listing where session = %b and not list = any(%b)", [session_id, names]
        )
        self.connection.execute(
            f"insert into listing select * from {LISTING_SOURCE} {UPSERT_LISTING}",
            encode_columns(listing_rows({session_id: record}), LISTING_ARRAYS),
        )

    # events

    def find(self, session_id: str, event_ids: Sequence[str]) -> dict[str, Row]:
        stored = self.records[session_id]
        keys = [
            (stored.number, event_id)
            for event_id in event_ids
            if event_id <= stored.newest or not is_timed_id(event_id)
        ]
        if not keys:
            return {}
        rows = self.reader.find_rows(keys)
        return {event_id: verified_row(stored.record, row) for _, event_id, row in rows}

    def insert_rows(
        self, record: SessionRecord, rows: Sequence[NewRow], edges: Sequence[SpanEdge]
    ) -> SessionRecord:
        session_id = record.session_id
        self.put_record(record)
        stored = self.records[session_id]
        if rows:
            event_rows = [event_row(stored.number, new) for new in rows]
            self.connection.execute(INSERT_EVENTS, encode_columns(event_rows, EVENT_ARRAYS))
        newest = max([stored.newest, *[new.id for new in rows if is_timed_id(new.id)]])
        self.records[session_id] = stored._replace(newest=newest)

        spans = SpanColumns()
        for edge in edges:
            spans.add(stored.number, edge)
        if starts := spans.start_rows():
            self.connection.execute(f"{INSERT_SPANS} {REPLACE_SPANS}", encode_columns(starts, START_ARRAYS))
        if ends := spans.end_rows():
            self.connection.execute(END_SPANS, encode_columns(ends, END_ARRAYS))
        return record

    # blobs and derived data

    def put_blob(self, name: str, blob: Blob) -> None:
        values = (name, blob.media_type, blob.data, blob.is_private)
        query: Query = "insert into blob values (%b, %b, %b, %b, %b) on conflict (name) do nothing"
        self.connection.execute(query, (*values, blob_checksum(*values)))

    def has_blob(self, name: str) -> bool:
        query: Query = "select 1 from blob where name = %b"
        return self.connection.execute(query, [name]).fetchone() is not None

    def blob_info(self, name: str) -> BlobInfo | None:
        query: Query = "select media_type, length(data) from blob where name = %b and not private"
        row = self.connection.execute(query, [name]).fetchone()
        return None if row is None else BlobInfo(*row)

    def drop_blobs(self, session_id: str) -> None:
        # "0" follows "/" in ASCII, and no session id contains either.
        values = [f"{session_id}/", f"{session_id}0"]
        for table in ("blob", "upload"):
            self.connection.execute(f"delete from {table} where name >= %b and name < %b", values)

    def mark_upload(self, name: str, ts_ms: int) -> None:
        query: Query = "insert into upload values (%b, %b) on conflict (name) do update set stored = %b"
        self.connection.execute(query, [name, ts_ms, ts_ms])

    def unmark_upload(self, name: str) -> bool:
        return self.connection.execute("delete from upload where name = %b", [name]).rowcount > 0

    def drop_uploads(self, before_ms: int, limit: int) -> int:
        # An upload that another process keeps at this moment is locked, and stays.
        query: Query = """with dropped as (delete from upload where name in (
                select name from upload where stored < %b order by stored limit %b for update skip locked)
                returning name)
            delete from blob using dropped where blob.name = dropped.name"""
        return self.connection.execute(query, [before_ms, limit]).rowcount

    def drop_private_blob(self, name: str) -> bool:
        query: Query = "delete from blob where name = %b and private"
        return self.connection.execute(query, [name]).rowcount > 0

    def put_document(self, document: Document, ts_ms: int) -> None:
        values = (*document, ts_ms)
        self.connection.execute(UPSERT_DOCUMENT, (*values, values_checksum(*values)))

    def put_snapshot(self, snapshot: Snapshot, ts_ms: int) -> None:
        values = (*snapshot, ts_ms)
        self.connection.execute(UPSERT_SNAPSHOT, (*values, values_checksum(*values)))

    def snapshot(self, session_id: str, name: str, at: int, version: str) -> tuple[int, bytes] | None:
        return self.reader.snapshot(session_id, name, at, version)

    def drop_snapshots(self, session_id: str, name: str, first: int, last: int, version: str) -> None:
        query: Query = """delete from snapshot
            where session = %b and name = %b and version = %b and seq between %b and %b"""
        self.connection.execute(query, [session_id, name, version, first, last])

    def delete_derived(self, session_id: str, version: str | None) -> None:
        for table in ("document", "snapshot"):
            query = f"""delete from {table} where (%b::text = '' or session = %b)
                and (%b::text is null or version = %b)"""
            self.connection.execute(query, [session_id, session_id, version, version])
        if not session_id:
            self._rebuild_listing()

    def collect_derived(self, session_id: str, versions: Collection[str], before_ms: int) -> None:
        for table in ("document", "snapshot"):
            query = f"delete from {table} where session = %b and stored < %b and not version = any(%b)"
            self.connection.execute(query, [session_id, before_ms, list(versions)])

    def _rebuild_listing(self) -> None:
        self.connection.execute("delete from listing")
        for stored in list(self.reader.records()):
            if isinstance(stored, StoredRecord):
                self.write_listing(stored.record)

    # maintenance

    def prune(self, session_id: str, before_ms: int) -> int:
        stored = self.records[session_id]
        values = {"number": stored.number, "before_ms": before_ms}
        query: Query = f"""with gone as (delete from event where {PRUNABLE} returning seq)
            select max(seq), count(*) from gone"""
        [(highest, count)] = self.reader.select(query, values)
        if count:
            record = stored.record
            pruned_through = max(record.pruned_through, highest)
            self.put_record(record.replace(pruned_through=pruned_through, revision=record.revision + 1))
        return int(count)

    def remove_events(self, session_id: str) -> int:
        number = self.records[session_id].number
        self.connection.execute("delete from span where session = %b", [number])
        return self.connection.execute("delete from event where session = %b", [number]).rowcount

    def damages(self) -> list[Damage]:
        return self.reader.damages()

    def quarantine(self, damage: Damage) -> None:
        session_id = damage.session_id
        if damage not in self.reader.damages(session_id):
            query: Query = "insert into damage (session, first, last, problem) values (%b, %b, %b, %b)"
            self.connection.execute(query, damage)
        elif damage.first >= 0:
            return  # another reader met it, too

        query = "select id, app, fence, revision from session where name = %b for update"
        rows = self.reader.select(query, [session_id])
        if not rows:
            return
        number, app, fence, revision = rows[0]

        # Free the ids of the lost events: a client that sends one again is not refused.
        self.connection.execute(
            "update event set id = 'LOST ' || seq where session = %b and seq between %b and %b",
            [number, damage.first, damage.last],
        )
        query = "select seq, meta from event where session = %b order by seq desc limit 1"
        last, meta = next(iter(self.reader.select(query, [number])), (-1, None))
        durable_count = parse_durable_count(meta) or 0

        if damage.first < 0:
            recovered = recover_lost_record(self.reader, number, session_id, app, last, durable_count)
            recovered = recovered.replace(fence=fence, revision=revision)
            self.records[session_id] = StoredRecord(number, recovered, HIGHEST_EVENT_ID, NEVER_LISTED_MS)
        record = self.get_record(session_id)
        assert record is not None
        self.put_record(
            record.replace(
                epoch=new_epoch(),
                last=max(record.last, damage.last, last),
                durable_count=max(record.durable_count, durable_count),
                revision=record.revision + 1,
            )
        )

    # leases

    def get_lease(self, session_id: str) -> LeaseRow | None:
        return self.reader.get_lease(session_id)

    def put_lease(self, row: LeaseRow) -> None:
        self.connection.execute(UPSERT_LEASE, row)
        if row.owner is None and row.wanted_at_ms is not None:
            self.is_wanted = True
