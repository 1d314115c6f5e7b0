"""Sessions in one SQLite file: WAL, synchronous FULL, one writing process, any number of reading ones.

Rows hold finished frames, so replay reads and sends bytes. Spans (blocks, calls, agents) are indexed beside
the events, in the same transaction: replay uses them to leave out live events, recovery to find what is
open. Every row has a checksum; nothing is handed out that does not match it. A loss is recorded, and the
session gets a new epoch.
"""

import logging
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from turnlog.errors import SessionDamaged, StoreError
from turnlog.ids import new_epoch
from turnlog.log.append import apply_to_record
from turnlog.log.filter import type_matches
from turnlog.log.sqlite import verify as check
from turnlog.log.sqlite.checksums import RowVerifier, parse_durable_count, values_checksum
from turnlog.log.sqlite.files import WriterLock, reading_mode
from turnlog.log.sqlite.queries import (
    EVENT_COLUMNS,
    INSERT_EVENT,
    INSERT_SPAN,
    RECORD_COLUMNS,
    SCHEMA,
    SCHEMA_VERSION,
    SESSION_NUMBER,
    UPDATE_RECORD,
    durable_count_at,
    encode_record,
    has_session,
    has_skippable_spans,
    has_valid_blob_checksum,
    has_valid_record_checksum,
    has_valid_span_checksum,
    invitations_name,
    is_damage_error,
    list_name,
    listing_entries,
    load_record,
    read_all_records,
    read_frame_batch,
    read_listing,
    read_page,
    read_typed_page,
    recorded_damage,
    select_event_rows,
    select_spans_around,
    session_level_payloads,
)
from turnlog.log.sqlite.watermark import GROW_SLOTS, Watermark, WatermarkFile
from turnlog.log.store import (
    MAX_SAME_AGENTS,
    Blob,
    Damage,
    Document,
    EvictCallback,
    FrameBatch,
    ListPosition,
    NewRow,
    Page,
    Row,
    SessionRecord,
    SpanEdge,
    TypeQuery,
    ignore_eviction,
    oldest_open_turn_start,
    span_bounds,
)

log = logging.getLogger("turnlog.log")

MAX_CACHED_SESSIONS = 10_000  # so many sessions the writer knows by heart
HIGHEST_EVENT_ID = "\U0010ffff"  # no id is larger: all of them are looked up


