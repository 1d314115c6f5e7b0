"""The token file, read again when it changes and on SIGHUP.

A file that cannot be read or is invalid changes nothing: the tokens that were read last stay valid.
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
    """Reloads the tokens. `read` returns them or raises `CallerError`; `apply` is called with them."""

    def __init__(self, file: Path, read: Callable[[], Tokens], apply: Callable[[Tokens], None]) -> None:
        self._file = file
        self._read = read
        self._apply = apply
        self._version = self._read_version()

    def reload_if_changed(self) -> None:
        if self._read_version() != self._version:
            self.reload()

    def reload(self) -> None:
        """Read the file and apply it. An invalid file is logged and changes nothing."""
        self._version = self._read_version()
        try:
            tokens = self._read()
        except CallerError as error:
            log.error("the token file cannot be used, the tokens before stay valid: %s", error)
            return
        self._apply(tokens)
        log.info("the token file was read again, it has %d tokens", len(tokens))

    def _read_version(self) -> FileVersion | None:
        try:
            status = self._file.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino
