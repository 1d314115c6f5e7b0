"""Sessions in one SQLite file: WAL, synchronous FULL, one writing process, any number of reading ones.

Rows hold finished frames, so replay reads and sends bytes. Spans (blocks, calls, agents) are indexed beside
the events, in the same transaction: replay uses them to leave out live events, recovery to find what is
open. Every row has a checksum; nothing is handed out that does not match it. A loss is recorded, and the
session gets a new epoch.
"""

import fcntl
import logging
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO
from urllib.parse import quote

from turnlog.errors import InvalidEvent, StoreError
from turnlog.events import CATALOG, decode
from turnlog.ids import new_epoch
from turnlog.log.integrity import Walk, broken_links, rank_of, row_checksum, seed, values_checksum
from turnlog.log.mark import Mark, Slot
from turnlog.log.store import Blob, Damage, Document, Head, NewRow, Row, SpanMark, line_of, span_of
from turnlog.log.tables import (
    BAD_INDEX,
    BAD_RECORD,
    HEAD,
    INSERT_EVENT,
    INSERT_SPAN,
    MIGRATIONS,
    NUMBER,
    PAGE_ROWS,
    all_heads,
    head_values,
    intact,
    is_whole,
    numbered_head,
    page,
    rank_at,
    stored_rows,
)

log = logging.getLogger("turnlog.log")

TAILS = 200  # sessions whose last event is checked at opening: bounded, however many there are


