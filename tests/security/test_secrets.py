"""Row 21: a token is in no file, no stream, no export, no journal and no counter. Events are not redacted."""

import os
import stat
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.e2e.harness import TURNLOG, Server, running
from tests.support.limits import HANG_S
from turnlog.cli import main


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path, str, str]]:
    """A server that was used with its token and with a link; its files, a session and a cookie."""
    folder = tmp_path_factory.mktemp("canary")
    shell = f'exec "{TURNLOG}" "$@" --journal info 2>"{folder}/journal"'
    with running("tests.security.apps:plain", folder, program=("/bin/sh", "-c", shell, "sh")) as server:
        session = server.session()
        server.send(session, "hear me")
        code = urllib.parse.urlsplit(server.link).query
        server.get(f"/sign-in?{code}", {"authorization": ""})
        server.post("/api/links", {"session": session, "roles": ["guest"]})
        yield server, folder, session, code.removeprefix("code=")


def text_of(server: Server, path: str) -> str:
    """A whole answer, as text."""
    request = urllib.request.Request(server.url + path, headers=server.headers)
    with urllib.request.urlopen(request, timeout=HANG_S) as response:
        return str(response.read().decode())


def files_with(folder: Path, secret: str) -> list[str]:
    """The files in which something stands."""
    found = [file for file in sorted(folder.iterdir()) if file.is_file()]
    return [file.name for file in found if secret.encode() in file.read_bytes()]


def test_no_file_holds_a_token_or_a_code(used: tuple[Server, Path, str, str]) -> None:
    server, folder, _, code = used
    names = {file.name for file in folder.iterdir()}
    assert {"log.db", "log.db-wal", "log.db.mark", "log.db.key", "journal"} <= names
    for secret in (server.token, code):
        assert files_with(folder, secret) == []


def test_no_answer_export_or_counter_holds_one(used: tuple[Server, Path, str, str]) -> None:
    server, folder, session, code = used
    paths = (f"/api/log?session={session}", "/metrics", "/api/sessions", "/api/me", "/openapi.json")
    told = [text_of(server, path) for path in paths]
    exported = CliRunner().invoke(main, ["export", "--log", f"sqlite:///{folder}/log.db"]).stdout
    tailed = CliRunner().invoke(main, ["tail", "--log", f"sqlite:///{folder}/log.db"]).stdout
    for text in (told[0], exported, tailed):
        assert "hear me" in text
    for text in (*told, exported, tailed):
        assert server.token not in text
        assert code not in text


def test_control_a_secret_that_somebody_writes_is_found_everywhere(
    used: tuple[Server, Path, str, str],
) -> None:
    server, folder, session, _ = used
    canary = "canary-9d1c4e"
    server.send(session, f"my password is {canary}")
    assert [name for name in files_with(folder, canary) if name.startswith("log.db")]
    assert canary in text_of(server, f"/api/log?session={session}")
    assert "journal" not in files_with(folder, canary)


def test_only_the_server_reads_its_key(used: tuple[Server, Path, str, str], tmp_path: Path) -> None:
    from turnlog.errors import CallerError
    from turnlog.server.auth.keys import load_or_create_key

    _, folder, _, _ = used
    assert stat.S_IMODE(os.stat(folder / "log.db.key").st_mode) == 0o600
    url = f"sqlite:///{tmp_path}/log.db"
    assert load_or_create_key(url) == load_or_create_key(url)
    (tmp_path / "log.db.key").chmod(0o644)  # control: a key that others can read is noticed
    with pytest.raises(CallerError, match="can be read by others"):
        load_or_create_key(url)
