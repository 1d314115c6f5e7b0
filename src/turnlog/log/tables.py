"""The tables of the SQLite store, and how their rows are read and checked: functions of a connection."""

import sqlite3
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from hashlib import sha256
from itertools import accumulate
from typing import Any, TypeVar

from msgspec import DecodeError, json

from turnlog.errors import Damaged
from turnlog.events import CATALOG, Payload, Unknown, decode
from turnlog.log.append import SAYINGS
from turnlog.log.choice import is_a
from turnlog.log.integrity import Walk, make_row, rank_of, values_checksum
from turnlog.log.store import Damage, Head, OpenInvite, Page, Place, Ready, Stored, Typed, framed

T = TypeVar("T")

SCHEMA_VERSION = 2
# `listing` has a row for each list that a session is in (`list_name`): it repeats what the records of the
# sessions say, in the order of lists. The type of a durable event is beside it for filters, and is null for
# live ones, which are many; the type that is checked, and given out, is in `meta`.
SCHEMA = """
    create table session (
        id integer primary key, name text not null unique, epoch text not null, app text not null,
        created integer not null, first integer not null, last integer not null, rank integer not null,
        chain blob not null, fence integer not null, pruned integer not null, revision integer not null,
        updated integer not null, title text not null, members text not null, creator text not null,
        invites text not null, members_seq integer not null, closed integer not null,
        activity text not null, crc integer not null);
    create table listing (
        session text not null, list text not null, active integer not null,
        primary key (session, list)) without rowid;
    create index listing_active on listing (list, active, session);
    create table event (
        session integer not null, seq integer not null, id text not null, ts integer not null, span text,
        type text, chain blob, crc integer not null, meta blob not null, frame blob not null,
        primary key (session, seq)) without rowid;
    create unique index event_id on event (session, id);
    create index event_type on event (session, type, seq) where type is not null;
    create table span (
        session integer not null, key text not null, trace text, first integer not null, last integer,
        agent integer not null, crc integer not null, primary key (session, key)) without rowid;
    create index span_open on span (agent, session) where last is null;
    create index span_trace on span (session, trace, first);
    create index span_first on span (session, first);
    create index span_agent on span (key) where agent;
    create table damage (
        session text not null, first integer not null, last integer not null, problem text not null);
    create index damage_session on damage (session);
    create table blob (
        name text primary key, media_type text not null, data blob not null, crc integer not null)
        without rowid;
    create table document (
        session text not null, id text not null, type text not null, category text not null,
        body blob not null, crc integer not null, primary key (session, id)) without rowid;
    create index document_type on document (type, category);
    create table snapshot (
        session text not null, name text not null, seq integer not null, body blob not null,
        crc integer not null, primary key (session, name, seq)) without rowid;
    """
HEAD = """name, epoch, app, created, first, last, rank, chain, fence, pruned, revision,
    updated, title, members, creator, invites, members_seq, closed, activity"""
HEAD_UPDATE = "update session set {}, crc = ? where id = ?".format(
    ", ".join(f"{column.strip()} = ?" for column in HEAD.split(","))
)
HEAD_COLUMNS = f"id, {HEAD}, crc"
HEADS = f"select {HEAD_COLUMNS} from session"
NUMBER = "(select id from session where name = ?)"
SKIPPED = """span is not null and exists (select 1 from span
    where span.session = event.session and span.key = event.span and span.first > ? and span.last is not null
    and intact(span.crc, span.session, span.key, span.trace, span.first, span.last, span.agent))"""
