"""The server's key and the file of tokens: who may read them, and what is refused in which words."""

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from tests.support.tables import for_each_row
from turnlog.app import Principal
from turnlog.errors import CallerError
from turnlog.server.auth.credentials import hash_token
from turnlog.server.auth.keys import (
    KEY_BYTES,
    TokenEntry,
    create_key,
    derive_key,
    encode_tokens,
    load_or_create_key,
    read_key_file,
    read_token_entries,
)


def refused(call: object, *arguments: object) -> str:
    with pytest.raises(CallerError) as refusal:
        call(*arguments)  # type: ignore[operator]
    return str(refusal.value)


class TestKey:
    def test_it_is_made_once_beside_the_log_for_its_owner_alone(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/new/log.db"
        old = os.umask(0)
        try:
            key = load_or_create_key(url)
        finally:
            os.umask(old)
        file = tmp_path / "new" / "log.db.key"
        assert (len(key), file.read_bytes()) == (KEY_BYTES, key)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert load_or_create_key(url) == key
        assert [path.name for path in file.parent.iterdir()] == ["log.db.key"]

    def test_two_logs_have_two_keys(self, tmp_path: Path) -> None:
        assert load_or_create_key(f"sqlite:///{tmp_path}/a.db") != load_or_create_key(
            f"sqlite:///{tmp_path}/b.db"
        )

    def test_it_stands_beside_the_log_however_the_url_is_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        load_or_create_key("sqlite:///my%20log.db")
        assert [path.name for path in tmp_path.iterdir()] == ["my log.db.key"]

    def test_without_a_file_it_is_a_new_one_each_time(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert load_or_create_key("memory:") != load_or_create_key("memory:")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("url", ["postgresql://db/turnlog", "nats://127.0.0.1:4222"])
    def test_key_of_a_shared_log_has_to_be_given_to_each_server(self, url: str) -> None:
        with pytest.raises(CallerError, match="--key-file or TURNLOG_KEY"):
            load_or_create_key(url)

    def test_key_file_gives_every_server_the_same_key_and_must_be_private(self, tmp_path: Path) -> None:
        file = tmp_path / "secret"
        file.write_text("k" * 32 + "\n")
        file.chmod(0o640)
        assert read_key_file(file) == derive_key(b"k" * 32, "TURNLOG_KEY")
        assert read_key_file(file) != derive_key(b"l" * 32, "TURNLOG_KEY")
        file.chmod(0o644)
        with pytest.raises(CallerError, match="can be read by everyone"):
            read_key_file(file)

    def test_secret_that_can_be_guessed_and_file_that_is_not_there_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(CallerError, match="at least 32 random characters in TURNLOG_KEY"):
            derive_key(b"k" * 31, "TURNLOG_KEY")
        with pytest.raises(CallerError, match=r"cannot read .*No such file"):
            read_key_file(tmp_path / "none")

    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610])
    def test_one_that_others_can_reach_is_refused(self, mode: int, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/log.db"
        load_or_create_key(url)
        (tmp_path / "log.db.key").chmod(mode)
        assert "can be read by others: make it private (chmod 600 log.db.key)" in refused(
            load_or_create_key, url
        )

    @pytest.mark.parametrize("size", [0, 1, KEY_BYTES - 1, KEY_BYTES + 1, 100])
    def test_one_of_another_size_is_refused(self, size: int, tmp_path: Path) -> None:
        file = tmp_path / "log.db.key"
        file.touch(0o600)
        file.write_bytes(b"x" * size)
        assert "is not a key: remove it" in refused(load_or_create_key, f"sqlite:///{tmp_path}/log.db")

    def test_a_folder_that_cannot_be_made_is_said(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        said = refused(load_or_create_key, f"sqlite:///{tmp_path}/file/log.db")
        assert said.startswith("cannot store the server's key in ")

    def test_two_starts_at_once_have_one_key(self, tmp_path: Path) -> None:
        many = 8
        with ThreadPoolExecutor(many) as pool:
            for number in range(20):
                start = Barrier(many)
                url = f"sqlite:///{tmp_path}/{number}.db"

                def key(url: str = url, start: Barrier = start) -> bytes:
                    start.wait()
                    return load_or_create_key(url)

                assert len({future.result() for future in [pool.submit(key) for _ in range(many)]}) == 1
        assert len(list(tmp_path.iterdir())) == 20

    def test_who_makes_it_second_takes_the_first(self, tmp_path: Path) -> None:
        file = tmp_path / "log.db.key"
        assert create_key(file) == create_key(file)


class TestTokens:
    HASH = hash_token("a")

    def write(self, folder: Path, said: object) -> Path:
        file = folder / "tokens.json"
        file.write_text(said if isinstance(said, str) else json.dumps(said))
        return file

    def test_principals_are_found_by_the_hash_of_their_token(self, tmp_path: Path) -> None:
        said = {"ada": {"sha256": self.HASH, "roles": ["operator"]}, "bob": {"sha256": hash_token("b")}}
        assert read_token_entries(self.write(tmp_path, said)) == {
            self.HASH: Principal("ada", frozenset({"operator"})),
            hash_token("b"): Principal("bob"),
        }

    def test_what_is_written_is_read(self, tmp_path: Path) -> None:
        lines = encode_tokens({"Ada L.": TokenEntry(self.HASH, ("operator", "executor"))})
        assert read_token_entries(self.write(tmp_path, lines)) == {
            self.HASH: Principal("Ada L.", frozenset({"operator", "executor"}))
        }

    @pytest.mark.parametrize(
        ("said", "words"),
        [
            ("", "is not a token file"),
            ("[]", "is not a token file: Expected `object`"),
            ('{"ada": "secret"}', "$[...]"),
            ({"ada": {}}, "missing required field `sha256`"),
            ({"ada": {"sha256": HASH, "role": "owner"}}, "unknown field `role`"),
            ({"ada": {"sha256": "a"}}, "expected the SHA-256 of ada's token as 64 hex digits"),
            ({"ada": {"sha256": HASH.upper()}}, "as 64 hex digits"),
            (
                {"ada": {"sha256": HASH, "roles": ["owner"]}},
                "expected a server role, executor, operator or source",
            ),
            ({"jwt:ada": {"sha256": HASH}}, "expected a name without a colon"),
            (
                {"": {"sha256": HASH}},
                "expected a name of at most 128 bytes without control characters, got ''",
            ),
            ({"a\nb": {"sha256": HASH}}, r"got 'a\nb'"),
            ({"ü" * 65: {"sha256": HASH}}, "at most 128 bytes"),
            ({"ada": {"sha256": HASH}, "bob": {"sha256": HASH}}, "two names have the same token"),
            ({"local": {"sha256": HASH}}, "'local' is reserved for the server"),
            ({"guest_1": {"sha256": HASH}}, "'guest_1' is reserved for the server"),
        ],
    )
    def test_what_is_wrong_is_said(self, said: object, words: str, tmp_path: Path) -> None:
        assert words in refused(read_token_entries, self.write(tmp_path, said))

    def test_a_file_that_is_not_there_is_said(self, tmp_path: Path) -> None:
        said = refused(read_token_entries, tmp_path / "none.json")
        assert said == f"cannot read {tmp_path}/none.json: No such file or directory"

    @for_each_row("role", ["", "Operator", "owner", "clerk", "operator\n"])
    def test_a_role_that_is_none_is_not_written(self, role: str) -> None:
        assert "expected a server role" in refused(encode_tokens, {"ada": TokenEntry(self.HASH, (role,))})
