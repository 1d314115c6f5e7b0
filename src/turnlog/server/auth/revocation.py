"""Cookies that people have signed out, until those would have expired.

For a SQLite log the records are in a file beside the key, for its owner alone: one line of JSON for each
sign-out, on the disk before the sign-out is answered. Without a file they are in memory, as the key is.
A principal has `MAX_IDS` records at most. With the next one the server revokes every cookie that the
principal was given up to then, so that signing in and out in a loop costs no memory.
"""

import asyncio
import logging
import os
from pathlib import Path

import msgspec

from turnlog.errors import CallerError, StoreError
from turnlog.server.auth.private_files import write_private_temp_file

log = logging.getLogger("turnlog.server")

MAX_IDS_PER_PRINCIPAL = 100
MAX_STALE_LINES = 1000  # so many lines that say nothing any more are kept before the file is written anew


class Revocation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One cookie of a principal, or all that were made up to a time (milliseconds since 1970)."""

    name: str
    until: int
    id: str = ""
    made_ms: int = 0


class RevokedCookies:
    """What was signed out. A cookie is known by the principal's name, its id and when it was made."""

    def __init__(self, file: Path | None = None, now_s: float = 0.0) -> None:
        self._file = file
        self._now_s = now_s
        self._ids: dict[str, dict[str, int]] = {}
        self._cutoffs: dict[str, Revocation] = {}
        self._line_count = 0
        self._write_lock = asyncio.Lock()
        if file is not None and file.exists():
            self._load(file)

    def is_revoked(self, name: str, cookie_id: str, made_ms: int) -> bool:
        """Return whether a cookie was signed out."""
        older = self._cutoffs.get(name)
        return cookie_id in self._ids.get(name, ()) or (older is not None and made_ms <= older.made_ms)

    async def revoke(self, name: str, cookie_id: str, until: int, now_s: float) -> None:
        """Revoke a cookie at once; return when that is on the disk.

        `until` is when no cookie that the principal has by now holds any longer. Raise `StoreError` if the
        record cannot be written: then it holds until the server stops.
        """
        self._now_s = now_s
        record = Revocation(name, until, cookie_id)
        if len(self._ids.get(name, ())) >= MAX_IDS_PER_PRINCIPAL and cookie_id not in self._ids[name]:
            record = Revocation(name, until, made_ms=int(now_s * 1000))
        self._apply(record)
        async with self._write_lock:
            self._line_count += 1
            is_long = self._line_count > MAX_STALE_LINES + 2 * self._record_count()
            if is_long:
                self._drop_expired()
                self._line_count = self._record_count()
            lines = self._records() if is_long else [record]
            try:
                await asyncio.to_thread(self._rewrite if is_long else self._append, lines)
            except OSError as error:
                raise StoreError(f"the sign-out cannot be stored: {error.strerror}") from error

    def _apply(self, record: Revocation) -> None:
        if record.id:
            self._ids.setdefault(record.name, {})[record.id] = record.until
        else:
            self._ids.pop(record.name, None)
            self._cutoffs[record.name] = record

    def _record_count(self) -> int:
        return len(self._cutoffs) + sum(map(len, self._ids.values()))

    def _drop_expired(self) -> None:
        now_s = self._now_s
        ids = {
            name: {one: until for one, until in known.items() if until > now_s}
            for name, known in self._ids.items()
        }
        self._ids = {name: known for name, known in ids.items() if known}
        self._cutoffs = {name: record for name, record in self._cutoffs.items() if record.until > now_s}

    def _records(self) -> list[Revocation]:
        ids = [
            Revocation(name, until, one) for name, known in self._ids.items() for one, until in known.items()
        ]
        return [*self._cutoffs.values(), *ids]  # in this order: a time takes the place of the ids before it

    def _load(self, file: Path) -> None:
        """Read the file and write it anew: a line that a crash cut off must not swallow the next one."""
        try:
            for line in file.read_bytes().splitlines():
                try:
                    self._apply(msgspec.json.decode(line, type=Revocation))
                except msgspec.DecodeError:
                    log.error("a line of %s is not a sign-out and is dropped", file.name)
            self._drop_expired()
            self._line_count = self._record_count()
            self._rewrite(self._records())
        except OSError as error:
            raise CallerError(f"cannot read who has signed out from {file}: {error.strerror}") from None

    def _append(self, records: list[Revocation]) -> None:
        if self._file is None:
            return
        number = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(number, "ab") as file:
            file.write(encode_revocations(records))
            file.flush()
            os.fsync(file.fileno())

    def _rewrite(self, records: list[Revocation]) -> None:
        if self._file is None:
            return
        with write_private_temp_file(self._file, encode_revocations(records)) as name:
            os.replace(name, self._file)


def encode_revocations(records: list[Revocation]) -> bytes:
    """Return the lines of a file."""
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)
