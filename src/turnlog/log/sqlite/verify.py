"""Whether a SQLite log is what was written: at once when it is opened, everything by `turnlog verify`.

Functions of a connection and of what the mark remembers. They yield what is lost, session by session; they
repair nothing. Opening looks at every session's standing and at the last event of some, whatever the length
of the log; verifying reads all of it.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress

from turnlog.errors import InvalidEvent, StoreError
from turnlog.events import CATALOG, decode
from turnlog.log.sqlite.checksums import Walk, broken_links, values_checksum
from turnlog.log.sqlite.queries import (
    BAD_INDEX,
    BAD_RECORD,
    COLUMNS,
    PAGE_ROWS,
    SCHEMA,
    active_in_lists,
    all_heads,
    is_damage,
    is_whole,
    is_whole_blob,
    known_losses,
    make_head,
    salvaged,
    stored_rows,
)
from turnlog.log.sqlite.watermark import Mark, Slot
from turnlog.log.store import LISTING_STEP_MS, Damage, Head, Row, line_of, span_of

TAILS = 200  # sessions whose last event is checked at opening: bounded, however many there are
BAD_LISTING = "the lists of sessions are damaged; `turnlog rebuild` makes them anew"
BAD_DERIVED = "a document, snapshot or blob is not what was written"


def definitions(connection: sqlite3.Connection) -> None:
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


def everything(reader: sqlite3.Connection, marks: Mapping[int, Slot]) -> Iterator[Damage]:
    """All of it, within one transaction."""
    for (line,) in reader.execute("pragma integrity_check"):
        if line != "ok":
            yield Damage("", -1, -1, f"SQLite: {line}")
    heads = list(all_heads(reader))
    for number in marks.keys() - {number for number, _, _ in heads}:
        yield Damage(marks[number].session_id, 0, marks[number].last, "the session is missing")
    for number, head, crc in heads:
        if not is_whole(head, crc):
            yield Damage(str(head.session_id), -1, -1, BAD_RECORD)
        else:
            yield from session(reader, number, head, marks.get(number))
    yield from derived(reader)


def session(reader: sqlite3.Connection, number: int, head: Head, marked: Slot | None) -> Iterator[Damage]:
    """One session: its rows, how far it had come, its chain, and what is indexed about it."""
    lost = known_losses(reader, head.session_id)
    walk, fault = Walk(head, -1, 0, lost), None
    with closing(stored_rows(reader, number, -1, None)) as cursor:
        while fault is None and (stored := cursor.fetchmany(PAGE_ROWS)):
            fault = walk.take(stored)[1]
    if fault := fault or walk.end():
        yield Damage(fault.session_id, fault.first, fault.last, fault.problem)
    yield from shorter_than_marked(head, marked)
    if not fault:
        yield from chained(reader, number, head) if not lost else ()
        yield from indexed(reader, number, head, lost)
    yield from listed(reader, head)


def chained(reader: sqlite3.Connection, number: int, head: Head) -> Iterator[Damage]:
    """The hash chain, from the first durable event to the last."""
    query = f"select {COLUMNS}, chain from event where session = ? order by seq"
    links = ((Row(*values[:4]), values[4]) for values in reader.execute(query, (number,)))
    for seq in broken_links(links):
        yield Damage(head.session_id, seq, seq, "the hash chain is broken")


def indexed(reader: sqlite3.Connection, number: int, head: Head, lost: Sequence[Damage]) -> Iterator[Damage]:
    """Which live event belongs to which span, where spans begin and end, and of which type events are."""
    query = f"select {COLUMNS}, span from event where session = ? and span is not null"
    for *row, span in reader.execute(query, (number,)):
        with suppress(InvalidEvent, TypeError):  # lost, and told above
            if span_of(CATALOG.payload(decode(line_of(Row(*row))))) != span:
                yield Damage(head.session_id, row[0], row[0], BAD_INDEX)
    query = "select session, key, trace, first, last, agent, crc from span where session = ?"
    for *values, crc in reader.execute(query, (number,)):
        if values_checksum(*values) != crc:
            yield Damage(head.session_id, -1, -1, BAD_INDEX)
    query = "select seq, type, meta from event where session = ? and span is null"
    for seq, name, meta in reader.execute(query, (number,)):
        if not is_lost(seq, lost) and not meta.endswith(f"|{name}".encode()):
            yield Damage(head.session_id, seq, seq, BAD_INDEX)


def is_lost(seq: int, lost: Sequence[Damage]) -> bool:
    """Whether a seq is in a part that is known to be lost."""
    return any(one.first <= seq <= one.last for one in lost)


def listed(reader: sqlite3.Connection, head: Head) -> Iterator[Damage]:
    """Whose lists a session is in, and where."""
    query = "select list, active from listing where session = ?"
    found, wanted = dict(reader.execute(query, (head.session_id,))), active_in_lists(head)
    places = [(found.get(name), active_ms) for name, active_ms in wanted.items()]
    near = [isinstance(at, int) and at <= active_ms < at + LISTING_STEP_MS for at, active_ms in places]
    if found.keys() != wanted.keys() or not all(near):
        yield Damage(head.session_id, -1, -1, BAD_LISTING)


def derived(reader: sqlite3.Connection) -> Iterator[Damage]:
    """What stands beside the events."""
    for table in ("document", "snapshot"):
        for *values, crc in reader.execute(f"select * from {table}"):
            if values_checksum(*values) != crc:
                yield Damage(str(values[0]), -1, -1, BAD_DERIVED)
    for name, media_type, data, crc in reader.execute("select name, media_type, data, crc from blob"):
        if not is_whole_blob(name, media_type, data, crc):
            yield Damage(str(name).partition("/")[0], -1, -1, BAD_DERIVED)


def tails(connection: sqlite3.Connection, mark: Mark) -> Iterator[Damage]:
    """What can be seen at once: sessions that do not stand where their mark says, and some last events.

    Lazy: a session that is missing is forgotten only when whoever asks comes back for more.
    """
    standing, unreadable = standings(connection)
    for number, slot in list(mark.slots(standing)):
        yield Damage(slot.session_id, 0, slot.last, "the session is missing")
        if not unreadable:
            mark.forget(number)
    suspects = standing.keys() - mark.agrees(standing)
    for number in sorted(suspects.union(sorted(standing)[-TAILS:])):
        for row in salvaged(connection, number):
            yield from tail(connection, number, make_head(row), row[-1], mark.get(number))


def standings(connection: sqlite3.Connection) -> tuple[dict[int, tuple[int, int]], bool]:
    """Last seq and revision of every session by number, and whether some could not be read."""
    try:
        rows = connection.execute("select id, last, revision from session").fetchall()
        return {number: (last, revision) for number, last, revision in rows}, False
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return {number: (head.last, head.revision) for number, head, _ in all_heads(connection)}, True


def tail(
    connection: sqlite3.Connection, number: int, head: Head, crc: int, marked: Slot | None
) -> Iterator[Damage]:
    """The record of a session, how far it had come, and its last event."""
    if not is_whole(head, crc):
        yield Damage(str(head.session_id), -1, -1, BAD_RECORD)
    elif shorter := list(shorter_than_marked(head, marked)):
        yield from shorter
    else:
        yield from last_event(connection, number, head)


def last_event(connection: sqlite3.Connection, number: int, head: Head) -> Iterator[Damage]:
    """The last event of a session, unless it was pruned or its loss is known."""
    lost = known_losses(connection, head.session_id)
    if head.last < 0 or any(damage.first <= head.last <= damage.last for damage in lost):
        return
    stored = stored_rows(connection, number, head.last - 1, None).fetchone()
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
