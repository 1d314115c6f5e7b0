"""The log: append-only, durable, resumable. `open_log` opens one; stores are behind it."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from turnlog.errors import CallerError, quote
from turnlog.log.log import Log
from turnlog.log.memory import MemoryStore
from turnlog.log.sqlite import SqliteStore
from turnlog.log.store import Blob, Damage, Document, Head, Page, Row, Store, line_of

__all__ = [
    "Blob",
    "Damage",
    "Document",
    "Head",
    "Log",
    "MemoryStore",
    "Page",
    "Row",
    "SqliteStore",
    "Store",
    "line_of",
    "open_log",
]


async def open_log(url: str, *, writable: bool = True) -> Log:
    """Open the log at `memory:` or `sqlite:///path` (a fourth slash makes the path absolute).

    One process writes a SQLite log; others open it with `writable=False` and follow it.
    """
    parts = urlsplit(url)
    if parts.scheme == "memory" and not parts.netloc and not parts.path:
        return Log(MemoryStore())
    if parts.scheme == "sqlite" and not parts.netloc and parts.path.startswith("/") and len(parts.path) > 1:
        store = SqliteStore(Path(unquote(parts.path[1:])), writable=writable)
        return Log(store, writable=writable)
    raise CallerError(f"expected a log like sqlite:///turnlog.db or memory:, got {quote(url)}")
