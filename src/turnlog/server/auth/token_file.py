"""The file of tokens, read again when it changes or when the operator asks for it (SIGHUP).

A file that cannot be read, or is not right, changes nothing: the tokens that were read last go on to hold.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from turnlog.app import Principal
from turnlog.errors import CallerError

log = logging.getLogger("turnlog.server")

Tokens = Mapping[str, Principal]
FileVersion = tuple[int, int, int]


class TokenFile:
    """`read` returns the tokens or raises `CallerError`; `apply` takes them."""

    def __init__(self, file: Path, read: Callable[[], Tokens], apply: Callable[[Tokens], None]) -> None:
        self._file = file
        self._read = read
        self._apply = apply
        self._version = self._read_version()

    def reload_if_changed(self) -> None:
        """Read the file if it is not the one that was read last."""
        if self._read_version() != self._version:
            self.reload()

    def reload(self) -> None:
        """Read the file. Whether it is right is in the journal."""
        self._version = self._read_version()
        try:
            tokens = self._read()
        except CallerError as error:
            log.error("the tokens stay as they were: %s", error)
            return
        self._apply(tokens)
        log.info("the tokens were read again: %d", len(tokens))

    def _read_version(self) -> FileVersion | None:
        try:
            status = self._file.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino
