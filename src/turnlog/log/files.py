"""The files of a SQLite log: who may read them, which process may write them, how they are read.

The database, its write-ahead log, the mark and the lock are made for their owner alone: all conversations are
in them. One process writes: it holds a lock on the file `.lock`, and before each transaction it checks that
this file and the database still are those that it opened. Otherwise another process may be writing.
"""

import os
from pathlib import Path
from typing import IO, cast

from turnlog.errors import StoreError


class WriterLock:
    """Makes this process the one that writes a database; the lock goes with the process.

    Makes the database file if there is none. Raise `StoreError` where another process writes it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock_path = path.with_name(path.name + ".lock")
        self._file = locked(self._lock_path, path.name)
        try:
            make_private(path)
            if path.stat().st_nlink > 1:
                # SQLite names the write-ahead log after the database: with two names there would be two.
                problem = "has a second name (a hard link), under which another process could write it"
                raise StoreError(f"{path.name} {problem}; remove one, or copy it with `turnlog backup`")
            self._checked = [str(path), str(self._lock_path)]  # for every write: no path is built again
            self._opened = [identity(name) for name in self._checked]
        except BaseException:
            self._file.close()
            raise

    def check(self) -> None:
        """Raise `StoreError` if the database or the lock was removed or replaced since it was opened."""
        try:
            found = [identity(name) for name in self._checked]
        except FileNotFoundError:
            found = []
        if found != self._opened:
            problem = "or its lock was removed or replaced, and another process may write it"
            raise StoreError(f"{self._path.name} {problem}; stop this one and start it again")

    def close(self) -> None:
        self._file.close()


def locked(path: Path, name: str) -> IO[bytes]:
    """Return a file that this process has locked."""
    try:
        import fcntl  # not at the top: Windows has none, and a log in memory works there
    except ImportError:
        raise StoreError("a SQLite log cannot be written on this system, which has no fcntl") from None
    file = open_for_owner(path, "ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise StoreError(f"{name} is being written by another process; stop that one first") from None
    return file


def make_private(path: Path) -> None:
    """Make an empty file for its owner alone, unless there is a file.

    A file that is there is not opened: to close it again would drop the locks that SQLite has on it.
    """
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def open_for_owner(path: Path, mode: str) -> IO[bytes]:
    """Open a file of bytes; one that is made is for its owner alone."""
    return cast(IO[bytes], open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600)))


def identity(name: str) -> tuple[int, int]:
    """Return device and inode of a file."""
    status = os.stat(name)
    return status.st_dev, status.st_ino


def reading_mode(path: Path) -> str:
    """Return how a database is opened to be read: as a query of SQLite's file addresses.

    SQLite makes files beside a database in order to read it. Where it cannot, on a read-only medium, the
    database is read as one that never changes. That leaves out a write-ahead log: one with events is refused.
    """
    if os.access(path.parent, os.W_OK):
        return "mode=ro"
    wal, shared = path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")
    if not wal.exists() or wal.stat().st_size == 0:
        return "mode=ro&immutable=1"
    if shared.exists():
        return "mode=ro"
    problem = f"{wal.name} has events, and SQLite cannot read it in a folder that cannot be written"
    raise StoreError(f"{problem}; copy {path.name} and the files beside it to another folder")
