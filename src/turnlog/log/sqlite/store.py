"""Sessions in one SQLite file: WAL, synchronous FULL, one writing process, any number of reading ones.

Rows hold finished frames, so replay reads and sends bytes. Spans (blocks, calls, agents) are indexed in the
same transaction: replay uses them to leave out live events, recovery to find what is open. Every row has a
checksum, and rows that do not match are never returned: the loss is recorded, and the session gets a new
epoch.
"""

import json
import logging
import sqlite3
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from turnlog.errors import SessionDamaged, StoreError
from turnlog.ids import new_epoch
from turnlog.log.append import HIGHEST_EVENT_ID, apply_to_record, is_timed_id
from turnlog.log.bell import Bell, RingListener, StopListening
from turnlog.log.checksums import (
    RowVerifier,
    blob_checksum,
    has_valid_blob_checksum,
    parse_durable_count,
    values_checksum,
    verified_row,
)
from turnlog.log.filter import matches_any_type
from turnlog.log.jobs import Job, JobOutcome, Snapshot
from turnlog.log.leases import LeaseRow, LeaseState, Owners
from turnlog.log.listing import invitations_name, list_name, listing_entries
from turnlog.log.local_jobs import commit_jobs
from turnlog.log.records import (
    Blob,
    BlobInfo,
    Damage,
    Document,
    FrameBatch,
    ListPosition,
    NewRow,
    Page,
    Row,
    SessionRecord,
    TypeQuery,
)
from turnlog.log.spans import MAX_SAME_AGENTS, SpanEdge, oldest_open_turn_start, span_bounds
from turnlog.log.sqlite import verify
from turnlog.log.sqlite.commit_poller import CommitPoller
from turnlog.log.sqlite.files import WriterLock, reading_mode
from turnlog.log.sqlite.queries import (
    SESSION_NUMBER,
    durable_count_at,
    has_session,
    has_skippable_spans,
    has_valid_span_checksum,
    is_damage_error,
    lease_row,
    load_record,
    read_all_records,
    read_frame_batch,
    read_listing,
    read_page,
    read_replayed_page,
    read_typed_page,
    recorded_damage,
    select_event_rows,
    select_spans_around,
    session_level_payloads,
)
from turnlog.log.sqlite.schema import (
    END_SPAN,
    EVENT_COLUMNS,
    INSERT_DOCUMENT,
    INSERT_EVENT,
    INSERT_LEASE,
    INSERT_RECORD,
    INSERT_SNAPSHOT,
    INSERT_SPAN,
    MIGRATIONS,
    RENAME_RECORD,
    SCHEMA,
    SCHEMA_VERSION,
    SPAN_COLUMNS,
    UPDATE_RECORD,
    check_schema,
    encode_record,
    has_valid_record_checksum,
    update_values,
)
from turnlog.log.sqlite.watermark import GROW_SLOTS, Watermark, WatermarkFile

log = logging.getLogger("turnlog.log")

READER_RECONCILE_S = 2.0  # how often a reading process reads its sessions, whatever the commit count
MAX_CACHED_SESSIONS = 10_000  # records that the writer keeps in memory
MAX_TIMED_ID = "select max(id) from event where session = ? and id glob 'evt_0???????-????-7*'"