COLUMNS = "seq, meta, frame, crc"
PAGE_ROWS = 256
SAYING_SUFFIXES = tuple(f"|{payload.TYPE}".encode() for payload in SAYINGS)  # of what stands beside a row
FIRST_ROWS = 16  # read to learn how large rows are here
DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
BAD_INDEX = "the index of blocks and calls is damaged"
BAD_RECORD = "the session's own record is not what was written"
INSERT_EVENT = """insert into event (session, seq, id, ts, span, type, chain, crc, meta, frame)
    values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
INSERT_SPAN = """insert or replace into span (session, key, trace, first, last, agent, crc)
    values (?, ?, ?, ?, ?, ?, ?)"""

MEMBERS = json.Decoder(dict[str, tuple[str, ...]])
INVITES = json.Decoder(dict[str, OpenInvite])
ACTIVITY = json.Decoder(dict[str, int])


def intact(crc: int, *values: Any) -> bool:
    """For SQL: whether a row of the span index is what was written."""
    return values_checksum(*values) == crc


def head_values(head: Head) -> tuple[Any, ...]:
    """A head as its columns."""
    return (
        head.session_id,
        head.epoch,
        head.app,
        head.created_ms,
        head.first,
        head.last,
        head.rank,
        head.chain,
        head.fence,
        head.pruned,
        head.revision,
        head.updated_ms,
        head.title,
        json.encode(head.members).decode(),
        head.creator,
        json.encode(head.invites).decode(),
        head.members_seq,
        int(head.closed),
        json.encode(head.activity).decode(),
    )


def make_head(row: tuple[Any, ...]) -> Head:
    """A head from (number, its columns, checksum)."""
    *plain, members, creator, invites, members_seq, closed, activity = row[1:-1]
    return Head(
        *plain,  # type: ignore[misc]
        members=decoded(members, MEMBERS),
        creator=creator,
        invites=decoded(invites, INVITES),
        members_seq=members_seq,
        closed=bool(closed),
        activity=decoded(activity, ACTIVITY),
    )


def decoded(column: Any, decoder: json.Decoder[dict[str, T]]) -> dict[str, T]:
    """A map in a column of a head; one that is damaged is empty, and its checksum does not match."""
    try:
        return decoder.decode(column)
    except (DecodeError, TypeError, UnicodeError):
        return {}


def all_heads(connection: sqlite3.Connection) -> Iterator[tuple[int, Head, int]]:
    """Every session with its number and checksum; where a record cannot be read, the others."""
    try:
        rows = connection.execute(f"{HEADS} order by id").fetchall()
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        rows = [row for number in numbers(connection) for row in salvaged(connection, number)]
    for row in rows:
        yield row[0], make_head(row), row[-1]


def list_name(principal: str | None) -> str:
    """Return the name of the list of a principal's sessions; None: of all sessions."""
    return "all" if principal is None else f"of {principal}"


def invitations_name(principal: str) -> str:
    """Return the name of the list of sessions that a principal is invited to."""
    return f"inviting {principal}"


def active_in_lists(head: Head) -> dict[str, int]:
    """Return the lists that a session belongs into, and since when nothing has happened in it for each."""
    members = {list_name(one): head.active_ms(one) for one in (None, *head.members)}
    return members | {invitations_name(one): head.active_ms(one) for one in head.invited}


def listed_heads(
    connection: sqlite3.Connection, name: str, after: Place | None, limit: int
) -> list[tuple[Place, Head]]:
    """Return a page of a list, the last active first; a record that does not match is `Damaged`."""
    values: list[Any] = [name, *(after or ()), limit]
    behind = "and (active, listing.session) < (?, ?)" if after else ""
    query = f"""select active, listing.session, {HEAD_COLUMNS} from listing
        left join session on session.name = listing.session
        where list = ? {behind} order by active desc, listing.session desc limit ?"""
    found = []
    for active_ms, session_id, *row in connection.execute(query, values):
        if row[0] is None:
            continue  # a row of the list that is damaged: `verify` finds it
        found.append((Place(active_ms, session_id), checked_head(tuple(row))))
    return found


def numbers(connection: sqlite3.Connection) -> list[int]:
    """The number of every session, from the index of their names: no record is read."""
    return sorted(number for (number,) in connection.execute("select id from session order by name"))


def salvaged(connection: sqlite3.Connection, number: int) -> list[tuple[Any, ...]]:
    """The record of one number, if it can be read."""
    try:
        return connection.execute(f"{HEADS} where id = ?", (number,)).fetchall()
    except sqlite3.DatabaseError:
        return []


def is_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite says that the file is damaged."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGE_CODES


def is_there(connection: sqlite3.Connection, session_id: str) -> bool:
    """Whether a session is found by its name."""
    return numbered_head(connection, session_id, checked=False) is not None


def known_losses(connection: sqlite3.Connection, session_id: str | None = None) -> list[Damage]:
    """What is recorded as lost, of one session or of all."""
    where = "" if session_id is None else "where session = ?"
    values = () if session_id is None else (session_id,)
    rows = connection.execute(f"select * from damage {where} order by rowid", values)
    return [Damage(*row) for row in rows]


