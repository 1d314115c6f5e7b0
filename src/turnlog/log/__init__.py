"""The log: append-only, durable, resumable. `open_log` opens one on a store.

The scheme of the URL selects the store: `memory:`, `sqlite:`, `postgresql:`, or one that an installed package
registers in the entry point group `turnlog.stores` as a function of the URL and `writable`.
"""

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from urllib.parse import unquote, urlsplit

from turnlog.errors import CallerError, quote
from turnlog.log.jobs import AppendResult, Snapshot
from turnlog.log.leases import Lease, Leases
from turnlog.log.log import Log
from turnlog.log.memory import MemoryStore
from turnlog.log.records import (
    Blob,
    Damage,
    Document,
    ListPosition,
    OpenInvite,
    Page,
    Row,
    SessionRecord,
    envelope_json,
)
from turnlog.log.sqlite.store import SqliteStore
from turnlog.log.store import EventStore, Store

__all__ = [
    "AppendResult",
    "Blob",
    "Damage",
    "Document",
    "EventStore",
    "Lease",
    "Leases",
    "ListPosition",
    "Log",
    "MemoryStore",
    "OpenInvite",
    "Page",
    "Row",
    "SessionRecord",
    "Snapshot",
    "SqliteStore",
    "Store",
    "envelope_json",
    "open_log",
    "sqlite_path",
]

StoreOpener = Callable[..., Store]  # of a URL and `writable=`


def open_memory_store(url: str, *, writable: bool) -> Store:
    """Open the store of `memory:`. It belongs to this process, so `writable` does not matter."""
    if url != "memory:":
        raise CallerError(f"expected memory: and nothing after it, got {quote(url)}")
    return MemoryStore()


def sqlite_path(url: str) -> Path:
    """Return the file of `sqlite:///path`. Raise `CallerError` for another form."""
    try:
        parts = urlsplit(url)
    except ValueError as error:  # a host in brackets
        raise CallerError(f"expected a URL like sqlite:///turnlog.db, got {quote(url)}: {error}") from None
    path = unquote(parts.path[1:])
    if parts.netloc or not parts.path.startswith("/") or not path or "\0" in path:
        raise CallerError(f"expected a path after three slashes, sqlite:///turnlog.db, got {quote(url)}")
    if parts.query or parts.fragment or url.endswith(("?", "#")):
        problem = "expected nothing after the path; in a file name write ? as %3F and # as %23"
        raise CallerError(f"{problem}, got {quote(url)}")
    return Path(path)


def open_sqlite_store(url: str, *, writable: bool) -> Store:
    return SqliteStore(sqlite_path(url), writable=writable)


def open_postgres_store(url: str, *, writable: bool) -> Store:
    """Open the store of `postgresql://`. Raise `CallerError` if its driver is not installed."""
    try:
        # Not at the top: most programs use another store.
        from turnlog.log.postgres.store import PostgresStore
    except ImportError as error:
        raise CallerError(f"pip install 'turnlog[postgres]' to open a PostgreSQL log: {error}") from error
    return PostgresStore(url, writable=writable)


STORE_OPENERS: dict[str, StoreOpener] = {
    "memory": open_memory_store,
    "sqlite": open_sqlite_store,
    "postgresql": open_postgres_store,
    "postgres": open_postgres_store,
}


async def open_log(url: str, *, writable: bool = True) -> Log:
    """Open the log at `memory:`, `sqlite:///path`, `postgresql://host/database` or a registered store.

    A path with a fourth slash is absolute. One process writes a SQLite log. Others open it with
    `writable=False` and follow it. Any number of processes write a PostgreSQL log.
    """
    return Log(find_store_opener(url)(url, writable=writable), writable=writable)


def find_store_opener(url: str) -> StoreOpener:
    """Return the function that opens the store of a URL. Raise `CallerError` for an unknown scheme."""
    scheme = url.partition(":")[0].lower() if ":" in url else ""
    if scheme in STORE_OPENERS:
        return STORE_OPENERS[scheme]
    for entry in entry_points(group="turnlog.stores", name=scheme):
        opener: StoreOpener = entry.load()
        return opener
    problem = "expected a log like sqlite:///turnlog.db or memory:, or one that an installed package opens"
    # What follows the scheme may contain a password.
    raise CallerError(f"{problem}, got {quote(f'{scheme}:…' if scheme else url)}")
