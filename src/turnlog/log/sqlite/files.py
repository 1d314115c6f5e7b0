"""The files of a SQLite log: their permissions, the writer's lock, and how a reader opens them.

The database, its write-ahead log, the watermarks and the lock are private to their owner: they contain all
conversations. One process writes: it holds a lock on the file `.lock`, and before each transaction it checks
that this file and the database still are those that it opened. Otherwise another process may be writing.
"""

import os
from pathlib import Path
from typing import IO, cast

from turnlog.errors import StoreError


class WriterLock:
    """The right to write a database. The system releases it when the process ends.

    Creates the database file if there is none. Raises `StoreError` if another process has the lock.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock_path = path.with_name(path.name + ".lock")
        self._file = acquire_writer_lock(self._lock_path, path.name)
        try:
            create_private_file(path)
            if path.stat().st_nlink > 1:
                # SQLite names the write-ahead log after the database: two names would mean two logs.
                problem = "has a second name (a hard link), under which another process could write it"
                raise StoreError(f"{path.name} {problem}; remove one, or copy it with `turnlog backup`")
            # Checked before every write, so the paths are strings: `Path.stat` would build them again.
            self._checked_paths = [str(path), str(self._lock_path)]
            self._file_ids = [device_and_inode(name) for name in self._checked_paths]
        except BaseException:
            self._file.close()
            raise

    def check(self) -> None:
        """Raise `StoreError` if the database or the lock was removed or replaced since it was opened."""
        try:
            file_ids = [device_and_inode(name) for name in self._checked_paths]
        except FileNotFoundError:
            file_ids = []
        if file_ids != self._file_ids:
            problem = "or its lock was removed or replaced, and another process may write it"
            raise StoreError(f"{self._path.name} {problem}; stop this one and start it again")

    def close(self) -> None:
        self._file.close()


def acquire_writer_lock(path: Path, name: str) -> IO[bytes]:
    """Return a file that this process has locked. Raise `StoreError` if another process has."""
    try:
        import fcntl  # not at the top: Windows has none, and a log in memory works there
    except ImportError:
        raise StoreError("a SQLite log cannot be written on this system, which has no fcntl") from None
    file = open_private_file(path, "ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise StoreError(f"{name} is being written by another process; stop that one first") from None
    return file


def create_private_file(path: Path) -> None:
    # An existing file is not opened: closing it again would drop the locks that SQLite has on it.
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def open_private_file(path: Path, mode: str) -> IO[bytes]:
    """Open a binary file. If it is created, only its owner may read it."""
    return cast(IO[bytes], open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600)))


def device_and_inode(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def reading_mode(path: Path) -> str:
    """Return the query of the SQLite URI that opens a database for reading.

    Raise `StoreError` for a write-ahead log that SQLite cannot read in a read-only folder.
    """
    # SQLite creates files beside a database in order to read it.
    if os.access(path.parent, os.W_OK):
        return "mode=ro"

    # On a read-only medium it must be told that the database never changes. Then it ignores the write-ahead
    # log, which is right only if that is empty.
    wal = path.with_name(path.name + "-wal")
    if not wal.exists() or wal.stat().st_size == 0:
        return "mode=ro&immutable=1"
    if path.with_name(path.name + "-shm").exists():
        return "mode=ro"

    problem = f"{wal.name} has events, and SQLite cannot read it in a folder that cannot be written"
    raise StoreError(f"{problem}; copy {path.name} and the files beside it to another folder")
