"""Doubt after a failover: sessions whose last events may be lost get a new epoch.

A database that is promoted without a synchronous quorum may lack acknowledged commits, and its seqs are used
again for other events. Two signs are checked on each new connection that writes. The engine is another one
(system identifier or timeline) and the one before had no quorum: every session that was active shortly before
the last commits is in doubt. A session is behind what this process has read or written: it is in doubt in any
case.
"""

import logging
from collections.abc import Collection, Iterable

from turnlog.errors import SessionDamaged
from turnlog.ids import new_epoch
from turnlog.log.listing import list_name
from turnlog.log.postgres.connections import Connection, Query
from turnlog.log.postgres.reading import EngineReader
from turnlog.log.postgres.schema import LISTING_STEP_S, StoredRecord
from turnlog.log.postgres.transaction import EngineTransaction

log = logging.getLogger("turnlog.log")

DOUBT_MS = 600_000  # sessions that were active within this time before the newest one

# The timeline is the first part of the name of the current WAL file.
SELECT_ENGINE: Query = """select system_identifier, left(pg_walfile_name(pg_current_wal_lsn()), 8),
    current_setting('synchronous_standby_names') <> '' from pg_control_system()"""
SELECT_RECENT: Query = """select session from listing where list = %(list)b and active >= (
    select max(active) from listing where list = %(list)b) - %(doubt_ms)b"""
SELECT_BEHIND: Query = """select acked.name
    from unnest(%b::text[], %b::text[], %b::bigint[]) as acked(name, epoch, revision)
    left join session on session.name = acked.name
    where session.name is null or (session.epoch = acked.epoch and session.revision < acked.revision)"""


def resolve_doubt(connection: Connection, acknowledged: Collection[StoredRecord]) -> list[str]:
    """Give a new epoch to the sessions in doubt and record the engine. Return their ids.

    `acknowledged` are records as this process has last committed or read them.
    """
    reader = EngineReader(connection)
    behind = find_sessions_behind(reader, acknowledged)
    for session_id in behind:
        log.error("%s has lost events that were acknowledged: the failover lost them", session_id)
    with connection.transaction():
        # One process decides; the others find the engine that it has recorded.
        [known] = reader.select("select system_identifier, timeline, quorum from engine for update")
        [engine] = reader.select(SELECT_ENGINE)
        doubtful = set(behind)
        if known != engine:
            query: Query = "update engine set system_identifier = %b, timeline = %b, quorum = %b"
            connection.execute(query, engine)
        # The engine before may have acknowledged what no other had received.
        if known[:2] != engine[:2] and not known[2]:
            doubtful.update(find_recent_sessions(reader))
        if doubtful:
            change_epochs(connection, doubtful)
    return sorted(doubtful)


def find_sessions_behind(reader: EngineReader, acknowledged: Collection[StoredRecord]) -> list[str]:
    if not acknowledged:
        return []
    records = [stored.record for stored in acknowledged]
    values = [
        [record.session_id for record in records],
        [record.epoch for record in records],
        [record.revision for record in records],
    ]
    return [name for (name,) in reader.select(SELECT_BEHIND, values)]


def find_recent_sessions(reader: EngineReader) -> list[str]:
    doubt_ms = DOUBT_MS + int(LISTING_STEP_S * 1000)
    rows = reader.select(SELECT_RECENT, {"list": list_name(None), "doubt_ms": doubt_ms})
    log.warning("the PostgreSQL before this one had no synchronous quorum: %d sessions in doubt", len(rows))
    return [session_id for (session_id,) in rows]


def change_epochs(connection: Connection, session_ids: Iterable[str]) -> None:
    """Give sessions a new epoch: their readers begin again instead of missing events."""
    transaction = EngineTransaction(connection)
    transaction.lock_sessions(session_ids)
    for session_id in session_ids:
        try:
            record = transaction.get_record(session_id)
        except SessionDamaged:
            continue  # its repair gives it a new epoch
        if record is not None:
            transaction.put_record(record.replace(epoch=new_epoch(), revision=record.revision + 1))
    transaction.flush()
