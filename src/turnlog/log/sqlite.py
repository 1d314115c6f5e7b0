"""Sessions in one SQLite file: WAL, synchronous FULL, one writing process, any number of reading ones.

Rows hold finished frames, so replay reads and sends bytes. Spans (blocks, calls, agents) are indexed beside
the events, in the same transaction: replay uses them to leave out live events, recovery to find what is
open. Every row has a checksum; nothing is handed out that does not match it. A loss is recorded, and the
session gets a new epoch.
"""

import logging
import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from turnlog.errors import Damaged, StoreError
from turnlog.ids import new_epoch
from turnlog.log import check
from turnlog.log.append import told
from turnlog.log.choice import is_a
from turnlog.log.files import WriterLock, reading_mode
from turnlog.log.integrity import Walk, rank_of, values_checksum
from turnlog.log.mark import GROW_SLOTS, Mark, Slot
from turnlog.log.store import (
    MAX_SAME_AGENTS,
    Blob,
    Damage,
    Document,
    Head,
    NewRow,
    Page,
    Place,
    Ready,
    Row,
    Sight,
    SpanMark,
    Typed,
    extent,
    oldest_open,
    unseen,
)
from turnlog.log.tables import (
    COLUMNS,
    HEAD,
    HEAD_UPDATE,
    INSERT_EVENT,
    INSERT_SPAN,
    NUMBER,
    SCHEMA,
    SCHEMA_VERSION,
    active_in_lists,
    all_heads,
    head_values,
    intact,
    invitations_name,
    is_damage,
    is_there,
    is_whole,
    is_whole_blob,
    known_losses,
    leaves_out,
    list_name,
    listed_heads,
    numbered_head,
    page,
    rank_at,
    ready_rows,
    sayings,
    spans_around,
    stored_rows,
    typed_page,
)

log = logging.getLogger("turnlog.log")

SESSIONS = 10_000  # so many sessions the writer knows by heart
LAST_ID = "\U0010ffff"  # no id is larger: all of them are looked up
# Ids of `ids.new_id` begin with a time, whose first digit is 0 until the year 2527. Derived ids are hashes: a
# large one would hide that all timed ids after it are new, so they are not compared with each other.
TIMED_ID = re.compile("evt_0.{7}-.{4}-7", re.DOTALL).match
MAX_TIMED_ID = "select max(id) from event where session = ? and id glob 'evt_0???????-????-7*'"


