"""A consistent copy of a SQLite log that another process may be writing, with its own watermarks.

The copy has every session, event and blob up to one moment. Its sessions have new epochs: if it replaces the
log, the log may have had later events, and a reader's cursor must not continue as if nothing had happened.
The server's key is not copied: a copy of the log must not allow to sign in at the server.
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
from turnlog.log.records import SessionRecord
from turnlog.log.sqlite.files import reading_mode
from turnlog.log.sqlite.queries import read_all_records
from turnlog.log.sqlite.schema import UPDATE_RECORD, check_schema, has_valid_record_checksum, update_values
from turnlog.log.sqlite.store import read_transaction, translate_errors
from turnlog.log.sqlite.watermark import Watermark, WatermarkFile

PAGES_PER_STEP = 4096  # 32 MB: between two steps the copy can be cancelled


def back_up(source: Path, target: Path) -> list[SessionRecord]:
    """Copy a log to a new file that only its owner may read. Return its sessions.

    Raise `CallerError` if the file exists, `StoreError` if the log cannot be read or the copy not written.
    """
    watermark_path = target.with_name(target.name + ".mark")
    for path in (target, watermark_path):
        if path.exists():
            raise CallerError(f"{path} exists already; choose another file")

    with translate_errors(), private_temp_file(target) as copy:
        # Before the copy: a session may grow in between, but never shrink.
        watermarks = read_watermarks(source)
        uri = f"file:{quote(str(source.resolve()))}?{reading_mode(source.resolve())}"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            records = copy_database(connection, copy)
        write_watermarks(watermark_path, records, watermarks)
        os.replace(copy, target)
        sync_folder(target.parent)
    return list(records.values())


@contextmanager
def private_temp_file(target: Path) -> Iterator[Path]:
    descriptor, name = tempfile.mkstemp(prefix=f"{target.name}.", dir=target.parent)
    os.close(descriptor)
    try:
        yield Path(name)
    finally:
        for suffix in ("", "-journal"):
            Path(name + suffix).unlink(missing_ok=True)


def read_watermarks(source: Path) -> dict[int, Watermark]:
    file = WatermarkFile(source.with_name(source.name + ".mark"), writable=False)
    watermarks = dict(file.watermarks())
    file.close()
    return watermarks


def copy_database(source: sqlite3.Connection, path: Path) -> dict[int, SessionRecord]:
    records: dict[int, SessionRecord] = {}
    with closing(sqlite3.connect(path, isolation_level=None)) as copy:
        with read_transaction(source):
            check_schema(source)
            source.backup(copy, pages=PAGES_PER_STEP)
        # Without a write-ahead log the copy is one file, which can be read on a read-only medium.
        copy.execute("pragma journal_mode = delete")

        copy.execute("begin immediate")
        for number, record, crc in list(read_all_records(copy)):
            if not has_valid_record_checksum(record, crc):
                continue  # stays damaged, and `turnlog verify` reports it
            records[number] = record.replace(epoch=new_epoch(), revision=record.revision + 1)
            copy.execute(UPDATE_RECORD, update_values(number, records[number]))
        copy.execute("commit")
    return records


def write_watermarks(
    path: Path, records: Mapping[int, SessionRecord], watermarks: Mapping[int, Watermark]
) -> None:
    new_watermarks = dict(watermarks)
    for number, record in records.items():
        last = record.last
        if number in watermarks:
            last = max(last, watermarks[number].last)
        new_watermarks[number] = Watermark(last, record.revision, record.session_id)

    file = WatermarkFile(path, writable=True, sessions=max(new_watermarks, default=0))
    file.write_commit(new_watermarks)
    file.close()
    with path.open("rb") as written:
        os.fsync(written.fileno())


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
