"""The file of tokens: read again when it changes, and never for the worse."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from turnlog.app import Principal
from turnlog.server.auth.credentials import hash_token
from turnlog.server.auth.keys import TokenEntry, encode_tokens, read_token_entries
from turnlog.server.auth.token_file import TokenFile


class Applied:
    """A file of tokens, and whose tokens count."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "tokens.json"
        self.write("ada", "bob")
        self.names = ["ada", "bob"]
        self.reads = 0
        self.tokens = TokenFile(self.file, self._read, self._apply)

    def _read(self) -> dict[str, Principal]:
        self.reads += 1
        return read_token_entries(self.file)

    def _apply(self, tokens: Mapping[str, Principal]) -> None:
        self.names = [known.name for known in tokens.values()]

    def write(self, *names: str) -> None:
        self.file.write_text(encode_tokens({name: TokenEntry(hash_token(name)) for name in names}))


@pytest.fixture
def applied(tmp_path: Path) -> Applied:
    return Applied(tmp_path)


def test_file_that_has_not_changed_is_not_read(applied: Applied) -> None:
    applied.tokens.reload_if_changed()
    assert applied.reads == 0


def test_file_that_has_changed_is_read_once(applied: Applied) -> None:
    applied.write("ada")
    applied.tokens.reload_if_changed()
    applied.tokens.reload_if_changed()
    assert (applied.names, applied.reads) == (["ada"], 1)


def test_file_that_was_replaced_by_another_of_the_same_size_and_time_is_read(applied: Applied) -> None:
    before = applied.file.stat()
    new = applied.file.with_suffix(".new")
    new.write_text(encode_tokens({name: TokenEntry(hash_token(name)) for name in ("ada", "cyd")}))
    os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
    new.replace(applied.file)
    applied.tokens.reload_if_changed()
    assert applied.names == ["ada", "cyd"]


def test_reload_reads_a_file_that_has_not_changed(applied: Applied) -> None:
    applied.tokens.reload()
    assert applied.reads == 1


@pytest.mark.parametrize("content", [b"", b"{", b'{"local": {"sha256": "0"}}', None])
def test_bad_file_keeps_the_tokens_and_is_an_error_once(
    applied: Applied, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    if content is None:
        applied.file.unlink()
    else:
        applied.file.write_bytes(content)
    with caplog.at_level(logging.ERROR):
        applied.tokens.reload_if_changed()
        applied.tokens.reload_if_changed()
    assert applied.names == ["ada", "bob"]
    [record] = caplog.records
    assert record.getMessage().startswith("the token file cannot be used, the tokens before stay valid: ")
    applied.write("bob")
    applied.tokens.reload_if_changed()
    assert applied.names == ["bob"]
