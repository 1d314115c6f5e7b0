"""Cookies that were signed out, until they would have expired.

For a SQLite log the records are in a private file beside the key: one line of JSON for each sign-out, on the
disk before the sign-out is answered. Without a file they are in memory, as the key is. Servers that share a
log store them there (`sign_in_journal`), and `publish` is how. A principal has
`MAX_IDS_PER_PRINCIPAL` records at most. The next one revokes every cookie that the principal has got up to
then, so that signing in and out in a loop costs no memory.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from turnlog.errors import CallerError, StoreError
from turnlog.server.auth.private_files import write_private_temp_file

log = logging.getLogger("turnlog.server")

MAX_IDS_PER_PRINCIPAL = 100
MAX_STALE_LINES = 1000  # lines without effect in the file before it is rewritten


class Revocation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One cookie of a principal, or without an id all that were made up to `made_ms` (since 1970)."""

    name: str
    until: int
    id: str = ""
    made_ms: int = 0


Publish = Callable[[Revocation], Awaitable[None]]


class RevokedCookies:
    """The revoked cookies. A cookie is identified by its principal, its id and the time it was made."""

    def __init__(self, file: Path | None = None, now_s: float = 0.0) -> None:
        self._file = file
        self._now_s = now_s
        self._ids: dict[str, dict[str, int]] = {}
        self._cutoffs: dict[str, Revocation] = {}
        self._line_count = 0
        self._write_lock = asyncio.Lock()
        self.publish: Publish | None = None
        if file is not None and file.exists():
            self._load(file)

    def is_revoked(self, name: str, cookie_id: str, made_ms: int) -> bool:
        if cookie_id in self._ids.get(name, ()):
            return True
        cutoff = self._cutoffs.get(name)
        return cutoff is not None and made_ms <= cutoff.made_ms

    async def revoke(self, name: str, cookie_id: str, until: int, now_s: float) -> None:
        """Revoke a cookie at once. Return when the record is on the disk.

        At `until` every cookie that the principal has now will have expired. Raise `StoreError` if the record
        cannot be written: then the cookie is revoked until the server stops.
        """
        self._now_s = now_s
        ids = self._ids.get(name, {})
        if len(ids) >= MAX_IDS_PER_PRINCIPAL and cookie_id not in ids:
            record = Revocation(name, until, made_ms=int(now_s * 1000))
        else:
            record = Revocation(name, until, cookie_id)
        self.apply(record)
        if self.publish is not None:
            await self.publish(record)
            return

        async with self._write_lock:
            self._line_count += 1
            needs_rewrite = self._line_count > MAX_STALE_LINES + 2 * self._record_count()
            try:
                if needs_rewrite:
                    self._drop_expired()
                    self._line_count = self._record_count()
                    await asyncio.to_thread(self._rewrite, self._records())
                else:
                    await asyncio.to_thread(self._append, [record])
            except OSError as error:
                raise StoreError(f"the sign-out cannot be stored: {error.strerror}") from error

    def apply(self, record: Revocation) -> None:
        """Refuse cookies from now on, without storing it."""
        if record.id:
            self._ids.setdefault(record.name, {})[record.id] = record.until
        else:
            self._ids.pop(record.name, None)
            self._cutoffs[record.name] = record

    def _record_count(self) -> int:
        return len(self._cutoffs) + sum(map(len, self._ids.values()))

    def _drop_expired(self) -> None:
        now_s = self._now_s
        valid_ids = {}
        for name, ids in self._ids.items():
            valid = {cookie_id: until for cookie_id, until in ids.items() if until > now_s}
            if valid:
                valid_ids[name] = valid
        self._ids = valid_ids
        self._cutoffs = {name: record for name, record in self._cutoffs.items() if record.until > now_s}

    def _records(self) -> list[Revocation]:
        # Cutoffs come first: applying one drops the ids before it.
        records = list(self._cutoffs.values())
        for name, ids in self._ids.items():
            records += [Revocation(name, until, cookie_id) for cookie_id, until in ids.items()]
        return records

    def _load(self, file: Path) -> None:
        """Read the file and rewrite it: the next line must not be appended to one that a crash cut off."""
        try:
            for line in file.read_bytes().splitlines():
                try:
                    self.apply(msgspec.json.decode(line, type=Revocation))
                except msgspec.DecodeError:
                    log.error("a line of %s is not a sign-out and is dropped", file.name)
            self._drop_expired()
            self._line_count = self._record_count()
            self._rewrite(self._records())
        except OSError as error:
            raise CallerError(f"cannot read the signed-out cookies in {file}: {error.strerror}") from None

    def _append(self, records: list[Revocation]) -> None:
        if self._file is None:
            return
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(encode_revocations(records))
            file.flush()
            os.fsync(file.fileno())

    def _rewrite(self, records: list[Revocation]) -> None:
        if self._file is None:
            return
        with write_private_temp_file(self._file, encode_revocations(records)) as name:
            os.replace(name, self._file)


def encode_revocations(records: list[Revocation]) -> bytes:
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)
