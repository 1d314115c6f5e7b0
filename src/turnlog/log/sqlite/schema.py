"""The tables of a SQLite log, and session records as rows of them.

The columns of a record are the fields of `SessionRecord`, in their order. A file whose definitions differ
from `SCHEMA` is refused as damaged: a change of `SCHEMA`, even of its white space, needs a new
`SCHEMA_VERSION`.
"""

import sqlite3
from contextlib import closing
from typing import Any

from msgspec import DecodeError, json, structs

from turnlog.errors import SessionDamaged, StoreError
from turnlog.log.checksums import values_checksum
from turnlog.log.records import SessionRecord

SCHEMA_VERSION = 5
# Blobs that members have uploaded and no event names yet.
UPLOAD_TABLE = """create table upload (name text primary key, stored integer not null) without rowid;
    create index upload_stored on upload (stored);"""
# What brings a file of an older version to the next one.
MIGRATIONS = {4: UPLOAD_TABLE}
# `listing` has one row for each list that contains a session (`list_name`): it repeats the session records in
# the order of lists. `event.type` is set for durable events only, for filters: live events are many. The type
# that is verified and returned is in `meta`.
SCHEMA = f"""
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
        name text primary key, media_type text not null, data blob not null, private integer not null,
        crc integer not null) without rowid;
    {UPLOAD_TABLE}
    create table document (
        session text not null, id text not null, type text not null, category text not null,
        body blob not null, version text not null, stored integer not null, crc integer not null,
        primary key (session, version, id)) without rowid;
    create index document_type on document (type, category);
    create table snapshot (
        session text not null, name text not null, seq integer not null, body blob not null,
        version text not null, stored integer not null, crc integer not null,
        primary key (session, name, version, seq)) without rowid;
    create table lease (
        session text primary key, owner text, process text not null, fence integer not null,
        seen integer not null, wake_at integer, wanted_at integer, wanted_seq integer not null,
        attempts integer not null, claimed_at integer not null, state text not null, crc integer not null)
        without rowid;
    create index lease_owner on lease (owner) where owner is not null;
    create index lease_wanted on lease (wanted_at) where wanted_at is not null;
    create index lease_wake on lease (wake_at) where wake_at is not null;
    """

COLUMN_NAMES = {  # of the fields whose column is called otherwise
    "session_id": "name",
    "created_ms": "created",
    "durable_count": "rank",
    "pruned_through": "pruned",
    "updated_ms": "updated",
}
RECORD_FIELDS = structs.fields(SessionRecord)
RECORD_COLUMNS = [COLUMN_NAMES.get(field.name, field.name) for field in RECORD_FIELDS]
JSON_COLUMNS = {  # position of a column that holds a map as JSON: decoder of the map
    index: json.Decoder(field.type)
    for index, field in enumerate(RECORD_FIELDS)
    if getattr(field.type, "__origin__", None) is dict
}
BOOL_COLUMNS = [index for index, field in enumerate(RECORD_FIELDS) if field.type is bool]

INSERT_RECORD = "insert into session ({}, crc) values ({}, ?)".format(
    ", ".join(RECORD_COLUMNS), ", ".join("?" for _ in RECORD_COLUMNS)
)
# Without the name, which is the first column and never changes: a column that is set writes its index again,
# one more page in every commit.
UPDATE_RECORD = "update session set {}, crc = ? where id = ?".format(
    ", ".join(f"{column} = ?" for column in RECORD_COLUMNS[1:])
)
RENAME_RECORD = "update session set name = ? where id = ?"  # the repair of a record writes its name too
RECORD_ROW_COLUMNS = f"id, {', '.join(RECORD_COLUMNS)}, crc"

EVENT_COLUMNS = "seq, meta, frame, crc"
SPAN_COLUMNS = "session, key, trace, first, last, agent, crc"
INSERT_EVENT = """insert into event (session, seq, id, ts, span, type, chain, crc, meta, frame)
    values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
INSERT_SPAN = f"insert or replace into span ({SPAN_COLUMNS}) values (?, ?, ?, ?, ?, ?, ?)"
# Not "or replace": that would write all indexes of a span again.
END_SPAN = "update span set last = ?, crc = ? where session = ? and key = ?"
INSERT_DOCUMENT = "insert or replace into document values (?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_SNAPSHOT = "insert or replace into snapshot values (?, ?, ?, ?, ?, ?, ?)"
INSERT_LEASE = "insert or replace into lease values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

BAD_RECORD = "the session's own record is not what was written"


def encode_record(record: SessionRecord) -> tuple[Any, ...]:
    values = list(structs.astuple(record))
    for index in JSON_COLUMNS:
        values[index] = json.encode(values[index]).decode()
    for index in BOOL_COLUMNS:
        values[index] = int(values[index])
    return tuple(values)


def update_values(number: int, record: SessionRecord) -> tuple[Any, ...]:
    """Return the values of `UPDATE_RECORD`."""
    values = encode_record(record)
    return (*values[1:], values_checksum(*values), number)


def decode_record(row: tuple[Any, ...]) -> SessionRecord:
    """Decode (number, columns, checksum). The values are not verified."""
    values = list(row[1:-1])
    for index, decoder in JSON_COLUMNS.items():
        values[index] = decode_map_column(values[index], decoder)
    for index in BOOL_COLUMNS:
        values[index] = bool(values[index])
    return SessionRecord(*values)


def decode_map_column(column: Any, decoder: json.Decoder[Any]) -> Any:
    """Decode a map. A damaged one is empty: then the checksum of the record does not match."""
    try:
        return decoder.decode(column)
    except (DecodeError, TypeError, UnicodeError):
        return {}


def has_valid_record_checksum(record: SessionRecord, crc: int) -> bool:
    return values_checksum(*encode_record(record)) == crc


def decode_valid_record(row: tuple[Any, ...]) -> SessionRecord:
    """Decode (number, columns, checksum). Raise `SessionDamaged` if the checksum does not match."""
    # Over the columns as they were read: encoding the record again costs more and checks less.
    if values_checksum(*row[1:-1]) != row[-1]:
        raise SessionDamaged(str(row[1]), -1, -1, BAD_RECORD)
    return decode_record(row)


def check_schema(connection: sqlite3.Connection) -> None:
    """Raise `StoreError` if a file has no tables yet, or if their definitions are damaged."""
    version: int = connection.execute("pragma user_version").fetchone()[0]
    if version == 0:
        raise StoreError("there is no log in this file yet")

    query = "select type, name, tbl_name, sql from sqlite_schema where name not like 'sqlite_%' order by name"
    with closing(sqlite3.connect(":memory:")) as reference:
        reference.executescript(SCHEMA)
        expected = reference.execute(query).fetchall()
    if connection.execute(query).fetchall() != expected:
        raise StoreError("the definitions of the log's tables are damaged")
