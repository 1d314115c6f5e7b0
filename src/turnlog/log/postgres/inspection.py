"""Checks of a PostgreSQL before it carries a cluster: what is set so that events can be lost or late.

`inspect_engine` reads settings and tries a NOTIFY. It changes nothing. Each finding says what was found and,
unless it is good, what to do.
"""

import os
import time
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from turnlog.log.postgres.connections import Connection, Query, open_connection, translate_engine_errors
from turnlog.log.postgres.reading import EngineReader

MIN_VERSION = 140_000  # the oldest that PostgreSQL maintains
CONNECTIONS_PER_PROCESS = 4  # one writes, two read, one is the bell
MAX_CLOCK_SKEW_S = 2.0  # a fifth of a lease time
NOTIFY_WAIT_S = 2.0
POOLER_ROUNDS = 3  # fewer than after which psycopg prepares a statement

Level = Literal["ok", "warning", "error"]


class Finding(NamedTuple):
    """One result: a subject, what was found, and what to do about it; nothing to do if it is good."""

    level: Level
    subject: str
    text: str
    advice: str = ""


def inspect_engine(url: str) -> list[Finding]:
    """Check the PostgreSQL of a URL. Raise `StoreError` if it cannot be reached."""
    with open_connection(url) as connection, open_connection(url) as other, translate_engine_errors():
        reader = EngineReader(connection)
        findings = [finding for check in CHECKS for finding in check(reader)]
        findings += check_notify(connection, other)
        findings += check_pooler(connection, other)
        return findings


def check_engine_version(reader: EngineReader) -> Iterator[Finding]:
    [(number, text)] = reader.select(
        "select current_setting('server_version_num')::bigint, current_setting('server_version')"
    )
    if number >= MIN_VERSION:
        yield Finding("ok", "version", f"PostgreSQL {text}")
    else:
        yield Finding("error", "version", f"PostgreSQL {text}", "upgrade to PostgreSQL 14 or newer")


def check_quorum(reader: EngineReader) -> Iterator[Finding]:
    """Check that a commit is on a second machine before it is acknowledged."""
    names = show(reader, "synchronous_standby_names")
    query: Query = "select count(*) from pg_stat_replication where sync_state in ('sync', 'quorum')"
    [(count,)] = reader.select(query)
    if not names:
        advice = "set synchronous_standby_names = 'ANY 1 (...)' with two standbys"
        yield Finding("warning", "quorum", "no standby: a failover may lose acknowledged events", advice)
    elif not may_read_statistics(reader):
        text = f"{names} is set; this role may not see which standbys are connected"
        yield Finding("warning", "quorum", text, "grant pg_read_all_stats to the role, and check again")
    elif count == 0:
        advice = "start a standby, or correct synchronous_standby_names"
        yield Finding("error", "quorum", f"no standby of {names} is connected: every commit waits", advice)
    elif count == 1:
        advice = "add a second standby to the quorum"
        yield Finding("warning", "quorum", "one standby: if it stops, every commit waits for it", advice)
    else:
        yield Finding("ok", "quorum", f"{count} synchronous standbys ({names})")

    if show(reader, "synchronous_commit") in ("on", "remote_apply"):
        return
    text = f"synchronous_commit is {show(reader, 'synchronous_commit')} for this role"
    yield Finding("warning", "quorum", text, "set it to on: a commit must wait for a standby's disk")


def check_disks(reader: EngineReader) -> Iterator[Finding]:
    for name, problem in (
        ("fsync", "a power cut may lose or damage the log"),
        ("full_page_writes", "a power cut may damage pages"),
    ):
        if show(reader, name) == "on":
            yield Finding("ok", name, "on")
        else:
            yield Finding("error", name, f"off: {problem}", f"set {name} = on")

    if show(reader, "data_checksums") == "on":
        yield Finding("ok", "checksums", "on")
    else:
        advice = "stop the server and run pg_checksums --enable"
        yield Finding("warning", "checksums", "off: a damaged page is not noticed by the engine", advice)


