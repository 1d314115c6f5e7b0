"""The tables of a PostgreSQL log, their migrations, and session records as rows of them.

All tables are in the schema `turnlog` of the database. A migration runs once, under an advisory lock, in the
transaction that records its version. Ids are compared as bytes (`collate "C"`): another collation may treat
two ids as equal, or order them otherwise than Python does.

A record is JSON in one column. Four fields have columns of their own because statements change or compare
them: epoch and revision (every commit compares them), fence (a claim raises it), closed and app (a claim
looks for them). The checksum covers the JSON, the name and the epoch.
"""

from typing import Any, NamedTuple

import psycopg
from msgspec import DecodeError, json

from turnlog.errors import SessionDamaged, StoreError
from turnlog.log.checksums import values_checksum
from turnlog.log.records import SessionRecord

MIGRATION_LOCK = 0x7475726E6C6F67  # "turnlog": any number that other programs do not use
LISTING_STEP_S = 10.0  # a busy session moves in lists at most this often: an index entry each time
NEVER_LISTED_MS = -(1 << 60)  # before every time

# No index has a column that an append changes, and half of each page of sessions is free: then an append
# updates its session without touching an index (HOT).
MIGRATIONS = [
    """
    create table session (
        id bigint generated always as identity primary key,
        name text collate "C" not null unique,
        epoch text not null, revision bigint not null, fence bigint not null,
        closed boolean not null, app text not null,
        newest text collate "C" not null, listed bigint not null,
        record bytea not null, crc bigint not null) with (fillfactor = 50);
    create table listing (
        session text collate "C" not null, list text collate "C" not null, active bigint not null,
        primary key (session, list));
    create index listing_active on listing (list, active desc, session desc);
    create table event (
        session bigint not null, seq bigint not null, id text collate "C" not null, ts bigint not null,
        span text collate "C", type text collate "C", chain bytea, crc bigint not null,
        meta bytea not null, frame bytea not null, primary key (session, seq));
    create unique index event_id on event (session, id);
    create index event_type on event (session, type, seq) where type is not null;
    alter table event alter column frame set storage external;
    create table span (
        session bigint not null, key text collate "C" not null, trace text collate "C",
        first bigint not null, last bigint, agent boolean not null, crc bigint not null, last_crc bigint,
        primary key (session, key)) with (fillfactor = 80);
    create index span_open on span (session) where last is null;
    create index span_open_agent on span (session) where last is null and agent;
    create index span_trace on span (session, trace);
    create index span_agent on span (key) where agent;
    create table damage (
        id bigint generated always as identity primary key,
        session text collate "C" not null, first bigint not null, last bigint not null,
        problem text not null);
    create index damage_session on damage (session);
    create table blob (
        name text collate "C" primary key, media_type text not null, data bytea not null,
        private boolean not null, crc bigint not null);
    alter table blob alter column data set storage external;
    create table document (
        session text collate "C" not null, id text collate "C" not null, type text collate "C" not null,
        category text collate "C" not null, body bytea not null, version text collate "C" not null,
        stored bigint not null, crc bigint not null, primary key (session, version, id));
    create index document_type on document (type, category);
    create table snapshot (
        session text collate "C" not null, name text collate "C" not null, seq bigint not null,
        body bytea not null, version text collate "C" not null, stored bigint not null,
        crc bigint not null, primary key (session, name, version, seq));
    create table lease (
        session text collate "C" primary key, owner text, process text not null default '',
        fence bigint not null default 0, seen bigint not null default -1, wake_at bigint, wanted_at bigint,
        wanted_seq bigint not null default -1, attempts integer not null default 0,
        claimed_at bigint not null default 0, state text not null default '',
        claim text not null default '', node text not null default '') with (fillfactor = 80);
    create index lease_owner on lease (owner, process) where owner is not null;
    create index lease_wanted on lease (wanted_at) where wanted_at is not null and owner is null;
    create index lease_wake on lease (wake_at) where wake_at is not null and owner is null;
    create table worker (
        owner text not null, process text not null, node text not null, since timestamptz not null,
        until timestamptz not null, primary key (owner, process)) with (fillfactor = 50);
    create table engine (system_identifier bigint not null, timeline text not null, quorum boolean not null);
    insert into engine select system_identifier, left(pg_walfile_name(pg_current_wal_lsn()), 8), false
        from pg_control_system();
    """,
    """
    create table upload (name text collate "C" primary key, stored bigint not null);
    create index upload_stored on upload (stored);
    """,
]