def numbered_head(
    connection: sqlite3.Connection, session_id: str, *, checked: bool = True
) -> tuple[int, Head] | None:
    """A session with its number; a record that does not match is `Damaged`."""
    row = connection.execute(f"{HEADS} where name = ?", (session_id,)).fetchone()
    if row is None:
        return None
    if not checked:
        return row[0], make_head(row)
    head = checked_head(row)
    if head.session_id != session_id:
        raise Damaged(session_id, -1, -1, BAD_RECORD)
    return row[0], head


def is_whole(head: Head, crc: int) -> bool:
    """Whether a head is what was written."""
    return values_checksum(*head_values(head)) == crc


def is_whole_blob(name: Any, media_type: Any, data: Any, crc: int) -> bool:
    """Whether a blob is what was written: its name ends with the hash of its content."""
    if not isinstance(name, str) or not isinstance(data, bytes):
        return False
    whole = sha256(data).hexdigest() == name.rpartition("/")[2]
    return whole and values_checksum(name, media_type) == crc


def checked_head(row: tuple[Any, ...]) -> Head:
    """A head from (number, its columns, checksum); `Damaged` if the columns are not what was written."""
    if values_checksum(*row[1:-1]) != row[-1]:
        raise Damaged(str(row[1]), -1, -1, BAD_RECORD)
    return make_head(row)


def rank_at(connection: sqlite3.Connection, number: int, session_id: str, seq: int) -> int:
    """How many durable events there were at a seq; -1, which explains no gap, if it cannot be vouched for."""
    query = f"select {COLUMNS} from event where session = ? and seq <= ? order by seq desc limit 1"
    row = connection.execute(query, (number, seq)).fetchone()
    if row is None:
        return 0
    rank = rank_of(row[1])
    whole = isinstance(row[0], int) and isinstance(row[2], bytes) and rank is not None
    return rank if whole and rank is not None and make_row(session_id, *row[:3]).checksum == row[3] else -1


def sayings(
    connection: sqlite3.Connection, number: int, session_id: str
) -> Iterator[tuple[Payload | Unknown, str | None, int]]:
    """Return what the events of a session say of it as a whole, with actor and seq, as far as they are what
    was written."""
    query = f"select {COLUMNS} from event where session = ? order by seq"
    with suppress(sqlite3.DatabaseError), closing(connection.execute(query, (number,))) as cursor:
        for seq, meta, frame, crc in cursor:
            types = (isinstance(seq, int), isinstance(meta, bytes), isinstance(frame, bytes))
            if (
                all(types)
                and meta.endswith(SAYING_SUFFIXES)
                and make_row(session_id, seq, meta, frame).checksum == crc
            ):
                envelope = decode(frame[len(b"data: ") : -len(b"\n\n")])
                yield CATALOG.payload(envelope), envelope.actor, seq


def stored_rows(
    connection: sqlite3.Connection, number: int, after: int, origin: int | None
) -> sqlite3.Cursor:
    """Rows with their checksums; those that replay leaves out come without their frame."""
    if origin is None:
        query = f"select {COLUMNS} from event where session = ? and seq > ? order by seq"
        return connection.execute(query, (number, after))
    query = f"""select seq, meta, case when {SKIPPED} then null else ifnull(frame, '') end, crc from event
        where session = ? and seq > ? order by seq"""
    return connection.execute(query, (origin, number, after))


def spans_around(connection: sqlite3.Connection, number: int, head: Head, at: int) -> list[tuple[Any, ...]]:
    """The spans that tell which turns were open at a seq; at the end of a session, those of open turns."""
    query = "select session, key, trace, first, last, agent, crc from span where session = ?"
    if at < head.last:
        return connection.execute(query, (number,)).fetchall()
    spans = connection.execute(f"{query} and agent in (0, 1) and last is null", (number,)).fetchall()
    for trace in {span[2] for span in spans} - {None}:
        spans += connection.execute(f"{query} and trace = ?", (number, trace))
    return spans