class SqliteStore:
    """The store behind `sqlite:///path`. Without `writable` it reads beside the process that writes."""

    max_batch = 512  # jobs that share an fsync: bounds how long the first one waits
    reader_threads = 2

    def __init__(self, path: Path, *, writable: bool = True) -> None:
        path = path.resolve()  # a symbolic link must lead to the same lock and watermarks
        self._path = path
        self._writable = writable
        self._writer_lock: WriterLock | None = None
        self._uri_mode = "mode=rw"  # the writer lock creates the file, private to its owner
        if writable:
            with translate_errors():
                path.parent.mkdir(parents=True, exist_ok=True)
                self._writer_lock = WriterLock(path)
        elif not path.exists():
            raise StoreError(f"there is no log at {path}")
        else:
            self._uri_mode = reading_mode(path)

        self._connections: list[sqlite3.Connection] = []
        self._local = threading.local()
        self._records: dict[str, tuple[int, SessionRecord]] = {}  # number and record by session id
        self._max_event_id: dict[str, str] = {}
        self._listed_records: dict[str, SessionRecord] = {}  # as they are in `listing`
        self._dirty: set[str] = set()  # sessions whose record this transaction has changed
        self._is_wanted = False  # this transaction has marked a session as wanted
        self._pending_rows: list[tuple[object, ...]] = []
        self.owners = Owners()
        self._bell = Bell()
        self._poller: CommitPoller | None = None  # of a reading process that listens
        self._commit_lock = threading.Lock()
        try:
            with translate_errors():
                self._open()
        except StoreError:
            self.close()
            raise

    def _migrate(self, version: int) -> int:
        """Bring the tables of an older file up to date. Return the version that they have now."""
        while version in MIGRATIONS:
            statements = MIGRATIONS[version]
            version += 1
            self._writer_connection.executescript(
                f"begin immediate; {statements} pragma user_version = {version}; commit;"
            )
        return version

    def _open(self) -> None:
        self._writer_connection = self._connect()
        version = self._writer_connection.execute("pragma user_version").fetchone()[0]
        if version in MIGRATIONS and self._writable:
            version = self._migrate(version)
        if version not in (0, SCHEMA_VERSION):
            other = "a newer" if version > SCHEMA_VERSION else "an older"
            advice = "export it with that version and import it here"
            if version in MIGRATIONS:
                advice = "open it once for writing"
            raise StoreError(f"{self._path.name} was written by {other} Turnlog (schema {version}); {advice}")
        if version == 0 and self._writable:
            self._writer_connection.executescript(
                f"begin; {SCHEMA} pragma user_version = {SCHEMA_VERSION}; commit;"
            )
        check_schema(self._writer_connection)

        path = self._path.with_name(self._path.name + ".mark")
        sessions = self._max_session_number() if self._writable else 0
        self.watermarks = WatermarkFile(path, writable=self._writable, sessions=sessions)
        self._has_no_watermarks = self.watermarks.is_missing and version > 0
        if self._has_no_watermarks:
            log.error("%s is missing: a lost end of the log cannot be noticed this time", path.name)
        if self.watermarks.is_damaged:
            log.error("%s is damaged: a lost end of the log cannot be noticed this time", path.name)

        if self._writable:
            for damage in verify.verify_tails(self._writer_connection, self.watermarks):
                log.error("%s", SessionDamaged(*damage))
                self._record_damage(damage)

    def _max_session_number(self) -> int:
        query = "select count(*), ifnull(max(id), 0) from session"
        count, highest = self._writer_connection.execute(query).fetchone()
        return min(int(highest), int(count) + GROW_SLOTS)

    def _record_damage(self, damage: Damage) -> None:
        """Quarantine damage that was found at opening. If even that fails, the other sessions still open."""
        try:
            with self.transaction():
                self.quarantine(damage)
        except StoreError as error:
            if not is_damage_error(error.__cause__):
                raise

    def _connect(self) -> sqlite3.Connection:
        uri = f"file:{quote(str(self._path.absolute()))}?{self._uri_mode}"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        self._connections.append(connection)
        if self._writable:
            connection.execute("pragma page_size = 8192")
            connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        connection.execute("pragma wal_autocheckpoint = 2000")  # 16 MB: hot pages are copied less often
        # Damaged text must not raise here: checksums find it.
        connection.text_factory = lambda text: text.decode(errors="replace")
        connection.create_function("intact", 7, has_valid_span_checksum, deterministic=True)
        return connection

    def _reader_connection(self) -> sqlite3.Connection:
        if not hasattr(self._local, "connection"):
            self._local.connection = self._connect()
        connection: sqlite3.Connection = self._local.connection
        return connection

    @property
    def lease_s(self) -> float | None:
        return None  # one process writes, and its owners live as long as it does

    @property
    def reconcile_s(self) -> float | None:
        """No ring is lost inside the process that writes; a reading process polls a counter."""
        return None if self._writable else READER_RECONCILE_S

    def listen(self, ring: RingListener) -> StopListening:
        if not self._writable and self._poller is None:
            self._poller = CommitPoller(self.commit_count, self._bell)
        return self._bell.listen(ring)

    def close(self) -> None:
        if self._bell.has_listeners:
            return
        if self._poller is not None:
            self._poller.close()
        for connection in self._connections:
            connection.close()
        if hasattr(self, "watermarks"):
            self.watermarks.close()
        if self._writer_lock is not None:
            self._writer_lock.close()

    # writing

    def commit(self, jobs: Sequence[Job]) -> list[JobOutcome]:
        return commit_jobs(self, jobs)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._commit_lock:
            with self._write_transaction():
                yield
            # Inside the lock: rings come in the order of commits.
            if self._dirty or self._is_wanted:
                moved = {session_id: self._records[session_id][1].last for session_id in self._dirty}
                self._bell.ring(moved, self._is_wanted)
            if len(self._records) > MAX_CACHED_SESSIONS:
                self._clear_caches()

    @contextmanager
    def _write_transaction(self) -> Iterator[None]:
        self._dirty.clear()
        self._is_wanted = False
        self._pending_rows.clear()
        is_committed = False
        try:
            with translate_errors():
                self._writer_connection.execute("begin immediate")
                if self._writer_lock is not None:
                    # Not earlier: from here on another process that writes would wait for this one.
                    self._writer_lock.check()
                yield
                self._flush()
                for session_id in self._dirty:
                    self._write_record(session_id)
                self._writer_connection.execute("commit")
                is_committed = True
        finally:
            if not is_committed:
                self._clear_caches()
                if self._writer_connection.in_transaction:
                    with suppress(sqlite3.Error):
                        self._writer_connection.execute("rollback")

        written = [self._records[session_id] for session_id in self._dirty]
        self.watermarks.write_commit(
            {number: Watermark(record.last, record.revision, record.session_id) for number, record in written}
        )

    def _clear_caches(self) -> None:
        self._records.clear()
        self._max_event_id.clear()
        self._listed_records.clear()

    def _flush(self) -> None:
        if self._pending_rows:
            self._writer_connection.executemany(INSERT_EVENT, self._pending_rows)
            self._pending_rows.clear()

    def get_record(self, session_id: str) -> SessionRecord | None:
        numbered_record = self._records.get(session_id)
        if numbered_record is None:
            numbered_record = load_record(self._writer_connection, session_id)
            if numbered_record is None:
                return None
            self._records[session_id] = numbered_record
        return numbered_record[1]

    def put_record(self, record: SessionRecord) -> None:
        if self.get_record(record.session_id) is None:
            values = encode_record(record)
            cursor = self._writer_connection.execute(INSERT_RECORD, (*values, values_checksum(*values)))
            number = int(cursor.lastrowid or 0)
            self.watermarks.reserve(number)
        else:
            number = self._records[record.session_id][0]
        self._records[record.session_id] = (number, record)
        self._dirty.add(record.session_id)

    def _write_record(self, session_id: str) -> None:
        number, record = self._records[session_id]
        self._writer_connection.execute(UPDATE_RECORD, update_values(number, record))
        self._update_listing(record)

    def _update_listing(self, record: SessionRecord) -> None:
        session_id = record.session_id
        listed = self._listed_records.get(session_id)
        if listed is not None and record.is_listed_as(listed):
            return

        query = "select list, active from listing where session = ?"
        stored = dict(self._writer_connection.execute(query, (session_id,)))
        entries = listing_entries(record)
        removed = [(session_id, name) for name in stored.keys() - entries.keys()]
        self._writer_connection.executemany("delete from listing where session = ? and list = ?", removed)
        changed = [
            (session_id, name, active_ms)
            for name, active_ms in entries.items()
            if stored.get(name) != active_ms
        ]
        self._writer_connection.executemany("insert or replace into listing values (?, ?, ?)", changed)
        self._listed_records[session_id] = record

    def find(self, session_id: str, event_ids: Sequence[str]) -> dict[str, Row]:
        # Ids rise with time: nearly all ids are above the highest one, and need no query.
        highest = self._load_max_event_id(session_id)
        rows: dict[str, Row] = {}
        for event_id in event_ids:
            if event_id <= highest or not is_timed_id(event_id):
                row = self._find_row(session_id, event_id)
                if row is not None:
                    rows[event_id] = row
        return rows

    def _find_row(self, session_id: str, event_id: str) -> Row | None:
        self._flush()
        number, record = self._records[session_id]
        query = f"select {EVENT_COLUMNS} from event where session = ? and id = ?"
        stored = self._writer_connection.execute(query, (number, event_id)).fetchone()
        return None if stored is None else verified_row(record, stored)

    def _load_max_event_id(self, session_id: str) -> str:
        known = self._max_event_id.get(session_id)
        if known is not None:
            return known

        number = self._records[session_id][0]
        stored = self._writer_connection.execute(MAX_TIMED_ID, (number,)).fetchone()[0]
        if stored is None:
            highest = ""
        elif isinstance(stored, str):
            highest = stored
        else:  # a damaged id
            highest = HIGHEST_EVENT_ID
        self._max_event_id[session_id] = highest
        return highest

    def insert_rows(
        self, record: SessionRecord, rows: Sequence[NewRow], edges: Sequence[SpanEdge]
    ) -> SessionRecord:
        session_id = record.session_id
        number = self._records[session_id][0]
        self._records[session_id] = (number, record)
        self._dirty.add(session_id)

        highest = self._load_max_event_id(session_id)
        pending = self._pending_rows
        for row, event_id, ts_ms, chain, span in rows:
            seq, meta, frame, checksum = row
            type_name = None if span else row.type
            pending.append((number, seq, event_id, ts_ms, span, type_name, chain, checksum, meta, frame))
            if event_id > highest and is_timed_id(event_id):
                highest = event_id

        self._max_event_id[session_id] = highest
        for edge in edges:
            self._put_span(number, edge)
        return record

    def _put_span(self, number: int, edge: SpanEdge) -> None:
        if edge.is_start:
            values = (number, edge.key, edge.trace, edge.seq, None, int(edge.is_agent))
            self._writer_connection.execute(INSERT_SPAN, (*values, values_checksum(*values)))
            return

        query = "select first, trace from span where session = ? and key = ? and last is null"
        open_span = self._writer_connection.execute(query, (number, edge.key)).fetchone()
        if open_span is None:
            return  # the first end counts, and ends without a start are ignored
        first, trace = open_span
        checksum = values_checksum(number, edge.key, trace, first, edge.seq, int(edge.is_agent))
        self._writer_connection.execute(END_SPAN, (edge.seq, checksum, number, edge.key))

    def has_blob(self, name: str) -> bool:
        query = "select 1 from blob where name = ?"
        return self._writer_connection.execute(query, (name,)).fetchone() is not None

    def blob_info(self, name: str) -> BlobInfo | None:
        query = "select media_type, length(data) from blob where name = ? and not private"
        row = self._writer_connection.execute(query, (name,)).fetchone()
        return None if row is None else BlobInfo(*row)

    def drop_blobs(self, session_id: str) -> None:
        # "0" follows "/" in ASCII, and no session id contains either.
        values = (f"{session_id}/", f"{session_id}0")
        for table in ("blob", "upload"):
            self._writer_connection.execute(f"delete from {table} where name >= ? and name < ?", values)

    def mark_upload(self, name: str, ts_ms: int) -> None:
        self._writer_connection.execute("insert or replace into upload values (?, ?)", (name, ts_ms))

    def unmark_upload(self, name: str) -> bool:
        return self._writer_connection.execute("delete from upload where name = ?", (name,)).rowcount > 0

    def drop_uploads(self, before_ms: int, limit: int) -> int:
        query = "select name from upload where stored < ? order by stored limit ?"
        names = self._writer_connection.execute(query, (before_ms, limit)).fetchall()
        for table in ("blob", "upload"):
            self._writer_connection.executemany(f"delete from {table} where name = ?", names)
        return len(names)

    def put_blob(self, name: str, blob: Blob) -> None:
        values = (name, blob.media_type, blob.data, int(blob.is_private))
        query = "insert or ignore into blob values (?, ?, ?, ?, ?)"
        self._writer_connection.execute(query, (*values, blob_checksum(*values)))

    def drop_private_blob(self, name: str) -> bool:
        query = "delete from blob where name = ? and private"
        return self._writer_connection.execute(query, (name,)).rowcount > 0

    def put_document(self, document: Document, ts_ms: int) -> None:
        values = (*document, ts_ms)
        self._writer_connection.execute(INSERT_DOCUMENT, (*values, values_checksum(*values)))

    def put_snapshot(self, snapshot: Snapshot, ts_ms: int) -> None:
        values = (*snapshot, ts_ms)
        self._writer_connection.execute(INSERT_SNAPSHOT, (*values, values_checksum(*values)))

    def drop_snapshots(self, session_id: str, name: str, first: int, last: int, version: str) -> None:
        query = "delete from snapshot where session = ? and name = ? and version = ? and seq between ? and ?"
        self._writer_connection.execute(query, (session_id, name, version, first, last))

    def delete_derived(self, session_id: str = "", version: str | None = None) -> None:
        for table in ("document", "snapshot"):
            query = f"delete from {table} where (? = '' or session = ?) and (? is null or version = ?)"
            self._writer_connection.execute(query, (session_id, session_id, version, version))
        if not session_id:
            self._rebuild_listing()

    def collect_derived(self, session_id: str, versions: Collection[str], before_ms: int) -> None:
        marks = ", ".join("?" for _ in versions)
        for table in ("document", "snapshot"):
            query = f"delete from {table} where session = ? and stored < ? and version not in ({marks})"
            self._writer_connection.execute(query, (session_id, before_ms, *versions))

    def get_lease(self, session_id: str) -> LeaseRow | None:
        query = "select * from lease where session = ?"
        stored = self._writer_connection.execute(query, (session_id,)).fetchone()
        return lease_row(stored) if stored else None

    def put_lease(self, row: LeaseRow) -> None:
        self._writer_connection.execute(INSERT_LEASE, (*row, values_checksum(*row)))
        if row.owner is None and row.wanted_at_ms is not None:
            self._is_wanted = True

    def held_leases(self) -> list[LeaseRow]:
        query = "select * from lease where owner is not null order by claimed_at"
        return [lease_row(stored) for stored in self._writer_connection.execute(query).fetchall()]

    def due_leases(self, now_ms: int, apps: Collection[str] | None, limit: int) -> list[LeaseRow]:
        names = [] if apps is None else sorted(apps)
        of_apps = "" if apps is None else f"and app in ({', '.join('?' for _ in names)})"
        query = f"""select lease.* from lease join session on session.name = lease.session
            where owner is null and (wanted_at is not null or wake_at <= ?) and not closed {of_apps}
            order by min(ifnull(wanted_at, wake_at), ifnull(wake_at, wanted_at)) limit ?"""
        rows = self._writer_connection.execute(query, (now_ms, *names, limit)).fetchall()
        return [lease_row(stored) for stored in rows]

    def _rebuild_listing(self) -> None:
        self._writer_connection.execute("delete from listing")
        self._listed_records.clear()
        for _, record, crc in list(read_all_records(self._writer_connection)):
            if has_valid_record_checksum(record, crc):
                self._update_listing(record)

    def prune(self, session_id: str, before_ms: int) -> int:
        record = self.get_record(session_id)
        assert record is not None
        self._flush()
        number = self._records[session_id][0]
        condition = """session = ? and span is not null and ts < ? and exists (select 1 from span
            where span.session = event.session and span.key = event.span and span.last is not null)"""
        highest, count = self._writer_connection.execute(
            f"select max(seq), count(*) from event where {condition}", (number, before_ms)
        ).fetchone()
        if count:
            self._writer_connection.execute(f"delete from event where {condition}", (number, before_ms))
            pruned_through = max(record.pruned_through, highest)
            self.put_record(record.replace(pruned_through=pruned_through, revision=record.revision + 1))
        return int(count)

    def remove_events(self, session_id: str) -> int:
        self._flush()
        number = self._records[session_id][0]
        self._writer_connection.execute("delete from span where session = ?", (number,))
        return self._writer_connection.execute("delete from event where session = ?", (number,)).rowcount

    def quarantine(self, damage: Damage) -> None:
        self._flush()
        if damage not in recorded_damage(self._writer_connection, damage.session_id):
            self._writer_connection.execute("insert into damage values (?, ?, ?, ?)", damage)
        elif damage.first >= 0:
            return  # another reader met it, too

        numbered_record = load_record(self._writer_connection, damage.session_id, verify_checksum=False)
        if numbered_record is None:
            return
        number, record = numbered_record

        # Free the ids of the lost events: a client that sends one again is not refused.
        self._writer_connection.execute(
            "update event set id = 'LOST ' || seq where session = ? and seq between ? and ?",
            (number, damage.first, damage.last),
        )
        query = """select seq, meta from event where session = ? and typeof(seq) = 'integer'
            order by seq desc limit 1"""
        last_row = self._writer_connection.execute(query, (number,)).fetchone()
        last, meta = last_row or (-1, None)
        durable_count = parse_durable_count(meta) or 0

        if damage.first < 0:
            self._writer_connection.execute(RENAME_RECORD, (damage.session_id, number))
            record = self._recover_record(number, damage.session_id, str(record.app), last, durable_count)
        self._records[damage.session_id] = (number, record)
        self.put_record(
            record.replace(
                epoch=new_epoch(),
                last=max(record.last, damage.last, last),
                durable_count=max(record.durable_count, durable_count),
                revision=record.revision + 1,
            )
        )

    def _recover_record(
        self, number: int, session_id: str, app: str, last: int, durable_count: int
    ) -> SessionRecord:
        watermark = self.watermarks.get(number)
        if watermark is not None:
            last = max(last, watermark.last)
        record = SessionRecord(
            session_id, "", app, last=last, pruned_through=last, durable_count=durable_count
        )
        for payload, actor, seq in session_level_payloads(self._writer_connection, number, session_id):
            record = apply_to_record(record, payload, actor, seq)
        # The event that ended an invite may be lost: no invite is open again.
        return record.replace(invites={})

    # reading

    def info(self, session_id: str) -> SessionRecord | None:
        with translate_errors():
            numbered_record = load_record(self._reader_connection(), session_id)
        return numbered_record[1] if numbered_record else None

    def sessions(self) -> list[SessionRecord]:
        with translate_errors():
            return [
                record
                for _, record, crc in read_all_records(self._reader_connection())
                if has_valid_record_checksum(record, crc)
            ]

    def listing(
        self, principal: str | None, after: ListPosition | None, limit: int
    ) -> list[tuple[ListPosition, SessionRecord]]:
        with translate_errors():
            return read_listing(self._reader_connection(), list_name(principal), after, limit)

    def invitations(self, principal: str, limit: int) -> list[SessionRecord]:
        with translate_errors():
            items = read_listing(self._reader_connection(), invitations_name(principal), None, limit)
        return [record for _, record in items]

    def damaged_sessions(self) -> list[str]:
        with translate_errors():
            reader = self._reader_connection()
            names = [
                record.session_id
                for _, record, crc in read_all_records(reader)
                if not has_valid_record_checksum(record, crc)
            ]
            # The name itself may be damaged: then no query finds the session.
            return [name for name in names if has_session(reader, name)]

    def read(self, session_id: str, after: int, replay_from: int | None, limit_bytes: int) -> Page:
        reader = self._reader_connection()
        with translate_errors(), read_transaction(reader):
            numbered_record = load_record(reader, session_id)
            if numbered_record is None:
                return Page()

            number, record = numbered_record
            if after == record.last:
                return Page((), record.epoch)

            damages = recorded_damage(reader, session_id)
            # Where rows were pruned, their number says nothing.
            if replay_from is not None and record.pruned_through <= after:
                fast_verifier = RowVerifier(record, after, None, damages)
                page = read_replayed_page(reader, fast_verifier, number, replay_from, limit_bytes)
                if page is not None:
                    return page

            verifier = RowVerifier(
                record,
                after,
                durable_count_at(reader, number, session_id, after),
                damages,
                allow_skipped=replay_from is not None,
            )
            # An open cursor would keep its view of the database.
            with closing(select_event_rows(reader, number, after, replay_from)) as cursor:
                return read_page(verifier, cursor, limit_bytes)

    def read_types(self, session_id: str, type_query: TypeQuery) -> Page:
        reader = self._reader_connection()
        try:
            with translate_errors(), read_transaction(reader):
                numbered_record = load_record(reader, session_id)
                if numbered_record is None:
                    return Page()
                number, record = numbered_record
                damages = recorded_damage(reader, session_id)
                return read_typed_page(reader, number, record, damages, type_query)
        except StoreError as error:
            if not is_damage_error(error.__cause__):
                raise

        # The index of types is damaged: read all rows.
        page = self.read(session_id, type_query.after, None, type_query.limit_bytes)
        rows = [row for row in page if not row.live and matches_any_type(row.type, type_query.types)]
        return Page(rows, page.epoch, page.last if page else None)

    def read_frames(
        self, session_id: str, after: int, replay_from: int | None, limit_bytes: int
    ) -> FrameBatch | None:
        batch = self._read_frames_fast(session_id, after, replay_from, limit_bytes)
        if batch is not None:
            return batch
        page = self.read(session_id, after, replay_from, limit_bytes)
        return page.frames() if page else None

    def _read_frames_fast(
        self, session_id: str, after: int, replay_from: int | None, limit_bytes: int
    ) -> FrameBatch | None:
        """Return frames without looking at their `meta`; None if that is not possible here."""
        reader = self._reader_connection()
        with translate_errors(), read_transaction(reader):
            numbered_record = load_record(reader, session_id)
            if numbered_record is None:
                return None
            number, record = numbered_record
            if replay_from is not None and has_skippable_spans(reader, number, replay_from):
                return None
            verifier = RowVerifier(record, after, None, recorded_damage(reader, session_id))
            return read_frame_batch(reader, verifier, number, limit_bytes)

    def has_event(self, session_id: str, seq: int) -> bool:
        query = f"select 1 from event where session = {SESSION_NUMBER} and seq = ?"
        with translate_errors():
            return self._reader_connection().execute(query, (session_id, seq)).fetchone() is not None

    def oldest_open_turn_start(self, session_id: str, at: int) -> int:
        if at < 0:
            return 0
        reader = self._reader_connection()
        spans: list[tuple[Any, ...]] = []
        with translate_errors(), read_transaction(reader):
            numbered_record = load_record(reader, session_id)
            if numbered_record is not None:
                spans = select_spans_around(reader, *numbered_record, at)
        if not all(has_valid_span_checksum(span[6], *span[:6]) for span in spans):
            return 0  # the index is damaged: the start of the session is a safe answer
        return oldest_open_turn_start([(span[2], span[3], span[4]) for span in spans], at)

    def turn_bounds(self, session_id: str, trace: str) -> tuple[int, int | None] | None:
        query = f"select {SPAN_COLUMNS} from span where session = {SESSION_NUMBER} and trace = ?"
        with translate_errors():
            spans = self._reader_connection().execute(query, (session_id, trace)).fetchall()
        if not all(has_valid_span_checksum(span[6], *span[:6]) for span in spans):
            return 0, None  # the index is damaged: the whole session, with an unknown end
        return span_bounds([(span[3], span[4]) for span in spans if span[5]])

    def agent_starts(self, key: str) -> list[tuple[str, int]]:
        query = """select name, session, key, trace, span.first, span.last, agent, span.crc
            from span join session on session.id = span.session
            where key = ? and agent order by session desc limit ?"""
        with translate_errors():
            spans = self._reader_connection().execute(query, (key, MAX_SAME_AGENTS)).fetchall()
        return [(span[0], span[4]) for span in spans if has_valid_span_checksum(span[7], *span[1:7])]

    def span_end(self, session_id: str, key: str) -> int | None:
        query = f"select {SPAN_COLUMNS} from span where session = {SESSION_NUMBER} and key = ?"
        with translate_errors():
            span = self._reader_connection().execute(query, (session_id, key)).fetchone()
        if span is None or not has_valid_span_checksum(span[6], *span[:6]):
            return None
        last: int | None = span[4]
        return last

    def sessions_with_open_agents(self) -> list[str]:
        query = """select distinct name from session, span
            where span.session = session.id and span.agent and span.last is null order by session.id"""
        with translate_errors():
            return [row[0] for row in self._reader_connection().execute(query)]

    def blob(self, name: str) -> Blob | None:
        query = "select media_type, data, private, crc from blob where name = ?"
        with translate_errors():
            row = self._reader_connection().execute(query, (name,)).fetchone()
        if row is None:
            return None
        media_type, data, private, crc = row
        if not has_valid_blob_checksum(name, media_type, data, private, crc):
            raise StoreError(f"the blob {name[-16:]} is not what was written")
        return Blob(media_type, data, bool(private))

    def blob_names(self, session_id: str, is_private: bool) -> list[str]:
        # "0" follows "/" in ASCII, and no session id contains either.
        query = "select name from blob where name >= ? and name < ? and private = ? order by name"
        values = (f"{session_id}/", f"{session_id}0", int(is_private))
        with translate_errors():
            rows = self._reader_connection().execute(query, values).fetchall()
        return [row[0] for row in rows]

    def documents(
        self, session_id: str | None, type: str | None, category: str | None, version: str
    ) -> list[Document]:
        filters = {"session": session_id, "type": type, "category": category, "version": version}
        values = {column: value for column, value in filters.items() if value is not None}
        where = " and ".join(f"{column} = ?" for column in values)
        query = f"select * from document where {where} order by session, id"
        with translate_errors():
            rows = self._reader_connection().execute(query, list(values.values())).fetchall()
        if any(values_checksum(*row[:-1]) != row[-1] for row in rows):
            raise StoreError("a document is not what was written; `turnlog rebuild` makes it again")
        return [Document(*row[:-2]) for row in rows]

    def snapshot(self, session_id: str, name: str, at: int, version: str = "") -> tuple[int, bytes] | None:
        query = """select * from snapshot
            where session = ? and name = ? and version = ? and seq <= ? order by seq desc"""
        with translate_errors():
            for *values, crc in self._reader_connection().execute(query, (session_id, name, version, at)):
                if values_checksum(*values) == crc:  # a damaged one is skipped: an older one will do
                    return values[2], values[3]
        return None

    def owner_of(self, session_id: str) -> str | None:
        row = self._read_lease(session_id)
        return row.owner if row is not None and self.owners.is_alive(row) else None

    def holds_lease(self, session_id: str, owner: str, fence: int) -> bool:
        row = self._read_lease(session_id)
        return row is not None and row.is_held(owner, fence)

    def _read_lease(self, session_id: str) -> LeaseRow | None:
        query = "select * from lease where session = ?"
        with translate_errors():
            stored = self._reader_connection().execute(query, (session_id,)).fetchone()
        return lease_row(stored) if stored else None

    def lease_states(self, session_ids: Sequence[str]) -> dict[str, LeaseState]:
        query = "select * from lease where session in (select value from json_each(?))"
        with translate_errors():
            names = json.dumps(list(session_ids))
            rows = [lease_row(stored) for stored in self._reader_connection().execute(query, (names,))]
        return {row.session_id: row.summary for row in rows}

    def next_wake_ms(self, after_ms: int) -> int | None:
        # `+owner` leaves the choice to the index of times: few leases have one.
        query = "select min(wake_at) from lease where wake_at > ? and +owner is null"
        with translate_errors():
            wake_at_ms: int | None = self._reader_connection().execute(query, (after_ms,)).fetchone()[0]
        return wake_at_ms

    def damages(self) -> list[Damage]:
        with translate_errors():
            return recorded_damage(self._reader_connection())

    def commit_count(self) -> int:
        """Return a number that changes when another process has written."""
        if self.watermarks.is_usable:
            return self.watermarks.commit_count
        # Always the same connection: the counter is one of the connection.
        with translate_errors():
            version: int = self._writer_connection.execute("pragma data_version").fetchone()[0]
            return version

    def verify(self) -> Iterator[Damage]:
        reader = self._reader_connection()
        if self._has_no_watermarks:
            problem = f"{self._path.name}.mark is missing, as when a log is copied without its files"
            yield Damage("", -1, -1, f"{problem}: a lost end cannot be noticed")
        if self.watermarks.is_damaged:
            problem = f"{self._path.name}.mark is damaged"
            yield Damage("", -1, -1, f"{problem}: a lost end cannot be noticed")
        try:
            # Before the transaction: a session may grow in between, but never shrink.
            watermarks = dict(self.watermarks.watermarks())
            with read_transaction(reader):
                yield from verify.verify_all(reader, watermarks)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            yield Damage("", -1, -1, f"SQLite: {error}")


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise errors of SQLite and of the file system as `StoreError`."""
    try:
        yield
    except sqlite3.DataError:  # a value that is too large: its job fails alone
        raise
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # the last: a damaged table definition
        raise StoreError(f"the log cannot be used: {error}") from error


@contextmanager
def read_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Read one state of the file, with several queries."""
    connection.execute("begin")
    try:
        yield
    finally:
        connection.execute("rollback")