RECORD_COLUMNS = "id, name, epoch, revision, fence, newest, listed, record, crc"
EVENT_COLUMNS = "seq, meta, frame, crc"
SPAN_COLUMNS = "session, key, trace, first, last, agent, crc, last_crc"
LEASE_COLUMNS = """session, owner, process, fence, seen, wake_at, wanted_at, wanted_seq, attempts, claimed_at,
    state"""
BAD_STORED_RECORD = "the session's own record is not what was written"

decode_json_record = json.Decoder(SessionRecord).decode


class StoredRecord(NamedTuple):
    """A record, its number in the database, its highest timed event id, and when it was put in lists."""

    number: int
    record: SessionRecord
    newest: str
    listed_ms: int


class RecordRow(NamedTuple):
    """The columns of a record that a commit writes."""

    name: str
    epoch: str
    revision: int
    fence: int
    closed: bool
    app: str
    newest: str
    listed_ms: int
    body: bytes
    crc: int


def migrate(connection: psycopg.Connection[Any]) -> None:
    """Create the tables, or bring them up to date. Raise `StoreError` if a newer Turnlog has written them."""
    with connection.transaction():
        connection.execute("select pg_advisory_xact_lock(%s)", [MIGRATION_LOCK])
        version = read_version(connection)
        if version is None:
            # "if not exists" needs the right to create one, even if the schema is there.
            if connection.execute("select to_regnamespace('turnlog')").fetchone() == (None,):
                connection.execute("create schema turnlog")
            connection.execute("create table turnlog.version (version integer not null)")
            connection.execute("insert into turnlog.version values (0)")
        for statement in MIGRATIONS[version or 0 :]:
            connection.execute(statement.encode())
        if version != len(MIGRATIONS):
            connection.execute("update turnlog.version set version = %s", [len(MIGRATIONS)])


def check_version(connection: psycopg.Connection[Any]) -> None:
    """Raise `StoreError` if the database has no tables of this version."""
    version = read_version(connection)
    if version is None:
        raise StoreError(
            "there is no log in this database yet; start a server on it, or choose another one with --log"
        )
    if version < len(MIGRATIONS):
        raise StoreError(
            "an older Turnlog has written the log of this database; start a server of this version once"
        )


def read_version(connection: psycopg.Connection[Any]) -> int | None:
    """Return how many migrations have run; None before the first. Raise `StoreError` for a newer Turnlog."""
    row = connection.execute("select to_regclass('turnlog.version')::text").fetchone()
    if row is None or row[0] is None:
        return None

    [(version,)] = connection.execute("select version from turnlog.version").fetchall()
    if version > len(MIGRATIONS):
        raise StoreError(f"the log was written by a newer Turnlog (schema {version}); update this one")
    return int(version)


def encode_record_row(record: SessionRecord, newest: str, listed_ms: int) -> RecordRow:
    body = json.encode(record)
    crc = values_checksum(record.session_id, record.epoch, body)
    return RecordRow(
        record.session_id,
        record.epoch,
        record.revision,
        record.fence,
        record.closed,
        record.app,
        newest,
        listed_ms,
        body,
        crc,
    )


def decode_record_row(row: tuple[Any, ...]) -> StoredRecord:
    """Decode a row of `RECORD_COLUMNS`. Raise `SessionDamaged` if it is not what was written."""
    number, name, epoch, revision, fence, newest, listed_ms, body, crc = row
    if values_checksum(name, epoch, body) != crc:
        raise SessionDamaged(name, -1, -1, BAD_STORED_RECORD)
    try:
        record = decode_json_record(body)
    except DecodeError:
        raise SessionDamaged(name, -1, -1, BAD_STORED_RECORD) from None

    if record.revision != revision or record.fence != fence:
        record = record.replace(revision=revision, fence=fence)
    return StoredRecord(number, record, newest, listed_ms)