class SqliteStore:
    """The store behind `sqlite:///path`. Without `writable` it only reads, beside the process that writes."""

    group = 512  # what shares an fsync: bounds how long the first one waits

    def __init__(self, path: Path, *, writable: bool = True) -> None:
        self._path = path
        self._writable = writable
        self._lock: IO[str] | None = None
        if writable:
            with reported():
                path.parent.mkdir(parents=True, exist_ok=True)
                self._lock = lock(path)
        elif not path.exists():
            raise StoreError(f"there is no log at {path.name}")
        self._connections: list[sqlite3.Connection] = []
        self._local = threading.local()
        self._heads: dict[str, tuple[int, Head]] = {}
        self._moved: set[str] = set()
        try:
            with reported():
                self._open()
        except StoreError:
            self.close()
            raise

    def _open(self) -> None:
        self._writer = self._connect()
        version = self._writer.execute("pragma user_version").fetchone()[0]
        if version > len(MIGRATIONS):
            raise StoreError(f"{self._path.name} was written by a newer Turnlog (schema {version})")
        for number in range(version, len(MIGRATIONS) if self._writable else version):
            self._writer.executescript(
                f"begin; {MIGRATIONS[number]} pragma user_version = {number + 1}; commit;"
            )
        sessions = self._writer.execute("select max(id) from session").fetchone()[0] or 0
        path = self._path.with_name(self._path.name + ".mark")
        self.mark = Mark(path, writable=self._writable, sessions=sessions)
        if self.mark.damaged:
            log.error("%s is damaged: a lost end of the log cannot be noticed this time", path.name)
        if self._writable:
            for damage in self._check_tails():
                log.error(
                    "%s: %s (seq %d to %d)", damage.session_id, damage.problem, damage.first, damage.last
                )
                with self.transaction():
                    self.quarantine(damage)

    def _connect(self) -> sqlite3.Connection:
        mode = "rwc" if self._writable else "ro"
        uri = f"file:{quote(str(self._path.absolute()))}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        self._connections.append(connection)
        if self._writable:
            connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
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
        done = False
        try:
            with reported():
                self._writer.execute("begin immediate")
                yield
                for name in self._moved:
                    self._write_head(name)
                self._writer.execute("commit")
                done = True
        finally:
            if not done:
                self._heads.clear()
                if self._writer.in_transaction:
                    with suppress(sqlite3.Error):
                        self._writer.execute("rollback")
        moved = [self._heads[name] for name in self._moved]
        self.mark.set({number: Slot(head.last, head.revision, head.session_id) for number, head in moved})
        if len(self._heads) > 10_000:
            self._heads.clear()

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
        columns = ", ".join(f"{column.strip()} = ?" for column in HEAD.split(","))
        self._writer.execute(
            f"update session set {columns}, crc = ? where id = ?", (*values, values_checksum(*values), number)
        )

    def find(self, session_id: str, event_id: str) -> Row | None:
        query = "select seq, meta, frame, crc from event where session = ? and id = ?"
        stored = self._writer.execute(query, (self._heads[session_id][0], event_id)).fetchone()
        if stored is None:
            return None
        rows, fault = Walk(self._heads[session_id][1], stored[0] - 1, None, []).take([stored])
        if fault:
            raise fault
        return rows[0]

    def put(self, head: Head, rows: Sequence[NewRow], marks: Sequence[SpanMark]) -> None:
        self.put_head(head)
        number, start = self._heads[head.session_id][0], seed(head.session_id)
        self._writer.executemany(
            INSERT_EVENT,
            [
                (number, row.seq, event_id, ts, span, chain, row_checksum(start, row), row.meta, row.frame)
                for row, event_id, ts, chain, span in rows
            ],
        )
        for mark in marks:
            self._put_span(number, mark)

    def _put_span(self, number: int, mark: SpanMark) -> None:
        first, last, trace = mark.seq, None, mark.trace
        if not mark.opens:
            query = "select first, trace from span where session = ? and key = ?"
            opened = self._writer.execute(query, (number, mark.key)).fetchone()
            if opened is None:
                return
            first, last, trace = opened[0], mark.seq, opened[1]
        values = (number, mark.key, trace, first, last, int(mark.agent))
        self._writer.execute(INSERT_SPAN, (*values, values_checksum(*values)))

    def put_blob(self, digest: str, blob: Blob) -> None:
        self._writer.execute("insert or ignore into blob values (?, ?, ?)", (digest, *blob))

    def put_document(self, document: Document) -> None:
        self._writer.execute("insert or replace into document values (?, ?, ?, ?, ?)", document)

    def put_snapshot(self, session_id: str, name: str, seq: int, body: bytes) -> None:
        self._writer.execute(
            "insert or replace into snapshot values (?, ?, ?, ?)", (session_id, name, seq, body)
        )

    def forget_derived(self) -> None:
        self._writer.execute("delete from document")
        self._writer.execute("delete from snapshot")

    def prune(self, session_id: str, before_ms: int) -> int:
        head = self.head(session_id)
        assert head is not None
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
        if damage not in self._known(self._writer, damage.session_id):
            self._writer.execute("insert into damage values (?, ?, ?, ?)", damage)
        elif damage.first >= 0:
            return  # others met it too
        found = numbered_head(self._writer, damage.session_id, checked=False)
        if found is None:
            return
        number, head = found
        self._writer.execute(
            "update event set id = 'lost ' || seq where session = ? and seq between ? and ?",
            (number, damage.first, damage.last),
        )  # whoever sends it again is not refused
        query = "select seq, meta, frame from event where session = ? order by seq desc limit 1"
        row = self._writer.execute(query, (number,)).fetchone()
        last = (
            Row(*row) if row and rank_of(row[1]) is not None else Row(row[0] if row else -1, b"0|0|0||", b"")
        )
        if damage.first < 0:  # the record itself is lost: what is known comes from events and mark
            slot = self.mark.get(number)
            end = max(last.seq, slot.last if slot else -1)
            head = Head(damage.session_id, "", str(head.app), last=end, pruned=end, rank=last.rank)
        self._heads[damage.session_id] = number, head
        end, rank = max(head.last, damage.last, last.seq), max(head.rank, last.rank)
        self.put_head(head.moved(epoch=new_epoch(), last=end, rank=rank))

    # reading

    def info(self, session_id: str) -> Head | None:
        with reported():
            found = numbered_head(self._reader(), session_id)
            return found[1] if found else None

    def sessions(self) -> list[Head]:
        with reported():
            return [head for _, head, crc in all_heads(self._reader()) if is_whole(head, crc)]

    def broken(self) -> list[str]:
        with reported():
            names = [head.session_id for _, head, crc in all_heads(self._reader()) if not is_whole(head, crc)]
            return [name for name in names if numbered_head(self._reader(), name, checked=False)]

    def read(self, session_id: str, after: int, origin: int | None, limit_bytes: int) -> list[Row]:
        reader = self._reader()
        with reported(), snapshot(reader):
            found = numbered_head(reader, session_id)
            if found is None:
                return []
            number, head = found
            walk = Walk(head, after, rank_at(reader, number, after), self._known(reader, session_id))
            return page(walk, stored_rows(reader, number, after, origin), limit_bytes)

    def holds(self, session_id: str, seq: int) -> bool:
        with reported():
            query = f"select 1 from event where session = {NUMBER} and seq = ?"
            return self._reader().execute(query, (session_id, seq)).fetchone() is not None

    def turn_start(self, session_id: str, at: int) -> int:
        query = f"select session, key, trace, first, last, agent, crc from span where session = {NUMBER}"
        with reported():
            spans = self._reader().execute(query, (session_id,)).fetchall()
        if any(values_checksum(*span[:6]) != span[6] for span in spans):
            return 0  # the index is damaged: the whole session is a safe answer
        traces = {span[2] for span in spans if span[3] <= at and (span[4] is None or span[4] > at)}
        return min([int(span[3]) for span in spans if span[2] in traces] + [at + 1])

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

    def blob(self, digest: str) -> Blob | None:
        with reported():
            row = (
                self._reader()
                .execute("select media_type, data from blob where digest = ?", (digest,))
                .fetchone()
            )
        if row is None:
            return None
        if sha256(row[1]).hexdigest() != digest:
            raise StoreError(f"the blob {digest[:16]} is not what was written")
        return Blob(*row)

    def documents(self, session_id: str | None, type: str | None, category: str | None) -> list[Document]:
        wanted = {"session": session_id, "type": type, "category": category}
        conditions = [f"{column} = ?" for column, value in wanted.items() if value is not None]
        where = f"where {' and '.join(conditions)}" if conditions else ""
        values = [value for value in wanted.values() if value is not None]
        with reported():
            rows = self._reader().execute(f"select * from document {where} order by session, id", values)
            return [Document(*row) for row in rows]

    def snapshot(self, session_id: str, name: str, at: int) -> tuple[int, bytes] | None:
        query = """select seq, body from snapshot where session = ? and name = ? and seq <= ?
            order by seq desc limit 1"""
        with reported():
            row = self._reader().execute(query, (session_id, name, at)).fetchone()
            return (row[0], row[1]) if row else None

    def damages(self) -> list[Damage]:
        with reported():
            return [Damage(*row) for row in self._reader().execute("select * from damage order by rowid")]

    def _known(self, reader: sqlite3.Connection, session_id: str) -> list[Damage]:
        rows = reader.execute("select * from damage where session = ?", (session_id,))
        return [Damage(*row) for row in rows]

    def counter(self) -> int:
        if self.mark.usable:
            return self.mark.counter
        with reported():
            version: int = self._reader().execute("pragma data_version").fetchone()[0]
            return version

    # checking

    def verify(self) -> Iterator[Damage]:
        reader = self._reader()
        if self.mark.damaged:
            yield Damage("", -1, -1, "the mark beside the log is damaged: a lost end cannot be noticed")
        try:
            marks = {number: self.mark.get(number) for number, _, _ in all_heads(reader)}
            with snapshot(reader):  # later than the marks: a session may have grown since, never shrunk
                yield from self._verify_file(reader, marks)
        except sqlite3.Error as error:
            yield Damage("", -1, -1, f"SQLite: {error}")

    def _verify_file(self, reader: sqlite3.Connection, marks: dict[int, Slot | None]) -> Iterator[Damage]:
        for (line,) in reader.execute("pragma integrity_check"):
            if line != "ok":
                yield Damage("", -1, -1, f"SQLite: {line}")
        for number, head, crc in list(all_heads(reader)):
            if not is_whole(head, crc):
                yield Damage(head.session_id, -1, -1, BAD_RECORD)
            else:
                yield from self._verify_session(reader, number, head, marks.get(number))

    def _verify_session(
        self, reader: sqlite3.Connection, number: int, head: Head, marked: Slot | None
    ) -> Iterator[Damage]:
        lost = self._known(reader, head.session_id)
        walk, cursor, fault = Walk(head, -1, 0, lost), stored_rows(reader, number, -1, None), None
        while fault is None and (stored := cursor.fetchmany(PAGE_ROWS)):
            fault = walk.take(stored)[1]
        if fault := fault or walk.end():
            yield Damage(fault.session_id, fault.first, fault.last, fault.problem)
        yield from shorter_than_marked(head, marked)
        if fault:
            return
        query = "select seq, meta, frame, chain from event where session = ? order by seq"
        links = ((Row(*values[:3]), values[3]) for values in reader.execute(query, (number,)))
        if not lost:
            for seq in broken_links(links):
                yield Damage(head.session_id, seq, seq, "the hash chain is broken")
        query = "select seq, meta, frame, span from event where session = ? and span is not null"
        for *row, span in reader.execute(query, (number,)):
            with suppress(InvalidEvent):  # lost, and told above
                if span_of(CATALOG.payload(decode(line_of(Row(*row))))) != span:
                    yield Damage(head.session_id, row[0], row[0], BAD_INDEX)
        query = "select session, key, trace, first, last, agent, crc from span where session = ?"
        for span in reader.execute(query, (number,)):
            if values_checksum(*span[:6]) != span[6]:
                yield Damage(head.session_id, span[3], span[3], BAD_INDEX)

    def _check_tails(self) -> Iterator[Damage]:
        """What can be seen at once: records that do not match, and sessions shorter than their mark."""
        heads = list(all_heads(self._writer))
        recent = {number for number, _, _ in heads[-TAILS:]}
        for number in set(self.mark.numbers()) - {number for number, _, _ in heads}:
            if slot := self.mark.get(number):
                yield Damage(slot.session_id, 0, slot.last, "the session is missing")
            self.mark.forget(number)
        for number, head, crc in heads:
            marked = self.mark.get(number)
            if not is_whole(head, crc):
                yield Damage(head.session_id, -1, -1, BAD_RECORD)
            elif shorter := list(shorter_than_marked(head, marked)):
                yield from shorter
            elif number in recent:
                yield from self._check_last(number, head)

    def _check_last(self, number: int, head: Head) -> Iterator[Damage]:
        lost = self._known(self._writer, head.session_id)
        if head.last < 0 or any(damage.first <= head.last <= damage.last for damage in lost):
            return
        stored = stored_rows(self._writer, number, head.last - 1, None).fetchone()
        if stored is None and head.last <= head.pruned:
            return
        if stored is None or not Walk(head, head.last - 1, None, lost).take([stored])[0]:
            yield Damage(head.session_id, head.last, head.last, "the last event is not what was written")


def shorter_than_marked(head: Head, marked: Slot | None) -> Iterator[Damage]:
    """What a session had when it was last written, and has no more."""
    if marked is not None and marked.last > head.last:
        yield Damage(head.session_id, head.last + 1, marked.last, "the end of the session is missing")
    elif marked is not None and marked.revision > head.revision:
        yield Damage(head.session_id, head.last + 1, head.last, "the last change of the session is missing")


def lock(path: Path) -> IO[str]:
    """Make this process the one that writes; the lock goes with the process."""
    file = path.with_name(path.name + ".lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise StoreError(f"{path.name} is being written by another process; stop that one first") from None
    return file


@contextmanager
def reported() -> Iterator[None]:
    """Errors of SQLite and of the file system, as errors of the store."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"the log cannot be used: {error}") from error


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Several reads of one state of the file."""
    connection.execute("begin")
    try:
        yield
    finally:
        connection.execute("rollback")
