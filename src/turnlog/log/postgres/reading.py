"""Reads of a PostgreSQL log on one connection. Rows pass a `RowVerifier`, records their checksum.

A page is one round trip: its statements are sent together and see one state of the database. Frames beyond
the size of a page stay in the database.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from turnlog.errors import SessionDamaged, StoreError
from turnlog.log.checksums import (
    RowVerifier,
    has_valid_blob_checksum,
    make_row,
    parse_durable_count,
    values_checksum,
)
from turnlog.log.leases import LeaseRow, LeaseState
from turnlog.log.postgres.connections import Connection, Query
from turnlog.log.postgres.schema import (
    EVENT_COLUMNS,
    LEASE_COLUMNS,
    RECORD_COLUMNS,
    SPAN_COLUMNS,
    StoredRecord,
    decode_record_row,
)
from turnlog.log.records import (
    Blob,
    Damage,
    Document,
    ListPosition,
    News,
    Page,
    RawRow,
    Row,
    SessionRecord,
    TypeQuery,
)
from turnlog.log.spans import MAX_SAME_AGENTS, oldest_open_turn_start, span_bounds

MIN_FRAME_BYTES = 128  # bounds the rows of a page before their sizes are known
MAX_TYPED_ROWS = 256
MAX_NEWS_ROWS = 256  # of a session; what is beyond is read by its followers
MAX_NEWS_BYTES = 1 << 18

SELECT_RECORDS_BY_NAME: Query = f"select {RECORD_COLUMNS} from session where name = any(%b)"
SELECT_RECORD: Query = f"select {RECORD_COLUMNS} from session where name = %b"
SESSION_ID: Query = "(select id from session where name = %(name)b)"
SELECT_DAMAGE: Query = "select session, first, last, problem from damage where session = %b order by id"
SELECT_ROW_AT: Query = f"""select {EVENT_COLUMNS} from event
    where session = {SESSION_ID} and seq <= %(after)b order by seq desc limit 1"""
NO_SKIP: Query = "false"
# A live row of a span that began after a seq and has ended: replay leaves it out.
REPLAY_SKIP: Query = """span is not null and exists (select 1 from span
    where span.session = event.session and span.key = event.span
    and span.first > %(replay_from)b and span.last is not null)"""
# The sizes are known without reading frames that are stored apart.
SELECT_PAGE: Query = """
    select seq, meta, case when skip then null else frame end, crc from (
        select *, sum(size) over (order by seq) - size as before from (
            select *, case when skip then 0 else octet_length(frame) end as size from (
                select seq, meta, frame, crc, {skip} as skip from event
                where session = {session} and seq > %(after)b order by seq limit %(limit_rows)b) as row
        ) as sized
    ) as summed where before < %(limit_bytes)b order by seq"""
SELECT_ALL: Query = SELECT_PAGE.replace("{skip}", NO_SKIP).replace("{session}", SESSION_ID)
SELECT_REPLAY: Query = SELECT_PAGE.replace("{skip}", REPLAY_SKIP).replace("{session}", SESSION_ID)
# The types of a session are found one after the other in the index of types, and so are their rows.
SELECT_TYPED: Query = f"""
    with recursive number as materialized (select {SESSION_ID} as id), kind(type) as (
        (select type from event where session = (select id from number) and type is not null
            order by type limit 1)
        union all
        select (select type from event where session = (select id from number) and type > kind.type
            order by type limit 1) from kind where kind.type is not null
    ), matching as (
        select seq from kind cross join lateral (
            select seq from event where session = (select id from number) and event.type = kind.type
                and seq > %(after)b order by seq limit %(limit_rows)b) as row
        where exists (select 1 from unnest(%(types)b::text[]) as wish
            where kind.type = wish or starts_with(kind.type, wish || '.'))
        order by seq limit %(limit_rows)b
    ), sized as (
        select event.seq, meta, frame, crc,
            sum(octet_length(frame)) over (order by event.seq) - octet_length(frame) as before
        from matching join event on event.session = (select id from number) and event.seq = matching.seq)
    select seq, meta, case when before < %(limit_bytes)b then frame end, crc from sized order by seq"""

SELECT_NEWS: Query = """
    select name, row.seq, row.meta, row.frame, row.crc
    from unnest(%b::text[], %b::bigint[]) as position(session, after)
    join session on session.name = position.session
    cross join lateral (
        select seq, meta, frame, crc, sum(octet_length(frame)) over (order by seq) as size from (
            select seq, meta, frame, crc from event
            where event.session = session.id and seq > position.after order by seq limit %b) as row
    ) as row
    where size <= %b order by name, seq"""


class EngineReader:
    """The reads of a log on a connection. Errors of the engine are raised as psycopg raises them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def select(self, query: Query, values: Sequence[object] | Mapping[str, object] = ()) -> list[Any]:
        return self._connection.execute(query, values, binary=True).fetchall()

    @contextmanager
    def _one_state(self) -> Iterator[None]:
        """Send the statements of the block together, and let them see one state of the database."""
        try:
            with self._connection.pipeline():
                self._connection.execute("begin isolation level repeatable read read only")
                yield
                self._connection.execute("commit")
        except BaseException:
            if not self._connection.closed:
                self._connection.rollback()
            raise

    @contextmanager
    def read_transaction(self) -> Iterator[None]:
        """Let all statements of the block see one state of the database."""
        self._connection.execute("begin isolation level repeatable read read only")
        try:
            yield
        finally:
            self._connection.rollback()

    def _queue(self, query: Query, values: Sequence[object] | Mapping[str, object]) -> psycopg.Cursor[Any]:
        """Send a statement inside `_one_state`. Its rows can be fetched after the block."""
        return self._connection.cursor(binary=True).execute(query, values)

    # session records

    def load_record(self, session_id: str) -> StoredRecord | None:
        """Return the record of a session, None if there is none. Raise `SessionDamaged`."""
        rows = self.select(SELECT_RECORD, [session_id])
        return decode_record_row(rows[0]) if rows else None

    def records(self) -> Iterator[StoredRecord | SessionDamaged]:
        """Yield every record, the oldest first; for a damaged one its damage."""
        for row in self.select(f"select {RECORD_COLUMNS} from session order by id"):
            try:
                yield decode_record_row(row)
            except SessionDamaged as damage:
                yield damage

    def listing(
        self, name: str, after: ListPosition | None, limit: int
    ) -> list[tuple[ListPosition, SessionRecord]]:
        """Return a page of a list, the last active first. Raise `SessionDamaged` for a damaged record."""
        columns = ", ".join(f"session.{column}" for column in RECORD_COLUMNS.split(", "))
        condition = "and (active, listing.session) < (%b, %b)" if after else ""
        rows = self.select(
            f"""select active, {columns} from listing join session on session.name = listing.session
            where list = %b {condition} order by active desc, listing.session desc limit %b""",
            [name, *(after or ()), limit],
        )
        records = [(row[0], decode_record_row(row[1:]).record) for row in rows]
        return [(ListPosition(active_ms, record.session_id), record) for active_ms, record in records]

    def damages(self, session_id: str | None = None) -> list[Damage]:
        if session_id is not None:
            return [Damage(*row) for row in self.select(SELECT_DAMAGE, [session_id])]
        return [
            Damage(*row)
            for row in self.select("select session, first, last, problem from damage order by id")
        ]

    # events

    def find_rows(self, keys: Iterable[tuple[int, str]]) -> list[tuple[int, str, RawRow]]:
        """Return (session number, event id, row) of those keys that are stored. Rows are not verified."""
        numbers, event_ids = zip(*keys, strict=True)
        rows = self.select(
            """select event.session, event.id, seq, meta, frame, crc
            from unnest(%b::bigint[], %b::text[]) as key(session, id)
            join event on event.session = key.session and event.id = key.id""",
            [list(numbers), list(event_ids)],
        )
        return [(row[0], row[1], tuple(row[2:])) for row in rows]

    def read(self, session_id: str, after: int, replay_from: int | None, limit_bytes: int) -> Page:
        """Return verified rows after a seq, about `limit_bytes` and at least one.

        Rows before a damage are returned. Raise `SessionDamaged` if the page would begin with the damage.
        """
        limit_bytes = max(limit_bytes, 1)  # an empty page would mean the end
        while True:
            page, next_after = self._read_rows(session_id, after, replay_from, limit_bytes)
            if page or next_after is None:
                return page
            after = next_after  # replay has left out all of these rows

    def _read_rows(
        self, session_id: str, after: int, replay_from: int | None, limit_bytes: int
    ) -> tuple[Page, int | None]:
        """Return a page, and the seq after which to go on if it is empty; None at the end."""
        limit_rows = limit_bytes // MIN_FRAME_BYTES + 1
        values = {
            "name": session_id,
            "after": after,
            "replay_from": replay_from,
            "limit_rows": limit_rows,
            "limit_bytes": limit_bytes,
        }
        with self._one_state():
            records = self._queue(SELECT_RECORD, [session_id])
            damages = self._queue(SELECT_DAMAGE, [session_id])
            row_at = self._queue(SELECT_ROW_AT, values)
            rows = self._queue(SELECT_ALL if replay_from is None else SELECT_REPLAY, values)

        record_row = records.fetchone()
        if record_row is None:
            return Page(), None
        record = decode_record_row(record_row).record
        verifier = RowVerifier(
            record,
            after,
            count_durable_events(session_id, row_at.fetchone()),
            [Damage(*damage) for damage in damages.fetchall()],
            allow_skipped=replay_from is not None,
        )
        stored = rows.fetchall()
        verified: list[RawRow] = []
        damage: SessionDamaged | None = None
        if stored:
            verified, damage = verifier.verify(stored)

        size_bytes = sum(len(row[2]) for row in stored if row[2] is not None)
        is_end = len(stored) < limit_rows and size_bytes < limit_bytes
        if is_end and damage is None:
            damage = verifier.verify_end()
        if damage is not None and not verified:
            raise damage
        return Page(verified, record.epoch), None if is_end else verifier.seq

    def read_news(self, positions: Mapping[str, int]) -> dict[str, News]:
        """Return records and next rows of sessions. Damaged records and damaged rows are left out."""
        names = list(positions)
        with self._one_state():
            records = self._queue(SELECT_RECORDS_BY_NAME, [names])
            damaged = self._queue("select distinct session from damage where session = any(%b)", [names])
            rows = self._queue(SELECT_NEWS, [names, list(positions.values()), MAX_NEWS_ROWS, MAX_NEWS_BYTES])

        damaged_names = {name for (name,) in damaged.fetchall()}
        rows_by_name: dict[str, list[RawRow]] = {}
        for name, *row in rows.fetchall():
            rows_by_name.setdefault(name, []).append(tuple(row))
        news = {}
        for row in records.fetchall():
            try:
                record = decode_record_row(row).record
            except SessionDamaged:
                continue
            stored = rows_by_name.get(record.session_id, [])
            if record.session_id in damaged_names or not stored:
                news[record.session_id] = News(record, ())
                continue
            verified, damage = RowVerifier(record, positions[record.session_id], None, ()).verify(stored)
            news[record.session_id] = News(record, () if damage else [Row(*row) for row in verified])
        return news

    def read_types(self, session_id: str, type_query: TypeQuery) -> Page:
        """Return durable rows of some types.

        Each row is verified alone: a loss between two of them is not noticed here.
        """
        values = {
            "name": session_id,
            "after": type_query.after,
            "types": list(type_query.types),
            "limit_rows": MAX_TYPED_ROWS,
            "limit_bytes": max(type_query.limit_bytes, 1),
        }
        with self._one_state():
            records = self._queue(SELECT_RECORD, [session_id])
            damages = self._queue(SELECT_DAMAGE, [session_id])
            rows = self._queue(SELECT_TYPED, values)

        record_row = records.fetchone()
        if record_row is None:
            return Page()
        record = decode_record_row(record_row).record
        known_damages = [Damage(*damage) for damage in damages.fetchall()]
        stored = rows.fetchall()
        verified: list[RawRow] = []
        for row in stored:
            if row[2] is None:
                return Page(verified, record.epoch, verified[-1][0])
            good, damage = RowVerifier(record, row[0] - 1, None, known_damages).verify([row])
            if damage is not None and not verified:
                raise damage
            if damage is not None:
                return Page(verified, record.epoch, row[0] - 1)
            verified += good
        upto = stored[-1][0] if len(stored) == MAX_TYPED_ROWS else record.last
        return Page(verified, record.epoch, upto)

    def has_event(self, session_id: str, seq: int) -> bool:
        query: Query = f"select 1 from event where session = {SESSION_ID} and seq = %(seq)b"
        return bool(self.select(query, {"name": session_id, "seq": seq}))

    # spans

    def oldest_open_turn_start(self, session_id: str, at: int) -> int:
        if at < 0:
            return 0
        stored = self.load_record(session_id)
        if stored is None:
            return at + 1

        query: Query = f"select {SPAN_COLUMNS} from span where session = %(number)b"
        if at >= stored.record.last:
            # At the end of a session only the turns that are open now matter.
            query += """ and (last is null or trace in (
                select trace from span where session = %(number)b and last is null))"""
        spans = self.select(query, {"number": stored.number})
        if not all(map(is_span_intact, spans)):
            return 0  # the index is damaged: the start of the session is a safe answer
        return oldest_open_turn_start([(span[2], span[3], span[4]) for span in spans], at)

    def turn_bounds(self, session_id: str, trace: str) -> tuple[int, int | None] | None:
        query: Query = f"""select {SPAN_COLUMNS} from span
            where session = {SESSION_ID} and trace = %(trace)b"""
        spans = self.select(query, {"name": session_id, "trace": trace})
        if not all(map(is_span_intact, spans)):
            return 0, None  # the index is damaged: the whole session, with an unknown end
        return span_bounds([(span[3], span[4]) for span in spans if span[5]])

    def agent_starts(self, key: str) -> list[tuple[str, int]]:
        query: Query = """select name, session, key, trace, first, last, agent, span.crc, last_crc
            from span join session on session.id = span.session
            where key = %b and agent order by session desc limit %b"""
        spans = self.select(query, [key, MAX_SAME_AGENTS])
        return [(span[0], span[4]) for span in spans if is_span_intact(span[1:])]

    def span_end(self, session_id: str, key: str) -> int | None:
        query: Query = f"select {SPAN_COLUMNS} from span where session = {SESSION_ID} and key = %(key)b"
        spans = self.select(query, {"name": session_id, "key": key})
        if not spans or not is_span_intact(spans[0]):
            return None
        last: int | None = spans[0][4]
        return last

    def sessions_with_open_agents(self) -> list[str]:
        query: Query = """select name from session
            where exists (select 1 from span where span.session = session.id and last is null and agent)
            order by id"""
        return [name for (name,) in self.select(query)]

    # blobs and derived data

    def blob(self, name: str) -> Blob | None:
        rows = self.select("select media_type, data, private, crc from blob where name = %b", [name])
        if not rows:
            return None
        media_type, data, is_private, crc = rows[0]
        if not has_valid_blob_checksum(name, media_type, data, is_private, crc):
            raise StoreError(f"the blob {name[-16:]} is not what was written")
        return Blob(media_type, data, is_private)

    def blob_names(self, session_id: str, is_private: bool) -> list[str]:
        # "0" follows "/" in ASCII, and no session id contains either.
        query: Query = "select name from blob where name >= %b and name < %b and private = %b order by name"
        values = [f"{session_id}/", f"{session_id}0", is_private]
        return [name for (name,) in self.select(query, values)]

    def documents(
        self, session_id: str | None, type: str | None, category: str | None, version: str
    ) -> list[Document]:
        filters = {"session": session_id, "type": type, "category": category, "version": version}
        values = {column: value for column, value in filters.items() if value is not None}
        where = " and ".join(f"{column} = %({column})b" for column in values)
        query = f"select session, id, type, category, body, version, stored, crc from document where {where}"
        rows = self.select(f"{query} order by session, id", values)
        if any(values_checksum(*row[:-1]) != row[-1] for row in rows):
            raise StoreError("a document is not what was written; `turnlog rebuild` makes it again")
        return [Document(*row[:-2]) for row in rows]

    def snapshot(self, session_id: str, name: str, at: int, version: str) -> tuple[int, bytes] | None:
        query: Query = """select session, name, seq, body, version, stored, crc from snapshot
            where session = %b and name = %b and version = %b and seq <= %b order by seq desc limit %b"""
        for limit in (1, 100):  # nearly always the newest is good; a damaged one is skipped
            for *values, crc in self.select(query, [session_id, name, version, at, limit]):
                if values_checksum(*values) == crc:
                    return values[2], values[3]
        return None

    # leases

    def owner_of(self, session_id: str) -> str | None:
        rows = self.select(
            """select lease.owner from lease join worker using (owner, process)
            where session = %b and until > now()""",
            [session_id],
        )
        return rows[0][0] if rows else None

    def holds_lease(self, session_id: str, owner: str, process: str, fence: int) -> bool:
        query: Query = "select 1 from lease where session = %b and owner = %b and process = %b and fence = %b"
        return bool(self.select(query, [session_id, owner, process, fence]))

    def lease_states(self, session_ids: Sequence[str]) -> dict[str, LeaseState]:
        query: Query = f"select {LEASE_COLUMNS} from lease where session = any(%b)"
        rows = [LeaseRow(*values) for values in self.select(query, [list(session_ids)])]
        return {row.session_id: row.summary for row in rows}

    def next_wake_ms(self, after_ms: int) -> int | None:
        query: Query = "select min(wake_at) from lease where wake_at > %b and owner is null"
        wake_at_ms: int | None = self.select(query, [after_ms])[0][0]
        return wake_at_ms

    def get_lease(self, session_id: str) -> LeaseRow | None:
        """Return the lease of a session, locked until the end of the transaction."""
        query: Query = f"select {LEASE_COLUMNS} from lease where session = %b for update"
        rows = self.select(query, [session_id])
        return LeaseRow(*rows[0]) if rows else None


def count_durable_events(session_id: str, row: RawRow | None) -> int:
    """Return the number of durable events up to a row; -1, which explains no gap, if the row is damaged."""
    if row is None:
        return 0
    seq, meta, frame, crc = row
    durable_count = parse_durable_count(meta)
    if durable_count is None or make_row(session_id, seq, meta, frame).checksum != crc:
        return -1
    return durable_count


def span_checksum(number: int, key: str, trace: str | None, first: int, is_agent: bool) -> int:
    return values_checksum(number, key, trace, first, is_agent)


def span_end_checksum(number: int, key: str, last: int) -> int:
    """Return the checksum of the end of a span, which is written without reading its start."""
    return values_checksum(number, key, last)


def is_span_intact(span: Sequence[Any]) -> bool:
    """Verify a row of `SPAN_COLUMNS`."""
    number, key, trace, first, last, is_agent, crc, last_crc = span
    if span_checksum(number, key, trace, first, is_agent) != crc:
        return False
    return last is None or span_end_checksum(number, key, last) == last_crc
