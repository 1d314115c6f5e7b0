"""A copy of a SQLite log that another process may be writing: consistent, whole, and with a mark of its own.

The copy has every session, event and blob up to one moment. Its sessions have new epochs: where it takes the
place of the log, the log may have gone on after that moment, and a reader's cursor must not be continued as
if nothing had happened. The server's key is not copied: whoever has a copy must not sign in at the server.
"""

import os
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from turnlog.errors import CallerError
from turnlog.ids import new_epoch
from turnlog.log.sqlite import verify
from turnlog.log.sqlite.checksums import values_checksum
from turnlog.log.sqlite.files import reading_mode
from turnlog.log.sqlite.queries import (
    UPDATE_RECORD,
    encode_record,
    has_valid_record_checksum,
    read_all_records,
)
from turnlog.log.sqlite.store import read_transaction, translate_errors
from turnlog.log.sqlite.watermark import Watermark, WatermarkFile
from turnlog.log.store import SessionRecord

PAGES_PER_STEP = 4096  # copied between two looks whether the copy was cancelled: 32 MB


def back_up(source: Path, target: Path) -> list[SessionRecord]:
    """Copy a log to a file that is not there yet, for its owner alone; return its sessions.

    Raise `CallerError` if there is such a file, `StoreError` if the log cannot be read or the copy written.
    """
    mark = target.with_name(target.name + ".mark")
    for file in (target, mark):
        if file.exists():
            raise CallerError(f"{file} is there already: name a file that is not")
    with translate_errors(), private_temp_file(target) as copy:
        marked = read_watermarks(source)  # before the copy: a session may have grown since, never shrunk
        uri = f"file:{quote(str(source.resolve()))}?{reading_mode(source.resolve())}"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            heads = copy_database(connection, copy)
        write_watermarks(mark, heads, marked)
        os.replace(copy, target)
        sync_folder(target.parent)
    return list(heads.values())


@contextmanager
def private_temp_file(target: Path) -> Iterator[Path]:
    """Yield a new file beside another; it is removed if it is still there afterwards."""
    number, name = tempfile.mkstemp(prefix=f"{target.name}.", dir=target.parent)
    os.close(number)
    try:
        yield Path(name)
    finally:
        for ending in ("", "-journal"):
            Path(name + ending).unlink(missing_ok=True)


def read_watermarks(source: Path) -> dict[int, Watermark]:
    """Return how far the sessions of a log had come, as its mark says."""
    mark = WatermarkFile(source.with_name(source.name + ".mark"), writable=False)
    slots = dict(mark.watermarks())
    mark.close()
    return slots


def copy_database(source: sqlite3.Connection, path: Path) -> dict[int, SessionRecord]:
    """Copy one state of a database into an empty file; return the copy's sessions by number."""
    with closing(sqlite3.connect(path, isolation_level=None)) as copy:
        with read_transaction(source):
            verify.check_schema(source)
            source.backup(copy, pages=PAGES_PER_STEP)
        copy.execute("pragma journal_mode = delete")  # one file, which can be read on a read-only medium
        heads: dict[int, SessionRecord] = {}
        copy.execute("begin immediate")
        for number, head, crc in list(read_all_records(copy)):
            if not has_valid_record_checksum(head, crc):
                continue  # it stays as it is, and `verify` reports it
            heads[number] = head.replace(epoch=new_epoch(), revision=head.revision + 1)
            values = encode_record(heads[number])
            copy.execute(UPDATE_RECORD, (*values, values_checksum(*values), number))
        copy.execute("commit")
    return heads


def write_watermarks(
    path: Path, records: Mapping[int, SessionRecord], watermarks: Mapping[int, Watermark]
) -> None:
    """Write how far the sessions of the copy have come; of one that the log has lost, how far it had come."""
    slots = dict(watermarks)
    for number, head in records.items():
        before = watermarks.get(number)
        last = max(head.last, before.last if before else -1)
        slots[number] = Watermark(last, head.revision, head.session_id)
    mark = WatermarkFile(path, writable=True, sessions=max(slots, default=0))
    mark.write_commit(slots)
    mark.close()
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Have the names of new files on the disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