def check_connections(reader: EngineReader) -> Iterator[Finding]:
    """Count the connections that are left: of the server, of the role and of the database."""
    # Every role may read these counts. `pg_stat_activity` hides the connections of other roles.
    [(used, used_by_database)] = reader.select(
        """select sum(numbackends)::bigint,
        (sum(numbackends) filter (where datname = current_database()))::bigint from pg_stat_database"""
    )
    [(role_limit, used_by_role, database_limit)] = reader.select(
        """select rolconnlimit,
        (select count(*) from pg_stat_activity where usename = current_user), datconnlimit
        from pg_roles, pg_database where rolname = current_user and datname = current_database()"""
    )
    [(reserved,)] = reader.select(
        """select sum(setting::bigint)::bigint from pg_settings
        where name in ('superuser_reserved_connections', 'reserved_connections')"""
    )
    counts = [(int(show(reader, "max_connections")) - reserved - used, "raise max_connections")]
    if role_limit >= 0:
        counts.append((role_limit - used_by_role, "raise the connection limit of the role"))
    if database_limit >= 0:
        counts.append((database_limit - used_by_database, "raise the connection limit of the database"))

    left, advice = min(counts)
    text = f"{left} left, enough for {left // CONNECTIONS_PER_PROCESS} processes"
    if left >= 5 * CONNECTIONS_PER_PROCESS:
        yield Finding("ok", "connections", text)
    else:
        yield Finding("warning", "connections", text, f"{advice}: each process needs 4")


def check_clocks(reader: EngineReader) -> Iterator[Finding]:
    """Compare the engine's clock with that of this machine. Leases use the engine's clock alone."""
    before_s = time.time()
    [(engine_s,)] = reader.select("select extract(epoch from clock_timestamp())::float8")
    after_s = time.time()
    skew_s = max(before_s - engine_s, engine_s - after_s, 0.0)
    if skew_s <= MAX_CLOCK_SKEW_S:
        yield Finding(
            "ok", "clocks", f"this machine and the engine differ by less than {MAX_CLOCK_SKEW_S:g} s"
        )
    else:
        text = f"this machine and the engine differ by {skew_s:.1f} s"
        yield Finding("warning", "clocks", text, "synchronise the clocks of all machines, as with NTP")


def check_rights(reader: EngineReader) -> Iterator[Finding]:
    [(may_create, has_schema)] = reader.select(
        """select has_database_privilege(current_database(), 'CREATE'),
        to_regnamespace('turnlog') is not null and has_schema_privilege('turnlog', 'CREATE, USAGE')"""
    )
    if may_create or has_schema:
        yield Finding("ok", "rights", "the role may create and change the tables")
    else:
        advice = "grant create on the database, or make the role the owner of the schema turnlog"
        yield Finding("error", "rights", "the role may not create the schema turnlog", advice)


def check_notify(listener: Connection, sender: Connection) -> Iterator[Finding]:
    """Ring a bell of its own from another connection and listen for it."""
    channel = f"turnlog_check_{os.urandom(8).hex()}"
    listener.execute(f"listen {channel}")
    sender.execute("select pg_notify(%b, '')", [channel])
    rings = list(listener.notifies(timeout=NOTIFY_WAIT_S, stop_after=1))
    listener.execute(f"unlisten {channel}")
    if rings:
        yield Finding("ok", "notify", "a NOTIFY of one connection reaches another")
    else:
        advice = "connect to PostgreSQL directly, or through a pooler in session mode"
        yield Finding("error", "notify", "no NOTIFY arrives: readers would wait for seconds", advice)


def check_pooler(connection: Connection, other: Connection) -> Iterator[Finding]:
    """Compare the engine's process of a connection before, during and after a transaction of another one.

    A pooler in transaction mode gives the process that became free to the other connection.
    """
    pids = {backend_pid(connection)}
    other_pids = set()
    for _ in range(POOLER_ROUNDS):
        with other.transaction():
            other_pids.add(backend_pid(other))
            pids.add(backend_pid(connection))
    [(search_path,)] = connection.execute("show search_path").fetchall()

    if len(pids) > 1 or pids & other_pids or search_path != "turnlog":
        advice = "connect to PostgreSQL directly, or through a pooler in session mode"
        yield Finding("error", "pooler", "a pooler changes connections between statements", advice)
    elif connection.info.backend_pid not in pids:
        yield Finding("ok", "pooler", "one in session mode")
    else:
        yield Finding("ok", "pooler", "none in the way")


def backend_pid(connection: Connection) -> int:
    [(pid,)] = connection.execute("select pg_backend_pid()").fetchall()
    return int(pid)


def may_read_statistics(reader: EngineReader) -> bool:
    """Return whether the role sees the connections of other roles; else their columns are null."""
    [(may_read,)] = reader.select("select pg_has_role('pg_read_all_stats', 'USAGE')")
    return bool(may_read)


def show(reader: EngineReader, name: str) -> str:
    [(value,)] = reader.select("select current_setting(%b)", [name])
    return str(value)


CHECKS: list[Callable[[EngineReader], Iterator[Finding]]] = [
    check_engine_version,
    check_quorum,
    check_disks,
    check_rights,
    check_connections,
    check_clocks,
]