def typed_page(
    connection: sqlite3.Connection, number: int, head: Head, lost: Sequence[Damage], asked: Typed
) -> Page:
    """Durable rows of some types after a seq, found by the index of types, about so many bytes.

    Each is checked for itself: what is missing between them is not noticed here.
    """
    names = [name for name in types_in(connection, number) if any(is_a(name, one) for one in asked.types)]
    query = "select seq from event where session = ? and type = ? and seq > ? order by seq limit ?"
    found = [connection.execute(query, (number, name, asked.after, PAGE_ROWS)) for name in names]
    seqs = sorted(seq for cursor in found for (seq,) in cursor)[:PAGE_ROWS]
    upto = seqs[-1] if len(seqs) == PAGE_ROWS else head.last
    rows, size = list[Stored](), 0
    query = f"select {COLUMNS} from event where session = ? and seq = ?"
    for seq in seqs:
        stored = connection.execute(query, (number, seq)).fetchone()
        good, fault = Walk(head, seq - 1, None, lost).take([stored])
        if fault is not None and not rows:
            raise fault
        if fault is not None:
            return Page(rows, head.epoch, seq - 1)
        rows += good
        size += sum(len(row[2]) for row in good)
        if size >= asked.limit_bytes:
            return Page(rows, head.epoch, seq)
    return Page(rows, head.epoch, upto)


def types_in(connection: sqlite3.Connection, number: int) -> Iterator[str]:
    """The types of the durable events of a session: one step in the index for each."""
    query = "select min(type) from event where session = ? and type > ?"
    name = ""
    while name := connection.execute(query, (number, name)).fetchone()[0] or "":
        yield name


def page(walk: Walk, cursor: sqlite3.Cursor, limit_bytes: int) -> Page:
    """Rows that are whole, about so many bytes. Damage behind good rows waits for the next page."""
    rows: list[Stored] = []
    fault: Damaged | None = None
    size, number = 0, FIRST_ROWS
    limit_bytes = max(limit_bytes, 1)  # an empty page would be the end
    try:
        while fault is None and size < limit_bytes:
            stored = cursor.fetchmany(min(number, PAGE_ROWS))
            if not stored:
                fault = walk.end()
                break
            good, fault = walk.take(stored)
            sizes = [len(row[2]) for row in good]
            if size + sum(sizes) > limit_bytes:
                good = good[: bisect_left(list(accumulate(sizes, initial=size)), limit_bytes)]
            rows += good
            size += sum(sizes)
            number = (limit_bytes - size) * len(rows) // size + 1 if size else PAGE_ROWS
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        fault = walk.unreadable(str(error))
    if fault and not rows:
        raise fault
    return Page(rows, walk.epoch)


def leaves_out(connection: sqlite3.Connection, number: int, origin: int) -> bool:
    """Whether there is a span that replay from an origin leaves out."""
    query = "select 1 from span where session = ? and first > ? and last is not null limit 1"
    return connection.execute(query, (number, origin)).fetchone() is not None


def ready_rows(connection: sqlite3.Connection, walk: Walk, number: int, limit_bytes: int) -> Ready | None:
    """Rows after the walk's place as they are sent, about so many bytes; None unless all is in order."""
    first, last, size, rows = walk.seq + 1, walk.seq, 0, FIRST_ROWS
    parts: list[bytes] = []
    query = "select seq, frame, crc from event where session = ? and seq > ? order by seq"
    try:
        with closing(connection.execute(query, (number, walk.seq))) as cursor:
            while size < limit_bytes and (stored := cursor.fetchmany(min(rows, PAGE_ROWS))):
                if not walk.in_order(stored):
                    return None
                kept = within([row[1] for row in stored], size, limit_bytes)
                parts += framed(walk.epoch, [row[0] for row in stored[: len(kept)]], kept)
                last, size = stored[len(kept) - 1][0], size + sum(map(len, kept))
                rows = (limit_bytes - size) * len(parts) // (2 * size) + 1
    except sqlite3.DatabaseError:
        return None
    whole = size >= limit_bytes or walk.complete
    return Ready(first, last, b"".join(parts), walk.epoch) if parts and whole else None


def within(frames: list[bytes], size: int, limit_bytes: int) -> list[bytes]:
    """The frames that a page of a size still takes: it may be one frame larger than its limit."""
    sizes = [len(frame) for frame in frames]
    if size + sum(sizes) <= limit_bytes:
        return frames
    return frames[: bisect_left(list(accumulate(sizes, initial=size)), limit_bytes)]