class SqliteStore:
    """The store behind `sqlite:///path`. Without `writable` it only reads, beside the process that writes."""

    max_batch = 512  # what shares an fsync: bounds how long the first one waits
    reader_threads = 2

    def __init__(self, path: Path, *, writable: bool = True) -> None:
        self.on_evict: EvictCallback = ignore_eviction
        path = path.resolve()  # by whatever name it is opened, its lock and its mark are the same
        self._path = path
        self._writable = writable
        self._writer_lock: WriterLock | None = None
        self._uri_mode = "mode=rw"  # the lock makes the file, for its owner alone
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
        self._records: dict[str, tuple[int, SessionRecord]] = {}
        self._max_event_id: dict[str, str] = {}
        self._listed_records: dict[str, SessionRecord] = {}  # as they are in `listing`
        self._dirty: set[str] = set()
        self._pending_rows: list[tuple[object, ...]] = []
        try:
            with translate_errors():
                self._open()
        except StoreError:
            self.close()
            raise

    def _open(self) -> None:
        self._writer_connection = self._connect()
        version = self._writer_connection.execute("pragma user_version").fetchone()[0]
        if version not in (0, SCHEMA_VERSION):
            other = "a newer" if version > SCHEMA_VERSION else "an older"
            raise StoreError(f"{self._path.name} was written by {other} Turnlog (schema {version})")
        if version == 0 and self._writable:
            self._writer_connection.executescript(
                f"begin; {SCHEMA} pragma user_version = {SCHEMA_VERSION}; commit;"
            )
        check.check_schema(self._writer_connection)
        path = self._path.with_name(self._path.name + ".mark")
        self.watermarks = WatermarkFile(
            path, writable=self._writable, sessions=self._max_session_number() if self._writable else 0
        )
        self._has_no_watermarks = self.watermarks.is_missing and version > 0
        if self._has_no_watermarks:
            log.error("%s is missing: a lost end of the log cannot be noticed this time", path.name)
        if self.watermarks.is_damaged:
            log.error("%s is damaged: a lost end of the log cannot be noticed this time", path.name)
        if self._writable:
            for damage in check.verify_tails(self._writer_connection, self.watermarks):
                log.error("%s", SessionDamaged(*damage))
                self._record_damage(damage)

    def _max_session_number(self) -> int:
        """The highest number of a session; one far beyond their count is a damaged one."""
        count, highest = self._writer_connection.execute(
            "select count(*), ifnull(max(id), 0) from session"
        ).fetchone()
        return min(int(highest), int(count) + GROW_SLOTS)

    def _record_damage(self, damage: Damage) -> None:
        """Quarantine what was found at opening; where even that cannot be written, the others go on."""
        try:
            with self.transaction():
                self.quarantine(damage)
        except StoreError as error:
            if not (isinstance(error.__cause__, sqlite3.Error) and is_damage_error(error.__cause__)):
                raise

    def _connect(self) -> sqlite3.Connection:
        uri = f"file:{quote(str(self._path.absolute()))}?{self._uri_mode}"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        self._connections.append(connection)
        if self._writable:
            connection.execute("pragma page_size = 8192")
            connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        connection.execute("pragma wal_autocheckpoint = 2000")  # 16 MB: what grows is copied less often
        connection.text_factory = lambda text: text.decode(errors="replace")  # damage is told by checksums
        connection.create_function("intact", 7, has_valid_span_checksum, deterministic=True)
        return connection

    def _reader_connection(self) -> sqlite3.Connection:
        if not hasattr(self._local, "connection"):
            self._local.connection = self._connect()
        connection: sqlite3.Connection = self._local.connection
        return connection

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        if hasattr(self, "watermarks"):
            self.watermarks.close()
        if self._writer_lock is not None:
            self._writer_lock.close()

    # writing

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._dirty.clear()
        self._pending_rows.clear()
        done = False
        try:
            with translate_errors():
                self._writer_connection.execute("begin immediate")
                if self._writer_lock is not None:
                    # Not before: another process that writes waits for this one now.
                    self._writer_lock.check()
                yield
                self._flush()
                for name in self._dirty:
                    self._write_record(name)
                self._writer_connection.execute("commit")
                done = True
        finally:
            if not done:
                self._clear_caches()
                if self._writer_connection.in_transaction:
                    with suppress(sqlite3.Error):
                        self._writer_connection.execute("rollback")
        moved = [self._records[name] for name in self._dirty]
        self.watermarks.write_commit(
            {number: Watermark(head.last, head.revision, head.session_id) for number, head in moved}
        )
        if len(self._records) > MAX_CACHED_SESSIONS:
            self._clear_caches()

    def _clear_caches(self) -> None:
        """Let go of what is known of the sessions: it can be read again."""
        self._records.clear()
        self._max_event_id.clear()
        self._listed_records.clear()

    def _flush(self) -> None:
        """Insert what was put, in one go."""
        self._writer_connection.executemany(INSERT_EVENT, self._pending_rows)
        self._pending_rows.clear()

    def get_record(self, session_id: str) -> SessionRecord | None:
        if session_id not in self._records:
            found = load_record(self._writer_connection, session_id)
            if found is None:
                return None
            self._records[session_id] = found
        return self._records[session_id][1]

    def put_record(self, record: SessionRecord) -> None:
        if self.get_record(record.session_id) is None:
            values = encode_record(record)
            places = ", ".join("?" * (len(values) + 1))
            cursor = self._writer_connection.execute(
                f"insert into session ({RECORD_COLUMNS}, crc) values ({places})",
                (*values, values_checksum(*values)),
            )
            number = int(cursor.lastrowid or 0)
            self.watermarks.reserve(number)
        else:
            number = self._records[record.session_id][0]
        self._records[record.session_id] = (number, record)
        self._dirty.add(record.session_id)

    def _write_record(self, name: str) -> None:
        number, head = self._records[name]
        head = head.replace(revision=head.revision + 1)
        self._records[name] = number, head
        values = encode_record(head)
        self._writer_connection.execute(UPDATE_RECORD, (*values, values_checksum(*values), number))
        self._update_listing(head)

    def _update_listing(self, record: SessionRecord) -> None:
        """Write where a session is in lists, unless it is still near there."""
        session_id, listed = record.session_id, self._listed_records.get(record.session_id)
        if listed is not None and record.is_listed_as(listed):
            return
        lists = listing_entries(record)
        before = dict(
            self._writer_connection.execute(
                "select list, active from listing where session = ?", (session_id,)
            )
        )
        gone = [(session_id, name) for name in before.keys() - lists.keys()]
        self._writer_connection.executemany("delete from listing where session = ? and list = ?", gone)
        moved = [(session_id, name, at) for name, at in lists.items() if before.get(name) != at]
        self._writer_connection.executemany("insert or replace into listing values (?, ?, ?)", moved)
        self._listed_records[session_id] = record

    def find(self, session_id: str, event_ids: Sequence[str]) -> dict[str, Row]:
        newest = self._load_max_event_id(session_id)
        older = [event_id for event_id in event_ids if event_id <= newest]  # ids rise with time: mostly none
        found = {event_id: self._find_row(session_id, event_id) for event_id in older}
        return {event_id: row for event_id, row in found.items() if row}

    def _find_row(self, session_id: str, event_id: str) -> Row | None:
        self._flush()
        query = f"select {EVENT_COLUMNS} from event where session = ? and id = ?"
        stored = self._writer_connection.execute(query, (self._records[session_id][0], event_id)).fetchone()
        if stored is None:
            return None
        rows, fault = RowVerifier(self._records[session_id][1], stored[0] - 1, None, []).verify([stored])
        if fault:
            raise fault
        return Row(*rows[0])

    def _load_max_event_id(self, session_id: str) -> str:
        """The largest event id of a session."""
        if session_id not in self._max_event_id:
            query = "select max(id) from event where session = ?"
            found = self._writer_connection.execute(query, (self._records[session_id][0],)).fetchone()[0]
            self._max_event_id[session_id] = (
                found if isinstance(found, str) else "" if found is None else HIGHEST_EVENT_ID
            )
        return self._max_event_id[session_id]

    def insert_rows(self, record: SessionRecord, rows: Sequence[NewRow], edges: Sequence[SpanEdge]) -> None:
        self.put_record(record)
        number = self._records[record.session_id][0]
        self._pending_rows += [
            (
                number,
                row.seq,
                event_id,
                ts,
                span,
                None if span else row.type,
                chain,
                row.checksum,
                row.meta,
                row.frame,
            )
            for row, event_id, ts, chain, span in rows
        ]
        newest = max([new.id for new in rows], default="")
        self._max_event_id[record.session_id] = max(self._load_max_event_id(record.session_id), newest)
        for mark in edges:
            self._put_span(number, mark)

    def _put_span(self, number: int, edge: SpanEdge) -> None:
        first, last, trace = edge.seq, None, edge.trace
        if not edge.is_start:
            query = "select first, trace from span where session = ? and key = ? and last is null"
            opened = self._writer_connection.execute(query, (number, edge.key)).fetchone()
            if opened is None:
                return  # what has ended stays so: the first end counts
            first, last, trace = opened[0], edge.seq, opened[1]
        values = (number, edge.key, trace, first, last, int(edge.is_agent))
        self._writer_connection.execute(INSERT_SPAN, (*values, values_checksum(*values)))

    def put_blob(self, name: str, blob: Blob) -> None:
        values = (name, blob.media_type, blob.data, values_checksum(name, blob.media_type))
        self._writer_connection.execute("insert or ignore into blob values (?, ?, ?, ?)", values)

    def put_document(self, document: Document) -> None:
        values = (*document, values_checksum(*document))
        self._writer_connection.execute("insert or replace into document values (?, ?, ?, ?, ?, ?)", values)

    def put_snapshot(self, session_id: str, name: str, seq: int, body: bytes) -> None:
        values = (session_id, name, seq, body)
        self._writer_connection.execute(
            "insert or replace into snapshot values (?, ?, ?, ?, ?)", (*values, values_checksum(*values))
        )

    def drop_snapshots(self, session_id: str, name: str, first: int, last: int) -> None:
        query = "delete from snapshot where session = ? and name = ? and seq between ? and ?"
        self._writer_connection.execute(query, (session_id, name, first, last))

    def delete_derived(self, session_id: str | None = None) -> None:
        where, values = ("", ()) if session_id is None else (" where session = ?", (session_id,))
        for table in ("document", "snapshot"):
            self._writer_connection.execute(f"delete from {table}{where}", values)
        if session_id is None:
            self._rebuild_listing()

    def _rebuild_listing(self) -> None:
        """Make the lists of sessions anew from their records."""
        self._writer_connection.execute("delete from listing")
        self._listed_records.clear()
        for _, head, crc in list(read_all_records(self._writer_connection)):
            if has_valid_record_checksum(head, crc):
                self._update_listing(head)

    def prune(self, session_id: str, before_ms: int) -> int:
        head = self.get_record(session_id)
        assert head is not None
        self._flush()
        number = self._records[session_id][0]
        condition = """session = ? and span is not null and ts < ? and exists (select 1 from span
            where span.session = event.session and span.key = event.span and span.last is not null)"""
        highest, count = self._writer_connection.execute(
            f"select max(seq), count(*) from event where {condition}", (number, before_ms)
        ).fetchone()
        if count:
            self._writer_connection.execute(f"delete from event where {condition}", (number, before_ms))
            self.put_record(head.replace(pruned_through=max(head.pruned_through, highest)))
        return int(count)

    def quarantine(self, damage: Damage) -> None:
        self._flush()
        if damage not in recorded_damage(self._writer_connection, damage.session_id):
            self._writer_connection.execute("insert into damage values (?, ?, ?, ?)", damage)
        elif damage.first >= 0:
            return  # others met it too
        found = load_record(self._writer_connection, damage.session_id, verify_checksum=False)
        if found is None:
            return
        number, head = found
        self._writer_connection.execute(
            "update event set id = 'LOST ' || seq where session = ? and seq between ? and ?",
            (number, damage.first, damage.last),
        )  # whoever sends it again is not refused
        query = """select seq, meta from event where session = ? and typeof(seq) = 'integer'
            order by seq desc limit 1"""
        seq, meta = self._writer_connection.execute(query, (number,)).fetchone() or (-1, None)
        last, rank = seq, parse_durable_count(meta) or 0
        if damage.first < 0:  # the record itself is lost: what is known comes from events and mark
            slot = self.watermarks.get(number)
            end = max(last, slot.last if slot else -1)
            head = SessionRecord(
                damage.session_id, "", str(head.app), last=end, pruned_through=end, durable_count=rank
            )
            for payload, actor, said_at in session_level_payloads(
                self._writer_connection, number, damage.session_id
            ):
                head = apply_to_record(head, payload, actor, said_at)
            # The event that ended an invite may be among what is lost: none comes back.
            head = head.replace(invites={})
        self._records[damage.session_id] = number, head
        end = max(head.last, damage.last, last)
        self.put_record(
            head.replace(epoch=new_epoch(), last=end, durable_count=max(head.durable_count, rank))
        )

    # reading

    def info(self, session_id: str) -> SessionRecord | None:
        with translate_errors():
            found = load_record(self._reader_connection(), session_id)
            return found[1] if found else None

    def sessions(self) -> list[SessionRecord]:
        with translate_errors():
            return [
                head
                for _, head, crc in read_all_records(self._reader_connection())
                if has_valid_record_checksum(head, crc)
            ]

    def listing(
        self, principal: str | None, after: ListPosition | None, limit: int
    ) -> list[tuple[ListPosition, SessionRecord]]:
        with translate_errors():
            return read_listing(self._reader_connection(), list_name(principal), after, limit)

    def invitations(self, principal: str, limit: int) -> list[SessionRecord]:
        with translate_errors():
            found = read_listing(self._reader_connection(), invitations_name(principal), None, limit)
            return [head for _, head in found]

    def damaged_sessions(self) -> list[str]:
        with translate_errors():
            names = [
                head.session_id
                for _, head, crc in read_all_records(self._reader_connection())
                if not has_valid_record_checksum(head, crc)
            ]
            return [name for name in names if has_session(self._reader_connection(), name)]

    def read(self, session_id: str, after: int, replay_from: int | None, limit_bytes: int) -> Page:
        reader = self._reader_connection()
        with translate_errors(), read_transaction(reader):
            found = load_record(reader, session_id)
            if found is None:
                return Page()
            number, head = found
            rank, lost = (
                durable_count_at(reader, number, session_id, after),
                recorded_damage(reader, session_id),
            )
            walk = RowVerifier(head, after, rank, lost, allow_skipped=replay_from is not None)
            with closing(
                select_event_rows(reader, number, after, replay_from)
            ) as cursor:  # an open one keeps its view
                return read_page(walk, cursor, limit_bytes)

    def read_types(self, session_id: str, type_query: TypeQuery) -> Page:
        reader = self._reader_connection()
        try:
            with translate_errors(), read_transaction(reader):
                found = load_record(reader, session_id)
                if found is None:
                    return Page()
                return read_typed_page(reader, *found, recorded_damage(reader, session_id), type_query)
        except StoreError as error:
            if not (isinstance(error.__cause__, sqlite3.Error) and is_damage_error(error.__cause__)):
                raise
        page = self.read(
            session_id, type_query.after, None, type_query.limit_bytes
        )  # the careful way, without index
        rows = [
            row
            for row in page
            if not row.live and any(type_matches(row.type, one) for one in type_query.types)
        ]
        return Page(rows, page.epoch, page.last if page else None)

    def read_frames(
        self, session_id: str, after: int, replay_from: int | None, limit_bytes: int
    ) -> FrameBatch | None:
        reader = self._reader_connection()
        with translate_errors(), read_transaction(reader):
            found = load_record(reader, session_id)
            if found and not (replay_from is not None and has_skippable_spans(reader, found[0], replay_from)):
                walk = RowVerifier(found[1], after, None, recorded_damage(reader, session_id))
                if ready := read_frame_batch(reader, walk, found[0], limit_bytes):
                    return ready
        page = self.read(
            session_id, after, replay_from, limit_bytes
        )  # the careful way, which says what is wrong
        return page.frames() if page else None

    def has_event(self, session_id: str, seq: int) -> bool:
        with translate_errors():
            query = f"select 1 from event where session = {SESSION_NUMBER} and seq = ?"
            return self._reader_connection().execute(query, (session_id, seq)).fetchone() is not None

    def oldest_open_turn_start(self, session_id: str, at: int) -> int:
        if at < 0:
            return 0
        with translate_errors(), read_transaction(self._reader_connection()):
            found = load_record(self._reader_connection(), session_id)
            spans = select_spans_around(self._reader_connection(), *found, at) if found else []
        if any(values_checksum(*span[:6]) != span[6] for span in spans):
            return 0  # the index is damaged: the whole session is a safe answer
        return oldest_open_turn_start([(span[2], span[3], span[4]) for span in spans], at)

    def turn_bounds(self, session_id: str, trace: str) -> tuple[int, int | None] | None:
        query = f"""select session, key, trace, first, last, agent, crc from span
            where session = {SESSION_NUMBER} and trace = ?"""
        with translate_errors():
            spans = self._reader_connection().execute(query, (session_id, trace)).fetchall()
        if any(values_checksum(*span[:6]) != span[6] for span in spans):
            return 0, None  # the index is damaged: the whole session, and nothing is known of its end
        return span_bounds([(span[3], span[4]) for span in spans if span[5]])

    def agent_starts(self, key: str) -> list[tuple[str, int]]:
        query = """select name, session, key, trace, span.first, span.last, agent, span.crc
            from span join session on session.id = span.session
            where key = ? and agent order by session desc limit ?"""
        with translate_errors():
            spans = self._reader_connection().execute(query, (key, MAX_SAME_AGENTS)).fetchall()
        return [(span[0], span[4]) for span in spans if values_checksum(*span[1:7]) == span[7]]

    def span_end(self, session_id: str, key: str) -> int | None:
        query = f"""select session, key, trace, first, last, agent, crc from span
            where session = {SESSION_NUMBER} and key = ?"""
        with translate_errors():
            span = self._reader_connection().execute(query, (session_id, key)).fetchone()
        return span[4] if span and values_checksum(*span[:6]) == span[6] else None

    def sessions_with_open_agents(self) -> list[str]:
        query = """select distinct name from session, span
            where span.session = session.id and span.agent and span.last is null order by session.id"""
        with translate_errors():
            return [row[0] for row in self._reader_connection().execute(query)]

    def blob(self, name: str) -> Blob | None:
        query = "select media_type, data, crc from blob where name = ?"
        with translate_errors():
            row = self._reader_connection().execute(query, (name,)).fetchone()
        if row is None:
            return None
        media_type, data, crc = row
        if not has_valid_blob_checksum(name, media_type, data, crc):
            raise StoreError(f"the blob {name[-16:]} is not what was written")
        return Blob(media_type, data)

    def blob_names(self, session_id: str) -> list[str]:
        query = "select name from blob where name >= ? and name < ? order by name"
        with translate_errors():  # "0" follows "/": no id of a session has either
            rows = self._reader_connection().execute(query, (f"{session_id}/", f"{session_id}0")).fetchall()
        return [row[0] for row in rows]

    def documents(self, session_id: str | None, type: str | None, category: str | None) -> list[Document]:
        wanted = {"session": session_id, "type": type, "category": category}
        conditions = [f"{column} = ?" for column, value in wanted.items() if value is not None]
        where = f"where {' and '.join(conditions)}" if conditions else ""
        values = [value for value in wanted.values() if value is not None]
        with translate_errors():
            query = f"select * from document {where} order by session, id"
            rows = self._reader_connection().execute(query, values).fetchall()
        if any(values_checksum(*row[:-1]) != row[-1] for row in rows):
            raise StoreError("a document is not what was written; documents can be made again from the log")
        return [Document(*row[:-1]) for row in rows]

    def snapshot(self, session_id: str, name: str, at: int) -> tuple[int, bytes] | None:
        query = "select * from snapshot where session = ? and name = ? and seq <= ? order by seq desc"
        with translate_errors():
            for *values, crc in self._reader_connection().execute(query, (session_id, name, at)):
                if values_checksum(*values) == crc:  # a damaged one counts for nothing: an older one will do
                    return values[2], values[3]
        return None

    def damages(self) -> list[Damage]:
        with translate_errors():
            return recorded_damage(self._reader_connection())

    def commit_count(self) -> int:
        if self.watermarks.is_usable:
            return self.watermarks.commit_count
        with translate_errors():  # always the same connection: each counts for itself
            version: int = self._writer_connection.execute("pragma data_version").fetchone()[0]
            return version

    def verify(self) -> Iterator[Damage]:
        reader = self._reader_connection()
        if self._has_no_watermarks:
            problem = (
                f"there is no {self._path.name}.mark beside it, as when a log is copied without its files"
            )
            yield Damage("", -1, -1, f"{problem}: a lost end cannot be noticed")
        if self.watermarks.is_damaged:
            yield Damage("", -1, -1, "the mark beside the log is damaged: a lost end cannot be noticed")
        try:
            marks = dict(self.watermarks.watermarks())
            with read_transaction(
                reader
            ):  # later than the marks: a session may have grown since, never shrunk
                yield from check.verify_all(reader, marks)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            yield Damage("", -1, -1, f"SQLite: {error}")


@contextmanager
def translate_errors() -> Iterator[None]:
    """Errors of SQLite and of the file system, as errors of the store."""
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # the last: a definition that is damaged
        raise StoreError(f"the log cannot be used: {error}") from error


@contextmanager
def read_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Several reads of one state of the file."""
    connection.execute("begin")
    try:
        yield
    finally:
        connection.execute("rollback")