class SqliteStore:
    """The store behind `sqlite:///path`. Without `writable` it only reads, beside the process that writes."""

    group = 512  # what shares an fsync: bounds how long the first one waits
    readers = 2

    def __init__(self, path: Path, *, writable: bool = True) -> None:
        self.last_sight: Sight = unseen
        path = path.resolve()  # by whatever name it is opened, its lock and its mark are the same
        self._path = path
        self._writable = writable
        self._lock: WriterLock | None = None
        self._mode = "mode=rw"  # the lock makes the file, for its owner alone
        if writable:
            with reported():
                path.parent.mkdir(parents=True, exist_ok=True)
                self._lock = WriterLock(path)
        elif not path.exists():
            raise StoreError(f"there is no log at {path}")
        else:
            self._mode = reading_mode(path)
        self._connections: list[sqlite3.Connection] = []
        self._local = threading.local()
        self._heads: dict[str, tuple[int, Head]] = {}
        self._newest: dict[str, str] = {}
        self._listed: dict[str, Head] = {}  # as they are in `listing`
        self._moved: set[str] = set()
        self._pending: list[tuple[object, ...]] = []
        try:
            with reported():
                self._open()
        except StoreError:
            self.close()
            raise

    def _open(self) -> None:
        self._writer = self._connect()
        version = self._writer.execute("pragma user_version").fetchone()[0]
        if version not in (0, SCHEMA_VERSION):
            other = "a newer" if version > SCHEMA_VERSION else "an older"
            raise StoreError(f"{self._path.name} was written by {other} Turnlog (schema {version})")
        if version == 0 and self._writable:
            self._writer.executescript(f"begin; {SCHEMA} pragma user_version = {SCHEMA_VERSION}; commit;")
        check.definitions(self._writer)
        path = self._path.with_name(self._path.name + ".mark")
        self.mark = Mark(path, writable=self._writable, sessions=self._sessions() if self._writable else 0)
        self._unmarked = self.mark.missing and version > 0
        if self._unmarked:
            log.error("%s is missing: a lost end of the log cannot be noticed this time", path.name)
        if self.mark.damaged:
            log.error("%s is damaged: a lost end of the log cannot be noticed this time", path.name)
        if self._writable:
            for damage in check.tails(self._writer, self.mark):
                log.error("%s", Damaged(*damage))
                self._record(damage)

    def _sessions(self) -> int:
        """The highest number of a session; one far beyond their count is a damaged one."""
        count, highest = self._writer.execute("select count(*), ifnull(max(id), 0) from session").fetchone()
        return min(int(highest), int(count) + GROW_SLOTS)

    def _record(self, damage: Damage) -> None:
        """Quarantine what was found at opening; where even that cannot be written, the others go on."""
        try:
            with self.transaction():
                self.quarantine(damage)
        except StoreError as error:
            if not (isinstance(error.__cause__, sqlite3.Error) and is_damage(error.__cause__)):
                raise

    def _connect(self) -> sqlite3.Connection:
        uri = f"file:{quote(str(self._path.absolute()))}?{self._mode}"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        self._connections.append(connection)
        if self._writable:
            connection.execute("pragma page_size = 8192")
            connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        connection.execute("pragma wal_autocheckpoint = 2000")  # 16 MB: what grows is copied less often
        connection.text_factory = lambda text: text.decode(errors="replace")  # damage is told by checksums
        connection.create_function("intact", 7, intact, deterministic=True)
        return connection

    def _reader(self) -> sqlite3.Connection:
        if not hasattr(self._local, "connection"):
            self._local.connection = self._connect()
        connection: sqlite3.Connection = self._local.connection
        return connection

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        if hasattr(self, "mark"):
            self.mark.close()
        if self._lock is not None:
            self._lock.close()

    # writing

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._moved.clear()
        self._pending.clear()
        done = False
        try:
            with reported():
                self._writer.execute("begin immediate")
                if self._lock is not None:
                    self._lock.check()  # not before: another process that writes waits for this one now
                yield
                self._flush()
                for name in self._moved:
                    self._write_head(name)
                self._writer.execute("commit")
                done = True
        finally:
            if not done:
                self._forget()
                if self._writer.in_transaction:
                    with suppress(sqlite3.Error):
                        self._writer.execute("rollback")
        moved = [self._heads[name] for name in self._moved]
        self.mark.set({number: Slot(head.last, head.revision, head.session_id) for number, head in moved})
        if len(self._heads) > SESSIONS:
            self._forget()

    def _forget(self) -> None:
        """Let go of what is known of the sessions: it can be read again."""
        self._heads.clear()
        self._newest.clear()
        self._listed.clear()

    def _flush(self) -> None:
        """Insert what was put, in one go."""
        if self._pending:
            self._writer.executemany(INSERT_EVENT, self._pending)
            self._pending.clear()

    def head(self, session_id: str) -> Head | None:
        if session_id not in self._heads:
            found = numbered_head(self._writer, session_id)
            if found is None:
                return None
            self._heads[session_id] = found
        return self._heads[session_id][1]

    def put_head(self, head: Head) -> None:
        if self.head(head.session_id) is None:
            values = head_values(head)
            places = ", ".join("?" * (len(values) + 1))
            cursor = self._writer.execute(
                f"insert into session ({HEAD}, crc) values ({places})", (*values, values_checksum(*values))
            )
            number = int(cursor.lastrowid or 0)
            self.mark.reserve(number)
        else:
            number = self._heads[head.session_id][0]
        self._heads[head.session_id] = (number, head)
        self._moved.add(head.session_id)

    def _write_head(self, name: str) -> None:
        number, head = self._heads[name]
        head = head.moved(revision=head.revision + 1)
        self._heads[name] = number, head
        values = head_values(head)
        self._writer.execute(HEAD_UPDATE, (*values, values_checksum(*values), number))
        self._list(head)

    def _list(self, head: Head) -> None:
        """Write where a session is in lists, unless it is still near there."""
        session_id, listed = head.session_id, self._listed.get(head.session_id)
        if listed is not None and head.is_listed_as(listed):
            return
        lists = active_in_lists(head)
        before = dict(
            self._writer.execute("select list, active from listing where session = ?", (session_id,))
        )
        gone = [(session_id, name) for name in before.keys() - lists.keys()]
        self._writer.executemany("delete from listing where session = ? and list = ?", gone)
        moved = [(session_id, name, at) for name, at in lists.items() if before.get(name) != at]
        self._writer.executemany("insert or replace into listing values (?, ?, ?)", moved)
        self._listed[session_id] = head

    def find(self, session_id: str, event_ids: Sequence[str]) -> dict[str, Row]:
        newest = self._newest_id(session_id)
        # Ids rise with time: mostly none is looked up.
        older = [event_id for event_id in event_ids if event_id <= newest or not TIMED_ID(event_id)]
        found = {event_id: self._find(session_id, event_id) for event_id in older}
        return {event_id: row for event_id, row in found.items() if row}

    def _find(self, session_id: str, event_id: str) -> Row | None:
        self._flush()
        query = f"select {COLUMNS} from event where session = ? and id = ?"
        stored = self._writer.execute(query, (self._heads[session_id][0], event_id)).fetchone()
        if stored is None:
            return None
        rows, fault = Walk(self._heads[session_id][1], stored[0] - 1, None, []).take([stored])
        if fault:
            raise fault
        return Row(*rows[0])

    def _newest_id(self, session_id: str) -> str:
        """The largest event id of a session that has a time."""
        if session_id not in self._newest:
            found = self._writer.execute(MAX_TIMED_ID, (self._heads[session_id][0],)).fetchone()[0]
            self._newest[session_id] = found if isinstance(found, str) else "" if found is None else LAST_ID
        return self._newest[session_id]

    def put(self, head: Head, rows: Sequence[NewRow], marks: Sequence[SpanMark]) -> None:
        self.put_head(head)
        number = self._heads[head.session_id][0]
        self._pending += [
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
        newest = max([new.id for new in rows if TIMED_ID(new.id)], default="")
        self._newest[head.session_id] = max(self._newest_id(head.session_id), newest)
        for mark in marks:
            self._put_span(number, mark)

    def _put_span(self, number: int, mark: SpanMark) -> None:
        first, last, trace = mark.seq, None, mark.trace
        if not mark.opens:
            query = "select first, trace from span where session = ? and key = ? and last is null"
            opened = self._writer.execute(query, (number, mark.key)).fetchone()
            if opened is None:
                return  # what has ended stays so: the first end counts
            first, last, trace = opened[0], mark.seq, opened[1]
        values = (number, mark.key, trace, first, last, int(mark.agent))
        self._writer.execute(INSERT_SPAN, (*values, values_checksum(*values)))

    def put_blob(self, name: str, blob: Blob) -> None:
        values = (name, blob.media_type, blob.data, values_checksum(name, blob.media_type))
        self._writer.execute("insert or ignore into blob values (?, ?, ?, ?)", values)

    def put_document(self, document: Document) -> None:
        values = (*document, values_checksum(*document))
        self._writer.execute("insert or replace into document values (?, ?, ?, ?, ?, ?)", values)

    def put_snapshot(self, session_id: str, name: str, seq: int, body: bytes) -> None:
        values = (session_id, name, seq, body)
        self._writer.execute(
            "insert or replace into snapshot values (?, ?, ?, ?, ?)", (*values, values_checksum(*values))
        )

    def drop_snapshots(self, session_id: str, name: str, first: int, last: int) -> None:
        query = "delete from snapshot where session = ? and name = ? and seq between ? and ?"
        self._writer.execute(query, (session_id, name, first, last))

    def forget_derived(self, session_id: str | None = None) -> None:
        where, values = ("", ()) if session_id is None else (" where session = ?", (session_id,))
        for table in ("document", "snapshot"):
            self._writer.execute(f"delete from {table}{where}", values)
        if session_id is None:
            self._list_again()

    def _list_again(self) -> None:
        """Make the lists of sessions anew from their records."""
        self._writer.execute("delete from listing")
        self._listed.clear()
        for _, head, crc in list(all_heads(self._writer)):
            if is_whole(head, crc):
                self._list(head)

    def prune(self, session_id: str, before_ms: int) -> int:
        head = self.head(session_id)
        assert head is not None
        self._flush()
        number = self._heads[session_id][0]
        condition = """session = ? and span is not null and ts < ? and exists (select 1 from span
            where span.session = event.session and span.key = event.span and span.last is not null)"""
        highest, count = self._writer.execute(
            f"select max(seq), count(*) from event where {condition}", (number, before_ms)
        ).fetchone()
        if count:
            self._writer.execute(f"delete from event where {condition}", (number, before_ms))
            self.put_head(head.moved(pruned=max(head.pruned, highest)))
        return int(count)

    def quarantine(self, damage: Damage) -> None:
        self._flush()
        if damage not in known_losses(self._writer, damage.session_id):
            self._writer.execute("insert into damage values (?, ?, ?, ?)", damage)
        elif damage.first >= 0:
            return  # others met it too
        found = numbered_head(self._writer, damage.session_id, checked=False)
        if found is None:
            return
        number, head = found
        self._writer.execute(
            "update event set id = 'LOST ' || seq where session = ? and seq between ? and ?",
            (number, damage.first, damage.last),
        )  # whoever sends it again is not refused
        query = """select seq, meta from event where session = ? and typeof(seq) = 'integer'
            order by seq desc limit 1"""
        seq, meta = self._writer.execute(query, (number,)).fetchone() or (-1, None)
        last, rank = seq, rank_of(meta) or 0
        if damage.first < 0:  # the record itself is lost: what is known comes from events and mark
            slot = self.mark.get(number)
            end = max(last, slot.last if slot else -1)
            head = Head(damage.session_id, "", str(head.app), last=end, pruned=end, rank=rank)
            for payload, actor, said_at in sayings(self._writer, number, damage.session_id):
                head = told(head, payload, actor, said_at)
            # The event that ended an invite may be among what is lost: none comes back.
            head = head.moved(invites={})
        self._heads[damage.session_id] = number, head
        end = max(head.last, damage.last, last)
        self.put_head(head.moved(epoch=new_epoch(), last=end, rank=max(head.rank, rank)))

    # reading

    def info(self, session_id: str) -> Head | None:
        with reported():
            found = numbered_head(self._reader(), session_id)
            return found[1] if found else None

    def sessions(self) -> list[Head]:
        with reported():
            return [head for _, head, crc in all_heads(self._reader()) if is_whole(head, crc)]

    def listing(self, principal: str | None, after: Place | None, limit: int) -> list[tuple[Place, Head]]:
        with reported():
            return listed_heads(self._reader(), list_name(principal), after, limit)

    def invitations(self, principal: str, limit: int) -> list[Head]:
        with reported():
            found = listed_heads(self._reader(), invitations_name(principal), None, limit)
            return [head for _, head in found]

    def broken(self) -> list[str]:
        with reported():
            names = [head.session_id for _, head, crc in all_heads(self._reader()) if not is_whole(head, crc)]
            return [name for name in names if is_there(self._reader(), name)]

    def read(self, session_id: str, after: int, origin: int | None, limit_bytes: int) -> Page:
        reader = self._reader()
        with reported(), snapshot(reader):
            found = numbered_head(reader, session_id)
            if found is None:
                return Page()
            number, head = found
            rank, lost = rank_at(reader, number, session_id, after), known_losses(reader, session_id)
            walk = Walk(head, after, rank, lost, leaves_out=origin is not None)
            with closing(stored_rows(reader, number, after, origin)) as cursor:  # an open one keeps its view
                return page(walk, cursor, limit_bytes)

    def read_types(self, session_id: str, asked: Typed) -> Page:
        reader = self._reader()
        try:
            with reported(), snapshot(reader):
                found = numbered_head(reader, session_id)
                if found is None:
                    return Page()
                return typed_page(reader, *found, known_losses(reader, session_id), asked)
        except StoreError as error:
            if not (isinstance(error.__cause__, sqlite3.Error) and is_damage(error.__cause__)):
                raise
        page = self.read(session_id, asked.after, None, asked.limit_bytes)  # the careful way, without index
        rows = [row for row in page if not row.live and any(is_a(row.type, one) for one in asked.types)]
        return Page(rows, page.epoch, page.last if page else None)

    def ready(self, session_id: str, after: int, origin: int | None, limit_bytes: int) -> Ready | None:
        reader = self._reader()
        with reported(), snapshot(reader):
            found = numbered_head(reader, session_id)
            if found and not (origin is not None and leaves_out(reader, found[0], origin)):
                walk = Walk(found[1], after, None, known_losses(reader, session_id))
                if ready := ready_rows(reader, walk, found[0], limit_bytes):
                    return ready
        page = self.read(session_id, after, origin, limit_bytes)  # the careful way, which says what is wrong
        return page.ready() if page else None

    def holds(self, session_id: str, seq: int) -> bool:
        with reported():
            query = f"select 1 from event where session = {NUMBER} and seq = ?"
            return self._reader().execute(query, (session_id, seq)).fetchone() is not None

    def turn_start(self, session_id: str, at: int) -> int:
        if at < 0:
            return 0
        with reported(), snapshot(self._reader()):
            found = numbered_head(self._reader(), session_id)
            spans = spans_around(self._reader(), *found, at) if found else []
        if any(values_checksum(*span[:6]) != span[6] for span in spans):
            return 0  # the index is damaged: the whole session is a safe answer
        return oldest_open([(span[2], span[3], span[4]) for span in spans], at)

    def turn(self, session_id: str, trace: str) -> tuple[int, int | None] | None:
        query = f"""select session, key, trace, first, last, agent, crc from span
            where session = {NUMBER} and trace = ?"""
        with reported():
            spans = self._reader().execute(query, (session_id, trace)).fetchall()
        if any(values_checksum(*span[:6]) != span[6] for span in spans):
            return 0, None  # the index is damaged: the whole session, and nothing is known of its end
        return extent([(span[3], span[4]) for span in spans if span[5]])

    def agent_starts(self, key: str) -> list[tuple[str, int]]:
        query = """select name, session, key, trace, span.first, span.last, agent, span.crc
            from span join session on session.id = span.session
            where key = ? and agent order by session desc limit ?"""
        with reported():
            spans = self._reader().execute(query, (key, MAX_SAME_AGENTS)).fetchall()
        return [(span[0], span[4]) for span in spans if values_checksum(*span[1:7]) == span[7]]

    def span_end(self, session_id: str, key: str) -> int | None:
        query = f"""select session, key, trace, first, last, agent, crc from span
            where session = {NUMBER} and key = ?"""
        with reported():
            span = self._reader().execute(query, (session_id, key)).fetchone()
        return span[4] if span and values_checksum(*span[:6]) == span[6] else None

    def unfinished(self) -> list[str]:
        query = """select distinct name from session, span
            where span.session = session.id and span.agent and span.last is null order by session.id"""
        with reported():
            return [row[0] for row in self._reader().execute(query)]

    def blob(self, name: str) -> Blob | None:
        query = "select media_type, data, crc from blob where name = ?"
        with reported():
            row = self._reader().execute(query, (name,)).fetchone()
        if row is None:
            return None
        media_type, data, crc = row
        if not is_whole_blob(name, media_type, data, crc):
            raise StoreError(f"the blob {name[-16:]} is not what was written")
        return Blob(media_type, data)

    def blob_names(self, session_id: str) -> list[str]:
        query = "select name from blob where name >= ? and name < ? order by name"
        with reported():  # "0" follows "/": no id of a session has either
            rows = self._reader().execute(query, (f"{session_id}/", f"{session_id}0")).fetchall()
        return [row[0] for row in rows]

    def documents(self, session_id: str | None, type: str | None, category: str | None) -> list[Document]:
        wanted = {"session": session_id, "type": type, "category": category}
        conditions = [f"{column} = ?" for column, value in wanted.items() if value is not None]
        where = f"where {' and '.join(conditions)}" if conditions else ""
        values = [value for value in wanted.values() if value is not None]
        with reported():
            query = f"select * from document {where} order by session, id"
            rows = self._reader().execute(query, values).fetchall()
        if any(values_checksum(*row[:-1]) != row[-1] for row in rows):
            raise StoreError("a document is not what was written; documents can be made again from the log")
        return [Document(*row[:-1]) for row in rows]

    def snapshot(self, session_id: str, name: str, at: int) -> tuple[int, bytes] | None:
        query = "select * from snapshot where session = ? and name = ? and seq <= ? order by seq desc"
        with reported():
            for *values, crc in self._reader().execute(query, (session_id, name, at)):
                if values_checksum(*values) == crc:  # a damaged one counts for nothing: an older one will do
                    return values[2], values[3]
        return None

    def damages(self) -> list[Damage]:
        with reported():
            return known_losses(self._reader())

    def counter(self) -> int:
        if self.mark.usable:
            return self.mark.counter
        with reported():  # always the same connection: each counts for itself
            version: int = self._writer.execute("pragma data_version").fetchone()[0]
            return version

    def verify(self) -> Iterator[Damage]:
        reader = self._reader()
        if self._unmarked:
            problem = (
                f"there is no {self._path.name}.mark beside it, as when a log is copied without its files"
            )
            yield Damage("", -1, -1, f"{problem}: a lost end cannot be noticed")
        if self.mark.damaged:
            yield Damage("", -1, -1, "the mark beside the log is damaged: a lost end cannot be noticed")
        try:
            marks = dict(self.mark.slots())
            with snapshot(reader):  # later than the marks: a session may have grown since, never shrunk
                yield from check.everything(reader, marks)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            yield Damage("", -1, -1, f"SQLite: {error}")


@contextmanager
def reported() -> Iterator[None]:
    """Errors of SQLite and of the file system, as errors of the store."""
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # the last: a definition that is damaged
        raise StoreError(f"the log cannot be used: {error}") from error


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Several reads of one state of the file."""
    connection.execute("begin")
    try:
        yield
    finally:
        connection.execute("rollback")
