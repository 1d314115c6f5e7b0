"""Blobs and logs over HTTP: what a page may load and a person may keep."""

import asyncio
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import TURNLOG, Reader, Server, kind, running
from tests.support.limits import HANG_S


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("fast", tmp_path_factory.mktemp("downloads")) as server:
        yield server


def test_a_session_is_downloaded_as_it_is_exported(server: Server, tmp_path: Path) -> None:
    session = server.session()
    server.send(session, "Rome")
    asyncio.run(Reader(server, session).read(kind("tool.await")))
    request = urllib.request.Request(f"{server.url}/api/log?session={session}", headers=server.headers)
    with urllib.request.urlopen(request, timeout=HANG_S) as response:
        assert response.headers["content-disposition"] == f'attachment; filename="{session}.jsonl"'
        lines = response.read().splitlines()
    assert json.loads(lines[0])["type"] == "session"
    assert [json.loads(line)["seq"] for line in lines[1:]] == list(range(len(lines) - 1))
    (tmp_path / "log.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    copy = f"sqlite:///{tmp_path / 'copy.db'}"
    subprocess.run([TURNLOG, "import", "--log", copy, str(tmp_path / "log.jsonl")], check=True)


@pytest.mark.parametrize(
    "path", ["/api/log?session=sess_nobody", "/api/log", "/api/blobs/sess_nobody/" + "0" * 64]
)
def test_what_is_not_there_is_404(server: Server, path: str) -> None:
    status, answer = server.get(path)
    assert (status, list(answer)) == (404, ["error"])
